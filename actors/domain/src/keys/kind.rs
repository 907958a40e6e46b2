//! What kind of session a key names.

use super::{Base, Key, Place};
use crate::ids::{SessionKey, Source};

/// Doors that only the owner can open: the terminal, and the WebSocket and the API, which listen on loopback or ask for
/// a token; and what the owner set up to happen by itself.
const OWNERS_DOORS: [&str; 7] = ["cli", "ws", "api", "cron", "heartbeat", "run", "trigger"];

/// Kinds of sessions, which decide what a session may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SessionKind {
    /// The owner's main session.
    Main,
    /// One person on a messaging platform.
    Direct,
    /// Several people on a messaging platform.
    Group,
    /// A thread of any conversation.
    Thread,
    /// A scheduled job.
    Cron,
    /// Work on the memory.
    Dream,
    /// An event from outside.
    Hook,
    /// A child session.
    Subagent,
    /// The heartbeat.
    Heartbeat,
    /// The OpenAI-compatible API.
    Api,
    /// The WebSocket.
    WebSocket,
    /// The terminal.
    Cli,
    /// Anything else.
    Unknown,
}

// === impl SessionKind ===

impl SessionKind {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::Main,
        Self::Direct,
        Self::Group,
        Self::Thread,
        Self::Cron,
        Self::Dream,
        Self::Hook,
        Self::Subagent,
        Self::Heartbeat,
        Self::Api,
        Self::WebSocket,
        Self::Cli,
        Self::Unknown,
    ];

    /// As it is written in a configuration.
    pub fn word(self) -> &'static str {
        match self {
            Self::Main => "main",
            Self::Direct => "direct",
            Self::Group => "group",
            Self::Thread => "thread",
            Self::Cron => "cron",
            Self::Dream => "dream",
            Self::Hook => "hook",
            Self::Subagent => "subagent",
            Self::Heartbeat => "heartbeat",
            Self::Api => "api",
            Self::WebSocket => "websocket",
            Self::Cli => "cli",
            Self::Unknown => "unknown",
        }
    }

    /// The kind of a turn that came through `source` into the session `key`: a main session, which channels can share,
    /// counts as somebody else's for as long as they speak in it. The other doors let only the owner in. What a hook tells
    /// comes from outside, whichever session it is told to.
    pub fn of_turn(key: &SessionKey, source: &Source, main_key: &str) -> Self {
        let kind = Key::from(key).kind(main_key);
        if source.is_hook() {
            return Self::Hook;
        }
        if kind == Self::Main && !OWNERS_DOORS.contains(&source.door()) { Self::Direct } else { kind }
    }
}

// === impl Key ===

impl Key {
    /// What kind of session it names. A chat whose key does not say that there is one person in it counts as a group.
    pub fn kind(&self, main_key: &str) -> SessionKind {
        if self.branch.is_some() {
            return SessionKind::Thread;
        }
        let kind = match &self.base {
            Base::Agent(_, place) => place_kind(place, main_key),
            Base::Chat { channel, chat } => chat_kind(channel, chat),
            Base::WebSocket(_) => SessionKind::WebSocket,
            Base::Api(_) => SessionKind::Api,
            Base::Cli(_) => SessionKind::Cli,
            Base::Hook(_) => SessionKind::Hook,
            Base::Cron(_) => SessionKind::Cron,
            Base::Dream(_) => SessionKind::Dream,
            Base::Unified => SessionKind::Main,
            Base::Heartbeat => SessionKind::Heartbeat,
            Base::Node(_) | Base::AcpBridge(_) | Base::Global | Base::Unknown | Base::Other(_) => SessionKind::Unknown,
        };
        // The heartbeat of somebody else's session has their rights.
        if self.heartbeat && kind == SessionKind::Main { SessionKind::Heartbeat } else { kind }
    }
}

fn place_kind(place: &Place, main_key: &str) -> SessionKind {
    match place {
        Place::Main(key) if key == main_key => SessionKind::Main,
        Place::Direct { .. } => SessionKind::Direct,
        Place::Group { .. } | Place::Room { .. } => SessionKind::Group,
        Place::Cron { .. } => SessionKind::Cron,
        Place::Subagent(_) => SessionKind::Subagent,
        Place::Hook(_) => SessionKind::Hook,
        Place::ApiUser { .. } | Place::ApiRequest { .. } => SessionKind::Api,
        Place::Main(_) | Place::Dashboard(_) | Place::Acp(_) | Place::Other(_) => SessionKind::Unknown,
    }
}

fn chat_kind(channel: &str, chat: &str) -> SessionKind {
    let one_person = match channel {
        "webhook" | "email" => true,
        "telegram" => chat.parse::<u64>().is_ok(),
        "slack" => chat.starts_with('D'),
        "whatsapp" => chat.ends_with("@s.whatsapp.net"),
        "signal" => chat.starts_with('+'),
        _ => false,
    };
    if one_person { SessionKind::Direct } else { SessionKind::Group }
}
