//! Starts the actors, bottom-up, each group with what the one before it has.

use std::sync::Arc;
use std::time::Duration;

use actix::Addr;
use channel::doors::PhaseWord;
use channel::outbox::{Board, Deliverer, Inlet, Parts, PushChannel, PushChannels, Rules};
use channel::reports::Reports;
use channel::{Hub, Phase, Restart};
use domain::run::RunSpec;
use journal::LogJournal;
use registry::{Registry, RegistryConfig};
use session::{Deps, PushLimits, SessionConfig, Shared, Transcripts, plant};
use subagent::Keeper;
use tools::{Catalog, Tool};

use super::children::Children;
use super::ends::Ends;
use super::family::Family;
use super::gauges::Gauges;
use super::ground::Ground;
use super::{App, Options, Purpose, cron, delivery, dream, heartbeat, parts, restart, triggers};
use crate::config::Loaded;
use crate::exit::{Exit, ExitCode};

/// Who keeps messages and who finds their sessions: each hands over to the other.
pub(super) struct Keepers {
    pub(super) journal: Arc<LogJournal>,
    pub(super) registry: Arc<Registry>,
    pub(super) children: Arc<Children>,
    pub(super) transcripts: Arc<Transcripts>,
    inlet: Arc<Inlet>,
    pub(super) triggers: Arc<::cron::TriggerStore>,
    pub(super) channels: PushChannels,
}

impl App {
    /// Takes the directory, recovers what the last process left, and starts the actors. Doors stay closed until
    /// [`serve`](Self::serve).
    pub async fn start(options: Options) -> anyhow::Result<Self> {
        let Options { loaded, purpose, tools, channels, world } = options;
        match purpose {
            Purpose::Gateway | Purpose::Embedded | Purpose::OneShot => loaded.require_valid(),
            // Whoever only looks needs the place, and none of the settings.
            Purpose::AtRest => loaded.require_workspace(),
        }
        .map_err(Exit::from)?;
        let own = world.as_ref().and_then(|world| world.model.clone());
        let model = parts::model(&loaded, own);
        #[cfg_attr(not(feature = "otel"), expect(unused_mut, reason = "only the export changes it"))]
        let mut metrics = protocol::metrics::Metrics::default();
        #[cfg(feature = "otel")]
        let exporter = crate::otel::start(&mut metrics, &crate::commands::environment())
            .map_err(|error| Exit::new(ExitCode::Config, format!("{error:#}")))?;
        let ground = Ground::take(&loaded, purpose, world, metrics).await?;
        match purpose {
            Purpose::Gateway | Purpose::OneShot => plant(&*ground.ports.disk, &loaded.paths.workspace),
            // What embeds it, or only looks, finds nothing new there.
            Purpose::Embedded | Purpose::AtRest => {}
        }
        let hub = Hub::new();
        let ends = Ends::new(hub.clone(), ground.metrics.clone());
        let mut keepers = Keepers::open(&loaded, purpose, &ground, &ends, channels)?;
        let runs = start_runs(&loaded, &ground, &mut keepers, &ends);
        let desk = cron::desk(&loaded, purpose, &ground);
        let jobs = desk.clone().map(|desk| Arc::new(tools::Cron::new(desk)) as Arc<dyn Tool>);
        let tools = jobs.into_iter().chain(tools).collect();
        let gauges = start_sessions(&loaded, purpose, &ground, &keepers, (&ends, &runs), &model, tools)?;
        let jobs = desk.map(|desk| cron::start(&loaded, &ground, &keepers, &ends, &desk));
        triggers::start(&loaded, purpose, &ground, &keepers, &ends);
        heartbeat::start(&loaded, purpose, &ground, &keepers, &ends, &model);
        let (phase, board) = (Arc::<Phase>::default(), Arc::<Board>::default());
        let restart = (purpose == Purpose::Gateway).then(|| restarts(&loaded, &ground));
        let deliverer = match purpose {
            Purpose::Gateway | Purpose::Embedded => {
                let deliverer = start_deliverer(&loaded, &ground, &keepers, &board);
                actix_rt::spawn(recover(keepers.registry.clone(), phase.clone()));
                Keeper::recover(&runs);
                Some(deliverer)
            }
            Purpose::OneShot | Purpose::AtRest => None,
        };
        Ok(Self {
            memory: dream::recall(&loaded, &ground, keepers.children.dream()),
            purpose,
            ports: ground.ports,
            metrics: ground.metrics,
            log: ground.log,
            gauges: Arc::new(gauges),
            kernel: ground.kernel,
            hub,
            journal: keepers.journal,
            channels: keepers.channels.keys().cloned().collect(),
            sessions: Family::new(keepers.registry.clone(), runs.clone().recipient()),
            runs: runs.recipient(),
            registry: keepers.registry,
            transcripts: keepers.transcripts,
            idle: parts::idle_rules(&loaded, &model),
            loaded,
            model: model.model,
            phase,
            board,
            deliverer,
            doors: None,
            jobs,
            restart,
            real: ground.real,
            #[cfg(feature = "otel")]
            exporter,
        })
    }
}

