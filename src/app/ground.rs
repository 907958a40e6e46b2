//! What the actors stand on: the directories and their locks, the ports, the supervision log, the arbiters, the kernel.

use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use protocol::metrics::Metrics;
use protocol::supervision::{ActorPath, Event, EventName, Kind, SupervisionLog};
use supervision::command_log::CommandLog;
use supervision::counted::CountedLog;
use supervision::log::{LogOf, LogWriter};
use supervision::ports::Ports;
use supervision::pressure::Pressure;
use supervision::real::{counted_ports, memory};
use supervision::watch::{Memory, Watch};
use supervision::{ArbiterPlacement, Kernel, Placement};

use super::gauges::Gauges;
use super::lock::Lock;
use super::options::{Purpose, World};
use super::parts;
use crate::config::{Loaded, Paths};
use crate::exit::{Exit, ExitCode};

/// Threads of the blocking pool: files, transcripts.
const BLOCKING_THREADS: usize = 8;
/// Of directories: for their owner alone.
const PRIVATE_MODE: u32 = 0o700;
/// How long a command waits for another one to leave the directory.
const LOCK_PATIENCE: Duration = Duration::from_secs(30);
/// How long a gateway waits: one that was killed while it began a command holds the directory until that has begun.
const GATEWAY_LOCK_PATIENCE: Duration = Duration::from_secs(2);

/// Everything that is there before the first actor.
pub struct Ground {
    pub ports: Ports,
    pub metrics: Metrics,
    pub log: Arc<dyn SupervisionLog>,
    pub kernel: Kernel,
    pub placement: Arc<dyn Placement>,
    /// Whether memory is short.
    pub memory: Arc<Pressure>,
    pub real: Option<Real>,
}

/// What only the real world has: threads to join and locks to keep.
pub struct Real {
    placement: Arc<ArbiterPlacement>,
    pub log: Arc<LogWriter>,
    purpose: Purpose,
    watch: Option<Watch>,
    _locks: [Lock; 2],
}

// === impl Ground ===

impl Ground {
    /// Takes the directory, unless a `world` of its own was brought along.
    pub async fn take(
        loaded: &Loaded,
        purpose: Purpose,
        world: Option<World>,
        metrics: Metrics,
    ) -> anyhow::Result<Self> {
        let (world, mut real) = match world {
            Some(world) => (world, None),
            None => {
                let (world, real) = real_world(loaded, purpose, &metrics).await?;
                (world, Some(real))
            }
        };
        let World { ports, placement, log, .. } = world;
        let log = told_by(purpose, log);
        let log: Arc<dyn SupervisionLog> = CountedLog::new(log, metrics.clone());
        Gauges::show_limits(&metrics, &loaded.config);
        let memory = Arc::<Pressure>::default();
        let kernel = Kernel::new(ports.clone(), log.clone(), metrics.clone());
        kernel.keep_crashes_in(loaded.paths.logs.join("crash"));
        if let Some(real) = &mut real {
            let watch = Watch::start(kernel.clone(), placement.clone(), memory_of(loaded, &memory));
            real.watch = Some(watch.context("the watchdog cannot be started")?);
        }
        Ok(Self { ports, metrics, log, kernel, placement, memory, real })
    }
}

// === impl Real ===

impl Real {
    /// Ends the threads; the last event of the process is written by then. Blocks.
    pub fn stop_and_join(self) {
        if let Some(watch) = &self.watch {
            watch.stop();
        }
        self.placement.stop_and_join();
        told_by(self.purpose, self.log.clone()).record(process_stopped(&*self.log));
        self.log.close();
    }
}

/// Of what the machine has, unless a limit is configured.
fn memory_of(loaded: &Loaded, pressure: &Arc<Pressure>) -> Memory {
    let limit = loaded.config.runtime.memory_high_bytes;
    let limit = limit.or_else(|| memory::limit_bytes().map(|all| all / 5 * 4)).unwrap_or(u64::MAX);
    Memory { pressure: pressure.clone(), used: Box::new(memory::resident_bytes), limit }
}

async fn real_world(loaded: &Loaded, purpose: Purpose, metrics: &Metrics) -> anyhow::Result<(World, Real)> {
    make_directories(&loaded.paths)?;
    let locks = take_locks(&loaded.paths, purpose).await?;
    let ports = counted_ports(BLOCKING_THREADS, metrics).context("the blocking pool cannot be started")?;
    let writer = match purpose {
        Purpose::Gateway | Purpose::Embedded => LogOf::Process,
        Purpose::OneShot | Purpose::AtRest => LogOf::Command,
    };
    let log = LogWriter::start(parts::log(loaded, writer), &ports)
        .with_context(|| format!("the supervision log in {} cannot be written", loaded.paths.logs.display()))?;
    told_by(purpose, log.clone()).record(process_started(log.before(), purpose));
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    let arbiters = loaded.config.runtime.arbiters.unwrap_or_else(cores);
    let placement = Arc::new(ArbiterPlacement::new(arbiters).context("an arbiter cannot be started")?);
    let world = World { ports, placement: placement.clone(), log: log.clone(), model: None };
    Ok((world, Real { placement, log, purpose, watch: None, _locks: locks }))
}

