//! A child that crashes on command, and the ears that hear of it.

use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, ActorContext, AsyncContext, Context, Handler, Message, Recipient, Running, Supervised};
use protocol::metrics::Metrics;
use protocol::supervision::{ActorPath, Down, ExitReason, Kind};
use supervision::log::MemoryLog;
use supervision::memory::{PowerCutDisk, RuntimeClock, memory_ports};
use supervision::{Child, CrashCell, Kernel, LocalPlacement, tell};
use testkit::probe::Probe;
use tokio::sync::mpsc;

/// What the child does on receipt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Message)]
#[rtype(result = "()")]
pub enum Do {
    Work(u32),
    Boom,
    BoomInFuture,
    BoomInTimer,
    BoomInRestart,
    BoomInStarted,
    Forgive,
    Leave(ExitReason),
    LeaveAndBoom,
}

/// What the child says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Said {
    Started,
    Worked(u32),
    Dropped,
    OwnerTold,
}

pub struct Crashing {
    said: mpsc::UnboundedSender<Said>,
    cell: CrashCell,
    boom_in_restart: bool,
    boom_in_started: bool,
    boom_in_stopping: bool,
}

impl Actor for Crashing {
    type Context = Context<Self>;

    fn started(&mut self, _: &mut Self::Context) {
        let _ = self.said.send(Said::Started);
        if std::mem::take(&mut self.boom_in_started) {
            panic!("boom in started");
        }
    }

    fn stopping(&mut self, _: &mut Self::Context) -> Running {
        if std::mem::take(&mut self.boom_in_stopping) {
            panic!("boom in stopping");
        }
        Running::Stop
    }
}

impl Supervised for Crashing {
    fn restarting(&mut self, _: &mut Self::Context) {
        if std::mem::take(&mut self.boom_in_restart) {
            panic!("boom in restart");
        }
    }
}

impl Drop for Crashing {
    fn drop(&mut self) {
        let _ = self.said.send(Said::Dropped);
    }
}

impl Handler<Do> for Crashing {
    type Result = ();

    fn handle(&mut self, message: Do, ctx: &mut Self::Context) {
        match message {
            Do::Work(n) => {
                let _ = self.said.send(Said::Worked(n));
            }
            Do::Boom => panic!("boom with \"a long quoted piece of a chat\" in it"),
            Do::BoomInFuture => {
                ctx.spawn(actix::fut::wrap_future(async { panic!("boom in future") }));
            }
            Do::BoomInTimer => {
                ctx.run_later(Duration::from_millis(1), |_, _| panic!("boom in timer"));
            }
            Do::BoomInRestart => {
                self.boom_in_restart = true;
                panic!("boom before restart");
            }
            Do::BoomInStarted => {
                self.boom_in_started = true;
                panic!("boom before started");
            }
            Do::Forgive => self.cell.forgive(),
            Do::Leave(reason) => {
                self.cell.exit_reason(reason);
                ctx.stop();
            }
            Do::LeaveAndBoom => {
                self.boom_in_stopping = true;
                ctx.stop();
            }
        }
    }
}

/// A kernel with everything in memory, and one child under a probe.
pub struct Stage {
    pub kernel: Kernel,
    pub log: Arc<MemoryLog>,
    pub disk: Arc<PowerCutDisk>,
    pub child: Recipient<Do>,
    pub cell: CrashCell,
    pub downs: Probe<Down>,
    pub said: mpsc::UnboundedReceiver<Said>,
    pub path: ActorPath,
}

pub fn kernel() -> (Kernel, Arc<MemoryLog>, Arc<PowerCutDisk>) {
    let (log, disk) = (MemoryLog::new(), PowerCutDisk::new());
    let ports = memory_ports(Arc::clone(&disk), RuntimeClock::new(), 7);
    (Kernel::new(ports, log.clone(), Metrics::default()), log, disk)
}

impl Stage {
    pub fn new() -> Self {
        let (kernel, log, disk) = kernel();
        Self::on(kernel, log, disk)
    }

    /// The next child at the same path.
    pub fn again(&self) -> Self {
        Self::on(self.kernel.clone(), self.log.clone(), self.disk.clone())
    }

    fn on(kernel: Kernel, log: Arc<MemoryLog>, disk: Arc<PowerCutDisk>) -> Self {
        let (tx, said) = mpsc::unbounded_channel();
        let cell = CrashCell::default();
        let mut child = Child::new("/test/child", Kind::Tools);
        child.crash = cell.clone();
        let owner = tx.clone();
        child.on_down = Some(Box::new(move |_| {
            let _ = owner.send(Said::OwnerTold);
        }));
        let path = child.path.clone();
        let downs = Probe::new();
        let in_child = cell.clone();
        let address = kernel.spawn(child, &LocalPlacement::new(), 0, move |_| Crashing {
            said: tx,
            cell: in_child,
            boom_in_restart: false,
            boom_in_started: false,
            boom_in_stopping: false,
        });
        kernel.monitor(&path, downs.recipient().downgrade());
        Self { kernel, log, disk, child: address.recipient(), cell, downs, said, path }
    }

    pub fn tell(&self, message: Do) {
        tell(&self.child, message).unwrap();
    }

    /// Waits until the child says `what`; the answer is everything said before.
    pub async fn until(&mut self, what: Said) -> Vec<Said> {
        let mut before = Vec::new();
        loop {
            let said = self.said.recv().await.unwrap();
            if said == what {
                return before;
            }
            before.push(said);
        }
    }
}
