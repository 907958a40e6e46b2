//! What a seed makes happen: who says what when, and what goes wrong. Pure.

use std::time::Duration;

use domain::ids::{MessageId, SessionKey};
use domain::queue::{QueueAsk, QueueDrop, QueueMode, QueueRules, QueueSet};
use protocol::journal::Shelf;
use protocol::supervision::Kind;
use supervision::memory::Fault;

use super::dice::{Dice, Stream};
use super::work::{JobAct, Work, with_runs};

/// Seeds below this one neither edit nor end sessions: those that once found something go on finding it.
pub const CHANGES_FROM: u64 = 100_000;
/// Seeds below this one give each message a turn of its own, for the same reason.
pub const QUEUES_FROM: u64 = 10_000_000_000;
/// Seeds below this one leave the rules of queues as they are configured, for the same reason.
pub const RULES_FROM: u64 = 20_000_000_000;
/// Seeds below this one do nothing that nobody asks for just now, for the same reason.
pub const WORK_FROM: u64 = 30_000_000_000;

/// One simulated run.
#[derive(Debug)]
pub struct Plan {
    /// The sessions.
    pub keys: Vec<SessionKey>,
    /// The messages.
    pub messages: Vec<Message>,
    /// What happens, in order.
    pub steps: Vec<Step>,
    /// How often things go wrong by themselves.
    pub rates: Rates,
    /// Size of a segment of the journal.
    pub segment_bytes: u64,
    /// Bound of the journal.
    pub journal_bytes: u64,
    /// How many messages may wait in one session.
    pub inbox_max: usize,
    /// How many model calls may run at once.
    pub running_max: usize,
    /// The longest message of the push channel, in characters.
    pub push_chars: usize,
    /// What becomes of messages that come while a turn runs.
    pub queue: QueueRules,
    /// What nobody asks for just now.
    pub work: Option<Work>,
}

/// One message of a user.
#[derive(Debug)]
pub struct Message {
    /// Index of its session.
    pub key: usize,
    /// The sender's id.
    pub id: MessageId,
    /// What it says.
    pub text: String,
    /// What is said under the same id by mistake.
    pub other: String,
    /// What it does to whoever works on it.
    pub manner: Manner,
    /// Whether its answer is pushed to a chat.
    pub pushed: bool,
}

/// What a message does to whoever works on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// Nothing.
    Plain,
    /// Its session crashes, whenever it works on it.
    Poison,
    /// The process dies, whenever a session works on it.
    Killer,
}

/// One thing that happens, so many milliseconds after the one before.
#[derive(Debug, Clone)]
pub struct Step {
    /// The pause before it.
    pub pause_ms: u64,
    /// What happens.
    pub act: Act,
}

/// What happens.
#[derive(Debug, Clone)]
pub enum Act {
    /// A message is sent, for the first time or again.
    Send(usize),
    /// The id of a message is used for another text.
    Conflict(usize),
    /// The session is asked to leave memory, and a message comes at the same moment.
    SendToLeaver(usize),
    /// `/stop`.
    Stop {
        /// Index of the session.
        key: usize,
        /// `/stop all`.
        all: bool,
    },
    /// The sender goes away.
    Cancel(usize),
    /// `/status`.
    Status(usize),
    /// A quarantine is ended by hand.
    Release(usize),
    /// The wall clock is set.
    JumpWall(i64),
    /// An actor panics at so many of its next calls to the outside.
    Panic {
        /// What sort of actor.
        kind: Kind,
        /// At which call.
        after: u64,
    },
    /// The process dies.
    Die(How),
    /// The process dies in the middle of one of its next changes of the disk.
    DieAtChange(How, u64),
    /// The process is stopped in order, and started again.
    Restart,
    /// A call to the disk fails.
    Fault(Fault),
    /// The disk is full, or no longer.
    Full(bool),
    /// A session is edited.
    Edit {
        /// Index of the session.
        key: usize,
        /// How.
        change: Change,
        /// Which of its entries is meant, modulo their number.
        pick: usize,
    },
    /// A session is deleted or archived.
    Close {
        /// Index of the session.
        key: usize,
        /// Where its file goes.
        to: Shelf,
        /// Whether it is left alone when it has turns that wait or run.
        if_quiet: bool,
    },
    /// A session is taken back from the archive.
    Restore(usize),
    /// `/queue`.
    Queue {
        /// Index of the session.
        key: usize,
        /// What stands behind it.
        ask: QueueAsk,
    },
    /// Another program hands something in; each has a number.
    HandIn(usize),
    /// A job is made, changed or removed.
    Job(JobAct),
    /// The next process begins at this time, in milliseconds since 1970, or soon if that is past.
    Until(u64),
    /// Nothing.
    Wait,
}

