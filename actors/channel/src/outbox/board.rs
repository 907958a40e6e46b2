//! How much waits in each channel, for whoever looks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

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

/// Shows the loads as of the last change.
#[derive(Debug, Default)]
pub struct Board(Mutex<Vec<Waiting>>);

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
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = waiting;
    }

    /// Every channel that had messages in this process.
    pub fn waiting(&self) -> Vec<Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
