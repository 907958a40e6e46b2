//! Local triggers: other programs on this machine tell a session something, through files of the workspace. Pure.
//!
//! ```text
//!  triggers/triggers.json              which triggers there are, and how their last deliveries went
//!  triggers/inbox/<delivery>.json      what was handed in
//!  triggers/processing/<delivery>.json what the gateway has taken
//!  triggers/failed/<delivery>.json     what it gave up; `.bad` is no delivery at all
//!  triggers/runs/<delivery>.json       what became of it
//! ```
//!
//! Written in camel case with an indent of 2; snake case is read as well, and fields that are not known are kept.
//!
//! **Source:** `nanobot/triggers/local_store.py`.

mod delivery;
mod target;

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::text::{first_chars, one_line};
pub use delivery::{ATTEMPTS_MAX, BadDelivery, CONTENT_BYTES_MAX, Delivery, file_name};
pub use target::Target;

/// How ids begin.
const PREFIX: &str = "trg_";
/// Letters behind that: none that is easily taken for another.
const ALPHABET: &[u8; 32] = b"ABCDEFGHJKLMNPQRSTUVWXYZ23456789";
const LETTERS: usize = 8;
const LETTERS_MAX: usize = 32;
const NAME_CHARS_MAX: usize = 120;
/// Deliveries that a trigger remembers.
const HISTORY_MAX: usize = 20;
/// Characters of a text that is kept of a delivery.
pub const AUDIT_CHARS_MAX: usize = 4000;
/// Triggers of one workspace.
pub const TRIGGERS_MAX: usize = 1000;

/// `trg_` and letters or digits.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct TriggerId(String);

/// No id of a trigger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the id of a trigger is trg_ and up to 32 letters or digits")]
pub struct BadId;

/// How a delivery went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It was answered.
    Ok,
    /// It was not.
    Error,
}

/// A delivery that is over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Run {
    /// When that was known, ms since 1970.
    #[serde(alias = "run_at_ms")]
    pub run_at_ms: u64,
    /// How it went.
    pub status: Status,
    /// Why it failed.
    #[serde(default)]
    pub error: Option<String>,
}

/// One trigger.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Trigger {
    /// Its id.
    pub id: TriggerId,
    /// What people are told that it is.
    #[serde(default)]
    pub name: String,
    /// Whether deliveries are taken.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// The channel that answers are sent by.
    #[serde(default)]
    pub channel: String,
    /// The chat that they are sent to.
    #[serde(default, alias = "chat_id")]
    pub chat_id: String,
    /// The session that is told.
    #[serde(alias = "session_key")]
    pub session_key: String,
    /// What else is known of that chat: `account`, `thread`.
    #[serde(default, alias = "origin_metadata")]
    pub origin_metadata: Map<String, Value>,
    /// ms since 1970.
    #[serde(default, alias = "created_at_ms")]
    pub created_at_ms: u64,
    /// ms since 1970.
    #[serde(default, alias = "updated_at_ms")]
    pub updated_at_ms: u64,
    /// When its last delivery was over.
    #[serde(default, alias = "last_run_at_ms")]
    pub last_run_at_ms: Option<u64>,
    /// How that went.
    #[serde(default, alias = "last_status")]
    pub last_status: Option<Status>,
    /// Why it failed.
    #[serde(default, alias = "last_error")]
    pub last_error: Option<String>,
    /// Its last deliveries, oldest first.
    #[serde(default, alias = "run_history")]
    pub run_history: Vec<Run>,
    /// What else the file says of it.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// `triggers.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct File {
    /// 1.
    #[serde(default = "one")]
    pub version: u64,
    /// In the order of the file.
    #[serde(default)]
    pub triggers: Vec<Trigger>,
    /// What else it says.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

fn yes() -> bool {
    true
}

fn one() -> u64 {
    1
}

// === impl TriggerId ===

impl TriggerId {
    /// Checks a text.
    pub fn new(text: &str) -> Result<Self, BadId> {
        let letters = text.strip_prefix(PREFIX).ok_or(BadId)?;
        let fits =
            (1..=LETTERS_MAX).contains(&letters.len()) && letters.chars().all(|letter| letter.is_ascii_alphanumeric());
        if fits { Ok(Self(text.to_owned())) } else { Err(BadId) }
    }

