//! May this message come in? **Invariant:** pure; whatever is not `Accept` leaves no trace.

use domain::ids::Seq;
use protocol::journal::{AcceptedState, BusyReason, DuplicateState, Enqueue, Enqueued};
use supervision::planted::{Bug, planted};

use crate::key::KeyState;

/// After a session's bound, at least; each open turn adds to it.
const RETRY_SESSION_MS: u64 = 1_000;
/// Of one open turn of the session.
const RETRY_SESSION_TURN_MS: u64 = 100;
/// After the process's bound, at least; each open turn adds to it.
const RETRY_PROCESS_MS: u64 = 2_000;
/// Of one open turn of the process.
const RETRY_PROCESS_TURN_MS: u64 = 2;
/// Nobody is sent away for longer.
const RETRY_MAX_MS: u64 = 60_000;
/// After the disk's bound.
pub const RETRY_DISK_MS: u64 = 5_000;

/// The configured bounds.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Open turns per session.
    pub inbox_max: u32,
    /// Bytes of open bodies per session.
    pub inbox_max_bytes: u64,
    /// Bytes of open bodies in the process.
    pub queued_max_bytes: u64,
    /// Open turns behind the first one, per session that has no such bound of its own.
    pub queue_cap: Option<u32>,
}

/// What is so at this moment, apart from the key.
#[derive(Debug, Clone, Copy)]
pub struct Gate {
    /// Wall clock.
    pub now_ms: u64,
    /// The process is stopping.
    pub draining: bool,
    /// The log is near its limit or cannot be written.
    pub disk_busy: bool,
    /// Bytes of open and of waiting bodies in the process.
    pub queued_bytes: u64,
    /// Open turns in the process.
    pub open: u64,
    /// There is no memory for more.
    pub memory_short: bool,
}

/// The verdict.
#[derive(Debug, PartialEq, Eq)]
pub enum Admission {
    /// Log it.
    Accept {
        /// Its place.
        seq: Seq,
        /// Turns before it.
        position: u32,
        /// What becomes of it.
        state: AcceptedState,
    },
    /// Say this.
    Answer(Enqueued),
    /// Read the recent ids of the transcript first.
    FindIds,
}

/// Decides over `message`, whose id hashes to `id`. `key` is the state of its key, fresh if it has none.
pub fn admit(key: &KeyState, message: &Enqueue, id: u128, bounds: &Bounds, gate: &Gate) -> Admission {
    if let Some((known, open)) = key.find(id).filter(|_| !planted(Bug::NoDedupe)) {
        return Admission::Answer(if known.body_hash == message.body_hash {
            let state = if open { DuplicateState::Open } else { DuplicateState::Ended };
            Enqueued::Duplicate { turn: known.turn, state }
        } else {
            Enqueued::Conflict { turn: known.turn }
        });
    }
    if let Some(refusal) = refuse(key, message, bounds, gate) {
        return Admission::Answer(refusal);
    }
    if key.recent.is_none() {
        return Admission::FindIds;
    }
    let position = u32::try_from(key.open.len()).unwrap_or(u32::MAX);
    let state = match (key.quarantined_until(gate.now_ms), position) {
        (Some(_), _) => AcceptedState::Quarantined,
        (None, 0) => AcceptedState::Running,
        (None, _) => AcceptedState::Queued,
    };
    Admission::Accept { seq: key.next_seq, position, state }
}

fn refuse(key: &KeyState, message: &Enqueue, bounds: &Bounds, gate: &Gate) -> Option<Enqueued> {
    let bytes = message.body.len() as u64;
    if gate.draining {
        return Some(Enqueued::Draining);
    }
    if gate.disk_busy {
        return Some(busy(RETRY_DISK_MS, BusyReason::Disk));
    }
    let cap = key.queue_cap.or(bounds.queue_cap).map_or(u64::MAX, u64::from);
    let waiting_full = (key.open.len() as u64).checked_sub(1).is_some_and(|waiting| waiting >= cap);
    let full = key.open.len() >= bounds.inbox_max as usize || key.open_bytes + bytes > bounds.inbox_max_bytes;
    if waiting_full || full {
        return Some(match key.quarantined_until(gate.now_ms) {
            Some(until_ms) => Enqueued::Quarantined { until_ms },
            None => session_full(key.open.len()),
        });
    }
    if gate.queued_bytes + bytes > bounds.queued_max_bytes {
        return Some(process_full(gate.open, BusyReason::Process));
    }
    // With nothing open, waiting would free nothing.
    if gate.memory_short && gate.open > 0 {
        return Some(process_full(gate.open, BusyReason::Memory));
    }
    None
}

/// The session has `open` turns, and no room for more.
pub fn session_full(open: usize) -> Enqueued {
    let waits = (open as u64).saturating_mul(RETRY_SESSION_TURN_MS);
    busy(RETRY_SESSION_MS.saturating_add(waits).min(RETRY_MAX_MS), BusyReason::Session)
}

/// The process has `open` turns, and no room for more.
pub fn process_full(open: u64, why: BusyReason) -> Enqueued {
    let waits = open.saturating_mul(RETRY_PROCESS_TURN_MS);
    busy(RETRY_PROCESS_MS.saturating_add(waits).min(RETRY_MAX_MS), why)
}

/// A refusal.
pub fn busy(retry_after_ms: u64, why: BusyReason) -> Enqueued {
    Enqueued::Busy { retry_after_ms, why }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_more_is_open_the_later_a_sender_should_come_back() {
        let waits = |answer: Enqueued| match answer {
            Enqueued::Busy { retry_after_ms, .. } => retry_after_ms,
            other @ (Enqueued::Accepted { .. }
            | Enqueued::Duplicate { .. }
            | Enqueued::Conflict { .. }
            | Enqueued::Quarantined { .. }
            | Enqueued::Draining) => panic!("{other:?}"),
        };
        assert_eq!([0, 1, 64, 100_000].map(|open| waits(session_full(open))), [1_000, 1_100, 7_400, 60_000]);
        let process = |open| waits(process_full(open, BusyReason::Memory));
        assert_eq!([0, 1_000, 10_000, u64::MAX].map(process), [2_000, 4_000, 22_000, 60_000]);
    }
}
