//! The supervision log: typed events as JSON lines in `<logs>/supervision.jsonl`, and as `tracing` events.
//!
//! One thread writes. [`LogWriter::record`] gives the event its id and its time, puts it into a bounded queue and
//! returns. When the queue is full the event is dropped, and the next line that fits is an `events_lost` event with the
//! number of those missing. Events that the disk does not take are counted the same way; what was written of a line
//! that did not fit is cut off, so the next one begins on a line of its own.
//!
//! Files: `supervision.jsonl` is written; when it exceeds [`LogOptions::file_bytes`] it becomes `supervision.1.jsonl`,
//! that one `supervision.2.jsonl` and so on; [`LogOptions::files`] are kept.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
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
    /// The event, and how many are missing from the log when this line is.
    Write(Box<Event>, u64),
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
    /// Events that the disk did not take and that no `events_lost` has told yet.
    unwritten: Arc<AtomicU64>,
    /// Events in the queue.
    queued: Arc<AtomicU64>,
    /// Events that an `events_lost` has told.
    told: AtomicU64,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl LogWriter {
    /// Opens the log and starts its thread.
    pub fn start(options: LogOptions, ports: &Ports) -> io::Result<Arc<Self>> {
        let file = LogFile::open(options, ports.disk.clone())?;
        let (queue, jobs) = sync_channel(QUEUED_EVENTS_MAX);
        let unwritten = Arc::<AtomicU64>::default();
        let queued = Arc::<AtomicU64>::default();
        let writer = Writer { file, unwritten: Arc::clone(&unwritten), queued: Arc::clone(&queued), failing: false };
        let thread =
            std::thread::Builder::new().name("greenroom-log".to_owned()).spawn(move || writer.write_all(&jobs))?;
        Ok(Arc::new(Self {
            boot: format!("{:08x}", ports.ids.random() >> 32),
            ports: ports.clone(),
            door: Mutex::new(Door { queue, number: 0, lost: 0 }),
            unwritten,
            queued,
            told: AtomicU64::new(0),
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

    /// Events that wait to be written now, and events that are missing in the files since the start.
    pub fn backlog(&self) -> (u64, u64) {
        let untold = self.door.lock().unwrap_or_else(PoisonError::into_inner).lost;
        let missing = self.told.load(Ordering::Relaxed) + untold + self.unwritten.load(Ordering::Relaxed);
        (self.queued.load(Ordering::Relaxed), missing)
    }

    /// Puts an event into the queue.
    fn queue(&self, door: &Door, event: Event, stands_for: u64) -> Result<(), TrySendError<Job>> {
        self.queued.fetch_add(1, Ordering::Relaxed);
        let sent = door.queue.try_send(Job::Write(Box::new(event), stands_for));
        if sent.is_err() {
            self.queued.fetch_sub(1, Ordering::Relaxed);
        }
        sent
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
        door.lost += self.unwritten.swap(0, Ordering::Relaxed);
        if door.lost > 0 {
            let notice = self.lost_event(&mut door);
            if self.queue(&door, notice, door.lost).is_ok() {
                self.told.fetch_add(door.lost, Ordering::Relaxed);
                door.lost = 0;
            }
        }
        let id = self.next_id(&mut door);
        event.id.clone_from(&id);
        match self.queue(&door, event, 1) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => door.lost += 1,
            Err(TrySendError::Disconnected(Job::Write(event, _))) => mirror(&event),
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

/// The thread's side.
struct Writer {
    file: LogFile,
    unwritten: Arc<AtomicU64>,
    queued: Arc<AtomicU64>,
    /// Whether the last write failed: the operator is told of the first one only.
    failing: bool,
}

impl Writer {
    fn write_all(mut self, jobs: &Receiver<Job>) {
        while let Ok(first) = jobs.recv() {
            let mut batch = Batch::default();
            let mut next = Some(first);
            let mut room = BATCH_EVENTS_MAX;
            let mut flushed = Vec::new();
            let mut closing = false;
            while let Some(job) = next {
                match job {
                    Job::Write(event, stands_for) => {
                        self.queued.fetch_sub(1, Ordering::Relaxed);
                        // While nothing can be written, every event brings such a notice along.
                        if !(self.failing && event.event == EventName::EventsLost) {
                            mirror(&event);
                        }
                        batch.push(&event, stands_for);
                        room -= 1;
                    }
                    Job::Flush(done) => flushed.push(done),
                    Job::Close => closing = true,
                }
                next = if room > 0 && !closing { jobs.try_recv().ok() } else { None };
            }
            self.write(&batch);
            for done in flushed {
                // The one who waited may be gone.
                let _ = done.send(());
            }
            if closing {
                return;
            }
        }
    }

    fn write(&mut self, batch: &Batch) {
        match self.file.append(&batch.bytes) {
            Ok(()) if batch.bytes.is_empty() => {}
            Ok(()) => {
                if std::mem::take(&mut self.failing) {
                    tracing::info!(target: "supervision", "supervision log can be written again");
                }
            }
            Err(Unwritten { kept, error }) => {
                self.unwritten.fetch_add(batch.missing_after(kept), Ordering::Relaxed);
                if !std::mem::replace(&mut self.failing, true) {
                    tracing::error!(target: "supervision", %error, "supervision log cannot be written");
                }
            }
        }
    }
}

/// Lines that are written at once.
#[derive(Default)]
struct Batch {
    bytes: Vec<u8>,
    /// Where each line ends, and how many events are missing without it.
    lines: Vec<(usize, u64)>,
}

impl Batch {
    fn push(&mut self, event: &Event, stands_for: u64) {
        let before = self.bytes.len();
        match serde_json::to_writer(&mut self.bytes, event) {
            Ok(()) => {
                self.bytes.push(b'\n');
                self.lines.push((self.bytes.len(), stands_for));
            }
            Err(error) => {
                self.bytes.truncate(before);
                tracing::error!(target: "supervision", %error, "supervision event cannot be written as JSON");
            }
        }
    }

    /// Events that are missing when only the first `kept` bytes are in the file.
    fn missing_after(&self, kept: usize) -> u64 {
        self.lines.iter().filter(|(end, _)| *end > kept).map(|(_, stands_for)| stands_for).sum()
    }
}

/// A write that failed, and how many bytes of its lines are in the file all the same.
struct Unwritten {
    kept: usize,
    error: io::Error,
}

struct LogFile {
    options: LogOptions,
    disk: Arc<dyn Disk>,
    file: Box<dyn DiskFile>,
    /// Where the next line begins.
    length: u64,
    /// Whether a part of a line may follow there, left by a write that failed.
    torn: bool,
}

impl LogFile {
    fn open(options: LogOptions, disk: Arc<dyn Disk>) -> io::Result<Self> {
        disk.create_dir_all(&options.dir)?;
        let file = disk.open(&options.file(0), Open::Create)?;
        let length = file.length()?;
        let mut this = Self { options, disk, file, length, torn: false };
        this.end_torn_line()?;
        Ok(this)
    }

    /// A line that a crash of the process cut must not run into the next one.
    fn end_torn_line(&mut self) -> io::Result<()> {
        let mut last = [b'\n'];
        if self.length > 0 {
            self.file.read_at(&mut last, self.length - 1)?;
        }
        if last == *b"\n" { Ok(()) } else { self.append(b"\n").map_err(|failed| failed.error) }
    }

    fn append(&mut self, lines: &[u8]) -> Result<(), Unwritten> {
        if lines.is_empty() {
            return Ok(());
        }
        if self.length > 0 && self.length + lines.len() as u64 > self.options.file_bytes {
            self.rotate().map_err(|error| Unwritten { kept: 0, error })?;
        }
        // What cannot be cut off is written over.
        self.torn = self.torn && self.file.set_length(self.length).is_err();
        match self.file.write_at(lines, self.length) {
            Ok(()) => {
                self.length += lines.len() as u64;
                Ok(())
            }
            Err(error) => Err(Unwritten { kept: self.keep_whole_lines(lines), error }),
        }
    }

    /// After a write that failed: the whole lines that are in the file stay, the part of one is cut off, which needs no
    /// space. Returns the bytes that stay.
    fn keep_whole_lines(&mut self, lines: &[u8]) -> usize {
        let added = self.file.length().map_or(0, |end| end.saturating_sub(self.length));
        let written = lines.get(..usize::try_from(added).unwrap_or(usize::MAX)).unwrap_or(lines);
        let kept = written.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        self.length += kept as u64;
        self.torn = self.file.set_length(self.length).is_err();
        kept
    }

    fn rotate(&mut self) -> io::Result<()> {
        // Without a current file the last rotation got stuck when it made the new one.
        if self.exists(0)? {
            self.shift()?;
        }
        self.file = self.disk.open(&self.options.file(0), Open::Create)?;
        self.length = 0;
        self.torn = false;
        Ok(())
    }

    fn exists(&self, n: u32) -> io::Result<bool> {
        match self.disk.stat(&self.options.file(n)) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn shift(&self) -> io::Result<()> {
        let oldest = self.options.files.max(1) - 1;
        for n in (0..oldest).rev() {
            self.ignore_missing(self.disk.rename(&self.options.file(n), &self.options.file(n + 1)))?;
        }
        if oldest == 0 {
            self.ignore_missing(self.disk.remove(&self.options.file(0)))?;
        }
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
