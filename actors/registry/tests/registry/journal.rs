//! A journal double: knows the open turns of each key, and what it was told about quarantines.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use domain::ids::{DeliveryId, Epoch, LetterId, SessionId, SessionKey, TurnId};
use protocol::journal::*;
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

/// For calls that the registry never makes.
fn never<T>() -> oneshot::Receiver<T> {
    oneshot::channel().1
}

impl Journal for ToyJournal {
    fn admit(&self, _: Enqueue, _: Told) {}
    fn load(&self, _: SessionKey) -> oneshot::Receiver<Result<Loaded, JournalError>> {
        never()
    }
    fn commit(&self, _: Commit) -> oneshot::Receiver<CommitOutcome> {
        never()
    }
    fn accepted(&self, _: LogPosition) -> oneshot::Receiver<Result<Arc<Accepted>, JournalError>> {
        never()
    }
    fn release(&self, _: SessionKey, _: Epoch) {}
    fn ended(&self, _: SessionKey) -> oneshot::Receiver<Result<Option<Moving>, JournalError>> {
        oneshot::channel().1
    }
    fn moved(&self, _: SessionKey, _: SessionId) {}
    fn view_written(&self, _: ViewWritten) {}
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
    fn find_turn(&self, _: TurnId) -> oneshot::Receiver<Option<SessionKey>> {
        never()
    }
    fn open_of(&self, _: SessionKey) -> oneshot::Receiver<protocol::journal::OpenWork> {
        never()
    }
    fn dead_letters(&self) -> oneshot::Receiver<Vec<DeadLetter>> {
        never()
    }
    fn letter(&self, _: LetterId) -> oneshot::Receiver<Option<LetterDetail>> {
        never()
    }
    fn drop_letter(&self, _: LetterId) -> oneshot::Receiver<bool> {
        never()
    }
    fn redeliver(&self, _: LetterId) -> oneshot::Receiver<Option<OutRow>> {
        never()
    }
    fn outbox_channels(&self) -> oneshot::Receiver<Vec<Arc<str>>> {
        never()
    }
    fn outbox(&self, _: AskRows) -> oneshot::Receiver<Rows> {
        never()
    }
    fn sending(&self, _: DeliveryId) -> oneshot::Receiver<()> {
        never()
    }
    fn sent(&self, _: DeliveryId) -> oneshot::Receiver<()> {
        never()
    }
    fn undeliverable(&self, _: DeliveryId, _: Arc<str>) -> oneshot::Receiver<()> {
        never()
    }
    fn drain(&self) {}
    fn close(&self) -> oneshot::Receiver<()> {
        never()
    }
    fn backup(&self, _: PathBuf) -> oneshot::Receiver<Result<u64, JournalError>> {
        never()
    }
    fn status(&self) -> JournalStatus {
        JournalStatus::default()
    }
}
