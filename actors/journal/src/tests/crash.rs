//! The power is cut at every write of scripted runs. The script does what sessions do, and a ledger beside it knows what
//! was acknowledged; after each cut a new machine finds the disk as it survived, and has to agree with the ledger.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use domain::ids::{DeliveryId, Epoch, LetterId, SessionId, SessionKey, TurnId};
use protocol::journal::*;
use supervision::memory::{PowerCutDisk, SeededIds};
use supervision::ports::{Disk, Ids};
use tokio::sync::oneshot::Receiver;

use super::machine::*;
use super::outbox::push;
use crate::Options;
use crate::call::Call;
use crate::key::KeyState;
use crate::outgoing::{Outgoing, Step as RowStep};
use crate::state::State;

const KEYS: usize = 5;
const STEPS: usize = 110;
/// Nobody sends more to one key before some of it ended: a full inbox would refuse also what it knows.
const OPEN_MAX: usize = 12;

/// A commit as the ledger remembers it.
#[derive(Clone, Debug)]
struct Step {
    lines: Vec<Line>,
    ended: Option<TurnId>,
    /// What it says to the channel.
    rows: Vec<DeliveryId>,
}

#[derive(Clone, Debug)]
struct Sent {
    id: String,
    body: Vec<u8>,
    turn: TurnId,
}

struct Live {
    session: SessionId,
    epoch: Epoch,
    next: u64,
    /// Commit, length and last entry of the file as it was written.
    written: (u64, ViewMark),
    unwritten: Vec<(u64, Vec<Line>)>,
}

/// One key as its users and its session saw it.
#[derive(Default)]
struct Key {
    /// Acknowledged messages in order.
    sent: Vec<Sent>,
    /// Messages without an answer yet.
    asked: Vec<(Sent, Receiver<Enqueued>)>,
    /// Acknowledged commits.
    done: Vec<Step>,
    /// Commits without an answer yet, in order.
    flying: Vec<(Step, Receiver<CommitOutcome>)>,
    /// Turns that wait, as far as the session knows.
    open: Vec<TurnId>,
    epoch: Epoch,
    live: Option<Live>,
    session: Option<SessionId>,
    /// Acknowledged rows that are not delivered, in order.
    rows: Vec<DeliveryId>,
    /// The end of a row that has no answer yet: whether it was given up.
    moving: Option<(DeliveryId, bool, Receiver<()>)>,
    /// Rows that were given up.
    dead: BTreeSet<DeliveryId>,
}

pub struct Script {
    keys: BTreeMap<SessionKey, Key>,
    dice: SeededIds,
    next: u64,
    /// The last line of a turn tells the message that it answered.
    transcripts: Transcripts,
}

impl Script {
    fn new(seed: u64) -> Self {
        let keys = (0..KEYS).map(|n| (key(&format!("k{n}")), Key::default())).collect();
        Self { keys, dice: SeededIds::new(seed), next: 1, transcripts: Transcripts::default() }
    }

    fn roll(&self, sides: u64) -> u64 {
        self.dice.random() % sides
    }

    /// One to four things happen in the same batch.
    pub fn step(&mut self, machine: &mut Machine) {
        for _ in 0..=self.roll(4) {
            let name = key(&format!("k{}", self.roll(KEYS as u64)));
            match self.roll(12) {
                0..=3 => self.send(machine, &name),
                4..=7 => self.work(machine, &name),
                8 => self.write_file(machine, &name),
                9 | 10 => self.deliver(machine, &name),
                _ => self.leave(machine, &name),
            }
        }
        machine.settle();
        self.collect();
        let status = machine.status();
        assert_eq!(status.accepted, status.done + status.dead + status.cancelled + status.open);
    }

