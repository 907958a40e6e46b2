//! Restarting the process because somebody asked for it in a chat, and telling that chat when it is done.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use domain::ids::SessionKey;
use tokio_util::sync::CancellationToken;

/// How long after its start a process tells the chat that asked for it.
const TELL_WITHIN_MS: u64 = 30_000;

/// Takes one order to restart. The composition root waits for it, and follows it.
#[derive(Debug)]
pub struct Restart {
    asked: CancellationToken,
    by: OnceLock<SessionKey>,
    /// Whose order began this process, and until when it wants to know that.
    began: Option<(SessionKey, u64)>,
    told: AtomicBool,
    /// How long running turns have to end.
    drain: Duration,
}

impl Restart {
    /// For a process that started at `now_ms`, perhaps because `asked_by` had asked the one before it for that. Running turns
    /// have `drain` to end.
    pub fn new(asked_by: Option<SessionKey>, now_ms: u64, drain: Duration) -> Self {
        let began = asked_by.map(|session| (session, now_ms.saturating_add(TELL_WITHIN_MS)));
        Self { asked: CancellationToken::new(), by: OnceLock::new(), began, told: AtomicBool::new(false), drain }
    }

    /// Asks for it; what whoever asks is told.
    pub(crate) fn ask(&self, by: &SessionKey) -> String {
        let lead = if self.by.set(by.clone()).is_ok() { "Restarting" } else { "A restart is under way already" };
        self.asked.cancel();
        let seconds = self.drain.as_secs();
        format!(
            "{lead}: running turns have up to {seconds} s to end, what has not ended by then goes on with the next start, and waiting \
             messages are kept."
        )
    }

    /// Returns when somebody asked.
    pub async fn asked(&self) {
        self.asked.cancelled().await;
    }

    /// Who asked, if somebody did.
    pub fn by(&self) -> Option<&SessionKey> {
        self.by.get()
    }

    /// Whether this session is to be told, now and never again, that the process has restarted.
    pub(crate) fn take_notice(&self, session: &SessionKey, now_ms: u64) -> bool {
        let wanted = self.began.as_ref().is_some_and(|(by, until_ms)| by == session && now_ms <= *until_ms);
        wanted && !self.told.swap(true, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAIN: Duration = Duration::from_secs(30);

    #[test]
    fn who_asked_is_told_once_and_soon_or_not_at_all() {
        let key = |text: &str| SessionKey::new(text).unwrap();
        let restart = Restart::new(Some(key("websocket:a")), 1_000, DRAIN);
        assert!(!restart.take_notice(&key("websocket:b"), 1_000));
        assert!(restart.take_notice(&key("websocket:a"), 31_000));
        assert!(!restart.take_notice(&key("websocket:a"), 1_000));
        assert!(!Restart::new(Some(key("websocket:a")), 1_000, DRAIN).take_notice(&key("websocket:a"), 31_001));
        assert!(!Restart::new(None, 1_000, DRAIN).take_notice(&key("websocket:a"), 1_000));
    }

    #[test]
    fn the_first_who_asks_is_the_one_who_asked() {
        let restart = Restart::new(None, 0, DRAIN);
        assert_eq!(restart.by(), None);
        let told = ["api:user:ann", "websocket:b"].map(|chat| restart.ask(&SessionKey::new(chat).unwrap()));
        assert!(told[0].starts_with("Restarting: running turns have up to 30 s to end"), "{told:?}");
        assert!(told[1].starts_with("A restart is under way already: running turns have up to 30 s"), "{told:?}");
        futures::executor::block_on(restart.asked());
        assert_eq!(restart.by().unwrap().as_str(), "api:user:ann");
    }
}
