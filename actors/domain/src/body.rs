//! What a door hands over for one turn, exactly as the journal keeps it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::chat::Content;
use crate::event::Event;
use crate::run::{RunSpec, Saying};

/// Who said a message of the request's own context.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ContextRole {
    /// Instructions; follow our own system prompt for this turn.
    System,
    /// An earlier user message.
    User,
    /// An earlier answer.
    Assistant,
}

/// A message that a client sent along for this turn only. It is shown to the model and never stored in the transcript.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContextMessage {
    /// Who said it.
    pub role: ContextRole,
    /// What was said.
    pub text: String,
}

/// Which history the model sees besides the message itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HistorySource {
    /// The session's transcript.
    #[default]
    Session,
    /// Only what `context` holds: the client brought its own history.
    Request,
}

/// Who is told how a message fared, and so what can be done about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reader {
    /// Whoever talks with the session.
    Chat,
    /// A client that brings the history with each request.
    Client,
    /// The session that sent a sub-agent off.
    Parent,
}

/// One user message on its way into a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnBody {
    /// What the user said; becomes the user entry.
    pub content: Arc<[Content]>,
    /// Context of the request, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub context: Vec<ContextMessage>,
    /// Which history the model sees.
    #[serde(default)]
    pub history: HistorySource,
    /// Whether the session is archived as soon as this turn is done (stateless API calls).
    #[serde(default)]
    pub ephemeral: bool,
    /// Who sends it, if no person said it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<Arc<Event>>,
    /// What a sub-agent is sent to do, in its first message; and in others that it is told, with what they say as the task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<Arc<RunSpec>>,
    /// How it is said to a sub-agent that has begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saying: Option<Saying>,
    /// What is answered, if that is known already: then no model is called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub says: Option<Arc<str>>,
}

impl TurnBody {
    /// A plain text message.
    pub fn text(text: impl Into<String>) -> Self {
        Self {
            content: [Content::text(text)].into(),
            context: Vec::new(),
            history: HistorySource::Session,
            ephemeral: false,
            event: None,
            run: None,
            saying: None,
            says: None,
        }
    }

    /// Who reads what comes of it.
    pub fn reader(&self) -> Reader {
        match self.history {
            _ if self.run.is_some() => Reader::Parent,
            HistorySource::Session => Reader::Chat,
            HistorySource::Request => Reader::Client,
        }
    }

    /// The bytes that the journal keeps.
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a turn body has only string keys, so it always serialises")
    }

    /// Reads what [`encode`](Self::encode) wrote.
    pub fn decode(bytes: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(bytes)
    }
}

/// First 8 bytes of the SHA-256 of an encoded body: tells a repeated message from another one under the same id.
pub fn body_hash(encoded: &[u8]) -> u64 {
    let digest = Sha256::digest(encoded);
    digest.iter().take(8).fold(0, |hash, byte| hash << 8 | u64::from(*byte))
}
