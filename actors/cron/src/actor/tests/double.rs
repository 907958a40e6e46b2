//! A journal that knows each message again, sessions that know how turns ended, and one who tells of ends.

use std::collections::BTreeMap;
use std::sync::Mutex;

use actix::Recipient;
use domain::chat::Usage;
use domain::ids::{MessageId, Seq};
use protocol::journal::{AcceptedState, BusyReason, DuplicateState, Enqueued, Told};
use protocol::registry::Unreachable;
use protocol::session::{Mail, State};
use protocol::supervision::TreeNode;
use protocol::top::{SessionsTop, TopQuery};
use protocol::turn::{Lane, WatchedTooMany};
use testkit::journal::Answers;
use tokio::sync::mpsc;

use super::*;

pub struct Double {
    known: Mutex<BTreeMap<MessageId, TurnId>>,
    refusals: Mutex<u32>,
    watched: Mutex<BTreeMap<TurnId, (SessionKey, Recipient<TurnEnded>)>>,
    records: Mutex<BTreeMap<TurnId, Option<TurnRecord>>>,
    silent: Mutex<bool>,
    hasty: Mutex<bool>,
    messages: mpsc::UnboundedSender<Enqueue>,
    got: tokio::sync::Mutex<mpsc::UnboundedReceiver<Enqueue>>,
    cancels: mpsc::UnboundedSender<(SessionKey, TurnId)>,
    cancelled: tokio::sync::Mutex<mpsc::UnboundedReceiver<(SessionKey, TurnId)>>,
}

impl Double {
    pub fn new() -> Arc<Self> {
        Self::with(BTreeMap::new())
    }

    fn with(known: BTreeMap<MessageId, TurnId>) -> Arc<Self> {
        let (messages, got) = mpsc::unbounded_channel();
        let (cancels, cancelled) = mpsc::unbounded_channel();
        Arc::new(Self {
            known: Mutex::new(known),
            refusals: Mutex::default(),
            watched: Mutex::default(),
            records: Mutex::default(),
            silent: Mutex::default(),
            hasty: Mutex::default(),
            messages,
            got: got.into(),
            cancels,
            cancelled: cancelled.into(),
        })
    }

    /// What is left of it when the process dies.
    pub fn reborn(&self) -> Arc<Self> {
        Self::with(self.known.lock().unwrap().clone())
    }

    /// The next message that was handed over.
    pub async fn next(&self) -> Enqueue {
        self.got.lock().await.recv().await.unwrap()
    }

    pub async fn cancelled(&self) -> (SessionKey, TurnId) {
        self.cancelled.lock().await.recv().await.unwrap()
    }

    /// Messages that were handed over and not looked at.
    pub fn count(&self) -> usize {
        self.got.try_lock().unwrap().len()
    }

    pub fn refuse(&self, times: u32) {
        *self.refusals.lock().unwrap() = times;
    }

    pub fn silent(&self, silent: bool) {
        *self.silent.lock().unwrap() = silent;
    }

    /// From now on turns have ended before anybody hears that they were accepted.
    pub fn hasty(&self) {
        *self.hasty.lock().unwrap() = true;
    }

    pub fn know(&self, turn: TurnId, record: Option<TurnRecord>) {
        self.records.lock().unwrap().insert(turn, record);
    }

    pub fn watched(&self) -> usize {
        self.watched.lock().unwrap().len()
    }

    pub fn end(&self, turn: TurnId, result: TurnResult, text: &str) {
        let (key, to) = self.watched.lock().unwrap().remove(&turn).expect("somebody waits for this end");
        let ended = TurnEnded { key, turn, result, text: text.into(), usage: Usage::default(), model: "m".into() };
        tell(&to, ended).unwrap();
    }
}

impl TurnWatch for Double {
    fn watch(&self, key: &SessionKey, turn: TurnId, to: Recipient<TurnEnded>) -> Result<(), WatchedTooMany> {
        self.watched.lock().unwrap().insert(turn, (key.clone(), to));
        Ok(())
    }

    fn accepted(&self, _: TurnId) {}

    fn ended(&self, _: TurnEnded) {
        unreachable!("ends are looked for in transcripts by nobody here")
    }

    fn unwatch(&self, turn: TurnId) {
        self.watched.lock().unwrap().remove(&turn);
    }
}

impl Sessions for Double {
    fn tell(&self, key: &SessionKey, mail: Mail) -> Result<(), Unreachable> {
        match mail {
            Mail::ReadTurn { turn, reply } if !*self.silent.lock().unwrap() => {
                let record = self.records.lock().unwrap().get(&turn).cloned().flatten();
                let _ = reply.send(record);
            }
            Mail::CancelTurn { turn } => self.cancels.send((key.clone(), turn)).unwrap(),
            _ => {}
        }
        Ok(())
    }

    fn tell_live(&self, _: &SessionKey, mail: Mail) -> Result<(), Mail> {
        Err(mail)
    }

    fn state(&self, _: &SessionKey) -> Option<State> {
        None
    }

    fn steers(&self, _: &SessionKey) -> Option<Lane> {
        None
    }

    fn live(&self) -> usize {
        0
    }

    fn tree(&self) -> TreeNode {
        unreachable!("nobody asks for the tree")
    }

    fn top(&self, _: &TopQuery) -> SessionsTop {
        unreachable!("nobody asks for the top")
    }

    fn release(&self, _: &SessionKey) -> bool {
        false
    }
}

impl Answers for Double {
    fn admit(&self, message: Enqueue, told: Told) {
        let mut refusals = self.refusals.lock().unwrap();
        let (turn, id) = (message.turn, message.message_id.clone());
        self.messages.send(message).unwrap();
        if *refusals > 0 {
            *refusals -= 1;
            return told.tell(Enqueued::Busy { retry_after_ms: 2000, why: BusyReason::Session });
        }
        if *self.hasty.lock().unwrap() {
            self.end(turn, TurnResult::Done, "");
        }
        let mut known = self.known.lock().unwrap();
        told.tell(match known.get(&id) {
            Some(turn) => Enqueued::Duplicate { turn: *turn, state: DuplicateState::Open },
            None => {
                known.insert(id, turn);
                Enqueued::Accepted { turn, seq: Seq(1), position: 0, state: AcceptedState::Running }
            }
        });
    }
}
