//! `POST sessions/{key}/messages`: says something to any session and streams its turn as JSON lines.
//!
//! ```json
//! {"event":"accepted","turn_id":"0193…","seq":4,"position":0,"state":"running"}
//! {"event":"delta","turn_id":"0193…","attempt":1,"seq":2,"text":"Hel"}
//! {"event":"finished","turn_id":"0193…","attempt":1,"seq":9,"result":"done","text":"Hello","usage":{}}
//! ```
//!
//! With `"joins": true` in the body a turn that runs may take the message up, as a chat's: it was asked for at a terminal
//! too, with the same. Without, the message has an answer of its own.
//!
//! A command that is answered at once is no turn: its two lines have `"turn_id":null,"control":true`, and a result
//! `failed` when it cannot be followed.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::rejection::{BytesRejection, PathRejection};
use axum::extract::{Path, State};
use axum::http::Response;
use axum::http::header::RETRY_AFTER;
use domain::command;
use domain::ids::{MessageId, SessionKey, TurnId};
use futures::stream;
use protocol::journal::DuplicateState;
use protocol::turn::{Finished, Lane, Route, TurnEvent, TurnProgress, TurnResult};
use serde::Deserialize;
use serde_json::json;

use super::admin::{error, key_and_body, ndjson};
use super::serve::Gateway;
use crate::control::AtOnce;
use crate::doors::{Door, Submission, source, text_body};
use crate::http;
use crate::hub::outlet::{OUTLET_BYTES_MAX, Out, Outlet};
use crate::hub::{Keep, Sink, Watch};
use crate::json::{Json, edit_json, goal_json, usage_json};
use crate::outcome::{Past, Refusal, Verdict, read_turn};
use crate::websocket::connection::own_message_id;

#[derive(Debug, Deserialize)]
struct Say {
    content: String,
    message_id: Option<MessageId>,
    #[serde(default)]
    joins: bool,
}

struct Lines {
    first: Option<String>,
    outlet: Arc<Outlet<Infallible>>,
    watch: Option<Watch>,
}

pub(super) async fn say(
    State(gateway): State<Arc<Gateway>>,
    path: Result<Path<String>, PathRejection>,
    body: Result<Bytes, BytesRejection>,
) -> Response<Body> {
    let (key, body) = match key_and_body(path, body) {
        Ok(both) => both,
        Err(refused) => return *refused,
    };
    let Say { content, message_id, joins } = match serde_json::from_slice(&body) {
        Ok(say) => say,
        Err(why) => {
            let place = crate::websocket::frames::place(&why);
            return error(
                400,
                "bad_body",
                &format!("the body is {{\"content\", \"message_id\"?, \"joins\"?}}; {place}"),
            );
        }
    };
    if content.trim().is_empty() {
        return error(400, "bad_body", "\"content\" is empty");
    }
    let doors = &gateway.doors;
    let (parsed, route) = (command::parse(&content), if joins { Route::Live } else { Route::Reply });
    let source = source("cli");
    let lane = Lane::of_message(&source, &route, &parsed);
    if let Some(control) = AtOnce::of(parsed, doors, &key).await {
        let result = match &control {
            AtOnce::Control(_) | AtOnce::NothingSaid => TurnResult::Done,
            AtOnce::Refused(_) => TurnResult::Failed,
        };
        let text = control.perform(doors, (Door::Admin, &source), &key).await;
        let of = |name| Json::event(name).raw("turn_id", "null").raw("control", true);
        let finished = of("finished").text("result", result.word()).text("text", &text);
        return ndjson(Body::from(format!("{}\n{}\n", of("accepted").done(), finished.done())));
    }
    let turn = doors.turn_id();
    let outlet = Outlet::<Infallible>::new(OUTLET_BYTES_MAX, gateway.doors.outflow(Door::Admin));
    let sink: Arc<dyn Sink> = Arc::<Outlet<Infallible>>::clone(&outlet);
    let watch = doors.hub.watch_turn(&key, turn, Keep::Yes, Arc::clone(&sink));
    let verdict = doors.submit(Submission {
        key: key.clone(),
        turn,
        source,
        message_id: message_id.unwrap_or_else(|| own_message_id(turn)),
        route,
        body: text_body(&content),
    });
    match doors.verdict(Door::Admin, &key, verdict.await.ok()) {
        Verdict::Accepted { turn, seq, position, state } => {
            let word = doors.state_word(&key, state, lane);
            let accepted = Json::event("accepted").plain("turn_id", turn).raw("seq", seq).raw("position", position);
            let accepted = accepted.text("state", word).maybe("reason", doors.held(&key));
            follow(accepted.done() + "\n", outlet, Some(watch))
        }
        Verdict::Duplicate { turn, state } => {
            drop(watch);
            duplicate(&gateway, &key, (turn, state), outlet, sink).await
        }
        Verdict::Refused(refusal) => refused(refusal),
    }
}

