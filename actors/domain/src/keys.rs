//! Session keys: every form in which nanobot and OpenClaw name a conversation, read and written.
//!
//! | form | what |
//! |---|---|
//! | `agent:<id>:<mainKey>` | the owner's main session |
//! | `agent:<id>:direct:<peer>`, `agent:<id>:<channel>[:<account>]:direct:<peer>` | one person |
//! | `agent:<id>:<channel>:group:<id>`, `…:channel:<id>` | a group or room |
//! | `<any of these>:thread:<id>`, `…:topic:<id>` | a thread in it |
//! | `agent:<id>:cron:<job>[:run:<session>]`, `cron:<job>`, `dream:<time>` | work that nobody asked for just now |
//! | `agent:<id>:subagent:<uuid>` | a child session |
//! | `agent:<id>:hook:<uuid>`, `hook:<uuid>` | an event from outside |
//! | `agent:<id>:<prefix>-user:<user>`, `agent:<id>:<prefix>:<uuid>`, `api:<session>` | the OpenAI-compatible API |
//! | `agent:<id>:dashboard:<uuid>`, `…:acp:<uuid>`, `acp-bridge…`, `node:…`, `global`, `unknown` | others of OpenClaw |
//! | `<base>:heartbeat`, `heartbeat` | heartbeats |
//! | `<channel>:<chat>`, `<channel>:<chat>:thread:<id>`, `slack:<chat>:<thread>` | a chat, as nanobot names it |
//! | `unified:default`, `cli:…`, `websocket:<chat>` | all chats in one; the terminal; the WebSocket |
//!
//! Anything else is [`Base::Other`]. Reading never fails, and what is printed reads as the same again.
//!
//! Keys with an agent are lower-cased, as OpenClaw does, except for ids that differ by case alone: Signal groups,
//! Matrix rooms and threads, and what the senders of the webhook choose. The legacy `dm` becomes `direct`, and
//! `agent:<id>:<mainKey>:<channel>:<account>:<kind>:<peer>`, which older notes show, its form of today. Keys without an
//! agent are kept letter by letter, as nanobot does.
//!
//! **Source:** `openclaw` 2026.6.11 and `nanobot-ai` 0.3.5.

mod agent;
mod bind;
mod kind;
mod parse;
mod print;
mod route;
#[cfg(test)]
mod tests;
mod unified;

pub use agent::AgentId;
pub use bind::{Binding, Claim};
pub use kind::SessionKind;
pub use route::{DmScope, IdentityLinks, Inbound, Peer, PeerKind, Router};
pub use unified::UNIFIED_KEY;

/// The main key that is meant when none is configured.
pub const MAIN_KEY: &str = "main";

/// A session key, understood.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Key {
    /// Which conversation.
    pub base: Base,
    /// Which thread of it.
    pub branch: Option<Branch>,
    /// Whether it is the conversation's heartbeat.
    pub heartbeat: bool,
}

/// A conversation without its threads.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Base {
    /// `agent:<id>:…`.
    Agent(AgentId, Place),
    /// `<channel>:<chat>`.
    Chat {
        /// Platform.
        channel: String,
        /// Chat id of the platform.
        chat: String,
    },
    /// `websocket:<chat>`.
    WebSocket(String),
    /// `api:<session>`, `api:user:<user>`, `api:default`, `api:req:<turn>`.
    Api(String),
    /// `cli:<name>`.
    Cli(String),
    /// `hook:<id>`.
    Hook(String),
    /// `cron:<job>`.
    Cron(String),
    /// `dream:<time>`.
    Dream(String),
    /// `node:<…>`.
    Node(String),
    /// `acp-bridge`, with what follows it.
    AcpBridge(String),
    /// `unified:default`: every chat in one session.
    Unified,
    /// `heartbeat`.
    Heartbeat,
    /// `global`: one session for all.
    Global,
    /// `unknown`.
    Unknown,
    /// Of no known form.
    Other(String),
}

/// What stands behind `agent:<id>:`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Place {
    /// `<mainKey>`.
    Main(String),
    /// `[<channel>:[<account>:]]direct:<peer>`.
    Direct {
        /// Platform, with a per-channel scope.
        channel: Option<String>,
        /// Account of the bot there, with a per-account scope.
        account: Option<String>,
        /// The person.
        peer: String,
    },
    /// `<channel>:group:<id>`.
    Group {
        /// Platform.
        channel: String,
        /// The group.
        id: String,
    },
    /// `<channel>:channel:<id>`.
    Room {
        /// Platform.
        channel: String,
        /// The room.
        id: String,
    },
    /// `cron:<job>[:run:<session>]`.
    Cron {
        /// The job.
        job: String,
        /// The session of one run of it.
        run: Option<String>,
    },
    /// `subagent:<id>`.
    Subagent(String),
    /// `hook:<id>`.
    Hook(String),
    /// `dashboard:<id>`.
    Dashboard(String),
    /// `acp:<id>`.
    Acp(String),
    /// `<prefix>-user:<user>`.
    ApiUser {
        /// Which API.
        prefix: String,
        /// The user that its client named.
        user: String,
    },
    /// `<prefix>:<uuid>`.
    ApiRequest {
        /// Which API.
        prefix: String,
        /// A fresh UUID for each request.
        id: String,
    },
    /// Of no known form.
    Other(String),
}