    fn send(&mut self, machine: &mut Machine, name: &SessionKey) {
        if self.keys[name].open.len() + self.keys[name].asked.len() >= OPEN_MAX {
            return;
        }
        let n = self.next;
        self.next += 1;
        let body = vec![b'x'; if self.roll(4) == 0 { 1500 } else { 60 }];
        let sent = Sent { id: format!("m{n}"), body, turn: turn(n) };
        let message = message(name.as_str(), n, &sent.id, &sent.body);
        let answer = machine.submit(|reply| Call::Enqueue(message, reply.into()));
        self.keys.get_mut(name).unwrap().asked.push((sent, answer));
    }

    fn work(&mut self, machine: &mut Machine, name: &SessionKey) {
        let (end, rows) = (self.roll(2) == 0, self.roll(3) as u32);
        let n = self.next;
        self.next += 1;
        let key = self.keys.get_mut(name).unwrap();
        if !key.flying.is_empty() || key.open.is_empty() {
            return;
        }
        if key.live.is_none() && !activate(machine, name, key) {
            return;
        }
        let live = key.live.as_mut().unwrap();
        let step = Step {
            lines: vec![line(&format!("{n}a")), line(&format!("{n}b"))],
            ended: end.then(|| key.open.remove(0)),
            rows: (1..=u32::from(end) * rows).map(|part| DeliveryId { turn: turn(n), n: part }).collect(),
        };
        if let Some(sent) = key.sent.iter().find(|sent| Some(sent.turn) == step.ended) {
            let recent = RecentId {
                idempotency_key: format!("ws:{}", sent.id),
                turn: sent.turn,
                body_hash: domain::body::body_hash(&sent.body),
            };
            self.transcripts.by_line.lock().unwrap().insert(format!("{n}b"), recent);
        }
        let mut next = commit(name, live.session, live.epoch, live.next);
        next.lines.clone_from(&step.lines);
        next.ended = step.ended.map(|turn| (turn, TurnEnd::Done)).into_iter().collect();
        let row =
            |id: &DeliveryId| Out { id: *id, turn: id.turn, route: push(name.as_str()), parts: 1, text: "said".into() };
        next.out = step.rows.iter().map(row).collect();
        live.unwritten.push((live.next, step.lines.clone()));
        live.next += 1;
        let answer = machine.submit(|reply| Call::Commit(next, reply));
        key.flying.push((step, answer));
    }

    fn write_file(&mut self, machine: &mut Machine, name: &SessionKey) {
        let key = self.keys.get_mut(name).unwrap();
        if !key.flying.is_empty() {
            return;
        }
        if let Some(live) = &mut key.live {
            write_view(machine, name, live);
        }
    }

    /// The first row is sent, or given up.
    fn deliver(&mut self, machine: &mut Machine, name: &SessionKey) {
        let give_up = self.roll(3) == 0;
        let key = self.keys.get_mut(name).unwrap();
        let Some(id) = key.rows.first().copied().filter(|_| key.moving.is_none()) else { return };
        drop(machine.submit(|reply| Call::Outgoing(Outgoing::Step(id, RowStep::Sending, reply))));
        let step = if give_up { RowStep::Undeliverable("410".into()) } else { RowStep::Sent };
        let answer = machine.submit(|reply| Call::Outgoing(Outgoing::Step(id, step, reply)));
        key.moving = Some((id, give_up, answer));
    }

    fn leave(&mut self, machine: &mut Machine, name: &SessionKey) {
        let key = self.keys.get_mut(name).unwrap();
        if !key.flying.is_empty() || !key.open.is_empty() || !key.asked.is_empty() {
            return;
        }
        let Some(mut live) = key.live.take() else { return };
        if write_view(machine, name, &mut live) {
            machine.engine.take(Call::Release(name.clone(), live.epoch));
        }
    }

