//! `greenroom journal repair`: goes on after acknowledged data was damaged.
//!
//! What is readable is kept: a new log begins behind the old one, with a copy of everything that is still needed, and
//! ends the need for the old segments in one record. A repair that is cut leaves a log that is refused as before, and is
//! begun again. The damaged segments are copied aside first, so nothing that might be read by hand is destroyed.
//!
//! A message of which nothing is left is unknown afterwards: when its sender repeats it under the same id, it is a new
//! message and gets a turn of its own. If its end is left, the repeat gets that end. If only the transcript has it, without
//! an end, the repeat is told that the outcome is not known: it may have run in part, so it is not run again.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use domain::ids::{SessionKey, TurnId};
use protocol::journal::JournalStatus;
use protocol::metrics::Metrics;
use serde::Serialize;
use supervision::ports::{Disk, Open, Ports};
use tokio::sync::watch;

use crate::call::Call;
use crate::carry::Notes;
use crate::describe::{Described, describe};
use crate::engine::{Engine, Surroundings};
use crate::log::{self, Log, Segment};
use crate::nobody::Nobody;
use crate::options::{OpenError, Options};
use crate::pump::{Inlet, Post};
use crate::record::Record;
use crate::recovery::{Recovered, RecoveryReport};
use crate::salvage::{Hole, Part, Place, Salvage, hints, salvage};
use crate::segment::{HEADER_BYTES, SegmentHeader};
use crate::state::State;

/// How long a step of the repair may take.
const STEP_MAX: Duration = Duration::from_secs(600);

/// One damaged place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DamagedPlace {
    /// Segment file.
    pub file: PathBuf,
    /// From this byte.
    pub from: u64,
    /// To before this one.
    pub to: u64,
    /// What is wrong.
    pub why: String,
    /// Records that the damaged bytes still seem to hold; they are lost, but for what was copied or ended elsewhere.
    pub hints: Vec<Hint>,
}

/// A record that is lost, as far as its bytes still tell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Hint {
    /// What sort of record.
    pub record: &'static str,
    /// Session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<SessionKey>,
    /// Turns that it was about.
    pub turns: Vec<TurnId>,
}

/// What the numbers of a session say is missing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct KeyLoss {
    /// Places in the accept order whose messages are not readable.
    pub messages: BTreeSet<u64>,
    /// Numbers of commits that are not readable. Their lines may stand in the transcript file.
    pub commits: BTreeSet<u64>,
}

/// What a repair finds and does.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct RepairReport {
    /// Damaged places; none: there is nothing to repair.
    pub damage: Vec<DamagedPlace>,
    /// What is lost, by session, as far as numbers tell: the last records of a session leave no gap behind them.
    pub lost: BTreeMap<SessionKey, KeyLoss>,
    /// Records that are kept.
    pub records: u64,
    /// Sessions that are kept.
    pub keys: usize,
    /// Turns that wait or were cut, kept.
    pub open_turns: u64,
    /// Dead letters that are kept.
    pub dead_letters: usize,
    /// Rows of the outbox that are kept.
    pub outbox: usize,
    /// Where the damaged segments were copied to.
    pub aside: Option<PathBuf>,
    /// Whether it was done.
    pub repaired: bool,
}

/// Looks what a repair of the log that `options` names would do; with `aside` does it, after copying the damaged
/// segments into that new directory. The caller holds the directory's lock. Blocks.
pub fn repair(options: &Options, ports: &Ports, aside: Option<&Path>) -> Result<RepairReport, OpenError> {
    let disk = &*ports.disk;
    let salvage = salvage(disk, &options.dir)?;
    let mut report = RepairReport::default();
    for hole in &salvage.holes {
        report.damage.push(place(disk, hole)?);
    }
    let state = rebuild(disk, &salvage, &mut report)?;
    let Some(aside) = aside.filter(|_| !report.damage.is_empty()) else { return Ok(report) };
    copy_aside(disk, &report.damage, aside).map_err(|source| OpenError::Io { path: aside.to_owned(), source })?;
    report.aside = Some(aside.to_owned());
    begin_anew(options, ports, &salvage, state)?;
    report.repaired = true;
    Ok(report)
}

fn place(disk: &dyn Disk, hole: &Hole) -> Result<DamagedPlace, OpenError> {
    let bytes = match disk.read(&hole.file) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(source) => return Err(OpenError::Io { path: hole.file.clone(), source }),
    };
    let damaged = bytes.get(hole.from as usize..hole.to as usize).unwrap_or_default();
    let hints = hints(damaged).into_iter().map(|record| {
        let Described { kind, key, turns, about: _ } = describe(&record, false);
        Hint { record: kind, key, turns }
    });
    Ok(DamagedPlace {
        file: hole.file.clone(),
        from: hole.from,
        to: hole.to,
        why: hole.why.clone(),
        hints: hints.collect(),
    })
}

fn rebuild(disk: &dyn Disk, salvage: &Salvage, report: &mut RepairReport) -> Result<State, OpenError> {
    let mut state = State::default();
    let mut numbers = Numbers::default();
    let mut bad = Vec::new();
    salvage.records(disk, &mut |place, record| {
        match record {
            Ok(record) => {
                numbers.see(&record, &mut report.lost);
                state.apply(place.at, place.bytes, record);
                report.records += 1;
            }
            Err(why) => bad.push((place, why)),
        }
        Ok::<_, OpenError>(())
    })?;
    for (Place { at, batch, .. }, why) in bad {
        let part = salvage.parts.iter().rfind(|part| part.header.base <= at.0);
        let Some(part) = part else { continue };
        let from = at.0 - part.header.base;
        let why = format!("a record of batch {batch} {why}");
        report.damage.push(DamagedPlace { file: part.file.clone(), from, to: from, why, hints: Vec::new() });
    }
    state.finish_recovery();
    report.keys = state.keys.len();
    report.open_turns = state.totals.open;
    report.dead_letters = state.letters.len();
    report.outbox = state.outbox.len();
    Ok(state)
}

