//! One message on its way through the journal, and what its client is told of it.

use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use domain::command::Parsed;
use domain::ids::{MessageId, SessionKey, Source, TurnId};
use domain::keys::{Key, MAIN_KEY};
use protocol::journal::{AcceptedState, DuplicateState, Enqueued};
use protocol::turn::{Lane, Route};
use tokio::sync::oneshot;

use super::connection::{FRAME_RETRY_MS, own_message_id, push_frame};
use super::order::{ControlPlace, MessagePlace};
use super::shows;
use super::writer::Note;
use crate::control::{AtOnce, is_new};
use crate::doors::{Door, Doors, Submission, source, source_of, text_body};
use crate::hub::outlet::Outlet;
use crate::hub::{CHAT_PREFIX, Claim};
use crate::json::Json;
use crate::media::{self, NotKept, Upload};
use crate::outcome::{Past, Refusal, Verdict, read_turn_and_standing};

/// Where the messages of a chat go.
pub(super) struct Room {
    /// The chat's own key, under which the hub shows it its turns.
    pub(super) chat: SessionKey,
    /// The session.
    pub(super) session: SessionKey,
}

/// The client's names for a message.
pub(super) struct Names {
    pub(super) chat_id: String,
    pub(super) message_id: Option<MessageId>,
    pub(super) client_turn_id: Option<Arc<str>>,
    pub(super) webui: bool,
}

/// The message.
pub(super) struct Asked {
    pub(super) doors: Doors,
    pub(super) outlet: Arc<Outlet<Note>>,
    pub(super) room: Room,
    pub(super) turn: TurnId,
    pub(super) names: Names,
    /// That in which a running turn may take it up; a command has none.
    pub(super) lane: Option<Lane>,
    /// Its turn, where several chats share a session.
    pub(super) claim: Option<Claim>,
}

impl Room {
    pub(super) fn new(chat_id: &str, unified: bool) -> Self {
        let chat = SessionKey::new(&format!("{CHAT_PREFIX}{chat_id}"));
        let chat = chat.expect("a chat id is short and has no control characters");
        let session = if unified { Key::unified(chat.clone(), MAIN_KEY) } else { chat.clone() };
        Self { chat, session }
    }

    /// Message ids are the chat's own, so where several chats share a session, each is a source of its own.
    fn source(&self, chat_id: &str) -> Source {
        if self.is_shared() { source_of(Door::WebSocket.word(), chat_id) } else { source(Door::WebSocket.word()) }
    }

    /// In which lane a running turn may take up a message of the chat.
    pub(super) fn lane(&self, chat_id: &str, parsed: &Parsed) -> Option<Lane> {
        Lane::of_message(&self.source(chat_id), &Route::Live, parsed)
    }

    /// Claims a turn, where several chats share the session.
    pub(super) fn claim(&self, doors: &Doors, turn: TurnId) -> Option<Claim> {
        self.is_shared().then(|| doors.hub.claim(&self.session, turn, &self.chat)).flatten()
    }

    fn is_shared(&self) -> bool {
        self.chat != self.session
    }
}

impl Asked {
    /// The message's body, once what came with it is kept; else the frame that says why not.
    pub(super) async fn body(&self, text: String, media: Vec<Upload>) -> Result<Vec<u8>, String> {
        if media.is_empty() {
            return Ok(text_body(&text));
        }
        let directory = media::place(&self.doors.media, media::WEBSOCKET, &self.room.session);
        media::body(&self.doors, &directory, text, media).await.map_err(|not_kept| match not_kept {
            NotKept::Wrong(wrong) => {
                self.doors.rejected(Door::WebSocket, wrong.reason);
                self.error(&wrong.detail, wrong.reason, None)
            }
            NotKept::Disk(error) => {
                tracing::warn!(%error, "an attachment cannot be kept");
                let refusal = Refusal::Disk { retry_after_ms: FRAME_RETRY_MS, space: None };
                self.doors.refused(Door::WebSocket, &self.room.session, refusal);
                self.refusal(refusal)
            }
        })
    }

    /// Hands a message to the journal, once what came with it is kept and what it waits for took effect.
    pub(super) async fn keep_and_submit(mut self, text: String, media: Vec<Upload>, mut place: MessagePlace) {
        let body = self.body(text, media).await;
        place.come().await;
        match body {
            Ok(body) => {
                let verdict = self.submit(body);
                place.handed_over();
                self.answer(verdict, place).await;
            }
            Err(frame) => push_frame(&self.outlet, frame),
        }
    }

    /// Answers a question about what was said in the session where nothing was, without a turn. Else it is a message like
    /// any other. What came before it on this connection is known by then.
    pub(super) async fn look_and_submit(mut self, text: String, media: Vec<Upload>, mut place: ControlPlace) {
        place.come().await;
        if is_new(&self.doors, &self.room.session).await {
            return self.control(AtOnce::NothingSaid, place).await;
        }
        match self.body(text, media).await {
            Ok(body) => {
                let verdict = self.submit(body);
                self.answer(verdict, place).await;
            }
            Err(frame) => push_frame(&self.outlet, frame),
        }
    }

    /// Hands the message to the journal.
    pub(super) fn submit(&mut self, body: Vec<u8>) -> oneshot::Receiver<Enqueued> {
        let (turn, client_turn_id) = (self.turn, self.names.client_turn_id.clone());
        self.claim = self.room.claim(&self.doors, turn);
        self.outlet.note(Note::Submitted { turn, client_turn_id }, 0);
        self.doors.submit(Submission {
            key: self.room.session.clone(),
            turn,
            source: self.room.source(&self.names.chat_id),
            message_id: self.names.message_id.clone().unwrap_or_else(|| own_message_id(turn)),
            route: Route::Live,
            body,
        })
    }

