//! A WebSocket client that never gives up: several chats on one connection, several messages of each under way. When
//! the connection breaks it comes back, goes on from its cursor, and sends again what it knows no end of.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use serde_json::{Value, json};

use super::dice::Dice;
use super::ledger::{Ledger, Promise};
use super::message::message;
use super::seen::Seen;
use crate::support::Socket;

/// Messages of one chat before the client turns to a new one, so that histories stay short.
const CHAT_MESSAGES: u64 = 25;

/// The client.
pub struct Talker {
    ledger: Arc<Ledger>,
    dice: Dice,
    chats: Vec<Chat>,
    controls: u64,
}

struct Chat {
    place: String,
    generation: u64,
    /// How many messages are under way at once.
    window: usize,
    sent: u64,
    open: VecDeque<Open>,
    turns: HashMap<String, Seen>,
}

/// A message that the client knows no end of.
struct Open {
    id: String,
    text: String,
    turn: Option<String>,
}

/// What follows an event.
#[derive(PartialEq)]
enum Next {
    Stay,
    Reconnect,
}

impl Chat {
    fn id(&self) -> String {
        format!("{}-{}", self.place, self.generation)
    }

    fn frame(&self, open: &Open) -> Value {
        json!({"type": "message", "chat_id": self.id(), "content": open.text, "message_id": open.id})
    }

    /// The first open turn of which events came, and where to go on.
    fn cursor(&self) -> Option<(&str, &str)> {
        self.open.iter().find_map(|open| {
            let cursor = self.turns.get(open.turn.as_deref()?)?.cursor.as_deref()?;
            Some((open.id.as_str(), cursor))
        })
    }
}

impl Talker {
    pub fn new(ledger: Arc<Ledger>, number: u64, chats: u64) -> Self {
        let mut dice = Dice::new(ledger.seed, 1000 + number);
        let chat = |chat| Chat {
            place: format!("w{number}-{chat}"),
            generation: 0,
            window: usize::try_from(dice.between(1, 3)).unwrap(),
            sent: 0,
            open: VecDeque::new(),
            turns: HashMap::new(),
        };
        let chats = (0..chats).map(chat).collect();
        Self { ledger, dice, chats, controls: 0 }
    }

    /// Talks until nothing new is to be sent and the end of everything is known.
    pub async fn run(mut self) {
        let mut failed = None;
        while !self.is_done() {
            let doors = self.ledger.doors(failed.as_ref()).await;
            if let Some(socket) = Socket::connect(&doors.websocket).await {
                self.ledger.count(|counts| counts.connections += 1);
                self.converse(socket).await;
            }
            failed = Some(doors);
        }
    }

    fn is_done(&self) -> bool {
        self.ledger.closing.is_cancelled() && self.chats.iter().all(|chat| chat.open.is_empty())
    }

    async fn converse(&mut self, mut socket: Socket) -> Option<()> {
        while socket.next().await?["event"] != "ready" {}
        for frame in self.resume() {
            socket.try_send(&frame).await.then_some(())?;
        }
        loop {
            for frame in self.say_more() {
                socket.try_send(&frame).await.then_some(())?;
            }
            if self.is_done() {
                return None;
            }
            let event = socket.next().await?;
            if self.take(&event) == Next::Reconnect {
                return None;
            }
            if let Some(frame) = self.control(&event) {
                socket.try_send(&frame).await.then_some(())?;
            }
        }
    }

    /// What a client says first that was here before.
    fn resume(&mut self) -> Vec<Value> {
        let mut frames = Vec::new();
        for chat in &self.chats {
            let follows = self.dice.percent(60);
            let followed = chat.cursor().filter(|_| follows);
            if let Some((_, cursor)) = followed {
                frames.push(json!({"type": "attach", "chat_id": chat.id(), "after": cursor}));
            }
            for open in chat.open.iter().filter(|open| followed.is_none_or(|(id, _)| id != open.id)) {
                self.ledger.count(|counts| counts.resent += 1);
                frames.push(chat.frame(open));
            }
        }
        frames
    }

