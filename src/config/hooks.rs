//! The section `hooks`: what other programs may call to tell a session something. Ours.

use std::collections::BTreeSet;

use channel::gateway::hooks::Template;
use channel::webhook::SigningSecret;
use domain::ids::SessionKey;
use serde::Deserialize;

use super::key::{Key, Kind, Section};
use super::secret::Secret;

/// Letters of an id: it is part of an address, and of message ids.
const ID_CHARS_MAX: usize = 64;

section! {
    /// One entry of `hooks`.
    HookConfig {
        /// The last part of its address, `/hooks/<id>` on the gateway's port.
        id: String = String::new(), Kind::Text;
        /// What people are told that it is. Not set: the id.
        name: Option<String> = None, Kind::OptionalText;
        /// The session that is told.
        session: String = String::new(), Kind::Text;
        /// What it is told: `{{body}}`, and JSON pointers into the body like `{{/repository/name}}`.
        message: String = "{{body}}".into(), Kind::Text;
        /// Signs the bodies: `whsec_` and base64, or any other text as it is.
        secret: Option<Secret> = None, Kind::Secret;
        /// Bearer token in place of a signature.
        token: Option<Secret> = None, Kind::Secret;
        /// The channel that the answer is sent by, with `to`. Not set: the chat that the session is named after, or whoever
        /// watches it.
        channel: Option<String> = None, Kind::OptionalText;
        /// The chat that the answer is sent to.
        to: Option<String> = None, Kind::OptionalText;
        /// The thread in that chat.
        thread: Option<String> = None, Kind::OptionalText;
        /// Calls in a minute; more are refused.
        per_minute: u32 = 60, Kind::Whole(1, 60_000);
    }
    unused []
}

/// What is wrong with them, each beginning with the place in the list; `told` are the channels that answers can be sent by.
pub fn wrong(hooks: &[HookConfig], told: &[&str]) -> Vec<String> {
    let is_told = |channel: &str| told.contains(&channel);
    let mut wrong = Vec::new();
    let mut seen = BTreeSet::new();
    for (at, hook) in hooks.iter().enumerate() {
        let letter = |letter: char| letter.is_ascii_alphanumeric() || letter == '-' || letter == '_';
        let what = if hook.id.is_empty() || hook.id.len() > ID_CHARS_MAX || !hook.id.chars().all(letter) {
            format!(".id must be 1 to {ID_CHARS_MAX} of a-z, A-Z, 0-9, - and _")
        } else if !seen.insert(hook.id.as_str()) {
            ".id is that of another hook".to_owned()
        } else if let Err(bad) = SessionKey::new(&hook.session) {
            format!(".session must be the key of a session: {bad}")
        } else if hook.secret.is_none() && hook.token.is_none() {
            " needs a secret or a token, or anybody could call it".to_owned()
        } else if hook.secret.as_ref().is_some_and(|secret| SigningSecret::new(secret.expose()).is_err()) {
            ".secret must go on in base64 after whsec_".to_owned()
        } else if let Err(bad) = Template::parse(&hook.message) {
            format!(".message {bad}")
        } else if hook.channel.is_some() != hook.to.is_some() || hook.thread.is_some() && hook.to.is_none() {
            " must have both channel and to, or neither".to_owned()
        } else if hook.channel.as_deref().is_some_and(|channel| !is_told(channel)) {
            match told {
                [] => ".channel: answers can be sent by none, since channels.webhook is not enabled".to_owned(),
                told => format!(".channel: answers can be sent by {} only", told.join(", ")),
            }
        } else {
            continue;
        };
        wrong.push(format!("[{at}]{what}"));
    }
    wrong
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        let told = |hooks: Value| wrong(&serde_json::from_value::<Vec<HookConfig>>(hooks).unwrap(), &["webhook"]);
        let good = json!({"id": "a", "session": "webhook:7", "token": "t"});
        let with = |name: &str, value: &str| {
            let mut hook = good.clone();
            hook[name] = json!(value);
            hook
        };
        assert_eq!(told(json!([good, with("id", "b-_C9")])), [""; 0]);
        for (hook, what) in [
            (json!({}), "[1].id must be 1 to 64 of"),
            (with("id", "a/b"), "[1].id must be 1 to 64 of"),
            (good.clone(), "[1].id is that of another hook"),
            (json!({"id": "b", "token": "t"}), "[1].session must be the key of a session"),
            (json!({"id": "b", "session": "x"}), "[1] needs a secret or a token"),
            (json!({"id": "b", "session": "x", "secret": "whsec_*"}), "[1].secret must go on in base64"),
            (json!({"id": "b", "session": "x", "token": "t", "message": "{{x}}"}), "[1].message may have {{body}}"),
            (json!({"id": "b", "session": "x", "token": "t", "to": "7"}), "[1] must have both channel and to"),
            (json!({"id": "b", "session": "x", "token": "t", "thread": "7"}), "[1] must have both channel and to"),
            (
                json!({"id": "b", "session": "x", "token": "t", "to": "7", "channel": "telegram"}),
                "[1].channel: answers can be sent by webhook only",
            ),
        ] {
            let told = told(json!([good, hook]));
            assert!(told.len() == 1 && told[0].starts_with(what), "{told:?}");
        }
        let named = json!([{"id": "a", "session": "x", "token": "t", "to": "7", "channel": "webhook"}]);
        assert_eq!(told(named.clone()), [""; 0]);
        let alone = wrong(&serde_json::from_value::<Vec<HookConfig>>(named).unwrap(), &[]);
        assert_eq!(alone, ["[0].channel: answers can be sent by none, since channels.webhook is not enabled"]);
    }
}
