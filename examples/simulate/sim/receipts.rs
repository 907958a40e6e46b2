//! What the channel was sent and has taken, and what must be true of it: decisions on delivery, as the receiver sees them.
//!
//! Of each chat one message is sent at a time, in the order of its turns and parts. A message that the channel took comes
//! again only as a repeat that the log was told of, and never once it said in this life of the deliverer that it has it;
//! never after it was given up.

use std::collections::BTreeMap;
use std::sync::Arc;

use channel::outbox::Delivery;
use domain::ids::{DeliveryId, SessionKey, TurnId};
use protocol::supervision::{Event, EventName};

use super::books::Books;

/// One message, as the channel knows it.
#[derive(Debug, Default)]
struct Row {
    text: Arc<str>,
    parts: u32,
    attempts: u32,
    received: u32,
    /// The life of the deliverer in which the log was told of a repeat.
    told_in: Option<u32>,
    /// The life in which the channel said that it has it.
    taken_in: Option<u32>,
    refused: bool,
    given_up: bool,
}

/// All messages that went out.
#[derive(Debug, Default)]
pub struct Receipts {
    rows: BTreeMap<DeliveryId, Row>,
    /// What is being sent, by chat.
    under_way: BTreeMap<Arc<str>, DeliveryId>,
    /// What each chat received last.
    last: BTreeMap<Arc<str>, DeliveryId>,
    /// What a session's chat received last: the place of its turn and its part; and how often that went back.
    places: BTreeMap<SessionKey, ((u64, u32), usize)>,
    /// Lives of the deliverer so far.
    life: u32,
}

/// What became of a message in the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Account<'a> {
    /// What it says.
    pub text: &'a str,
    /// Whether the channel has it.
    pub received: bool,
    /// Whether the channel refused it for ever.
    pub refused: bool,
    /// How many messages its turn has.
    pub parts: u32,
}

impl Receipts {
    /// The deliverer crashed, or its process ended.
    pub fn next_life(&mut self) {
        self.life += 1;
    }

    /// The messages of a turn, by part.
    pub fn of(&self, turn: TurnId) -> impl Iterator<Item = (u32, Account<'_>)> {
        let range = DeliveryId { turn, n: 0 }..=DeliveryId { turn, n: u32::MAX };
        self.rows.range(range).map(|(id, row)| {
            let received = row.received > 0;
            (id.n, Account { text: &row.text, received, refused: row.refused, parts: row.parts })
        })
    }
}

impl Books {
    /// The channel is asked to send a message.
    pub fn begin_attempt(&mut self, delivery: &Delivery) -> Result<(), String> {
        let Delivery { id, turn, parts, text, repeat, route, .. } = delivery;
        let name = format!("part {} of {}", id.n, self.name(*turn));
        if !self.turns.get(turn).is_some_and(|turn| turn.pushed) && !self.guests.contains_key(turn) {
            return Err(format!("{name} is pushed though nobody asked for that"));
        }
        let receipts = &mut self.receipts;
        if let Some(other) = receipts.under_way.insert(Arc::clone(&route.chat), *id) {
            return Err(format!("{name} is sent while part {} of another message of its chat is", other.n));
        }
        let life = receipts.life;
        let row = receipts.rows.entry(*id).or_default();
        if row.attempts > 0 && (row.text != *text || row.parts != *parts) {
            return Err(format!("{name} is sent with another text"));
        }
        if row.given_up {
            return Err(format!("{name} is sent after it was given up"));
        }
        if row.taken_in == Some(life) {
            return Err(format!("{name} is sent again though the channel has it"));
        }
        if *repeat && row.told_in != Some(life) {
            return Err(format!("{name} is repeated without a word in the log"));
        }
        if *repeat && row.attempts == 0 && life == 0 {
            return Err(format!("{name} is called a repeat and was never sent"));
        }
        row.text = Arc::clone(text);
        row.parts = *parts;
        row.attempts += 1;
        Ok(())
    }

    /// The attempt is over, however that went.
    pub fn end_attempt(&mut self, delivery: &Delivery) {
        let under_way = &mut self.receipts.under_way;
        if under_way.get(&delivery.route.chat) == Some(&delivery.id) {
            under_way.remove(&delivery.route.chat);
        }
    }

    /// The receiver has a message.
    pub fn received(&mut self, delivery: &Delivery) -> Result<(), String> {
        let Delivery { id, key, route, repeat, .. } = delivery;
        let name = format!("part {} of {}", id.n, self.name(id.turn));
        let seq = self.turns.get(&id.turn).and_then(|turn| turn.seq);
        self.counts.receipts += 1;
        let receipts = &mut self.receipts;
        let row = receipts.rows.entry(*id).or_default();
        row.received += 1;
        let before = receipts.last.insert(Arc::clone(&route.chat), *id);
        if row.received > 1 {
            self.counts.repeats += 1;
            if !repeat {
                return Err(format!("{name} was received twice and not called a repeat"));
            }
            if before != Some(*id) {
                return Err(format!("{name} was received again after a later message of its chat"));
            }
            return Ok(());
        }
        let Some(seq) = seq else { return Ok(()) };
        let (last, back) = receipts.places.entry(key.clone()).or_default();
        *back += usize::from((seq, id.n) <= *last);
        *last = (seq, id.n);
        let back = *back;
        if back > self.renewals(key) {
            return Err(format!("{name} was received after a later message of its session"));
        }
        Ok(())
    }

    /// The channel says that it has a message.
    pub fn took(&mut self, id: DeliveryId) {
        let life = self.receipts.life;
        self.receipts.rows.entry(id).or_default().taken_in = Some(life);
    }

    /// The channel says that it will never take a message.
    pub fn refused(&mut self, id: DeliveryId) {
        self.receipts.rows.entry(id).or_default().refused = true;
    }

    /// The log was told something of a message.
    pub fn told(&mut self, event: &Event) {
        let Some(id) = event.delivery else { return };
        let life = self.receipts.life;
        let row = self.receipts.rows.entry(id).or_default();
        match event.event {
            EventName::DeliveryRepeated => row.told_in = Some(life),
            EventName::Undeliverable => {
                row.given_up = true;
                self.counts.undeliverable += 1;
            }
            _ => {}
        }
    }
}
