//! Dead letters: turns and deliveries that were given up. The operations are free of HTTP, so that a command without a
//! gateway does the same on the journal itself and prints the same bodies.
//!
//! ```json
//! {"items":[{"id":"0193…","kind":"turn","turn":"0193…","key":"api:7","message_id":"m1","reason":"crashes","at_ms":1}],"next":null}
//! {"id":"0193…:1","kind":"delivery", …,"route":{"channel":"webhook","account":"","chat":"7"},"bytes":12,"events":[…]}
//! {"id":"0193…","kind":"turn","turn_id":"0194…","seq":4,"position":0,"state":"running"}
//! ```
//!
//! What the message or the delivery says is shown only when it is asked for (`content=true`).

use std::sync::Arc;

use axum::body::Body;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::Response;
use domain::body::TurnBody;
use domain::chat::plain_text;
use domain::ids::{LetterId, MessageId, SessionKey, TurnId};
use protocol::journal::{Accepted, AcceptedState, Enqueue, Journal, LetterContent, LetterDetail, OutRow};
use protocol::supervision::{ActorPath, Event, EventName, Kind, SupervisionLog};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use supervision::ports::{Disk, Ports};
use tokio::sync::oneshot;

use super::admin::{blocking, error, ok};
use super::serve::Gateway;
use crate::doors::source;
use crate::outcome::Verdict;

/// Why a dead letter could not be shown or acted on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// HTTP status.
    pub status: u16,
    /// Word for programs.
    pub code: &'static str,
    /// Sentence for people.
    pub message: String,
}

impl Fault {
    /// One of these.
    pub fn new(status: u16, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into() }
    }

    fn unknown(id: LetterId) -> Self {
        Self::new(404, "not_found", format!("there is no dead letter {id}"))
    }

    fn closed() -> Self {
        Self::new(503, "draining", "the journal is closed")
    }
}

/// An accepted retry.
#[derive(Debug, Clone, PartialEq)]
pub struct Retried {
    /// What the admin API says.
    pub body: Value,
    /// The turn that runs, if it is one.
    pub turn: Option<TurnId>,
}

async fn answer<T>(answer: oneshot::Receiver<T>) -> Result<T, Fault> {
    answer.await.map_err(|_| Fault::closed())
}

/// All, oldest first.
pub async fn list(journal: &dyn Journal) -> Result<Value, Fault> {
    let items = answer(journal.dead_letters()).await?;
    Ok(json!({"items": items, "next": null}))
}

/// One, with `events`, the lines that the supervision log kept of it; `content`: with what it says.
pub async fn show(journal: &dyn Journal, id: LetterId, events: &[String], content: bool) -> Result<Value, Fault> {
    let LetterDetail { letter, content: found } =
        answer(journal.letter(id)).await?.ok_or_else(|| Fault::unknown(id))?;
    let mut body = serde_json::to_value(&letter).map_err(|bad| Fault::new(500, "internal", bad.to_string()))?;
    let about = match found {
        LetterContent::Message(message) => about_message(&message, content),
        LetterContent::Row(row) => about_row(&row, content),
        LetterContent::Missing { why } => Map::from_iter([("missing".to_owned(), why.into())]),
    };
    // A damaged line is shown as the text it is.
    let events = events.iter().map(|line| serde_json::from_str(line).unwrap_or_else(|_| json!(line)));
    if let Some(body) = body.as_object_mut() {
        body.extend(about);
        body.insert("events".to_owned(), events.collect());
    }
    Ok(body)
}

fn about_message(message: &Accepted, content: bool) -> Map<String, Value> {
    let mut about = Map::from_iter([
        ("source".to_owned(), json!(message.source)),
        ("route".to_owned(), json!(message.route)),
        ("accepted_ms".to_owned(), message.accepted_ms.into()),
        ("bytes".to_owned(), message.body.len().into()),
    ]);
    if content {
        let text = TurnBody::decode(&message.body).map(|body| plain_text(&body.content));
        about.insert("text".to_owned(), text.map_or(Value::Null, Value::from));
    }
    about
}

