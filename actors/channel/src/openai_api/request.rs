//! `POST /v1/chat/completions`, read. Pure: bytes in, a turn's body and its session out, or a complaint that names the
//! field.
//!
//! Tolerant as OpenAI is: unknown fields are ignored, known ones must have the right type.

use domain::body::{ContextMessage, ContextRole, HistorySource, TurnBody};
use domain::chat::{Content, plain_text};
use serde_json::{Map, Value};

use crate::picture;
use crate::websocket::frames::{kind_of, place};

/// Messages of one request.
const MESSAGES_MAX: usize = 4096;

/// Longest session id or user, so that the session key stays legal.
const NAME_BYTES_MAX: usize = 256;

/// A request, understood.
#[derive(Debug, PartialEq)]
pub(crate) struct ChatRequest {
    pub(crate) session: SessionName,
    pub(crate) body: TurnBody,
    pub(crate) stream: bool,
    pub(crate) include_usage: bool,
}

/// Which session a request belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SessionName {
    /// `session_id`
    Id(String),
    /// `user`
    User(String),
    /// Neither, and a single message.
    Default,
    /// Neither, and a history of its own: archived at once.
    Stateless,
}

/// What is wrong with a request; becomes an OpenAI error object with status 400 (404 for an unknown model).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wrong {
    pub(crate) message: String,
    /// Path of the field.
    pub(crate) param: Option<String>,
    pub(crate) code: &'static str,
}

impl Wrong {
    fn at(param: impl Into<String>, code: &'static str, message: impl Into<String>) -> Self {
        Self { message: message.into(), param: Some(param.into()), code }
    }

    fn kind(param: &str, expected: &str, found: &Value) -> Self {
        Self::at(param, "invalid_type", format!("'{param}' must be {expected}, not {}", kind_of(found)))
    }
}

/// What the fields that are checked but not used must be.
const KINDS: [(&str, Kind); 19] = [
    ("audio", Kind::Object),
    ("frequency_penalty", Kind::Number),
    ("logit_bias", Kind::Object),
    ("logprobs", Kind::Bool),
    ("max_completion_tokens", Kind::Integer),
    ("max_tokens", Kind::Integer),
    ("metadata", Kind::Object),
    ("modalities", Kind::Array),
    ("n", Kind::Integer),
    ("parallel_tool_calls", Kind::Bool),
    ("presence_penalty", Kind::Number),
    ("response_format", Kind::Object),
    ("seed", Kind::Integer),
    ("store", Kind::Bool),
    ("stream_options", Kind::Object),
    ("temperature", Kind::Number),
    ("tools", Kind::Array),
    ("top_logprobs", Kind::Integer),
    ("top_p", Kind::Number),
];

#[derive(Debug, Clone, Copy)]
enum Kind {
    Array,
    Bool,
    Integer,
    Number,
    Object,
}

impl Kind {
    fn check(self, value: &Value) -> Result<(), &'static str> {
        let (ok, name) = match self {
            Self::Array => (value.is_array(), "an array"),
            Self::Bool => (value.is_boolean(), "a boolean"),
            Self::Integer => (value.is_i64() || value.is_u64(), "an integer"),
            Self::Number => (value.is_number(), "a number"),
            Self::Object => (value.is_object(), "an object"),
        };
        if ok { Ok(()) } else { Err(name) }
    }
}

/// Reads a request to the one model that is served.
pub(crate) fn parse(bytes: &[u8], served_model: &str) -> Result<ChatRequest, Wrong> {
    let value: Value = serde_json::from_slice(bytes).map_err(|error| Wrong {
        message: format!("the body is not valid JSON: {}", place(&error)),
        param: None,
        code: "invalid_json",
    })?;
    let Value::Object(mut fields) = value else {
        return Err(Wrong { message: "the body must be a JSON object".to_owned(), param: None, code: "invalid_json" });
    };
    if let Some(model) = string(&fields, "model")?
        && model != served_model
    {
        let message = format!("this model is not served here; the one that is, is '{served_model}'");
        return Err(Wrong::at("model", "model_not_found", message));
    }
    check_kinds(&fields)?;
    let stream = boolean(&fields, "stream", "stream")?;
    let include_usage = match fields.get("stream_options") {
        Some(Value::Object(options)) => boolean(options, "include_usage", "stream_options.include_usage")?,
        Some(_) | None => false,
    };
    let session_id = name(&fields, "session_id")?;
    if session_id.as_deref() == Some("") {
        let message = "'session_id' is empty; leave it out for the default session";
        return Err(Wrong::at("session_id", "invalid_value", message));
    }
    // OpenAI takes an empty user for none.
    let user = name(&fields, "user")?.filter(|user| !user.is_empty());
    let messages = match fields.remove("messages") {
        Some(Value::Array(messages)) => messages,
        Some(other) => return Err(Wrong::kind("messages", "an array", &other)),
        None => return Err(Wrong::at("messages", "missing_required_parameter", "'messages' is missing")),
    };
    let mut body = conversation(messages)?;
    let session = match (session_id, user) {
        (Some(id), _) => SessionName::Id(id),
        (None, Some(user)) => SessionName::User(user),
        (None, None) if body.history == HistorySource::Session => SessionName::Default,
        (None, None) => SessionName::Stateless,
    };
    body.ephemeral = session == SessionName::Stateless;
    Ok(ChatRequest { session, body, stream, include_usage })
}

