//! The configuration itself: one struct per part of the program, its defaults, and the table of its keys.
//!
//! **Source of names and defaults:** the configuration schema of nanobot 0.3.5 for the sections that it has;
//! `runtime`, `journal`, `supervision`, `queue`, `hooks` and `admin` are Greenroom's own. A key under `unused` is legal in a
//! file but not acted on by this version.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::dream::Dream;
use super::heartbeat::HeartbeatConfig;
use super::hooks::HookConfig;
use super::key::{Key, Kind, Section};
use super::presets::ModelPreset;
use super::queue::Queue;
use super::secret::Secret;
use super::sessions::{BindingConfig, Session, TOOL_PROFILES, ToolProfile};

const MIB: u64 = 1024 * 1024;
const GIB: u64 = 1024 * MIB;
/// 0 takes a free port, which the gateway then names when it starts.
const PORT: Kind = Kind::Whole(0, 65_535);
const DAY_SECONDS: u64 = 24 * 60 * 60;

section! {
    /// The whole configuration.
    Config {
        /// How the agent thinks.
        agents: Agents = Agents::default(), Kind::Section(Agents::SECTION);
        /// Models that a session can be set to, by their names.
        model_presets: BTreeMap<String, ModelPreset> = BTreeMap::new(), Kind::Named(ModelPreset::SECTION);
        /// Model providers by canonical name (`openrouter`, `lm_studio`, or a name of the user's own).
        providers: BTreeMap<String, Provider> = BTreeMap::new(), Kind::Named(Provider::SECTION);
        /// Doors to people.
        channels: Channels = Channels::default(), Kind::Section(Channels::SECTION);
        /// The OpenAI-compatible API.
        api: Api = Api::default(), Kind::Section(Api::SECTION);
        /// Health, metrics and the admin API.
        gateway: Gateway = Gateway::default(), Kind::Section(Gateway::SECTION);
        /// What the model may do.
        tools: Tools = Tools::default(), Kind::Section(Tools::SECTION);
        /// Limits of the process.
        runtime: Runtime = Runtime::default(), Kind::Section(Runtime::SECTION);
        /// The write-ahead log.
        journal: Journal = Journal::default(), Kind::Section(Journal::SECTION);
        /// When a crash is retried and when it is enough.
        supervision: Supervision = Supervision::default(), Kind::Section(Supervision::SECTION);
        /// Conversations: how they are shared, what they may do, when they begin anew.
        session: Session = Session::default(), Kind::Section(Session::SECTION);
        /// What becomes of messages that come while a turn of their session runs.
        queue: Queue = Queue::default(), Kind::Section(Queue::SECTION);
        /// Which agent a message is for; the most exact one wins, then the first.
        bindings: Vec<BindingConfig> = Vec::new(), Kind::Sections(BindingConfig::SECTION);
        /// What other programs may call to tell a session something.
        hooks: Vec<HookConfig> = Vec::new(), Kind::Sections(HookConfig::SECTION);
        /// Access to the admin API.
        admin: Admin = Admin::default(), Kind::Section(Admin::SECTION);
    }
    unused ["transcription"]
}

section! {
    /// `agents`.
    Agents {
        /// Settings of every agent.
        defaults: AgentDefaults = AgentDefaults::default(), Kind::Section(AgentDefaults::SECTION);
    }
    unused []
}

