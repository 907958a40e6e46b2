//! The thread that writes: takes what is queued, in batches.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender};

use domain::ids::TurnId;
use protocol::supervision::{Event, EventName};

use super::file::{LogFile, Unwritten};
use super::mirror::mirror;
use crate::letters;

/// Events written at once.
const BATCH_EVENTS_MAX: usize = 512;

/// What the thread is told.
pub(super) enum Job {
    /// The event, and how many are missing from the log when this line is.
    Write(Box<Event>, u64),
    /// Say when everything before is written.
    Flush(SyncSender<()>),
    /// Write what is queued, and end.
    Close,
}

/// The thread's side.
pub(super) struct Writer {
    file: LogFile,
    unwritten: Arc<AtomicU64>,
    /// Events in the queue.
    queued: Arc<AtomicU64>,
    /// Whether the last write failed: the operator is told of the first one only.
    failing: bool,
}

impl Writer {
    pub fn new(file: LogFile, unwritten: Arc<AtomicU64>, queued: Arc<AtomicU64>) -> Self {
        Self { file, unwritten, queued, failing: false }
    }

    pub fn write_all(mut self, jobs: &Receiver<Job>) {
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
                        let given_up = matches!(event.event, EventName::DeadLettered | EventName::Undeliverable);
                        batch.given_up.extend(event.turn.filter(|_| given_up));
                        room -= 1;
                    }
                    Job::Flush(done) => flushed.push(done),
                    Job::Close => closing = true,
                }
                next = if room > 0 && !closing { jobs.try_recv().ok() } else { None };
            }
            self.write(&batch);
            self.keep_letters(&batch.given_up);
            for done in flushed {
                // The one who waited may be gone.
                let _ = done.send(());
            }
            if closing {
                return;
            }
        }
    }

    /// Puts the events of turns that were given up, or some of whose deliveries were, where no rotation takes them.
    fn keep_letters(&self, given_up: &[TurnId]) {
        if given_up.is_empty() {
            return;
        }
        if let Err(error) = letters::keep(&*self.file.disk, &self.file.options.dir, given_up) {
            tracing::warn!(target: "supervision", %error, "the events of a dead letter cannot be kept");
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
pub(super) struct Batch {
    pub bytes: Vec<u8>,
    /// Where each line ends, and how many events are missing without it.
    pub lines: Vec<(usize, u64)>,
    /// Turns of which something was given up.
    pub given_up: Vec<TurnId>,
}

impl Batch {
    pub fn push(&mut self, event: &Event, stands_for: u64) {
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
    pub fn missing_after(&self, kept: usize) -> u64 {
        self.lines.iter().filter(|(end, _)| *end > kept).map(|(_, stands_for)| stands_for).sum()
    }
}
