//! The engine with everything around it in memory, turned by hand so that a test chooses what shares a batch.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};

use domain::body::body_hash;
use domain::ids::{Epoch, MessageId, SessionId, SessionKey, Source, TurnId};
use protocol::journal::*;
use protocol::metrics::Metrics;
use protocol::turn::Route;
use supervision::log::MemoryLog;
use supervision::memory::{PowerCutDisk, TestClock, memory_ports};
use supervision::ports::{Disk, Open};
use tokio::sync::{oneshot, watch};
use uuid::Uuid;

use crate::call::Call;
use crate::carry::Notes;
use crate::engine::{Engine, Surroundings};
use crate::options::{OpenError, Options};
use crate::pump::{Inlet, Post};
use crate::recovery::{RecoveryReport, recover};

pub const DIR: &str = "/journal";
pub const SESSIONS: &str = "/sessions";

#[derive(Default)]
pub struct Sink(pub Mutex<Vec<Queued>>);

impl QueuedSink for Sink {
    fn queued(&self, queued: Queued) {
        self.0.lock().unwrap().push(queued);
    }
}

#[derive(Default)]
pub struct RowSink(pub Mutex<Vec<OutRow>>);

impl OutSink for RowSink {
    fn out(&self, row: OutRow) {
        self.0.lock().unwrap().push(row);
    }
}

/// Message ids as transcripts have them: given ones, and those that go with lines in the files.
#[derive(Default, Clone)]
pub struct Transcripts {
    pub given: Arc<Mutex<BTreeMap<SessionKey, Vec<RecentId>>>>,
    pub by_line: Arc<Mutex<BTreeMap<String, RecentId>>>,
    pub disk: Option<Arc<PowerCutDisk>>,
    /// Keys into whose files others wrote.
    pub foreign: Arc<Mutex<Vec<SessionKey>>>,
}

impl RecentIds for Transcripts {
    fn recent(&self, key: &SessionKey) -> io::Result<Vec<RecentId>> {
        let mut found = self.given.lock().unwrap().get(key).cloned().unwrap_or_default();
        let file = self.disk.as_ref().map(|disk| disk.read(&Path::new(SESSIONS).join(key.as_str())));
        let text = String::from_utf8_lossy(&file.and_then(Result::ok).unwrap_or_default()).into_owned();
        let by_line = self.by_line.lock().unwrap();
        found.extend(text.lines().filter_map(|line| by_line.get(line).cloned()));
        Ok(found)
    }

    fn move_away(&self, moving: &Moving) -> io::Result<()> {
        let Some(disk) = &self.disk else { return Ok(()) };
        let (from, to) = (moving.key.as_str().to_owned(), format!("{}.deleted.{}", moving.key, moving.place.at_ms));
        let dir = Path::new(SESSIONS);
        if disk.stat(&dir.join(&to)).is_ok() {
            return Ok(());
        }
        if !moving.lines.is_empty() {
            append_lines(disk, &moving.key, moving.view.length, &moving.lines)?;
            disk.open(&dir.join(&from), Open::Write)?.sync_data()?;
        }
        match disk.rename(&dir.join(from), &dir.join(to)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => disk.sync_dir(dir),
        }
    }

    fn complete(&self, key: &SessionKey, from: &ViewMark, lines: &[Line]) -> io::Result<Option<ViewMark>> {
        let Some(disk) = self.disk.as_ref().filter(|_| !self.foreign.lock().unwrap().contains(key)) else {
            return Ok(None);
        };
        let length = append_lines(disk, key, from.length, lines)?;
        Ok(Some(ViewMark { length, last_entry: lines.last().map(|line| line.id.clone()) }))
    }
}

pub struct Machine {
    pub disk: Arc<PowerCutDisk>,
    pub clock: Arc<TestClock>,
    pub engine: Engine,
    notes: Notes,
    pub calls: Receiver<Call>,
    pub sink: Arc<Sink>,
    pub rows: Arc<RowSink>,
    pub recent: Transcripts,
    pub events: Arc<MemoryLog>,
    pub status: Arc<Mutex<JournalStatus>>,
    pub failed: watch::Receiver<Option<String>>,
    pub report: RecoveryReport,
}

pub fn tiny() -> Options {
    Options { segment_bytes: 16 << 10, max_bytes: 1 << 20, ..Options::new(DIR, SESSIONS) }
}

pub fn disk() -> Arc<PowerCutDisk> {
    let disk = PowerCutDisk::new();
    disk.create_dir_all(Path::new(SESSIONS)).unwrap();
    disk
}

impl Machine {
    pub fn start(disk: Arc<PowerCutDisk>, options: Options) -> Result<Self, OpenError> {
        Self::start_with(disk, options, Transcripts::default(), 1)
    }