impl Keepers {
    /// Recovers the journal. No session is started before the front ends are there.
    fn open(
        loaded: &Loaded,
        purpose: Purpose,
        ground: &Ground,
        ends: &Arc<Ends>,
        own: Vec<Arc<dyn PushChannel>>,
    ) -> anyhow::Result<Self> {
        let Ground { ports, metrics, log, kernel, placement, memory, real } = ground;
        let transcripts = Arc::new(Transcripts::new(ports.clone(), loaded.paths.sessions.clone()));
        let children = Children::new(kernel.clone(), placement.clone(), parts::restart_policy(&loaded.config));
        let registry = Registry::new(registry::Deps {
            kernel: kernel.clone(),
            placement: placement.clone(),
            metrics: metrics.clone(),
            config: registry_config(loaded),
            factory: children.clone(),
            memory: memory.clone(),
        });
        let inlet = Arc::new(Inlet::default());
        let channels = match purpose {
            Purpose::Gateway | Purpose::Embedded | Purpose::OneShot => delivery::channels(&loaded.config, own, ports)?,
            Purpose::AtRest => PushChannels::new(),
        };
        let open = if real.is_some() { LogJournal::open } else { LogJournal::open_local };
        let opened = open(
            journal::Options { memory: memory.clone(), ..parts::journal(loaded) },
            journal::Surroundings {
                ports: ports.clone(),
                metrics: metrics.clone(),
                log: log.clone(),
                sink: ends.hears(registry.clone()),
                out: inlet.clone(),
                recent: transcripts.clone(),
            },
        );
        let (journal, report) = opened.map_err(|error| Exit::new(ExitCode::Disk, error.to_string()))?;
        tracing::info!(?report, "journal recovered");
        registry.attach_journal(journal.clone());
        let triggers = triggers::store(loaded, ground);
        Ok(Self { journal, registry, children, transcripts, inlet, triggers, channels })
    }
}

/// Starts the front ends of provider and tools; from then on sessions can be started.
fn start_sessions(
    loaded: &Loaded,
    purpose: Purpose,
    ground: &Ground,
    keepers: &Keepers,
    (ends, runs): (&Arc<Ends>, &Addr<Keeper>),
    model: &parts::Model,
    own_tools: Vec<Arc<dyn Tool>>,
) -> anyhow::Result<Gauges> {
    let Ground { ports, metrics, log, kernel, real, .. } = ground;
    let keeper = runs.clone().recipient();
    let catalog =
        own_tools.into_iter().fold(Catalog::builder(parts::tools(loaded)), |catalog, tool| catalog.with(tool));
    let offer = tools::Offer { presets: parts::usable_presets(loaded), tools: catalog.names() };
    let catalog = catalog.with(Arc::new(tools::Spawn::new(keeper.clone(), offer)));
    let catalog = Arc::new(catalog.with(Arc::new(tools::Subagents::new(keeper))).build());
    let sessions = Shared::new(Deps {
        ports: ports.clone(),
        log: log.clone(),
        journal: keepers.journal.clone(),
        events: ends.clone(),
        metrics: metrics.clone(),
        tools: catalog.specs(),
        transcripts: keepers.transcripts.clone(),
        triggers: Some(keepers.triggers.clone()),
        config: session_config(loaded, purpose, model, delivery::limits(&keepers.channels)),
    });
    let provider = provider::Shared::new(model.settings.clone(), metrics.clone(), ports.clone(), log.clone())
        .map_err(config_error)?;
    let (journal, registry) = (keepers.journal.clone(), keepers.registry.clone());
    let dream = dream::deps((loaded, purpose), ground, model, journal, registry, ends.clone());
    keepers.children.attach(sessions.clone(), &provider, &catalog, (dream::archive(loaded), dream));
    Ok(Gauges {
        kernel: kernel.clone(),
        registry: keepers.registry.clone(),
        sessions,
        transcripts: keepers.transcripts.clone(),
        provider,
        log: real.as_ref().map(|real| real.log.clone()),
        lost: Default::default(),
    })
}

