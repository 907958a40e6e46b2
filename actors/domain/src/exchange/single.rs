//! One session as one file of any of the three systems, and such a file as one session.

use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::nanobot::{self, SessionFile, name};
use super::{Remark, SeededIds, Transcribed, openclaw, push_line};
use crate::ids::SessionKey;
use crate::transcript::{Pen, copy, read_lines};

/// What a file is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// This program: the transcript as it is, which names its session.
    #[default]
    Greenroom,
    /// nanobot: one message per line.
    Nanobot,
    /// OpenClaw: a transcript of version 3.
    Openclaw,
}

/// Why a file is no session.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotASession {
    /// Nothing is in it.
    #[error("it is empty")]
    Empty,
    /// It is something else.
    #[error("line 1 is neither a session header nor an entry, and no message or metadata of nanobot's")]
    Unknown,
    /// Nothing says which session it is.
    #[error("it does not say which session it is; name a key for it")]
    NoKey,
}

/// Makes the file of a transcript. nanobot's times are those of `zone`.
pub fn export(bytes: Vec<u8>, key: &SessionKey, format: Format, zone: &TimeZone) -> (Vec<u8>, Vec<Remark>) {
    match format {
        Format::Greenroom => (bytes, Vec::new()),
        Format::Nanobot => {
            let made = nanobot::export(&bytes, key, zone);
            (made.bytes, made.remarks)
        }
        Format::Openclaw => (openclaw::export(&bytes, &openclaw::id_of(&bytes, key)).bytes, Vec::new()),
    }
}

/// Makes a transcript of the file whose name without `.jsonl` is `stem`, for the session `key`, or for the one that the
/// file or else its name says. `cwd` is for a header that is new.
pub fn import(
    bytes: &[u8],
    stem: &str,
    key: Option<&SessionKey>,
    zone: &TimeZone,
    cwd: &str,
) -> Result<(SessionKey, Transcribed), NotASession> {
    let first = first_line(bytes).ok_or(NotASession::Empty)?;
    let first = first.ok_or(NotASession::Unknown)?;
    let has = |field: &str| first.get(field).is_some_and(Value::is_string);
    if has("role") || has("_type") {
        let file = SessionFile::read(bytes);
        let said = file.key().and_then(|key| SessionKey::new(key).ok());
        let key = key.cloned().or(said).or_else(|| name::key_of(stem)).ok_or(NotASession::NoKey)?;
        let source = nanobot::Source { file: &file, key: &key, checkpoint: None, zone, cwd };
        let made = nanobot::transcribe(&source);
        return Ok((key, made));
    }
    if !has("type") {
        return Err(NotASession::Unknown);
    }
    let said = read_lines(bytes).header.and_then(|header| header.session_key);
    let said = said.and_then(|key| SessionKey::new(&key).ok());
    let key = key.cloned().or_else(|| said.clone()).ok_or(NotASession::NoKey)?;
    let mut made = openclaw::transcribe(&openclaw::Source { bytes, key: &key, id: stem, entry: None });
    if let Some(from) = said.filter(|said| *said != key) {
        let mark = mark(&made.bytes, &key, &from);
        push_line(&mut made.bytes, &mark);
    }
    Ok((key, made))
}

/// The first line with something in it; inside, `None` when it is no object.
fn first_line(bytes: &[u8]) -> Option<Option<Map<String, Value>>> {
    let text = String::from_utf8_lossy(bytes);
    let line = text.lines().map(|line| line.trim().trim_start_matches('\u{feff}')).find(|line| !line.is_empty())?;
    Some(serde_json::from_str(line).ok())
}

/// Ends what is another session's: its message ids are not this one's.
fn mark(bytes: &[u8], key: &SessionKey, from: &SessionKey) -> String {
    let (transcript, mut ids) = (read_lines(bytes), SeededIds::new("import", key.as_str()));
    let mut next = || ids.entry();
    let data = json!({"key": from, "entry": null});
    Pen::new(transcript.tree(), &mut next, transcript.last_ms()).custom(copy::FORKED, Some(&data)).line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::SessionId;
    use crate::transcript::{HeaderFields, header_line, recent_ids};

    fn key(text: &str) -> SessionKey {
        SessionKey::new(text).unwrap()
    }

    fn ours() -> Vec<u8> {
        let (session, key) = (SessionId(uuid::Uuid::from_u128(7)), key("api:7"));
        let header = HeaderFields { session, key: &key, timestamp_ms: 5, cwd: "/w", parent_session: None };
        let message = json!({
            "type": "message", "id": "00000000000000aa", "parentId": null, "timestamp": "2026-11-29T20:53:29.123Z",
            "message": {"role": "user", "content": "hello", "timestamp": 5, "idempotencyKey": "api:one",
                "turnId": uuid::Uuid::from_u128(9), "bodyHash": "71987d68ea5c8296"},
        });
        format!("{}\n{message}\n", header_line(&header)).into_bytes()
    }

    fn brought(bytes: &[u8], stem: &str, to: Option<&str>) -> Result<(SessionKey, Transcribed), NotASession> {
        import(bytes, stem, to.map(key).as_ref(), &TimeZone::UTC, "/w")
    }

    #[test]
    fn what_went_out_comes_back_from_each_system() {
        for (format, same) in [(Format::Greenroom, true), (Format::Nanobot, false), (Format::Openclaw, true)] {
            let (file, _) = export(ours(), &key("api:7"), format, &TimeZone::UTC);
            let to = (format == Format::Openclaw).then_some("api:7");
            let (key, made) = brought(&file, "x", to).unwrap();
            assert_eq!((key.as_str(), made.messages), ("api:7", 1), "{format:?}");
            assert!(String::from_utf8(made.bytes.clone()).unwrap().contains("hello"));
            assert_eq!(made.bytes == ours(), same, "{format:?}");
        }
    }

    #[test]
    fn a_copy_under_another_key_has_message_ids_of_its_own() {
        let (_, made) = brought(&ours(), "x", Some("api:8")).unwrap();
        let copy = read_lines(&made.bytes);
        assert_eq!(copy.header.as_ref().unwrap().session_key.as_deref(), Some("api:8"));
        let ids = |bytes: &[u8]| recent_ids(bytes, true).len();
        assert_eq!((ids(&ours()), ids(&made.bytes)), (1, 0));
    }

    #[test]
    fn what_is_no_session_is_told() {
        let named = key("telegram:1");
        let stem = name::stem(&named).unwrap();
        assert_eq!(brought(b"{\"role\":\"user\",\"content\":\"hi\"}\n", &stem, None).unwrap().0, named);
        for (bytes, why) in [
            ("\n \n", NotASession::Empty),
            ("hello\n", NotASession::Unknown),
            ("{\"a\":1}\n", NotASession::Unknown),
            ("{\"role\":\"user\",\"content\":\"hi\"}\n", NotASession::NoKey),
            ("{\"type\":\"session\",\"version\":3,\"id\":\"a\",\"timestamp\":\"\",\"cwd\":\"\"}\n", NotASession::NoKey),
        ] {
            assert_eq!(brought(bytes.as_bytes(), "no stem!", None).unwrap_err(), why, "{bytes}");
        }
    }
}
