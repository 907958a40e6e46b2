//! Newtypes for every id. Parsing checks the shape once, at the edge; after that the type is the proof.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::event::EventKind;

/// Why a text is not an id of the asked kind. The text itself is not repeated: it may be hostile or long.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadId {
    /// Nothing was given.
    #[error("{what} is empty")]
    Empty {
        /// Which kind of id.
        what: &'static str,
    },
    /// Longer than the limit, in bytes.
    #[error("{what} has {bytes} bytes; at most {max} are allowed")]
    TooLong {
        /// Which kind of id.
        what: &'static str,
        /// Its length.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// A byte that this kind of id cannot hold.
    #[error("{what} has a character that is not allowed at byte {at}; {allowed}")]
    BadByte {
        /// Which kind of id.
        what: &'static str,
        /// Offset of the first offending byte.
        at: usize,
        /// What would be legal.
        allowed: &'static str,
    },
    /// Not the textual form of this id.
    #[error("{what} is not {expected}")]
    Malformed {
        /// Which kind of id.
        what: &'static str,
        /// The form that was expected.
        expected: &'static str,
    },
}

macro_rules! uuid_id {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub Uuid);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.hyphenated().fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = BadId;
            fn from_str(text: &str) -> Result<Self, BadId> {
                Uuid::try_parse(text).map(Self).map_err(|_| BadId::Malformed { what: $what, expected: "a UUID" })
            }
        }
    };
}

uuid_id!(
    /// One accepted message and all the work that answers it. UUIDv7, chosen by the door.
    TurnId,
    "turn id"
);
uuid_id!(
    /// One transcript: a key keeps its name when it is deleted or reset to a new file, the session id does not. UUIDv7.
    SessionId,
    "session id"
);

uuid_id!(
    /// What a session sends one sub-agent to do. UUIDv5, made of the tool call that asked for it.
    RunId,
    "run id"
);

/// One entry of a transcript: 16 lower-case hex digits, unique in its file.
/// Files of other programs hold other forms, so inside a transcript ids are opaque text.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryId(pub u64);

impl fmt::Display for EntryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for EntryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident, $what:literal, $max:expr, $ok:expr, $allowed:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        #[serde(transparent)]
        pub struct $name(Arc<str>);

        impl $name {
            /// The longest legal text, in bytes.
            pub const BYTES_MAX: usize = $max;

            /// Checks `text` and keeps it.
            pub fn new(text: &str) -> Result<Self, BadId> {
                if text.is_empty() {
                    return Err(BadId::Empty { what: $what });
                }
                if text.len() > Self::BYTES_MAX {
                    return Err(BadId::TooLong { what: $what, bytes: text.len(), max: Self::BYTES_MAX });
                }
                let ok: fn(u8) -> bool = $ok;
                if let Some(at) = text.bytes().position(|byte| !ok(byte)) {
                    return Err(BadId::BadByte { what: $what, at, allowed: $allowed });
                }
                Ok(Self(text.into()))
            }

            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &*self.0)
            }
        }

        impl FromStr for $name {
            type Err = BadId;
            fn from_str(text: &str) -> Result<Self, BadId> {
                Self::new(text)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'de, str>>::deserialize(from)?;
                Self::new(&text).map_err(serde::de::Error::custom)
            }
        }
    };
}

text_id!(
    /// The name of a conversation: `websocket:<chat>`, `api:<id>`, `cli:direct`, `agent:main:discord:group:9`.
    /// 1..=512 bytes of UTF-8 without control characters.
    SessionKey,
    "session key",
    512,
    |byte| byte >= 0x20 && byte != 0x7f,
    "control characters cannot be in a session key"
);
text_id!(
    /// The sender's own id of a message, unique per (session key, source): 1..=200 bytes of printable ASCII.
    MessageId,
    "message id",
    200,
    |byte| (0x20..0x7f).contains(&byte),
    "printable ASCII is expected"
);
text_id!(
    /// Which door a message came through: `ws`, `api`, `cli`. Part of the dedupe key.
    Source,
    "source",
    64,
    |byte| byte.is_ascii_alphanumeric() || b"-_:.".contains(&byte),
    "letters, digits and -_:. are expected"
);

impl Source {
    /// The door alone: a source may name more behind a colon.
    pub fn door(&self) -> &str {
        self.0.split_once(':').map_or(&*self.0, |(door, _)| door)
    }