    fn collect(&mut self) {
        for key in self.keys.values_mut() {
            let mut left = Vec::new();
            for (sent, mut answer) in key.asked.drain(..) {
                match answer.try_recv() {
                    Ok(Enqueued::Accepted { turn, .. }) => {
                        assert_eq!(turn, sent.turn);
                        key.open.push(turn);
                        key.sent.push(sent);
                    }
                    Ok(Enqueued::Busy { .. } | Enqueued::Draining) => {}
                    Ok(other) => panic!("{other:?}"),
                    Err(_) => left.push((sent, answer)),
                }
            }
            key.asked = left;
            let mut left = Vec::new();
            for (step, mut answer) in key.flying.drain(..) {
                match answer.try_recv() {
                    Ok(CommitOutcome::Done) => {
                        // From here on the epoch is durable.
                        let live = key.live.as_ref().unwrap();
                        (key.epoch, key.session) = (live.epoch, Some(live.session));
                        key.rows.extend(&step.rows);
                        key.done.push(step);
                    }
                    Ok(CommitOutcome::Unknown { .. }) | Err(_) => left.push((step, answer)),
                    Ok(CommitOutcome::Fenced) => panic!("nobody else owns it"),
                    Ok(CommitOutcome::TooLarge) => panic!("it is small"),
                }
            }
            key.flying = left;
            if let Some((id, give_up, mut answer)) = key.moving.take() {
                match answer.try_recv() {
                    Ok(()) => key.rowed_out(id, give_up),
                    Err(_) => key.moving = Some((id, give_up, answer)),
                }
            }
        }
    }

    /// What a new machine recovered has to be what was acknowledged, and at most what was on its way.
    pub fn agree(&mut self, machine: &mut Machine) {
        // Senders repeat themselves before any session has looked after its file.
        self.knows_every_message(machine);
        for (name, key) in &mut self.keys {
            if key.sent.is_empty() && key.asked.is_empty() {
                continue;
            }
            let loaded = machine.load(name);
            assert!(loaded.epoch > key.epoch, "epochs go up");
            if let Some(session) = key.session {
                assert_eq!(loaded.session, session);
            }
            let shown = transcript(&machine.disk, name, &loaded);
            let mut steps = key.done.clone();
            let acknowledged: usize = steps.iter().map(|step| step.lines.len()).sum();
            assert!(shown.len() >= acknowledged, "acknowledged lines are gone: {shown:?} of {steps:?}");
            for (step, _) in key.flying.drain(..) {
                let lines: usize = steps.iter().map(|step| step.lines.len()).sum();
                if shown.len() > lines {
                    key.rows.extend(&step.rows);
                    steps.push(step);
                }
            }
            key.agree_on_rows(machine, name);
            let wanted: Vec<_> = steps.iter().flat_map(|step| &step.lines).map(|line| line.id.to_string()).collect();
            assert_eq!(shown, wanted, "the transcript of {name}");
            assert_eq!(loaded.next_commit, steps.len() as u64 + 1);
            let ended: Vec<_> = steps.iter().filter_map(|step| step.ended).collect();
            let inbox: Vec<_> = loaded.inbox.iter().map(|item| item.turn).collect();
            let mut sent: Vec<_> = key.sent.iter().map(|sent| sent.turn).collect();
            let mut arrived = Vec::new();
            for (asked, _) in key.asked.drain(..) {
                if inbox.contains(&asked.turn) {
                    sent.push(asked.turn);
                    arrived.push(asked);
                }
            }
            sent.retain(|turn| !ended.contains(turn));
            assert_eq!(inbox, sent, "the inbox of {name}");
            for item in &loaded.inbox {
                let read = machine.ask(|reply| Call::Accepted(item.at, reply)).unwrap();
                assert_eq!(read.turn, item.turn);
            }
            key.sent.extend(arrived);
            key.done = steps;
            key.open = inbox;
            key.live = Some(repair(machine, name, &loaded));
        }
        self.knows_every_message(machine);
    }

