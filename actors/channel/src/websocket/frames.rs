//! Client frames, read. Pure: text in, an order or a precise complaint out.

use std::fmt;
use std::path::PathBuf;

use domain::ids::MessageId;
use domain::scope::{AccessMode, Scope};
use serde::de::{Deserializer as _, IgnoredAny, MapAccess, Visitor};
use serde_json::{Map, Value};

use crate::hub::cursor::Cursor;
use crate::media::{self, Upload};

/// Longest text of a message.
pub(crate) const TEXT_BYTES_MAX: usize = 64 * 1024;

/// Longest chat id.
const CHAT_ID_BYTES_MAX: usize = 64;

/// Longest turn id that a client may choose.
const CLIENT_TURN_ID_BYTES_MAX: usize = 128;

/// Longest id of the client's that an error repeats to it, also when the id itself is what is wrong.
const ID_BYTES_SHOWN: usize = 256;

/// What part of an unknown name is repeated to the client.
const NAME_BYTES_SHOWN: usize = 64;

/// What a client wants.
#[derive(Debug, PartialEq)]
pub(crate) enum Incoming {
    /// `new_chat`, perhaps with a project.
    NewChat { scope: Option<Scope> },
    /// `attach`
    Attach { chat_id: String, after: Option<Cursor> },
    /// `set_workspace_scope`; `None` is the workspace.
    Scope { chat_id: String, scope: Option<Scope> },
    /// `message`, or text for the default chat.
    Message(Message),
}

/// A message for a chat.
#[derive(Debug, PartialEq)]
pub(crate) struct Message {
    /// `None` is the connection's default chat.
    pub(crate) chat_id: Option<String>,
    /// What the user said.
    pub(crate) text: String,
    /// What came with it.
    pub(crate) media: Vec<Upload>,
    /// The client's id of it.
    pub(crate) message_id: Option<MessageId>,
    /// The client's own name for the turn.
    pub(crate) client_turn_id: Option<String>,
    /// Where the chat works from this message on.
    pub(crate) scope: Option<Scope>,
    /// Whether the client wants `message_accepted`.
    pub(crate) webui: bool,
}

/// A frame that was refused.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Refused {
    pub(crate) reason: &'static str,
    pub(crate) detail: String,
    /// As far as they can be read, so that the client finds its frame.
    pub(crate) chat_id: Option<String>,
    pub(crate) message_id: Option<String>,
    pub(crate) client_turn_id: Option<String>,
}

impl Refused {
    fn new(reason: &'static str, detail: impl Into<String>) -> Self {
        Self { reason, detail: detail.into(), chat_id: None, message_id: None, client_turn_id: None }
    }

    /// A frame that is not as it must be.
    pub(crate) fn bad_frame(detail: impl Into<String>) -> Self {
        Self::new("bad_frame", detail)
    }
}

/// Reads one text frame. Text that does not begin like a JSON object is a message by itself.
pub(crate) fn parse(frame: &str) -> Result<Incoming, Refused> {
    if !frame.trim_start().starts_with('{') {
        return Ok(Incoming::Message(plain(frame.to_owned(), None)?));
    }
    let read = serde_json::from_str(frame)
        .map_err(|error| Refused::bad_frame(format!("the frame is not valid JSON: {}", place(&error))));
    read.and_then(|fields| parse_object(&fields)).map_err(|refused| Names::of(frame).on(refused))
}

/// The names that a frame carries, as far as it can be read: also of one that is cut, or that has a text without a
/// meaning in it.
#[derive(Default)]
struct Names {
    chat_id: Option<String>,
    message_id: Option<String>,
    turn_id: Option<String>,
}

impl Names {
    fn of(frame: &str) -> Self {
        let mut names = Self::default();
        // What stands before the place where it ends is kept.
        let _ = serde_json::Deserializer::from_str(frame).deserialize_map(&mut names);
        names
    }

