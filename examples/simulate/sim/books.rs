//! What a run has seen so far, and what must be true of it after every event.
//!
//! | always true | checked |
//! |---|---|
//! | 1. accepted = done (joined included) + dead + cancelled + open | after every event: `whole` |
//! | 2. turns of a session begin in the order of their acceptance | at every start and answer: [`Books::check_order`] |
//! | 3. at most one incarnation lives per session | at every birth, load, crash and end: `of_session` |
//! | 4. each incarnation ends once, with a reason | at every crash and end: `event`, `of_session`; of all: `whole` |
//! | 5. nobody is answered twice | at every event of a turn: [`Books::shown`]; of a chat: `receipts`; at the end: `settle` |
//! | 6. who is given up is told so, once | the same; only after its crashes and deaths: [`Books::shown`] |
//! | 7. restarts within any window stay within the budget, over all lives of a session | at every crash: `crashed` |
//! | 8. once nothing goes wrong any more, everything is answered and sent within a bound | at the end: `settle` |
//! | 9. an idle session costs nothing | at the end: `settle`: no session, watcher, running turn or waiting byte is left |
//! | 10. what is recovered is what the log says | at each start: `replay` |
//!
//! Beyond these: a message is accepted once, a repeat is told from a misuse ([`Books::answered`]), a tool has its effect
//! once (`whole`) and for the present incarnation only, every call in a request has one result (`doubles`),
//! and nothing is reported as lost. What edits and ends of sessions do to their files: `files`. A session that ended
//! counts from one: its turns may go back as often as it may have ended, its epochs whenever a process has forgotten it.

use std::collections::{BTreeMap, BTreeSet};

use super::counts::Counts;
use super::files::{Files, Place};
use super::handing::Handed;
use super::jobs::Jobs;
use super::plan::Plan;
use super::receipts::Receipts;
use super::rules::Asked;
use super::work::Work;
use domain::ids::{Attempt, SessionKey, TurnId};
use protocol::journal::{DuplicateState, Enqueued, Shelf};
use protocol::supervision::{Event, EventName, Kind};
use protocol::turn::{TurnEvent, TurnProgress, TurnResult};

/// Crashes that a turn is given, as configured.
pub const POISON_ATTEMPTS: u32 = 3;
/// Restarts of one session within [`WINDOW_MS`], as configured.
pub const INTENSITY: usize = 5;
/// How the notice begins that a message could not be read back.
const UNREADABLE: &str = "This message could not be read back";
/// How often a message is read before it is given up.
pub const READ_TRIES: u32 = 3;
/// See [`INTENSITY`].
pub const WINDOW_MS: u64 = 60_000;

/// What is known of a message.
#[derive(Debug, Default, Clone)]
pub struct Said {
    /// Whether it was ever sent.
    pub sent: bool,
    /// The turn that was acknowledged.
    pub turn: Option<TurnId>,
}

/// What is known of a turn.
#[derive(Debug, Clone)]
pub struct Turn {
    /// Its message.
    pub message: usize,
    /// Whether it is the one with the other text.
    pub other: bool,
    /// Its place, once that was acknowledged.
    pub seq: Option<u64>,
    /// The end that was shown.
    pub end: Option<TurnResult>,
    /// Whether its answer is pushed to a chat.
    pub pushed: bool,
    /// Its session.
    pub key: SessionKey,
    /// Whether a client knows of it.
    pub acknowledged: bool,
    /// What its user was told in the end, as the session says.
    pub text: Option<String>,
    /// Somebody asked for its end.
    pub unwanted: bool,
    /// It was given up as the log could not be read: its text, and so its id, stands nowhere.
    pub unreadable: bool,
    crashes: u32,
    recorded: u32,
    unrecorded: bool,
    deaths: u32,
}

#[derive(Debug, Default)]
pub(super) struct Being {
    pub(super) live: u32,
    pub(super) epoch: Option<u64>,
    pub(super) began: Vec<TurnId>,
    pub(super) asked: Asked,
    crashes: Vec<u64>,
}

