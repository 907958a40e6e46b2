//! The reading half of one connection: frames in, messages to the journal, verdicts to the writer.
//!
//! Messages are handed over in the order they came and their verdicts are awaited side by side, so one chat never waits
//! for another's disk sync. Control takes its place among the messages of its chat, see [`super::order`].

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::ws::{Message as WsMessage, WebSocket};
use domain::command::{self, Parsed};
use domain::ids::{MessageId, TurnId};
use domain::scope::Scope;
use futures::StreamExt;
use futures::stream::{FuturesUnordered, SplitStream};
use tokio_tungstenite::tungstenite;
use tokio_util::sync::CancellationToken;

use super::asked::{Asked, Names, Room};
use super::frames::{self, Incoming, Message, Refused};
use super::order::Order;
use super::scoped::Chooser;
use super::shows;
use super::writer::Note;
use crate::control::AtOnce;
use crate::doors::{Door, Doors, text_body};
use crate::http::Place;
use crate::hub::cursor::Cursor;
use crate::hub::outlet::{OUTLET_CHAT_BYTES, Outlet};
use crate::hub::{Claim, Sink, Watch};
use crate::json::Json;
use crate::media;
use crate::outcome::{Past, Refusal, read_turn_and_standing, standing};

/// Messages of one connection whose verdict has not come; above it more are refused.
const PENDING_MAX: usize = 16 * 1024;

/// How many control messages may wait beyond that: they must get through when nothing else does.
const PENDING_CONTROL_MAX: usize = 1024;

/// Chats of one connection.
const CHATS_MAX: usize = 65_536;

/// When to try again when the process has no room for another frame.
pub(super) const FRAME_RETRY_MS: u64 = 1000;

/// The reading half.
pub(crate) struct Reader {
    pub(crate) doors: Doors,
    pub(crate) outlet: Arc<Outlet<Note>>,
    /// Kept until the connection ends.
    pub(crate) place: Place,
    pub(crate) default_chat: String,
    pub(crate) ping_interval: Duration,
    pub(crate) ping_timeout: Duration,
    /// Whether all chats are one session.
    pub(crate) unified: bool,
    pub(crate) chooser: Chooser,
    pub(crate) gone: CancellationToken,
    chats: HashMap<String, Chat>,
}

/// A chat that the connection follows.
struct Chat {
    order: Order,
    _watch: Watch,
}

type Pending = FuturesUnordered<Pin<Box<dyn Future<Output = ()> + Send>>>;

impl Reader {
    pub(crate) fn new(
        doors: Doors,
        outlet: Arc<Outlet<Note>>,
        place: Place,
        default_chat: String,
        ping: (Duration, Duration),
        (unified, chooser): (bool, Chooser),
        gone: CancellationToken,
    ) -> Self {
        let (ping_interval, ping_timeout) = ping;
        let chats = HashMap::new();
        Self { doors, outlet, place, default_chat, ping_interval, ping_timeout, unified, chooser, gone, chats }
    }

    /// Reads until the connection ends.
    pub(crate) async fn run(mut self, client_id: &str, mut socket: SplitStream<WebSocket>) {
        let ready = Json::event("ready").text("chat_id", &self.default_chat).text("client_id", client_id);
        self.frame(ready.done());
        let default_chat = self.default_chat.clone();
        if let Ok(room) = self.place_for(&default_chat) {
            self.attach(&default_chat, &room, None);
        }
        let mut pending = Pending::new();
        let mut ping = tokio::time::interval(self.ping_interval);
        ping.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        ping.reset();
        let mut heard = self.doors.ports.clock.mono();
        let mut reading = true;
        loop {
            tokio::select! {
                biased;
                () = self.gone.cancelled() => break,
                Some(()) = pending.next(), if !pending.is_empty() => {}
                _ = ping.tick() => {
                    let silent = self.doors.ports.clock.mono().saturating_sub(heard);
                    if silent > self.ping_interval + self.ping_timeout {
                        self.close(1011, "no answer to a ping");
                    } else {
                        self.outlet.note(Note::Ping, 0);
                    }
                }
                frame = socket.next(), if reading => {
                    heard = self.doors.ports.clock.mono();
                    match frame {
                        Some(Ok(WsMessage::Text(text))) => {
                            self.text(&text, &pending);
                            self.place.meter.message_done();
                        }
                        Some(Ok(WsMessage::Binary(_))) => {
                            self.place.meter.message_done();
                            self.refuse(Refused::bad_frame("binary frames are not understood; send JSON as text"));
                        }
                        Some(Ok(WsMessage::Ping(bytes) | WsMessage::Pong(bytes))) => {
                            self.place.meter.control_done(bytes.len());
                        }
                        Some(Err(_)) if self.place.meter.is_full() => {
                            reading = false;
                            self.doors.rejected(Door::WebSocket, "busy");
                            self.close(1013, "there is no room for so large a frame now; try again");
                        }
                        Some(Err(error)) => match close_code(&error) {
                            Some((code, reason)) => {
                                reading = false;
                                self.doors.rejected(Door::WebSocket, "broken_frame");
                                self.close(code, reason);
                            }
                            None => break,
                        },
                        Some(Ok(WsMessage::Close(_))) | None => break,
                    }
                }
            }
        }
        self.gone.cancel();
        drop(socket);
        self.settle(pending).await;
    }

