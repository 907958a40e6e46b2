//! The session actor: one per conversation.