fn about_row(row: &OutRow, content: bool) -> Map<String, Value> {
    let mut about = Map::from_iter([
        ("route".to_owned(), json!(row.out.route)),
        ("committed_ms".to_owned(), row.committed_ms.into()),
        ("bytes".to_owned(), row.out.text.len().into()),
    ]);
    if content {
        about.insert("text".to_owned(), json!(row.out.text));
    }
    about
}

/// Runs the turn again as the new turn `turn`, without a second user entry; or opens the delivery again. Either ends the
/// letter, and `log` is told.
pub async fn retry(
    journal: &dyn Journal,
    ports: &Ports,
    log: &dyn SupervisionLog,
    id: LetterId,
    turn: TurnId,
) -> Result<Retried, Fault> {
    let key = key_of(journal, id).await?;
    let (retried, reason) = match id {
        LetterId::Turn(dead) => {
            (retry_turn(journal, ports, dead, turn).await?, format!("it runs again as turn {turn}"))
        }
        LetterId::Delivery(_) => {
            let row = answer(journal.redeliver(id)).await?.ok_or_else(|| Fault::unknown(id))?;
            let body = json!({"id": id, "kind": "delivery", "turn_id": row.out.turn, "state": "queued"});
            (Retried { body, turn: None }, "it is delivered again".to_owned())
        }
    };
    log.record(act(EventName::LetterRetried, id, key, reason));
    Ok(retried)
}

/// The session of a letter.
async fn key_of(journal: &dyn Journal, id: LetterId) -> Result<SessionKey, Fault> {
    let letters = answer(journal.dead_letters()).await?;
    let letter = letters.into_iter().find(|letter| letter.id == id);
    letter.map(|letter| letter.key).ok_or_else(|| Fault::unknown(id))
}

/// What an operator did with a letter.
fn act(name: EventName, id: LetterId, key: SessionKey, reason: String) -> Event {
    let mut event = Event::new(name, ActorPath("/journal".into()), Kind::Journal);
    event.session = Some(key);
    match id {
        LetterId::Turn(turn) => event.turn = Some(turn),
        LetterId::Delivery(delivery) => (event.turn, event.delivery) = (Some(delivery.turn), Some(delivery)),
    }
    event.reason = Some(reason);
    event
}

async fn retry_turn(journal: &dyn Journal, ports: &Ports, dead: TurnId, turn: TurnId) -> Result<Retried, Fault> {
    let id = LetterId::Turn(dead);
    let detail = answer(journal.letter(id)).await?.ok_or_else(|| Fault::unknown(id))?;
    let message = match detail.content {
        LetterContent::Message(message) => message,
        LetterContent::Row(_) => return Err(Fault::unknown(id)),
        LetterContent::Missing { why } => {
            let text = format!("its message cannot be had any more ({why}); say it again in the session");
            return Err(Fault::new(409, "content_missing", text));
        }
    };
    // The id makes a second retry of the same letter a duplicate of the first.
    let message_id = MessageId::new(&dead.to_string()).map_err(|bad| Fault::new(500, "internal", bad.to_string()))?;
    let enqueue = Enqueue {
        key: detail.letter.key,
        turn,
        source: source("retry"),
        message_id,
        route: message.route.clone(),
        body: message.body.clone(),
        body_hash: message.body_hash,
        retry_of: Some(dead),
    };
    match Verdict::from_journal(Some(answer(journal.enqueue(enqueue)).await?), ports.clock.wall_ms(), || {
        journal.status().space
    }) {
        Verdict::Accepted { turn, seq, position, state } => {
            let state = match state {
                AcceptedState::Running => "running",
                AcceptedState::Queued => "queued",
                AcceptedState::Quarantined => "quarantined",
            };
            let body = json!({
                "id": id, "kind": "turn", "turn_id": turn, "seq": seq, "position": position, "state": state,
            });
            Ok(Retried { body, turn: Some(turn) })
        }
        Verdict::Duplicate { turn, .. } => {
            Err(Fault::new(409, "already_retried", format!("it was retried already, as turn {turn}")))
        }
        Verdict::Refused(refusal) => Err(Fault::new(503, refusal.word(), refusal.detail())),
    }
}

