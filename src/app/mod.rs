//! The composition root: starts the actors bottom-up, hands out who may talk to whom, stops in reverse.

pub mod ask;
pub mod beacon;
mod children;
pub(crate) mod cron;
mod delivery;
mod dream;
mod ends;
mod family;
mod gauges;
mod ground;
mod heartbeat;
mod hooks;
pub mod limits;
pub mod lock;
mod options;
pub(crate) mod parts;
mod process;
mod restart;
mod serve;
mod sessions;
mod start;
mod triggers;

use std::collections::BTreeSet;
use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use actix::Recipient;
use channel::doors::PhaseWord;
use channel::outbox::{Board, Deliverer};
use channel::{Hub, Phase, Restart};
use domain::ids::SessionKey;
use domain::text::counted;
use journal::LogJournal;
use protocol::cron::Jobs;
use protocol::journal::{DeadLetter, Journal};
use protocol::memory::Recall;
use protocol::metrics::Metrics;
use protocol::registry::Sessions;
use protocol::subagent::RunMail;
use protocol::supervision::{ActorPath, Event, EventName, Kind, SupervisionLog};
use registry::Registry;
use session::Transcripts;
use supervision::Kernel;
use supervision::ports::Ports;

use crate::config::Loaded;
pub use dream::archive;
use gauges::Gauges;
pub use ground::Hold;
use ground::Real;
pub use options::{Options, Purpose, World};

/// The running actors of one data directory.
pub struct App {
    loaded: Loaded,
    purpose: Purpose,
    ports: Ports,
    metrics: Metrics,
    log: Arc<dyn SupervisionLog>,
    gauges: Arc<Gauges>,
    kernel: Kernel,
    hub: Arc<Hub>,
    journal: Arc<LogJournal>,
    /// The channels that messages can be sent by.
    channels: BTreeSet<Arc<str>>,
    registry: Arc<Registry>,
    /// What doors see of it.
    sessions: Arc<dyn Sessions>,
    /// Keeps the runs of sub-agents.
    runs: Recipient<RunMail>,
    transcripts: Arc<Transcripts>,
    model: Arc<str>,
    /// When silent conversations are summarised, if ever.
    idle: Option<session::IdleRules>,
    phase: Arc<Phase>,
    board: Arc<Board>,
    /// Of processes that go on until they are stopped.
    deliverer: Option<Deliverer>,
    doors: Option<serve::Open>,
    /// Of processes that follow jobs.
    jobs: Option<Arc<dyn Jobs>>,
    /// What is remembered.
    memory: Arc<dyn Recall>,
    /// Of processes that can be started again.
    restart: Option<Arc<Restart>>,
    real: Option<Real>,
    #[cfg(feature = "otel")]
    exporter: Option<Arc<crate::otel::Exporter>>,
}

impl App {
    /// Stops in order: doors refuse, turns finish or are kept for the next start, everything is flushed.
    pub async fn stop(mut self) {
        let drain = match self.purpose {
            Purpose::Gateway | Purpose::Embedded => Duration::from_secs(self.loaded.config.runtime.drain_seconds),
            // Whoever runs one command has its answer.
            Purpose::OneShot | Purpose::AtRest => Duration::ZERO,
        };
        let open = self.journal.status().open;
        let running = u64::try_from(self.metrics.turns_running.get()).unwrap_or(0);
        let mut event = Event::new(EventName::GatewayStopping, ActorPath("/".into()), Kind::Process);
        let asked = self.restart.as_ref().and_then(|restart| restart.by());
        let restart = if asked.is_some() { "a restart was asked for; " } else { "" };
        event.session = asked.cloned();
        event.reason = Some(format!("{restart}{} running, {open} open", counted(running, "turn")));
        event.verdict = Some(format!("running turns may end within {} s", drain.as_secs()));
        let cause = self.log.record(event);
        self.phase.set(PhaseWord::Draining);
        self.journal.drain();
        let begun = self.ports.clock.mono();
        let left = self.registry.stop(drain).await;
        let kept = self.journal.status().open;
        let mut event = Event::new(EventName::GatewayStopped, ActorPath("/".into()), Kind::Process);
        let late = if left > 0 { format!(", {} did not end", counted(left, "session")) } else { String::new() };
        event.reason =
            Some(format!("{} ended, {kept} kept for the next start{late}", counted(open.saturating_sub(kept), "turn")));
        event.inbox = Some(kept);
        event.cause = Some(cause);
        self.log.record(event);
        if let Some(deliverer) = &self.deliverer {
            let left = drain.saturating_sub(self.ports.clock.mono().saturating_sub(begun));
            // What is not sent by then waits in the journal.
            let _ = tokio::time::timeout(left, deliverer.drain()).await;
        }
        if let Some(restart) = &self.restart {
            restart::leave(&self.loaded.paths.run, restart, self.ports.clock.wall_ms());
        }
        self.kernel.begin_stop();
        self.hub.close();
        if let Some(doors) = self.doors.take() {
            doors.close(&self.loaded.paths.run).await;
        }
        // The journal answers even when it failed before; then there is nothing to flush.
        let _ = self.journal.close().await;
        if let Some(real) = self.real.take()
            && tokio::task::spawn_blocking(move || real.stop_and_join()).await.is_err()
        {
            tracing::error!("stopping the arbiters failed");
        }
        #[cfg(feature = "otel")]
        if let Some(exporter) = self.exporter.take()
            && tokio::task::spawn_blocking(move || exporter.stop()).await.is_err()
        {
            tracing::error!("stopping the export of traces failed");
        }
    }