    pub fn start_with(
        disk: Arc<PowerCutDisk>,
        options: Options,
        recent: Transcripts,
        seed: u64,
    ) -> Result<Self, OpenError> {
        let recent = Transcripts { disk: Some(disk.clone()), ..recent };
        let clock = TestClock::new();
        let ports = memory_ports(disk.clone(), clock.clone(), seed);
        let recovered = recover(&options, &ports)?;
        let report = recovered.report.clone();
        let (post, calls) = channel();
        let (sink, rows, events) = (Arc::new(Sink::default()), Arc::new(RowSink::default()), MemoryLog::new());
        let around = Surroundings {
            ports,
            metrics: Metrics::default(),
            log: events.clone(),
            sink: sink.clone(),
            out: rows.clone(),
            recent: Arc::new(recent.clone()),
        };
        let status = Arc::new(Mutex::new(JournalStatus::default()));
        let (fail, failed) = watch::channel(None);
        let notes = Notes::default();
        let post = Post::Thread(Inlet::new(post, &Metrics::default()));
        let engine = Engine::new(options, around, recovered, post, notes.clone(), status.clone(), fail);
        Ok(Self { disk, clock, engine, notes, calls, sink, rows, recent, events, status, failed, report })
    }

    /// Turns the engine until nothing is left to do.
    pub fn settle(&mut self) {
        loop {
            self.engine.turn();
            let mut more = self.engine.has_work();
            while let Ok(call) = self.calls.try_recv() {
                self.engine.take(call);
                more = true;
            }
            if !more {
                return;
            }
        }
    }

    pub fn note(&mut self, written: ViewWritten) {
        self.notes.lock().unwrap().push(written);
    }

    pub fn submit<T>(&mut self, call: impl FnOnce(oneshot::Sender<T>) -> Call) -> oneshot::Receiver<T> {
        let (reply, answer) = oneshot::channel();
        self.engine.take(call(reply));
        answer
    }

    pub fn ask<T>(&mut self, call: impl FnOnce(oneshot::Sender<T>) -> Call) -> T {
        let mut answer = self.submit(call);
        self.settle();
        answer.try_recv().expect("it was answered")
    }

    pub fn enqueue(&mut self, message: Enqueue) -> Enqueued {
        self.ask(|reply| Call::Enqueue(message, reply.into()))
    }

    pub fn load(&mut self, key: &SessionKey) -> Loaded {
        self.ask(|reply| Call::Load(key.clone(), reply)).expect("it can be loaded")
    }

    pub fn commit(&mut self, commit: Commit) -> CommitOutcome {
        self.ask(|reply| Call::Commit(commit, reply))
    }

    pub fn status(&self) -> JournalStatus {
        *self.status.lock().unwrap()
    }

    /// Closed in order, started again.
    pub fn restart(mut self) -> Self {
        self.ask(Call::Close);
        self.kill()
    }

    /// The process is killed, the machine goes on.
    pub fn kill(self) -> Self {
        let options = self.engine.options.clone();
        Self::start_with(self.disk.copy(), options, self.recent, 2).expect("it recovers")
    }
}

pub fn key(name: &str) -> SessionKey {
    SessionKey::new(name).unwrap()
}

pub fn turn(n: u64) -> TurnId {
    TurnId(Uuid::from_u128(u128::from(n)))
}

pub fn message(name: &str, n: u64, id: &str, body: &[u8]) -> Enqueue {
    Enqueue {
        key: key(name),
        turn: turn(n),
        source: Source::new("ws").unwrap(),
        message_id: MessageId::new(id).unwrap(),
        route: Route::Live,
        body: body.into(),
        body_hash: body_hash(body),
        retry_of: None,
    }
}

pub fn line(id: &str) -> Line {
    Line { id: id.into(), text: format!("{{\"id\":\"{id}\"}}").into() }
}

pub fn commit(key: &SessionKey, session: SessionId, epoch: Epoch, number: u64) -> Commit {
    Commit {
        key: key.clone(),
        session,
        epoch,
        number,
        lines: Vec::new(),
        tools_started: Vec::new(),
        ended: Vec::new(),
        out: Vec::new(),
        started: None,
        interrupted: false,
        closes: None,
    }
}

/// Appends lines to a transcript file that is cut to `length` first; nothing is synced. The new length.
pub fn append_lines(disk: &PowerCutDisk, key: &SessionKey, length: u64, lines: &[Line]) -> io::Result<u64> {
    let path = Path::new(SESSIONS).join(key.as_str());
    let file = disk.open(&path, Open::Create)?;
    file.set_length(length)?;
    let text: String = lines.iter().map(|line| format!("{}\n", line.id)).collect();
    file.write_at(text.as_bytes(), length)?;
    Ok(length + text.len() as u64)
}
