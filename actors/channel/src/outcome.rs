//! What the journal and the transcript say about a message, as doors tell it.

use std::borrow::Cow;
use std::time::Duration;

use domain::ids::{Seq, SessionKey, TurnId};
use protocol::journal::{AcceptedState, BusyReason, DuplicateState, Enqueued, Space};
use protocol::session::{Mail, TurnRecord};
use protocol::turn::{Finished, Standing, TurnProgress};
use std::sync::{Arc, Mutex, PoisonError};
use supervision::ports::offload;
use tokio::sync::oneshot;

use crate::doors::Doors;
use crate::hub::{Shown, Sink};

/// When to come back if nothing better is known.
const RETRY_AFTER_MS: u64 = 5000;

/// How long a session may take to load before the asker is told that the outcome is not known yet.
const READ_TURN_MAX: Duration = Duration::from_secs(60);

/// The journal's verdict over a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Durable.
    Accepted { turn: TurnId, seq: Seq, position: u32, state: AcceptedState },
    /// It was accepted before, under this turn.
    Duplicate { turn: TurnId, state: DuplicateState },
    /// Nothing was written.
    Refused(Refusal),
}

/// Why nothing was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The id was used with another body.
    Conflict,
    /// The session's inbox is full.
    SessionFull { retry_after_ms: u64 },
    /// The process has too much waiting.
    ProcessFull { retry_after_ms: u64 },
    /// The process has no memory for more.
    MemoryFull { retry_after_ms: u64 },
    /// The disk is full or cannot be written.
    Disk { retry_after_ms: u64, space: Option<Space> },
    /// The session's transcript cannot be read.
    Transcript { retry_after_ms: u64 },
    /// The session crashed too often and its inbox is full.
    Quarantined { retry_after_ms: u64 },
    /// The process is stopping.
    Draining,
}

impl Verdict {
    /// `space` is asked what a full disk lacks.
    pub(crate) fn from_journal(enqueued: Option<Enqueued>, now_ms: u64, space: impl FnOnce() -> Option<Space>) -> Self {
        match enqueued {
            Some(Enqueued::Accepted { turn, seq, position, state }) => Self::Accepted { turn, seq, position, state },
            Some(Enqueued::Duplicate { turn, state }) => Self::Duplicate { turn, state },
            Some(Enqueued::Conflict { .. }) => Self::Refused(Refusal::Conflict),
            Some(Enqueued::Busy { retry_after_ms, why }) => Self::Refused(match why {
                BusyReason::Session => Refusal::SessionFull { retry_after_ms },
                BusyReason::Process => Refusal::ProcessFull { retry_after_ms },
                BusyReason::Memory => Refusal::MemoryFull { retry_after_ms },
                BusyReason::Disk => Refusal::Disk { retry_after_ms, space: space() },
                BusyReason::Transcript => Refusal::Transcript { retry_after_ms },
            }),
            Some(Enqueued::Quarantined { until_ms }) => {
                Self::Refused(Refusal::Quarantined { retry_after_ms: until_ms.saturating_sub(now_ms).max(1000) })
            }
            Some(Enqueued::Draining) | None => Self::Refused(Refusal::Draining),
        }
    }
}

impl Refusal {
    /// The HTTP status that clients are given.
    pub(crate) fn status(self) -> u16 {
        match self {
            Self::Conflict => 422,
            Self::SessionFull { .. } => 429,
            Self::ProcessFull { .. }
            | Self::MemoryFull { .. }
            | Self::Disk { .. }
            | Self::Transcript { .. }
            | Self::Quarantined { .. }
            | Self::Draining => 503,
        }
    }

