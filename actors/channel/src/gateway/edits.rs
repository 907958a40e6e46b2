//! `POST sessions/{key}/{label|rename|branch|reset|compact|fork|repair|export}`: changes a conversation between its turns.
//! What shows it: `GET sessions/{key}/{tree|check}`. A file becomes a session: `POST import`.
//!
//! ```json
//! label   {"entry":"a41f","text":"important"}      without "text" the label is taken away
//! rename  {"name":"Taxes"}
//! branch  {"entry":"a41f","summary":"…"}           "entry": null is before the first entry; "summary" may be missing
//! reset   {}
//! compact {"keep_last":20}  {"keep_days":7}  {"keep_important":true}  each also with "summary"
//! fork    {"to":"api:8","entry":"a41f"}            without "entry" everything is copied
//! repair  {}
//! export  {"file":"/home/ann/7.jsonl","format":"nanobot"}  "greenroom", which it is unless given, or "openclaw"
//! import  {"file":"/home/ann/7.jsonl","key":"api:7"}      without "key" the file has to say which session it is
//! ```
//!
//! Each takes `"wait": false`, to be refused while a turn runs. The answers are [`protocol::edit::Edited`]. The operations
//! are free of HTTP, so that a command without a gateway does the same.

use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::rejection::{BytesRejection, PathRejection};
use axum::extract::{Path, State};
use axum::http::Response;
use axum::routing::post;
use domain::exchange::single::Format;
use domain::ids::SessionKey;
use protocol::edit::{Edit, EditError, Edited, Keep, Patience};
use protocol::journal::{Journal, OpenWork};
use protocol::registry::{Sessions, Unreachable};
use protocol::session::Mail;
use protocol::supervision::{ActorPath, Event, EventName, Kind, SupervisionLog};
use protocol::transcripts::{BroughtIn, TranscriptReader};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::RecvError;

use super::admin::{BadKey, blocking, body_of, error, failed, json_of, key_and_body, key_of};
use super::letters::Fault;
use super::serve::Gateway;

/// How long an edit may wait for the turn before it and for the disk.
const ANSWER_MAX: Duration = Duration::from_secs(600);

