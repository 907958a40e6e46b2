//! What is configured of conversations, as the rules of the domain want it.

use domain::keys::{AgentId, Binding, Claim, DmScope, IdentityLinks, PeerKind, Router, SessionKind};
use domain::policy::{Access, Pattern, Policies, Policy, Profile, SandboxLevel, ToolRule};
use domain::reset::{Rule, Rules};
use jiff::tz::TimeZone;
use session::PromptConfig;

use crate::config::{
    BindingConfig, Config, DmScopeWord, PeerKindWord, PolicyConfig, ResetConfig, ResetMode, SandboxWord, ToolProfile,
    WorkspaceWord,
};

/// The hour at which sessions begin anew that do so daily, if none is named.
const HOUR: u8 = 4;

/// What sessions may do.
pub fn policies(config: &Config) -> Policies {
    let table = &config.session.policies;
    let own = SessionKind::ALL.map(|kind| {
        let written = match kind {
            // It is the program's own work, not somebody's.
            SessionKind::Dream => return (kind, Policy::default_of(kind)),
            SessionKind::Main => &table.main,
            SessionKind::Direct => &table.direct,
            SessionKind::Group => &table.group,
            SessionKind::Thread => &table.thread,
            SessionKind::Cron => &table.cron,
            SessionKind::Hook => &table.hook,
            SessionKind::Subagent => &table.subagent,
            SessionKind::Heartbeat => &table.heartbeat,
            SessionKind::Api => &table.api,
            SessionKind::WebSocket => &table.websocket,
            SessionKind::Cli => &table.cli,
            SessionKind::Unknown => &table.unknown,
        };
        (kind, policy(kind, written, config))
    });
    Policies::new(&config.session.main_key, own)
}

fn policy(kind: SessionKind, written: &PolicyConfig, config: &Config) -> Policy {
    let usual = Policy::default_of(kind);
    let mut tools = usual.tools;
    if let Some(own) = tools.first_mut() {
        own.profile = written.profile.map_or(own.profile, profile);
        own.allow = patterns(&written.allow);
        own.deny = patterns(&written.deny);
    }
    let all = &config.tools;
    tools.push(ToolRule { profile: profile(all.profile), allow: patterns(&all.allow), deny: patterns(&all.deny) });
    Policy {
        tools,
        sandbox: match written.sandbox {
            None => usual.sandbox,
            Some(SandboxWord::Configured) => SandboxLevel::AsConfigured,
            Some(SandboxWord::Required) => SandboxLevel::Required,
        },
        network: written.network.unwrap_or(usual.network),
        writes: usual.writes,
        workspace: match written.workspace_access {
            None => usual.workspace,
            Some(WorkspaceWord::None) => Access::None,
            Some(WorkspaceWord::Ro) => Access::Read,
            Some(WorkspaceWord::Rw) => Access::Write,
        },
        model: written.model.as_deref().map(Into::into),
    }
}

/// Those that are none were refused when the configuration was checked.
fn patterns(texts: &[String]) -> Vec<Pattern> {
    texts.iter().filter_map(|text| Pattern::parse(text).ok()).collect()
}

fn profile(word: ToolProfile) -> Profile {
    match word {
        ToolProfile::Minimal => Profile::Minimal,
        ToolProfile::Coding => Profile::Coding,
        ToolProfile::Messaging => Profile::Messaging,
        ToolProfile::Full => Profile::Full,
    }
}

/// When sessions begin anew by themselves.
pub fn reset(config: &Config) -> Rules {
    let session = &config.session;
    let by_type = &session.reset_by_type;
    Rules {
        general: rule(&session.reset),
        direct: by_type.direct.as_ref().map(rule),
        group: by_type.group.as_ref().map(rule),
        thread: by_type.thread.as_ref().map(rule),
        channels: session.reset_by_channel.iter().map(|(channel, written)| (channel.clone(), rule(written))).collect(),
        zone: zone(config),
    }
}

/// In which times are shown.
pub fn zone(config: &Config) -> TimeZone {
    TimeZone::get(&config.agents.defaults.timezone).unwrap_or(TimeZone::UTC)
}