    /// The word that clients are given.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Conflict => "message_id_conflict",
            Self::SessionFull { .. }
            | Self::ProcessFull { .. }
            | Self::MemoryFull { .. }
            | Self::Disk { .. }
            | Self::Transcript { .. }
            | Self::Quarantined { .. } => "busy",
            Self::Draining => "draining",
        }
    }

    /// The word that is counted.
    pub(crate) fn metric(self) -> &'static str {
        match self {
            Self::Conflict => "message_id_conflict",
            Self::SessionFull { .. } => "session_full",
            Self::ProcessFull { .. } => "process_full",
            Self::MemoryFull { .. } => "memory_full",
            Self::Disk { .. } => "disk",
            Self::Transcript { .. } => "transcript",
            Self::Quarantined { .. } => "quarantined",
            Self::Draining => "draining",
        }
    }

    /// A sentence for the client.
    pub(crate) fn detail(self) -> Cow<'static, str> {
        if let Self::Disk { space: Some(space), .. } = self {
            return format!("the journal cannot be written right now, its disk is full: {space}").into();
        }
        let detail = match self {
            Self::Conflict => "this message id was used before with another content",
            Self::SessionFull { .. } => "too many messages of this session are waiting",
            Self::ProcessFull { .. } => "too much is waiting in the whole gateway",
            Self::MemoryFull { .. } => "the gateway has no memory for more right now",
            Self::Disk { .. } => "the journal cannot be written right now",
            Self::Transcript { .. } => "the transcript of this session cannot be read",
            Self::Quarantined { .. } => "this session is held back after repeated crashes and its queue is full",
            Self::Draining => "the gateway is stopping",
        };
        detail.into()
    }

    /// When it may work.
    pub(crate) fn retry_after_ms(self) -> Option<u64> {
        match self {
            Self::Conflict => None,
            Self::SessionFull { retry_after_ms }
            | Self::ProcessFull { retry_after_ms }
            | Self::MemoryFull { retry_after_ms }
            | Self::Disk { retry_after_ms, space: _ }
            | Self::Transcript { retry_after_ms }
            | Self::Quarantined { retry_after_ms } => Some(retry_after_ms),
            Self::Draining => Some(RETRY_AFTER_MS),
        }
    }
}

/// Waits for the end of a turn, and for nothing else that its session shows.
pub(crate) struct EndSink(Mutex<Option<oneshot::Sender<End>>>);

/// What ends the wait for an answer.
pub(crate) enum End {
    /// The turn ended.
    Finished(Arc<Finished>),
    /// The message was accepted before, under this turn.
    Duplicate { turn: TurnId, state: DuplicateState },
    /// Nothing was written.
    Refused(Refusal),
}

impl EndSink {
    pub(crate) fn new() -> (Arc<Self>, oneshot::Receiver<End>) {
        let (tx, rx) = oneshot::channel();
        (Arc::new(Self(Mutex::new(Some(tx)))), rx)
    }

    fn end(&self, end: End) {
        if let Some(to) = self.0.lock().unwrap_or_else(PoisonError::into_inner).take() {
            // The asker may be gone.
            let _ = to.send(end);
        }
    }
}

impl Sink for EndSink {
    fn show(&self, shown: &Shown) {
        if let TurnProgress::Finished(finished) = &shown.event.what {
            self.end(End::Finished(Arc::clone(finished)));
        }
    }

