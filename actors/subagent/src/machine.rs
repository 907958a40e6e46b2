//! What is open, who waits for it, and what is stopped. Pure.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use domain::chat::Usage;
use domain::ids::{RunId, SessionKey, TurnId};
use domain::keys::Key;
use domain::run::{RunSpec, is_silent};
use domain::text::first_chars;
use protocol::subagent::{DELIVERED, NotSpawned, PENDING, RunRow, Spawned, ended_word};
use protocol::turn::TurnResult;

use crate::history::{Note, Past};

/// Runs of one session that may be open.
pub const OPEN_OF_SESSION_MAX: usize = 5;
/// Runs of the process that may be open.
pub const OPEN_MAX: usize = 64;
/// Runs that have ended and are still known.
pub const ENDED_KEPT: usize = 256;
/// Who may wait at a time; whoever comes then is answered at once.
const WAITING_MAX: usize = 1024;
/// Sessions and turns that are remembered as stopped while runs from before are looked for.
const STOPPED_MAX: usize = 1024;
/// Characters that are kept of what a run said last.
const TEXT_CHARS_MAX: usize = 16_000;

mod budget;
mod later;

use budget::tokens;

/// Names whoever waits for an answer.
pub type Ask = u64;

/// What happened.
#[derive(Debug)]
pub enum Input {
    /// A run is asked for; `turn` is its turn's id, should it begin now.
    Spawn { ask: Ask, spec: Arc<RunSpec>, waits: bool, turn: TurnId, now_ms: u64 },
    /// The journal has its verdict.
    Enqueued { run: RunId, verdict: Verdict },
    /// The journal has an open run from before.
    Found { spec: Arc<RunSpec>, turn: TurnId, now_ms: u64 },
    /// The notes of earlier processes have these.
    Past { runs: Vec<Past> },
    /// All open runs from before are found.
    AllFound,
    /// A turn ended.
    Ended { turn: TurnId, end: End },
    /// A report waits for its parent.
    Reported { run: RunId },
    /// Somebody waits for the end of runs.
    Wait { ask: Ask, runs: Vec<RunId>, any: bool },
    /// Somebody stops a run.
    Cancel { ask: Ask, parent: Option<SessionKey>, run: RunId },
    /// The children of a session are stopped, or those of one of its turns.
    CancelChildren { parent: SessionKey, turn: Option<TurnId> },
}

/// What the journal says of a run that was to begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It begins.
    Accepted,
    /// It had begun, under that turn, and has not ended.
    Open(TurnId),
    /// It has ended.
    Over(TurnId),
    /// It was not taken.
    Refused(String),
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq)]
pub struct End {
    pub result: TurnResult,
    pub text: Arc<str>,
    pub usage: Usage,
}

/// What to do, in order.
#[derive(Debug, PartialEq)]
pub enum Effect {
    /// Watch its turn and enqueue it; answer with [`Input::Enqueued`].
    Begin { spec: Arc<RunSpec>, turn: TurnId, waits: bool },
    /// Watch its turn.
    Watch { key: SessionKey, turn: TurnId },
    /// Ask how that turn ended; answer with [`Input::Ended`].
    AskEnd { key: SessionKey, turn: TurnId },
    /// Stop what the session does: its parent is told.
    Stop { key: SessionKey },
    /// End that turn, of which nobody wants to hear.
    Drop { key: SessionKey, turn: TurnId },
    /// Whoever asked for a run is answered.
    Spawned(Ask, Result<Spawned, NotSpawned>),
    /// Whoever waited is answered.
    Rows(Ask, Vec<RunRow>),
    /// Whoever stopped a run is answered.
    Cancelled(Ask, bool),
}

/// The runs that are known.
#[derive(Debug, Default)]
pub struct Machine {
    runs: BTreeMap<RunId, Run>,
    /// Those that have ended, in the order of that.
    ended: VecDeque<RunId>,
    waiting: Vec<Waiting>,
    /// What is to be kept over restarts, and was not taken yet.
    notes: Vec<Note>,
    /// While runs from before are looked for: sessions, and turns of them, whose children were stopped meanwhile.
    stopped: Option<BTreeSet<(SessionKey, Option<TurnId>)>>,
    /// Tokens that the runs of one turn may use together; 0: as many as each may.
    tree_tokens: u64,
}