section! {
    /// `agents.defaults`.
    AgentDefaults {
        /// Where the agent works; relative paths start at the directory of the file. Default: `workspace` in the data directory.
        workspace: Option<String> = None, Kind::OptionalText;
        /// The entry of `model_presets` that sessions use which were set to none, in place of what is said here of model,
        /// provider, tokens, temperature and thinking. `default` is none.
        model_preset: Option<String> = None, Kind::OptionalText;
        /// The model's name, with or without the provider in front.
        model: String = "anthropic/claude-opus-4-5".into(), Kind::Text;
        /// A provider's name, `auto` (found by the model and the keys) or `offline` (the built-in model).
        provider: String = "auto".into(), Kind::Text;
        /// Most tokens of one answer.
        max_tokens: u32 = 8192, Kind::Whole(1, 10_000_000);
        /// Tokens that the model's context holds, answer included.
        context_window_tokens: u32 = 200_000, Kind::Whole(1, 100_000_000);
        /// The most tokens of a request, if less than the context has room for beside the answer.
        context_block_limit: Option<u32> = None, Kind::Whole(1, 100_000_000);
        /// How much of that stays when a conversation has become too long and its beginning is summarised.
        consolidation_ratio: f64 = 0.5, Kind::Number(0.1, 0.95);
        /// Sampling temperature.
        temperature: f64 = 0.1, Kind::Number(0.0, 2.0);
        /// Rounds of tool calls in one turn; more end it with a summary.
        max_tool_iterations: u32 = 200, Kind::Whole(1, 10_000);
        /// Longest tool result shown to the model, in characters.
        max_tool_result_chars: usize = 16_000, Kind::Whole(100, 10_000_000);
        /// IANA name of the zone in which times are shown.
        timezone: String = "UTC".into(), Kind::Text;
        /// What the agent calls itself.
        bot_name: String = "greenroom".into(), Kind::Text;
        /// Skills that the model does not hear of, by name or directory.
        disabled_skills: Vec<String> = Vec::new(), Kind::TextList;
        /// Minutes of silence after which all but the last 8 messages of a conversation are summarised; 0 is never.
        idle_compact_after_minutes: u32 = 15, Kind::Whole(0, 525_600);
        /// Seconds between two looks for such conversations.
        idle_compact_check_interval_seconds: u64 = 60, Kind::Whole(1, 86_400);
        /// How hard a reasoning model thinks (`low`, `medium`, `high`, ...). Not set: the provider's choice.
        reasoning_effort: Option<String> = None, Kind::OptionalText;
        /// Longest hint at what a tool does, in characters.
        tool_hint_max_length: usize = 40, Kind::Whole(20, 500);
        /// Whether all that the owner says is one session, whichever door it comes through: see `domain::keys`.
        unified_session: bool = false, Kind::Flag;
        /// How what was said is worked into the memory.
        dream: Dream = Dream::default(), Kind::Section(Dream::SECTION);
    }
    unused [
        "fallback_models" "max_concurrent_subagents" "fail_on_tool_error" "provider_retry_mode"
        "timezone_mode" "bot_icon"
    ]
}

section! {
    /// One entry of `providers`.
    Provider {
        /// The key.
        api_key: Option<Secret> = None, Kind::Secret;
        /// Base address, where it is not the provider's usual one.
        api_base: Option<String> = None, Kind::OptionalText;
        /// Headers added to each request.
        extra_headers: BTreeMap<String, Secret> = BTreeMap::new(), Kind::TextMap;
        /// Fields merged last into the body of each request.
        extra_body: serde_json::Map<String, serde_json::Value> = serde_json::Map::new(), Kind::FreeObject;
        /// Parameters added to the address of each request.
        extra_query: BTreeMap<String, Secret> = BTreeMap::new(), Kind::TextMap;
        /// Whether tool calls that its models write into their text as `<tool_call>{json}</tool_call>` run.
        text_tool_calls: bool = false, Kind::Flag;
    }
    unused ["api_type" "proxy" "thinking_style" "display_name" "region" "profile"]
}

section! {
    /// `channels`.
    Channels {
        /// The WebSocket server.
        websocket: WebSocket = WebSocket::default(), Kind::Section(WebSocket::SECTION);
        /// Messages by HTTP, with replies sent to an address.
        webhook: Webhook = Webhook::default(), Kind::Section(Webhook::SECTION);
        /// Whether a channel that can shows what tools were asked and gave, and what the model says in between.
        send_progress: bool = true, Kind::Flag;
        /// Whether it shows what a tool does, in a few words.
        send_tool_hints: bool = true, Kind::Flag;
        /// Whether it shows what the model thinks.
        show_reasoning: bool = true, Kind::Flag;
    }
    unused [
        "extract_document_text" "send_max_retries"
        "transcription_provider" "transcription_language" "telegram" "discord" "slack" "feishu" "dingtalk" "wecom"
        "weixin" "qq" "napcat" "mochat" "whatsapp" "signal" "matrix" "mattermost" "msteams" "email"
    ]
}

