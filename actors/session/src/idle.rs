//! Conversations in which nobody says anything any more: all but their last messages are summarised, one conversation at a
//! time, so that whoever comes back finds a short one. One that is not in memory is woken for it, and leaves again.
//!
//! **Source:** nanobot's `AutoCompact`. Other than there, a silence that began long before is left alone: a thousand old
//! conversations, brought in or found at the first start, are not summarised unless somebody speaks in them again.

use std::sync::Arc;
use std::time::Duration;

use domain::ids::SessionKey;
use domain::keys::{Base, Key};
use protocol::edit::{EditError, Edited};
use protocol::metrics::{ByResult, Metrics};
use protocol::registry::Sessions;
use protocol::session::Mail;
use protocol::transcripts::TranscriptReader;
use supervision::ports::Clock;
use tokio::sync::oneshot;

use crate::Transcripts;
use crate::actor::KEPT_MESSAGES;
use crate::index::Silence;

/// How long after it became silent a conversation is still looked at.
const LATE_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// Conversations that one look finds; the others are found by the next.
const FOUND_MAX: usize = 1000;

/// What may come of one.
pub(crate) const RESULTS: [&str; 5] = ["done", "nothing", "overtaken", "unreachable", "failed"];

/// When conversations are silent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdleRules {
    /// After how long.
    pub after: Duration,
    /// How often that is looked for.
    pub every: Duration,
}

/// What looks for them.
pub struct IdleWatch {
    /// The list of sessions.
    pub transcripts: Arc<Transcripts>,
    /// Where they are found.
    pub sessions: Arc<dyn Sessions>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// The counters.
    pub metrics: Metrics,
    /// When.
    pub rules: IdleRules,
}

// === impl IdleWatch ===

impl IdleWatch {
    /// Looks again and again, from the moment that all sessions are known.
    pub async fn run(self) {
        let mut known = self.transcripts.all_known();
        if known.wait_for(|known| *known).await.is_err() {
            return;
        }
        loop {
            tokio::time::sleep(self.rules.every).await;
            for key in self.transcripts.index().silent(&silence(self.rules.after, self.clock.wall_ms()), FOUND_MAX) {
                // What nothing outlives is not summed up for later, nor is the summing up itself.
                let place = Key::from(&key);
                if !place.is_ephemeral() && !matches!(place.base, Base::Dream(_)) {
                    let result = self.condense(&key).await;
                    self.metrics.work.idle_compactions.get_or_create(&ByResult { result }).inc();
                }
            }
        }
    }

    /// Has one summarised; what came of it, in a word.
    async fn condense(&self, key: &SessionKey) -> &'static str {
        let slept = self.sessions.state(key).is_none();
        let (reply, outcome) = oneshot::channel();
        if self.sessions.tell(key, Mail::Condense { reply }).is_err() {
            return "unreachable";
        }
        let outcome = outcome.await;
        if slept {
            // One that has something to do by now stays.
            let _ = self.sessions.tell_live(key, Mail::Passivate);
        }
        match outcome {
            Ok(Ok(Edited::Appended { compacted: None, .. })) => "failed",
            Ok(Ok(_)) => "done",
            Ok(Err(EditError::NotCompacted(_))) => "nothing",
            Ok(Err(EditError::Busy)) | Err(_) => "overtaken",
            Ok(Err(error)) => {
                tracing::warn!(session = %key, %error, "a silent conversation is not summarised");
                "failed"
            }
        }
    }
}

/// Which conversations became silent lately.
fn silence(after: Duration, now_ms: u64) -> Silence {
    let ms = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let since_ms = now_ms.saturating_sub(ms(after));
    // A row without a time is of no conversation.
    let after_ms = since_ms.saturating_sub(ms(LATE_MAX)).max(1);
    Silence { since_ms, after_ms, more_than: u64::from(KEPT_MESSAGES) }
}
