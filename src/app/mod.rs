//! The composition root: starts the actors bottom-up, hands out who may talk to whom, stops in reverse.

pub mod ask;
pub mod beacon;
mod children;
mod delivery;
mod gauges;
pub mod limits;
pub mod lock;
mod options;
pub(crate) mod parts;
mod process;
pub mod readers;
mod serve;

use std::future::Future;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use channel::doors::PhaseWord;
use channel::outbox::{Board, Deliverer, Inlet, Parts, Rules};
use channel::{Hub, Phase};
use domain::ids::SessionKey;
use journal::LogJournal;
use protocol::journal::{DeadLetter, Journal};
use protocol::metrics::Metrics;
use protocol::registry::Sessions;
use protocol::supervision::{ActorPath, Event, EventName, Kind, SupervisionLog};
use registry::{Registry, RegistryConfig};
use session::{PushLimits, SessionConfig, Shared, Transcripts};
use supervision::counted::CountedLog;
use supervision::log::LogWriter;
use supervision::ports::Ports;
use supervision::pressure::Pressure;
use supervision::real::{counted_ports, memory};
use supervision::watch::{Memory, Watch};
use supervision::{ArbiterPlacement, Kernel};

use crate::config::{Loaded, Paths};
use crate::exit::{Exit, ExitCode};
use children::Children;
use gauges::Gauges;
use lock::Lock;
pub use options::{Options, Purpose, World};

/// Threads of the blocking pool: files, transcripts.
const BLOCKING_THREADS: usize = 8;
/// Of directories: for their owner alone.
const PRIVATE_MODE: u32 = 0o700;
/// How long a command waits for another one to leave the directory.
const LOCK_PATIENCE: Duration = Duration::from_secs(30);

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
    registry: Arc<Registry>,
    transcripts: Arc<Transcripts>,
    model: Arc<str>,
    phase: Arc<Phase>,
    board: Arc<Board>,
    /// Of processes that go on until they are stopped.
    deliverer: Option<Deliverer>,
    doors: Option<serve::Open>,
    real: Option<Real>,
    #[cfg(feature = "otel")]
    exporter: Option<Arc<crate::otel::Exporter>>,
}

/// What only the real world has: threads to join and locks to keep.
struct Real {
    placement: Arc<ArbiterPlacement>,
    log: Arc<LogWriter>,
    watch: Option<Watch>,
    _locks: [Lock; 2],
}