    /// What was read takes effect, also when its sender did not stay.
    async fn settle(&mut self, mut pending: Pending) {
        let places: Vec<_> = self.chats.values_mut().map(|chat| chat.order.control()).collect();
        let effects = async {
            for mut place in places {
                place.come().await;
            }
        };
        tokio::select! {
            biased;
            () = effects => {}
            () = async { while pending.next().await.is_some() {} } => {}
        }
    }

    fn text(&mut self, text: &str, pending: &Pending) {
        match frames::parse(text) {
            Ok(Incoming::NewChat { scope }) => {
                let chat_id = self.doors.ports.ids.uuid_v7().to_string();
                self.attach_and_say(&chat_id, None, pending);
                if scope.is_some() {
                    self.choose(chat_id, scope, pending);
                }
            }
            Ok(Incoming::Scope { chat_id, scope }) => self.choose(chat_id, scope, pending),
            Ok(Incoming::Attach { chat_id, after }) => self.attach_and_say(&chat_id, after, pending),
            Ok(Incoming::Message(message)) => self.message(message, pending),
            Err(refused) => self.refuse(refused),
        }
    }

    fn attach_and_say(&mut self, chat_id: &str, after: Option<Cursor>, pending: &Pending) {
        let room = match self.place_for(chat_id) {
            Ok(room) => room,
            Err(refusal) => return self.refuse_frame(chat_id, (None, None), refusal),
        };
        // What is replayed must come after this frame.
        self.frame(Json::event("attached").text("chat_id", chat_id).done());
        let (running, followed) = self.attach(chat_id, &room, after);
        if let Some(turn) = running {
            let json = Json::event("goal_status").text("chat_id", chat_id).plain("turn_id", turn);
            self.frame(json.text("status", "running").done());
        }
        if pending.len() >= PENDING_MAX {
            return self.refuse_frame(chat_id, (None, None), Refusal::ProcessFull { retry_after_ms: FRAME_RETRY_MS });
        }
        self.outlet.note(Note::GoalAsked { chat_id: chat_id.to_owned() }, 0);
        let (doors, outlet, chat_id) = (self.doors.clone(), Arc::clone(&self.outlet), chat_id.to_owned());
        let ended = after.filter(|_| !followed).map(|cursor| (cursor.turn, room.claim(&doors, cursor.turn)));
        pending.push(Box::pin(async move {
            if let Some((turn, claim)) = ended {
                tell_past(&doors, &outlet, &chat_id, &room, turn, claim).await;
            }
            let goal = standing(&doors, &room.session).await.and_then(|standing| standing.goal);
            let frame = goal.map(|goal| shows::goal(&chat_id, &goal));
            let bytes = frame.as_ref().map_or(0, String::len);
            outlet.note(Note::Goal { chat_id, frame }, bytes);
        }));
    }

    /// Where the messages of a chat go, if this connection may have one more.
    fn place_for(&self, chat_id: &str) -> Result<Room, Refusal> {
        if self.chats.len() >= CHATS_MAX && !self.chats.contains_key(chat_id) {
            return Err(Refusal::ProcessFull { retry_after_ms: FRAME_RETRY_MS });
        }
        Ok(Room::new(chat_id, self.unified))
    }