/// The books of one run.
pub struct Books {
    /// What was counted.
    pub counts: Counts,
    /// The first thing that was wrong.
    pub failure: Option<String>,
    /// Over all events in order: equal for equal runs.
    pub hash: u64,
    /// The events, when they are to be kept.
    pub trace: Option<Vec<String>>,
    /// By message.
    pub said: Vec<Said>,
    /// By turn.
    pub turns: BTreeMap<TurnId, Turn>,
    /// What went out to chats.
    pub receipts: Receipts,
    /// Whether the journal can write: without that, an orderly stop cannot be written down.
    pub writable: bool,
    /// Whether the last orderly stop went on without all sessions having ended.
    pub stopped_late: bool,
    /// Whether the wall clock was set so far that a message may have become too old to be pushed.
    pub aged: bool,
    /// How often the disk was told to fail at a read.
    pub read_faults: u32,
    /// What was seen of the jobs.
    pub jobs: Jobs,
    /// What other programs handed in.
    pub handed: Handed,
    /// Whether more runs than what clients send.
    works: bool,
    /// Turns that no client sent.
    pub(super) guests: BTreeMap<TurnId, SessionKey>,
    /// Sessions of which turns were stopped, given up, or may have been.
    pub(super) halted: BTreeSet<SessionKey>,
    /// Sessions of which only jobs want anything.
    pub of_work: BTreeSet<SessionKey>,
    /// Copies of sessions, as they were answered.
    pub forks: BTreeMap<SessionKey, Vec<u8>>,
    files: BTreeMap<SessionKey, Files>,
    keys: Vec<SessionKey>,
    pub(super) beings: BTreeMap<SessionKey, Being>,
    pub(super) effects: BTreeMap<(TurnId, String), u32>,
}

impl Books {
    /// Empty ones.
    pub fn new(plan: &Plan, trace: bool) -> Self {
        Self {
            counts: Counts::default(),
            failure: None,
            hash: 0xcbf2_9ce4_8422_2325,
            trace: trace.then(Vec::new),
            said: vec![Said::default(); plan.messages.len()],
            turns: BTreeMap::new(),
            receipts: Receipts::default(),
            writable: true,
            stopped_late: false,
            aged: false,
            read_faults: 0,
            jobs: Jobs::new(plan.work.as_ref().map_or(0, |work| work.jobs.len())),
            handed: Handed::default(),
            works: plan.work.is_some(),
            guests: BTreeMap::new(),
            halted: BTreeSet::new(),
            of_work: plan.work.iter().flat_map(Work::keys).collect(),
            forks: BTreeMap::new(),
            files: BTreeMap::new(),
            keys: plan.messages.iter().map(|message| plan.keys[message.key].clone()).collect(),
            beings: BTreeMap::new(),
            effects: BTreeMap::new(),
        }
    }

