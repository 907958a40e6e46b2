//! Decides what is sent when. Pure.
//!
//! ```text
//!   row ──▶ ready ──▶ marking ──▶ sending ──▶ closing ──▶ the next row of the chat
//!             ▲   Sending durable     │ delivered, refused, or too old
//!             └────── paused ◀────────┘ failed: 1, 2, 4 … 300 s later
//! ```
//!
//! The rows of a chat are sent one after the other in the order of their commits; chats go in parallel, at most
//! [`Rules::parallel`] of them. Nothing is sent before the journal has `Sending` for it, so a row that is found with that
//! mark may have been sent already: it is sent again as a repeat.
//!
//! Of each channel at most [`Rules::rows_max`] rows and [`Rules::bytes_max`] bytes of text are held. What comes beyond
//! that is left in the journal, and so is everything after it, for the sake of the order; once half of the room is free,
//! the channel's oldest open rows are read again.
//!
//! Rows of a channel that this process does not have, as it is not enabled any more, are not tried: they wait, and are
//! given up at the same age as all others. A process that has the channel again finds them as they were.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use domain::ids::DeliveryId;
use protocol::journal::{AskRows, OutRow, Rows};

use super::board::ChannelLoad;
use super::lane::{Chat, Lane, Phase, Row};
use super::{Attempt, Outcome};

/// What the machine goes by.
#[derive(Debug, Clone)]
pub struct Rules {
    /// Chats that are sent to at once.
    pub parallel: usize,
    /// Rows of one channel in memory; what is more waits in the journal.
    pub rows_max: usize,
    /// Bytes of text of one channel in memory; a single longer row is held all the same.
    pub bytes_max: usize,
    /// Age at which a row that fails once more is given up.
    pub give_up: Duration,
    /// The wait after the first failure; it doubles with each further one.
    pub retry_base: Duration,
    /// The longest such wait.
    pub retry_cap: Duration,
    /// The longest wait that a receiver can ask for.
    pub retry_after_cap: Duration,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            parallel: 32,
            rows_max: 10_000,
            bytes_max: 32 << 20,
            give_up: Duration::from_secs(24 * 60 * 60),
            retry_base: Duration::from_secs(1),
            retry_cap: Duration::from_secs(300),
            retry_after_cap: Duration::from_secs(60 * 60),
        }
    }
}

impl Rules {
    /// Why a row that is too old is given up.
    fn too_late(&self, reason: &str) -> Arc<str> {
        let hours = self.give_up.as_secs() / 3600;
        format!("not delivered within {hours} hours; the last time: {reason}").into()
    }
}

/// The time of a step.
#[derive(Debug, Clone, Copy)]
pub struct Now {
    /// Since an arbitrary point.
    pub mono: Duration,
    /// Milliseconds since 1970.
    pub wall_ms: u64,
    /// 64 random bits, for the jitter.
    pub random: u64,
}

/// What happened.
#[derive(Debug)]
pub enum Input {
    /// A row was committed.
    Row(OutRow),
    /// The channels that have open rows, as [`Effect::Channels`] asked.
    Channels(Vec<Arc<str>>),
    /// Rows were committed that nobody kept.
    Missed,
    /// The oldest open rows of a channel, as [`Effect::Read`] asked.
    Rows(Arc<str>, Rows),
    /// `Sending` stands in the journal.
    Marked(DeliveryId),
    /// The attempt ended.
    Tried(DeliveryId, Outcome),
    /// `Sent` or `Undeliverable` stands in the journal.
    Closed(DeliveryId),
    /// Time passed.
    Tick,
    /// An orderly stop: nothing is tried again any more.
    Drain,
}

/// What to do, in order.
#[derive(Debug, PartialEq, Eq)]
pub enum Effect {
    /// Ask which channels have open rows; answer with [`Input::Channels`].
    Channels,
    /// Read open rows; answer with [`Input::Rows`].
    Read(AskRows),
    /// Write `Sending`; answer with [`Input::Marked`].
    Mark(DeliveryId),
    /// Send; answer with [`Input::Tried`].
    Send(Attempt),
    /// An attempt failed and is not the last one.
    Failed(FailedAttempt),
    /// Write `Sent`; answer with [`Input::Closed`].
    Sent(DeliveryId),
    /// Write `Undeliverable`; answer with [`Input::Closed`].
    GiveUp(OutRow, Arc<str>),
}

/// An attempt that failed, with another to come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedAttempt {
    /// The row.
    pub row: OutRow,
    /// Which attempt of this process it was, from 1.
    pub number: u32,
    /// Why, without contents or secrets.
    pub reason: Arc<str>,
    /// How long the next one waits.
    pub wait: Duration,
}

