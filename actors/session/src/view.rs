//! How far the transcript file is behind the journal, and what is to be written next.
//!
//! Lines come here once they are durable in the journal. Whatever has gathered is written by one job at a time. A job
//! that fails keeps its lines and is tried again later; turns go on meanwhile, until [`PENDING_BYTES_MAX`] have gathered.

use std::sync::Arc;
use std::time::Duration;

use protocol::journal::{Line, ViewMark};

use crate::file::{Known, Stamp, Standing};

/// Lines in memory beyond which turns wait for the file.
pub const PENDING_BYTES_MAX: usize = 8 * 1024 * 1024;
/// The first wait after a failed write; each further one doubles it.
const RETRY_FIRST: Duration = Duration::from_secs(1);
/// The longest wait.
const RETRY_MAX: Duration = Duration::from_secs(60);

/// The file as far as we know it, and what it lacks.
#[derive(Debug)]
pub struct View {
    known: Known,
    /// Lines that stood in the file are gone from it: only the journal has them.
    behind: bool,
    last_entry: Option<Arc<str>>,
    pending: Vec<Line>,
    pending_bytes: usize,
    /// The commit that the last pending line belongs to.
    through: u64,
    /// Lines of the job under way, the first of `pending`.
    writing: Option<usize>,
    failures: u32,
    retry_at: Option<Duration>,
}

/// One write.
#[derive(Debug)]
pub struct Job {
    /// Where.
    pub at: Known,
    /// What.
    pub lines: Vec<Line>,
    /// The last commit among them.
    pub through: u64,
}

// === impl View ===

impl View {
    /// A file that has everything up to commit `through`.
    pub fn new(standing: &Standing, last_entry: Option<Arc<str>>, through: u64) -> Self {
        Self {
            known: Known { length: standing.length, stamp: standing.stamp, rest_is_all: false },
            behind: false,
            last_entry,
            pending: Vec::new(),
            pending_bytes: 0,
            through,
            writing: None,
            failures: 0,
            retry_at: None,
        }
    }

    /// The file is good for `length` bytes only, and `lines` are all that the journal has from there on: they could not
    /// be written just now.
    pub fn owe(&mut self, length: u64, lines: Vec<Line>, now: Duration) {
        self.known = Known { length, stamp: None, rest_is_all: true };
        self.push(self.through, lines);
        self.failed(now);
    }

    /// Takes the lines of a durable commit.
    pub fn push(&mut self, commit: u64, lines: Vec<Line>) {
        self.through = commit;
        self.pending_bytes += lines.iter().map(|line| line.text.len() + 1).sum::<usize>();
        if self.pending.is_empty() {
            self.pending = lines;
        } else {
            self.pending.extend(lines);
        }
    }

    /// The next job, if there is something to write, nothing is being written, and no wait holds.
    pub fn next_job(&mut self, now: Duration) -> Option<Job> {
        let waits = self.behind || self.writing.is_some() || self.retry_at.is_some_and(|at| now < at);
        if self.pending.is_empty() || waits {
            return None;
        }
        self.writing = Some(self.pending.len());
        Some(Job { at: self.known, lines: self.pending.clone(), through: self.through })
    }

    /// A job is done, unless the file was found to be behind.
    pub fn written(&mut self, standing: &Standing) {
        let count = self.writing.take().unwrap_or(0);
        if standing.behind {
            self.behind = true;
            return;
        }
        if count == self.pending.len() {
            self.pending_bytes = 0;
            let all = std::mem::take(&mut self.pending);
            self.last_entry = all.last().map(|line| Arc::clone(&line.id)).or_else(|| self.last_entry.take());
        } else {
            for line in self.pending.drain(..count) {
                self.pending_bytes = self.pending_bytes.saturating_sub(line.text.len() + 1);
                self.last_entry = Some(line.id);
            }
        }
        self.known = Known { length: standing.length, stamp: standing.stamp, rest_is_all: false };
        self.failures = 0;
        self.retry_at = None;
    }

    /// Whoever moves the file writes what it lacks. How many bytes that are.
    pub fn give_up(&mut self) -> usize {
        self.pending.clear();
        self.retry_at = None;
        std::mem::take(&mut self.pending_bytes)
    }

    /// A job failed.
    pub fn failed(&mut self, now: Duration) {
        self.writing = None;
        let wait = RETRY_FIRST.saturating_mul(1 << self.failures.min(6)).min(RETRY_MAX);
        self.failures += 1;
        self.retry_at = Some(now + wait);
    }

