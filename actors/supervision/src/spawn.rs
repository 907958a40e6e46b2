//! The kernel: what every supervisor shares, and the only way to start an actor.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use actix::{Actor, Addr, Context, Supervised, WeakRecipient};
use domain::ids::SessionKey;
use protocol::metrics::{Metrics, gauge};
use protocol::supervision::{ActorPath, Down, Kind, SupervisionLog, TreeNode};

use crate::crash::CrashCell;
use crate::crash_file::CrashFiles;
use crate::lease::Lease;
use crate::monitor::Monitors;
use crate::panic::Caught;
use crate::past::Past;
use crate::placement::Placement;
use crate::ports::Ports;
use crate::restart::{CrashHistory, RestartPolicy};
use crate::supervise::{Supervise, Watch};

/// What every supervisor shares. Cheap to clone.
#[derive(Clone)]
pub struct Kernel(Arc<Inner>);

struct Inner {
    ports: Ports,
    log: Arc<dyn SupervisionLog>,
    metrics: Metrics,
    monitors: Monitors,
    past: Past,
    crash_files: OnceLock<CrashFiles>,
    stopping: AtomicBool,
}

/// Called once per incarnation, on the actor's arbiter; must not block.
pub type OnDown = Box<dyn FnMut(Down) + Send>;

/// How one actor is supervised.
pub struct Child {
    /// Its place in the tree.
    pub path: ActorPath,
    /// What sort of actor.
    pub kind: Kind,
    /// For sessions.
    pub session: Option<SessionKey>,
    /// When it is restarted.
    pub policy: RestartPolicy,
    /// For sessions: what waits for it, to be told when it crashes.
    pub lease: Option<Lease>,
    /// Shared with the actor. An event that led to the start is named by [`CrashCell::because_of`].
    pub crash: CrashCell,
    /// Owner of whatever must go before the mailbox does.
    pub on_down: Option<OnDown>,
}

impl Child {
    /// With the default policy, and nobody to call.
    pub fn new(path: impl Into<Arc<str>>, kind: Kind) -> Self {
        Self {
            path: ActorPath(path.into()),
            kind,
            session: None,
            lease: None,
            policy: RestartPolicy::default(),
            crash: CrashCell::default(),
            on_down: None,
        }
    }
}

impl Kernel {
    /// Also installs the panic hook ([`crate::panic::install`]).
    pub fn new(ports: Ports, log: Arc<dyn SupervisionLog>, metrics: Metrics) -> Self {
        crate::panic::install();
        let monitors = Monitors::default();
        let past = Past::new(&metrics);
        Self(Arc::new(Inner {
            ports,
            log,
            metrics,
            monitors,
            past,
            crash_files: OnceLock::new(),
            stopping: AtomicBool::new(false),
        }))
    }

    /// From now on an actor whose arbiter ends was shut down, not killed.
    pub fn begin_stop(&self) {
        self.0.stopping.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.0.stopping.load(Ordering::SeqCst)
    }

    /// From now on the full text of each crash is written below `dir` (`logs/crash`), once per kind of crash.
    pub fn keep_crashes_in(&self, dir: PathBuf) {
        // A second call keeps the first directory.
        let _ = self.0.crash_files.set(CrashFiles::new(dir));
    }

    /// Keeps the full text of a panic that was caught, if it is the first of its kind in this process.
    pub fn keep_crash(&self, caught: Arc<Caught>) {
        if let Some(files) = self.0.crash_files.get() {
            files.keep(&self.0.ports, caught);
        }
    }

    /// Starts an actor under supervision: the only way to start one. The address is valid at once, and its mailbox is
    /// unbounded from birth. `make` runs on the arbiter; if it panics, the actor has ended.
    pub fn spawn<A>(
        &self,
        child: Child,
        place: &dyn Placement,
        on: usize,
        make: impl FnOnce(&mut Context<A>) -> A + Send + 'static,
    ) -> Addr<A>
    where
        A: Actor<Context = Context<A>> + Supervised,
    {
        let (tx, rx) = actix::dev::channel::channel(0);
        let watch = Watch::new(self.clone(), child);
        let job = move || {
            if let Some(supervise) = Supervise::start(watch, rx, make) {
                actix_rt::spawn(supervise);
            }
        };
        place.run_on(on, Box::new(job));
        Addr::new(tx)
    }

    /// Sends `watcher` each [`Down`] of the actor at `path`, up to the one after which it does not restart. When there
    /// is no such actor: one `Down` with reason `Noproc`, at once.
    pub fn monitor(&self, path: &ActorPath, watcher: WeakRecipient<Down>) {
        self.0.monitors.watch(path, watcher);
    }

    /// The live actors except sessions, by path.
    pub fn actors(&self) -> Vec<TreeNode> {
        self.0.monitors.tree()
    }

    /// How often the actor at `path` was restarted in place, and when it was spawned (ms since 1970).
    pub fn vitals(&self, path: &ActorPath) -> Option<(u32, u64)> {
        self.0.monitors.vitals(path)
    }

    /// Restarts of all actors since the process began.
    pub fn restarts(&self) -> u64 {
        self.0.monitors.restarts()
    }

    /// Restarts of the sessions that live.
    pub fn session_restarts(&self) -> u64 {
        self.0.monitors.session_restarts()
    }

    /// Where events go.
    pub fn log(&self) -> &Arc<dyn SupervisionLog> {
        &self.0.log
    }

    /// The outside world.
    pub fn ports(&self) -> &Ports {
        &self.0.ports
    }

    /// The counters.
    pub fn metrics(&self) -> &Metrics {
        &self.0.metrics
    }

    /// The crashes of whoever lived at `path` last, while they matter.
    pub(crate) fn past_crashes(&self, path: &ActorPath) -> CrashHistory {
        let (history, others) = self.0.past.take(path, self.0.ports.clock.mono());
        self.0.metrics.kernel.crash_histories.set(gauge(others));
        history
    }

    /// Keeps the crashes of the actor that leaves `path`, for the next one there.
    pub(crate) fn keep_crashes_of(&self, path: &ActorPath, policy: &RestartPolicy, history: CrashHistory) {
        let kept = self.0.past.keep(path, policy, history, self.0.ports.clock.mono());
        self.0.metrics.kernel.crash_histories.set(gauge(kept));
    }

    pub(crate) fn monitors(&self) -> &Monitors {
        &self.0.monitors
    }
}