    fn on(self, refused: Refused) -> Refused {
        let Self { chat_id, message_id, turn_id: client_turn_id } = self;
        Refused { chat_id, message_id, client_turn_id, ..refused }
    }
}

impl<'de> Visitor<'de> for &mut Names {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(name) = map.next_key::<String>()? {
            let place = match name.as_str() {
                "chat_id" => &mut self.chat_id,
                "message_id" => &mut self.message_id,
                "turn_id" => &mut self.turn_id,
                _ => {
                    map.next_value::<IgnoredAny>()?;
                    continue;
                }
            };
            let value = map.next_value::<Value>()?;
            *place = value.as_str().filter(|id| id.len() <= ID_BYTES_SHOWN).map(str::to_owned);
        }
        Ok(())
    }
}

fn parse_object(fields: &Map<String, Value>) -> Result<Incoming, Refused> {
    let Some(kind) = string(fields, "type")? else {
        for name in ["content", "text", "message"] {
            if let Some(text) = string(fields, name)? {
                return Ok(Incoming::Message(plain(text.to_owned(), message_id(fields)?)?));
            }
        }
        return Err(Refused::bad_frame("the frame has neither \"type\" nor one of \"content\", \"text\", \"message\""));
    };
    match kind {
        "new_chat" => Ok(Incoming::NewChat { scope: scope(fields)? }),
        "set_workspace_scope" => {
            let chat_id = chat_id(fields)?.ok_or_else(|| Refused::bad_frame("\"chat_id\" is missing"))?;
            if !fields.contains_key("workspace_scope") {
                return Err(Refused::bad_frame("\"workspace_scope\" is missing; null is the workspace"));
            }
            Ok(Incoming::Scope { chat_id, scope: scope(fields)? })
        }
        "attach" => {
            let chat_id = chat_id(fields)?.ok_or_else(|| Refused::bad_frame("\"chat_id\" is missing"))?;
            let after = string(fields, "after")?
                .map(|text| text.parse().map_err(|error| Refused::bad_frame(format!("\"after\": {error}"))))
                .transpose()?;
            Ok(Incoming::Attach { chat_id, after })
        }
        "message" => message(fields),
        other => Err(Refused::bad_frame(format!("unknown frame type \"{}\"", shown(other)))),
    }
}

fn message(fields: &Map<String, Value>) -> Result<Incoming, Refused> {
    let text = string(fields, "content")?.ok_or_else(|| Refused::bad_frame("\"content\" is missing"))?;
    let media = match fields.get("media") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(media)) => media::parse(media).map_err(|wrong| Refused::new(wrong.reason, wrong.detail))?,
        Some(other) => return Err(wrong_type("media", "an array", other)),
    };
    let client_turn_id = string(fields, "turn_id")?;
    if client_turn_id.is_some_and(|id| !is_client_turn_id(id)) {
        let detail = format!("\"turn_id\" must have 1 to {CLIENT_TURN_ID_BYTES_MAX} bytes without control characters");
        return Err(Refused::bad_frame(detail));
    }
    let webui = match fields.get("webui") {
        None | Some(Value::Null) => false,
        Some(Value::Bool(webui)) => *webui,
        // Any sign will do: other clients put an object here.
        Some(Value::Object(_)) => true,
        Some(other) => return Err(wrong_type("webui", "a boolean", other)),
    };
    Ok(Incoming::Message(Message {
        chat_id: chat_id(fields)?,
        client_turn_id: client_turn_id.map(str::to_owned),
        webui,
        scope: scope(fields)?,
        ..worded(text.to_owned(), message_id(fields)?, media)?
    }))
}

fn plain(text: String, message_id: Option<MessageId>) -> Result<Message, Refused> {
    worded(text, message_id, Vec::new())
}

fn worded(text: String, message_id: Option<MessageId>, media: Vec<Upload>) -> Result<Message, Refused> {
    if text.len() > TEXT_BYTES_MAX {
        let detail = format!("the text has {} bytes; at most {TEXT_BYTES_MAX} are allowed", text.len());
        return Err(Refused::new("too_large", detail));
    }
    if text.trim().is_empty() && media.is_empty() {
        return Err(Refused::bad_frame("the message is empty"));
    }
    Ok(Message { chat_id: None, text, media, message_id, client_turn_id: None, scope: None, webui: false })
}

