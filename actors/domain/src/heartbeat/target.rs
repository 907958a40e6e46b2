//! Who is told what the heartbeat found.

use crate::ids::SessionKey;
use crate::keys::{Base, Key, Place};

/// A session that may be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Its key.
    pub key: SessionKey,
    /// When it was written to last, ms since 1970.
    pub updated_ms: u64,
}

/// The channel by which people speak in that session; none of one that no person speaks in, or that no channel reaches.
/// What the owner says is one session whatever the channel, if so configured: it counts as the WebSocket.
pub fn channel_of(key: &SessionKey) -> Option<String> {
    let key = Key::from(key);
    if key.heartbeat {
        return None;
    }
    let is_owners = matches!(key.base, Base::Unified | Base::Agent(_, Place::Main(_)));
    match key.channel() {
        _ if is_owners => Some("websocket".to_owned()),
        // Nobody waits there for what was not asked.
        Some(_) if matches!(key.base, Base::Api(_) | Base::Cli(_)) => None,
        channel => channel.map(str::to_owned),
    }
}

/// The newest session on a channel that is enabled.
pub fn newest(candidates: impl IntoIterator<Item = Candidate>, is_enabled: impl Fn(&str) -> bool) -> Option<Candidate> {
    let on_one = |candidate: &Candidate| channel_of(&candidate.key).is_some_and(|channel| is_enabled(&channel));
    candidates.into_iter().filter(on_one).max_by_key(|candidate| candidate.updated_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_sessions_of_people_have_a_channel() {
        for (key, channel) in [
            ("websocket:1", Some("websocket")),
            ("webhook:7:thread:t", Some("webhook")),
            ("telegram:-100", Some("telegram")),
            ("agent:main:main", Some("websocket")),
            ("unified:default", Some("websocket")),
            ("agent:main:webhook:group:g", Some("webhook")),
            ("agent:main:telegram:direct:ann", Some("telegram")),
            ("cli:direct", None),
            ("api:default", None),
            ("heartbeat", None),
            ("agent:main:main:heartbeat", None),
            ("cron:a", None),
            ("dream:20260328-090000", None),
            ("hook:x", None),
            ("agent:main:subagent:0193", None),
            ("elsewhere", None),
        ] {
            assert_eq!(channel_of(&SessionKey::new(key).unwrap()).as_deref(), channel, "{key}");
        }
    }

    #[test]
    fn the_newest_on_an_enabled_channel_is_told() {
        let candidates = || {
            [("telegram:1", 9), ("heartbeat", 8), ("webhook:7", 5), ("websocket:1", 3), ("webhook:8", 4)]
                .map(|(key, updated_ms)| Candidate { key: SessionKey::new(key).unwrap(), updated_ms })
        };
        let key = |enabled: &[&str]| {
            newest(candidates(), |channel| enabled.contains(&channel)).map(|one| one.key.to_string())
        };
        assert_eq!(key(&["webhook", "websocket"]).as_deref(), Some("webhook:7"));
        assert_eq!(key(&["websocket"]).as_deref(), Some("websocket:1"));
        assert_eq!(key(&[]), None);
    }
}