/// What of its events a process of this purpose leaves in the log: a command only what it did.
fn told_by(purpose: Purpose, log: Arc<dyn SupervisionLog>) -> Arc<dyn SupervisionLog> {
    match purpose {
        Purpose::Gateway | Purpose::Embedded => log,
        Purpose::OneShot => Arc::new(CommandLog::of_turns(log)),
        Purpose::AtRest => Arc::new(CommandLog::of_acts(log)),
    }
}

/// The first event of a process: also tells how the one before it ended.
fn process_started(before: Option<&Event>, purpose: Purpose) -> Event {
    let mut event = Event::new(EventName::ProcessStarted, ActorPath("/".into()), Kind::Process);
    let purpose = match purpose {
        Purpose::Gateway => "gateway",
        Purpose::Embedded => "embedded",
        Purpose::OneShot | Purpose::AtRest => "command",
    };
    let ended = match before.map(|before| before.event) {
        None => "the first process here",
        // After a refused configuration nothing ran.
        Some(EventName::ProcessStopped | EventName::ConfigRejected) => "the process before it stopped in order",
        Some(_) => "the process before it was killed or crashed",
    };
    event.reason = Some(format!("{purpose}; {ended}"));
    event.cause = before.map(|before| before.id.clone());
    event
}

/// The last one.
fn process_stopped(log: &dyn SupervisionLog) -> Event {
    let mut event = Event::new(EventName::ProcessStopped, ActorPath("/".into()), Kind::Process);
    event.reason = Some("stopped in order".to_owned());
    event.cause = log.latest(EventName::GatewayStopping);
    event
}

/// The directories and their locks, for a command that works on files itself.
#[derive(Debug)]
pub struct Hold {
    _locks: [Lock; 2],
}

impl Hold {
    /// Takes them; refuses at once while a gateway runs, and waits a while for another command.
    pub async fn take(paths: &Paths) -> anyhow::Result<Self> {
        Self::refuse_gateway(paths)?;
        make_directories(paths)?;
        Ok(Self { _locks: take_locks(paths, Purpose::AtRest).await? })
    }

    /// Refuses while a gateway runs.
    pub fn refuse_gateway(paths: &Paths) -> Result<(), Exit> {
        for (file, directory) in
            [(paths.run.join("lock"), &paths.data), (paths.sessions.join(".lock"), &paths.workspace)]
        {
            if let Some(holder) = Lock::gateway(&file) {
                let message = format!("{} is in use by {holder}; stop the gateway first", directory.display());
                return Err(Exit::new(ExitCode::DirectoryInUse, message));
            }
        }
        Ok(())
    }
}

fn make_directories(paths: &Paths) -> anyhow::Result<()> {
    make_private(&paths.workspace)?;
    // A command of the model's may have closed it.
    let mut permissions = std::fs::metadata(&paths.workspace)?.permissions();
    if permissions.mode() & PRIVATE_MODE != PRIVATE_MODE {
        permissions.set_mode(permissions.mode() | PRIVATE_MODE);
        std::fs::set_permissions(&paths.workspace, permissions)
            .with_context(|| format!("workspace {} cannot be opened", paths.workspace.display()))?;
    }
    [&paths.data, &paths.journal, &paths.logs, &paths.run, &paths.sessions]
        .into_iter()
        .try_for_each(|path| make_private(path))
}

fn make_private(directory: &Path) -> anyhow::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    let made = builder.recursive(true).mode(PRIVATE_MODE).create(directory);
    made.with_context(|| format!("directory {} cannot be made", directory.display()))
}

async fn take_locks(paths: &Paths, purpose: Purpose) -> Result<[Lock; 2], Exit> {
    let patience = match purpose {
        Purpose::Gateway => GATEWAY_LOCK_PATIENCE,
        Purpose::Embedded | Purpose::OneShot | Purpose::AtRest => LOCK_PATIENCE,
    };
    let data = Lock::take_patiently(&paths.run.join("lock"), &paths.data, purpose, patience).await?;
    let sessions = Lock::take_patiently(&paths.sessions.join(".lock"), &paths.workspace, purpose, patience).await?;
    Ok([data, sessions])
}
