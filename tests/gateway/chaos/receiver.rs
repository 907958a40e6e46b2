//! Takes what is pushed, at its own whim: at once, later than the sender waits, or not at all; and keeps the receipts.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::dice::Dice;

/// How long the sender waits for an answer, in seconds.
pub const PATIENCE_S: f64 = 0.4;
/// When an answer comes that the sender does not wait for any more.
const LATE: Duration = Duration::from_millis(900);

/// One row of one turn, as often as it came.
#[derive(Debug, Clone, Default)]
pub struct Row {
    pub text: String,
    /// For each time that it was taken: whether its sender said that it repeats itself.
    pub repeats: Vec<bool>,
}

/// What is known of one turn.
#[derive(Debug, Clone, Default)]
pub struct Pushed {
    pub parts: u64,
    /// By their part, from 1.
    pub rows: BTreeMap<u64, Row>,
}

/// What came, all in all.
#[derive(Debug, Clone, Default)]
pub struct Receipts {
    pub turns: HashMap<String, Pushed>,
    /// For each chat the ids in the order in which they were taken.
    pub chats: BTreeMap<String, Vec<String>>,
    /// Answers that were no receipt.
    pub refused: u64,
    /// Answers that came too late.
    pub late: u64,
    /// What no sender may say.
    pub wrong: Vec<String>,
}

/// The receiver; it serves as long as its runtime.
pub struct Receiver {
    dice: Mutex<Dice>,
    receipts: Mutex<Receipts>,
    came: watch::Sender<u64>,
}

/// What becomes of one request.
enum Whim {
    Take,
    TakeLate,
    Refuse(StatusCode),
}

impl Pushed {
    /// The whole text, once all of it is there.
    pub fn whole(&self) -> Option<String> {
        let complete = self.parts > 0 && self.rows.len() as u64 == self.parts;
        complete.then(|| self.rows.values().map(|row| row.text.as_str()).collect())
    }
}

impl Receiver {
    /// Listens on a free port; returns where.
    pub async fn start(seed: u64) -> (Arc<Self>, String) {
        let receiver = Arc::new(Self {
            dice: Mutex::new(Dice::new(seed, 5000)),
            receipts: Mutex::default(),
            came: watch::Sender::new(0),
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        let app = Router::new().route("/hook", post(receive)).with_state(Arc::clone(&receiver));
        tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        (receiver, url)
    }

    fn receipts(&self) -> MutexGuard<'_, Receipts> {
        self.receipts.lock().unwrap()
    }

    /// Waits until all of a turn's rows were taken; returns the text.
    pub async fn whole(&self, turn: &str) -> String {
        let mut came = self.came.subscribe();
        loop {
            let _ = came.borrow_and_update();
            if let Some(text) = self.receipts().turns.get(turn).and_then(Pushed::whole) {
                return text;
            }
            came.changed().await.unwrap();
        }
    }

    /// Everything that was taken.
    pub fn close(&self) -> Receipts {
        self.receipts().clone()
    }

    fn whim(&self) -> Whim {
        match self.dice.lock().unwrap().between(0, 99) {
            0..88 => Whim::Take,
            88..92 => Whim::TakeLate,
            92..97 => Whim::Refuse(StatusCode::SERVICE_UNAVAILABLE),
            _ => Whim::Refuse(StatusCode::TOO_MANY_REQUESTS),
        }
    }

    fn take(&self, body: &Value) -> Whim {
        let whim = self.whim();
        let mut receipts = self.receipts();
        match whim {
            Whim::Take => {}
            Whim::TakeLate => receipts.late += 1,
            Whim::Refuse(_) => {
                receipts.refused += 1;
                return whim;
            }
        }
        if let Err(wrong) = receipts.take(body) {
            receipts.wrong.push(format!("{wrong}: {body}"));
        }
        drop(receipts);
        self.came.send_modify(|came| *came += 1);
        whim
    }
}

impl Receipts {
    fn take(&mut self, body: &Value) -> Result<(), &'static str> {
        let text = |name: &str| body[name].as_str().map(str::to_owned);
        let (Some(id), Some(turn), Some(chat), Some(said)) =
            (text("id"), text("turn_id"), text("chat_id"), text("text"))
        else {
            return Err("a push without its fields");
        };
        let (Some(part), Some(parts), Some(repeat)) =
            (body["part"].as_u64(), body["parts"].as_u64(), body["repeat"].as_bool())
        else {
            return Err("a push without its numbers");
        };
        let pushed = self.turns.entry(turn.clone()).or_default();
        if (pushed.parts != 0 && pushed.parts != parts) || id != format!("{turn}:{part}") || part > parts {
            return Err("a push that does not fit its turn");
        }
        pushed.parts = parts;
        let row = pushed.rows.entry(part).or_default();
        if !row.repeats.is_empty() && row.text != said {
            return Err("a push that says something else than before");
        }
        if !row.repeats.is_empty() && !repeat {
            return Err("a push that came before and does not say so");
        }
        row.text = said;
        row.repeats.push(repeat);
        self.chats.entry(chat).or_default().push(id);
        Ok(())
    }
}

async fn receive(State(receiver): State<Arc<Receiver>>, axum::Json(body): axum::Json<Value>) -> StatusCode {
    match receiver.take(&body) {
        Whim::Take => StatusCode::OK,
        Whim::TakeLate => {
            tokio::time::sleep(LATE).await;
            StatusCode::OK
        }
        Whim::Refuse(status) => status,
    }
}
