//! The sections about conversations: `session` and `bindings`.
//!
//! **Source of names:** `openclaw` 2026.6.11, as far as it has them; `session.policies` is Greenroom's own.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::key::{Key, Kind, Section};

/// A hundred years, in days.
const DAYS_MAX: u64 = 36_525;
/// A year, in minutes.
const IDLE_MINUTES_MAX: u64 = 525_600;
/// Words of [`ToolProfile`].
pub(super) const TOOL_PROFILES: &[&str] = &["minimal", "coding", "messaging", "full"];

/// A set of tools for a purpose: see `domain::policy::Profile`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(rename_all = "lowercase")]
pub enum ToolProfile {
    /// The session's own status.
    Minimal,
    /// Files, commands, sessions, memory, images.
    Coding,
    /// Messages and sessions.
    Messaging,
    /// All tools.
    Full,
}

section! {
    /// `session`.
    Session {
        /// How the direct messages of several people share sessions. Not set: each chat has its own, named as nanobot does.
        dm_scope: Option<DmScopeWord> = None,
            Kind::Choice(&["main", "per-peer", "per-channel-peer", "per-account-channel-peer"]);
        /// Who is the same person on several platforms: a name, then ids, as they are or as `<channel>:<id>`.
        identity_links: BTreeMap<String, Vec<String>> = BTreeMap::new(), Kind::TextLists;
        /// The last part of the main session's key.
        main_key: String = "main".into(), Kind::Text;
        /// Whether the model is told with each message when and where it was said.
        runtime_context: bool = true, Kind::Flag;
        /// Whether the model names a conversation after its first answer, unless somebody has.
        titles: bool = true, Kind::Flag;
        /// What sessions may do, by their kind.
        policies: PolicyTable = PolicyTable::default(), Kind::Section(PolicyTable::SECTION);
        /// When sessions begin anew by themselves.
        reset: ResetConfig = ResetConfig::default(), Kind::Section(ResetConfig::SECTION);
        /// The same for some kinds of sessions.
        reset_by_type: ResetByType = ResetByType::default(), Kind::Section(ResetByType::SECTION);
        /// The same for some channels; takes the place of everything else.
        reset_by_channel: BTreeMap<String, ResetConfig> = BTreeMap::new(), Kind::Named(ResetConfig::SECTION);
        /// Which old sessions have to go.
        maintenance: Maintenance = Maintenance::default(), Kind::Section(Maintenance::SECTION);
    }
    unused ["scope" "store" "agent_to_agent" "send_policy" "thread_bindings" "write_lock" "reset_triggers"]
}

section! {
    /// `session.maintenance`: see `domain::retention`. Nothing goes unless a limit is set.
    Maintenance {
        /// What the gateway does once a day: tell what would go, or let it go. Not set: nothing. `sessions prune` only
        /// tells unless it is `enforce`.
        mode: Option<MaintenanceMode> = None, Kind::Choice(&["warn", "enforce"]);
        /// Days since the last message after which a session goes; and since it was put away, a file.
        prune_after_days: Option<u64> = None, Kind::Whole(1, DAYS_MAX);
        /// Sessions, at most.
        max_entries: Option<u64> = None, Kind::Whole(1, u64::MAX);
        /// Bytes of sessions, archive and tombstones together, at most.
        max_disk_bytes: Option<u64> = None, Kind::Whole(1, u64::MAX);
    }
    unused ["prune_after" "rotate_bytes" "reset_archive_retention" "high_water_bytes"]
}

/// What the gateway does about old sessions by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(rename_all = "lowercase")]
pub enum MaintenanceMode {
    /// It tells.
    Warn,
    /// It lets them go.
    Enforce,
}

/// How direct messages share sessions: see `domain::keys::DmScope`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(rename_all = "kebab-case")]
pub enum DmScopeWord {
    /// All in the main session.
    Main,
    /// A session for each person.
    PerPeer,
    /// A session for each person and platform.
    PerChannelPeer,
    /// A session for each person, platform and account.
    PerAccountChannelPeer,
}

section! {
    /// `session.policies`: one for each kind of session; see `domain::policy` for what holds where nothing is set.
    PolicyTable {
        /// The owner's main session.
        main: PolicyConfig = PolicyConfig::default(), Kind::Section(PolicyConfig::SECTION);
        /// One person on a messaging platform.
        direct: PolicyConfig = PolicyConfig::default(), Kind::Section(PolicyConfig::SECTION);
        /// Several people on a messaging platform.
        group: PolicyConfig = PolicyConfig::default(), Kind::Section(PolicyConfig::SECTION);
        /// A thread of any conversation.
        thread: PolicyConfig = PolicyConfig::default(), Kind::Section(PolicyConfig::SECTION);
        /// A scheduled job.
        cron: PolicyConfig = PolicyConfig::default(), Kind::Section(PolicyConfig::SECTION);
        /// An event from outside.
        hook: PolicyConfig = PolicyConfig::default(), Kind::Section(PolicyConfig::SECTION);
        /// A child session.
        subagent: PolicyConfig = PolicyConfig::default(), Kind::Section(PolicyConfig::SECTION);
        /// The heartbeat.
        heartbeat: PolicyConfig = PolicyConfig::default(), Kind::Section(PolicyConfig::SECTION);
        /// The OpenAI-compatible API.
        api: PolicyConfig = PolicyConfig::default(), Kind::Section(PolicyConfig::SECTION);
        /// The WebSocket.
        websocket: PolicyConfig = PolicyConfig::default(), Kind::Section(PolicyConfig::SECTION);
        /// The terminal.
        cli: PolicyConfig = PolicyConfig::default(), Kind::Section(PolicyConfig::SECTION);
        /// Anything else.
        unknown: PolicyConfig = PolicyConfig::default(), Kind::Section(PolicyConfig::SECTION);
    }
    unused []
}

