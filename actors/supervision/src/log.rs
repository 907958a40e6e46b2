//! The supervision log: typed events as JSON lines in `<logs>/supervision.jsonl`, and as `tracing` events.
//!
//! One thread writes. [`LogWriter::record`] gives the event its id and its time, puts it into a bounded queue and
//! returns. When the queue is full the event is dropped, and the next line that fits is an `events_lost` event with the
//! number of those missing.
//!
//! Files: `supervision.jsonl` is written; when it exceeds [`LogOptions::file_bytes`] it becomes `supervision.1.jsonl`,
//! that one `supervision.2.jsonl` and so on; [`LogOptions::files`] are kept.

use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use protocol::supervision::{ActorPath, Event, EventName, Kind, SupervisionLog};

use crate::ports::{Disk, DiskFile, Open, Ports};

/// Events that may wait for the writer; over it they are counted instead.
pub const QUEUED_EVENTS_MAX: usize = 16_384;
/// Events written at once.
const BATCH_EVENTS_MAX: usize = 512;

/// Where and how much is written.
#[derive(Debug, Clone)]
pub struct LogOptions {
    /// Directory, made if missing.
    pub dir: PathBuf,
    /// Size at which a file is rotated.
    pub file_bytes: u64,
    /// Files kept, the current one included; at least one.
    pub files: u32,
}

impl LogOptions {
    /// 16 MiB per file, 8 files.
    pub fn new(dir: PathBuf) -> Self {
        Self { dir, file_bytes: 16 << 20, files: 8 }
    }

    /// Path of the `n`th file; 0 is the current one.
    pub(crate) fn file(&self, n: u32) -> PathBuf {
        self.dir.join(file_name(n))
    }
}

pub(crate) fn file_name(n: u32) -> String {
    if n == 0 { "supervision.jsonl".to_owned() } else { format!("supervision.{n}.jsonl") }
}

enum Job {
    Write(Box<Event>),
    Flush(SyncSender<()>),
    Close,
}

struct Door {
    queue: SyncSender<Job>,
    number: u64,
    lost: u64,
}

/// Writes the log. One per process.
pub struct LogWriter {
    boot: String,
    ports: Ports,
    door: Mutex<Door>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl LogWriter {
    /// Opens the log and starts its thread.
    pub fn start(options: LogOptions, ports: &Ports) -> io::Result<Arc<Self>> {
        let file = LogFile::open(options, ports.disk.clone())?;
        let (queue, jobs) = sync_channel(QUEUED_EVENTS_MAX);
        let thread =
            std::thread::Builder::new().name("greenroom-log".to_owned()).spawn(move || write_all(jobs, file))?;
        Ok(Arc::new(Self {
            boot: format!("{:08x}", ports.ids.random() >> 32),
            ports: ports.clone(),
            door: Mutex::new(Door { queue, number: 0, lost: 0 }),
            thread: Mutex::new(Some(thread)),
        }))
    }

    /// Returns when everything recorded so far is in the file. Blocks.
    pub fn flush(&self) {
        let (done, is_done) = sync_channel(1);
        let queue = self.door.lock().unwrap_or_else(PoisonError::into_inner).queue.clone();
        if queue.send(Job::Flush(done)).is_ok() {
            // Fails only when the writer has ended: then there is nothing left to wait for.
            let _ = is_done.recv();
        }
    }

    /// Writes what is queued and ends the thread. Blocks. Later events go to `tracing` only.
    pub fn close(&self) {
        let Some(thread) = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take() else { return };
        let queue = self.door.lock().unwrap_or_else(PoisonError::into_inner).queue.clone();
        // Fails only when the writer has ended.
        let _ = queue.send(Job::Close);
        if thread.join().is_err() {
            tracing::error!(target: "supervision", "the supervision log's thread panicked");
        }
    }

    fn next_id(&self, door: &mut Door) -> String {
        door.number += 1;
        format!("{}-{}", self.boot, door.number)
    }

    fn lost_event(&self, door: &mut Door) -> Event {
        let mut event = Event::new(EventName::EventsLost, ActorPath("/log".into()), Kind::Registry);
        event.ts = timestamp(self.ports.clock.wall_us());
        event.id = self.next_id(door);
        event.lost = format!("{} events", door.lost);
        event
    }
}

impl SupervisionLog for LogWriter {
    fn record(&self, mut event: Event) -> String {
        event.ts = timestamp(self.ports.clock.wall_us());
        let mut door = self.door.lock().unwrap_or_else(PoisonError::into_inner);
        if door.lost > 0 {
            let notice = self.lost_event(&mut door);
            if door.queue.try_send(Job::Write(Box::new(notice))).is_ok() {
                door.lost = 0;
            }
        }
        let id = self.next_id(&mut door);
        event.id.clone_from(&id);
        match door.queue.try_send(Job::Write(Box::new(event))) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => door.lost += 1,
            Err(TrySendError::Disconnected(Job::Write(event))) => mirror(&event),
            Err(TrySendError::Disconnected(Job::Flush(_) | Job::Close)) => {}
        }
        id
    }
}

/// `2026-11-29T20:53:29.000001Z`.
pub fn timestamp(wall_us: u64) -> String {
    let micros = i64::try_from(wall_us).unwrap_or(i64::MAX);
    let time = jiff::Timestamp::from_microsecond(micros).unwrap_or(jiff::Timestamp::MAX);
    format!("{time:.6}")
}