/// All rows in memory and what is under way for them.
#[derive(Debug)]
pub struct Machine {
    rules: Rules,
    lanes: BTreeMap<Chat, Lane>,
    /// Where each row is.
    known: HashMap<DeliveryId, Chat>,
    /// Chats whose first row may be worked on, in order.
    ready: VecDeque<Chat>,
    /// Chats whose first row waits for its next attempt.
    paused: BTreeSet<(Duration, Chat)>,
    /// Chats in one of the phases between.
    active: usize,
    /// Of all channels that have rows, or may get some.
    loads: BTreeMap<Arc<str>, ChannelLoad>,
    /// Channels that this process has.
    present: BTreeSet<Arc<str>>,
    /// Channels whose rows are being read.
    reading: BTreeMap<Arc<str>, Reading>,
    draining: bool,
}

/// What came while rows are being read.
#[derive(Debug, Default)]
struct Reading {
    late: Vec<OutRow>,
    missed: bool,
    /// Rows that the answer may still have.
    closed: HashSet<DeliveryId>,
}

// === impl Machine ===

impl Machine {
    /// Has no rows yet; they are read first.
    pub fn start(rules: Rules, channels: impl IntoIterator<Item = Arc<str>>) -> (Self, Vec<Effect>) {
        let present: BTreeSet<Arc<str>> = channels.into_iter().collect();
        let mut machine = Self {
            rules,
            lanes: BTreeMap::new(),
            known: HashMap::new(),
            ready: VecDeque::new(),
            paused: BTreeSet::new(),
            active: 0,
            loads: present.iter().map(|channel| (Arc::clone(channel), ChannelLoad::unread())).collect(),
            present,
            reading: BTreeMap::new(),
            draining: false,
        };
        let mut out = vec![Effect::Channels];
        machine.read_again(&mut out);
        (machine, out)
    }

    /// Takes one input.
    pub fn step(&mut self, input: Input, now: Now) -> Vec<Effect> {
        let mut out = Vec::new();
        match input {
            Input::Channels(channels) => channels.iter().for_each(|channel| self.know(channel)),
            Input::Row(row) => self.row(row, now),
            Input::Missed => {
                self.loads.values_mut().for_each(|load| load.behind = true);
                self.reading.values_mut().for_each(|reading| reading.missed = true);
            }
            Input::Rows(channel, rows) => self.rows(&channel, rows, now),
            Input::Marked(id) => self.marked(id, &mut out),
            Input::Tried(id, outcome) => self.tried(id, outcome, now, &mut out),
            Input::Closed(id) => self.closed(id),
            Input::Tick => {}
            Input::Drain => self.drain(),
        }
        self.wake(now);
        self.begin(now, &mut out);
        self.read_again(&mut out);
        out
    }

    /// From now on nothing is tried again.
    pub fn drain(&mut self) {
        self.draining = true;
    }

    /// When the next [`Input::Tick`] is due.
    pub fn due(&self) -> Option<Duration> {
        let (due, _) = self.paused.first()?;
        (!self.draining).then_some(*due)
    }

    /// Whether nothing is under way: what is left waits for another attempt, or for the next start.
    pub fn is_quiet(&self) -> bool {
        self.active == 0 && self.ready.is_empty() && self.reading.is_empty()
    }

    /// The rows of each channel.
    pub fn loads(&self) -> &BTreeMap<Arc<str>, ChannelLoad> {
        &self.loads
    }

    // --- rows ---

    /// The rows of a channel are read, also of one that is not there.
    fn know(&mut self, channel: &Arc<str>) {
        if !self.loads.contains_key(channel) {
            self.loads.insert(Arc::clone(channel), ChannelLoad::unread());
        }
    }

    fn row(&mut self, row: OutRow, now: Now) {
        self.know(&row.out.route.channel);
        let late_max = self.rules.rows_max;
        match self.reading.get_mut(&row.out.route.channel) {
            None => self.add(row, now),
            Some(reading) if reading.missed || reading.late.len() >= late_max => reading.missed = true,
            Some(reading) => reading.late.push(row),
        }
    }

    fn rows(&mut self, channel: &Arc<str>, Rows { rows, left }: Rows, now: Now) {
        let Some(Reading { late, missed, closed }) = self.reading.remove(channel) else { return };
        for row in rows.into_iter().filter(|row| !closed.contains(&row.out.id)) {
            self.add(row, now);
        }
        if let Some(load) = self.loads.get_mut(channel) {
            load.leave_behind(left);
        }
        for row in late {
            self.add(row, now);
        }
        if let Some(load) = self.loads.get_mut(channel) {
            load.behind |= missed;
        }
    }

    fn add(&mut self, row: OutRow, now: Now) {
        let id = row.out.id;
        let Some(load) = self.loads.get_mut(&row.out.route.channel) else { return };
        if self.known.contains_key(&id) {
            return;
        }
        if load.behind || !load.has_room(&row, self.rules.rows_max, self.rules.bytes_max) {
            load.leave_behind(1);
            return;
        }
        load.take(&row);
        let chat = Chat::of(&row.out.route);
        self.known.insert(id, chat.clone());
        let lane = self.lanes.entry(chat.clone()).or_default();
        lane.rows.push_back(Row::new(row, now));
        if lane.rows.len() == 1 {
            lane.phase = Phase::Ready;
            self.ready.push_back(chat);
        }
    }

