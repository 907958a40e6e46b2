//! How answers are to be written for the place where they are read.

use crate::keys::{Base, Key};

/// What a place shows. It goes by the session's key, not by the message, so that it never changes within a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Hint {
    /// Nothing is known of it.
    None,
    /// Telegram, QQ, Discord: messengers with some Markdown.
    Chat,
    /// WhatsApp, text messages: plain text.
    Plain,
    /// Electronic mail.
    Email,
    /// The terminal, MoChat.
    Terminal,
}

// === impl Hint ===

impl Hint {
    /// Of the session's place. One session for all places has none.
    pub fn of(key: &Key) -> Self {
        if key.base == Base::Unified {
            return Self::None;
        }
        match key.channel() {
            Some("telegram" | "qq" | "discord") => Self::Chat,
            Some("whatsapp" | "sms") => Self::Plain,
            Some("email") => Self::Email,
            Some("cli" | "mochat") => Self::Terminal,
            Some(_) | None => Self::None,
        }
    }

    /// What the model is told.
    pub(super) fn text(self) -> Option<&'static str> {
        match self {
            Self::None => None,
            Self::Chat => Some(
                "This is a messenger. Keep paragraphs short and use little Markdown: no large headings and no tables.",
            ),
            Self::Plain => Some("This is a messenger that shows plain text only: use no Markdown."),
            Self::Email => {
                Some("This is an email. Give it clear sections and simple formatting; Markdown may not be shown.")
            }
            Self::Terminal => {
                Some("This is a terminal. Write plain text with little Markdown: no headings and no tables.")
            }
        }
    }
}