    /// Follows a chat; says which turn runs, and whether the cursor's one is followed.
    fn attach(&mut self, chat_id: &str, room: &Room, after: Option<Cursor>) -> (Option<TurnId>, bool) {
        // Leaving first: what comes meanwhile is in the replay.
        let order = match self.chats.remove(chat_id) {
            Some(Chat { order, .. }) => order,
            None => {
                self.outlet.grow(OUTLET_CHAT_BYTES);
                Order::default()
            }
        };
        let sink: Arc<dyn Sink> = Arc::<Outlet<Note>>::clone(&self.outlet);
        let attached = self.doors.hub.attach_chat(&room.chat, after, sink);
        self.chats.insert(chat_id.to_owned(), Chat { order, _watch: attached.watch });
        let now_ms = self.doors.ports.clock.wall_ms();
        if self.doors.restart.as_ref().is_some_and(|restart| restart.take_notice(&room.session, now_ms)) {
            let json = Json::event("message").text("chat_id", chat_id).text("text", "The gateway has restarted.");
            self.frame(json.raw("turn_id", "null").raw("control", true).done());
        }
        (attached.running.map(|running| running.0), attached.followed)
    }

    /// Chooses the project of a chat.
    fn choose(&mut self, chat_id: String, scope: Option<Scope>, pending: &Pending) {
        let room = match self.place_for(&chat_id) {
            Ok(room) if pending.len() < PENDING_MAX => room,
            Ok(_) => {
                let refusal = Refusal::ProcessFull { retry_after_ms: FRAME_RETRY_MS };
                return self.refuse_frame(&chat_id, (None, None), refusal);
            }
            Err(refusal) => return self.refuse_frame(&chat_id, (None, None), refusal),
        };
        if !self.chats.contains_key(&chat_id) {
            self.attach(&chat_id, &room, None);
        }
        let chat = self.chats.get_mut(&chat_id).expect("it is followed since above");
        let place = chat.order.control();
        let (doors, outlet, turn) = (self.doors.clone(), Arc::clone(&self.outlet), self.doors.turn_id());
        let names = Names { chat_id, message_id: None, client_turn_id: None, webui: false };
        let asked = Asked { doors, outlet, room, turn, names, lane: None, claim: None };
        pending.push(Box::pin(asked.choose(scope, self.chooser.clone(), place)));
    }

    fn message(&mut self, message: Message, pending: &Pending) {
        let Message { chat_id, text, media, message_id, client_turn_id, scope, webui } = message;
        let chat_id = chat_id.unwrap_or_else(|| self.default_chat.clone());
        let room = match self.place_for(&chat_id) {
            Ok(room) => room,
            Err(refusal) => {
                let names = (message_id.as_ref().map(MessageId::as_str), client_turn_id.as_deref());
                return self.refuse_frame(&chat_id, names, refusal);
            }
        };
        if !self.chats.contains_key(&chat_id) {
            self.attach(&chat_id, &room, None);
        }
        let turn = self.doors.turn_id();
        let client_turn_id: Option<Arc<str>> = client_turn_id.map(Into::into);
        let (doors, outlet) = (self.doors.clone(), Arc::clone(&self.outlet));
        let names = Names { chat_id, message_id, client_turn_id, webui };
        let parsed = command::parse(&text);
        let lane = room.lane(&names.chat_id, &parsed);
        // Where nothing was said, a question about that is answered without a turn; whether that is so is looked at later.
        let asks = matches!(&parsed, Parsed::Turn(command) if command.is_about_what_was_said());
        let asks = asks && doors.sessions.state(&room.session).is_none();
        let mut asked = Asked { doors, outlet, room, turn, names, lane, claim: None };
        let control = AtOnce::of_any(parsed);
        let places = if control.is_some() { PENDING_MAX + PENDING_CONTROL_MAX } else { PENDING_MAX };
        let bytes = u32::try_from(text.len() + media::bytes(&media)).unwrap_or(u32::MAX);
        let room = match &control {
            None => self.doors.reserve(bytes),
            Some(_) => None,
        };
        if pending.len() >= places || (room.is_none() && control.is_none()) {
            let refusal = Refusal::ProcessFull { retry_after_ms: FRAME_RETRY_MS };
            self.doors.refused(Door::WebSocket, &asked.room.session, refusal);
            return push_frame(&self.outlet, asked.refusal(refusal));
        }
        let chat = self.chats.get_mut(&asked.names.chat_id).expect("it is followed since above");
        if let Some(control) = control {
            return pending.push(Box::pin(asked.control(control, chat.order.control())));
        }
        if asks && scope.is_none() {
            let place = chat.order.control();
            return pending.push(Box::pin(async move {
                asked.look_and_submit(text, media, place).await;
                drop(room);
            }));
        }
        if let Some(scope) = scope {
            let (chooser, place) = (self.chooser.clone(), chat.order.control());
            return pending.push(Box::pin(async move {
                asked.choose_and_submit((scope, text, media), chooser, place).await;
                drop(room);
            }));
        }
        let place = if media.is_empty() { chat.order.message() } else { chat.order.late_message() };
        if place.waits() || !media.is_empty() {
            return pending.push(Box::pin(async move {
                asked.keep_and_submit(text, media, place).await;
                drop(room);
            }));
        }
        let verdict = asked.submit(text_body(&text));
        pending.push(Box::pin(async move {
            asked.answer(verdict, place).await;
            drop(room);
        }));
    }