    fn say_more(&mut self) -> Vec<Value> {
        let mut frames = Vec::new();
        if self.ledger.closing.is_cancelled() {
            return frames;
        }
        for chat in &mut self.chats {
            if chat.sent >= CHAT_MESSAGES && chat.open.is_empty() {
                (chat.generation, chat.sent) = (chat.generation + 1, 0);
                chat.turns.clear();
            }
            while chat.open.len() < chat.window && chat.sent < CHAT_MESSAGES {
                let id = format!("{}-{}", chat.id(), chat.sent);
                let message = message(&mut self.dice, &id);
                self.ledger.sent(&format!("websocket.{}", chat.id()), &id, Promise::Kept, message.effects);
                let open = Open { id, text: message.text, turn: None };
                frames.push(chat.frame(&open));
                chat.open.push_back(open);
                chat.sent += 1;
            }
        }
        frames
    }

    fn take(&mut self, event: &Value) -> Next {
        if event["event"] == "error" {
            self.refused(event);
            return Next::Reconnect;
        }
        let word = event["event"].as_str().unwrap_or_default();
        self.ledger.count(|counts| match word {
            "turn_restarted" => counts.restarted += 1,
            "accepted" if event["state"] == "duplicate" => counts.duplicates += 1,
            "turn_end" if event["replayed"] == true => counts.replayed += 1,
            "message" if event["control"] == true => counts.controls += 1,
            _ => {}
        });
        let Some(chat) = self.chats.iter_mut().find(|chat| event["chat_id"] == chat.id().as_str()) else {
            return Next::Stay;
        };
        let Some(turn) = event["turn_id"].as_str() else { return Next::Stay };
        if word == "accepted" {
            let id = event["message_id"].as_str().unwrap_or_default();
            self.ledger.acknowledged(id, turn);
            if let Some(open) = chat.open.iter_mut().find(|open| open.id == id) {
                open.turn = Some(turn.to_owned());
            }
        } else if let Err(wrong) = chat.turns.entry(turn.to_owned()).or_default().take(turn, event) {
            self.ledger.violation(wrong);
        }
        let seen = chat.turns.get(turn).and_then(|seen| seen.end.as_ref());
        let place = chat.open.iter().position(|open| open.turn.as_deref() == Some(turn));
        if let (Some((word, text)), Some(place)) = (seen, place) {
            let open = chat.open.remove(place).unwrap();
            self.ledger.ended(&open.id, word, text);
        }
        if word == "turn_end" && self.dice.percent(1) { Next::Reconnect } else { Next::Stay }
    }

    /// Nothing new may be refused here. Two things are: the end of a message whose session must wait its turn after a
    /// start, because its next one has seen processes die, is not read now; and that of a message which `/stop all`
    /// dropped while it waited, when its sender was cut off before it heard so, is not known any more.
    fn refused(&mut self, event: &Value) {
        let id = event["message_id"].as_str().unwrap_or_default();
        if event["reason"] == "busy" && event["detail"] == "the session cannot be read right now" {
            return self.ledger.count(|counts| counts.unread += 1);
        }
        if event["reason"] != "unknown_outcome" || !self.ledger.may_be_dropped(id) {
            return self.ledger.violation(format!("a message was refused: {event}"));
        }
        self.ledger.count(|counts| counts.untold += 1);
        self.ledger.ended(id, "cancelled", "");
        self.chats.iter_mut().for_each(|chat| chat.open.retain(|open| open.id != id));
    }

    /// Now and then the client wants something at once.
    fn control(&mut self, event: &Value) -> Option<Value> {
        let chat = self.chats.iter().find(|chat| event["chat_id"] == chat.id().as_str())?;
        if self.ledger.closing.is_cancelled() || !self.dice.percent(2) {
            return None;
        }
        let text = match self.dice.between(0, 3) {
            0 | 1 => "/status",
            2 => "/stop",
            _ => "/stop all",
        };
        if text != "/status" {
            self.ledger.stopping(chat.open.iter().map(|open| open.id.as_str()), text == "/stop all");
            self.ledger.count(|counts| counts.stops += 1);
        }
        self.controls += 1;
        let id = format!("control-{}", self.controls);
        Some(json!({"type": "message", "chat_id": chat.id(), "content": text, "message_id": id}))
    }
}
