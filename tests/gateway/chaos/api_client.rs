//! Clients of the OpenAI-compatible API: one that brings an `Idempotency-Key` and asks until it knows the answer,
//! streaming or not, and one that brings none and leaves after some tenths of a second.

use std::sync::Arc;
use std::time::Duration;

use reqwest::Response;
use serde_json::{Value, json};

use super::dice::Dice;
use super::ledger::{Doors, Ledger, Promise};
use super::message::message;

/// Messages of one user before the client turns to a new one.
const USER_MESSAGES: u64 = 25;

/// The client.
pub struct Asker {
    ledger: Arc<Ledger>,
    dice: Dice,
    http: reqwest::Client,
    place: String,
    promise: Promise,
}

/// What one request came to.
enum Told {
    /// The whole answer.
    Answer(String),
    /// The turn ended otherwise.
    Ended(String),
    /// The gateway or the connection went away, or it will not do now.
    Nothing,
    /// What may never be.
    Wrong(String),
}

struct Question {
    id: String,
    user: String,
    text: String,
    stream: bool,
    key: bool,
}

impl Asker {
    /// One that brings a key.
    pub fn patient(ledger: Arc<Ledger>, number: u64) -> Self {
        Self::new(ledger, 2000 + number, format!("p{number}"), Promise::Kept)
    }

    /// One that brings none and leaves early.
    pub fn hasty(ledger: Arc<Ledger>, number: u64) -> Self {
        Self::new(ledger, 3000 + number, format!("h{number}"), Promise::Loose)
    }

    fn new(ledger: Arc<Ledger>, number: u64, place: String, promise: Promise) -> Self {
        let dice = Dice::new(ledger.seed, number);
        Self { ledger, dice, http: provider::http_client().unwrap(), place, promise }
    }

    /// Asks until nothing new is to be asked and, with a key, every answer is known.
    pub async fn run(mut self) {
        let (mut number, mut failed) = (0, None);
        while !self.ledger.closing.is_cancelled() {
            let user = format!("{}-{}", self.place, number / USER_MESSAGES);
            let id = format!("{user}-{}", number % USER_MESSAGES);
            number += 1;
            let message = message(&mut self.dice, &id);
            self.ledger.sent(&format!("api.user.{user}"), &id, self.promise, message.effects);
            let (text, key) = (message.text, self.promise == Promise::Kept);
            let mut question = Question { id, user, text, stream: false, key };
            loop {
                question.stream = self.dice.percent(50);
                let known = self.ask_once(&question, &mut failed).await;
                if known || self.promise == Promise::Loose {
                    break;
                }
                self.ledger.count(|counts| counts.resent += 1);
            }
        }
    }

    /// One request; says whether the end of the turn is known.
    async fn ask_once(&mut self, question: &Question, failed: &mut Option<Arc<Doors>>) -> bool {
        let doors = self.ledger.doors(failed.as_ref()).await;
        let hurries = !question.key || self.dice.percent(10);
        let patience = if hurries { self.dice.between(5, 500) } else { 3_600_000 };
        let asking = self.ask(&doors, question);
        let Ok(told) = tokio::time::timeout(Duration::from_millis(patience), asking).await else {
            self.ledger.count(|counts| counts.hurried += 1);
            return false;
        };
        *failed = None;
        match told {
            Told::Answer(text) => self.ledger.ended(&question.id, "done", &text),
            Told::Ended(word) => self.ledger.ended(&question.id, &word, ""),
            Told::Nothing => {
                self.ledger.count(|counts| counts.cut += 1);
                *failed = Some(doors);
                return false;
            }
            Told::Wrong(what) => {
                self.ledger.violation(format!("{}: {what}", question.id));
                return true;
            }
        }
        true
    }

    async fn ask(&self, doors: &Doors, question: &Question) -> Told {
        let messages = [json!({"role": "user", "content": question.text})];
        let body = json!({"user": question.user, "stream": question.stream, "messages": messages});
        let mut request = self.http.post(format!("{}/chat/completions", doors.api)).json(&body);
        if question.key {
            request = request.header("idempotency-key", &question.id);
        }
        let Ok(response) = request.send().await else { return Told::Nothing };
        let status = response.status().as_u16();
        if let Some(turn) = response.headers().get("x-greenroom-turn") {
            self.ledger.acknowledged(&question.id, turn.to_str().unwrap());
        }
        if question.stream && status == 200 {
            return stream(response).await;
        }
        let Ok(body) = response.json::<Value>().await else { return Told::Nothing };
        if status != 200 {
            return refusal(&body, status);
        }
        match body["choices"][0]["message"]["content"].as_str() {
            Some(text) => Told::Answer(text.to_owned()),
            None => Told::Wrong(format!("an answer without text: {body}")),
        }
    }
}

fn refusal(body: &Value, status: u16) -> Told {
    match body["error"]["code"].as_str() {
        Some("turn_cancelled" | "cancelled") => Told::Ended("cancelled".to_owned()),
        _ => Told::Wrong(format!("answered with {status}: {body}")),
    }
}

/// Reads a stream to its end mark; without one it counts for nothing.
async fn stream(mut response: Response) -> Told {
    let mut bytes = Vec::new();
    while let Ok(Some(chunk)) = response.chunk().await {
        bytes.extend_from_slice(&chunk);
    }
    let Ok(text) = String::from_utf8(bytes) else { return Told::Nothing };
    let mut answer = String::new();
    for line in text.lines().filter_map(|line| line.strip_prefix("data: ")) {
        if line == "[DONE]" {
            return Told::Answer(answer);
        }
        let Ok(event) = serde_json::from_str::<Value>(line) else { return Told::Nothing };
        if !event["error"].is_null() {
            return refusal(&event, 200);
        }
        answer.push_str(event["choices"][0]["delta"]["content"].as_str().unwrap_or_default());
    }
    Told::Nothing
}