    /// Enters one event.
    pub fn line(&mut self, line: String) {
        self.counts.events += 1;
        for byte in line.bytes().chain([b'\n']) {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
        if let Some(trace) = &mut self.trace {
            trace.push(line);
        }
    }

    /// Something is wrong. Only the first thing counts: the rest may follow from it.
    pub fn wrong(&mut self, what: impl Into<String>) {
        if self.failure.is_none() {
            self.failure = Some(what.into());
        }
    }

    pub(super) fn check(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds && self.failure.is_none() {
            self.failure = Some(what());
        }
    }

    /// A turn in a form that is the same in each run of a seed.
    pub fn name(&self, turn: TurnId) -> String {
        match self.turns.get(&turn) {
            Some(turn) if turn.other => format!("m{}'", turn.message),
            Some(turn) => format!("m{}", turn.message),
            None => "nobody's turn".to_owned(),
        }
    }

    // --- messages ---

    /// A message is sent under a turn id of the door's. The answer is the turn of it whose end was shown before.
    pub fn sent(&mut self, message: usize, other: bool, turn: TurnId, pushed: bool) -> Option<TurnId> {
        let has_ended = |turn: &TurnId| self.turns.get(turn).is_some_and(|turn| turn.end.is_some());
        let ended = self.said[message].turn.filter(has_ended);
        let key = self.keys[message].clone();
        self.counts.sends += 1;
        self.said[message].sent = true;
        let unwanted = self.files(&key).is_closing();
        let turn_of = Turn {
            message,
            other,
            seq: None,
            end: None,
            pushed,
            acknowledged: false,
            text: None,
            unwanted,
            key,
            unreadable: false,
            crashes: 0,
            recorded: 0,
            unrecorded: false,
            deaths: 0,
        };
        self.turns.insert(turn, turn_of);
        ended
    }

    /// A door was answered; `ended` is what [`sent`](Self::sent) said.
    pub fn answered(&mut self, message: usize, other: bool, ended: Option<TurnId>, answer: &Enqueued) {
        let known = self.said[message].turn;
        let key = self.keys[message].clone();
        // With a transcript the ids of its messages go, and they come back with it.
        let closed = self.files(&key).closes() > 0;
        match answer {
            Enqueued::Accepted { turn, seq, .. } => {
                // A repeat may have been answered before: answers travel apart from each other.
                self.counts.accepted += u64::from(known != Some(*turn));
                let before = self.turns.get_mut(turn).and_then(|turn| turn.seq.replace(seq.0));
                let gone = |known| self.turns.get(&known).is_some_and(|turn| turn.unreadable);
                let first = known.is_none_or(|known| known == *turn || gone(known) || closed) && before.is_none();
                self.check(first, || format!("message m{message} was accepted twice"));
                self.said[message].turn = Some(*turn);
            }
            Enqueued::Duplicate { turn, state } => {
                self.counts.duplicates += 1;
                let first = self.turns.get(turn).cloned();
                let same = first.as_ref().is_some_and(|first| (first.message, first.other) == (message, other));
                self.check(same, || format!("m{message} is said to be a repeat of another message"));
                self.check(known.is_none_or(|known| known == *turn || closed), || {
                    format!("m{message} is said to be a repeat of a turn that it does not have")
                });
                let open_again = *state == DuplicateState::Open && ended == Some(*turn);
                self.check(!open_again, || format!("m{message} was shown as finished and is open again"));
                if known.is_none() {
                    self.counts.accepted += 1;
                }
                self.said[message].turn = Some(*turn);
            }
            Enqueued::Conflict { turn } => {
                self.counts.conflicts += 1;
                let first = self.turns.get(turn).cloned();
                let differs = first.is_some_and(|first| first.message == message && first.other != other);
                self.check(differs, || format!("m{message} is said to have another text than it has"));
                if known.is_none() {
                    // What was accepted without an answer is as good as acknowledged.
                    self.counts.accepted += 1;
                    self.said[message].turn = Some(*turn);
                }
            }
            Enqueued::Busy { .. } | Enqueued::Quarantined { .. } | Enqueued::Draining => {
                self.counts.refusals += 1;
                return;
            }
        }
        if let Some(turn) = self.said[message].turn.and_then(|turn| self.turns.get_mut(&turn)) {
            turn.acknowledged = true;
        }
    }

    // --- files ---

    /// What is known of the files of a session.
    pub fn files(&mut self, key: &SessionKey) -> &mut Files {
        self.files.entry(key.clone()).or_default()
    }

    /// Somebody wants a session to end. The answer is the wish's number.
    pub fn closing(&mut self, key: &SessionKey, to: Shelf) -> usize {
        self.ended_by_others(key);
        self.files(key).wish(Place::Shelf(to))
    }

    /// Whatever a session has at this moment may end with it.
    pub fn ended_by_others(&mut self, key: &SessionKey) {
        self.halted.insert(key.clone());
        self.unwanted(|turn| turn.key == *key);
    }

    /// How often the numbers of a session may have begun again.
    pub fn renewals(&self, key: &SessionKey) -> usize {
        self.files.get(key).map_or(0, Files::closes)
    }

    /// Somebody asked for the end of a turn, or of whatever a session has.
    pub fn unwanted(&mut self, which: impl Fn(&Turn) -> bool) {
        for turn in self.turns.values_mut().filter(|turn| which(turn)) {
            turn.unwanted = true;
        }
    }

    // --- turns ---

    /// A turn shows something.
    pub fn shown(&mut self, event: &TurnEvent) {
        let name = self.name(event.turn);
        let Some(turn) = self.turns.get_mut(&event.turn) else {
            if self.works {
                return self.shown_of_work(event);
            }
            return self.wrong("a turn runs that no message was sent for");
        };
        let ended = turn.end.is_some();
        match &event.what {
            TurnProgress::Started => {
                if std::mem::take(&mut turn.unrecorded) && event.attempt > Attempt::FIRST {
                    turn.recorded += 1;
                }
                if event.attempt > Attempt::FIRST {
                    self.counts.recovered += 1;
                }
                let recorded = turn.recorded;
                self.check(recorded < POISON_ATTEMPTS, || format!("{name} runs again after {recorded} crashes"));
                self.began(&event.key, event.turn);
            }
            TurnProgress::Finished(finished) => {
                turn.end = Some(finished.result);
                let (crashes, deaths) = (turn.crashes, turn.deaths);
                match finished.result {
                    TurnResult::Done => self.counts.done += 1,
                    TurnResult::Joined => self.joined(&event.key, event.turn, finished.into),
                    TurnResult::Failed => self.counts.errors += 1,
                    TurnResult::Cancelled => self.counts.cancelled += 1,
                    TurnResult::DeadLettered => {
                        self.counts.dead += 1;
                        let blamed = if finished.text.starts_with(UNREADABLE) {
                            // Nothing but a disk that could not read it each time makes a message unreadable.
                            turn.unreadable = true;
                            self.read_faults >= READ_TRIES
                        } else {
                            crashes + deaths.saturating_sub(2) >= POISON_ATTEMPTS
                        };
                        self.check(blamed, || format!("{name} was given up after {crashes} crashes, {deaths} deaths"));
                    }
                }
                self.check(!ended, || format!("{name} was shown as finished twice"));
                return;
            }
            TurnProgress::Delta(_)
            | TurnProgress::Reasoning(_)
            | TurnProgress::StreamEnd { .. }
            | TurnProgress::ToolStarted { .. }
            | TurnProgress::ToolEnded { .. }
            | TurnProgress::Notice(_)
            | TurnProgress::Goal(_) => {}
        }
        self.check(!ended, || format!("{name} goes on after it was shown as finished"));
    }

    pub(super) fn began(&mut self, key: &SessionKey, turn: TurnId) {
        let being = self.beings.entry(key.clone()).or_default();
        if being.began.last() != Some(&turn) {
            being.began.push(turn);
        }
        self.check_order(key);
    }

    /// Turns begin in the order in which they were accepted.
    pub fn check_order(&mut self, key: &SessionKey) {
        let Some(being) = self.beings.get(key) else { return };
        let seq = |turn| self.turns.get(turn).and_then(|turn: &Turn| turn.seq);
        let known: Vec<u64> = being.began.iter().filter_map(seq).collect();
        let back = known.windows(2).filter(|pair| pair.first() >= pair.last()).count();
        self.check(back <= self.renewals(key), || {
            format!("turns of {key} began in another order than they were accepted in")
        });
    }

    // --- actors ---

    /// The supervision log was told something.
    pub fn event(&mut self, event: &Event, now_ms: u64) {
        match event.event {
            EventName::Restarted | EventName::GaveUp => self.crashed(event, now_ms),
            EventName::JournalReadOnly => self.writable = false,
            EventName::JournalWritable => self.writable = true,
            EventName::DeliveryRepeated | EventName::Undeliverable => self.told(event),
            EventName::Quarantined => {
                self.counts.quarantines += 1;
                self.halted.extend(event.session.clone());
            }
            EventName::GatewayStopped => {
                self.stopped_late = event.reason.as_deref().is_some_and(|reason| reason.ends_with("did not end"));
            }
            EventName::Passivated => self.counts.passivations += 1,
            EventName::Exited => {
                let told = event.reason.is_some();
                self.check(told, || format!("{} ended without a reason", event.path));
            }
            _ => {}
        }
        self.check(event.lost == "nothing", || format!("{:?} of {} lost: {}", event.event, event.path, event.lost));
        if let (Kind::Session, Some(key)) = (event.kind, &event.session) {
            self.of_session(key, event);
        }
    }

    fn of_session(&mut self, key: &SessionKey, event: &Event) {
        let renewals = self.renewals(key);
        let being = self.beings.entry(key.clone()).or_default();
        let (live, before) = (being.live, being.epoch);
        match event.event {
            EventName::Started => {
                being.live += 1;
                self.check(live == 0, || format!("{key} lives twice"));
            }
            EventName::Activated => {
                let epoch = event.epoch.map(|epoch| epoch.0);
                being.epoch = epoch;
                self.check(live == 1, || format!("{key} was loaded and does not live"));
                self.check(before < epoch || renewals > 0, || format!("{key} has epoch {epoch:?} after {before:?}"));
            }
            EventName::Restarted | EventName::GaveUp => {
                self.check(live == 1, || format!("{key} crashed and did not live"));
            }
            EventName::Exited => {
                being.live = live.saturating_sub(1);
                self.check(live == 1, || format!("the end of {key} was reported {live} times less than once"));
            }
            EventName::DeadLettered => being.crashes.clear(),
            _ => {}
        }
    }

    fn crashed(&mut self, event: &Event, now_ms: u64) {
        self.counts.crashes += 1;
        self.check(event.panic.is_some(), || format!("a crash of {} without a panic", event.path));
        if let Some(turn) = event.turn.and_then(|turn| self.turns.get_mut(&turn)) {
            turn.crashes += 1;
            turn.unrecorded = true;
        }
        if event.kind == Kind::Outbox {
            self.receipts.next_life();
        }
        let Some(key) = event.session.as_ref().filter(|_| event.kind == Kind::Session) else { return };
        let being = self.beings.entry(key.clone()).or_default();
        if event.event == EventName::GaveUp && event.verdict.as_deref() != Some("left") {
            being.crashes.clear();
            return;
        }
        being.crashes.retain(|at| now_ms.saturating_sub(*at) < WINDOW_MS);
        being.crashes.push(now_ms);
        let crashes = being.crashes.len();
        self.check(crashes <= INTENSITY, || format!("{key} was restarted {crashes} times within {WINDOW_MS} ms"));
    }

    /// Another process begins.
    pub fn process_begins(&mut self) {
        self.counts.processes += 1;
        self.writable = true;
    }

    /// The process ended; `died` if it was not stopped in order.
    pub fn process_ended(&mut self, died: bool) {
        self.receipts.next_life();
        self.files.values_mut().for_each(Files::process_ended);
        for being in self.beings.values_mut() {
            being.live = 0;
            being.epoch = None;
            being.crashes.clear();
        }
        for turn in self.turns.values_mut() {
            turn.unrecorded = false;
            // The first open turn of a session counts as begun though nothing was shown of it.
            turn.deaths += u32::from(died && turn.end.is_none());
        }
    }
}
