//! Space for the log: the next segment, and what happens when there is none to be had.

use protocol::journal::BusyReason;
use protocol::supervision::EventName;
use supervision::ports::is_space;

use crate::admit::{RETRY_DISK_MS, busy};
use crate::call::Call;
use crate::engine::{Engine, PROBE_INTERVAL, STALLED_MAX};
use crate::log::{NoSegment, Prepared};

impl Engine {
    pub(crate) fn stall(&mut self, call: Call) {
        if self.stalled.len() >= STALLED_MAX {
            if let Call::Enqueue(_, told) = call {
                return told.tell(busy(RETRY_DISK_MS, BusyReason::Disk));
            }
            return Self::refuse(call, "too much waits for space in the log");
        }
        self.stalled.push_back(call);
    }

    pub(crate) fn prepare_next(&mut self) {
        if self.failed() || self.closed || self.log.preparing {
            return;
        }
        let now = self.around.ports.clock.mono();
        let needed = self.log.next.is_none() && (!self.stalled.is_empty() || self.log.wants_next());
        if !needed || (self.read_only && now < self.probe_at) {
            return;
        }
        self.probe_at = now + PROBE_INTERVAL;
        let (job, post) = (self.log.prepare(), self.post.clone());
        self.around.ports.offload.run(Box::new(move || post.post(Call::Prepared(job()))));
    }

    /// Nothing is acknowledged that is not there already, until there is space again.
    pub(crate) fn become_read_only(&mut self, why: &NoSegment) {
        self.read_only = true;
        self.space = why.space;
        self.around.metrics.journal_writable.set(0);
        self.event(EventName::JournalReadOnly, why.reason());
    }

    pub(crate) fn prepared(&mut self, prepared: Result<Prepared, NoSegment>) {
        self.log.preparing = false;
        match prepared {
            Ok(prepared) => {
                self.log.prepared(prepared);
                self.space = None;
                if std::mem::take(&mut self.read_only) {
                    self.around.metrics.journal_writable.set(1);
                    self.event(EventName::JournalWritable, "there is space again".to_owned());
                }
                for call in std::mem::take(&mut self.stalled) {
                    self.take(call);
                }
                self.checkpoint.resume();
            }
            Err(why) if is_space(&why.error) => {
                if self.read_only {
                    self.space = why.space;
                } else {
                    self.become_read_only(&why);
                }
                let (messages, rest): (Vec<_>, Vec<_>) =
                    std::mem::take(&mut self.stalled).into_iter().partition(|call| matches!(call, Call::Enqueue(..)));
                self.stalled = rest.into();
                for call in messages {
                    self.take(call);
                }
            }
            Err(why) => self.fail(&format!("a segment of the log cannot be made: {}", why.error)),
        }
    }
}