/// Ends the letter, and tells `log`.
pub async fn drop_letter(journal: &dyn Journal, log: &dyn SupervisionLog, id: LetterId) -> Result<Value, Fault> {
    let key = key_of(journal, id).await?;
    if !answer(journal.drop_letter(id)).await? {
        return Err(Fault::unknown(id));
    }
    let mut event = act(EventName::LetterDropped, id, key, "by hand".to_owned());
    event.lost = "what the letter kept".to_owned();
    log.record(event);
    Ok(json!({"id": id, "dropped": true}))
}

/// The lines that the supervision log in `logs` kept of a letter. Blocks.
pub fn events(disk: &dyn Disk, logs: &std::path::Path, id: LetterId) -> Vec<String> {
    let turn = match id {
        LetterId::Turn(turn) => turn,
        LetterId::Delivery(delivery) => delivery.turn,
    };
    supervision::letters::read(disk, logs, turn).unwrap_or_else(|cause| {
        tracing::warn!(%cause, "the events of a dead letter cannot be read");
        Vec::new()
    })
}

fn id_of(path: Result<Path<String>, PathRejection>) -> Result<LetterId, Fault> {
    let Path(text) = path.map_err(|_| Fault::new(400, "bad_id", "the id is not UTF-8"))?;
    text.parse().map_err(|bad: domain::ids::BadId| Fault::new(400, "bad_id", bad.to_string()))
}

fn respond(result: Result<Value, Fault>) -> Response<Body> {
    match result {
        Ok(body) => ok(&body),
        Err(fault) => error(fault.status, fault.code, &fault.message),
    }
}

pub(super) async fn get_all(State(gateway): State<Arc<Gateway>>) -> Response<Body> {
    respond(list(&*gateway.doors.journal).await)
}

#[derive(Debug, Deserialize)]
pub(super) struct Show {
    #[serde(default)]
    content: bool,
}

pub(super) async fn get_one(
    State(gateway): State<Arc<Gateway>>,
    path: Result<Path<String>, PathRejection>,
    query: Result<Query<Show>, QueryRejection>,
) -> Response<Body> {
    let Ok(Query(Show { content })) = query else {
        return error(400, "bad_query", "the query is content=true|false");
    };
    let id = match id_of(path) {
        Ok(id) => id,
        Err(fault) => return respond(Err(fault)),
    };
    let (disk, logs) = (Arc::clone(&gateway.doors.ports.disk), gateway.config.logs.clone());
    let events = blocking(&gateway, move || Ok(events(&*disk, &logs, id))).await.unwrap_or_default();
    respond(show(&*gateway.doors.journal, id, &events, content).await)
}

pub(super) async fn post_retry(
    State(gateway): State<Arc<Gateway>>,
    path: Result<Path<String>, PathRejection>,
) -> Response<Body> {
    let doors = &gateway.doors;
    let retried = match id_of(path) {
        Ok(id) => retry(&*doors.journal, &doors.ports, &*doors.log, id, doors.turn_id()).await,
        Err(fault) => Err(fault),
    };
    respond(retried.map(|retried| retried.body))
}

pub(super) async fn post_drop(
    State(gateway): State<Arc<Gateway>>,
    path: Result<Path<String>, PathRejection>,
) -> Response<Body> {
    let dropped = match id_of(path) {
        Ok(id) => drop_letter(&*gateway.doors.journal, &*gateway.doors.log, id).await,
        Err(fault) => Err(fault),
    };
    respond(dropped)
}
