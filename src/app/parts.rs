//! Configuration, as each actor crate wants it.

use crate::config::MaintenanceMode;
use channel::gateway::hooks::Hooks;
use channel::gateway::prune::{Daily, Pruning};
use domain::keys::SessionKind;
use domain::policy::Access;
use domain::retention;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use channel::gateway::{Addresses, GatewayConfig};
use channel::openai_api::ApiConfig;
use channel::webhook::{SenderConfig, SigningSecret, WebhookConfig};
use channel::websocket::{ProjectRules, Showing, TokenIssue, WebsocketConfig};
use protocol::transcripts::TranscriptReader;
use provider::{Backend, Limits, Server, Settings};
use supervision::RestartPolicy;
use supervision::log::{LogOf, LogOptions};
use tools::{ExecConfig, SandboxChoice, ToolsConfig};

use super::beacon::Beacon;
use super::limits::Shares;
use crate::config::{Config, Durability, Loaded, ModelPreset, Paths, PresetChoice, ProviderChoice, Sandbox, Secret};
use crate::exit::{Exit, ExitCode};

/// Who answers, with the names that the transcript keeps.
pub struct Model {
    /// Provider name.
    pub provider: Arc<str>,
    /// Model name.
    pub model: Arc<str>,
    /// Settings of the provider front ends.
    pub settings: Settings,
}

/// Chooses the provider; one of the program's own goes before the configured one.
pub fn model(loaded: &Loaded, own: Option<Arc<dyn provider::Model>>) -> Model {
    let running = loaded.config.runtime.max_running_turns;
    if let Some(own) = own {
        let (provider, model) = (own.name(), own.name());
        let settings = Settings { backend: Backend::Own(own), concurrent_max: running, limits: Limits::default() };
        return Model { provider, model, settings };
    }
    match &loaded.provider {
        ProviderChoice::Offline { .. } => Model {
            provider: "offline".into(),
            model: "offline".into(),
            settings: Settings { backend: Backend::Offline, concurrent_max: running, limits: Limits::default() },
        },
        ProviderChoice::Remote(chosen) => {
            let plain = |map: &std::collections::BTreeMap<String, Secret>| {
                map.iter().map(|(name, value)| (name.clone(), value.expose().to_owned())).collect()
            };
            let server = Server {
                name: chosen.name.clone(),
                base: chosen.api_base.clone(),
                key: chosen.api_key.as_ref().map(|key| key.expose().to_owned().into()),
                extra_headers: plain(&chosen.extra_headers),
                extra_query: plain(&chosen.extra_query),
                extra_body: chosen.extra_body.clone(),
                text_calls: chosen.text_tool_calls,
            };
            Model {
                provider: chosen.name.as_str().into(),
                model: chosen.model.as_str().into(),
                settings: Settings {
                    backend: Backend::OpenAi(server),
                    concurrent_max: running.min(Shares::in_force().remote_calls),
                    limits: Limits::default(),
                },
            }
        }
    }
}

/// The model of sessions that are not set to another one.
pub fn preset(loaded: &Loaded, model: &Model) -> session::Preset {
    let defaults = &loaded.config.agents.defaults;
    session::Preset {
        model: Arc::clone(&model.model),
        max_tokens: defaults.max_tokens,
        context_window_tokens: defaults.context_window_tokens.into(),
        temperature: defaults.temperature as f32,
        effort: defaults.reasoning_effort.as_deref().map(Arc::from),
        elsewhere: None,
    }
}

/// When silent conversations are summarised, if ever: the built-in model has no words for it.
pub fn idle_rules(loaded: &Loaded, model: &Model) -> Option<session::IdleRules> {
    let defaults = &loaded.config.agents.defaults;
    let (minutes, every) = (defaults.idle_compact_after_minutes, defaults.idle_compact_check_interval_seconds);
    let is_real = !matches!(model.settings.backend, Backend::Offline);
    (minutes > 0 && is_real).then(|| session::IdleRules {
        after: Duration::from_secs(60 * u64::from(minutes)),
        every: Duration::from_secs(every),
    })
}

/// What sessions can be set to.
pub fn presets(loaded: &Loaded) -> session::Presets {
    let choices = loaded.config.model_presets.iter().zip(loaded.presets.values());
    let preset = |(name, written): (&String, &ModelPreset), choice: &PresetChoice| {
        let preset = session::Preset {
            model: choice.model.as_str().into(),
            max_tokens: written.max_tokens,
            context_window_tokens: written.context_window_tokens.into(),
            temperature: written.temperature as f32,
            effort: written.reasoning_effort.as_deref().map(Arc::from),
            elsewhere: choice.elsewhere.as_deref().map(Arc::from),
        };
        (Arc::from(name.as_str()), preset)
    };
    choices.map(|(written, choice)| preset(written, choice)).collect()
}