    fn knows_every_message(&self, machine: &mut Machine) {
        for (name, key) in &self.keys {
            for sent in &key.sent {
                let again = message(name.as_str(), 9999, &sent.id, &sent.body);
                let answer = machine.enqueue(again);
                let known = matches!(answer, Enqueued::Duplicate { turn, .. } if turn == sent.turn);
                assert!(known, "{} of {name} was taken twice: {answer:?}", sent.id);
            }
        }
    }
}

impl Key {
    fn rowed_out(&mut self, id: DeliveryId, given_up: bool) {
        self.rows.retain(|row| *row != id);
        if given_up {
            self.dead.insert(id);
        }
    }

    /// Rows stand as they were acknowledged; the one that was on its way may have gone it, in one piece.
    fn agree_on_rows(&mut self, machine: &mut Machine, name: &SessionKey) {
        let rows = machine.outbox().into_iter().filter(|row| &*row.out.route.chat == name.as_str());
        let open: Vec<_> = rows.map(|row| row.out.id).collect();
        if let Some((id, given_up, _)) = self.moving.take()
            && !open.contains(&id)
        {
            self.rowed_out(id, given_up);
        }
        assert_eq!(open, self.rows, "the rows of {name}");
        let letters = machine.ask(Call::DeadLetters).into_iter().filter(|letter| letter.key == *name);
        let dead: BTreeSet<_> = letters.map(|letter| letter.id).collect();
        assert_eq!(dead, self.dead.iter().map(|id| LetterId::Delivery(*id)).collect(), "the dead letters of {name}");
    }
}

fn activate(machine: &mut Machine, name: &SessionKey, key: &mut Key) -> bool {
    let mut answer = machine.submit(|reply| Call::Load(name.clone(), reply));
    machine.settle();
    let Ok(Ok(loaded)) = answer.try_recv() else { return false };
    let live = repair(machine, name, &loaded);
    key.live = Some(live);
    true
}

/// Entry ids that the file has on the device, then those of the journal.
fn transcript(disk: &PowerCutDisk, name: &SessionKey, loaded: &Loaded) -> Vec<String> {
    let bytes = disk.read(&Path::new(SESSIONS).join(name.as_str())).unwrap_or_default();
    let length = loaded.view.length as usize;
    let good = bytes.get(..length).expect("the file is as long as the journal says");
    let text = std::str::from_utf8(good).unwrap();
    let ids: Vec<_> = text.lines().map(str::to_owned).collect();
    assert_eq!(ids.last().map(String::as_str), loaded.view.last_entry.as_deref());
    ids.into_iter().chain(loaded.lines.iter().map(|line| line.id.to_string())).collect()
}

/// What a session does on activation: the file gets what it may lack.
fn repair(machine: &mut Machine, name: &SessionKey, loaded: &Loaded) -> Live {
    let mut live = Live {
        session: loaded.session,
        epoch: loaded.epoch,
        next: loaded.next_commit,
        written: (0, loaded.view.clone()),
        unwritten: Vec::new(),
    };
    if !loaded.lines.is_empty() {
        live.unwritten.push((loaded.next_commit - 1, loaded.lines.clone()));
        write_view(machine, name, &mut live);
    }
    live
}

fn write_view(machine: &mut Machine, name: &SessionKey, live: &mut Live) -> bool {
    let Some(commit) = live.unwritten.last().map(|(commit, _)| *commit) else { return true };
    let lines: Vec<_> = live.unwritten.iter().flat_map(|(_, lines)| lines.clone()).collect();
    let Ok(length) = append_lines(&machine.disk, name, live.written.1.length, &lines) else { return false };
    live.unwritten.clear();
    live.written = (commit, ViewMark { length, last_entry: lines.last().map(|line| line.id.clone()) });
    machine.note(ViewWritten { key: name.clone(), session: live.session, commit, mark: live.written.1.clone() });
    true
}

fn options() -> Options {
    // The smallest segments that take a record: many rolls and checkpoints.
    Options { segment_bytes: 8 << 10, max_bytes: 1 << 20, ..Options::new(DIR, SESSIONS) }
}

