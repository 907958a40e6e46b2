//! What all sessions of a process share, and who their neighbours are.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use actix::{Message, Recipient};
use domain::ids::SessionKey;
use domain::keys::SessionKind;
use domain::policy::Policies;
use domain::queue::QueueRules;
use domain::request::ToolSpec;
use domain::reset;
use domain::run::run_of;
use domain::tally::Tally;
use prometheus_client::metrics::gauge::Gauge;
use protocol::journal::Journal;
use protocol::memory::{AskDream, Summarise};
use protocol::metrics::{ByKind, ByResult, Metrics};
use protocol::supervision::{Kind, SupervisionLog};
use protocol::trigger::TriggerBook;
use protocol::turn::{Pulse, TurnEvents};
use protocol::{provider, tools};
use supervision::ports::Ports;
use supervision::{Gone, tell};

use crate::hot::Hot;
use crate::idle;
use crate::places::Places;
use crate::settings::{self, Preset, Presets, Settings};
use crate::system::{PromptConfig, SystemPrompt};
use crate::transcripts::Transcripts;
use crate::turn::{PushLimits, Rules};

/// How sessions behave.
#[derive(Debug, Clone)]
pub struct SessionConfig {
    /// The workspace, with the files of the system prompt.
    pub workspace: PathBuf,
    /// Where doors keep what was attached, each session's in a directory of its own.
    pub attachments: Vec<PathBuf>,
    /// What the system prompt tells besides.
    pub prompt: PromptConfig,
    /// Provider name as configured.
    pub provider: Arc<str>,
    /// The model, unless a session is set to another one.
    pub preset: Preset,
    /// What sessions can be set to.
    pub presets: Presets,
    /// What Dreams are set to.
    pub dream_preset: Option<Arc<str>>,
    /// The most tokens that a request is to have, if less than the window allows.
    pub context_block_limit: Option<u64>,
    /// Whether the model is told when and where each message was said.
    pub runtime_context: bool,
    /// How much of what a request may have stays when a conversation is summarised, per mille.
    pub consolidation_per_mille: u16,
    /// After how long a silence all but the last messages of a conversation are summarised; `None`: never.
    pub idle_compact: Option<Duration>,
    /// Whether conversations of people are named by the model.
    pub titles: bool,
    /// Rounds with tools; one more follows without.
    pub max_tool_iterations: u32,
    /// Characters of one tool result.
    pub max_tool_result_chars: usize,
    /// Crashes after which a turn is given up.
    pub poison_attempts: u32,
    /// Process deaths after which a turn is given up.
    pub process_deaths: u32,
    /// How long an idle session keeps its conversation in memory.
    pub context_idle: Duration,
    /// How many bytes of transcripts all sessions together keep in memory while idle.
    pub context_cache_bytes: u64,
    /// Time without progress after which a turn is cancelled.
    pub stall: Duration,
    /// Turns that run at once in the whole process.
    pub running_max: usize,
    /// The longest message of each push channel; longer replies are cut.
    pub push_limits: PushLimits,
    /// What sessions may do, by their kind.
    pub policies: Arc<Policies>,
    /// When sessions begin anew by themselves.
    pub reset: reset::Rules,
    /// What becomes of messages that come while a turn runs, where their session does not say.
    pub queue: QueueRules,
}

/// What sessions need.
pub struct Deps {
    /// The outside world.
    pub ports: Ports,
    /// Where supervision events go.
    pub log: Arc<dyn SupervisionLog>,
    /// Keeps what happens.
    pub journal: Arc<dyn Journal>,
    /// Hears of turns.
    pub events: Arc<dyn TurnEvents>,
    /// The counters.
    pub metrics: Metrics,
    /// The tools that there are.
    pub tools: Arc<[ToolSpec]>,
    /// The files, and the list of all sessions.
    pub transcripts: Arc<Transcripts>,
    /// The triggers of the workspace, where there are any.
    pub triggers: Option<Arc<dyn TriggerBook>>,
    /// Settings.
    pub config: SessionConfig,
}

