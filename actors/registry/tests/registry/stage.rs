//! A registry with toy sessions on the current, paused runtime.

use std::sync::Arc;
use std::time::Duration;

use domain::ids::{Seq, SessionKey, TurnId};
use protocol::journal::{InboxItem, LogPosition, Queued, QueuedSink};
use protocol::metrics::Metrics;
use protocol::registry::Sessions;
use registry::{Deps, Registry, RegistryConfig};
use supervision::log::MemoryLog;
use supervision::memory::{PowerCutDisk, RuntimeClock, memory_ports};
use supervision::pressure::Pressure;
use supervision::{Kernel, LocalPlacement, Placement};
use testkit::journal::QuietJournal;

use crate::journal::{ToyJournal, Turn};
use crate::toy::{Toys, Watched};

pub const IDLE: Duration = Duration::from_secs(600);
pub const QUARANTINE: Duration = Duration::from_secs(600);

pub struct Stage {
    pub registry: Arc<Registry>,
    pub journal: Arc<ToyJournal>,
    pub watched: Arc<Watched>,
    pub log: Arc<MemoryLog>,
    pub kernel: Kernel,
    pub memory: Arc<Pressure>,
}

pub fn key(n: u32) -> SessionKey {
    SessionKey::new(&format!("api:{n}")).unwrap()
}

impl Stage {
    pub fn new() -> Self {
        Self::with(20_000, 2)
    }

    pub fn with(max_live: usize, arbiters: usize) -> Self {
        Self::timed(max_live, arbiters, IDLE, QUARANTINE)
    }

    pub fn timed(max_live: usize, arbiters: usize, idle: Duration, quarantine: Duration) -> Self {
        let log = MemoryLog::new();
        let ports = memory_ports(PowerCutDisk::new(), RuntimeClock::new(), 7);
        let metrics = Metrics::default();
        let kernel = Kernel::new(ports, log.clone(), metrics.clone());
        let placement: Arc<dyn Placement> = Arc::new(LocalPlacement::with_arbiters(arbiters));
        let (journal, watched) = (Arc::new(ToyJournal::default()), Arc::new(Watched::default()));
        let factory = Toys {
            kernel: kernel.clone(),
            placement: Arc::clone(&placement),
            journal: Arc::clone(&journal),
            watched: Arc::clone(&watched),
        };
        let config = RegistryConfig {
            idle,
            max_live,
            quarantine_base: quarantine,
            quarantine_cap: quarantine * 36,
            shard_min_sessions: 5,
        };
        let memory = Arc::<Pressure>::default();
        let deps = Deps {
            kernel: kernel.clone(),
            placement,
            metrics,
            config,
            factory: Arc::new(factory),
            memory: memory.clone(),
        };
        let registry = Registry::new(deps);
        registry.attach_journal(Arc::new(QuietJournal(journal.clone())));
        Self { registry, journal, watched, log, kernel, memory }
    }

    /// Accepts a message, as the journal does: first durable, then handed over.
    pub fn enqueue(&self, key: &SessionKey, bombs: u32) -> TurnId {
        let id = TurnId(self.kernel.ports().ids.uuid_v7());
        self.journal.open.lock().unwrap().entry(key.clone()).or_default().push(Turn { id, bombs });
        let item = InboxItem { turn: id, seq: Seq(1), at: LogPosition(0), inline: None, push: None, event: false };
        self.registry.queued(Queued { key: key.clone(), item });
        id
    }

    /// How many turns of `key` are done.
    pub fn done(&self, key: &SessionKey) -> usize {
        self.journal.done.lock().unwrap().iter().filter(|(of, _)| of == key).count()
    }

    pub fn live(&self) -> usize {
        self.registry.live()
    }
}

/// Lets virtual time pass.
pub async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}

pub async fn seconds(n: u64) {
    pass(Duration::from_secs(n)).await;
}