    /// Whether another program told it by calling a hook.
    pub fn is_hook(&self) -> bool {
        self.door() == EventKind::Webhook.source()
    }
}

/// The id that a model gave to one of its tool calls. Opaque: whatever the provider sent, or ours when it sent none.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ToolCallId(pub Arc<str>);

impl fmt::Display for ToolCallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ToolCallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}

macro_rules! number_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number_id!(
    /// Durable ownership number of a session key: one more at each activation and at each restart in place.
    Epoch
);
number_id!(
    /// Place of a turn in its session's accept order, from 1.
    Seq
);

/// Which try of a turn this is, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Attempt(pub u32);

impl Attempt {
    /// The first try.
    pub const FIRST: Self = Self(1);

    /// The try after this one.
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One part of a reply on its way to a channel. Text: `<turn>:<n>`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeliveryId {
    /// The turn that said it.
    pub turn: TurnId,
    /// Which part, from 1.
    pub n: u32,
}

impl fmt::Display for DeliveryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.turn, self.n)
    }
}

impl FromStr for DeliveryId {
    type Err = BadId;
    fn from_str(text: &str) -> Result<Self, BadId> {
        let bad = || BadId::Malformed { what: "delivery id", expected: "a turn id, a colon and a number from 1" };
        let (turn, n) = text.split_once(':').ok_or_else(bad)?;
        let turn = turn.parse().map_err(|_| bad())?;
        let n = Some(n).filter(|n| n.bytes().all(|byte| byte.is_ascii_digit())).ok_or_else(bad)?;
        Ok(Self { turn, n: n.parse().ok().filter(|n| *n > 0).ok_or_else(bad)? })
    }
}

/// The name of a dead letter: that of what was given up.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LetterId {
    /// A turn.
    Turn(TurnId),
    /// A delivery.
    Delivery(DeliveryId),
}

impl fmt::Display for LetterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Turn(turn) => turn.fmt(f),
            Self::Delivery(delivery) => delivery.fmt(f),
        }
    }
}

impl FromStr for LetterId {
    type Err = BadId;
    fn from_str(text: &str) -> Result<Self, BadId> {
        let turn = || text.parse().map(Self::Turn);
        let delivery = |_| text.parse().map(Self::Delivery);
        turn().or_else(delivery).map_err(|_| BadId::Malformed {
            what: "dead letter id",
            expected: "a turn id (a UUID), or a delivery id (a turn id, a colon and a number)",
        })
    }
}

macro_rules! id_as_text {
    ($name:ident) => {
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'de, str>>::deserialize(from)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

id_as_text!(DeliveryId);
id_as_text!(LetterId);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_check_their_shape_and_say_where_they_fail() {
        assert!(SessionKey::new("agent:main:discord:group:9").is_ok());
        assert!(SessionKey::new("telegram:你好").is_ok());
        assert_eq!(SessionKey::new("").unwrap_err().to_string(), "session key is empty");
        assert!(matches!(SessionKey::new("a\nb"), Err(BadId::BadByte { at: 1, .. })));
        assert!(MessageId::new(&"x".repeat(200)).is_ok());
        assert!(matches!(MessageId::new(&"x".repeat(201)), Err(BadId::TooLong { bytes: 201, max: 200, .. })));
        assert!(matches!(MessageId::new("é"), Err(BadId::BadByte { at: 0, .. })));
        assert!("not-a-uuid".parse::<TurnId>().is_err());
        assert_eq!(EntryId(0xab).to_string(), "00000000000000ab");
        assert!(serde_json::from_str::<MessageId>(r#""a\u0000b""#).is_err());
    }

    #[test]
    fn letters_are_named_after_a_turn_or_a_delivery() {
        let turn = "0192f0c1-0000-7000-8000-000000000001";
        let read = |text: &str| text.parse::<LetterId>();
        assert!(matches!(read(turn), Ok(LetterId::Turn(_))));
        let delivery = format!("{turn}:12");
        assert!(matches!(read(&delivery), Ok(LetterId::Delivery(DeliveryId { n: 12, .. }))));
        assert_eq!(read(&delivery).unwrap().to_string(), delivery);
        for bad in
            ["", ":1", "x", &format!("{turn}:"), &format!("{turn}:0"), &format!("{turn}:+1"), &format!("{turn}:1:2")]
        {
            assert!(read(bad).is_err(), "{bad}");
        }
        assert_eq!(serde_json::to_string(&read(turn).unwrap()).unwrap(), format!("\"{turn}\""));
    }
}