/// How a session is edited.
#[derive(Debug, Clone, Copy)]
pub enum Change {
    /// An entry gets a label.
    Label,
    /// The session gets a name.
    Rename,
    /// It goes on from an entry, with a summary of the branch that is left or without.
    Branch {
        /// Whether there is a summary.
        summary: bool,
    },
    /// It begins anew.
    Reset,
    /// The last so many messages are kept.
    Compact(u32),
    /// It is repaired.
    Repair,
    /// A new session gets a copy of all, or of the branch that ends with the entry.
    Fork {
        /// Whether it is all.
        whole: bool,
    },
}

/// How a process dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// It is killed; what it has written stays.
    Kill,
    /// The power fails; of what was not synced, anything may be left.
    Power,
}

/// How often things go wrong by themselves, in a thousand.
#[derive(Debug, Clone, Copy)]
pub struct Rates {
    /// Model calls.
    pub model: u64,
    /// Tool calls.
    pub tools: u64,
    /// Events that are shown, at which whoever shows them panics.
    pub screen: u64,
    /// Messages that are pushed.
    pub pushes: u64,
    /// Work for the pool that is done at once.
    pub at_once: u64,
    /// Longest delay of the rest, in milliseconds.
    pub delay_ms: u64,
    /// Work for the pool that takes very long.
    pub slow: u64,
}

impl Plan {
    /// What `seed` makes happen.
    pub fn new(seed: u64) -> Self {
        let dice = Dice::new(seed, Stream::Plan);
        let keys: Vec<_> = (0..dice.between(1, 4)).filter_map(|n| SessionKey::new(&format!("sim:{n}")).ok()).collect();
        let count = usize::try_from(dice.between(4, 28)).unwrap_or(4);
        let poison = dice.one_of(&[0, 0, 0, 60, 150]);
        let killers = dice.one_of(&[0, 0, 0, 0, 40]);
        let pushed = Dice::new(seed, Stream::Pushed);
        let mut messages: Vec<_> = (0..count).map(|n| message(&dice, n, keys.len(), poison, killers)).collect();
        let rates = Rates {
            model: dice.one_of(&[0, 0, 50, 200, 500]),
            tools: dice.one_of(&[0, 0, 100, 400]),
            pushes: pushed.one_of(&[0, 100, 500]),
            screen: dice.one_of(&[0, 0, 0, 10, 40]),
            at_once: dice.one_of(&[0, 300, 1000]),
            delay_ms: dice.one_of(&[0, 1, 5, 50, 500]),
            slow: dice.one_of(&[0, 0, 5, 20]),
        };
        let mut steps = steps(&dice, &messages, keys.len());
        let often = pushed.one_of(&[0, 0, 300, 1000]);
        for message in &mut messages {
            message.pushed = pushed.often(often);
        }
        for step in &mut steps {
            if let Act::Panic { kind, .. } = &mut step.act
                && pushed.often(often / 5)
            {
                *kind = Kind::Outbox;
            }
        }
        if seed >= CHANGES_FROM {
            steps = with_changes(&Dice::new(seed, Stream::Changes), steps, keys.len());
        }
        if seed >= RULES_FROM {
            steps = with_rules(&Dice::new(seed, Stream::Rules), steps, keys.len());
        }
        let work = (seed >= WORK_FROM).then(|| {
            with_runs(&Dice::new(seed, Stream::Runs), &mut messages);
            let (work, all) = Work::new(&Dice::new(seed, Stream::Work), std::mem::take(&mut steps));
            steps = all;
            work
        });
        Self {
            keys,
            messages,
            steps,
            rates,
            segment_bytes: dice.one_of(&[12 * 1024, 16 * 1024, 32 * 1024, 64 * 1024]),
            journal_bytes: dice.one_of(&[1 << 30, 1 << 30, 1 << 30, 512 * 1024]),
            inbox_max: usize::try_from(dice.one_of(&[2, 5, 64])).unwrap_or(64),
            running_max: usize::try_from(dice.one_of(&[1, 2, 100])).unwrap_or(100),
            push_chars: usize::try_from(pushed.one_of(&[60, 300, 4_000])).unwrap_or(300),
            queue: queue(seed),
            work,
        }
    }
}

