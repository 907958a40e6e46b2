//! What is open of one session, for people who ask.

use std::sync::Arc;

use domain::ids::{DeliveryId, MessageId, Seq, TurnId};

/// Turns that have not ended and replies that are not delivered.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OpenWork {
    /// In the order in which they run.
    pub turns: Vec<OpenTurn>,
    /// In the order of their commits.
    pub rows: Vec<OpenRow>,
}

/// A turn that waits or runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenTurn {
    /// Turn.
    pub turn: TurnId,
    /// Its place in the session's order.
    pub seq: Seq,
    /// The sender's id of its message.
    pub message_id: MessageId,
    /// When it was accepted, ms since 1970.
    pub accepted_ms: u64,
}

/// A reply on its way to a channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenRow {
    /// The delivery.
    pub id: DeliveryId,
    /// The channel.
    pub channel: Arc<str>,
}
