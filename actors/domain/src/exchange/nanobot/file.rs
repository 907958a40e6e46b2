//! A session file of nanobot, read as nanobot reads it; what it would skip is kept.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::exchange::Remark;
use crate::exchange::json::read_object;

/// Messages that are replayed at least, whatever was consolidated (0.3.0).
const REPLAYED_MIN: usize = 8;

/// What a file says.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SessionFile {
    /// The metadata line; the last one, if there are several.
    pub head: Map<String, Value>,
    /// The state of a provider, as it stands in its line.
    pub state: Option<Value>,
    /// The messages.
    pub rows: Vec<Row>,
    /// Lines that nanobot skips, or that had to be mended: `{"line","text"}`, or `base64` where they are no text.
    pub kept: Vec<Value>,
    /// What was odd.
    pub remarks: Vec<Remark>,
    /// SHA-256 of the whole file.
    pub digest: [u8; 32],
}

/// One message.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Its fields.
    pub fields: Map<String, Value>,
    /// Its line.
    pub text: String,
    /// Whether the line is JSON as it stands.
    pub exact: bool,
}

// === impl SessionFile ===

impl SessionFile {
    /// Reads a whole file.
    pub fn read(bytes: &[u8]) -> Self {
        let mut file = Self { digest: Sha256::digest(bytes).into(), ..Self::default() };
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
        for (at, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
            file.line(at + 1, line);
        }
        file
    }

    /// The key that the file names.
    pub fn key(&self) -> Option<&str> {
        self.head.get("key").and_then(Value::as_str).filter(|key| !key.is_empty())
    }

    /// Whether there is nothing in it that is worth a session.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.head.is_empty() && self.state.is_none()
    }

    /// The free part of the metadata.
    pub fn metadata(&self) -> Map<String, Value> {
        self.head.get("metadata").and_then(Value::as_object).cloned().unwrap_or_default()
    }

    /// How many messages were consolidated; a number that cannot be counts as 0.
    pub fn consolidated(&self) -> usize {
        let newer = self.head.get("last_archived");
        let count = newer.or_else(|| self.head.get("last_consolidated")).and_then(Value::as_u64).unwrap_or(0);
        usize::try_from(count).ok().filter(|count| *count <= self.rows.len()).unwrap_or(0)
    }

    /// The message from which on nanobot replays. Newer releases start where consolidation ended. Older ones replay
    /// some messages before that, from the first user's message among them on, or from the last one before them.
    pub fn replayed_from(&self) -> usize {
        let consolidated = self.consolidated();
        if consolidated == 0 || self.head.contains_key("last_archived") {
            return consolidated;
        }
        let mut start = consolidated.min(self.rows.len().saturating_sub(REPLAYED_MIN));
        let next_user = self.rows.iter().skip(start).position(Row::is_user).map(|more| start + more);
        let last_user = || self.rows.iter().take(start).rposition(Row::is_user);
        start = next_user.or_else(last_user).unwrap_or(start);
        let delivery = start.checked_sub(1).and_then(|before| self.rows.get(before));
        if delivery.is_some_and(|row| row.is_true("_channel_delivery")) { start - 1 } else { start }
    }

    fn line(&mut self, number: usize, line: &[u8]) {
        let (text, is_text) = match std::str::from_utf8(line) {
            Ok(text) => (text.to_owned(), true),
            Err(_) => (String::from_utf8_lossy(line).into_owned(), false),
        };
        let text = text.trim();
        if text.is_empty() {
            return;
        }
        let read = read_object(text);
        if !is_text {
            self.kept.push(json!({"line": number, "base64": STANDARD.encode(line)}));
            self.remarks.push(Remark::at(number, "not UTF-8; read with replacement characters, the original is kept"));
        }
        let Some(read) = read else {
            if is_text {
                self.kept.push(json!({"line": number, "text": text}));
            }
            self.remarks.push(Remark::at(number, "not a JSON object; kept as it is, not part of the conversation"));
            return;
        };
        match read.object.get("_type").and_then(Value::as_str) {
            Some("metadata") => {
                if !self.head.is_empty() {
                    self.remarks.push(Remark::at(number, "a second metadata line; the last one counts"));
                    self.kept.push(json!({"line": number, "metadata": std::mem::take(&mut self.head)}));
                }
                if !read.exact && is_text {
                    self.kept.push(json!({"line": number, "text": text}));
                }
                self.head = read.object;
            }
            Some("provider_state") => {
                if !read.exact && is_text {
                    self.kept.push(json!({"line": number, "text": text}));
                }
                self.state = read.object.get("state").cloned();
            }
            Some(_) | None => {
                let exact = read.exact && is_text;
                if !read.exact {
                    let what = "has numbers or characters that JSON does not have; read without, the original is kept";
                    self.remarks.push(Remark::at(number, what));
                }
                self.rows.push(Row { fields: read.object, text: text.to_owned(), exact });
            }
        }
    }
}

// === impl Row ===

impl Row {
    /// A field's text.
    pub fn text_of(&self, name: &str) -> Option<&str> {
        self.fields.get(name).and_then(Value::as_str)
    }

    /// Whether a field is what Python takes for true.
    pub fn is_true(&self, name: &str) -> bool {
        match self.fields.get(name) {
            None | Some(Value::Null | Value::Bool(false)) => false,
            Some(Value::Bool(true)) => true,
            Some(Value::Number(number)) => number.as_f64() != Some(0.0),
            Some(Value::String(text)) => !text.is_empty(),
            Some(Value::Array(items)) => !items.is_empty(),
            Some(Value::Object(fields)) => !fields.is_empty(),
        }
    }

    fn is_user(&self) -> bool {
        self.text_of("role") == Some("user")
    }
}