    fn closed(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

/// A sink whose message the journal has still to judge. When it never will, the wait is over.
pub(crate) struct Unheard(Option<Arc<EndSink>>);

impl Unheard {
    pub(crate) fn new(sink: &Arc<EndSink>) -> Self {
        Self(Some(Arc::clone(sink)))
    }

    /// Ends the wait, unless the message was accepted: then the asker is not woken before its answer is there.
    pub(crate) fn hear(mut self, verdict: Verdict) {
        let Some(sink) = self.0.take() else { return };
        match verdict {
            Verdict::Accepted { .. } => {}
            Verdict::Duplicate { turn, state } => sink.end(End::Duplicate { turn, state }),
            Verdict::Refused(refusal) => sink.end(End::Refused(refusal)),
        }
    }
}

impl Drop for Unheard {
    fn drop(&mut self) {
        if let Some(sink) = &self.0 {
            sink.closed();
        }
    }
}

/// What is known of a turn that was accepted earlier.
pub(crate) enum Past {
    /// It waits or runs.
    Open,
    /// It ended so.
    Ended(Arc<Finished>),
    /// Neither journal nor transcript know it any more.
    Unknown,
    /// The session cannot be read now.
    Unreachable,
}

/// Like [`read_turn`], with how the session stands.
pub(crate) async fn read_turn_and_standing(doors: &Doors, key: &SessionKey, turn: TurnId) -> Past {
    match read_turn(doors, key, turn).await {
        Past::Ended(mut finished) => {
            Arc::make_mut(&mut finished).standing = standing(doors, key).await;
            Past::Ended(finished)
        }
        other @ (Past::Open | Past::Unknown | Past::Unreachable) => other,
    }
}

/// How a session stands; `None` when there is no such session, or it cannot say that now.
pub(crate) async fn standing(doors: &Doors, key: &SessionKey) -> Option<Standing> {
    let (reply, answer) = oneshot::channel();
    if let Err(mail) = doors.sessions.tell_live(key, Mail::Standing { reply }) {
        let (transcripts, file_of) = (Arc::clone(&doors.transcripts), key.clone());
        // Nothing is begun for a chat in which nothing was said.
        let is_there = offload(&*doors.ports.offload, move || transcripts.is_there(&file_of)).await;
        let told = is_there.is_ok_and(|found| found.unwrap_or(false)) && doors.sessions.tell(key, mail).is_ok();
        told.then_some(())?;
    }
    tokio::time::timeout(READ_TURN_MAX, answer).await.ok()?.ok()
}

/// Asks the session's transcript for a turn's outcome.
pub(crate) async fn read_turn(doors: &Doors, key: &SessionKey, turn: TurnId) -> Past {
    let (reply, answer) = oneshot::channel();
    if doors.sessions.tell(key, Mail::ReadTurn { turn, reply }).is_err() {
        return read_held(doors, key, turn).await;
    }
    match tokio::time::timeout(READ_TURN_MAX, answer).await {
        Ok(Ok(record)) => past(record),
        Ok(Err(_)) | Err(_) => Past::Unreachable,
    }
}

/// Of a session that is held back only the file is read: it has every turn that ended, but maybe not the very last one.
async fn read_held(doors: &Doors, key: &SessionKey, turn: TurnId) -> Past {
    let (transcripts, key) = (Arc::clone(&doors.transcripts), key.clone());
    match offload(&*doors.ports.offload, move || transcripts.turn(&key, turn)).await {
        Ok(Ok(Some(ended @ TurnRecord::Ended { .. }))) => past(Some(ended)),
        Ok(Ok(Some(TurnRecord::Open) | None) | Err(_)) | Err(_) => Past::Unreachable,
    }
}

fn past(record: Option<TurnRecord>) -> Past {
    match record {
        Some(TurnRecord::Open) => Past::Open,
        Some(TurnRecord::Ended { result, into, text, stop, usage, model }) => Past::Ended(Arc::new(Finished {
            result,
            into,
            text,
            stop,
            usage,
            model: model.into(),
            latency_ms: 0,
            standing: None,
        })),
        None => Past::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_has_its_words() {
        let turn = "01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap();
        for (enqueued, word, metric, retry) in [
            (Some(Enqueued::Conflict { turn }), "message_id_conflict", "message_id_conflict", None),
            (Some(Enqueued::Busy { retry_after_ms: 7, why: BusyReason::Session }), "busy", "session_full", Some(7)),
            (Some(Enqueued::Busy { retry_after_ms: 7, why: BusyReason::Process }), "busy", "process_full", Some(7)),
            (Some(Enqueued::Busy { retry_after_ms: 7, why: BusyReason::Memory }), "busy", "memory_full", Some(7)),
            (Some(Enqueued::Busy { retry_after_ms: 7, why: BusyReason::Disk }), "busy", "disk", Some(7)),
            (Some(Enqueued::Busy { retry_after_ms: 7, why: BusyReason::Transcript }), "busy", "transcript", Some(7)),
            (Some(Enqueued::Quarantined { until_ms: 90_000 }), "busy", "quarantined", Some(80_000)),
            (Some(Enqueued::Draining), "draining", "draining", Some(5000)),
            (None, "draining", "draining", Some(5000)),
        ] {
            let Verdict::Refused(refusal) = Verdict::from_journal(enqueued, 10_000, || None) else { panic!("{word}") };
            assert_eq!((refusal.word(), refusal.metric(), refusal.retry_after_ms()), (word, metric, retry));
            assert!(!refusal.detail().is_empty());
        }
        let space = Some(Space { needed_bytes: 64, free_bytes: 7 });
        let full = Refusal::Disk { retry_after_ms: 7, space };
        assert!(full.detail().ends_with("its disk is full: 64 bytes are needed, 7 are free"));
    }
}