impl App {
    /// Takes the directory, recovers what the last process left, and starts the actors. Doors stay closed until
    /// [`serve`](Self::serve).
    #[expect(clippy::too_many_lines, reason = "the composition root: every part once, in the order of their needs")]
    pub async fn start(options: Options) -> anyhow::Result<Self> {
        let Options { loaded, purpose, tools, channels, world } = options;
        let env = crate::commands::environment();
        let own = world.as_ref().and_then(|world| world.model.clone());
        let model = parts::model(&loaded, &env, own).map_err(|error| Exit::new(ExitCode::Config, error.to_string()))?;
        #[cfg_attr(not(feature = "otel"), expect(unused_mut, reason = "only the export changes it"))]
        let mut metrics = Metrics::default();
        #[cfg(feature = "otel")]
        let exporter = crate::otel::start(&mut metrics, &env)
            .map_err(|error| Exit::new(ExitCode::Config, format!("{error:#}")))?;
        let (world, mut real) = match world {
            Some(world) => (world, None),
            None => {
                let (world, real) = real_world(&loaded, purpose, &metrics).await?;
                (world, Some(real))
            }
        };
        let World { ports, placement, log, .. } = world;
        let log: Arc<dyn SupervisionLog> = CountedLog::new(log, metrics.clone());
        Gauges::show_limits(&metrics, &loaded.config);
        let memory = Arc::<Pressure>::default();
        let kernel = Kernel::new(ports.clone(), log.clone(), metrics.clone());
        kernel.keep_crashes_in(loaded.paths.logs.join("crash"));
        if let Some(real) = &mut real {
            let watch = Watch::start(kernel.clone(), placement.clone(), memory_of(&loaded, &memory));
            real.watch = Some(watch.context("the watchdog cannot be started")?);
        }
        let hub = Hub::new();
        let mut catalog = tools::Catalog::builder(parts::tools(&loaded));
        for tool in tools {
            catalog = catalog.with(tool);
        }
        let catalog = Arc::new(catalog.build());
        let transcripts = Arc::new(Transcripts::new(ports.clone(), loaded.paths.sessions.clone()));
        let children = Children::new(kernel.clone(), placement.clone(), parts::restart_policy(&loaded.config));
        let registry = Registry::new(registry::Deps {
            kernel: kernel.clone(),
            placement: placement.clone(),
            metrics: metrics.clone(),
            config: registry_config(&loaded),
            factory: children.clone(),
            memory: memory.clone(),
        });
        let inlet = Arc::new(Inlet::default());
        let channels = delivery::channels(&loaded.config, channels, &ports)?;
        let sinks = (&registry, &inlet);
        let journal = open_journal(&loaded, &memory, &ports, &metrics, &log, sinks, &transcripts, real.is_some())?;
        registry.attach_journal(journal.clone());
        let shared = Shared::new(
            ports.clone(),
            log.clone(),
            journal.clone(),
            hub.clone(),
            metrics.clone(),
            catalog.specs(),
            session_config(&loaded, &model, delivery::limits(&channels)),
        );
        let provider = provider::Shared::new(model.settings, metrics.clone(), ports.clone(), log.clone())
            .map_err(|error| Exit::new(ExitCode::Config, error.to_string()))?;
        children.attach(shared.clone(), &provider, &catalog);
        let gauges = Gauges {
            kernel: kernel.clone(),
            registry: registry.clone(),
            sessions: shared,
            provider,
            log: real.as_ref().map(|real| real.log.clone()),
            lost: Default::default(),
        };
        let phase = Arc::new(Phase::default());
        let board = Arc::new(Board::default());
        let mut deliverer = None;
        if matches!(purpose, Purpose::Gateway | Purpose::Embedded) {
            let parts =
                Parts { journal: journal.clone(), channels, rules: Rules::default(), inlet, board: board.clone() };
            let policy = parts::restart_policy(&loaded.config);
            deliverer = Some(Deliverer::start(&kernel, &*placement, policy, parts));
            actix_rt::spawn(recover(registry.clone(), phase.clone()));
        }
        Ok(Self {
            loaded,
            purpose,
            ports,
            metrics,
            log,
            gauges: Arc::new(gauges),
            kernel,
            hub,
            journal,
            registry,
            transcripts,
            model: model.model,
            phase,
            board,
            deliverer,
            doors: None,
            real,
            #[cfg(feature = "otel")]
            exporter,
        })
    }