section! {
    /// What one kind of session may do; what is not set is as for that kind by default.
    PolicyConfig {
        /// Its tools.
        profile: Option<ToolProfile> = None, Kind::Choice(TOOL_PROFILES);
        /// If not empty, only these of them: names, `*` in names, `group:<name>`.
        allow: Vec<String> = Vec::new(), Kind::ToolPatterns;
        /// None of these.
        deny: Vec<String> = Vec::new(), Kind::ToolPatterns;
        /// How commands run.
        sandbox: Option<SandboxWord> = None, Kind::Choice(&["configured", "required"]);
        /// Whether sandboxed commands reach the network.
        network: Option<bool> = None, Kind::Flag;
        /// What is open of the workspace.
        workspace_access: Option<WorkspaceWord> = None, Kind::Choice(&["none", "ro", "rw"]);
        /// The model that answers.
        model: Option<String> = None, Kind::OptionalText;
    }
    unused []
}

/// How commands of a kind of session run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(rename_all = "lowercase")]
pub enum SandboxWord {
    /// As `tools.exec.sandbox` says.
    Configured,
    /// In a sandbox, or not at all.
    Required,
}

/// What is open of the workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(rename_all = "lowercase")]
pub enum WorkspaceWord {
    /// Nothing.
    None,
    /// It can be read.
    Ro,
    /// It can be read and written.
    Rw,
}

section! {
    /// When sessions begin anew by themselves.
    ResetConfig {
        /// `daily` counts from the session's start, and with `idleMinutes` from the last message too; `idle` only from
        /// that. Not set: what the other two keys say.
        mode: Option<ResetMode> = None, Kind::Choice(&["none", "daily", "idle"]);
        /// The hour of the day, in `agents.defaults.timezone`.
        at_hour: Option<u8> = None, Kind::Whole(0, 23);
        /// Minutes without a message of a person; 0 is never.
        idle_minutes: u32 = 0, Kind::Whole(0, IDLE_MINUTES_MAX);
    }
    unused []
}

/// What a reset is counted from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(rename_all = "lowercase")]
pub enum ResetMode {
    /// Nothing: never.
    None,
    /// The session's start.
    Daily,
    /// The last message.
    Idle,
}

section! {
    /// `session.resetByType`.
    ResetByType {
        /// Conversations with one person.
        direct: Option<ResetConfig> = None, Kind::Section(ResetConfig::SECTION);
        /// Groups and rooms.
        group: Option<ResetConfig> = None, Kind::Section(ResetConfig::SECTION);
        /// Threads.
        thread: Option<ResetConfig> = None, Kind::Section(ResetConfig::SECTION);
    }
    unused []
}

/// One entry of `bindings`. Written out, because `match` is no name in Rust.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(default, deny_unknown_fields)]
pub struct BindingConfig {
    /// The agent.
    pub agent_id: String,
    /// Which messages are for it.
    #[serde(rename = "match")]
    pub claim: BindingMatch,
}

impl BindingConfig {
    pub(super) const SECTION: &'static Section = &Section {
        keys: &[
            Key { name: "agent_id", kind: Kind::Text },
            Key { name: "match", kind: Kind::Section(BindingMatch::SECTION) },
        ],
        unused: &["comment"],
    };
}

section! {
    /// `match` of a binding: all that is named must be so.
    #[derive(Eq)]
    BindingMatch {
        /// Platform.
        channel: String = String::new(), Kind::Text;
        /// Account of the bot there; not set is `default`, `*` is every one.
        account_id: Option<String> = None, Kind::OptionalText;
        /// With whom.
        peer: Option<BindingPeer> = None, Kind::Section(BindingPeer::SECTION);
        /// Discord server.
        guild_id: Option<String> = None, Kind::OptionalText;
        /// Roles there; one of them is enough.
        roles: Vec<String> = Vec::new(), Kind::TextList;
        /// Slack or Teams workspace.
        team_id: Option<String> = None, Kind::OptionalText;
    }
    unused []
}

section! {
    /// `peer` of a binding.
    #[derive(Eq)]
    BindingPeer {
        /// What it is.
        kind: PeerKindWord = PeerKindWord::Direct, Kind::Choice(&["direct", "dm", "group", "channel"]);
        /// Its id on the platform; `*` is every one.
        id: String = "*".into(), Kind::Text;
    }
    unused []
}

/// What a conversation is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(rename_all = "lowercase")]
pub enum PeerKindWord {
    /// One person.
    #[serde(alias = "dm")]
    Direct,
    /// A group.
    Group,
    /// A room.
    Channel,
}
