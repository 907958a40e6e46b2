//! The supervision log: typed events as JSON lines in `<logs>/supervision.jsonl`, and as `tracing` events.
//!
//! One thread writes. [`LogWriter::record`] gives the event its id and its time, puts it into a bounded queue and
//! returns. When the queue is full the event is dropped, and the next line that fits (at the latest one at the close) is
//! an `events_lost` event with the number of those missing. Events that the disk does not take wait in memory, at most
//! [`HELD_EVENTS_MAX`] of them, and are written with their own times as soon as it does; of more, those about the process
//! and its journal are kept, and the others are counted the same way. What was written of a line that did not fit is cut
//! off, so the next one begins on a line of its own.
//!
//! Files: `supervision.jsonl` is written; when it exceeds [`LogOptions::file_bytes`] it becomes `supervision.1.jsonl`,
//! that one `supervision.2.jsonl` and so on; [`LogOptions::files`] are kept, and of those only the ones that have an
//! event younger than [`LogOptions::age`].

mod file;
mod memory;
mod mirror;
mod writer;

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use domain::text::counted;
use protocol::supervision::{ActorPath, Event, EventName, Kind, SupervisionLog};

use crate::ports::Ports;
use file::LogFile;
pub use memory::MemoryLog;
use mirror::mirror;
pub use writer::HELD_EVENTS_MAX;
use writer::{Job, Standing, Writer};

/// Events that may wait for the writer; over it they are counted instead.
pub const QUEUED_EVENTS_MAX: usize = 16_384;

/// Events about the whole process, of which the last id is kept: see [`SupervisionLog::latest`].
const LATEST: [EventName; 5] = [
    EventName::ProcessStarted,
    EventName::GatewayStopping,
    EventName::JournalReadOnly,
    EventName::MemoryHigh,
    EventName::GatewayStarted,
];

/// Where and how much is written.
#[derive(Debug, Clone)]
pub struct LogOptions {
    /// Directory, made if missing.
    pub dir: PathBuf,
    /// Size at which a file is rotated.
    pub file_bytes: u64,
    /// Files kept, the current one included; at least one.
    pub files: u32,
    /// Rotated files whose newest event is older are removed.
    pub age: Duration,
    /// Who writes.
    pub writer: LogOf,
}

/// Who writes a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogOf {
    /// A process that tells of its own life, too.
    Process,
    /// A command that tells only what it did. Its ids begin with [`COMMAND_BOOT`], and without an event no file changes.
    Command,
}

/// What the ids of a command's events begin with; those of a process begin with a hexadecimal digit.
pub const COMMAND_BOOT: &str = "cmd";

impl LogOptions {
    /// 16 MiB per file, 8 files, 90 days, of a process.
    pub fn new(dir: PathBuf) -> Self {
        let age = Duration::from_secs(90 * 24 * 60 * 60);
        Self { dir, file_bytes: 16 << 20, files: 8, age, writer: LogOf::Process }
    }

    /// Path of the `n`th file; 0 is the current one.
    pub(crate) fn file(&self, n: u32) -> PathBuf {
        self.dir.join(file_name(n))
    }
}

pub(crate) fn file_name(n: u32) -> String {
    if n == 0 { "supervision.jsonl".to_owned() } else { format!("supervision.{n}.jsonl") }
}

/// The number of a file of the log, from its name.
pub(crate) fn file_number(name: &str) -> Option<u32> {
    let middle = name.strip_prefix("supervision")?.strip_suffix(".jsonl")?;
    if middle.is_empty() { Some(0) } else { middle.strip_prefix('.')?.parse().ok() }
}

struct Door {
    queue: SyncSender<Job>,
    number: u64,
    lost: u64,
    latest: [Option<String>; LATEST.len()],
}