fn rule(written: &ResetConfig) -> Rule {
    let idle_minutes = Some(written.idle_minutes).filter(|minutes| *minutes > 0);
    let hour = |hour: u8| i8::try_from(hour).ok();
    let daily_hour = match written.mode {
        Some(ResetMode::None) => return Rule::default(),
        Some(ResetMode::Daily) => hour(written.at_hour.unwrap_or(HOUR)),
        Some(ResetMode::Idle) => None,
        None => written.at_hour.and_then(hour),
    };
    Rule { daily_hour, idle_minutes }
}

/// How messages of other channels find their sessions; without a scope, each chat has its own.
pub fn router(config: &Config) -> Option<Router> {
    let scope = match config.session.dm_scope? {
        DmScopeWord::Main => DmScope::Main,
        DmScopeWord::PerPeer => DmScope::PerPeer,
        DmScopeWord::PerChannelPeer => DmScope::PerChannelPeer,
        DmScopeWord::PerAccountChannelPeer => DmScope::PerAccountChannelPeer,
    };
    Some(Router {
        scope,
        links: IdentityLinks(config.session.identity_links.clone()),
        main_key: config.session.main_key.clone(),
        bindings: config.bindings.iter().map(binding).collect(),
        unified: config.agents.defaults.unified_session,
    })
}

/// What the system prompt tells; skills may ask for what commands of the model find and see.
pub fn prompt(config: &Config) -> PromptConfig {
    let (defaults, exec) = (&config.agents.defaults, &config.tools.exec);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let [before, after] = [&exec.path_prepend, &exec.path_append].map(|path| path.as_deref().unwrap_or("").into());
    let search = [before, path, after];
    let search = search.iter().flat_map(std::env::split_paths).filter(|directory| directory.is_absolute());
    let is_set = |key: &&String| std::env::var_os(key).is_some_and(|value| !value.is_empty());
    let usual = ["HOME", "LANG", "TERM", "PATH"].map(str::to_owned);
    PromptConfig {
        agent: defaults.bot_name.as_str().into(),
        disabled_skills: defaults.disabled_skills.iter().cloned().collect(),
        search: search.collect(),
        variables: usual.into_iter().chain(exec.allowed_env_keys.iter().filter(is_set).cloned()).collect(),
    }
}

fn binding(written: &BindingConfig) -> Binding {
    let claim = &written.claim;
    let peer = claim.peer.as_ref().map(|peer| {
        let kind = match peer.kind {
            PeerKindWord::Direct => PeerKind::Direct,
            PeerKindWord::Group => PeerKind::Group,
            PeerKindWord::Channel => PeerKind::Room,
        };
        (kind, peer.id.clone())
    });
    Binding {
        agent: AgentId::new(&written.agent_id),
        claim: Claim {
            channel: claim.channel.clone(),
            account: claim.account_id.clone(),
            peer,
            guild: claim.guild_id.clone(),
            roles: claim.roles.clone(),
            team: claim.team_id.clone(),
        },
    }
}

#[cfg(test)]
mod tests {
    use domain::ids::SessionKey;
    use domain::keys::{Inbound, Peer};
    use domain::policy::Denied;

    use super::*;

    fn config(text: serde_json::Value) -> Config {
        let home = testkit::workspace::TempWorkspace::new();
        home.write("config.json", text.to_string());
        let env = [("GREENROOM_HOME".to_owned(), home.home().display().to_string())].into();
        crate::config::load(&crate::config::LoadRequest { config: None, workspace: None, env }).unwrap().config
    }

    #[test]
    fn a_policy_changes_what_it_names_and_the_tools_of_all_narrow_it() {
        let config = config(serde_json::json!({
            "tools": {"deny": ["web_*"]},
            "session": {"mainKey": "home", "policies": {
                "group": {"profile": "full", "allow": ["read", "group:web"], "workspaceAccess": "ro", "model": "small"},
                "cli": {"deny": "exec", "sandbox": "required", "network": true},
            }},
        }));
        let policies = policies(&config);
        let group = policies.of(SessionKind::Group);
        assert_eq!(group.permits("read_file"), Ok(()));
        assert_eq!(group.permits("write_file"), Err(Denied::NotAllowed));
        assert_eq!(group.permits("web_fetch"), Err(Denied::Denied));
        assert_eq!((group.workspace, group.sandbox), (Access::Read, SandboxLevel::Required));
        assert_eq!(group.model.as_deref(), Some("small"));
        let cli = policies.of(SessionKind::Cli);
        assert_eq!((cli.permits("exec"), cli.permits("write_file")), (Err(Denied::Denied), Ok(())));
        assert!(cli.network && cli.confines());
        let usual = Policy::default_of(SessionKind::Direct);
        let direct = policies.of(SessionKind::Direct);
        assert_eq!((direct.workspace, direct.permits("exec")), (usual.workspace, usual.permits("exec")));
        let main = SessionKey::new("agent:main:home").unwrap();
        assert_eq!(policies.kind(&main, &domain::ids::Source::new("cli").unwrap()), SessionKind::Main);
    }