section! {
    /// `channels.websocket`.
    WebSocket {
        /// Whether it is served.
        enabled: bool = true, Kind::Flag;
        /// Address to listen on. Other than loopback needs `token` or `token_issue_secret`.
        host: String = "127.0.0.1".into(), Kind::Text;
        /// Port to listen on.
        port: u16 = 8765, PORT;
        /// Path of the upgrade request.
        path: String = "/".into(), Kind::Text;
        /// Token that clients present.
        token: Option<Secret> = None, Kind::Secret;
        /// Path that hands out single-use tokens.
        token_issue_path: Option<String> = None, Kind::OptionalText;
        /// Secret that is asked for a single-use token.
        token_issue_secret: Option<Secret> = None, Kind::Secret;
        /// How long a single-use token lives.
        token_ttl_s: u32 = 300, Kind::Whole(30, DAY_SECONDS);
        /// Whether a client without a token is refused. Not set: when a token or secret is configured.
        websocket_requires_token: Option<bool> = None, Kind::Flag;
        /// Client ids that may connect; `*` is everyone.
        allow_from: Vec<String> = vec!["*".into()], Kind::TextList;
        /// Browser origins that may connect besides our own.
        allowed_origins: Vec<String> = Vec::new(), Kind::TextList;
        /// Whether answers are sent while they are written.
        streaming: bool = true, Kind::Flag;
        /// Largest frame of a client.
        max_message_bytes: usize = 37_748_736, Kind::Whole(1024, 40 * MIB);
        /// Seconds between pings.
        ping_interval_s: f64 = 20.0, Kind::Number(5.0, 300.0);
        /// Seconds after which a silent client is gone.
        ping_timeout_s: f64 = 20.0, Kind::Number(5.0, 300.0);
    }
    unused ["unix_socket_path" "public_ws_url" "trusted_proxy_auth" "ssl_certfile" "ssl_keyfile"]
}

section! {
    /// `channels.webhook`.
    Webhook {
        /// Whether messages are taken and replies sent.
        enabled: bool = false, Kind::Flag;
        /// Address that replies are sent to, `http://` or `https://`.
        url: Option<String> = None, Kind::OptionalText;
        /// Signs what is sent: `whsec_` and base64, or any other text as it is.
        secret: Option<Secret> = None, Kind::Secret;
        /// Address to listen on. Other than loopback needs `token`.
        host: String = "127.0.0.1".into(), Kind::Text;
        /// Port to listen on.
        port: u16 = 8766, PORT;
        /// Bearer token that senders present.
        token: Option<Secret> = None, Kind::Secret;
        /// Senders that may write; `*` is everyone. Nobody may unless they are named: strangers find this door.
        allow_from: Vec<String> = Vec::new(), Kind::TextList;
        /// Longest message that is sent, in characters; longer replies are split.
        max_message_chars: usize = 4000, Kind::Whole(100, 10_000_000);
        /// Seconds that one attempt to send may take.
        timeout: f64 = 30.0, Kind::Number(0.1, 600.0);
    }
    unused []
}

section! {
    /// `api`.
    Api {
        /// Address to listen on. Other than loopback needs `api_key`.
        host: String = "127.0.0.1".into(), Kind::Text;
        /// Port to listen on.
        port: u16 = 8900, PORT;
        /// Seconds that a request without streaming may take.
        timeout: f64 = 120.0, Kind::Number(1.0, 86_400.0);
        /// Bearer key that clients present.
        api_key: Option<Secret> = None, Kind::Secret;
    }
    unused []
}

section! {
    /// `gateway`.
    Gateway {
        /// Address to listen on. Other than loopback needs `admin.token`.
        host: String = "127.0.0.1".into(), Kind::Text;
        /// Port to listen on.
        port: u16 = 18_790, PORT;
        /// How `/restart` starts it again.
        restart_mode: RestartMode = RestartMode::Auto, Kind::Choice(&["auto", "exec", "spawn", "exit"]);
        /// Looking after tasks from time to time.
        heartbeat: HeartbeatConfig = HeartbeatConfig::default(), Kind::Section(HeartbeatConfig::SECTION);
    }
    unused []
}

/// How a gateway starts again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(rename_all = "lowercase")]
pub enum RestartMode {
    /// As fits the system: `exec`.
    Auto,
    /// The program takes the place of its process.
    Exec,
    /// A new process.
    Spawn,
    /// It only ends, and whoever looks after it starts it.
    Exit,
}

section! {
    /// `tools`.
    Tools {
        /// Running commands.
        exec: Exec = Exec::default(), Kind::Section(Exec::SECTION);
        /// Whether file tools stay inside the workspace.
        restrict_to_workspace: bool = true, Kind::Flag;
        /// The tools that sessions have at most, whatever their kind.
        profile: ToolProfile = ToolProfile::Full, Kind::Choice(TOOL_PROFILES);
        /// If not empty, only these of them: names, `*` in names, `group:<name>`.
        allow: Vec<String> = Vec::new(), Kind::ToolPatterns;
        /// None of these.
        deny: Vec<String> = Vec::new(), Kind::ToolPatterns;
    }
    unused [
        "web" "file" "cli_apps" "my" "my_enabled" "my_set" "image_generation" "max_session_messages_per_minute"
        "webui_allow_local_service_access" "allow_local_preview_access" "webui_allow_remote_package_install"
        "mcp_servers" "ssrf_whitelist"
    ]
}