fn restarts(loaded: &Loaded, ground: &Ground) -> Arc<Restart> {
    let now_ms = ground.ports.clock.wall_ms();
    let drain = Duration::from_secs(loaded.config.runtime.drain_seconds);
    Arc::new(Restart::new(restart::take(&loaded.paths.run, now_ms), now_ms, drain))
}

/// Starts the keeper of runs, and opens the way of their reports to the sessions that sent for them.
fn start_runs(loaded: &Loaded, ground: &Ground, keepers: &mut Keepers, ends: &Arc<Ends>) -> Addr<Keeper> {
    let (transcripts, ports) = (keepers.transcripts.clone(), ground.ports.clone());
    let attachments = parts::kept(&loaded.paths);
    let fork =
        move |spec: &RunSpec| transcripts.fork_for_run(spec, &attachments, &ports).map_err(|error| error.to_string());
    let deps = subagent::Deps {
        ports: ground.ports.clone(),
        metrics: ground.metrics.clone(),
        journal: keepers.journal.clone(),
        sessions: keepers.registry.clone(),
        watch: ends.clone(),
        notes: loaded.paths.run.join("subagents.jsonl"),
        fork: Arc::new(fork),
        tree_tokens: loaded.config.runtime.subagent_tokens,
    };
    let keeper = Keeper::start(&ground.kernel, &*ground.placement, parts::restart_policy(&loaded.config), deps);
    let (journal, sessions) = (keepers.journal.clone(), keepers.registry.clone());
    let reports = Reports::new(journal, sessions, ground.ports.clone(), keeper.clone().recipient());
    delivery::add(&mut keepers.channels, Arc::new(reports));
    keeper
}

fn start_deliverer(loaded: &Loaded, ground: &Ground, keepers: &Keepers, board: &Arc<Board>) -> Deliverer {
    let parts = Parts {
        journal: keepers.journal.clone(),
        channels: keepers.channels.clone(),
        rules: Rules::default(),
        inlet: keepers.inlet.clone(),
        board: board.clone(),
    };
    Deliverer::start(&ground.kernel, &*ground.placement, parts::restart_policy(&loaded.config), parts)
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

fn config_error(error: impl std::fmt::Display) -> Exit {
    Exit::new(ExitCode::Config, error.to_string())
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

fn session_config(loaded: &Loaded, purpose: Purpose, model: &parts::Model, push_limits: PushLimits) -> SessionConfig {
    let (defaults, runtime) = (&loaded.config.agents.defaults, &loaded.config.runtime);
    SessionConfig {
        workspace: loaded.paths.workspace.clone(),
        attachments: parts::kept(&loaded.paths),
        prompt: super::sessions::prompt(&loaded.config),
        provider: model.provider.clone(),
        preset: parts::preset(loaded, model),
        presets: parts::presets(loaded),
        dream_preset: crate::config::dream_preset(&loaded.config).map(Arc::from),
        context_block_limit: defaults.context_block_limit.map(u64::from),
        runtime_context: loaded.config.session.runtime_context,
        consolidation_per_mille: (defaults.consolidation_ratio * 1000.0).round() as u16,
        idle_compact: parts::idle_rules(loaded, model).map(|rules| rules.after),
        titles: loaded.config.session.titles && matches!(model.settings.backend, provider::Backend::OpenAi(_)),
        max_tool_iterations: defaults.max_tool_iterations,
        max_tool_result_chars: defaults.max_tool_result_chars,
        poison_attempts: loaded.config.supervision.poison_attempts,
        process_deaths: loaded.config.supervision.process_deaths,
        context_idle: Duration::from_secs(runtime.context_seconds),
        context_cache_bytes: runtime.context_cache_bytes,
        stall: Duration::from_secs(runtime.stall_seconds),
        // A command that only looks begins no turn.
        running_max: if purpose == Purpose::AtRest { 0 } else { runtime.max_running_turns.max(1) },
        push_limits,
        policies: Arc::new(super::sessions::policies(&loaded.config)),
        reset: super::sessions::reset(&loaded.config),
        queue: loaded.config.queue.rules(),
    }
}
