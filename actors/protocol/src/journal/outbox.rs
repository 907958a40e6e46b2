//! What leaves: replies to be pushed to a channel, and what was given up.
//!
//! ```text
//!  Commit.out ─▶ open row ── Sending ─▶ sending ── Sent ─▶ gone
//!                   ▲           └─────────┬─────────┘
//!                   │                     └── Undeliverable ─▶ dead letter (kind delivery) ── drop ─▶ gone
//!                   └──────────────────── redeliver ─────────────────┘
//! ```
//!
//! A row is written in the same commit as the end of its turn, so it is there exactly when the turn is done. Rows of
//! one chat are in the order of their commits, also after a restart.

use std::sync::Arc;

use domain::ids::{DeliveryId, LetterId, MessageId, SessionKey, TurnId};

use super::Accepted;
use crate::turn::PushRoute;

/// One part of a reply on its way to a channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Out {
    /// Its name, the same at each try: what a receiver recognizes a repeat by.
    pub id: DeliveryId,
    /// The turn that said it; the one in `id`.
    pub turn: TurnId,
    /// Where it goes.
    pub route: PushRoute,
    /// Of how many parts it is one.
    pub parts: u32,
    /// What is said.
    pub text: Arc<str>,
}

/// An open row of the outbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutRow {
    /// The delivery.
    pub out: Out,
    /// The session that it comes from.
    pub key: SessionKey,
    /// When it was committed, or opened again, in ms since 1970.
    pub committed_ms: u64,
    /// A send was begun and no end of it is known: the next one is a repeat.
    pub sending: bool,
}

/// Which open rows are wanted: the oldest of a channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AskRows {
    /// The channel.
    pub channel: Arc<str>,
    /// At most so many.
    pub rows_max: usize,
    /// At most about so many bytes; a first one is given, however large.
    pub bytes_max: usize,
}

/// Open rows of a channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rows {
    /// In the order of their commits.
    pub rows: Vec<OutRow>,
    /// How many more there are.
    pub left: u64,
}

/// Where rows go: the deliverer. Called for each row once it is durable, in log order, from the journal's thread, before
/// the commit is answered: must not block. Rows that were redelivered come here, too.
pub trait OutSink: Send + Sync + 'static {
    /// Takes one row.
    fn out(&self, row: OutRow);
}

/// What was given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LetterKind {
    /// A turn that crashed its session too often.
    Turn,
    /// A delivery that its channel did not take.
    Delivery,
}

/// A dead letter.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct DeadLetter {
    /// Its name.
    pub id: LetterId,
    /// What it is.
    pub kind: LetterKind,
    /// The turn, also of a delivery.
    pub turn: TurnId,
    /// Session.
    pub key: SessionKey,
    /// The sender's id of the message, of a turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_id: Option<MessageId>,
    /// The channel, of a delivery.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channel: Option<Arc<str>>,
    /// Why.
    pub reason: Arc<str>,
    /// When, ms since 1970.
    pub at_ms: u64,
}

/// What a dead letter is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LetterContent {
    /// The message of a turn.
    Message(Arc<Accepted>),
    /// A delivery.
    Row(OutRow),
    /// It is not to be had.
    Missing {
        /// Why.
        why: String,
    },
}

/// A dead letter with what it is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LetterDetail {
    /// The letter.
    pub letter: DeadLetter,
    /// What it is about.
    pub content: LetterContent,
}
