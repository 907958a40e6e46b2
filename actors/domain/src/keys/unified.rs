//! One session for all that the owner says, whichever door it comes through.
//!
//! Only conversations that nobody but the owner can reach, and that nobody gave a name of their own, become one: chats of
//! the WebSocket, requests to the API that name neither session nor user, the terminal, and the main session. So direct
//! messages of a channel join only where they share the main session already; groups, threads and jobs never do.

use super::{AgentId, Base, Key, Place};
use crate::ids::SessionKey;

/// The session that they become.
pub const UNIFIED_KEY: &str = "unified:default";

// === impl Key ===

impl Key {
    /// Whether it names a conversation that becomes part of the unified session.
    pub fn is_unifiable(&self, main_key: &str) -> bool {
        self.branch.is_none()
            && !self.heartbeat
            && match &self.base {
                Base::WebSocket(_) | Base::Unified => true,
                Base::Api(session) => session == "default",
                Base::Cli(name) => name == "direct",
                Base::Agent(agent, Place::Main(key)) => *agent == AgentId::default() && key == main_key,
                Base::Agent(
                    _,
                    Place::Direct { .. }
                    | Place::Group { .. }
                    | Place::Room { .. }
                    | Place::Cron { .. }
                    | Place::Subagent(_)
                    | Place::Hook(_)
                    | Place::Dashboard(_)
                    | Place::Acp(_)
                    | Place::ApiUser { .. }
                    | Place::ApiRequest { .. }
                    | Place::Other(_),
                )
                | Base::Chat { .. }
                | Base::Hook(_)
                | Base::Cron(_)
                | Base::Dream(_)
                | Base::Node(_)
                | Base::AcpBridge(_)
                | Base::Heartbeat
                | Base::Global
                | Base::Unknown
                | Base::Other(_) => false,
            }
    }

    /// The unified session in place of a conversation that becomes part of it; any other stays what it is.
    pub fn unified(key: SessionKey, main_key: &str) -> SessionKey {
        if Self::from(&key).is_unifiable(main_key) {
            SessionKey::new(UNIFIED_KEY).expect("a literal of letters")
        } else {
            key
        }
    }
}