    /// The next job may come at once.
    pub fn wait_no_longer(&mut self) {
        self.retry_at = None;
    }

    /// The job under way does not end. Turns go on meanwhile, as after a failed one; there is no second job beside it.
    pub fn stuck(&mut self, now: Duration) {
        self.retry_at = Some(now);
    }

    /// The file was read, when it was known for `length` bytes, and stands so. What has been written since is newer.
    pub fn found(&mut self, length: u64, standing: &Standing) {
        if self.known.length != length || self.writing.is_some() {
            return;
        }
        self.behind |= standing.behind && !self.known.rest_is_all;
        self.known.length = standing.length;
        self.known.stamp = standing.stamp;
    }

    /// How many bytes of the file are known.
    pub fn length(&self) -> u64 {
        self.known.length
    }

    /// Identity after our last write or read.
    pub fn stamp(&self) -> Option<Stamp> {
        self.known.stamp
    }

    /// Whether lines that stood in the file are gone from it, so that the journal has to be asked for them.
    pub fn is_behind(&self) -> bool {
        self.behind
    }

    /// The file up to its last line of ours.
    pub fn mark(&self) -> ViewMark {
        ViewMark { length: self.known.length, last_entry: self.last_entry.clone() }
    }

    /// Lines that the file lacks.
    pub fn pending(&self) -> &[Line] {
        &self.pending
    }

    /// Bytes that the file lacks.
    pub fn lag_bytes(&self) -> usize {
        self.pending_bytes
    }

    /// Whether the file has everything.
    pub fn is_clean(&self) -> bool {
        self.pending.is_empty()
    }

    /// Whether a job is under way.
    pub fn is_writing(&self) -> bool {
        self.writing.is_some()
    }

    /// Whether writes fail at present.
    pub fn is_failing(&self) -> bool {
        self.retry_at.is_some()
    }

    /// Whether a turn may start: the file is complete, or cannot be written and the rest still fits in memory.
    pub fn lets_turns_start(&self) -> bool {
        !self.behind && (self.is_clean() || (self.is_failing() && self.pending_bytes <= PENDING_BYTES_MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(id: &str) -> Line {
        Line { id: id.into(), text: "x".repeat(9).into() }
    }

    fn standing(length: u64) -> Standing {
        Standing { length, ..Standing::default() }
    }

    #[test]
    fn what_gathers_during_a_write_is_the_next_one() {
        let now = Duration::ZERO;
        let mut view = View::new(&standing(5), None, 3);
        assert!(view.next_job(now).is_none());
        view.push(4, vec![line("a")]);
        let job = view.next_job(now).unwrap();
        assert_eq!((job.at.length, job.through, job.lines.len()), (5, 4, 1));
        view.push(5, vec![line("b"), line("c")]);
        assert!(view.next_job(now).is_none());
        view.written(&standing(15));
        assert!(!view.is_clean());
        assert_eq!(view.mark(), ViewMark { length: 15, last_entry: Some("a".into()) });
        let job = view.next_job(now).unwrap();
        assert_eq!((job.at.length, job.through, job.lines.len()), (15, 5, 2));
        view.written(&standing(35));
        assert_eq!((view.is_clean(), view.lag_bytes()), (true, 0));
    }

    #[test]
    fn what_is_given_up_is_never_written() {
        let now = Duration::ZERO;
        let mut view = View::new(&standing(0), None, 0);
        view.push(1, vec![line("a")]);
        assert!(view.next_job(now).is_some() && view.is_writing());
        view.failed(now);
        assert_eq!((view.is_writing(), view.give_up(), view.lag_bytes()), (false, 10, 0));
        view.wait_no_longer();
        assert!(view.is_clean() && view.next_job(now).is_none());
    }

    #[test]
    fn a_failed_write_keeps_its_lines_and_waits_longer_each_time() {
        let mut view = View::new(&standing(0), None, 0);
        view.push(1, vec![line("a")]);
        let mut now = Duration::ZERO;
        let mut waits = Vec::new();
        for _ in 0..8 {
            assert!(view.next_job(now).is_some());
            view.failed(now);
            assert!(view.next_job(now).is_none());
            assert!(view.lets_turns_start());
            let wait = (0..100).find(|s| view.retry_at <= Some(now + Duration::from_secs(*s))).unwrap();
            waits.push(wait);
            now += Duration::from_secs(wait);
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60]);
        view.push(2, vec![Line { id: "b".into(), text: "y".repeat(PENDING_BYTES_MAX).into() }]);
        assert!(!view.lets_turns_start());
    }
}
