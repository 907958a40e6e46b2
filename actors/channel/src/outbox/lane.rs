//! One chat's rows. Pure.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use protocol::journal::OutRow;
use protocol::turn::PushRoute;

use super::Attempt;
use super::machine::{Now, Rules};

/// A chat of a channel; its threads share its order.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Chat {
    pub channel: Arc<str>,
    account: Arc<str>,
    chat: Arc<str>,
}

/// Its rows, oldest first, and what is done about the first one.
#[derive(Debug, Default)]
pub(super) struct Lane {
    pub rows: VecDeque<Row>,
    pub phase: Phase,
}

/// What is done about the first row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Phase {
    #[default]
    Ready,
    Marking,
    Sending,
    Paused,
    Closing,
}

/// A row and its story in this process.
#[derive(Debug)]
pub(super) struct Row {
    pub row: OutRow,
    failures: u32,
    /// Whether a receiver may have it from an attempt whose outcome is not known.
    maybe_taken: bool,
    /// Whether a repeat of it was told.
    told: bool,
    /// How old it was when it came, and when that was: a jump of the wall clock in between does not age it.
    came: (Duration, Duration),
}

// === impl Chat ===

impl Chat {
    pub fn of(route: &PushRoute) -> Self {
        let PushRoute { channel, account, chat, thread: _ } = route;
        Self { channel: Arc::clone(channel), account: Arc::clone(account), chat: Arc::clone(chat) }
    }
}

// === impl Row ===

impl Row {
    pub fn new(row: OutRow, now: Now) -> Self {
        let age = Duration::from_millis(now.wall_ms.saturating_sub(row.committed_ms));
        Self { maybe_taken: row.sending, row, failures: 0, told: false, came: (age, now.mono) }
    }

    pub fn age(&self, now: Now) -> Duration {
        let (age, at) = self.came;
        age.saturating_add(now.mono.saturating_sub(at))
    }

    /// The next attempt.
    pub fn attempt(&mut self) -> Attempt {
        let repeat = self.maybe_taken;
        let first_repeat = repeat && !std::mem::replace(&mut self.told, repeat);
        Attempt { row: self.row.clone(), repeat, first_repeat }
    }

    /// Counts a failure; how many there were by now.
    pub fn failed(&mut self, taken: bool) -> u32 {
        self.failures = self.failures.saturating_add(1);
        self.maybe_taken |= taken;
        self.failures
    }

    /// How long the next attempt waits. A quarter of the doubling wait is random, so that many chats that failed
    /// together do not come back in step.
    pub fn wait(&self, rules: &Rules, retry_after: Option<Duration>, random: u64) -> Duration {
        let doublings = self.failures.saturating_sub(1).min(20);
        let full = rules.retry_base.saturating_mul(1 << doublings).min(rules.retry_cap);
        let spread_us = u64::try_from((full / 4).as_micros()).unwrap_or(u64::MAX);
        let wait = full - Duration::from_micros(random % spread_us.saturating_add(1));
        wait.max(retry_after.unwrap_or_default().min(rules.retry_after_cap))
    }
}