async fn duplicate(
    gateway: &Gateway,
    key: &SessionKey,
    (turn, state): (TurnId, DuplicateState),
    outlet: Arc<Outlet<Infallible>>,
    sink: Arc<dyn Sink>,
) -> Response<Body> {
    let watch = gateway.doors.hub.watch_turn(key, turn, Keep::Yes, sink);
    let accepted = Json::event("accepted").plain("turn_id", turn).text("state", "duplicate").done() + "\n";
    match read_turn(&gateway.doors, key, turn).await {
        Past::Open => follow(accepted, outlet, Some(watch)),
        Past::Ended(finished) => {
            let end = finished_line(Json::event("finished").plain("turn_id", turn), &finished);
            follow(accepted + &end + "\n", outlet, None)
        }
        // The journal has it, so its end will be shown.
        Past::Unknown | Past::Unreachable if state == DuplicateState::Open => follow(accepted, outlet, Some(watch)),
        Past::Unreachable => error(503, "busy", "the session cannot be read right now"),
        Past::Unknown => error(409, "unknown_outcome", "the outcome of this message is no longer known"),
    }
}

fn refused(refusal: Refusal) -> Response<Body> {
    let status = refusal.status();
    let mut body = json!({"error": {"code": refusal.word(), "message": refusal.detail()}});
    let mut response = match refusal.retry_after_ms() {
        None => return http::json(status, body.to_string()),
        Some(ms) => {
            body["error"]["retry_after_ms"] = ms.into();
            http::json(status, body.to_string())
        }
    };
    let ms = refusal.retry_after_ms().unwrap_or_default();
    response.headers_mut().insert(RETRY_AFTER, http::retry_after_seconds(ms));
    response
}

fn follow(first: String, outlet: Arc<Outlet<Infallible>>, watch: Option<Watch>) -> Response<Body> {
    let lines = Lines { first: Some(first), outlet, watch };
    ndjson(Body::from_stream(stream::unfold(lines, |mut lines| async {
        let piece = lines.next().await?;
        Some((piece, lines))
    })))
}

impl Lines {
    async fn next(&mut self) -> Option<io::Result<String>> {
        if let Some(first) = self.first.take() {
            return Some(Ok(first));
        }
        self.watch.as_ref()?;
        let batch = tokio::select! {
            biased;
            () = self.outlet.too_slow() => {
                self.watch = None;
                return Some(Err(io::Error::other("the client reads too slowly")));
            }
            batch = self.outlet.take() => batch,
            () = self.outlet.closed() => return None,
        };
        let mut out = String::new();
        for item in batch {
            match item {
                Out::Shown(shown) => {
                    if matches!(shown.event.what, TurnProgress::Finished(_)) {
                        self.watch = None;
                    }
                    out.push_str(&line(&shown.event));
                    out.push('\n');
                }
                Out::Note(never) => match never {},
            }
        }
        Some(Ok(out))
    }
}

fn line(event: &TurnEvent) -> String {
    let of = |name| {
        let json = Json::event(name).plain("turn_id", event.turn);
        json.raw("attempt", event.attempt).raw("seq", event.seq)
    };
    match &event.what {
        TurnProgress::Started => of("started").done(),
        TurnProgress::Delta(text) => of("delta").text("text", text).done(),
        TurnProgress::Reasoning(text) => of("reasoning").text("text", text).done(),
        TurnProgress::StreamEnd { text, more, merge } => {
            of("stream_end").text("text", text).raw("more", more).raw("merge", merge).done()
        }
        TurnProgress::ToolStarted { call, name, arguments } => {
            of("tool_started").text("call_id", &call.0).text("name", name).text("arguments", arguments).done()
        }
        TurnProgress::ToolEnded { call, name, is_error, result, took_ms, edit } => {
            let json = of("tool_ended").text("call_id", &call.0).text("name", name).raw("is_error", is_error);
            let json = json.text("result", result).raw("took_ms", took_ms);
            let edit = edit.as_deref().map(edit_json);
            edit.into_iter().fold(json, |json, edit| json.raw("edit", edit)).done()
        }
        TurnProgress::Notice(text) => of("notice").text("text", text).done(),
        TurnProgress::Goal(goal) => of("goal_state").raw("goal_state", goal_json(Some(goal))).done(),
        TurnProgress::Finished(finished) => finished_line(of("finished"), finished),
    }
}

fn finished_line(json: Json, finished: &Finished) -> String {
    json.text("result", finished.result.word())
        .maybe("into", finished.into.map(|turn| turn.to_string()).as_deref())
        .text("text", &finished.text)
        .text("model", &finished.model)
        .raw("latency_ms", finished.latency_ms)
        .raw("usage", usage_json(finished.usage))
        .done()
}
