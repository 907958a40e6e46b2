//! What the keeper has around it: it is told what to answer, and tells what it was asked.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use actix::Recipient;
use domain::chat::{StopReason, Usage};
use domain::ids::{MessageId, SessionKey, TurnId};
use domain::run::RunSpec;
use protocol::journal::{DeadLetter, Enqueue, Enqueued, Unfinished};
use protocol::registry::{Sessions, Unreachable};
use protocol::session::{Mail, State, TurnRecord};
use protocol::supervision::TreeNode;
use protocol::top::{SessionsTop, TopQuery};
use protocol::turn::{Lane, TurnEnded, TurnResult, TurnWatch, WatchedTooMany};
use supervision::tell;
use tokio::sync::oneshot;

/// What a session was told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told {
    Stop(SessionKey),
    Cancel(SessionKey, TurnId),
}

/// What a session says that is asked what it was sent to do.
pub struct Child {
    pub spec: Arc<RunSpec>,
    pub turn: Option<TurnId>,
    /// How often it says nothing before.
    pub silent: u32,
}

#[derive(Default)]
pub struct Books {
    /// What was enqueued and taken.
    pub taken: Vec<Enqueue>,
    pub known: BTreeMap<MessageId, TurnId>,
    /// The verdict over the next messages, in place of taking them.
    pub verdict: Option<Enqueued>,
    pub watched: BTreeMap<TurnId, (SessionKey, Recipient<TurnEnded>)>,
    pub records: BTreeMap<TurnId, TurnRecord>,
    pub told: Vec<Told>,
    pub children: BTreeMap<SessionKey, Child>,
    pub unfinished: Vec<Unfinished>,
    pub letters: Vec<DeadLetter>,
    /// Sessions whose reports are on their way.
    pub reporting: Vec<SessionKey>,
    pub quarantined: Vec<SessionKey>,
}

#[derive(Default)]
pub struct World(Mutex<Books>);

// === impl World ===

impl World {
    pub fn books(&self) -> MutexGuard<'_, Books> {
        self.0.lock().unwrap()
    }

    /// A turn ended, and whoever watches it is told.
    pub fn end(&self, turn: TurnId, result: TurnResult, text: &str) {
        let (key, to) = self.books().watched.remove(&turn).expect("somebody watches it");
        let ended = TurnEnded { key, turn, result, text: text.into(), usage: Usage::default(), model: "m".into() };
        tell(&to, ended).unwrap();
    }

    /// A turn ended, and nobody was told.
    pub fn ended(&self, turn: TurnId, result: TurnResult, text: &str) {
        let (text, stop, usage) = (text.to_owned(), StopReason::Stop, Usage::default());
        let record = TurnRecord::Ended { result, into: None, text, stop, usage, model: "m".to_owned() };
        self.books().records.insert(turn, record);
    }
}

impl TurnWatch for World {
    fn watch(&self, key: &SessionKey, turn: TurnId, to: Recipient<TurnEnded>) -> Result<(), WatchedTooMany> {
        self.books().watched.insert(turn, (key.clone(), to));
        Ok(())
    }

    fn accepted(&self, _: TurnId) {}

    fn ended(&self, ended: TurnEnded) {
        self.books().watched.remove(&ended.turn);
    }

    fn unwatch(&self, turn: TurnId) {
        self.books().watched.remove(&turn);
    }
}

impl Sessions for World {
    fn tell(&self, key: &SessionKey, mail: Mail) -> Result<(), Unreachable> {
        let mut books = self.books();
        match mail {
            Mail::Stop { .. } => books.told.push(Told::Stop(key.clone())),
            Mail::CancelTurn { turn } => books.told.push(Told::Cancel(key.clone(), turn)),
            Mail::ReadTurn { turn, reply } => {
                let record = books.records.get(&turn).cloned();
                drop(reply.send(Some(record.unwrap_or(TurnRecord::Open))));
            }
            Mail::Run { reply } => {
                if let Some(child) = books.children.get_mut(key) {
                    match child.silent.checked_sub(1) {
                        Some(less) => child.silent = less,
                        None => drop(reply.send((Arc::clone(&child.spec), child.turn))),
                    }
                }
            }
            other @ (Mail::Queued(_)
            | Mail::Queue { .. }
            | Mail::Status { .. }
            | Mail::Has { .. }
            | Mail::Standing { .. }
            | Mail::Edit { .. }
            | Mail::Condense { .. }
            | Mail::Close { .. }
            | Mail::Restore { .. }
            | Mail::Passivate
            | Mail::Drain
            | Mail::Interrupt) => unreachable!("the keeper sends no {other:?}"),
        }
        Ok(())
    }

    fn tell_live(&self, _: &SessionKey, mail: Mail) -> Result<(), Mail> {
        Err(mail)
    }

    fn state(&self, key: &SessionKey) -> Option<State> {
        self.books().quarantined.contains(key).then_some(State::Quarantined)
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

/// An answer that is there already.
pub fn now<T>(answer: T) -> oneshot::Receiver<T> {
    let (reply, answered) = oneshot::channel();
    drop(reply.send(answer));
    answered
}
