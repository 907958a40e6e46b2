//! What the memory actor (one per process) is asked.
//!
//! | message | from | answer | order |
//! |---|---|---|---|
//! | [`AskDream`] | session | one text at `reply` | any |
//! | [`Summarise`] | session | one [`Summarised`] at `reply_to`, none once it is cancelled | any |
//!
//! When [`Summarised`] arrives, what was summarised is a line of `memory/history.jsonl` on the device, or the disk has
//! refused it, which is logged: the transcript has it all the same. Asked again, it is summarised again, and its line stays
//! the first one. Of what is [`Failed`](Summary::Failed), there is no line.

use std::sync::Arc;

use actix::Recipient;
use domain::command::DreamAsk;
use domain::ids::SessionKey;
use domain::request::ChatRequest;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::edit::Part;
use crate::turn::{Pulse, Stamp};

/// Asks for a summary of a part of a conversation. It waits for the right to call the model itself.
#[derive(Debug, actix::Message)]
#[rtype(result = "()")]
pub struct Summarise {
    /// Who asks. No two requests under way have the same.
    pub stamp: Stamp,
    /// Of whose conversation.
    pub key: SessionKey,
    /// Which part. What is kept of it is one line, however often it is asked for.
    pub part: Part,
    /// The part, and what is asked of the model behind it. `None`: it is more than one request holds, and is archived as it
    /// is.
    pub request: Option<ChatRequest>,
    /// The part as text, for the archive, should the model fail.
    pub raw: Arc<str>,
    /// Beats whenever it gets on.
    pub pulse: Pulse,
    /// Gives it up.
    pub cancel: CancellationToken,
    /// Whether it is archived so with this failure, instead of being asked for again later.
    pub is_last: bool,
    /// Where the answer goes.
    pub reply_to: Recipient<Summarised>,
}

/// A part of a conversation was summarised.
#[derive(Debug, Clone, PartialEq, Eq, actix::Message)]
#[rtype(result = "()")]
pub struct Summarised {
    /// Of the asker.
    pub stamp: Stamp,
    /// What came of it.
    pub summary: Summary,
}

/// What came of a summary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Summary {
    /// The model's words.
    Text(Arc<str>),
    /// The model found nothing worth keeping.
    Nothing,
    /// The model gave none, and is asked again another time: nothing was archived. Why, in a word.
    Failed(&'static str),
    /// The model gave none, for the last time: the part was archived as it is. Why, in a word.
    Raw(&'static str),
}

impl Summary {
    /// Its word in metrics.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Text(_) => "text",
            Self::Nothing => "nothing",
            Self::Failed(_) => "failed",
            Self::Raw(_) => "raw",
        }
    }
}

/// A person wants something of Dream, or of what it made.
#[derive(Debug, actix::Message)]
#[rtype(result = "()")]
pub struct AskDream {
    /// What.
    pub ask: DreamAsk,
    /// What they are told. Of what changes something, that is on the device then.
    pub reply: oneshot::Sender<String>,
}
