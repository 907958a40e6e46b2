//! The journal of the world.

use domain::ids::{DeliveryId, Seq, SessionKey, TurnId};
use protocol::journal::{
    AcceptedState, DeadLetter, DuplicateState, Enqueue, Enqueued, OpenRow, OpenWork, Told, Unfinished,
};
use protocol::subagent::REPORTS;
use testkit::journal::Answers;
use tokio::sync::oneshot;
use uuid::Uuid;

use crate::world::{World, now};

impl Answers for World {
    fn admit(&self, message: Enqueue, told: Told) {
        let mut books = self.books();
        let verdict = match (books.verdict.clone(), books.known.get(&message.message_id)) {
            (Some(verdict), _) => verdict,
            (None, Some(turn)) => Enqueued::Duplicate { turn: *turn, state: DuplicateState::Open },
            (None, None) => {
                books.known.insert(message.message_id.clone(), message.turn);
                let turn = message.turn;
                books.taken.push(message);
                Enqueued::Accepted { turn, seq: Seq(1), position: 0, state: AcceptedState::Running }
            }
        };
        drop(books);
        told.tell(verdict);
    }
    fn unfinished(&self) -> oneshot::Receiver<Vec<Unfinished>> {
        now(self.books().unfinished.clone())
    }
    fn open_of(&self, key: SessionKey) -> oneshot::Receiver<OpenWork> {
        let row = || OpenRow { id: DeliveryId { turn: TurnId(Uuid::nil()), n: 1 }, channel: REPORTS.into() };
        let rows = if self.books().reporting.contains(&key) { vec![row()] } else { Vec::new() };
        now(OpenWork { rows, ..OpenWork::default() })
    }
    fn dead_letters(&self) -> oneshot::Receiver<Vec<DeadLetter>> {
        now(self.books().letters.clone())
    }
}