/// The names of those that the configured provider has.
pub fn usable_presets(loaded: &Loaded) -> Vec<Arc<str>> {
    let presets = presets(loaded).into_iter().filter(|(_, preset)| preset.elsewhere.is_none());
    presets.map(|(name, _)| name).collect()
}

/// Settings of the tools.
pub fn tools(loaded: &Loaded) -> ToolsConfig {
    let (config, paths) = (&loaded.config, &loaded.paths);
    let exec = &config.tools.exec;
    ToolsConfig {
        workspace: paths.workspace.clone(),
        sessions_dir: paths.sessions.clone(),
        forbidden: private(paths),
        attachments: kept(paths),
        restrict: config.tools.restrict_to_workspace,
        result_chars_max: config.agents.defaults.max_tool_result_chars,
        exec: ExecConfig {
            enable: exec.enable,
            sandbox: match exec.sandbox {
                Sandbox::Auto => SandboxChoice::Auto,
                Sandbox::Bwrap => SandboxChoice::Bubblewrap,
                Sandbox::Off => SandboxChoice::Off,
            },
            timeout: Duration::from_secs(exec.timeout),
            allowed_env_keys: exec.allowed_env_keys.clone(),
            path_prepend: exec.path_prepend.clone(),
            path_append: exec.path_append.clone(),
        },
        policies: Arc::new(super::sessions::policies(config)),
    }
}

/// Where doors keep what was attached.
pub fn kept(paths: &Paths) -> Vec<PathBuf> {
    channel::media::MEDIA.map(|door| paths.media.join(door)).to_vec()
}

/// Where attachments lie and where they are named.
pub fn attachments(paths: &Paths) -> channel::media::Places {
    let (media, journal, sessions) = (paths.media.clone(), paths.journal.clone(), paths.sessions.clone());
    channel::media::Places { media, journal, sessions }
}

/// What the gateway keeps for itself, besides the transcripts.
fn private(paths: &Paths) -> Vec<PathBuf> {
    let jobs = paths.workspace.join("cron");
    [&paths.config, &paths.journal, &paths.logs, &paths.run, &paths.media, &jobs].map(PathBuf::clone).to_vec()
}

/// Which projects chats of the WebSocket may work in.
fn projects(loaded: &Loaded) -> ProjectRules {
    let policies = super::sessions::policies(&loaded.config);
    let open = policies.of(SessionKind::WebSocket).workspace == Access::Write;
    let mut private = private(&loaded.paths);
    private.push(loaded.paths.sessions.clone());
    ProjectRules { open, private }
}

/// Settings of the journal.
pub fn journal(loaded: &Loaded) -> journal::Options {
    let (config, paths) = (&loaded.config, &loaded.paths);
    journal::Options {
        segment_bytes: config.journal.segment_bytes,
        max_bytes: config.journal.max_bytes,
        inbox_max: u32::try_from(config.runtime.inbox_max).unwrap_or(u32::MAX),
        inbox_max_bytes: config.runtime.inbox_max_bytes,
        queued_max_bytes: config.runtime.queued_max_bytes,
        queue_cap: config.queue.rules().refuses_above(),
        durability: match config.runtime.durability {
            Durability::Full => journal::Durability::Full,
            Durability::Os => journal::Durability::Os,
        },
        ..journal::Options::new(&paths.journal, &paths.sessions)
    }
}

/// Where and how much the supervision log writes.
pub fn log(loaded: &Loaded, writer: LogOf) -> LogOptions {
    let supervision = &loaded.config.supervision;
    LogOptions {
        dir: loaded.paths.logs.clone(),
        file_bytes: supervision.log_file_bytes,
        files: supervision.log_files,
        age: Duration::from_secs(u64::from(supervision.log_days) * 24 * 60 * 60),
        writer,
    }
}

/// When a crashing actor is restarted.
pub fn restart_policy(config: &Config) -> RestartPolicy {
    let supervision = &config.supervision;
    RestartPolicy {
        intensity: supervision.intensity,
        window: Duration::from_secs(supervision.intensity_seconds),
        backoff_base: Duration::from_millis(supervision.backoff_base_ms),
        backoff_cap: Duration::from_millis(supervision.backoff_cap_ms),
        ..RestartPolicy::default()
    }
}

fn door_secret(secret: Option<&Secret>) -> Option<channel::Secret> {
    secret.and_then(|secret| channel::Secret::new(secret.expose()))
}

