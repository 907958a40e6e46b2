//! Where the journal hands over the rows that it made durable.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use actix::Recipient;
use protocol::journal::{OutRow, OutSink};
use supervision::tell;

/// Rows on their way to the deliverer. More are left in the journal, and the deliverer is told to read them there.
const UNDER_WAY_MAX: usize = 10_000;

/// A durable row, or word of rows that were not handed over.
#[derive(Debug, actix::Message)]
#[rtype(result = "()")]
pub(super) enum Hint {
    Row(Box<OutRow>),
    Missed,
}

/// The journal's end of the deliverer. Rows that come before there is a deliverer are read by it when it starts.
#[derive(Debug, Default)]
pub struct Inlet {
    to: OnceLock<Recipient<Hint>>,
    under_way: AtomicUsize,
    missed: AtomicBool,
}

// === impl Inlet ===

impl Inlet {
    /// From now on rows go to `to`.
    pub(super) fn attach(&self, to: Recipient<Hint>) {
        // A second deliverer would be a mistake of the composition root; the first one stays.
        let _ = self.to.set(to);
    }

    /// The deliverer took a hint.
    pub(super) fn received(&self, hint: &Hint) {
        match hint {
            Hint::Row(_) => drop(self.under_way.fetch_sub(1, Ordering::AcqRel)),
            Hint::Missed => self.missed.store(false, Ordering::Release),
        }
    }
}

impl OutSink for Inlet {
    fn out(&self, row: OutRow) {
        let Some(to) = self.to.get() else { return };
        let hint = if self.under_way.load(Ordering::Acquire) < UNDER_WAY_MAX {
            self.under_way.fetch_add(1, Ordering::AcqRel);
            Hint::Row(Box::new(row))
        } else if !self.missed.swap(true, Ordering::AcqRel) {
            Hint::Missed
        } else {
            return;
        };
        if tell(to, hint).is_err() {
            // The process is ending; the row stays in the journal.
            tracing::debug!("a delivery waits for the next start");
        }
    }
}
