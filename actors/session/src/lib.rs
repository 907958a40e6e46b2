//! The session actor: one per conversation.

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod inbox;
pub mod turn;