/// Which edit a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// `label`
    Label,
    /// `rename`
    Rename,
    /// `branch`
    Branch,
    /// `reset`
    Reset,
    /// `compact`
    Compact,
    /// `fork`
    Fork,
    /// `repair`
    Repair,
    /// `export`
    Export,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LabelBody {
    entry: String,
    text: Option<String>,
    #[serde(default = "yes")]
    wait: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RenameBody {
    name: String,
    #[serde(default = "yes")]
    wait: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BranchBody {
    #[serde(deserialize_with = "Option::deserialize")]
    entry: Option<String>,
    summary: Option<String>,
    #[serde(default = "yes")]
    wait: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CompactBody {
    keep_last: Option<u32>,
    keep_days: Option<u32>,
    #[serde(default)]
    keep_important: bool,
    summary: Option<String>,
    #[serde(default = "yes")]
    wait: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ForkBody {
    to: SessionKey,
    entry: Option<String>,
    #[serde(default = "yes")]
    wait: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ExportBody {
    file: PathBuf,
    #[serde(default)]
    format: Format,
    #[serde(default = "yes")]
    wait: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ImportBody {
    file: PathBuf,
    key: Option<SessionKey>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EmptyBody {
    #[serde(default = "yes")]
    wait: bool,
}

fn yes() -> bool {
    true
}

// === impl Verb ===

impl Verb {
    /// As it stands in a path.
    pub fn word(self) -> &'static str {
        match self {
            Self::Label => "label",
            Self::Rename => "rename",
            Self::Branch => "branch",
            Self::Reset => "reset",
            Self::Compact => "compact",
            Self::Fork => "fork",
            Self::Repair => "repair",
            Self::Export => "export",
        }
    }

    /// What the body of a request asks for, or what is wrong with it.
    pub fn parse(self, body: &[u8]) -> Result<(Edit, Patience), String> {
        let (edit, wait) = match self {
            Self::Label => {
                let LabelBody { entry, text, wait } = read(body)?;
                (Edit::Label { entry, text }, wait)
            }
            Self::Rename => {
                let RenameBody { name, wait } = read(body)?;
                (Edit::Rename { name }, wait)
            }
            Self::Branch => {
                let BranchBody { entry: to, summary, wait } = read(body)?;
                (Edit::Branch { to, summary }, wait)
            }
            Self::Reset => (Edit::Reset, read::<EmptyBody>(body)?.wait),
            Self::Repair => (Edit::Repair, read::<EmptyBody>(body)?.wait),
            Self::Compact => {
                let asked: CompactBody = read(body)?;
                let keep = match (asked.keep_last, asked.keep_days, asked.keep_important, &asked.summary) {
                    (Some(count), None, false, _) => Keep::Messages(count),
                    (None, Some(days), false, _) => Keep::Days(days),
                    (None, None, true, _) | (None, None, false, Some(_)) => Keep::Important,
                    (_, _, _, _) => {
                        return Err("one of \"keep_last\", \"keep_days\", \"keep_important\" and \"summary\" is \
                                    needed; of the first three only one"
                            .to_owned());
                    }
                };
                (Edit::Compact { keep, summary: asked.summary }, asked.wait)
            }
            Self::Fork => {
                let ForkBody { to, entry, wait } = read(body)?;
                (Edit::Fork { to, entry }, wait)
            }
            Self::Export => {
                let ExportBody { file, format, wait } = read(body)?;
                (Edit::Export { file: absolute(file)?, format }, wait)
            }
        };
        Ok((edit, if wait { Patience::Wait } else { Patience::Refuse }))
    }
}

fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, String> {
    let body = if body.is_empty() { b"{}" } else { body };
    // Its words name keys and places, and quote nothing but names of keys.
    serde_json::from_slice(body).map_err(|why| format!("the body cannot be used: {why}"))
}

/// A path that means the same to whoever asks and to the gateway.
fn absolute(file: PathBuf) -> Result<PathBuf, String> {
    if file.is_absolute() { Ok(file) } else { Err("\"file\" must be an absolute path".to_owned()) }
}

/// Refuses a name for a new session when somebody has it, or `open` tells of messages that wait under it; transcripts are
/// not looked at.
fn unused(sessions: &dyn Sessions, key: &SessionKey, open: Result<OpenWork, RecvError>) -> Result<(), EditError> {
    let open = open.map_err(|_| EditError::Stopping)?;
    let taken = sessions.state(key).is_some() || !open.turns.is_empty();
    if taken { Err(EditError::Exists(key.clone())) } else { Ok(()) }
}

/// Makes a session of a file. Blocks.
pub fn bring_in(
    (sessions, journal): (&dyn Sessions, &dyn Journal),
    files: &dyn TranscriptReader,
    file: &FilePath,
    key: Option<&SessionKey>,
) -> Result<BroughtIn, EditError> {
    files.bring_in(file, key, &|key| unused(sessions, key, journal.open_of(key.clone()).blocking_recv()))
}

/// Has a session changed, which wakes when it sleeps.
pub async fn edit(
    (sessions, journal): (&dyn Sessions, &dyn Journal),
    key: &SessionKey,
    edit: Edit,
    patience: Patience,
) -> Result<Edited, Fault> {
    if let Edit::Fork { to, .. } = &edit {
        unused(sessions, to, journal.open_of(to.clone()).await).map_err(|refused| fault(&refused))?;
    }
    let (reply, edited) = oneshot::channel();
    sessions.tell(key, Mail::Edit { edit, patience, reply }).map_err(|why| match why {
        Unreachable::Quarantined | Unreachable::Paused => Fault::new(503, "quarantined", why.to_string()),
        Unreachable::Stopping => fault(&EditError::Stopping),
    })?;
    match tokio::time::timeout(ANSWER_MAX, edited).await {
        Ok(Ok(edited)) => edited.map_err(|refused| fault(&refused)),
        Ok(Err(_)) => {
            let message = "the session was loaded again meanwhile; its tree says whether the edit took place";
            Err(Fault::new(503, "unknown_outcome", message))
        }
        Err(_) => Err(Fault::new(504, "timeout", "the turn that runs did not end; the edit still waits behind it")),
    }
}

/// Tells that a file became the session `key`.
pub fn tell_imported(log: &dyn SupervisionLog, key: &SessionKey) {
    let mut event = Event::new(EventName::SessionEdited, ActorPath("/registry".into()), Kind::Registry);
    event.session = Some(key.clone());
    event.reason = Some("import".to_owned());
    log.record(event);
}

/// As the command line and the gateway tell it.
pub fn fault(refused: &EditError) -> Fault {
    Fault::new(refused.status(), refused.code(), refused.to_string())
}

fn refused(fault: &Fault) -> Response<Body> {
    error(fault.status, fault.code, &fault.message)
}

/// The routes of all edits.
pub(super) fn routes() -> Router<Arc<Gateway>> {
    use Verb::{Branch, Compact, Export, Fork, Label, Rename, Repair, Reset};
    let verbs = [Label, Rename, Branch, Reset, Compact, Fork, Repair, Export];
    verbs.into_iter().fold(Router::new(), |router, verb| {
        let answer = move |State(gateway): State<Arc<Gateway>>,
                           path: Result<Path<String>, PathRejection>,
                           body: Result<Bytes, BytesRejection>| answer(verb, gateway, path, body);
        router.route(&format!("/sessions/{{key}}/{}", verb.word()), post(answer))
    })
}

async fn answer(
    verb: Verb,
    gateway: Arc<Gateway>,
    path: Result<Path<String>, PathRejection>,
    body: Result<Bytes, BytesRejection>,
) -> Response<Body> {
    let (key, body) = match key_and_body(path, body) {
        Ok(both) => both,
        Err(refused) => return *refused,
    };
    let (asked, patience) = match verb.parse(&body) {
        Ok(asked) => asked,
        Err(why) => return error(400, "bad_body", &why),
    };
    match edit((&*gateway.doors.sessions, &*gateway.doors.journal), &key, asked, patience).await {
        Ok(edited) => json_of(&edited),
        Err(fault) => refused(&fault),
    }
}

/// Answers `POST import`: a file becomes a session.
pub(super) async fn import(State(gateway): State<Arc<Gateway>>, body: Result<Bytes, BytesRejection>) -> Response<Body> {
    let asked = match body_of(body) {
        Ok(body) => read::<ImportBody>(&body).and_then(|ImportBody { file, key }| Ok((absolute(file)?, key))),
        Err(refused) => return *refused,
    };
    let (file, key) = match asked {
        Ok(asked) => asked,
        Err(why) => return error(400, "bad_body", &why),
    };
    let asked = Arc::clone(&gateway);
    let bring = move || {
        let (doors, files) = (&asked.doors, &*asked.config.transcripts);
        Ok(bring_in((&*doors.sessions, &*doors.journal), files, &file, key.as_ref()))
    };
    match blocking(&gateway, bring).await {
        Ok(Ok(brought)) => {
            tell_imported(&*gateway.doors.log, &brought.key);
            json_of(&brought)
        }
        Ok(Err(why)) => refused(&fault(&why)),
        Err(cause) => failed("the file", &cause),
    }
}

/// Answers `GET sessions/{key}/tree`.
pub(super) async fn tree(
    State(gateway): State<Arc<Gateway>>,
    path: Result<Path<String>, PathRejection>,
) -> Response<Body> {
    shown(&gateway, key_of(path), |files, key| files.tree(key)).await
}

/// Answers `GET sessions/{key}/check`.
pub(super) async fn check(
    State(gateway): State<Arc<Gateway>>,
    path: Result<Path<String>, PathRejection>,
) -> Response<Body> {
    shown(&gateway, key_of(path), |files, key| files.check(key)).await
}

async fn shown<T: serde::Serialize + Send + 'static>(
    gateway: &Gateway,
    key: Result<SessionKey, BadKey>,
    look: impl FnOnce(&dyn TranscriptReader, &SessionKey) -> std::io::Result<Option<T>> + Send + 'static,
) -> Response<Body> {
    let key = match key {
        Ok(key) => key,
        Err(bad) => return bad.response(),
    };
    let files = Arc::clone(&gateway.config.transcripts);
    match blocking(gateway, move || look(&*files, &key)).await {
        Ok(Some(body)) => json_of(&body),
        Ok(None) => refused(&fault(&EditError::NoSession)),
        Err(cause) => failed("the transcript", &cause),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_name_one_edit_or_say_what_is_wrong() {
        let ok = |edit| Ok((edit, Patience::Wait));
        let compact = |keep, summary: Option<&str>| Edit::Compact { keep, summary: summary.map(str::to_owned) };
        let label = |text: Option<&str>| Edit::Label { entry: "a".to_owned(), text: text.map(str::to_owned) };
        for (verb, body, expected) in [
            (Verb::Label, r#"{"entry":"a","text":"x"}"#, ok(label(Some("x")))),
            (Verb::Label, r#"{"entry":"a"}"#, ok(label(None))),
            (Verb::Branch, r#"{"entry":null}"#, ok(Edit::Branch { to: None, summary: None })),
            (Verb::Reset, "", ok(Edit::Reset)),
            (Verb::Reset, r#"{"wait":false}"#, Ok((Edit::Reset, Patience::Refuse))),
            (Verb::Compact, r#"{"keep_last":3,"summary":"s"}"#, ok(compact(Keep::Messages(3), Some("s")))),
            (Verb::Compact, r#"{"keep_days":2}"#, ok(compact(Keep::Days(2), None))),
            (Verb::Compact, r#"{"keep_important":true}"#, ok(compact(Keep::Important, None))),
            (Verb::Export, r#"{"file":"/x"}"#, ok(Edit::Export { file: "/x".into(), format: Format::Greenroom })),
            (Verb::Compact, r#"{"summary":"s"}"#, ok(compact(Keep::Important, Some("s")))),
        ] {
            assert_eq!(verb.parse(body.as_bytes()), expected, "{body}");
        }
        for (verb, body, says) in [
            (Verb::Label, "{}", "entry"),
            (Verb::Branch, "{}", "entry"),
            (Verb::Branch, r#"{"entry":7}"#, "line 1 column"),
            (Verb::Rename, r#"{"name":"a","nme":1}"#, "nme"),
            (Verb::Compact, "{}", "keep_last"),
            (Verb::Compact, r#"{"keep_last":1,"keep_days":1}"#, "only one"),
            (Verb::Fork, r#"{"to":""}"#, "line 1"),
            (Verb::Export, r#"{"file":"here"}"#, "absolute"),
            (Verb::Export, r#"{"file":"/x","format":"other"}"#, "other"),
        ] {
            let why = verb.parse(body.as_bytes()).unwrap_err();
            assert!(why.contains(says), "{body}: {why}");
        }
    }
}