fn queue(seed: u64) -> QueueRules {
    if seed < QUEUES_FROM {
        return QueueRules { mode: QueueMode::Followup, cap: 100_000, ..QueueRules::default() };
    }
    rules(&Dice::new(seed, Stream::Queue))
}

fn rules(dice: &Dice) -> QueueRules {
    QueueRules {
        mode: dice.one_of(&[
            QueueMode::Steer,
            QueueMode::Steer,
            QueueMode::Followup,
            QueueMode::Collect,
            QueueMode::Interrupt,
        ]),
        cap: dice.one_of(&[1, 3, 20]),
        drop: dice.one_of(&[QueueDrop::Refuse, QueueDrop::Refuse, QueueDrop::Old, QueueDrop::Summarize]),
        debounce: Duration::from_millis(dice.one_of(&[0, 500, 5_000])),
    }
}

fn message(dice: &Dice, n: usize, keys: usize, poison: u64, killers: u64) -> Message {
    let mut text = format!("m{n}");
    if dice.often(150) {
        text.push_str(&" and so on".repeat(dice.index(600)));
    }
    for round in 1..=dice.one_of(&[0, 0, 1, 1, 2, 3]) {
        for place in 0..dice.between(1, 3) {
            let name = dice.one_of(&["pay", "pay", "look"]);
            text.push_str(&format!(" [[tool@{round}={name} {{\"n\":\"m{n}.{round}.{place}\"}}]]"));
        }
    }
    text.push_str(&format!(" [[tokens={}]]", dice.between(1, 4)));
    let manner = match dice.below(1000) {
        roll if roll < poison => Manner::Poison,
        roll if roll < poison + killers => Manner::Killer,
        _ => Manner::Plain,
    };
    // An id is never empty and always printable.
    let id = MessageId::new(&format!("id-{n}")).expect("a short printable id");
    Message { key: dice.index(keys), id, other: format!("not {text}"), text, manner, pushed: false }
}

/// Which faults a run has; each run has only some of them, so that what is rare alone is not hidden by the others.
struct Menu {
    acts: Vec<u64>,
}

impl Menu {
    fn new(dice: &Dice) -> Self {
        // Resend, conflict, leaver, stop, cancel, status, release, jump, panic, die, die at change, restart, fault, full.
        const USUAL: [u64; 14] = [60, 20, 60, 40, 30, 20, 15, 20, 90, 40, 60, 50, 15, 30];
        Self { acts: USUAL.iter().map(|weight| if dice.often(600) { *weight } else { 0 }).collect() }
    }

    /// None: the next message is sent for the first time.
    fn draw(&self, dice: &Dice) -> Option<usize> {
        let mut roll = dice.below(600);
        for (act, weight) in self.acts.iter().enumerate() {
            if roll < *weight {
                return Some(act);
            }
            roll -= weight;
        }
        None
    }
}