/// The next numbers of each session, to notice those that are passed over.
#[derive(Default)]
struct Numbers(BTreeMap<SessionKey, (Option<u64>, Option<u64>)>);

impl Numbers {
    fn see(&mut self, record: &Record, lost: &mut BTreeMap<SessionKey, KeyLoss>) {
        if let Record::Accepted { key, message } = record {
            let (seq, _) = self.0.entry(key.clone()).or_default();
            let missing = pass(seq, message.seq.0, message.seq.0 + 1);
            if !missing.is_empty() {
                lost.entry(key.clone()).or_default().messages.extend(missing);
            }
        } else if let Record::Commit { commit, .. } = record {
            let (_, number) = self.0.entry(commit.key.clone()).or_default();
            let missing = pass(number, commit.number, commit.number + 1);
            if !missing.is_empty() {
                lost.entry(commit.key.clone()).or_default().commits.extend(missing);
            }
        } else if let Record::Key(record) = record {
            let (seq, number) = self.0.entry(record.key.clone()).or_default();
            let messages = pass(seq, record.next_seq.0, record.next_seq.0);
            let commits = pass(number, record.next_commit, record.next_commit);
            if !messages.is_empty() || !commits.is_empty() {
                let loss = lost.entry(record.key.clone()).or_default();
                loss.messages.extend(messages);
                loss.commits.extend(commits);
            }
        } else if let Record::Forgotten { key } = record {
            self.0.remove(key);
        }
    }
}

/// Notes that `number` was seen and `after` is due; the numbers that were passed over.
fn pass(next: &mut Option<u64>, number: u64, after: u64) -> std::ops::Range<u64> {
    let due = next.unwrap_or(number);
    *next = Some(due.max(after));
    due..number
}

fn copy_aside(disk: &dyn Disk, damage: &[DamagedPlace], aside: &Path) -> io::Result<()> {
    disk.create_dir_all(aside)?;
    let files: BTreeSet<&PathBuf> = damage.iter().map(|place| &place.file).collect();
    for file in files {
        let bytes = match disk.read(file) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        let to = disk.open(&aside.join(file.file_name().unwrap_or_default()), Open::Create)?;
        to.set_length(0)?;
        to.write_at(&bytes, 0)?;
        to.sync_data()?;
    }
    disk.sync_dir(aside)
}

/// Writes everything that is needed behind the old log, by the same engine that does it in service.
fn begin_anew(options: &Options, ports: &Ports, salvage: &Salvage, state: State) -> Result<(), OpenError> {
    let io = |source: io::Error| OpenError::Io { path: options.dir.clone(), source };
    let options = Options { max_bytes: u64::MAX, ..options.clone() };
    let header = SegmentHeader {
        durability: options.durability,
        number: salvage.newest + 1,
        base: salvage.end,
        length: options.segment_bytes,
    };
    let active = log::make(&*ports.disk, &options.dir, header, None).map_err(io)?.segment;
    let open = |part: &Part| {
        let file = ports.disk.open(&part.file, Open::Read).map_err(io)?;
        Ok(Segment { header: part.header, file: Arc::from(file) })
    };
    let older: VecDeque<Segment> = salvage.parts.iter().map(open).collect::<Result<_, OpenError>>()?;
    let log = Log::new(&options, ports.disk.clone(), older, (active, HEADER_BYTES), salvage.next_batch);
    let recovered = Recovered { log, state, report: RecoveryReport::default(), no_space: None };
    let (post, calls) = channel();
    let metrics = Metrics::default();
    let post = Post::Thread(Inlet::new(post, &metrics));
    let (fail, _failed) = watch::channel(None);
    let status = Arc::new(Mutex::new(JournalStatus::default()));
    let around = Surroundings {
        ports: ports.clone(),
        metrics,
        log: Arc::new(Nobody),
        sink: Arc::new(Nobody),
        out: Arc::new(Nobody),
        recent: Arc::new(Nobody),
    };
    let notes = Notes::default();
    let mut engine = Engine::new(options.clone(), around, recovered, post, notes, status, fail);
    engine.catch_up.give_up();
    engine.carry_everything();
    drive(&mut engine, &calls).map_err(io)
}

/// Turns the engine until all is copied.
fn drive(engine: &mut Engine, calls: &Receiver<Call>) -> io::Result<()> {
    let anew = engine.log.active.header.number;
    loop {
        engine.turn();
        if engine.failed() {
            return Err(io::Error::other("the new log cannot be written"));
        }
        if engine.has_work() {
            engine.take(Call::Tick);
            continue;
        }
        if engine.log.older.iter().all(|segment| segment.header.number >= anew) {
            return Ok(());
        }
        if engine.checkpoint.is_idle() {
            return Err(io::Error::other("a needed record cannot be read; nothing was changed"));
        }
        match calls.recv_timeout(STEP_MAX) {
            Ok(call) => engine.take(call),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
    }
}