/// Without a project there is none, whatever else is said.
fn scope(fields: &Map<String, Value>) -> Result<Option<Scope>, Refused> {
    let fields = match fields.get("workspace_scope") {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::Object(fields)) => fields,
        Some(other) => return Err(wrong_type("workspace_scope", "an object", other)),
    };
    let Some(path) = string(fields, "project_path")?.filter(|path| !path.is_empty()) else { return Ok(None) };
    let project_path = PathBuf::from(path);
    if !project_path.is_absolute() {
        return Err(Refused::bad_frame("\"project_path\" must be an absolute path"));
    }
    let access_mode = match string(fields, "access_mode")? {
        None | Some("restricted") => AccessMode::Restricted,
        Some("full") => AccessMode::Full,
        Some(_) => return Err(Refused::bad_frame("\"access_mode\" must be \"restricted\" or \"full\"")),
    };
    Ok(Some(Scope { project_path, access_mode }))
}

fn message_id(fields: &Map<String, Value>) -> Result<Option<MessageId>, Refused> {
    string(fields, "message_id")?
        .map(|id| MessageId::new(id).map_err(|error| Refused::bad_frame(error.to_string())))
        .transpose()
}

fn chat_id(fields: &Map<String, Value>) -> Result<Option<String>, Refused> {
    match string(fields, "chat_id")? {
        Some(id) if is_chat_id(id) => Ok(Some(id.to_owned())),
        Some(_) => Err(Refused::bad_frame("\"chat_id\" must match [A-Za-z0-9_:-]{1,64}")),
        None => Ok(None),
    }
}

fn is_chat_id(id: &str) -> bool {
    (1..=CHAT_ID_BYTES_MAX).contains(&id.len())
        && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_:-".contains(&byte))
}

fn is_client_turn_id(id: &str) -> bool {
    (1..=CLIENT_TURN_ID_BYTES_MAX).contains(&id.len()) && !id.chars().any(char::is_control)
}

/// A field that is a string when it is there; `null` counts as absent.
fn string<'a>(fields: &'a Map<String, Value>, name: &str) -> Result<Option<&'a str>, Refused> {
    match fields.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(other) => Err(wrong_type(name, "a string", other)),
    }
}

fn wrong_type(name: &str, expected: &str, found: &Value) -> Refused {
    Refused::bad_frame(format!("\"{name}\" must be {expected}, not {}", kind_of(found)))
}

/// What a JSON value is, in words.
pub(crate) fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

/// Where and why JSON cannot be read, without repeating any of it.
pub(crate) fn place(error: &serde_json::Error) -> String {
    let why = match error.classify() {
        serde_json::error::Category::Eof => "it ends too early",
        serde_json::error::Category::Syntax | serde_json::error::Category::Data | serde_json::error::Category::Io => {
            "it cannot be read"
        }
    };
    format!("{why} at line {} column {}", error.line(), error.column())
}