    /// Stops in order: doors refuse, turns finish or are kept for the next start, everything is flushed.
    pub async fn stop(mut self) {
        let drain = match self.purpose {
            Purpose::Gateway | Purpose::Embedded => Duration::from_secs(self.loaded.config.runtime.drain_seconds),
            // Whoever runs one command has its answer.
            Purpose::OneShot | Purpose::AtRest => Duration::ZERO,
        };
        let open = self.journal.status().open;
        let mut event = Event::new(EventName::GatewayStopping, ActorPath("/".into()), Kind::Process);
        event.reason = Some(format!("{} turns running, {open} open", self.metrics.turns_running.get()));
        event.verdict = Some(format!("running turns may end within {} s", drain.as_secs()));
        let cause = self.log.record(event);
        self.phase.set(PhaseWord::Draining);
        self.journal.drain();
        let begun = self.ports.clock.mono();
        let left = self.registry.stop(drain).await;
        let kept = self.journal.status().open;
        let mut event = Event::new(EventName::GatewayStopped, ActorPath("/".into()), Kind::Process);
        let late = if left > 0 { format!(", {left} sessions did not end") } else { String::new() };
        event.reason =
            Some(format!("{} turns ended, {kept} are kept for the next start{late}", open.saturating_sub(kept)));
        event.cause = Some(cause);
        self.log.record(event);
        if let Some(deliverer) = &self.deliverer {
            let left = drain.saturating_sub(self.ports.clock.mono().saturating_sub(begun));
            // What is not sent by then waits in the journal.
            let _ = tokio::time::timeout(left, deliverer.drain()).await;
        }
        self.kernel.begin_stop();
        self.hub.close();
        if let Some(doors) = self.doors.take() {
            doors.close(&self.loaded.paths.run).await;
        }
        // The journal answers even when it failed before; then there is nothing to flush.
        let _ = self.journal.close().await;
        if let Some(real) = self.real.take() {
            let joined = tokio::task::spawn_blocking(move || {
                if let Some(watch) = &real.watch {
                    watch.stop();
                }
                real.placement.stop_and_join();
                real.log.record(process_stopped(&*real.log));
                real.log.close();
            });
            if joined.await.is_err() {
                tracing::error!("stopping the arbiters failed");
            }
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

    /// The sessions.
    pub fn sessions(&self) -> &dyn Sessions {
        &*self.registry
    }

    /// Where turn events pass.
    pub fn hub(&self) -> &Arc<Hub> {
        &self.hub
    }

    /// The kernel, with its log and its counters.
    pub fn kernel(&self) -> &Kernel {
        &self.kernel
    }
}

/// Starts the sessions that have work. The gateway is ready as soon as it is known which ones these are: it serves while
/// they start.
async fn recover(registry: Arc<Registry>, phase: Arc<Phase>) {
    let known = || {
        if phase.get() == PhaseWord::Recovering {
            phase.set(PhaseWord::Serving);
        }
    };
    registry.recover(known).await;
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
    let log = LogWriter::start(parts::log(loaded), &ports)
        .with_context(|| format!("the supervision log in {} cannot be written", loaded.paths.logs.display()))?;
    log.record(process_started(log.before(), purpose));
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    let arbiters = loaded.config.runtime.arbiters.unwrap_or_else(cores);
    let placement = Arc::new(ArbiterPlacement::new(arbiters).context("an arbiter cannot be started")?);
    let world = World { ports, placement: placement.clone(), log: log.clone(), model: None };
    Ok((world, Real { placement, log, watch: None, _locks: locks }))
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
        Purpose::Gateway => Duration::ZERO,
        Purpose::Embedded | Purpose::OneShot | Purpose::AtRest => LOCK_PATIENCE,
    };
    let data = Lock::take_patiently(&paths.run.join("lock"), &paths.data, patience).await?;
    let sessions = Lock::take_patiently(&paths.sessions.join(".lock"), &paths.workspace, patience).await?;
    Ok([data, sessions])
}

#[expect(clippy::too_many_arguments, reason = "the composition root: what a journal needs, once")]
fn open_journal(
    loaded: &Loaded,
    memory: &Arc<Pressure>,
    ports: &Ports,
    metrics: &Metrics,
    log: &Arc<dyn SupervisionLog>,
    (registry, inlet): (&Arc<Registry>, &Arc<Inlet>),
    transcripts: &Arc<Transcripts>,
    threaded: bool,
) -> anyhow::Result<Arc<LogJournal>> {
    let options = journal::Options { memory: memory.clone(), ..parts::journal(loaded) };
    let open = if threaded { LogJournal::open } else { LogJournal::open_local };
    let opened = open(
        options,
        ports.clone(),
        metrics.clone(),
        log.clone(),
        registry.clone(),
        inlet.clone(),
        transcripts.clone(),
    );
    let (journal, report) = opened.map_err(|error| Exit::new(ExitCode::Disk, error.to_string()))?;
    tracing::info!(?report, "journal recovered");
    Ok(journal)
}

fn registry_config(loaded: &Loaded) -> RegistryConfig {
    let (runtime, supervision) = (&loaded.config.runtime, &loaded.config.supervision);
    RegistryConfig {
        idle: Duration::from_secs(runtime.idle_seconds),
        max_live: runtime.max_live_sessions,
        quarantine_base: Duration::from_secs(supervision.quarantine_seconds),
        quarantine_cap: Duration::from_secs(supervision.quarantine_max_seconds),
        shard_min_sessions: supervision.shard_min_sessions,
    }
}

fn session_config(loaded: &Loaded, model: &parts::Model, push_limits: PushLimits) -> SessionConfig {
    let (defaults, runtime) = (&loaded.config.agents.defaults, &loaded.config.runtime);
    SessionConfig {
        sessions_dir: loaded.paths.sessions.clone(),
        workspace: loaded.paths.workspace.clone(),
        model: model.model.clone(),
        provider: model.provider.clone(),
        max_tokens: defaults.max_tokens,
        temperature: defaults.temperature as f32,
        context_window_tokens: defaults.context_window_tokens.into(),
        max_tool_iterations: defaults.max_tool_iterations,
        max_tool_result_chars: defaults.max_tool_result_chars,
        poison_attempts: loaded.config.supervision.poison_attempts,
        process_deaths: loaded.config.supervision.process_deaths,
        context_idle: Duration::from_secs(runtime.context_seconds),
        context_cache_bytes: runtime.context_cache_bytes,
        stall: Duration::from_secs(runtime.stall_seconds),
        running_max: runtime.max_running_turns,
        push_limits,
    }
}
