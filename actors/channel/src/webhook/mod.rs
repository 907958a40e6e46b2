//! A push channel for programs: messages come in and replies go out by HTTP.
//!
//! **In:** `POST /webhook` with a bearer token:
//!
//! ```json
//! {"chat_id":"7","message_id":"m1","text":"Hello","thread":"t1","sender":"ann"}
//! ```
//!
//! `thread` and `sender` may be left out. Once the message is on disk: 202 with `{"turn_id","seq","position","state"}`.
//! The same `message_id` again starts nothing (`"state":"duplicate"`). Its session is `webhook:<chat_id>`, or
//! `webhook:<chat_id>:thread:<thread>`, unless sessions are shared in another way: then a message whose sender is not
//! its chat counts as one of a group.
//!
//! **Out:** one `POST` to the configured address for each message:
//!
//! ```json
//! {"id":"0193…:1","chat_id":"7","thread":"t1","text":"Hi","turn_id":"0193…","part":1,"parts":1,"repeat":false}
//! ```
//!
//! The id is the same in each attempt and stands in the headers `Idempotency-Key` and `webhook-id`, too; with a secret,
//! the request is signed ([`SigningSecret`]).

mod receive;
mod send;
mod serve;
mod sign;

use std::sync::Arc;
use std::time::Duration;

use domain::keys::Router;

use crate::auth::Secret;
pub use send::{Sender, SenderConfig};
pub use serve::serve;
pub use sign::{BadSecret, SigningSecret};

/// The name of the channel, in routes and session keys.
pub const CHANNEL: &str = "webhook";

/// What the door is told by the configuration.
#[derive(Debug, Clone)]
pub struct WebhookConfig {
    /// What senders show as `Authorization: Bearer`.
    pub token: Option<Secret>,
    /// Who may write (`sender`, or else `chat_id`); `*` is everybody.
    pub allow_from: Vec<String>,
    /// How messages find their sessions, if not each chat has its own.
    pub router: Option<Arc<Router>>,
    /// Connections at once.
    pub connections_max: usize,
    /// How long running responses may take after the stop began.
    pub drain: Duration,
}