section! {
    /// `tools.exec`.
    Exec {
        /// Whether the model may run commands at all.
        enable: bool = true, Kind::Flag;
        /// Seconds that a command may take; 0 is no limit.
        timeout: u64 = 60, Kind::Whole(0, DAY_SECONDS);
        /// How commands are kept apart from the system.
        sandbox: Sandbox = Sandbox::Auto, Kind::Choice(&["auto", "bwrap", "off", ""]);
        /// Variables of our environment that commands may see.
        allowed_env_keys: Vec<String> = Vec::new(), Kind::TextList;
        /// Put after the usual `PATH`.
        path_append: Option<String> = None, Kind::OptionalText;
        /// Put before the usual `PATH`.
        path_prepend: Option<String> = None, Kind::OptionalText;
    }
    unused ["sandbox_ro_binds" "sandbox_rw_binds" "allow_patterns" "deny_patterns"]
}

/// How commands are kept apart from the system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(rename_all = "lowercase")]
pub enum Sandbox {
    /// The best one that works here; refusal when none does. The empty text means the same.
    #[serde(alias = "")]
    Auto,
    /// Bubblewrap; refusal when it does not work here.
    Bwrap,
    /// None.
    Off,
}

section! {
    /// `runtime`.
    Runtime {
        /// Threads that run sessions. Not set: one per core.
        arbiters: Option<usize> = None, Kind::Whole(1, 1024);
        /// Idle time after which a session leaves the memory.
        idle_seconds: u64 = 600, Kind::Whole(1, 30 * DAY_SECONDS);
        /// Sessions in memory at once; over it the longest idle leave.
        max_live_sessions: usize = 20_000, Kind::Whole(1, 10_000_000);
        /// Idle time after which a session drops its model context.
        context_seconds: u64 = 30, Kind::Whole(0, 30 * DAY_SECONDS);
        /// Memory for the model contexts of idle sessions.
        context_cache_bytes: u64 = 256 * MIB, Kind::Whole(0, 1024 * GIB);
        /// Messages that wait in one session.
        inbox_max: usize = 64, Kind::Whole(1, 100_000);
        /// Bytes that wait in one session.
        inbox_max_bytes: u64 = 8 * MIB, Kind::Whole(1024, 64 * GIB);
        /// Bytes that wait in the whole process.
        queued_max_bytes: u64 = GIB, Kind::Whole(1024, 1024 * GIB);
        /// Bytes of client frames that are being read at once.
        frame_bytes_in_flight: u64 = 256 * MIB, Kind::Whole(64 * 1024, 1024 * GIB);
        /// Turns that run at once; those of sub-agents are counted apart.
        max_running_turns: usize = 10_000, Kind::Whole(1, 10_000_000);
        /// Tokens, read and written, that the sub-agents of one turn may use together; 0 for no bound.
        subagent_tokens: u64 = 0, Kind::Whole(0, 1_000_000_000_000);
        /// What an acknowledged message survives.
        durability: Durability = Durability::Full, Kind::Choice(&["full", "os"]);
        /// Memory of the process, resident, from which on new messages are refused; from nine tenths of it on idle
        /// sessions leave. Not set: four fifths of what the machine or the control group has.
        memory_high_bytes: Option<u64> = None, Kind::Whole(MIB, 1024 * GIB);
        /// How long an orderly stop waits for running turns.
        drain_seconds: u64 = 30, Kind::Whole(0, DAY_SECONDS);
        /// A turn without progress for this long is cancelled.
        stall_seconds: u64 = 300, Kind::Whole(1, 30 * DAY_SECONDS);
    }
    unused []
}

/// What an acknowledged message survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// A power cut: each batch is synced.
    Full,
    /// The death of the process only: nothing is synced.
    Os,
}

section! {
    /// `journal`.
    Journal {
        /// Size of the whole log; over 75 % of it new messages are refused.
        max_bytes: u64 = 4 * GIB, Kind::Whole(256 * MIB, 1024 * GIB);
        /// Size of one segment file.
        segment_bytes: u64 = 64 * MIB, Kind::Whole(32 * MIB, GIB);
    }
    unused []
}

