//! Where others ask for jobs: there before the actor is.

use std::sync::OnceLock;

use actix::Recipient;
use domain::cron::scheduler::Refusal;
use jiff::tz::TimeZone;
use prometheus_client::metrics::gauge::Gauge;
use protocol::cron::{Answer, Ask, AskCron, Jobs};
use protocol::metrics::{ByKind, Metrics};
use protocol::supervision::Kind;
use supervision::tell;
use tokio::sync::oneshot;

/// Hands questions to the actor.
pub struct Desk {
    zone: TimeZone,
    mailbox: Gauge,
    to: OnceLock<Recipient<AskCron>>,
}

// === impl Desk ===

impl Desk {
    /// Before there is an actor, nothing is answered.
    pub fn new(zone: TimeZone, metrics: &Metrics) -> Self {
        let mailbox = metrics.mailbox_messages.get_or_create_owned(&ByKind { kind: Kind::Cron.word() });
        Self { zone, mailbox, to: OnceLock::new() }
    }

    pub(crate) fn open(&self, to: Recipient<AskCron>) {
        // There is one actor per process.
        let _ = self.to.set(to);
    }

    /// The actor took a message.
    pub(crate) fn taken(&self) {
        self.mailbox.dec();
    }
}

impl Jobs for Desk {
    fn ask(&self, ask: Ask) -> oneshot::Receiver<Result<Answer, Refusal>> {
        let (reply, answer) = oneshot::channel();
        if let Some(to) = self.to.get() {
            self.mailbox.inc();
            if tell(to, AskCron { ask, reply }).is_err() {
                self.mailbox.dec();
            }
        }
        answer
    }

    fn zone(&self) -> &TimeZone {
        &self.zone
    }
}