fn write_all(jobs: Receiver<Job>, mut file: LogFile) {
    while let Ok(first) = jobs.recv() {
        let mut bytes = Vec::new();
        let mut next = Some(first);
        let mut room = BATCH_EVENTS_MAX;
        let mut flushed = Vec::new();
        let mut closing = false;
        while let Some(job) = next {
            match job {
                Job::Write(event) => {
                    mirror(&event);
                    append_line(&mut bytes, &event);
                    room -= 1;
                }
                Job::Flush(done) => flushed.push(done),
                Job::Close => closing = true,
            }
            next = if room > 0 && !closing { jobs.try_recv().ok() } else { None };
        }
        if let Err(error) = file.append(&bytes) {
            tracing::error!(target: "supervision", %error, "supervision log cannot be written");
        }
        for done in flushed {
            // The one who waited may be gone.
            let _ = done.send(());
        }
        if closing {
            return;
        }
    }
}

fn append_line(bytes: &mut Vec<u8>, event: &Event) {
    let before = bytes.len();
    match serde_json::to_writer(&mut *bytes, event) {
        Ok(()) => bytes.push(b'\n'),
        Err(error) => {
            bytes.truncate(before);
            tracing::error!(target: "supervision", %error, "supervision event cannot be written as JSON");
        }
    }
}

struct LogFile {
    options: LogOptions,
    disk: Arc<dyn Disk>,
    file: Box<dyn DiskFile>,
    length: u64,
}

impl LogFile {
    fn open(options: LogOptions, disk: Arc<dyn Disk>) -> io::Result<Self> {
        disk.create_dir_all(&options.dir)?;
        let file = disk.open(&options.file(0), Open::Create)?;
        let length = file.length()?;
        let mut this = Self { options, disk, file, length };
        this.end_torn_line()?;
        Ok(this)
    }

    /// A line that a crash of the process cut must not run into the next one.
    fn end_torn_line(&mut self) -> io::Result<()> {
        let mut last = [b'\n'];
        if self.length > 0 {
            self.file.read_at(&mut last, self.length - 1)?;
        }
        if last == *b"\n" { Ok(()) } else { self.append(b"\n") }
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        if self.length > 0 && self.length + bytes.len() as u64 > self.options.file_bytes {
            self.rotate()?;
        }
        self.file.write_at(bytes, self.length)?;
        self.length += bytes.len() as u64;
        Ok(())
    }

    fn rotate(&mut self) -> io::Result<()> {
        let oldest = self.options.files.max(1) - 1;
        for n in (0..oldest).rev() {
            self.ignore_missing(self.disk.rename(&self.options.file(n), &self.options.file(n + 1)))?;
        }
        if oldest == 0 {
            self.ignore_missing(self.disk.remove(&self.options.file(0)))?;
        }
        self.file = self.disk.open(&self.options.file(0), Open::Create)?;
        self.length = 0;
        Ok(())
    }

    fn ignore_missing(&self, result: io::Result<()>) -> io::Result<()> {
        match result {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }
}

fn mirror(event: &Event) {
    let Event { id, path, lost, .. } = event;
    let name = event_word(event.event);
    let reason = event.reason.as_deref();
    let at = event.panic.as_ref().map(|panic| panic.at.as_str());
    let text = event.panic.as_ref().map(|panic| panic.text.as_str());
    let turn = event.turn.map(|turn| turn.to_string());
    let cause = event.cause.as_deref();
    match severity(event.event) {
        tracing::Level::ERROR => {
            tracing::error!(target: "supervision", event = name, %path, id, reason, text, at, turn, cause, lost, "supervision event");
        }
        tracing::Level::WARN => {
            tracing::warn!(target: "supervision", event = name, %path, id, reason, text, at, turn, cause, lost, "supervision event");
        }
        _ => {
            tracing::debug!(target: "supervision", event = name, %path, id, reason, text, at, turn, cause, lost, "supervision event");
        }
    }
}

/// Warnings are unexpected but lost nothing; errors need a person.
fn severity(name: EventName) -> tracing::Level {
    match name {
        EventName::GaveUp
        | EventName::Quarantined
        | EventName::DeadLettered
        | EventName::Escalated
        | EventName::JournalReadOnly
        | EventName::EventsLost => tracing::Level::ERROR,
        EventName::Restarted
        | EventName::TurnRecovered
        | EventName::TurnStuck
        | EventName::ViewRepaired
        | EventName::ConfigRejected => tracing::Level::WARN,
        EventName::Started
        | EventName::Exited
        | EventName::Released
        | EventName::Activated
        | EventName::Passivated
        | EventName::Refused
        | EventName::Recovered
        | EventName::JournalWritable
        | EventName::GatewayStarted
        | EventName::GatewayStopping => tracing::Level::DEBUG,
    }
}

/// The snake_case name, as in the file.
fn event_word(name: EventName) -> String {
    match serde_json::to_value(name) {
        Ok(serde_json::Value::String(word)) => word,
        Ok(_) | Err(_) => format!("{name:?}"),
    }
}

/// Keeps events in memory, for tests.
#[derive(Debug, Default)]
pub struct MemoryLog(Mutex<Vec<Event>>);

impl MemoryLog {
    /// An empty one.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Everything recorded so far, in order; ids are `memory-<n>`.
    pub fn events(&self) -> Vec<Event> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The events of one name.
    pub fn named(&self, name: EventName) -> Vec<Event> {
        self.events().into_iter().filter(|event| event.event == name).collect()
    }
}

impl SupervisionLog for MemoryLog {
    fn record(&self, mut event: Event) -> String {
        let mut events = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let id = format!("memory-{}", events.len() + 1);
        event.id.clone_from(&id);
        events.push(event);
        id
    }
}

#[cfg(test)]
mod tests;
