//! How much waits in each channel, for whoever looks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use domain::ids::DeliveryId;
use protocol::journal::OutRow;
use serde::Serialize;

/// The rows of one channel.
#[derive(Debug, Default)]
pub struct ChannelLoad {
    /// Those in memory, by the time of their commit.
    held: BTreeSet<(u64, DeliveryId)>,
    bytes: usize,
    /// Rows that were left in the journal since all were last read.
    beyond: u64,
    /// Whether later rows have to be left there, too.
    pub(super) behind: bool,
}

/// What waits in one channel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Waiting {
    /// Channel.
    pub channel: Arc<str>,
    /// Messages that wait or are being sent.
    pub messages: u64,
    /// When the oldest of them was committed, ms since 1970.
    pub oldest_ms: Option<u64>,
}

/// The failures of a message that is tried again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failing {
    /// Attempts of this process.
    pub tries: u32,
    /// Why the last one failed, without contents or secrets.
    pub error: Arc<str>,
    /// When the next one is due, ms since 1970.
    pub next_ms: u64,
}

/// Shows the loads as of the last change, and what fails: at most one message of each chat.
#[derive(Debug, Default)]
pub struct Board {
    waiting: Mutex<Vec<Waiting>>,
    failing: Mutex<BTreeMap<DeliveryId, Failing>>,
}

// === impl ChannelLoad ===

impl ChannelLoad {
    /// Nothing was read yet.
    pub(super) fn unread() -> Self {
        Self { behind: true, ..Self::default() }
    }

    pub(super) fn has_room(&self, row: &OutRow, rows_max: usize, bytes_max: usize) -> bool {
        let fits = self.bytes.saturating_add(row.out.text.len()) <= bytes_max;
        self.held.len() < rows_max && (fits || self.held.is_empty())
    }

    pub(super) fn is_below(&self, rows_max: usize, bytes_max: usize) -> bool {
        self.held.len() <= rows_max && self.bytes <= bytes_max
    }

    pub(super) fn take(&mut self, row: &OutRow) {
        if self.held.insert((row.committed_ms, row.out.id)) {
            self.bytes += row.out.text.len();
        }
    }

    pub(super) fn give(&mut self, row: &OutRow) {
        if self.held.remove(&(row.committed_ms, row.out.id)) {
            self.bytes -= row.out.text.len();
        }
    }

    /// So many rows are in the journal only.
    pub(super) fn leave_behind(&mut self, rows: u64) {
        self.behind |= rows > 0;
        self.beyond += rows;
    }

    pub(super) fn catch_up(&mut self) {
        (self.behind, self.beyond) = (false, 0);
    }

    /// Rows in memory.
    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.held.len()
    }

    fn waiting(&self, channel: &Arc<str>) -> Waiting {
        Waiting {
            channel: Arc::clone(channel),
            messages: self.held.len() as u64 + self.beyond,
            oldest_ms: self.held.first().map(|(committed_ms, _)| *committed_ms),
        }
    }
}

// === impl Board ===

impl Board {
    pub(super) fn show(&self, loads: &BTreeMap<Arc<str>, ChannelLoad>) {
        let waiting = loads.iter().map(|(channel, load)| load.waiting(channel)).collect();
        *self.waiting.lock().unwrap_or_else(PoisonError::into_inner) = waiting;
    }

    /// Every channel that had messages in this process.
    pub fn waiting(&self) -> Vec<Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How the attempts at a message went, if any failed in this process.
    pub fn failing(&self, id: DeliveryId) -> Option<Failing> {
        self.failures().get(&id).cloned()
    }

    pub(super) fn failed(&self, id: DeliveryId, failing: Failing) {
        self.failures().insert(id, failing);
    }

    pub(super) fn closed(&self, id: DeliveryId) {
        self.failures().remove(&id);
    }

    /// What fails is found out anew.
    pub(super) fn forget(&self) {
        self.failures().clear();
    }

    fn failures(&self) -> MutexGuard<'_, BTreeMap<DeliveryId, Failing>> {
        self.failing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