fn check_kinds(fields: &Map<String, Value>) -> Result<(), Wrong> {
    for (name, value) in fields {
        if value.is_null() {
            continue;
        }
        if let Ok(index) = KINDS.binary_search_by_key(&name.as_str(), |kind| kind.0)
            && let Some((_, kind)) = KINDS.get(index)
        {
            kind.check(value).map_err(|expected| Wrong::kind(name, expected, value))?;
        }
    }
    match fields.get("n").and_then(Value::as_i64) {
        None | Some(1) => Ok(()),
        Some(_) => Err(Wrong::at("n", "unsupported_value", "'n' must be 1: a session has one answer")),
    }
}

/// Splits the messages into the one to answer and what comes before it.
fn conversation(messages: Vec<Value>) -> Result<TurnBody, Wrong> {
    if messages.is_empty() || messages.len() > MESSAGES_MAX {
        let message = format!("'messages' must have 1 to {MESSAGES_MAX} items");
        return Err(Wrong::at("messages", "invalid_value", message));
    }
    let mut context: Vec<ContextMessage> = Vec::with_capacity(messages.len());
    let mut last_user: Option<(Vec<Content>, String)> = None;
    let mut history = HistorySource::Session;
    for (index, message) in messages.into_iter().enumerate() {
        let path = format!("messages[{index}]");
        let Value::Object(mut message) = message else { return Err(Wrong::kind(&path, "an object", &message)) };
        let role = role(&message, &path)?;
        let content = content(message.remove("content"), &format!("{path}.content"), role)?;
        match role {
            Role::System => push(&mut context, ContextRole::System, &content),
            Role::User => {
                if let Some((earlier, _)) = last_user.replace((content, path)) {
                    history = HistorySource::Request;
                    push(&mut context, ContextRole::User, &earlier);
                }
            }
            Role::Assistant | Role::Tool => {
                history = HistorySource::Request;
                if let Some((earlier, _)) = last_user.take() {
                    push(&mut context, ContextRole::User, &earlier);
                }
                push(&mut context, ContextRole::Assistant, &content);
            }
        }
    }
    let Some((content, path)) = last_user else {
        return Err(Wrong::at("messages", "invalid_value", "the last message must be of the role 'user'"));
    };
    let empty = content.iter().all(|piece| match piece {
        Content::Text { text } => text.trim().is_empty(),
        Content::Image { .. } => false,
    });
    if empty {
        let param = format!("{path}.content");
        let message = format!("'{param}' is empty");
        return Err(Wrong::at(param, "invalid_value", message));
    }
    Ok(TurnBody { content: content.into(), context, history, ephemeral: false, ..TurnBody::text("") })
}

