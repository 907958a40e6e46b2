//! Connections that have not sent a whole request yet. Each holds one of its door's places, so without a rule a few
//! thousand of them would keep everybody else out.
//!
//! **Invariant:** a connection is silent, heard or sent away, and which of the last two is decided once, under the lock:
//! a request that was begun is never cut.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

/// How long a connection may take for the whole head of its first request.
pub(crate) const SILENT_MAX: Duration = Duration::from_secs(10);

/// The silent connections of one door; at most as many as it has places.
#[derive(Debug, Default)]
pub(crate) struct Silent(Mutex<Row>);

#[derive(Debug, Default)]
struct Row {
    next: u64,
    /// By the order in which they came.
    waiting: BTreeMap<u64, CancellationToken>,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Newcomer {
    silent: Arc<Silent>,
    number: u64,
    heard: AtomicBool,
    sent_away: CancellationToken,
}

impl Silent {
    /// A connection came.
    pub(crate) fn enter(self: &Arc<Self>) -> Newcomer {
        let sent_away = CancellationToken::new();
        let mut row = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let number = row.next;
        row.next += 1;
        row.waiting.insert(number, sent_away.clone());
        Newcomer { silent: Arc::clone(self), number, heard: AtomicBool::new(false), sent_away }
    }

    /// Sends the longest silent one away; false when none is.
    pub(crate) fn send_oldest_away(&self) -> bool {
        let mut row = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        row.waiting.pop_first().map(|(_, oldest)| oldest.cancel()).is_some()
    }

    fn take(&self, number: u64) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).waiting.remove(&number).is_some()
    }
}

impl Newcomer {
    /// It sent the head of a request; false when it was sent away before.
    pub(crate) fn hear(&self) -> bool {
        if !self.heard.load(Ordering::Acquire) && self.silent.take(self.number) {
            self.heard.store(true, Ordering::Release);
        }
        self.heard.load(Ordering::Acquire)
    }

    /// Resolves when it must go: for another's sake, or as it was silent for [`SILENT_MAX`].
    pub(crate) async fn must_go(&self) {
        let called = tokio::time::timeout(SILENT_MAX, self.sent_away.cancelled()).await.is_ok();
        if !called && !self.silent.take(self.number) {
            // Heard meanwhile, or just now sent away.
            self.sent_away.cancelled().await;
        }
    }
}

impl Drop for Newcomer {
    fn drop(&mut self) {
        self.silent.take(self.number);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_oldest_goes_first_and_who_was_heard_stays() {
        let silent = Arc::<Silent>::default();
        let (first, second, third, fourth) = (silent.enter(), silent.enter(), silent.enter(), silent.enter());
        assert!(first.hear() && first.hear());
        drop(third);
        assert!(silent.send_oldest_away());
        assert!(second.must_go().now_or_never().is_some() && !second.hear(), "it cannot come back");
        assert!(fourth.must_go().now_or_never().is_none());
        fourth.must_go().await;
        assert!(!fourth.hear(), "it was silent for too long");
        assert!(!silent.send_oldest_away());
        let later = tokio::time::timeout(SILENT_MAX * 10, first.must_go());
        assert!(later.await.is_err(), "who was heard may take its time");
    }
}