#[derive(Debug)]
struct Run {
    spec: Arc<RunSpec>,
    key: SessionKey,
    turn: TurnId,
    since_ms: u64,
    waits: bool,
    /// It was stopped with its parent: nobody wants to hear of a turn that ends for that.
    dropped: bool,
    state: State,
    /// Turns for what it was told when it had begun, as far as they have not ended.
    later: Vec<TurnId>,
    /// Tokens that its turns used which have ended.
    used: u64,
}

#[derive(Debug)]
enum State {
    /// These asked for it; perhaps it has ended already.
    Starting {
        asks: Vec<Ask>,
        end: Option<End>,
    },
    Running,
    Ended {
        end: End,
        told: bool,
    },
}

#[derive(Debug)]
struct Waiting {
    ask: Ask,
    runs: Vec<RunId>,
    any: bool,
}

// === impl Machine ===

impl Machine {
    /// With that bound for the runs of one turn.
    pub fn new(tree_tokens: u64) -> Self {
        Self { tree_tokens, ..Self::default() }
    }

    /// Takes one input.
    pub fn step(&mut self, input: Input) -> Vec<Effect> {
        let mut out = Vec::new();
        match input {
            Input::Spawn { ask, spec, waits, turn, now_ms } => self.spawn(ask, (spec, waits, turn, now_ms), &mut out),
            Input::Enqueued { run, verdict } => self.enqueued(run, verdict, &mut out),
            Input::Found { spec, turn, now_ms } => self.found(spec, turn, now_ms, &mut out),
            Input::Past { runs } => self.past(runs, &mut out),
            Input::AllFound => self.stopped = None,
            Input::Ended { turn, end } => self.turn_ended(turn, end),
            Input::Reported { run } => self.reported(run),
            Input::Wait { ask, runs, any } if self.waiting.len() < WAITING_MAX => {
                self.waiting.push(Waiting { ask, runs, any });
            }
            Input::Wait { ask, runs, .. } => out.push(Effect::Rows(ask, self.rows_of(&runs))),
            Input::Cancel { ask, parent, run } => {
                let is_his = |of: &&Run| parent.as_ref().is_none_or(|parent| of.spec.parent == *parent);
                let open = self.runs.get(&run).filter(|run| run.works()).filter(is_his);
                out.extend(open.map(|run| Effect::Stop { key: run.key.clone() }));
                out.push(Effect::Cancelled(ask, open.is_some()));
            }
            Input::CancelChildren { parent, turn } => {
                let of_turn = |run: &Run| turn.is_none_or(|turn| run.spec.turn == turn);
                let open = self.runs.values_mut().filter(|run| run.works() && !run.spec.detached);
                for run in open.filter(|run| run.spec.parent == parent).filter(|run| of_turn(run)) {
                    run.dropped = true;
                    out.extend(run.turns().map(|turn| Effect::Drop { key: run.key.clone(), turn }));
                }
                if let Some(stopped) = self.stopped.as_mut().filter(|stopped| stopped.len() < STOPPED_MAX) {
                    stopped.insert((parent, turn));
                }
            }
        }
        self.answer(&mut out);
        out
    }

    /// What is known of the runs of a session, or of all; oldest first.
    pub fn rows(&self, parent: Option<&SessionKey>) -> Vec<RunRow> {
        let of = |run: &&Run| parent.is_none_or(|parent| run.spec.parent == *parent);
        let mut rows: Vec<RunRow> = self.runs.values().filter(of).map(Run::row).collect();
        rows.sort_by_key(|row| (row.since_ms, row.run));
        rows
    }

    /// What a run was sent to do.
    pub fn spec_of(&self, run: RunId) -> Option<&Arc<RunSpec>> {
        self.runs.get(&run).map(|run| &run.spec)
    }

    /// The parents of the runs that are open.
    pub fn parents(&self) -> BTreeSet<&SessionKey> {
        self.runs.values().filter(|run| run.works()).map(|run| &run.spec.parent).collect()
    }