/// A name of the client's, short enough to repeat.
fn shown(name: &str) -> String {
    let kept = name.get(..name.floor_char_boundary(NAME_BYTES_SHOWN)).unwrap_or_default();
    kept.chars().filter(|char| !char.is_control()).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TURN: &str = "01890a5d-ac96-774b-bcce-b302099a8057";

    fn say(chat_id: Option<&str>, text: &str, message_id: Option<&str>) -> Incoming {
        let message_id = message_id.map(|id| MessageId::new(id).unwrap());
        let chat_id = chat_id.map(str::to_owned);
        Incoming::Message(plain(text.to_owned(), message_id).map(|message| Message { chat_id, ..message }).unwrap())
    }

    fn site(access_mode: AccessMode) -> Scope {
        Scope { project_path: "/srv/a".into(), access_mode }
    }

    #[test]
    fn good_frames_are_read() {
        let attach = |after: Option<&str>| Incoming::Attach {
            chat_id: "a:b-c_9".to_owned(),
            after: after.map(|text| text.parse().unwrap()),
        };
        let cursor = format!("{TURN}.1.7");
        for (frame, expected) in [
            (r#"hello"#.to_owned(), say(None, "hello", None)),
            ("[1] hello".to_owned(), say(None, "[1] hello", None)),
            (r#"{"content":"hi"}"#.to_owned(), say(None, "hi", None)),
            (r#"{"text":"hi","message_id":"m1"}"#.to_owned(), say(None, "hi", Some("m1"))),
            (r#"{"message":"hi","content":null}"#.to_owned(), say(None, "hi", None)),
            (r#" {"type":"new_chat","workspace_scope":{}}"#.to_owned(), Incoming::NewChat { scope: None }),
            (
                r#"{"type":"new_chat","workspace_scope":{"project_path":"/srv/a"}}"#.to_owned(),
                Incoming::NewChat { scope: Some(site(AccessMode::Restricted)) },
            ),
            (
                r#"{"type":"set_workspace_scope","chat_id":"c","workspace_scope":null}"#.to_owned(),
                Incoming::Scope { chat_id: "c".to_owned(), scope: None },
            ),
            (
                r#"{"type":"set_workspace_scope","chat_id":"c","workspace_scope":{"project_path":"/srv/a","access_mode":"full"}}"#
                    .to_owned(),
                Incoming::Scope { chat_id: "c".to_owned(), scope: Some(site(AccessMode::Full)) },
            ),
            (r#"{"type":"attach","chat_id":"a:b-c_9"}"#.to_owned(), attach(None)),
            (format!(r#"{{"type":"attach","chat_id":"a:b-c_9","after":"{cursor}"}}"#), attach(Some(&cursor))),
            (r#"{"type":"message","chat_id":"c","content":"hi","unknown":[1]}"#.to_owned(), say(Some("c"), "hi", None)),
            (r#"{"type":"message","content":"é😀","media":[]}"#.to_owned(), say(None, "é😀", None)),
        ] {
            assert_eq!(parse(&frame).unwrap(), expected, "{frame}");
        }
        let Incoming::Message(message) =
            parse(r#"{"type":"message","chat_id":"c","content":"hi","turn_id":"t-1","webui":true}"#).unwrap()
        else {
            panic!("a message");
        };
        assert!(message.webui);
        assert_eq!(message.client_turn_id.as_deref(), Some("t-1"));
    }

    #[test]
    fn an_error_carries_the_names_that_can_be_read() {
        let (names, long) = (r#""chat_id":"c","message_id":"m","turn_id":"t""#, "x".repeat(ID_BYTES_SHOWN + 1));
        let all = (Some("c"), Some("m"), Some("t"));
        for (frame, expected) in [
            (format!(r#"{{{names},"type":"dance"}}"#), all),
            (format!(r#"{{"type":"message",{names},"content":"cut"#), all),
            (format!(r#"{{"type":"message","content":"\ud800",{names}}}"#), all),
            (format!(r#"{{"type":"message","content":1e999,{names}}}"#), all),
            (format!(r#"{{"media":{}{},{names}}}"#, "[".repeat(200), "]".repeat(200)), all),
            (r#"{"content":"x","chat_id":"c","message_id":"é"}"#.to_owned(), (Some("c"), Some("é"), None)),
            (r#"{"type":"attach","chat_id":"../x"}"#.to_owned(), (Some("../x"), None, None)),
            (r#"{"type":"message","message_id":7,"chat_id":"c"}"#.to_owned(), (Some("c"), None, None)),
            (format!(r#"{{"type":"message","message_id":"{long}","chat_id":"c"}}"#), (Some("c"), None, None)),
            (r#"{"type":"mess"#.to_owned(), (None, None, None)),
        ] {
            let refused = parse(&frame).unwrap_err();
            let found = (refused.chat_id, refused.message_id, refused.client_turn_id);
            assert_eq!((found.0.as_deref(), found.1.as_deref(), found.2.as_deref()), expected, "{frame}");
        }
    }

    #[test]
    fn bad_frames_say_what_is_wrong_and_whose_they_are() {
        for (frame, reason, detail) in [
            (r#"{"type":"mess"#, "bad_frame", "the frame is not valid JSON: it ends too early at line 1 column 13"),
            (r#"{"type":}"#, "bad_frame", "the frame is not valid JSON: it cannot be read at line 1 column 9"),
            (r#"{}"#, "bad_frame", "the frame has neither \"type\" nor one of \"content\", \"text\", \"message\""),
            (r#"{"type":7}"#, "bad_frame", "\"type\" must be a string, not a number"),
            (r#"{"type":"dance"}"#, "bad_frame", "unknown frame type \"dance\""),
            (r#"{"type":"attach"}"#, "bad_frame", "\"chat_id\" is missing"),
            (r#"{"type":"attach","chat_id":"../x"}"#, "bad_frame", "\"chat_id\" must match [A-Za-z0-9_:-]{1,64}"),
            (
                r#"{"type":"attach","chat_id":"a","after":"x"}"#,
                "bad_frame",
                "\"after\": a cursor is `<turn id>.<attempt>.<seq>`",
            ),
            (r#"{"type":"message","chat_id":"a"}"#, "bad_frame", "\"content\" is missing"),
            (r#"{"type":"message","content":["a"]}"#, "bad_frame", "\"content\" must be a string, not an array"),
            (r#"{"type":"message","content":"  "}"#, "bad_frame", "the message is empty"),
            ("", "bad_frame", "the message is empty"),
            (
                r#"{"type":"message","content":"a","message_id":7}"#,
                "bad_frame",
                "\"message_id\" must be a string, not a number",
            ),
            (r#"{"type":"message","content":"a","message_id":""}"#, "bad_frame", "message id is empty"),
            (
                r#"{"type":"message","content":"a","media":["data:"]}"#,
                "bad_frame",
                "\"media\"[0] is a data URL without data",
            ),
            (
                r#"{"type":"set_workspace_scope","chat_id":"a"}"#,
                "bad_frame",
                "\"workspace_scope\" is missing; null is the workspace",
            ),
            (
                r#"{"type":"message","content":"a","workspace_scope":{"project_path":"site"}}"#,
                "bad_frame",
                "\"project_path\" must be an absolute path",
            ),
            (
                r#"{"type":"new_chat","workspace_scope":{"project_path":"/a","access_mode":"all"}}"#,
                "bad_frame",
                "\"access_mode\" must be \"restricted\" or \"full\"",
            ),
            (
                r#"{"type":"message","content":"a","webui":"x"}"#,
                "bad_frame",
                "\"webui\" must be a boolean, not a string",
            ),
        ] {
            let refused = parse(frame).unwrap_err();
            assert_eq!((refused.reason, refused.detail.as_str()), (reason, detail), "{frame}");
        }
        let long = "x".repeat(TEXT_BYTES_MAX + 1);
        let frame = format!(r#"{{"type":"message","chat_id":"c","message_id":"m","turn_id":"t","content":"{long}"}}"#);
        let refused = parse(&frame).unwrap_err();
        assert_eq!(refused.reason, "too_large");
        assert_eq!(refused.chat_id.as_deref(), Some("c"));
        assert_eq!(refused.message_id.as_deref(), Some("m"));
        assert_eq!(refused.client_turn_id.as_deref(), Some("t"));
        assert_eq!(parse(&long).unwrap_err().reason, "too_large");
    }

    proptest! {
        #[test]
        fn no_frame_makes_the_reader_panic(frame in "\\PC*", object in "\\{\"(type|content|chat_id)\":\\PC{0,20}\\}") {
            let _ = parse(&frame);
            let _ = parse(&object);
        }
    }
}
