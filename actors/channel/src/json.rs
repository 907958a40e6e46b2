//! Small JSON, written field by field: frames and chunks are short and many. Pure.

use std::fmt::Display;
use std::io::Write as _;

use domain::chat::Usage;
use domain::goal::Goal;
use domain::text::ellipsis;
use protocol::turn::FileEdit;

/// Characters of a goal's objective that are shown, as many as nanobot shows.
const OBJECTIVE_CHARS_SHOWN: usize = 600;

/// A JSON object under construction.
pub(crate) struct Json(Vec<u8>);

impl Json {
    /// A frame of this name.
    pub(crate) fn event(name: &'static str) -> Self {
        Self::open("event", name)
    }

    /// An object whose first field is a literal.
    pub(crate) fn open(field: &'static str, value: &'static str) -> Self {
        let mut bytes = Vec::with_capacity(192);
        bytes.extend_from_slice(b"{\"");
        bytes.extend_from_slice(field.as_bytes());
        bytes.extend_from_slice(b"\":\"");
        bytes.extend_from_slice(value.as_bytes());
        bytes.push(b'"');
        Self(bytes)
    }

    /// An object whose fields all follow.
    pub(crate) fn begin() -> Self {
        let mut bytes = Vec::with_capacity(192);
        bytes.push(b'{');
        Self(bytes)
    }

    fn name(&mut self, name: &'static str) {
        if self.0.len() > 1 {
            self.0.push(b',');
        }
        self.0.push(b'"');
        self.0.extend_from_slice(name.as_bytes());
        self.0.extend_from_slice(b"\":");
    }

    /// Adds a string.
    pub(crate) fn text(mut self, name: &'static str, value: &str) -> Self {
        self.name(name);
        serde_json::to_writer(&mut self.0, value).expect("a string always serialises into memory");
        self
    }

    /// Adds a string if there is one.
    pub(crate) fn maybe(self, name: &'static str, value: Option<&str>) -> Self {
        match value {
            Some(value) => self.text(name, value),
            None => self,
        }
    }

    /// Adds something whose display is plain ASCII without quotes, as a string.
    pub(crate) fn plain(mut self, name: &'static str, value: impl Display) -> Self {
        self.name(name);
        write!(self.0, "\"{value}\"").expect("writing into memory cannot fail");
        self
    }

    /// Adds a number, a boolean, or JSON made elsewhere.
    pub(crate) fn raw(mut self, name: &'static str, value: impl Display) -> Self {
        self.name(name);
        write!(self.0, "{value}").expect("writing into memory cannot fail");
        self
    }

    /// The text.
    pub(crate) fn done(mut self) -> String {
        self.0.push(b'}');
        String::from_utf8(self.0).expect("built from strings only")
    }
}

/// One JSON string.
pub(crate) fn quoted(text: &str) -> String {
    serde_json::to_string(text).expect("a string always serialises into memory")
}

/// Token counts as clients know them.
pub(crate) fn usage_json(usage: Usage) -> String {
    format!(
        r#"{{"prompt_tokens":{},"completion_tokens":{},"total_tokens":{},"cached_tokens":{}}}"#,
        usage.input_tokens,
        usage.output_tokens,
        usage.input_tokens.saturating_add(usage.output_tokens),
        usage.cached_tokens
    )
}

/// A goal as the web interface of nanobot knows it: whether it is worked on, what it is, and how it ended.
pub(crate) fn goal_json(goal: Option<&Goal>) -> String {
    let Some(goal) = goal else { return Json::begin().raw("active", false).done() };
    let json = Json::begin().raw("active", goal.is_active()).text("status", goal.status.word());
    let json = json.text("objective", &ellipsis(&goal.objective, OBJECTIVE_CHARS_SHOWN));
    json.maybe("recap", goal.recap.as_deref()).done()
}

/// What a tool call made of a file.
pub(crate) fn edit_json(edit: &FileEdit) -> String {
    let json = Json::begin().text("path", &edit.path).raw("added", edit.added).raw("removed", edit.removed);
    json.text("diff", &edit.diff).done()
}