    /// The turns of the runs that are open.
    pub fn open(&self) -> impl Iterator<Item = (&SessionKey, TurnId)> {
        self.runs.values().flat_map(|run| run.turns().map(|turn| (&run.key, turn)))
    }

    fn spawn(
        &mut self,
        ask: Ask,
        (spec, waits, turn, since_ms): (Arc<RunSpec>, bool, TurnId, u64),
        out: &mut Vec<Effect>,
    ) {
        if let Some(run) = self.runs.get_mut(&spec.run) {
            run.waits |= waits;
            match &mut run.state {
                State::Starting { asks, .. } => asks.push(ask),
                State::Running | State::Ended { .. } => out.push(Effect::Spawned(ask, Ok(run.spawned(true)))),
            }
            return;
        }
        let open = self.runs.values().filter(|run| run.works());
        let all = open.clone().count();
        let own = open.filter(|run| run.spec.parent == spec.parent).count();
        let refused = match spec.key() {
            _ if Key::from(&spec.parent).subagent_depth() > 0 => Err(NotSpawned::TooDeep),
            _ if own >= OPEN_OF_SESSION_MAX => Err(NotSpawned::OfSession { open: own }),
            _ if all >= OPEN_MAX => Err(NotSpawned::OfProcess { open: all }),
            Err(bad) => Err(NotSpawned::Refused(bad.to_string())),
            Ok(key) => self.allotted(&spec).map(|spec| (key, spec)),
        };
        match refused {
            Err(why) => out.push(Effect::Spawned(ask, Err(why))),
            Ok((key, spec)) => {
                out.push(Effect::Begin { spec: Arc::clone(&spec), turn, waits });
                let state = State::Starting { asks: vec![ask], end: None };
                let run = Run { key, turn, since_ms, waits, dropped: false, state, later: Vec::new(), used: 0, spec };
                self.runs.insert(run.spec.run, run);
            }
        }
    }

    fn enqueued(&mut self, id: RunId, verdict: Verdict, out: &mut Vec<Effect>) {
        let Some(run) = self.runs.get_mut(&id) else { return };
        let State::Starting { asks, end } = &mut run.state else { return };
        let (asks, end) = (std::mem::take(asks), end.take());
        let again = match verdict {
            Verdict::Refused(why) => {
                self.runs.remove(&id);
                out.extend(asks.into_iter().map(|ask| Effect::Spawned(ask, Err(NotSpawned::Refused(why.clone())))));
                return;
            }
            Verdict::Accepted => false,
            Verdict::Open(turn) => {
                run.turn = turn;
                out.push(Effect::Watch { key: run.key.clone(), turn });
                // It may have ended since.
                out.push(Effect::AskEnd { key: run.key.clone(), turn });
                true
            }
            Verdict::Over(turn) => {
                run.turn = turn;
                out.push(Effect::AskEnd { key: run.key.clone(), turn });
                true
            }
        };
        run.state = State::Running;
        let spawned = run.spawned(again);
        out.extend(asks.into_iter().map(|ask| Effect::Spawned(ask, Ok(spawned.clone()))));
        let turn = run.turn;
        self.notes.push(run.began());
        if let Some(end) = end {
            self.turn_ended(turn, end);
        }
    }

    fn found(&mut self, spec: Arc<RunSpec>, turn: TurnId, since_ms: u64, out: &mut Vec<Effect>) {
        let Ok(key) = spec.key() else { return };
        if self.runs.contains_key(&spec.run) {
            return;
        }
        let (state, later) = (State::Running, Vec::new());
        let run = Run { key, turn, since_ms, waits: false, dropped: false, state, later, used: 0, spec };
        self.notes.push(run.began());
        self.follow(run, out);
    }

    fn turn_ended(&mut self, turn: TurnId, end: End) {
        if self.runs.values().any(|run| run.later.contains(&turn)) {
            return self.later_ended(turn, end);
        }
        let Some(run) = self.runs.values_mut().find(|run| run.turn == turn && run.is_open()) else { return };
        if let State::Starting { end: early, .. } = &mut run.state {
            // The verdict of the journal is on its way.
            *early = Some(end);
            return;
        }
        run.used = run.used.saturating_add(tokens(end.usage));
        let unheard = run.dropped && end.result == TurnResult::Cancelled;
        run.state = ended(end, run.waits || unheard);
        self.notes.extend(run.note_of_end());
        self.ended.push_back(run.spec.run);
        self.forget();
    }

