//! A journal, a receiver and a process that crashes, around one machine.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use domain::ids::DeliveryId;
use proptest::prelude::*;
use protocol::journal::{OutRow, Rows};

use super::{channels, row};
use crate::outbox::Outcome;
use crate::outbox::machine::{Effect, Input, Machine, Now, Rules};

/// One thing that happens.
#[derive(Debug, Clone)]
pub enum Happening {
    /// A turn of this chat commits a reply.
    Commit(u8),
    /// The journal's oldest answer, or hint, arrives.
    Journal,
    /// The oldest, or another, attempt ends.
    Attempt(u8, Ending),
    /// Time passes.
    Wait(u16),
    /// The deliverer begins anew; the journal has done what it was asked to.
    Crash,
}

/// How an attempt ends.
#[derive(Debug, Clone, Copy)]
pub enum Ending {
    Delivered,
    Refused,
    /// Not taken.
    Busy,
    /// Taken, but the sender does not hear of it.
    TakenSilently,
    /// Not taken, and nobody knows.
    LostSilently,
}

pub fn happening() -> impl Strategy<Value = Happening> {
    use Ending::{Busy, Delivered, LostSilently, Refused, TakenSilently};
    let ending =
        prop::sample::select(vec![Delivered, Delivered, Delivered, Refused, Busy, TakenSilently, LostSilently]);
    prop_oneof![
        4 => (0u8..4).prop_map(Happening::Commit),
        8 => Just(Happening::Journal),
        4 => (any::<u8>(), ending).prop_map(|(which, ending)| Happening::Attempt(which, ending)),
        2 => (1u16..400).prop_map(Happening::Wait),
        1 => Just(Happening::Crash),
    ]
}

/// What is under way from the journal to the deliverer.
enum Underway {
    Hint(OutRow),
    Rows(Arc<str>, Rows),
    Marked(DeliveryId),
    Closed(DeliveryId),
}

pub struct World {
    rules: Rules,
    machine: Machine,
    now: Now,
    /// Open rows in the order of their commits.
    open: Vec<OutRow>,
    committed: u64,
    underway: VecDeque<Underway>,
    attempts: Vec<(OutRow, bool)>,
    /// Rows that the receiver has; each chat's in the order of their first arrival.
    arrived: BTreeMap<String, Vec<u64>>,
    taken: BTreeSet<DeliveryId>,
    refused: BTreeSet<DeliveryId>,
}

fn number(id: DeliveryId) -> u64 {
    u64::try_from(id.turn.0.as_u128()).unwrap()
}

impl World {
    pub fn new(rules: Rules) -> Self {
        let (machine, first) = Machine::start(rules.clone(), channels());
        let now = Now { mono: Duration::from_secs(1), wall_ms: 1_000_000, random: 0 };
        let mut world = Self {
            rules,
            machine,
            now,
            open: Vec::new(),
            committed: 0,
            underway: VecDeque::new(),
            attempts: Vec::new(),
            arrived: BTreeMap::new(),
            taken: BTreeSet::new(),
            refused: BTreeSet::new(),
        };
        world.perform(first);
        world
    }

