//! A keeper in its world.

use std::path::Path;
use std::sync::Arc;

use actix::{Addr, Handler, Message};
use domain::ids::{MessageId, RunId, SessionKey, TurnId};
use domain::run::RunSpec;
use protocol::metrics::Metrics;
use protocol::subagent::{NotSpawned, RunMail, RunRow, Spawned};
use serde_json::json;
use subagent::{Deps, Keeper};
use supervision::log::MemoryLog;
use supervision::memory::{PowerCutDisk, RuntimeClock, memory_ports};
use supervision::ports::Disk;
use supervision::{Kernel, LocalPlacement, RestartPolicy, tell};
use testkit::journal::QuietJournal;
use tokio::sync::oneshot;
use uuid::Uuid;

use crate::world::World;

/// Where notes are kept.
pub const NOTES: &str = "/run/subagents.jsonl";

pub struct Stage {
    pub disk: Arc<PowerCutDisk>,
    pub world: Arc<World>,
    pub log: Arc<MemoryLog>,
    pub metrics: Metrics,
    pub kernel: Kernel,
    pub keeper: Addr<Keeper>,
}

#[derive(Message)]
#[rtype(result = "()")]
pub struct Crash;

impl Handler<Crash> for Keeper {
    type Result = ();

    fn handle(&mut self, _: Crash, _: &mut Self::Context) {
        panic!("a handler fails");
    }
}

pub fn id(number: u128) -> RunId {
    RunId(Uuid::from_u128(number))
}

/// The turn that sends all of them off.
pub fn parent_turn() -> TurnId {
    TurnId(Uuid::from_u128(1000))
}

pub fn key(name: &str) -> SessionKey {
    SessionKey::new(name).unwrap()
}

/// What `parent` sends a run to do.
pub fn spec(parent: &str, number: u128) -> RunSpec {
    let (run, turn) = (id(number), parent_turn());
    serde_json::from_value(json!({
        "run": run, "parent": parent, "turn": turn, "source": "cli", "label": "toads", "task": "Count them."
    }))
    .unwrap()
}

// === impl Stage ===

impl Stage {
    pub fn new() -> Self {
        let disk = PowerCutDisk::new();
        disk.create_dir_all(Path::new("/run")).unwrap();
        Self::on(disk, Arc::default())
    }

    /// A process on that disk, in that world.
    pub fn on(disk: Arc<PowerCutDisk>, world: Arc<World>) -> Self {
        let ports = memory_ports(Arc::clone(&disk), RuntimeClock::new(), 1);
        let (metrics, log) = (Metrics::default(), MemoryLog::new());
        let kernel = Kernel::new(ports.clone(), log.clone(), metrics.clone());
        let deps = Deps {
            ports,
            metrics: metrics.clone(),
            journal: Arc::new(QuietJournal(world.clone())),
            sessions: world.clone(),
            watch: world.clone(),
            notes: NOTES.into(),
            fork: Arc::new(|_| Err("nothing is forked here".to_owned())),
            tree_tokens: 0,
        };
        let keeper = Keeper::start(&kernel, &LocalPlacement::new(), RestartPolicy::default(), deps);
        Self { disk, world, log, metrics, kernel, keeper }
    }

    pub fn tell(&self, mail: RunMail) {
        tell(&self.keeper.clone().recipient(), mail).unwrap();
    }

    pub async fn spawn(&self, spec: RunSpec) -> Result<Spawned, NotSpawned> {
        let (reply, spawned) = oneshot::channel();
        self.tell(RunMail::Spawn { spec: spec.into(), waits: false, reply });
        spawned.await.unwrap()
    }

    pub async fn list(&self) -> Vec<RunRow> {
        let (reply, rows) = oneshot::channel();
        self.tell(RunMail::List { parent: None, reply });
        rows.await.unwrap()
    }

    /// State and delivery of each run.
    pub async fn states(&self) -> Vec<(&'static str, Option<&'static str>)> {
        self.list().await.iter().map(|row| (row.state, row.delivery)).collect()
    }

    /// The turn of a run.
    pub fn turn(&self, number: u128) -> TurnId {
        self.world.books().known[&MessageId::new(&format!("run:{}", id(number))).unwrap()]
    }
}