/// Runs the script until the power fails at operation `off`, or to its end.
pub fn run(seed: u64, steps: usize, off: Option<u64>) -> (Script, Arc<PowerCutDisk>, u64) {
    let disk = disk();
    if let Some(off) = off {
        disk.power_off_at(off);
    }
    let mut script = Script::new(seed);
    let Ok(mut machine) = Machine::start_with(disk.clone(), options(), script.transcripts.clone(), 1) else {
        return (script, disk, 0);
    };
    for _ in 0..steps {
        script.step(&mut machine);
        if disk.is_off() || machine.engine.failed() {
            break;
        }
    }
    let rolled = machine.engine.log.active.header.number;
    (script, disk, rolled)
}

pub fn recovered(disk: Arc<PowerCutDisk>, script: &Script, what: &str) -> Machine {
    Machine::start_with(disk, options(), script.transcripts.clone(), 3)
        .unwrap_or_else(|error| panic!("{what}: {error}"))
}

/// Cuts at every third write from `first` on; the three tests together cut at every one.
fn cut_from(first: u64, seed: u64) {
    let (_, disk, rolled) = run(seed, STEPS, None);
    assert!(rolled > 6, "seed {seed}: the script fills {rolled} segments");
    for off in (first..=disk.operations()).step_by(3) {
        for survival in 0..2 {
            let what = format!("seed {seed}, power cut at {off}, survival {survival}");
            let _told = Told(&what);
            let (mut script, disk, _) = run(seed, STEPS, Some(off));
            let found = disk.cut(survival);
            let again = found.copy();
            let mut machine = recovered(found, &script, &what);
            let first = machine.report.clone();
            assert_eq!(recovered(again, &script, &what).report.open_turns, first.open_turns);
            script.agree(&mut machine);
            // Life goes on, and a second cut finds the same truth.
            for _ in 0..6 {
                script.step(&mut machine);
            }
            let found = machine.disk.cut(survival + 100);
            let mut machine = recovered(found, &script, &what);
            script.agree(&mut machine);
        }
    }
}

/// Says which case it was when a test panics.
struct Told<'a>(&'a str);

impl Drop for Told<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("failed: {}", self.0);
        }
    }
}

#[test]
fn no_power_cut_loses_or_doubles_anything_first_third() {
    cut_from(1, 1);
}

#[test]
fn no_power_cut_loses_or_doubles_anything_second_third() {
    cut_from(2, 1);
}

#[test]
fn no_power_cut_loses_or_doubles_anything_last_third() {
    cut_from(3, 1);
}

/// Everything that the state knows of each key, but for what depends on whether anybody is alive.
fn known(state: &State) -> BTreeMap<SessionKey, String> {
    let one = |name: &SessionKey, key: &KeyState| {
        let mut record = key.record(name);
        record.left = None;
        let open: Vec<_> = key.open.iter().map(|open| (open.turn, open.seq, open.at, open.id, open.bytes)).collect();
        format!("{record:?} {open:?} {:?} {:?}", key.lines, key.ended)
    };
    state.keys.iter().map(|(name, key)| (name.clone(), one(name, key))).collect()
}

#[test]
fn recovery_sees_what_the_writer_saw() {
    for seed in 1..=15 {
        let told = format!("seed {seed}");
        let _told = Told(&told);
        let mut script = Script::new(seed);
        let mut machine = Machine::start_with(disk(), options(), script.transcripts.clone(), 1).unwrap();
        for _ in 0..STEPS {
            script.step(&mut machine);
        }
        machine.engine.urgent = machine.engine.batch_records > 0;
        machine.settle();
        let saw = known(&machine.engine.state);
        let machine = machine.kill();
        for (name, now) in known(&machine.engine.state) {
            assert_eq!(Some(&now), saw.get(&name));
        }
        assert_eq!(machine.engine.state.keys.len(), saw.len());
    }
}
