//! What the operating system allows this process, and how the doors and the model share it.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Connections of one door at once, however many files the system allows.
const CONNECTIONS_MAX: u64 = 10_000;
/// Connections of the gateway port or the webhook door at once, however many files the system allows.
const GATEWAY_CONNECTIONS_MAX: u64 = 1_000;
/// Model calls over HTTP at once, however many files the system allows.
const REMOTE_CALLS_MAX: u64 = 5_000;
/// Files that are kept for the journal, transcripts, logs and the gateway port, and a tenth of all more.
const RESERVE_MIN: u64 = 64;

/// Raises the soft limit of open files to the hard one: each connection needs one. Returns the limit now in force.
pub fn raise_file_limit() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, "file limit cannot be raised");
    }
    file_limit()
}

/// The soft limit of open files.
pub(super) fn file_limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Who may hold how many of the open files. The reserve is nobody's in full, so a crowd at one door leaves room for
/// the others, for the journal, and for `/health`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shares {
    /// Connections of the WebSocket door.
    pub websocket: usize,
    /// Connections of the OpenAI-compatible API.
    pub api: usize,
    /// Connections of the gateway port.
    pub gateway: usize,
    /// Connections of the webhook door.
    pub webhook: usize,
    /// Model calls over HTTP.
    pub remote_calls: usize,
}

impl Shares {
    /// Shares of the limit in force.
    pub fn in_force() -> Self {
        Self::of(file_limit())
    }

    /// A reserve first, of which the gateway port may take half and the webhook door a quarter; then a third for each
    /// door and a third for model calls. Nobody gets nothing.
    fn of(files: u64) -> Self {
        let reserve = (RESERVE_MIN + files / 10).min(files);
        let third = (files - reserve) / 3;
        let share = |files: u64, max: u64| usize::try_from(files.clamp(1, max)).unwrap_or(usize::MAX);
        Self {
            websocket: share(third, CONNECTIONS_MAX),
            api: share(third, CONNECTIONS_MAX),
            gateway: share(reserve / 2, GATEWAY_CONNECTIONS_MAX),
            webhook: share(reserve / 4, GATEWAY_CONNECTIONS_MAX),
            remote_calls: share(third, REMOTE_CALLS_MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_shared_with_a_reserve() {
        for (files, websocket, gateway, webhook, remote_calls) in [
            (0, 1, 1, 1, 1),
            (64, 1, 32, 16, 1),
            (100, 8, 37, 18, 8),
            (256, 55, 44, 22, 55),
            (1024, 286, 83, 41, 286),
            (4096, 1207, 236, 118, 1207),
            (20_000, 5978, 1000, 516, 5000),
            (65_536, 10_000, 1000, 1000, 5000),
            (u64::MAX, 10_000, 1000, 1000, 5000),
        ] {
            let shares = Shares { websocket, api: websocket, gateway, webhook, remote_calls };
            assert_eq!(Shares::of(files), shares, "{files} files");
            let sum = shares.websocket + shares.api + shares.gateway + shares.webhook + shares.remote_calls;
            assert!(files < 64 || (sum as u64) < files, "{files} files");
        }
    }

    #[test]
    fn the_raised_limit_is_the_one_in_force() {
        assert_eq!(raise_file_limit(), file_limit());
        assert_eq!(Shares::in_force(), Shares::of(file_limit()));
    }
}