section! {
    /// `supervision`.
    Supervision {
        /// Crashes of one turn after which it is dead-lettered.
        poison_attempts: u32 = 3, Kind::Whole(1, 1000);
        /// Deaths of the process during one turn after which it is dead-lettered.
        process_deaths: u32 = 20, Kind::Whole(1, 10_000);
        /// Crashing sessions that a shard needs before it escalates, whatever the percentage.
        shard_min_sessions: u32 = 5, Kind::Whole(1, 1_000_000);
        /// Crashes of one session within `intensity_seconds` after which it is quarantined.
        intensity: u32 = 5, Kind::Whole(1, 10_000);
        /// The window in which crashes are counted.
        intensity_seconds: u64 = 60, Kind::Whole(1, DAY_SECONDS);
        /// First wait before a restart; doubles with each crash.
        backoff_base_ms: u64 = 100, Kind::Whole(1, 3_600_000);
        /// Longest wait before a restart.
        backoff_cap_ms: u64 = 30_000, Kind::Whole(1, 3_600_000);
        /// First quarantine; doubles each time.
        quarantine_seconds: u64 = 600, Kind::Whole(1, 30 * DAY_SECONDS);
        /// Longest quarantine.
        quarantine_max_seconds: u64 = 6 * 60 * 60, Kind::Whole(1, 30 * DAY_SECONDS);
        /// Size at which a file of the supervision log is closed and the next one begun.
        log_file_bytes: u64 = 16 * MIB, Kind::Whole(64 * 1024, GIB);
        /// Files of the supervision log that are kept.
        log_files: u32 = 8, Kind::Whole(1, 1000);
        /// Days after which a closed file of the supervision log is removed.
        log_days: u32 = 90, Kind::Whole(1, 36_500);
    }
    unused []
}

section! {
    /// `admin`.
    Admin {
        /// Bearer token of the admin API. Not set: a fresh one at each start, kept in the run directory.
        token: Option<Secret> = None, Kind::Secret;
    }
    unused []
}

impl WebSocket {
    /// Whether a client without a token is refused.
    pub fn requires_token(&self) -> bool {
        self.websocket_requires_token.unwrap_or(self.token.is_some() || self.token_issue_secret.is_some())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// A legal value of this kind, from the low or the high end of its range.
    fn sample(kind: &Kind, high: bool) -> Value {
        match kind {
            Kind::Flag => json!(true),
            Kind::Whole(low, top) => json!(if high { top } else { low }),
            Kind::Number(low, top) => json!(if high { top } else { low }),
            Kind::Text | Kind::OptionalText | Kind::Secret => json!("x"),
            Kind::Choice(words) => json!(words[0]),
            Kind::TextList => json!(["x"]),
            Kind::ToolPatterns => json!(["x"]),
            Kind::TextLists => json!({ "ann": ["x"] }),
            Kind::Sections(section) => json!([full(section, high)]),
            Kind::TextMap => json!({ "X-Name": "x" }),
            Kind::FreeObject => json!({ "any": [1, { "thing": null }] }),
            Kind::Section(section) => full(section, high),
            Kind::Named(section) => json!({ "some_name": full(section, high) }),
        }
    }

    fn full(section: &Section, high: bool) -> Value {
        Value::Object(section.keys.iter().map(|key| (key.name.to_string(), sample(&key.kind, high))).collect())
    }

    #[test]
    fn every_key_of_the_table_reaches_its_field_and_every_word_of_a_choice_is_one() {
        for high in [false, true] {
            let wanted = full(Config::SECTION, high);
            let config: Config = serde_json::from_value(wanted.clone()).unwrap();
            assert_eq!(serde_json::to_value(&config).unwrap(), wanted);
        }
        for word in ["auto", "bwrap", "off", ""] {
            assert!(serde_json::from_value::<Sandbox>(json!(word)).is_ok(), "{word}");
        }
        assert!(serde_json::from_value::<Durability>(json!("os")).is_ok());
    }

    #[test]
    fn no_name_is_listed_twice_and_all_are_canonical() {
        fn walk(section: &Section) {
            let mut seen = std::collections::BTreeSet::new();
            for name in section.names() {
                assert!(seen.insert(name), "{name} is listed twice");
                assert_eq!(super::super::key::canonical(&super::super::key::camel(name)), name);
            }
            for key in section.keys {
                if let Some(inner) = key.kind.section() {
                    walk(inner);
                }
            }
        }
        walk(Config::SECTION);
    }
}
