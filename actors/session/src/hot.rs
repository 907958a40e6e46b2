//! Which conversations leave memory while all sessions together keep more than they may.
//!
//! Sessions with a conversation stand in a line. While there is too much, whoever ends a turn has the first in line
//! asked ([`Trim`]): it lets its conversation go, unless it was used since it joined; then it joins the end and the next
//! is asked. So what was not used for the longest time goes first, and each is asked at most twice for nothing.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use actix::WeakRecipient;
use supervision::tell;

/// Asks a session, which stands in the line no longer, to let its conversation go.
#[derive(Debug, actix::Message)]
#[rtype(result = "()")]
pub struct Trim;

/// The line, with the bytes that all keep.
pub struct Hot {
    bytes: AtomicU64,
    bytes_max: u64,
    /// Each session once; those that left meanwhile too, until their turn comes.
    line: Mutex<VecDeque<WeakRecipient<Trim>>>,
}

// === impl Hot ===

impl Hot {
    /// Nothing is kept yet; too much is more than `bytes_max`.
    pub fn new(bytes_max: u64) -> Self {
        Self { bytes: AtomicU64::new(0), bytes_max, line: Mutex::default() }
    }

    /// More is kept.
    pub fn add(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Less is kept.
    pub fn take(&self, bytes: u64) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// What all keep.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Stands `member` at the end of the line.
    pub fn join(&self, member: WeakRecipient<Trim>) {
        self.line().push_back(member);
    }

    /// Asks the first in line, if too much is kept.
    pub fn trim(&self) {
        while self.bytes() > self.bytes_max {
            let Some(first) = self.line().pop_front() else { return };
            if first.upgrade().is_some_and(|first| tell(&first, Trim).is_ok()) {
                return;
            }
        }
    }

    fn line(&self) -> MutexGuard<'_, VecDeque<WeakRecipient<Trim>>> {
        // A push or a pop leaves nothing half done.
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use testkit::deadline::run_paused;
    use testkit::probe::Probe;

    use super::*;

    #[test]
    fn the_first_in_line_is_asked_once_there_is_too_much() {
        run_paused("line", async {
            let hot = Hot::new(10);
            let (mut first, gone, mut second) = (Probe::<Trim>::new(), Probe::<Trim>::new(), Probe::<Trim>::new());
            hot.join(first.recipient().downgrade());
            hot.join(gone.recipient().downgrade());
            hot.join(second.recipient().downgrade());
            hot.add(10);
            hot.trim();
            assert_eq!(hot.line().len(), 3, "that much may be kept");
            hot.add(1);
            hot.trim();
            first.next().await;
            gone.stop().await;
            hot.trim();
            second.next().await;
            hot.trim();
            hot.take(1);
            assert_eq!((hot.bytes(), hot.line().len()), (10, 0));
        });
    }
}
