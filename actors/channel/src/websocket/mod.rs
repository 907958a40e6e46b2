//! The WebSocket door: nanobot's protocol, JSON text frames in both directions.
//!
//! Handshake `GET <path>?client_id=..&token=..`; then `ready`, and any number of chats on one connection. A chat is the
//! session `websocket:<chat_id>`, or all are one: then a chat is shown the turns that it asked for, and no other. Every message is durable; a frame with a `message_id` is told so:
//!
//! ```json
//! {"type":"message","chat_id":"a","content":"hi","message_id":"m1"}
//! {"event":"accepted","chat_id":"a","message_id":"m1","turn_id":"0193…","seq":1,"position":0,"state":"running"}
//! {"event":"delta","chat_id":"a","text":"Hel","stream_id":"0193….1.1","turn_id":"0193…","attempt":1,"seq":2}
//! ```
//!
//! `<turn_id>.<attempt>.<seq>` of the last event seen is the cursor for `{"type":"attach","chat_id":"a","after":".."}`.
//! Errors are events; only a frame over the limit (1009), broken UTF-8 (1007), a peer that is gone (1011) and one that
//! reads too slowly (1013) end the connection.
//!
//! `frames` reads and `shows` writes frames, both pure; `connection` reads a socket, `writer` fills it.

mod asked;
pub(crate) mod connection;
pub(crate) mod frames;
pub(crate) mod order;
mod scoped;
mod serve;
pub(crate) mod shows;
mod tokens;
pub(crate) mod writer;

use std::sync::Arc;
use std::time::Duration;

use crate::auth::Secret;
pub use scoped::ProjectRules;
pub use serve::serve;

/// What the door is told by the configuration.
#[derive(Debug, Clone)]
pub struct WebsocketConfig {
    /// Path of the handshake, for example `/`.
    pub path: String,
    /// A token that every client may show.
    pub token: Option<Secret>,
    /// Where single-use tokens are issued.
    pub issue: Option<TokenIssue>,
    /// How long an issued token is valid.
    pub token_ttl: Duration,
    /// Whether a client must show an issued token when there is no static one. Without a place that issues them this
    /// has no effect: nobody could come in.
    pub requires_token: bool,
    /// Client ids that are let in; `*` is everybody.
    pub allow_from: Vec<String>,
    /// Pages that may connect besides those of the same host and port.
    pub allowed_origins: Vec<String>,
    /// Whether all chats are one session, the unified one.
    pub unified: bool,
    /// What clients are shown of a turn besides its answer.
    pub showing: Showing,
    /// Which projects chats may work in.
    pub projects: Arc<ProjectRules>,
    /// Largest frame.
    pub max_message_bytes: usize,
    /// How often a ping is sent.
    pub ping_interval: Duration,
    /// How long a client may be silent after one.
    pub ping_timeout: Duration,
    /// Connections at once.
    pub connections_max: usize,
    /// How long running turns may be followed after the stop began.
    pub drain: Duration,
}

/// What clients are shown of a turn besides its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Showing {
    /// Text while it is made.
    pub streaming: bool,
    /// What tools were asked and gave, what they made of files, and, without streaming, what the model says in between.
    pub progress: bool,
    /// What a tool does, in a few words.
    pub tool_hints: bool,
    /// Of so many characters.
    pub tool_hint_chars_max: usize,
    /// What the model thinks, where `streaming` is set.
    pub reasoning: bool,
}

impl Default for Showing {
    fn default() -> Self {
        Self { streaming: true, progress: true, tool_hints: true, tool_hint_chars_max: 40, reasoning: true }
    }
}

/// Where single-use tokens are issued.
#[derive(Debug, Clone)]
pub struct TokenIssue {
    /// Path.
    pub path: String,
    /// What a client shows as `Authorization: Bearer` or `X-Nanobot-Auth`.
    pub secret: Secret,
}

impl Default for WebsocketConfig {
    fn default() -> Self {
        Self {
            path: "/".to_owned(),
            token: None,
            issue: None,
            token_ttl: Duration::from_secs(300),
            requires_token: true,
            allow_from: vec!["*".to_owned()],
            allowed_origins: Vec::new(),
            unified: false,
            showing: Showing::default(),
            projects: Arc::default(),
            max_message_bytes: 37_748_736,
            ping_interval: Duration::from_secs(20),
            ping_timeout: Duration::from_secs(20),
            connections_max: 10_000,
            drain: Duration::from_secs(30),
        }
    }
}