    /// Only the last that have ended are known.
    fn forget(&mut self) {
        while self.ended.len() > ENDED_KEPT {
            if let Some(oldest) = self.ended.pop_front() {
                self.runs.remove(&oldest);
            }
        }
    }

    fn reported(&mut self, run: RunId) {
        if let Some(State::Ended { told, .. }) = self.runs.get_mut(&run).map(|run| &mut run.state)
            && !std::mem::replace(told, true)
        {
            self.notes.push(Note::Reported { run });
        }
    }

    /// Answers those who have waited long enough. A run that is not known has been over for long.
    fn answer(&mut self, out: &mut Vec<Effect>) {
        let mut waiting = std::mem::take(&mut self.waiting);
        waiting.retain(|Waiting { ask, runs, any }| {
            let over = |run: &RunId| self.runs.get(run).is_none_or(Run::is_over);
            let ready = if *any && !runs.is_empty() { runs.iter().any(over) } else { runs.iter().all(over) };
            if ready {
                let over: Vec<RunId> = runs.iter().copied().filter(over).collect();
                out.push(Effect::Rows(*ask, self.rows_of(&over)));
            }
            !ready
        });
        self.waiting = waiting;
    }

    fn rows_of(&self, runs: &[RunId]) -> Vec<RunRow> {
        runs.iter().filter_map(|run| self.runs.get(run)).map(Run::row).collect()
    }
}

/// The state behind an end; `waits`: whoever wants to know of it is told by other means.
fn ended(end: End, waits: bool) -> State {
    let text = first_chars(&end.text, TEXT_CHARS_MAX).into();
    State::Ended { told: waits || end.is_silent(), end: End { text, ..end } }
}

// === impl End ===

impl End {
    /// Whether there is nothing to report.
    fn is_silent(&self) -> bool {
        self.result == TurnResult::Done && is_silent(&self.text)
    }
}

// === impl Run ===

impl Run {
    /// Whether anything of it has not ended.
    fn works(&self) -> bool {
        self.is_open() || !self.later.is_empty()
    }

    /// Its turns that have not ended.
    fn turns(&self) -> impl Iterator<Item = TurnId> {
        self.is_open().then_some(self.turn).into_iter().chain(self.later.iter().copied())
    }

    fn is_open(&self) -> bool {
        !matches!(self.state, State::Ended { .. })
    }

    /// Whether it has ended, and its report waits for the parent.
    fn is_over(&self) -> bool {
        self.later.is_empty() && matches!(self.state, State::Ended { told: true, .. })
    }

    fn began(&self) -> Note {
        let Self { spec, turn, since_ms, waits, .. } = self;
        Note::Began { spec: Arc::clone(spec), turn: *turn, since_ms: *since_ms, waits: *waits }
    }

    fn spawned(&self, again: bool) -> Spawned {
        Spawned { run: self.spec.run, key: self.key.clone(), again }
    }

    fn row(&self) -> RunRow {
        let (state, end) = match &self.state {
            State::Starting { .. } => ("starting", None),
            State::Running => ("running", None),
            State::Ended { .. } if self.works() => ("running", None),
            State::Ended { end, .. } => (ended_word(end.result), Some(end)),
        };
        let reports = |end: &&End| !self.waits && !end.is_silent();
        let told = self.is_over();
        RunRow {
            run: self.spec.run,
            parent: self.spec.parent.clone(),
            key: self.key.clone(),
            label: Arc::clone(&self.spec.label),
            state,
            turn: self.turn,
            since_ms: self.since_ms,
            detached: self.spec.detached,
            text: end.map(|end| Arc::clone(&end.text)),
            usage: end.map(|end| end.usage),
            delivery: end.filter(reports).map(|_| if told { DELIVERED } else { PENDING }),
        }
    }
}

mod past;
#[cfg(test)]
mod tests;
