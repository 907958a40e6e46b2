//! What is handed in for a trigger: one file each.
//!
//! ```json
//! {"version":1,"preview":{"triggerId":"trg_A2B3C4D5","content":"done"},"delivery":{"id":"tdl_0123456789ab",
//!  "triggerId":"trg_A2B3C4D5","content":"done","createdAtMs":1774767600000,"attempts":0,"lastError":null}}
//! ```

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{AUDIT_CHARS_MAX, TriggerId};
use crate::ids::MessageId;
use crate::text::ellipsis;

/// Attempts after which a delivery is given up.
pub const ATTEMPTS_MAX: u32 = 10;
/// The longest message that is taken, in bytes.
pub const CONTENT_BYTES_MAX: usize = 256 * 1024;

/// One delivery.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Delivery {
    /// Its own id.
    pub id: String,
    /// For which trigger.
    #[serde(alias = "trigger_id")]
    pub trigger_id: TriggerId,
    /// What is said.
    pub content: String,
    /// ms since 1970.
    #[serde(default, alias = "created_at_ms")]
    pub created_at_ms: u64,
    /// How often it was not taken.
    #[serde(default)]
    pub attempts: u32,
    /// Why.
    #[serde(default, alias = "last_error")]
    pub last_error: Option<String>,
    /// What else the file says of it.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// No delivery.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadDelivery(String);

/// The name of a new delivery's file: it sorts by time, and names the trigger.
pub fn file_name(delivery: &Delivery) -> String {
    format!("{}-{}-{}.json", delivery.created_at_ms, delivery.id, delivery.trigger_id)
}

// === impl Delivery ===

impl Delivery {
    /// A new one; `random` makes its id.
    pub fn new(trigger_id: TriggerId, content: String, now_ms: u64, random: u64) -> Result<Self, BadDelivery> {
        let id = format!("tdl_{:012x}", random & 0xffff_ffff_ffff);
        let (attempts, last_error, extra) = (0, None, Map::new());
        let delivery = Self { id, trigger_id, content, created_at_ms: now_ms, attempts, last_error, extra };
        delivery.check()?;
        Ok(delivery)
    }

    /// Reads what a file says.
    pub fn decode(bytes: &[u8]) -> Result<Self, BadDelivery> {
        let bad = |error: serde_json::Error| BadDelivery(error.to_string());
        let mut value: Value = serde_json::from_slice(bytes).map_err(bad)?;
        // Older files are the delivery itself.
        let inner = value.get_mut("delivery").map(Value::take);
        let delivery: Self = serde_json::from_value(inner.unwrap_or(value)).map_err(bad)?;
        delivery.check()?;
        Ok(delivery)
    }

    fn check(&self) -> Result<(), BadDelivery> {
        let content = self.content.len();
        if self.content.trim().is_empty() {
            Err(BadDelivery("the message is empty".to_owned()))
        } else if content > CONTENT_BYTES_MAX {
            Err(BadDelivery(format!("the message has {content} bytes; at most {CONTENT_BYTES_MAX} are taken")))
        } else {
            Ok(())
        }
    }

    /// Writes it.
    pub fn encode(&self) -> Vec<u8> {
        let preview = json!({"triggerId": self.trigger_id, "content": ellipsis(&self.content, AUDIT_CHARS_MAX)});
        let file = json!({"version": 1, "preview": preview, "delivery": self});
        file.to_string().into_bytes()
    }

    /// It was not taken, for that reason; whether to try again.
    pub fn refused(&mut self, why: &str) -> bool {
        self.attempts = self.attempts.saturating_add(1);
        self.last_error = Some(why.to_owned());
        self.attempts < ATTEMPTS_MAX
    }

    /// How long to wait before the next attempt, where nobody says better.
    pub fn wait_ms(&self, asked_ms: u64) -> u64 {
        let own = 1000_u64 << self.attempts.min(6);
        asked_ms.max(own).min(300_000)
    }

    /// Under which id its session knows it: the file's name.
    pub fn message_id(file: &str) -> Option<MessageId> {
        MessageId::new(file.strip_suffix(".json")?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new(content: &str) -> Result<Delivery, BadDelivery> {
        Delivery::new(TriggerId::new("trg_A").unwrap(), content.to_owned(), 1_774_767_600_000, 0xabc)
    }

    #[test]
    fn a_delivery_is_read_back_also_from_older_files() {
        let delivery = new("done\n").unwrap();
        assert_eq!(Delivery::decode(&delivery.encode()), Ok(delivery.clone()));
        let old =
            br#"{"id": "tdl_1", "trigger_id": "trg_A", "content": "x", "created_at_ms": 4, "attempts": 2, "more": 1}"#;
        let old = Delivery::decode(old).unwrap();
        assert_eq!((old.attempts, old.created_at_ms, old.extra["more"].clone()), (2, 4, json!(1)));
        let name = file_name(&delivery);
        assert_eq!(name, "1774767600000-tdl_000000000abc-trg_A.json");
        assert_eq!(Delivery::message_id(&name).unwrap().as_str(), "1774767600000-tdl_000000000abc-trg_A");
        assert_eq!(Delivery::message_id("é.json"), None);
    }

    #[test]
    fn what_is_no_delivery_is_told() {
        assert_eq!(new(" \n").unwrap_err().to_string(), "the message is empty");
        assert!(new(&"x".repeat(CONTENT_BYTES_MAX + 1)).unwrap_err().to_string().contains("at most 262144"));
        for text in ["", "{}", "[]", r#"{"delivery": 1}"#, r#"{"id": "a", "triggerId": "b", "content": "x"}"#] {
            assert!(Delivery::decode(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn it_is_tried_ten_times_with_growing_waits() {
        let mut delivery = new("x").unwrap();
        let waits: Vec<_> = std::iter::from_fn(|| delivery.refused("busy").then(|| delivery.wait_ms(0))).collect();
        assert_eq!(waits, [2000, 4000, 8000, 16_000, 32_000, 64_000, 64_000, 64_000, 64_000]);
        assert_eq!((delivery.attempts, delivery.last_error.as_deref()), (10, Some("busy")));
        assert_eq!((delivery.wait_ms(90_000), delivery.wait_ms(u64::MAX)), (90_000, 300_000));
    }
}