    /// The id that always comes of the same seed.
    pub fn of_seed(seed: &[u8]) -> Self {
        let letter = |byte: &u8| char::from(ALPHABET[usize::from(byte % 32)]);
        Self(PREFIX.chars().chain(Sha256::digest(seed).iter().take(LETTERS).map(letter)).collect())
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TriggerId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl TryFrom<String> for TriggerId {
    type Error = BadId;

    fn try_from(text: String) -> Result<Self, BadId> {
        Self::new(&text)
    }
}

// === impl Trigger ===

impl Trigger {
    /// A new one that tells `target`.
    pub fn new(id: TriggerId, name: &str, target: &Target, now_ms: u64) -> Self {
        let name = one_line(first_chars(name.trim(), NAME_CHARS_MAX));
        let mut trigger = Self {
            id,
            name: if name.is_empty() { "Local trigger".to_owned() } else { name },
            enabled: true,
            channel: String::new(),
            chat_id: String::new(),
            session_key: String::new(),
            origin_metadata: Map::new(),
            created_at_ms: now_ms,
            updated_at_ms: now_ms,
            last_run_at_ms: None,
            last_status: None,
            last_error: None,
            run_history: Vec::new(),
            extra: Map::new(),
        };
        target.write(&mut trigger);
        trigger
    }

    /// A delivery is over.
    pub fn ran(&mut self, run: Run) {
        self.last_run_at_ms = Some(run.run_at_ms);
        self.last_status = Some(run.status);
        self.last_error.clone_from(&run.error);
        self.updated_at_ms = run.run_at_ms;
        self.run_history.push(run);
        let over = self.run_history.len().saturating_sub(HISTORY_MAX);
        self.run_history.drain(..over);
    }
}

// === impl File ===

impl Default for File {
    fn default() -> Self {
        Self { version: one(), triggers: Vec::new(), extra: Map::new() }
    }
}

impl File {
    /// Reads it; the error says where it is wrong.
    pub fn decode(bytes: &[u8]) -> Result<Self, String> {
        let from = &mut serde_json::Deserializer::from_slice(bytes);
        serde_path_to_error::deserialize(from).map_err(|error| error.to_string())
    }

    /// Writes it.
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec_pretty(self).expect("triggers have only string keys, so they always serialise")
    }

    /// The one of this id.
    pub fn find(&self, id: &TriggerId) -> Option<&Trigger> {
        self.triggers.iter().find(|trigger| trigger.id == *id)
    }

    /// The one of this id.
    pub fn find_mut(&mut self, id: &TriggerId) -> Option<&mut Trigger> {
        self.triggers.iter_mut().find(|trigger| trigger.id == *id)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::ids::SessionKey;

    #[test]
    fn ids_are_checked_and_the_same_seed_makes_the_same() {
        for (text, fine) in
            [("trg_A2B3C4D5", true), ("trg_x", true), ("trg_", false), ("A2", false), ("trg_a/b", false)]
        {
            assert_eq!(TriggerId::new(text).is_ok(), fine, "{text}");
        }
        assert!(TriggerId::new(&format!("trg_{}", "x".repeat(33))).is_err());
        let [one, again, other] = [b"a", b"a", b"b"].map(|seed| TriggerId::of_seed(seed));
        assert!(one == again && one != other);
        assert_eq!((one.as_str().len(), TriggerId::new(one.as_str())), (12, Ok(one.clone())));
    }

    #[test]
    fn both_spellings_are_read_and_what_is_unknown_is_kept() {
        let snake = json!({"triggers": [{"id": "trg_A", "session_key": "websocket:1", "chat_id": "1", "channel": "websocket",
            "created_at_ms": 5, "run_history": [{"run_at_ms": 7, "status": "ok"}], "sender_id": "trigger"}], "more": 1});
        let file = File::decode(snake.to_string().as_bytes()).unwrap();
        let written: Value = serde_json::from_slice(&file.encode()).unwrap();
        let trigger = &written["triggers"][0];
        assert_eq!(
            (&written["version"], &written["more"], &trigger["sender_id"]),
            (&json!(1), &json!(1), &json!("trigger"))
        );
        assert_eq!(
            (&trigger["sessionKey"], &trigger["chatId"], &trigger["createdAtMs"]),
            (&json!("websocket:1"), &json!("1"), &json!(5))
        );
        assert_eq!(trigger["runHistory"], json!([{"runAtMs": 7, "status": "ok", "error": null}]));
        assert_eq!(File::decode(&file.encode()).unwrap(), file);
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        for (text, what) in [
            ("{", "EOF"),
            (r#"{"triggers": [{"id": "x", "sessionKey": "k"}]}"#, "triggers[0].id"),
            (r#"{"triggers": [{"id": "trg_A"}]}"#, "sessionKey"),
            (r#"{"triggers": {}}"#, "triggers"),
        ] {
            let told = File::decode(text.as_bytes()).unwrap_err();
            assert!(told.contains(what), "{told}");
        }
    }

    #[test]
    fn the_last_deliveries_are_remembered() {
        let target = Target::of_session(SessionKey::new("websocket:1").unwrap());
        let mut trigger = Trigger::new(TriggerId::of_seed(b"a"), "  the\ndoor ", &target, 1);
        assert_eq!((trigger.name.as_str(), trigger.session_key.as_str()), ("the door", "websocket:1"));
        for at in 1..=25 {
            trigger.ran(Run { run_at_ms: at, status: Status::Error, error: Some("no".to_owned()) });
        }
        trigger.ran(Run { run_at_ms: 26, status: Status::Ok, error: None });
        assert_eq!((trigger.run_history.len(), trigger.run_history[0].run_at_ms), (20, 7));
        assert_eq!(
            (trigger.last_run_at_ms, trigger.last_status, trigger.last_error),
            (Some(26), Some(Status::Ok), None)
        );
    }
}