/// One per process.
pub struct Shared {
    pub(crate) ports: Ports,
    pub(crate) log: Arc<dyn SupervisionLog>,
    pub(crate) journal: Arc<dyn Journal>,
    pub(crate) events: Arc<dyn TurnEvents>,
    pub(crate) metrics: Metrics,
    pub(crate) transcripts: Arc<Transcripts>,
    pub(crate) triggers: Option<Arc<dyn TriggerBook>>,
    pub(crate) config: SessionConfig,
    pub(crate) rules: Arc<Rules>,
    pub(crate) system: SystemPrompt,
    places: Arc<Places>,
    places_of_runs: Arc<Places>,
    /// The largest window that a request may have, in tokens.
    pub(crate) window_tokens: u64,
    /// Conversations in memory.
    pub(crate) hot: Hot,
    /// Messages on their way to the front ends, by kind.
    pub(crate) mail: FrontMail,
}

/// Messages in the mailboxes of the front ends; they count down what they take.
pub(crate) struct FrontMail {
    pub provider: Gauge,
    pub tools: Gauge,
    pub memory: Gauge,
}

/// The front ends on the session's own arbiter.
#[derive(Clone)]
pub struct Neighbours {
    /// Grants the right to call the model.
    pub permits: Recipient<provider::AskPermit>,
    /// Calls the model.
    pub model: Recipient<provider::Complete>,
    /// Beats whenever somebody was granted that right, or a call of somebody who has it gets on.
    pub moves: Pulse,
    /// Runs tools.
    pub tools: Recipient<tools::RunTool>,
    /// Summarises what the model no longer sees.
    pub memory: Recipient<Summarise>,
    /// Has it worked into the memory.
    pub dream: Recipient<AskDream>,
}

// === impl FrontMail ===

/// Sends to a front end, counted in its mailbox.
pub(crate) fn tell_front<M>(to: &Recipient<M>, mailbox: &Gauge, message: M) -> Result<(), Gone>
where
    M: Message + Send + 'static,
    M::Result: Send,
{
    mailbox.inc();
    tell(to, message).inspect_err(|_| {
        mailbox.dec();
    })
}

// === impl Shared ===

impl Shared {
    /// Where turns of that session get their places. Those of sub-agents are apart, or a turn that waits for one could keep
    /// it from its place.
    pub(crate) fn places(&self, key: &SessionKey) -> &Arc<Places> {
        if run_of(key).is_some() { &self.places_of_runs } else { &self.places }
    }

    /// Brings together what sessions need.
    pub fn new(deps: Deps) -> Arc<Self> {
        let Deps { ports, log, journal, events, metrics, tools, transcripts, triggers, config } = deps;
        let rules = Arc::new(Rules {
            max_tool_iterations: config.max_tool_iterations,
            max_tool_result_chars: config.max_tool_result_chars,
            poison_attempts: config.poison_attempts,
            process_deaths: config.process_deaths,
            stall: config.stall,
            tools: Arc::clone(&tools),
            provider: Arc::clone(&config.provider),
            model: Arc::clone(&config.preset.model),
            push_limits: config.push_limits.clone(),
            queue: config.queue,
        });
        let system = SystemPrompt::new(&config.workspace, &config.prompt, &tools, &config.policies);
        let [places, places_of_runs] = [(); 2].map(|()| Places::new(config.running_max, metrics.clone()));
        let hot = Hot::new(config.context_cache_bytes);
        let mail = |kind: Kind| metrics.mailbox_messages.get_or_create_owned(&ByKind { kind: kind.word() });
        let mail = FrontMail { provider: mail(Kind::Provider), tools: mail(Kind::Tools), memory: mail(Kind::Memory) };
        // What rules ask for is there from the start, at zero.
        for result in idle::RESULTS {
            drop(metrics.work.idle_compactions.get_or_create(&ByResult { result }));
        }
        let window_tokens = settings::window_tokens_max(&config);
        Arc::new(Self {
            ports,
            log,
            journal,
            events,
            metrics,
            transcripts,
            triggers,
            config,
            rules,
            system,
            places,
            places_of_runs,
            window_tokens,
            hot,
            mail,
        })
    }

    /// What holds for a session of this kind.
    pub(crate) fn settings(&self, kind: SessionKind, tally: &Tally) -> Settings {
        Settings::of(&self.config, kind, tally)
    }

    /// Bytes of conversations that all sessions together keep in memory.
    pub fn cached_bytes(&self) -> u64 {
        self.hot.bytes()
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("config", &self.config).finish_non_exhaustive()
    }
}