    pub(super) async fn control(self, control: AtOnce, mut place: ControlPlace) {
        place.come().await;
        if let Some(message_id) = &self.names.message_id {
            let json =
                Json::event("accepted").text("chat_id", &self.names.chat_id).text("message_id", message_id.as_str());
            push_frame(&self.outlet, json.raw("turn_id", "null").raw("control", true).done());
        }
        let from = (Door::WebSocket, &self.room.source(&self.names.chat_id));
        let mut performed = pin!(control.perform(&self.doors, from, &self.room.session));
        // The session is told before the first wait; its answer holds nobody up.
        let text = match futures::poll!(performed.as_mut()) {
            Poll::Ready(text) => text,
            Poll::Pending => {
                drop(place);
                performed.await
            }
        };
        let json = Json::event("message").text("chat_id", &self.names.chat_id).text("text", &text);
        let json = json.raw("turn_id", "null").raw("control", true);
        push_frame(&self.outlet, json.maybe("client_turn_id", self.names.client_turn_id.as_deref()).done());
    }

    /// Tells the verdict; what came behind the message waits for it in `place`.
    pub(super) async fn answer<P>(mut self, verdict: oneshot::Receiver<Enqueued>, place: P) {
        let verdict = self.doors.verdict(Door::WebSocket, &self.room.session, verdict.await.ok());
        drop(place);
        match verdict {
            Verdict::Accepted { turn, seq, position, state } => {
                let word = self.doors.state_word(&self.room.session, state, self.lane);
                let mut frames = Vec::new();
                if let Some(json) = self.accepted(turn) {
                    let json = json.raw("seq", seq).raw("position", position).text("state", word);
                    frames.push(json.maybe("reason", self.doors.held(&self.room.session)).done());
                }
                frames.extend(self.message_accepted(turn, state == AcceptedState::Running));
                self.claim.take().into_iter().for_each(Claim::keep);
                self.answered(true, frames);
            }
            Verdict::Duplicate { turn, state } => {
                let mut frames = Vec::new();
                if let Some(json) = self.accepted(turn) {
                    frames.push(json.raw("position", 0).text("state", "duplicate").done());
                }
                frames.extend(self.message_accepted(turn, false));
                self.answered(false, frames);
                self.claim = self.room.claim(&self.doors, turn);
                if state == DuplicateState::Ended || self.claim.is_some() {
                    self.past(turn, state).await;
                }
            }
            Verdict::Refused(refusal) => {
                let frame = self.refusal(refusal);
                self.answered(false, vec![frame]);
            }
        }
    }

    /// Tells the outcome of a turn that ended earlier. One that is still open is being followed.
    async fn past(self, turn: TurnId, state: DuplicateState) {
        let past = read_turn_and_standing(&self.doors, &self.room.session, turn).await;
        let frames = match past {
            Past::Open => return self.claim.into_iter().for_each(Claim::keep),
            // The journal has it, so its end will be shown.
            Past::Unknown | Past::Unreachable if state == DuplicateState::Open => {
                return self.claim.into_iter().for_each(Claim::keep);
            }
            Past::Ended(finished) => {
                shows::past(&self.names.chat_id, turn, &finished, self.names.client_turn_id.as_deref())
            }
            Past::Unknown => {
                vec![self.error("the outcome of this message is no longer known", "unknown_outcome", None)]
            }
            Past::Unreachable => {
                vec![self.error("the session cannot be read right now", "busy", Some(FRAME_RETRY_MS))]
            }
        };
        if self.claim.is_some_and(|claim| !claim.give_back()) {
            return;
        }
        for text in frames {
            push_frame(&self.outlet, text);
        }
    }

    fn answered(&self, accepted: bool, frames: Vec<String>) {
        let bytes = frames.iter().map(String::len).sum();
        self.outlet.note(Note::Answered { submitted: self.turn, accepted, frames }, bytes);
    }

    fn accepted(&self, turn: TurnId) -> Option<Json> {
        let message_id = self.names.message_id.as_ref()?;
        let json = Json::event("accepted").text("chat_id", &self.names.chat_id).text("message_id", message_id.as_str());
        Some(json.plain("turn_id", turn).maybe("client_turn_id", self.names.client_turn_id.as_deref()))
    }

    fn message_accepted(&self, turn: TurnId, starts_turn: bool) -> Option<String> {
        let client_turn_id = self.names.client_turn_id.as_deref().filter(|_| self.names.webui)?;
        let json = Json::event("message_accepted").text("chat_id", &self.names.chat_id).plain("turn_id", turn);
        Some(json.text("client_turn_id", client_turn_id).raw("starts_turn", starts_turn).done())
    }

    pub(super) fn refusal(&self, refusal: Refusal) -> String {
        self.error(&refusal.detail(), refusal.word(), refusal.retry_after_ms())
    }

    pub(super) fn error(&self, detail: &str, reason: &str, retry_after_ms: Option<u64>) -> String {
        let json =
            Json::event("error").text("detail", detail).text("reason", reason).text("chat_id", &self.names.chat_id);
        let json = json.maybe("message_id", self.names.message_id.as_ref().map(MessageId::as_str));
        let json = json.maybe("client_turn_id", self.names.client_turn_id.as_deref());
        match retry_after_ms {
            Some(ms) => json.raw("retry_after_ms", ms).done(),
            None => json.done(),
        }
    }
}
