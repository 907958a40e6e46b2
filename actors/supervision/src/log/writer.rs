//! The thread that writes: takes what is queued, in batches.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::Duration;

use domain::ids::TurnId;
use protocol::supervision::{Event, EventName, Kind};

use super::file::{LogFile, Unwritten};
use super::mirror::mirror;
use crate::letters;

/// Events written at once.
const BATCH_EVENTS_MAX: usize = 512;

/// Events that wait in memory for a disk that takes none.
pub const HELD_EVENTS_MAX: usize = 1_024;
/// How often such a disk is tried again without a new event.
const AGAIN_EVERY: Duration = Duration::from_secs(1);

/// What the thread is told.
pub(super) enum Job {
    /// The event, and how many are missing from the log when this line is.
    Write(Box<Event>, u64),
    /// Say when everything before is written.
    Flush(SyncSender<()>),
    /// Write what is queued, and end.
    Close,
}

/// What both sides know of the other.
#[derive(Debug, Default)]
pub(super) struct Standing {
    /// Events that are not kept and that no `events_lost` has told yet.
    pub unwritten: AtomicU64,
    /// Events that wait to be written.
    pub queued: AtomicU64,
    /// Whether the last write failed.
    pub failing: AtomicBool,
}

/// The thread's side.
pub(super) struct Writer {
    file: LogFile,
    standing: Arc<Standing>,
    /// What is written next; after a write that failed, what the disk did not take.
    lines: Lines,
}

impl Writer {
    pub fn new(file: LogFile, standing: Arc<Standing>) -> Self {
        Self { file, standing, lines: Lines::default() }
    }

    pub fn write_all(mut self, jobs: &Receiver<Job>) {
        while let Some(mut next) = self.wait(jobs) {
            let mut room = BATCH_EVENTS_MAX;
            let (mut flushed, mut given_up) = (Vec::new(), Vec::new());
            let mut closing = false;
            while let Some(job) = next {
                match job {
                    Job::Write(event, stands_for) => {
                        mirror(&event);
                        self.lines.push(&event, stands_for);
                        let letter = matches!(event.event, EventName::DeadLettered | EventName::Undeliverable);
                        given_up.extend(event.turn.filter(|_| letter));
                        room -= 1;
                    }
                    Job::Flush(done) => flushed.push(done),
                    Job::Close => closing = true,
                }
                next = if room > 0 && !closing { jobs.try_recv().ok() } else { None };
            }
            self.write();
            self.keep_letters(&given_up);
            for done in flushed {
                // The one who waited may be gone.
                let _ = done.send(());
            }
            if closing {
                self.lose(usize::MAX);
                return;
            }
        }
    }

    /// The next job; nothing of one when it is time to try again. `None` at the end.
    fn wait(&self, jobs: &Receiver<Job>) -> Option<Option<Job>> {
        if self.lines.0.is_empty() {
            return jobs.recv().ok().map(Some);
        }
        match jobs.recv_timeout(AGAIN_EVERY) {
            Ok(job) => Some(Some(job)),
            Err(RecvTimeoutError::Timeout) => Some(None),
            Err(RecvTimeoutError::Disconnected) => None,
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

    fn write(&mut self) {
        if self.lines.0.is_empty() {
            return;
        }
        match self.file.append(&self.lines.bytes()) {
            Ok(()) => {
                self.taken(usize::MAX);
                if self.standing.failing.swap(false, Ordering::Relaxed) {
                    tracing::info!(target: "supervision", "supervision log can be written again");
                }
            }
            Err(Unwritten { kept, error }) => {
                self.taken(kept);
                self.lose(self.lines.0.len().saturating_sub(HELD_EVENTS_MAX));
                // The operator is told of the first one only.
                if !self.standing.failing.swap(true, Ordering::Relaxed) {
                    tracing::error!(target: "supervision", %error, "supervision log cannot be written");
                }
            }
        }
    }

    /// The first `bytes` are in the file.
    fn taken(&mut self, bytes: usize) {
        let lines = self.lines.take_through(bytes);
        self.standing.queued.fetch_sub(lines, Ordering::Relaxed);
    }

    /// Gives up so many lines.
    fn lose(&mut self, count: usize) {
        let count = count.min(self.lines.0.len());
        let missing = self.lines.shed(count);
        self.standing.queued.fetch_sub(count as u64, Ordering::Relaxed);
        self.standing.unwritten.fetch_add(missing, Ordering::Relaxed);
    }
}

/// Lines that are written at once, oldest first.
#[derive(Default)]
pub(super) struct Lines(VecDeque<Line>);

struct Line {
    /// With its end.
    text: Vec<u8>,
    /// Events that are missing without it.
    stands_for: u64,
    /// Whether it is kept as long as there are others to give up.
    dear: bool,
}

impl Lines {
    pub fn push(&mut self, event: &Event, stands_for: u64) {
        let text = serde_json::to_vec(event).map(|mut text| {
            text.push(b'\n');
            text
        });
        let text = text.unwrap_or_else(|error| {
            tracing::error!(target: "supervision", %error, "supervision event cannot be written as JSON");
            Vec::new()
        });
        let dear = matches!(event.kind, Kind::Process | Kind::Journal);
        self.0.push_back(Line { text, stands_for, dear });
    }

    pub fn bytes(&self) -> Vec<u8> {
        self.0.iter().flat_map(|line| &line.text).copied().collect()
    }

    /// Takes out the lines that lie within the first `bytes`; how many these are.
    pub fn take_through(&mut self, bytes: usize) -> u64 {
        let (mut end, mut count) = (0_usize, 0);
        while let Some(line) = self.0.front()
            && end + line.text.len() <= bytes
        {
            end += line.text.len();
            count += 1;
            self.0.pop_front();
        }
        count
    }

    /// Gives up the `count` oldest lines, dear ones only after all others; how many events are missing then.
    fn shed(&mut self, count: usize) -> u64 {
        let (mut left, mut missing) = (count, 0);
        for also_dear in [false, true] {
            self.0.retain(|line| {
                let sheds = left > 0 && (also_dear || !line.dear);
                left -= usize::from(sheds);
                missing += if sheds { line.stands_for } else { 0 };
                !sheds
            });
        }
        missing
    }
}
