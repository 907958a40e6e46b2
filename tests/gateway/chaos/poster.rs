//! A client of the webhook door: it writes in one chat after the other, and its answers are pushed to a receiver.

use std::collections::VecDeque;
use std::sync::Arc;

use serde_json::{Value, json};

use super::dice::Dice;
use super::ledger::{Doors, Ledger, Promise};
use super::message::{Message, answer, message};
use super::receiver::Receiver;

/// Messages of one chat before the client turns to a new one.
const CHAT_MESSAGES: u64 = 25;

/// The client.
pub struct Poster {
    ledger: Arc<Ledger>,
    receiver: Arc<Receiver>,
    dice: Dice,
    http: reqwest::Client,
    place: String,
    /// How many messages are under way at once.
    window: usize,
}

impl Poster {
    /// One of several.
    pub fn new(ledger: Arc<Ledger>, receiver: Arc<Receiver>, number: u64) -> Self {
        let mut dice = Dice::new(ledger.seed, 4000 + number);
        let window = usize::try_from(dice.between(2, 5)).unwrap();
        let http = provider::http_client().unwrap();
        Self { ledger, receiver, dice, http, place: format!("post{number}"), window }
    }

    /// Writes until nothing new is to be said and every answer came.
    pub async fn run(mut self) {
        let (mut number, mut failed) = (0, None);
        let mut open = VecDeque::new();
        loop {
            let closing = self.ledger.closing.is_cancelled();
            if open.len() < self.window && !closing {
                let chat = format!("{}-{}", self.place, number / CHAT_MESSAGES);
                let id = format!("{chat}-{}", number % CHAT_MESSAGES);
                number += 1;
                let turn = self.say(&chat, &id, &mut failed).await;
                open.extend(turn.map(|turn| (id, turn)));
            } else if let Some((id, turn)) = open.pop_front() {
                let text = self.receiver.whole(&turn).await;
                self.ledger.ended(&id, "done", &text);
            } else if closing {
                return;
            }
        }
    }

    fn message(&mut self, id: &str) -> Message {
        if self.dice.percent(20) {
            // Long enough for several parts.
            let words: String = (0..self.dice.between(12, 60)).map(|number| format!(" wörd{number}")).collect();
            return Message { text: format!("{id} [[say={}{words}]]", answer(id)), effects: Vec::new() };
        }
        message(&mut self.dice, id)
    }

    /// Says one thing until it is accepted; returns the turn.
    async fn say(&mut self, chat: &str, id: &str, failed: &mut Option<Arc<Doors>>) -> Option<String> {
        let message = self.message(id);
        self.ledger.sent(&format!("webhook.{chat}"), id, Promise::Kept, message.effects);
        let body = json!({"chat_id": chat, "message_id": id, "text": message.text});
        loop {
            let doors = self.ledger.doors(failed.as_ref()).await;
            match self.post(&doors.webhook, &body).await {
                Some((202, reply)) => {
                    *failed = None;
                    let turn = reply["turn_id"].as_str().unwrap_or_default().to_owned();
                    self.ledger.acknowledged(id, &turn);
                    return Some(turn);
                }
                Some((status, reply)) => {
                    self.ledger.violation(format!("{id}: answered with {status}: {reply}"));
                    return None;
                }
                None => {
                    self.ledger.count(|counts| counts.resent += 1);
                    *failed = Some(doors);
                }
            }
        }
    }

    async fn post(&self, url: &str, body: &Value) -> Option<(u16, Value)> {
        let reply = self.http.post(url).json(body).send().await.ok()?;
        Some((reply.status().as_u16(), reply.json().await.ok()?))
    }
}