/// A thread of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Branch {
    /// `:thread:<id>`.
    Thread(String),
    /// `:topic:<id>`, of Telegram forums.
    Topic(String),
    /// `:<id>`, of nanobot's Slack, Mattermost and Feishu.
    Reply(String),
}

// === impl Place ===

impl Place {
    /// Channel and chat.
    fn whereabouts(&self) -> (Option<&str>, Option<&str>) {
        match self {
            Self::Direct { channel, peer, .. } => (channel.as_deref(), Some(peer)),
            Self::Group { channel, id, .. } | Self::Room { channel, id, .. } => (Some(channel), Some(id)),
            Self::Main(_)
            | Self::Cron { .. }
            | Self::Subagent(_)
            | Self::Hook(_)
            | Self::Dashboard(_)
            | Self::Acp(_)
            | Self::ApiUser { .. }
            | Self::ApiRequest { .. }
            | Self::Other(_) => (None, None),
        }
    }
}

// === impl Base ===

impl Base {
    /// The agent and the place, of a key that names them.
    pub fn of_agent(&self) -> Option<(&AgentId, &Place)> {
        if let Self::Agent(agent, place) = self { Some((agent, place)) } else { None }
    }
}

// === impl Key ===

impl Key {
    /// A conversation itself.
    pub fn of(base: Base) -> Self {
        Self { base, branch: None, heartbeat: false }
    }

    /// The platform or door it is on, where the key says so.
    pub fn channel(&self) -> Option<&str> {
        self.whereabouts().0
    }

    /// The chat, room or person, as the platform names it, where the key says so.
    pub fn chat(&self) -> Option<&str> {
        self.whereabouts().1
    }

    /// Channel and chat.
    fn whereabouts(&self) -> (Option<&str>, Option<&str>) {
        match &self.base {
            Base::Agent(_, place) => place.whereabouts(),
            Base::Chat { channel, chat } => (Some(channel), Some(chat)),
            Base::WebSocket(id) => (Some("websocket"), Some(id)),
            Base::Api(id) => (Some("api"), Some(id)),
            Base::Cli(id) => (Some("cli"), Some(id)),
            Base::Hook(_)
            | Base::Cron(_)
            | Base::Dream(_)
            | Base::Node(_)
            | Base::AcpBridge(_)
            | Base::Unified
            | Base::Heartbeat
            | Base::Global
            | Base::Unknown
            | Base::Other(_) => (None, None),
        }
    }

    /// Whether it names a conversation of one request, which nothing outlives.
    pub fn is_ephemeral(&self) -> bool {
        match &self.base {
            Base::Api(session) => session.starts_with("req:"),
            Base::Agent(_, place) => matches!(place, Place::ApiRequest { .. }),
            Base::Chat { .. }
            | Base::WebSocket(_)
            | Base::Cli(_)
            | Base::Hook(_)
            | Base::Cron(_)
            | Base::Dream(_)
            | Base::Node(_)
            | Base::AcpBridge(_)
            | Base::Unified
            | Base::Heartbeat
            | Base::Global
            | Base::Unknown
            | Base::Other(_) => false,
        }
    }

    /// Whether it names work that nobody asked for just now: jobs, dreams, heartbeats, children.
    pub fn is_internal(&self) -> bool {
        self.heartbeat
            || match &self.base {
                Base::Agent(_, place) => matches!(place, Place::Cron { .. } | Place::Subagent(_)),
                Base::Cron(_) | Base::Dream(_) | Base::Heartbeat => true,
                Base::Chat { .. }
                | Base::WebSocket(_)
                | Base::Api(_)
                | Base::Cli(_)
                | Base::Hook(_)
                | Base::Node(_)
                | Base::AcpBridge(_)
                | Base::Unified
                | Base::Global
                | Base::Unknown
                | Base::Other(_) => false,
            }
    }

    /// How many sessions up its ancestor is that is no child, as far as the key says: 0 for anything but a child.
    pub fn subagent_depth(&self) -> usize {
        let Base::Agent(_, Place::Subagent(id)) = &self.base else { return 0 };
        1 + id.matches(":subagent:").count()
    }
}