    fn refuse(&self, refused: Refused) {
        self.doors.rejected(Door::WebSocket, refused.reason);
        let json = Json::event("error").text("detail", &refused.detail).text("reason", refused.reason);
        let json = json.maybe("chat_id", refused.chat_id.as_deref()).maybe("message_id", refused.message_id.as_deref());
        self.frame(json.maybe("client_turn_id", refused.client_turn_id.as_deref()).done());
    }

    /// Refuses a frame with these names (message id, the client's turn id) for which the connection has no place.
    fn refuse_frame(&self, chat_id: &str, names: (Option<&str>, Option<&str>), refusal: Refusal) {
        self.doors.rejected(Door::WebSocket, "connection_full");
        let json = Json::event("error").text("detail", "this connection has too many chats or questions open");
        let json = json.text("reason", refusal.word()).text("chat_id", chat_id);
        let json = json.maybe("message_id", names.0).maybe("client_turn_id", names.1);
        self.frame(json.raw("retry_after_ms", FRAME_RETRY_MS).done());
    }

    fn frame(&self, text: String) {
        push_frame(&self.outlet, text);
    }

    fn close(&self, code: u16, reason: &'static str) {
        self.outlet.note(Note::Close { code, reason }, 0);
    }
}

/// Tells how a turn ended that was over when its client came back.
async fn tell_past(
    doors: &Doors,
    outlet: &Outlet<Note>,
    chat_id: &str,
    room: &Room,
    turn: TurnId,
    claim: Option<Claim>,
) {
    match read_turn_and_standing(doors, &room.session, turn).await {
        Past::Ended(finished) => {
            // One that was claimed and ended meanwhile was shown.
            if claim.is_none_or(Claim::give_back) {
                for text in shows::past(chat_id, turn, &finished, None) {
                    push_frame(outlet, text);
                }
            }
        }
        Past::Open => claim.into_iter().for_each(Claim::keep),
        Past::Unknown | Past::Unreachable => {}
    }
}

pub(super) fn push_frame(outlet: &Outlet<Note>, text: String) {
    let bytes = text.len();
    outlet.note(Note::Frame(text), bytes);
}

/// The id of a message whose sender gave none.
pub(crate) fn own_message_id(turn: TurnId) -> MessageId {
    MessageId::new(&turn.to_string()).expect("a UUID is printable ASCII")
}

/// With which code a broken stream is closed; `None` when there is nobody left to tell.
fn close_code(error: &axum::Error) -> Option<(u16, &'static str)> {
    let cause = std::error::Error::source(error)?.downcast_ref::<tungstenite::Error>()?;
    #[expect(clippy::wildcard_enum_match_arm, reason = "an enum of another crate, of which three cases have codes")]
    match cause {
        tungstenite::Error::Capacity(_) => Some((1009, "the frame is too large")),
        tungstenite::Error::Utf8(_) => Some((1007, "the text is not UTF-8")),
        tungstenite::Error::Protocol(tungstenite::error::ProtocolError::ResetWithoutClosingHandshake) => None,
        tungstenite::Error::Protocol(_) => Some((1002, "the WebSocket protocol was violated")),
        _ => None,
    }
}