/// Settings of the WebSocket door.
pub fn websocket(loaded: &Loaded) -> WebsocketConfig {
    let config = &loaded.config;
    let door = &config.channels.websocket;
    let issue = door.token_issue_path.clone().zip(door_secret(door.token_issue_secret.as_ref()));
    WebsocketConfig {
        path: door.path.clone(),
        token: door_secret(door.token.as_ref()),
        issue: issue.map(|(path, secret)| TokenIssue { path, secret }),
        token_ttl: Duration::from_secs(door.token_ttl_s.into()),
        requires_token: door.requires_token(),
        unified: config.agents.defaults.unified_session,
        projects: Arc::new(projects(loaded)),
        allow_from: door.allow_from.clone(),
        allowed_origins: door.allowed_origins.clone(),
        showing: Showing {
            streaming: door.streaming,
            progress: config.channels.send_progress,
            tool_hints: config.channels.send_tool_hints,
            tool_hint_chars_max: config.agents.defaults.tool_hint_max_length,
            reasoning: config.channels.show_reasoning,
        },
        max_message_bytes: door.max_message_bytes,
        ping_interval: Duration::from_secs_f64(door.ping_interval_s),
        ping_timeout: Duration::from_secs_f64(door.ping_timeout_s),
        connections_max: Shares::in_force().websocket,
        drain: Duration::from_secs(config.runtime.drain_seconds),
    }
}

/// Settings of the webhook door.
pub fn webhook(config: &Config) -> WebhookConfig {
    let door = &config.channels.webhook;
    WebhookConfig {
        router: super::sessions::router(config).map(Arc::new),
        token: door_secret(door.token.as_ref()),
        allow_from: door.allow_from.clone(),
        connections_max: Shares::in_force().webhook,
        drain: Duration::from_secs(config.runtime.drain_seconds),
    }
}

/// Where the webhook channel sends replies, if it is enabled.
pub fn webhook_sender(config: &Config) -> Result<Option<SenderConfig>, Exit> {
    let door = &config.channels.webhook;
    if !door.enabled {
        return Ok(None);
    }
    let bad = |key: &str, why: String| Exit::new(ExitCode::Config, format!("channels.webhook.{key}: {why}"));
    let url = door.url.as_deref().unwrap_or_default();
    let url = reqwest::Url::parse(url).map_err(|error| bad("url", error.to_string()))?;
    let secret = door.secret.as_ref().map(|secret| SigningSecret::new(secret.expose()));
    Ok(Some(SenderConfig {
        url,
        secret: secret.transpose().map_err(|error| bad("secret", error.to_string()))?,
        max_message_chars: door.max_message_chars,
        timeout: Duration::from_secs_f64(door.timeout),
    }))
}

/// Settings of the OpenAI-compatible API.
pub fn api(config: &Config, model: &Arc<str>) -> ApiConfig {
    ApiConfig {
        api_key: door_secret(config.api.api_key.as_ref()),
        timeout: Duration::from_secs_f64(config.api.timeout),
        unified: config.agents.defaults.unified_session,
        connections_max: Shares::in_force().api,
        drain: Duration::from_secs(config.runtime.drain_seconds),
        ..ApiConfig::new(model.clone())
    }
}

/// Settings of the gateway port.
pub fn gateway(
    config: &Config,
    beacon: &Beacon,
    transcripts: Arc<dyn TranscriptReader>,
    hooks: Hooks,
    logs: std::path::PathBuf,
    stop: tokio_util::sync::CancellationToken,
) -> GatewayConfig {
    GatewayConfig {
        admin_token: channel::Secret::new(&beacon.token),
        hosts: vec![config.gateway.host.clone()],
        version: beacon.version.clone(),
        pid: beacon.pid,
        addresses: Addresses {
            admin: beacon.admin_url.clone(),
            websocket: beacon.websocket_url.clone(),
            api: beacon.api_url.clone(),
            webhook: beacon.webhook_url.clone(),
        },
        connections_max: Shares::in_force().gateway,
        drain: Duration::from_secs(config.runtime.drain_seconds),
        transcripts,
        pruning: pruning(config),
        hooks: Arc::new(hooks),
        logs,
        stop,
    }
}

/// Which old sessions have to go.
pub fn pruning(config: &Config) -> Pruning {
    let maintenance = &config.session.maintenance;
    Pruning {
        limits: retention::Limits {
            prune_after_ms: maintenance.prune_after_days.map(|days| days * 86_400_000),
            max_entries: maintenance.max_entries.map(|max| usize::try_from(max).unwrap_or(usize::MAX)),
            max_disk_bytes: maintenance.max_disk_bytes,
        },
        main_key: config.session.main_key.clone(),
        daily: match maintenance.mode {
            None => Daily::Nothing,
            Some(MaintenanceMode::Warn) => Daily::Tell,
            Some(MaintenanceMode::Enforce) => Daily::Prune,
        },
    }
}