/// Adds what the model is shown of an earlier message; pictures are only mentioned.
fn push(context: &mut Vec<ContextMessage>, role: ContextRole, content: &[Content]) {
    let mut text = plain_text(content);
    if content.iter().any(|piece| matches!(piece, Content::Image { .. })) {
        text.push_str("\n[image]");
    }
    if !text.is_empty() {
        context.push(ContextMessage { role, text });
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    System,
    User,
    Assistant,
    Tool,
}

fn role(message: &Map<String, Value>, path: &str) -> Result<Role, Wrong> {
    let param = format!("{path}.role");
    match message.get("role") {
        Some(Value::String(role)) => match role.as_str() {
            "system" | "developer" => Ok(Role::System),
            "user" => Ok(Role::User),
            "assistant" => Ok(Role::Assistant),
            "tool" | "function" => Ok(Role::Tool),
            _ => {
                let message = format!("'{param}' must be one of system, developer, user, assistant, tool");
                Err(Wrong::at(param, "invalid_value", message))
            }
        },
        Some(other) => Err(Wrong::kind(&param, "a string", other)),
        None => Err(Wrong::at(param.clone(), "missing_required_parameter", format!("'{param}' is missing"))),
    }
}

fn content(value: Option<Value>, path: &str, role: Role) -> Result<Vec<Content>, Wrong> {
    match value {
        Some(Value::String(text)) => Ok(vec![Content::Text { text }]),
        Some(Value::Array(parts)) => {
            parts.into_iter().enumerate().map(|(index, part)| piece(part, &format!("{path}[{index}]"))).collect()
        }
        // An assistant that only called tools said nothing.
        None | Some(Value::Null) if matches!(role, Role::Assistant | Role::Tool) => Ok(Vec::new()),
        None | Some(Value::Null) => Err(Wrong::at(path, "missing_required_parameter", format!("'{path}' is missing"))),
        Some(other) => Err(Wrong::kind(path, "a string or an array", &other)),
    }
}

fn piece(part: Value, path: &str) -> Result<Content, Wrong> {
    let Value::Object(mut part) = part else { return Err(Wrong::kind(path, "an object", &part)) };
    let kind = part.remove("type");
    let kind = match &kind {
        Some(Value::String(kind)) => kind.as_str(),
        Some(other) => return Err(Wrong::kind(&format!("{path}.type"), "a string", other)),
        None if part.contains_key("text") => "text",
        None if part.contains_key("image_url") => "image_url",
        None => {
            let param = format!("{path}.type");
            return Err(Wrong::at(param.clone(), "missing_required_parameter", format!("'{param}' is missing")));
        }
    };
    match kind {
        "text" | "refusal" => match part.remove(kind) {
            Some(Value::String(text)) => Ok(Content::Text { text }),
            Some(other) => Err(Wrong::kind(&format!("{path}.{kind}"), "a string", &other)),
            None => {
                let param = format!("{path}.{kind}");
                Err(Wrong::at(param.clone(), "missing_required_parameter", format!("'{param}' is missing")))
            }
        },
        "image_url" => image(part.remove("image_url"), &format!("{path}.image_url")),
        _ => {
            let param = format!("{path}.type");
            let message = format!("'{param}' must be 'text' or 'image_url'");
            Err(Wrong::at(param, "unsupported_value", message))
        }
    }
}

fn image(value: Option<Value>, path: &str) -> Result<Content, Wrong> {
    let (url, path) = match value {
        Some(Value::String(url)) => (url, path.to_owned()),
        Some(Value::Object(mut image)) => {
            let path = format!("{path}.url");
            match image.remove("url") {
                Some(Value::String(url)) => (url, path),
                Some(other) => return Err(Wrong::kind(&path, "a string", &other)),
                None => {
                    let message = format!("'{path}' is missing");
                    return Err(Wrong::at(path, "missing_required_parameter", message));
                }
            }
        }
        Some(other) => return Err(Wrong::kind(path, "an object", &other)),
        None => return Err(Wrong::at(path, "missing_required_parameter", format!("'{path}' is missing"))),
    };
    let bad = |why: &str| Wrong::at(path.clone(), "invalid_value", format!("'{path}' {why}"));
    let rest = url.strip_prefix("data:").ok_or_else(|| bad("must be a data URL: pictures are not fetched"))?;
    let (kind, data) = rest.split_once(',').ok_or_else(|| bad("is a data URL without data"))?;
    let mime = kind.strip_suffix(";base64").ok_or_else(|| bad("must be base64"))?;
    let mime = mime.split(';').next().unwrap_or_default();
    if !mime.starts_with("image/") {
        return Err(bad("must be of a type image/..."));
    }
    if !is_base64(data) {
        return Err(bad("is not valid base64"));
    }
    // What it is counts, not what it is called.
    let what = || bad(&format!("is no picture ({})", picture::KINDS));
    let mime = picture::of_base64(data).ok_or_else(what)?;
    Ok(Content::Image { data: data.into(), mime: mime.to_owned(), path: None })
}

fn is_base64(data: &str) -> bool {
    let body = data.trim_end_matches('=');
    !body.is_empty()
        && data.len() - body.len() <= 2
        && body.len() % 4 != 1
        && body.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'+' || byte == b'/')
}

fn string<'a>(fields: &'a Map<String, Value>, name: &str) -> Result<Option<&'a str>, Wrong> {
    match fields.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(other) => Err(Wrong::kind(name, "a string", other)),
    }
}

fn boolean(fields: &Map<String, Value>, name: &str, path: &str) -> Result<bool, Wrong> {
    match fields.get(name) {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(value)) => Ok(*value),
        Some(other) => Err(Wrong::kind(path, "a boolean", other)),
    }
}

/// A session id or user.
fn name(fields: &Map<String, Value>, field: &str) -> Result<Option<String>, Wrong> {
    let Some(text) = string(fields, field)? else { return Ok(None) };
    if text.len() > NAME_BYTES_MAX || text.chars().any(char::is_control) {
        let message = format!("'{field}' must have at most {NAME_BYTES_MAX} bytes and no control characters");
        return Err(Wrong::at(field, "invalid_value", message));
    }
    Ok(Some(text.to_owned()))
}

#[cfg(test)]
mod tests;
