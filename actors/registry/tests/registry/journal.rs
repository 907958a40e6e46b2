//! A journal double: knows the open turns of each key, and what it was told about quarantines.

use std::collections::BTreeMap;
use std::sync::Mutex;

use domain::ids::{SessionKey, TurnId};
use protocol::journal::{Quarantine, Unfinished};
use testkit::journal::Answers;
use tokio::sync::oneshot;

/// An open turn; it crashes its session `bombs` times before it gets done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Turn {
    pub id: TurnId,
    pub bombs: u32,
}

#[derive(Default)]
pub struct ToyJournal {
    pub open: Mutex<BTreeMap<SessionKey, Vec<Turn>>>,
    pub done: Mutex<Vec<(SessionKey, TurnId)>>,
    pub quarantines: Mutex<Vec<Quarantine>>,
    pub unquarantined: Mutex<Vec<SessionKey>>,
    pub unfinished: Mutex<Vec<Unfinished>>,
}

impl ToyJournal {
    pub fn first(&self, key: &SessionKey) -> Option<Turn> {
        self.open.lock().unwrap().get(key).and_then(|turns| turns.first().copied())
    }

    pub fn open_turns(&self, key: &SessionKey) -> u32 {
        self.open.lock().unwrap().get(key).map_or(0, |turns| turns.len() as u32)
    }

    /// Uses a bomb up, if the turn has one left.
    pub fn explodes(&self, key: &SessionKey) -> bool {
        let mut open = self.open.lock().unwrap();
        let turn = &mut open.get_mut(key).unwrap()[0];
        let explodes = turn.bombs > 0;
        turn.bombs = turn.bombs.saturating_sub(1);
        explodes
    }

    pub fn end_first(&self, key: &SessionKey) {
        let turn = self.open.lock().unwrap().get_mut(key).unwrap().remove(0);
        self.done.lock().unwrap().push((key.clone(), turn.id));
    }
}

fn answered<T>(answer: T) -> oneshot::Receiver<T> {
    let (tx, rx) = oneshot::channel();
    let _ = tx.send(answer);
    rx
}

impl Answers for ToyJournal {
    fn quarantine(&self, quarantine: Quarantine) -> oneshot::Receiver<()> {
        self.quarantines.lock().unwrap().push(quarantine);
        answered(())
    }
    fn unquarantine(&self, key: SessionKey) -> oneshot::Receiver<()> {
        self.unquarantined.lock().unwrap().push(key);
        answered(())
    }
    fn unfinished(&self) -> oneshot::Receiver<Vec<Unfinished>> {
        let mut all = self.unfinished.lock().unwrap().clone();
        for (key, turns) in self.open.lock().unwrap().iter() {
            if !turns.is_empty() && !all.iter().any(|one| one.key == *key) {
                let turns = turns.len() as u32;
                all.push(Unfinished {
                    key: key.clone(),
                    cut: None,
                    turns,
                    quarantined_until_ms: None,
                    quarantined_times: 0,
                });
            }
        }
        answered(all)
    }
}