    pub fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Commit(chat) => {
                self.committed += 1;
                let channel = if chat == 0 { "mail" } else { "hook" };
                let row = row(self.committed, channel, &format!("c{chat}"), self.now.wall_ms);
                self.open.push(row.clone());
                self.underway.push_back(Underway::Hint(row));
            }
            Happening::Journal => self.journal(),
            Happening::Attempt(which, ending) => {
                if !self.attempts.is_empty() {
                    self.end_attempt(usize::from(which) % self.attempts.len(), ending);
                }
            }
            Happening::Wait(seconds) => {
                self.now.mono += Duration::from_secs(seconds.into());
                self.now.wall_ms += u64::from(seconds) * 1000;
                self.step(Input::Tick);
            }
            Happening::Crash => self.crash(),
        }
    }

    fn crash(&mut self) {
        // Hints stay in the mailbox; answers went to the life that asked.
        self.underway.retain(|underway| matches!(underway, Underway::Hint(_)));
        self.attempts.clear();
        let (machine, first) = Machine::start(self.rules.clone(), channels());
        self.machine = machine;
        self.perform(first);
    }

    fn journal(&mut self) {
        match self.underway.pop_front() {
            Some(Underway::Hint(row)) => self.step(Input::Row(row)),
            Some(Underway::Rows(channel, rows)) => self.step(Input::Rows(channel, rows)),
            Some(Underway::Marked(id)) => self.step(Input::Marked(id)),
            Some(Underway::Closed(id)) => self.step(Input::Closed(id)),
            None => {}
        }
    }

    fn end_attempt(&mut self, which: usize, ending: Ending) {
        let (row, repeat) = self.attempts.remove(which);
        let id = row.out.id;
        if matches!(ending, Ending::Delivered | Ending::TakenSilently) {
            if self.taken.insert(id) {
                self.arrived.entry(row.out.route.chat.to_string()).or_default().push(number(id));
            } else {
                assert!(repeat, "{id} came again and did not say so");
            }
        }
        let outcome = match ending {
            Ending::Delivered => Outcome::Delivered,
            Ending::Refused => Outcome::Refused { reason: "no".into() },
            Ending::Busy => Outcome::failed("busy"),
            Ending::TakenSilently | Ending::LostSilently => Outcome::unknown("silence"),
        };
        self.step(Input::Tried(id, outcome));
    }

    fn step(&mut self, input: Input) {
        self.now.random = self.now.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let effects = self.machine.step(input, self.now);
        self.perform(effects);
        for load in self.machine.loads().values() {
            assert!(load.held() <= self.rules.rows_max, "{} rows in memory", load.held());
        }
    }

    fn perform(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Channels => {
                    let channels: BTreeSet<_> = self.open.iter().map(|row| row.out.route.channel.clone()).collect();
                    self.step(Input::Channels(channels.into_iter().collect()));
                }
                Effect::Read(ask) => {
                    let of_channel = self.open.iter().filter(|row| row.out.route.channel == ask.channel);
                    let mut rows: Vec<OutRow> = of_channel.cloned().collect();
                    let left = rows.split_off(rows.len().min(ask.rows_max)).len() as u64;
                    self.underway.push_back(Underway::Rows(ask.channel, Rows { rows, left }));
                }
                Effect::Mark(id) => {
                    self.row(id).sending = true;
                    self.underway.push_back(Underway::Marked(id));
                }
                Effect::Send(attempt) => {
                    assert!(self.row(attempt.row.out.id).sending, "sent before the journal knew");
                    let chat = &attempt.row.out.route.chat;
                    let same = self.attempts.iter().any(|(row, _)| row.out.route.chat == *chat);
                    assert!(!same, "two at once to {chat}");
                    self.attempts.push((attempt.row, attempt.repeat));
                    assert!(self.attempts.len() <= self.rules.parallel);
                }
                Effect::Failed(failed) => {
                    assert!(self.open.contains(&failed.row) && failed.number > 0);
                }
                Effect::Sent(id) => {
                    assert!(self.taken.contains(&id));
                    self.close(id);
                }
                Effect::GiveUp(row, _) => {
                    self.refused.insert(row.out.id);
                    self.close(row.out.id);
                }
            }
        }
    }

    fn row(&mut self, id: DeliveryId) -> &mut OutRow {
        self.open.iter_mut().find(|row| row.out.id == id).expect("only open rows are worked on")
    }

    fn close(&mut self, id: DeliveryId) {
        self.row(id);
        self.open.retain(|row| row.out.id != id);
        self.underway.push_back(Underway::Closed(id));
    }

    /// Faults end: everything is delivered soon, in order, and nothing is left.
    pub fn settle(&mut self) {
        for _ in 0..10_000 {
            while !self.underway.is_empty() {
                self.journal();
            }
            if !self.attempts.is_empty() {
                self.end_attempt(0, Ending::Delivered);
                continue;
            }
            let Some(due) = self.machine.due() else { break };
            let wait = due.saturating_sub(self.now.mono);
            self.now.mono += wait;
            self.now.wall_ms += u64::try_from(wait.as_millis()).unwrap();
            self.step(Input::Tick);
        }
        assert!(self.open.is_empty(), "{:?} were forgotten", self.open);
        assert!(self.machine.is_quiet() && self.machine.due().is_none());
        assert!(self.machine.loads().values().all(|load| load.held() == 0));
        for (chat, numbers) in &self.arrived {
            assert!(numbers.is_sorted(), "{chat} got {numbers:?}");
        }
        for number in 1..=self.committed {
            let id = super::id(number);
            assert!(self.taken.contains(&id) || self.refused.contains(&id), "{number} was lost");
        }
    }
}
