//! Which session a trigger tells, and which chat is answered.

use serde_json::Value;

use super::Trigger;
use crate::ids::{BadId, SessionKey};

/// A session and, if answers are sent, the chat that they go to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The session.
    pub key: SessionKey,
    /// Platform; may be none that is told.
    pub channel: String,
    /// Chat there.
    pub chat: String,
    /// Account of the bot there.
    pub account: Option<String>,
    /// Thread in the chat.
    pub thread: Option<String>,
}

// === impl Target ===

impl Target {
    /// A session, and the chat that its key begins to name.
    pub fn of_session(key: SessionKey) -> Self {
        let (channel, chat) = key.as_str().split_once(':').unwrap_or((key.as_str(), key.as_str()));
        let (channel, chat) = (channel.to_owned(), chat.to_owned());
        Self { key, channel, chat, account: None, thread: None }
    }

    /// That of a trigger.
    pub fn of(trigger: &Trigger) -> Result<Self, BadId> {
        let text = |name: &str| trigger.origin_metadata.get(name).and_then(Value::as_str).map(str::to_owned);
        Ok(Self {
            key: SessionKey::new(&trigger.session_key)?,
            channel: trigger.channel.clone(),
            chat: trigger.chat_id.clone(),
            account: text("account"),
            thread: text("thread"),
        })
    }

    pub(super) fn write(&self, trigger: &mut Trigger) {
        trigger.session_key = self.key.to_string();
        trigger.channel.clone_from(&self.channel);
        trigger.chat_id.clone_from(&self.chat);
        for (name, text) in [("account", &self.account), ("thread", &self.thread)] {
            if let Some(text) = text {
                trigger.origin_metadata.insert(name.to_owned(), Value::String(text.clone()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::TriggerId;
    use super::*;

    #[test]
    fn a_target_comes_back() {
        let key = |text: &str| SessionKey::new(text).unwrap();
        let chat = Target {
            key: key("agent:main:main"),
            channel: "webhook".to_owned(),
            chat: "7".to_owned(),
            account: Some("b".to_owned()),
            thread: Some("t".to_owned()),
        };
        for target in [chat, Target::of_session(key("websocket:7")), Target::of_session(key("heartbeat"))] {
            let trigger = Trigger::new(TriggerId::of_seed(b"a"), "x", &target, 1);
            assert_eq!(Target::of(&trigger), Ok(target));
        }
    }
}