    #[test]
    fn resets_are_off_unless_the_configuration_has_one() {
        assert_eq!(reset(&Config::default()).general, Rule::default());
        let config = config(serde_json::json!({
            "agents": {"defaults": {"timezone": "Europe/Berlin"}},
            "session": {
                "reset": {"mode": "daily", "idleMinutes": 60},
                "resetByType": {"group": {"mode": "idle", "atHour": 3, "idleMinutes": 5}, "thread": {"mode": "none", "atHour": 3}},
                "resetByChannel": {"slack": {"idleMinutes": 7}, "discord": {"atHour": 0}},
            },
        }));
        let rules = reset(&config);
        let of = |daily_hour, idle_minutes| Rule { daily_hour, idle_minutes };
        assert_eq!(rules.general, of(Some(4), Some(60)));
        assert_eq!((rules.direct, rules.group, rules.thread), (None, Some(of(None, Some(5))), Some(of(None, None))));
        let channels = [("discord".to_owned(), of(Some(0), None)), ("slack".to_owned(), of(None, Some(7)))];
        assert_eq!(rules.channels, channels.into());
        assert_eq!(rules.zone.iana_name(), Some("Europe/Berlin"));
    }

    #[test]
    fn messages_are_routed_only_with_a_scope() {
        assert_eq!(router(&Config::default()), None);
        let config = config(serde_json::json!({
            "session": {"dmScope": "per-peer", "identityLinks": {"ann": ["webhook:7", "U1"]}},
            "bindings": [
                {"agentId": "work", "match": {"channel": "webhook", "peer": {"kind": "group", "id": "g"}}},
                {"agentId": "rest", "match": {"channel": "webhook", "accountId": "*"}},
            ],
        }));
        let router = router(&config).unwrap();
        let route = |kind, id| router.route(&Inbound::of("webhook", Peer { kind, id })).unwrap().to_string();
        assert_eq!(route(PeerKind::Direct, "7"), "agent:rest:direct:ann");
        assert_eq!(route(PeerKind::Group, "g"), "agent:work:webhook:group:g");
        assert_eq!(route(PeerKind::Group, "h"), "agent:rest:webhook:group:h");
    }

    #[test]
    fn what_cannot_be_used_is_told_with_its_place() {
        for (text, path, said) in [
            (
                r#"{"session": {"policies": {"group": {"allow": ["group:no"]}}}}"#,
                "session.policies.group.allow",
                "item 1 names no group",
            ),
            (
                r#"{"session": {"policies": {"group": {"profile": "all"}}}}"#,
                "session.policies.group.profile",
                "one of minimal",
            ),
            (r#"{"session": {"mainKey": "A:b"}}"#, "session.mainKey", "one word in lower case"),
            (r#"{"session": {"identityLinks": {"ann": 5}}}"#, "session.identityLinks", "ann: must be a list of texts"),
            (r#"{"session": {"reset": {"atHour": 24}}}"#, "session.reset.atHour", "from 0 to 23"),
            (
                r#"{"bindings": [{"agentId": "a", "match": {"channel": "x", "peer": {"kind": "room"}}}]}"#,
                "bindings[0].match.peer.kind",
                "one of direct",
            ),
            (r#"{"bindings": [5]}"#, "bindings[0]", "must be an object"),
            (r#"{"bindings": [{"agentId": "a"}]}"#, "bindings", "match.channel"),
        ] {
            let home = testkit::workspace::TempWorkspace::new();
            home.write("config.json", text);
            let env = [("GREENROOM_HOME".to_owned(), home.home().display().to_string())].into();
            let loaded =
                crate::config::survey(&crate::config::LoadRequest { config: None, workspace: None, env }).unwrap();
            let found: Vec<_> =
                loaded.problems.iter().map(|problem| (problem.path.clone(), problem.what.clone())).collect();
            assert!(found.iter().any(|(at, what)| at == path && what.contains(said)), "{text}: {found:?}");
        }
    }
}