fn steps(dice: &Dice, messages: &[Message], keys: usize) -> Vec<Step> {
    let menu = Menu::new(dice);
    let pauses = [[0, 0, 0, 3], [0, 10, 100, 2_000], [0, 50, 1_000, 30_000]];
    let pauses = &pauses[dice.index(pauses.len())];
    let (mut steps, mut sent, mut full) = (Vec::new(), 0, false);
    while sent < messages.len() {
        let pause_ms = dice.below(dice.one_of(pauses) + 1);
        let known = dice.index(sent.max(1));
        let key = dice.index(keys);
        let act = match menu.draw(dice) {
            Some(0) => Act::Send(known),
            Some(1) => Act::Conflict(known),
            Some(2) => {
                sent += 1;
                Act::SendToLeaver(sent - 1)
            }
            Some(3) => Act::Stop { key, all: dice.often(300) },
            Some(4) => Act::Cancel(known),
            Some(5) => Act::Status(key),
            Some(6) => Act::Release(key),
            Some(7) => Act::JumpWall(dice.one_of(&[-600, -5, 5, 600, 90_000])),
            Some(8) => panic_of(dice),
            Some(9) => Act::Die(how(dice)),
            Some(10) => Act::DieAtChange(how(dice), dice.between(1, 30)),
            Some(11) => Act::Restart,
            Some(12) => Act::Fault(dice.one_of(&[
                Fault::WriteEio,
                Fault::WriteEnospc,
                Fault::SyncEio,
                Fault::NameEnospc,
                Fault::ReadEio,
            ])),
            Some(13) => {
                full = !full;
                Act::Full(full)
            }
            Some(_) | None => {
                sent += 1;
                Act::Send(sent - 1)
            }
        };
        steps.push(Step { pause_ms, act });
    }
    for _ in 0..dice.below(4) {
        // Something may still happen when all is said: also while nothing runs.
        let act = match dice.below(4) {
            0 => Act::Die(how(dice)),
            1 => Act::Restart,
            2 => panic_of(dice),
            _ => Act::Wait,
        };
        steps.push(Step { pause_ms: dice.one_of(&[0, 100, 10_000, 60_000]), act });
    }
    steps
}

/// Puts edits and ends of sessions between the steps. What was archived is often wanted back.
fn with_changes(dice: &Dice, steps: Vec<Step>, keys: usize) -> Vec<Step> {
    let edits = dice.one_of(&[0, 50, 200, 400]);
    let closes = dice.one_of(&[0, 50, 150, 300]);
    let (mut all, mut archived) = (Vec::with_capacity(steps.len()), None);
    for step in steps {
        while dice.often(edits + closes) {
            let key = dice.index(keys);
            let act = if dice.below(edits + closes) < edits {
                Act::Edit { key, change: change(dice), pick: dice.index(1000) }
            } else if let Some(key) = archived.take_if(|_| dice.often(600)) {
                Act::Restore(key)
            } else {
                let to = dice.one_of(&[Shelf::Archive, Shelf::Deleted]);
                if to == Shelf::Archive {
                    archived = Some(key);
                }
                Act::Close { key, to, if_quiet: dice.often(200) }
            };
            all.push(Step { pause_ms: dice.one_of(&[0, 0, 10, 1_000, 30_000]), act });
        }
        all.push(step);
    }
    all
}

/// Puts changes of the rules of queues between the steps.
fn with_rules(dice: &Dice, steps: Vec<Step>, keys: usize) -> Vec<Step> {
    let often = dice.one_of(&[0, 50, 200, 500]);
    let mut all = Vec::with_capacity(steps.len());
    for step in steps {
        while dice.often(often) {
            let act = Act::Queue { key: dice.index(keys), ask: ask(dice) };
            all.push(Step { pause_ms: dice.one_of(&[0, 0, 10, 1_000]), act });
        }
        all.push(step);
    }
    all
}

fn ask(dice: &Dice) -> QueueAsk {
    match dice.below(10) {
        0 => QueueAsk::Show,
        1 => QueueAsk::Default,
        _ => {
            let QueueRules { mode, cap, drop, debounce } = rules(dice);
            let debounce_ms = u64::try_from(debounce.as_millis()).unwrap_or(0);
            QueueAsk::Set(QueueSet {
                mode: dice.often(700).then_some(mode),
                cap: dice.often(300).then_some(cap),
                drop: dice.often(300).then_some(drop),
                debounce_ms: dice.often(300).then_some(debounce_ms),
            })
        }
    }
}

fn change(dice: &Dice) -> Change {
    match dice.below(8) {
        0 => Change::Label,
        1 => Change::Rename,
        2 => Change::Branch { summary: false },
        3 => Change::Branch { summary: true },
        4 => Change::Reset,
        5 => Change::Compact(u32::try_from(dice.below(4)).unwrap_or(0)),
        6 => Change::Repair,
        _ => Change::Fork { whole: dice.often(500) },
    }
}

fn how(dice: &Dice) -> How {
    dice.one_of(&[How::Kill, How::Power, How::Power])
}

fn panic_of(dice: &Dice) -> Act {
    let kind = match dice.below(20) {
        0 => Kind::Provider,
        1 => Kind::Tools,
        2 => Kind::Registry,
        _ => Kind::Session,
    };
    Act::Panic { kind, after: dice.below(dice.one_of(&[3, 30, 200])) }
}