/// Writes the log. One per process.
pub struct LogWriter {
    boot: String,
    ports: Ports,
    before: Option<Event>,
    door: Mutex<Door>,
    standing: Arc<Standing>,
    /// Events that an `events_lost` has told.
    told: AtomicU64,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl LogWriter {
    /// Opens the log and starts its thread.
    pub fn start(options: LogOptions, ports: &Ports) -> io::Result<Arc<Self>> {
        let boot = match options.writer {
            LogOf::Process => String::new(),
            LogOf::Command => COMMAND_BOOT.to_owned(),
        };
        let file = LogFile::open(options, ports.disk.clone(), ports.clock.clone())?;
        let before = file.last_of_process();
        let (queue, jobs) = sync_channel(QUEUED_EVENTS_MAX);
        let standing = Arc::<Standing>::default();
        let writer = Writer::new(file, Arc::clone(&standing));
        let thread =
            std::thread::Builder::new().name("greenroom-log".to_owned()).spawn(move || writer.write_all(&jobs))?;
        Ok(Arc::new(Self {
            boot: format!("{boot}{:08x}", ports.ids.random() >> 32),
            ports: ports.clone(),
            before,
            door: Mutex::new(Door { queue, number: 0, lost: 0, latest: Default::default() }),
            standing,
            told: AtomicU64::new(0),
            thread: Mutex::new(Some(thread)),
        }))
    }

    /// The last event that an earlier process has left, commands aside.
    pub fn before(&self) -> Option<&Event> {
        self.before.as_ref()
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

    /// Writes what is queued, and how many events are missing if any are, and ends the thread. Blocks. Later events go
    /// to `tracing` only.
    pub fn close(&self) {
        let Some(thread) = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take() else { return };
        // What the disk did not take is known once it was tried.
        self.flush();
        let (queue, notice) = {
            let mut door = self.door.lock().unwrap_or_else(PoisonError::into_inner);
            door.lost += self.standing.unwritten.swap(0, Ordering::Relaxed);
            let lost = std::mem::take(&mut door.lost);
            let notice = (lost > 0).then(|| (self.lost_event(&mut door, lost), lost));
            (door.queue.clone(), notice)
        };
        // Both fail only when the writer has ended.
        if let Some((notice, lost)) = notice {
            self.standing.queued.fetch_add(1, Ordering::Relaxed);
            self.told.fetch_add(lost, Ordering::Relaxed);
            let _ = queue.send(Job::Write(Box::new(notice), lost));
        }
        let _ = queue.send(Job::Close);
        if thread.join().is_err() {
            tracing::error!(target: "supervision", "the supervision log's thread panicked");
        }
        let missing = self.standing.unwritten.load(Ordering::Relaxed);
        if missing > 0 {
            tracing::error!(target: "supervision", missing, "events are missing from the supervision log");
        }
    }

    /// Events that wait to be written now, for the thread or for the disk, and events that are missing in the files since the start.
    pub fn backlog(&self) -> (u64, u64) {
        let untold = self.door.lock().unwrap_or_else(PoisonError::into_inner).lost;
        let missing = self.told.load(Ordering::Relaxed) + untold + self.standing.unwritten.load(Ordering::Relaxed);
        (self.standing.queued.load(Ordering::Relaxed), missing)
    }

    /// Puts an event into the queue.
    fn queue(&self, door: &Door, event: Event, stands_for: u64) -> Result<(), TrySendError<Job>> {
        self.standing.queued.fetch_add(1, Ordering::Relaxed);
        let sent = door.queue.try_send(Job::Write(Box::new(event), stands_for));
        if sent.is_err() {
            self.standing.queued.fetch_sub(1, Ordering::Relaxed);
        }
        sent
    }

    fn next_id(&self, door: &mut Door) -> String {
        door.number += 1;
        format!("{}-{}", self.boot, door.number)
    }

    fn lost_event(&self, door: &mut Door, lost: u64) -> Event {
        let mut event = Event::new(EventName::EventsLost, ActorPath("/log".into()), Kind::Log);
        event.ts = timestamp(self.ports.clock.wall_us());
        event.id = self.next_id(door);
        event.lost = counted(lost, "event");
        event
    }
}

fn latest_slot(name: EventName) -> Option<usize> {
    LATEST.iter().position(|kept| *kept == name)
}

impl SupervisionLog for LogWriter {
    fn record(&self, mut event: Event) -> String {
        event.ts = timestamp(self.ports.clock.wall_us());
        let mut door = self.door.lock().unwrap_or_else(PoisonError::into_inner);
        door.lost += self.standing.unwritten.swap(0, Ordering::Relaxed);
        // While the disk takes nothing it would only take the room of other events.
        if door.lost > 0 && !self.standing.failing.load(Ordering::Relaxed) {
            let lost = door.lost;
            let notice = self.lost_event(&mut door, lost);
            if self.queue(&door, notice, lost).is_ok() {
                self.told.fetch_add(lost, Ordering::Relaxed);
                door.lost = 0;
            }
        }
        let id = self.next_id(&mut door);
        event.id.clone_from(&id);
        if let Some(latest) = latest_slot(event.event).and_then(|slot| door.latest.get_mut(slot)) {
            *latest = Some(id.clone());
        }
        match self.queue(&door, event, 1) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => door.lost += 1,
            Err(TrySendError::Disconnected(Job::Write(event, _))) => mirror(&event),
            Err(TrySendError::Disconnected(Job::Flush(_) | Job::Close)) => {}
        }
        id
    }

    fn latest(&self, name: EventName) -> Option<String> {
        let slot = latest_slot(name)?;
        self.door.lock().unwrap_or_else(PoisonError::into_inner).latest.get(slot).cloned().flatten()
    }
}

/// `2026-11-29T20:53:29.000001Z`.
pub fn timestamp(wall_us: u64) -> String {
    let micros = i64::try_from(wall_us).unwrap_or(i64::MAX);
    let time = jiff::Timestamp::from_microsecond(micros).unwrap_or(jiff::Timestamp::MAX);
    format!("{time:.6}")
}

#[cfg(test)]
mod tests;