    /// Reads again what was left in the journal, when there is room for a good part of it.
    fn read_again(&mut self, out: &mut Vec<Effect>) {
        if self.draining {
            return;
        }
        let Rules { rows_max, bytes_max, .. } = self.rules;
        for (channel, load) in &mut self.loads {
            let reads = self.reading.contains_key(channel);
            if !reads && load.behind && load.is_below(rows_max / 2, bytes_max / 2) {
                load.catch_up();
                self.reading.insert(Arc::clone(channel), Reading::default());
                out.push(Effect::Read(AskRows { channel: Arc::clone(channel), rows_max, bytes_max }));
            }
        }
    }

    // --- attempts ---

    fn wake(&mut self, now: Now) {
        while !self.draining
            && let Some((due, _)) = self.paused.first()
            && *due <= now.mono
            && let Some((_, chat)) = self.paused.pop_first()
        {
            if let Some(lane) = self.lanes.get_mut(&chat) {
                lane.phase = Phase::Ready;
                self.ready.push_back(chat);
            }
        }
    }

    /// Begins with as many chats as may be worked on at once.
    fn begin(&mut self, now: Now, out: &mut Vec<Effect>) {
        while self.active < self.rules.parallel
            && let Some(chat) = self.ready.pop_front()
        {
            let Some(lane) = self.lanes.get_mut(&chat) else { continue };
            let Some(head) = lane.rows.front_mut() else { continue };
            if !self.present.contains(&chat.channel) {
                let left = self.rules.give_up.saturating_sub(head.age(now));
                if left.is_zero() {
                    self.active += 1;
                    lane.phase = Phase::Closing;
                    out.push(Effect::GiveUp(head.row.clone(), self.rules.too_late("its channel is not enabled")));
                } else {
                    lane.phase = Phase::Paused;
                    self.paused.insert((now.mono.saturating_add(left), chat));
                }
                continue;
            }
            self.active += 1;
            if head.row.sending {
                lane.phase = Phase::Sending;
                out.push(Effect::Send(head.attempt()));
            } else {
                lane.phase = Phase::Marking;
                out.push(Effect::Mark(head.row.out.id));
            }
        }
    }

    fn marked(&mut self, id: DeliveryId, out: &mut Vec<Effect>) {
        let Some((lane, _)) = self.head(id, Phase::Marking) else { return };
        let Some(head) = lane.rows.front_mut() else { return };
        lane.phase = Phase::Sending;
        out.push(Effect::Send(head.attempt()));
        head.row.sending = true;
    }

    fn tried(&mut self, id: DeliveryId, outcome: Outcome, now: Now, out: &mut Vec<Effect>) {
        let rules = self.rules.clone();
        let Some((lane, chat)) = self.head(id, Phase::Sending) else { return };
        let Some(head) = lane.rows.front_mut() else { return };
        match outcome {
            Outcome::Delivered => {
                lane.phase = Phase::Closing;
                out.push(Effect::Sent(id));
            }
            Outcome::Refused { reason } => {
                lane.phase = Phase::Closing;
                out.push(Effect::GiveUp(head.row.clone(), reason));
            }
            Outcome::Failed { reason, .. } if head.age(now) >= rules.give_up => {
                lane.phase = Phase::Closing;
                out.push(Effect::GiveUp(head.row.clone(), rules.too_late(&reason)));
            }
            Outcome::Failed { reason, retry_after, taken } => {
                let number = head.failed(taken);
                let wait = head.wait(&rules, retry_after, now.random);
                let due = now.mono.saturating_add(wait);
                out.push(Effect::Failed(FailedAttempt { row: head.row.clone(), number, reason, wait }));
                lane.phase = Phase::Paused;
                self.active -= 1;
                self.paused.insert((due, chat));
            }
        }
    }

    fn closed(&mut self, id: DeliveryId) {
        let Some((lane, chat)) = self.head(id, Phase::Closing) else { return };
        let Some(closed) = lane.rows.pop_front() else { return };
        lane.phase = Phase::Ready;
        let more = !lane.rows.is_empty();
        self.active -= 1;
        self.known.remove(&id);
        if let Some(load) = self.loads.get_mut(&chat.channel) {
            load.give(&closed.row);
        }
        if let Some(reading) = self.reading.get_mut(&chat.channel) {
            reading.closed.insert(id);
        }
        if more {
            self.ready.push_back(chat);
        } else {
            self.lanes.remove(&chat);
        }
    }

    /// The lane whose first row is `id`, if that is in this phase.
    fn head(&mut self, id: DeliveryId, phase: Phase) -> Option<(&mut Lane, Chat)> {
        let chat = self.known.get(&id)?.clone();
        let lane = self.lanes.get_mut(&chat)?;
        let is_head = lane.rows.front().is_some_and(|head| head.row.out.id == id);
        (is_head && lane.phase == phase).then_some((lane, chat))
    }
}
