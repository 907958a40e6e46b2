//! Open rows of the outbox, in the order of their commits. Their texts stay in the log. **Invariant:** pure.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use domain::ids::{DeliveryId, SessionKey};
use protocol::journal::{AskRows, LogPosition, OutRow};

use crate::record::RowPlace;

/// One open row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Its name.
    pub id: DeliveryId,
    /// The session that it comes from.
    pub key: SessionKey,
    /// Where it goes.
    pub channel: Arc<str>,
    /// When it was opened, ms since 1970.
    pub committed_ms: u64,
    /// A send was begun.
    pub sending: bool,
    /// The record that has it.
    pub at: LogPosition,
    /// About how many bytes it has.
    pub bytes: u32,
}

impl Row {
    /// What is remembered of `row`, which lies at `at`.
    pub fn new(row: &OutRow, at: LogPosition) -> Self {
        Self {
            id: row.out.id,
            key: row.key.clone(),
            channel: row.out.route.channel.clone(),
            committed_ms: row.committed_ms,
            sending: row.sending,
            at,
            bytes: u32::try_from(row.out.text.len() + 128).unwrap_or(u32::MAX),
        }
    }

    /// A row that was read back, as it stands now.
    pub fn refresh(&self, read: OutRow) -> OutRow {
        OutRow { committed_ms: self.committed_ms, sending: self.sending, ..read }
    }
}

/// All of them.
#[derive(Debug, Default)]
pub struct Outbox {
    rows: BTreeMap<RowPlace, Row>,
    places: HashMap<DeliveryId, RowPlace>,
    bytes: u64,
}

impl Outbox {
    /// Opens a row; one that is open already only moves in the log.
    pub fn open(&mut self, place: RowPlace, row: Row) {
        if let Some(known) = self.places.get(&row.id).and_then(|place| self.rows.get_mut(place)) {
            known.at = row.at;
            return;
        }
        self.bytes += u64::from(row.bytes);
        self.places.insert(row.id, place);
        self.rows.insert(place, row);
    }

    /// A send of it begins.
    pub fn sending(&mut self, id: DeliveryId) {
        if let Some(row) = self.places.get(&id).and_then(|place| self.rows.get_mut(place)) {
            row.sending = true;
        }
    }

    /// Takes it out.
    pub fn close(&mut self, id: DeliveryId) -> Option<Row> {
        let row = self.rows.remove(&self.places.remove(&id)?)?;
        self.bytes -= u64::from(row.bytes);
        Some(row)
    }

    /// One of them, with its place.
    pub fn get(&self, id: DeliveryId) -> Option<(RowPlace, &Row)> {
        let place = *self.places.get(&id)?;
        self.rows.get(&place).map(|row| (place, row))
    }

    /// In order.
    pub fn iter(&self) -> impl Iterator<Item = &Row> {
        self.rows.values()
    }

    /// The channels that have rows, in order.
    pub fn channels(&self) -> Vec<Arc<str>> {
        let channels: BTreeSet<&Arc<str>> = self.iter().map(|row| &row.channel).collect();
        channels.into_iter().cloned().collect()
    }

    /// Those that are asked for, in order, and how many more there are.
    pub fn oldest(&self, ask: &AskRows) -> (Vec<&Row>, u64) {
        let mut of_channel = self.iter().filter(|row| row.channel == ask.channel);
        let (mut rows, mut bytes) = (Vec::new(), 0_usize);
        let fits =
            |rows: &[&Row], bytes: usize| rows.len() < ask.rows_max && (rows.is_empty() || bytes <= ask.bytes_max);
        for row in of_channel.by_ref() {
            bytes = bytes.saturating_add(usize::try_from(row.bytes).unwrap_or(usize::MAX));
            if !fits(&rows, bytes) {
                return (rows, 1 + of_channel.count() as u64);
            }
            rows.push(row);
        }
        (rows, 0)
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Bytes of all.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}
