//! The calls about what leaves: rows of the outbox and dead letters.

use std::sync::Arc;

use domain::ids::{DeliveryId, LetterId};
use protocol::journal::{AskRows, DeadLetter, JournalError, LetterContent, LetterDetail, Out, OutRow, Rows};
use protocol::supervision::{ActorPath, Event, EventName, Kind};
use protocol::turn::PushRoute;
use tokio::sync::oneshot::Sender;

use crate::call::Call;
use crate::engine::{Engine, Room};
use crate::read::Source;
use crate::record::{Content, Record};
use crate::reply::Reply;

/// Dead letters that are kept; the oldest leave.
pub const DEAD_LETTERS_MAX: usize = 10_000;
/// Their contents take at most this share of `journal.maxBytes`.
const DEAD_LETTER_SHARE: u64 = 8;

/// What becomes of a row.
pub enum Step {
    /// A send begins.
    Sending,
    /// It was taken.
    Sent,
    /// It will not be taken.
    Undeliverable(Arc<str>),
}

/// A call about what leaves.
pub enum Outgoing {
    /// See [`protocol::journal::Journal::outbox_channels`].
    Channels(Sender<Vec<Arc<str>>>),
    /// See [`protocol::journal::Journal::outbox`].
    Rows(AskRows, Sender<Rows>),
    /// See [`protocol::journal::Journal::sending`] and those after it.
    Step(DeliveryId, Step, Sender<()>),
    /// See [`protocol::journal::Journal::letter`].
    Letter(LetterId, Sender<Option<LetterDetail>>),
    /// See [`protocol::journal::Journal::drop_letter`].
    Drop(LetterId, Sender<bool>),
    /// See [`protocol::journal::Journal::redeliver`].
    Redeliver(LetterId, Sender<Option<OutRow>>),
    /// The row of a dead letter was read, or not.
    Reopen(LetterId, Option<OutRow>, Sender<Option<OutRow>>),
}

impl Engine {
    pub(crate) fn outgoing(&mut self, call: Outgoing) {
        match call {
            Outgoing::Channels(reply) => drop(reply.send(self.state.outbox.channels())),
            Outgoing::Rows(ask, reply) => self.replies.push(Reply::Rows(ask, reply)),
            Outgoing::Step(id, step, reply) => self.step(id, step, reply),
            Outgoing::Letter(id, reply) => self.replies.push(Reply::Letter(id, reply)),
            Outgoing::Drop(id, reply) => self.drop_letter(id, reply),
            Outgoing::Redeliver(id, reply) => self.replies.push(Reply::Redeliver(id, reply)),
            Outgoing::Reopen(id, row, reply) => self.reopen(id, row, reply),
        }
    }

    fn step(&mut self, id: DeliveryId, step: Step, reply: Sender<()>) {
        if self.state.outbox.get(id).is_none() {
            return self.replies.push(Reply::Unit(reply));
        }
        let reason = if let Step::Undeliverable(reason) = &step { reason.len() } else { 0 };
        match self.room(64 + reason) {
            Room::Ready => {}
            Room::Stalled => return self.stall(Call::Outgoing(Outgoing::Step(id, step, reply))),
            Room::TooLarge | Room::Failed => return,
        }
        match step {
            Step::Sending => self.append(Record::Sending(id)),
            Step::Sent => self.append(Record::Sent(id)),
            Step::Undeliverable(reason) => {
                let at_ms = self.around.ports.clock.wall_ms();
                self.append(Record::Undeliverable { id, reason, at_ms });
                self.shed_letters();
            }
        }
        self.replies.push(Reply::Unit(reply));
    }

    fn drop_letter(&mut self, id: LetterId, reply: Sender<bool>) {
        let known = self.state.letters.get(id).is_some();
        if known {
            match self.room(64) {
                Room::Ready => self.append(Record::LetterClosed(id)),
                Room::Stalled => return self.stall(Call::Outgoing(Outgoing::Drop(id, reply))),
                Room::TooLarge | Room::Failed => return,
            }
        }
        self.replies.push(Reply::Flag(known, reply));
    }

    fn reopen(&mut self, id: LetterId, row: Option<OutRow>, reply: Sender<Option<OutRow>>) {
        let row = row.filter(|_| self.state.letters.get(id).is_some());
        let Some(mut row) = row else { return self.replies.push(Reply::Reopened(None, reply)) };
        match self.room(size_of_row(&row)) {
            Room::Ready => {}
            Room::Stalled => return self.stall(Call::Outgoing(Outgoing::Reopen(id, Some(row), reply))),
            Room::TooLarge | Room::Failed => return,
        }
        (row.committed_ms, row.sending) = (self.around.ports.clock.wall_ms(), false);
        self.append(Record::Row { row: Box::new(row.clone()), place: None });
        self.rows_out.push(row.clone());
        self.replies.push(Reply::Reopened(Some(row), reply));
    }