    /// Returns when the journal's disk failed: nothing can be acknowledged any more.
    pub fn failed(&self) -> impl Future<Output = String> + use<> {
        self.journal.failed()
    }

    /// Returns when somebody asked in a chat that the process restart.
    pub fn restart_asked(&self) -> impl Future<Output = ()> + use<> {
        let restart = self.restart.clone();
        async move {
            match restart {
                Some(restart) => restart.asked().await,
                None => std::future::pending().await,
            }
        }
    }

    /// Waits until the transcripts of all sleeping sessions have what the journal has of them; the keys of those for which
    /// that cannot be done.
    pub async fn caught_up(&self) -> anyhow::Result<Vec<SessionKey>> {
        Ok(self.journal.caught_up().await?)
    }

    /// Dead letters, oldest first.
    pub async fn dead_letters(&self) -> anyhow::Result<Vec<DeadLetter>> {
        Ok(self.journal.dead_letters().await?)
    }

    /// Ends a quarantine that the journal keeps; false when there is none. For an application at rest.
    pub async fn release(&self, key: &SessionKey) -> anyhow::Result<bool> {
        let unfinished = self.journal.unfinished().await?;
        let held = unfinished.iter().any(|one| one.key == *key && one.quarantined_until_ms.is_some());
        if held {
            self.journal.unquarantine(key.clone()).await?;
            let mut event = Event::new(EventName::Released, ActorPath("/registry".into()), Kind::Registry);
            event.session = Some(key.clone());
            event.reason = Some("by hand".to_owned());
            self.log.record(event);
        }
        Ok(held)
    }

    /// Writes a consistent copy of the journal below `to`.
    pub async fn backup_journal(&self, to: &Path) -> anyhow::Result<u64> {
        Ok(self.journal.backup(to.to_owned()).await??)
    }

    /// The outside world.
    pub fn ports(&self) -> &Ports {
        &self.ports
    }

    /// The journal.
    pub fn journal(&self) -> &dyn Journal {
        &*self.journal
    }

    /// What is remembered.
    pub fn memory(&self) -> &dyn Recall {
        &*self.memory
    }

    /// The transcripts.
    pub fn transcripts(&self) -> &Arc<Transcripts> {
        &self.transcripts
    }

    /// The sessions, with their sub-agents: those end with a stop or the end of their session.
    pub fn sessions(&self) -> &dyn Sessions {
        &*self.sessions
    }

    /// Where turn events pass.
    pub fn hub(&self) -> &Arc<Hub> {
        &self.hub
    }

    /// The jobs that are due at times, in a process that follows them.
    pub fn jobs(&self) -> Option<&Arc<dyn Jobs>> {
        self.jobs.as_ref()
    }

    /// The keeper of the runs of sub-agents.
    pub fn runs(&self) -> &Recipient<RunMail> {
        &self.runs
    }

    /// The kernel, with its log and its counters.
    pub fn kernel(&self) -> &Kernel {
        &self.kernel
    }
}