    /// Lets the oldest dead letters go when there are too many. Their turns stand in the transcripts, their users know.
    pub(crate) fn shed_letters(&mut self) {
        let too_many = |engine: &Self| {
            let letters = &engine.state.letters;
            letters.len() > DEAD_LETTERS_MAX || letters.bytes() > engine.options.max_bytes / DEAD_LETTER_SHARE
        };
        while too_many(self) {
            let Some(letter) = self.state.letters.iter().next().map(|kept| kept.letter.clone()) else { return };
            if self.room(64) != Room::Ready {
                return;
            }
            self.append(Record::LetterClosed(letter.id));
            self.tell_shed(&letter);
        }
    }

    fn tell_shed(&self, letter: &DeadLetter) {
        let mut event = Event::new(EventName::LetterShed, ActorPath("/journal".into()), Kind::Journal);
        event.session = Some(letter.key.clone());
        event.turn = Some(letter.turn);
        if let LetterId::Delivery(delivery) = letter.id {
            event.delivery = Some(delivery);
        }
        event.reason = Some("there are too many dead letters, and it was the oldest".to_owned());
        event.lost = "the dead letter; what it is about stands in the transcript".to_owned();
        self.around.log.record(event);
    }

    /// Answers, now that everything before is durable. Texts are read from the log, elsewhere.
    pub(crate) fn answer_rows(&self, ask: &AskRows, reply: Sender<Rows>) {
        let (wanted, left) = self.state.outbox.oldest(ask);
        let wanted: Vec<_> = wanted.into_iter().map(|row| (self.source(row.at), row.clone())).collect();
        self.around.ports.offload.run(Box::new(move || {
            let read = wanted.into_iter().filter_map(|(source, row)| match there(source).and_then(|source| source.row(row.id)) {
                Ok(read) => Some(row.refresh(read)),
                Err(error) => {
                    tracing::error!(%error, delivery = %row.id, "a row of the outbox cannot be read; it stays in the log");
                    None
                }
            });
            drop(reply.send(Rows { rows: read.collect(), left }));
        }));
    }

    pub(crate) fn answer_letter(&self, id: LetterId, reply: Sender<Option<LetterDetail>>) {
        let Some(kept) = self.state.letters.get(id) else { return drop(reply.send(None)) };
        let letter = kept.letter.clone();
        let source = kept.content.map(|at| self.source(at));
        self.around.ports.offload.run(Box::new(move || {
            let content = match source.map(|source| there(source).and_then(|source| source.content(id))) {
                Some(Ok(Content::Message(message))) => LetterContent::Message(message),
                Some(Ok(Content::Row(row))) => LetterContent::Row(*row),
                Some(Err(error)) => LetterContent::Missing { why: error.to_string() },
                None => LetterContent::Missing { why: "the log was written before contents were kept".to_owned() },
            };
            drop(reply.send(Some(LetterDetail { letter, content })));
        }));
    }

    pub(crate) fn answer_redeliver(&self, id: LetterId, reply: Sender<Option<OutRow>>) {
        let source = self.state.letters.get(id).and_then(|kept| kept.content).map(|at| self.source(at));
        let (LetterId::Delivery(delivery), Some(source)) = (id, source) else { return drop(reply.send(None)) };
        let post = self.post.clone();
        self.around.ports.offload.run(Box::new(move || {
            let row = there(source)
                .and_then(|source| source.row(delivery))
                .inspect_err(|error| tracing::error!(%error, %delivery, "the row of a dead letter cannot be read"));
            post.post(Call::Outgoing(Outgoing::Reopen(id, row.ok(), reply)));
        }));
    }
}

/// At least the bytes of a row's record.
pub fn size_of_row(row: &OutRow) -> usize {
    64 + row.key.as_str().len() + size_of_out(&row.out)
}

/// At least the bytes of a delivery in a record.
pub fn size_of_out(out: &Out) -> usize {
    let PushRoute { channel, account, chat, thread } = &out.route;
    let thread = thread.as_ref().map_or(0, |thread| thread.len());
    96 + channel.len() + account.len() + chat.len() + thread + out.text.len()
}

fn there(source: Option<Source>) -> Result<Source, JournalError> {
    source.ok_or_else(|| JournalError::Unreadable("its segment is gone".to_owned()))
}
