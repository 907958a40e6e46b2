//! Answers that wait until everything they were decided on is durable.

use std::path::PathBuf;
use std::sync::Arc;

use domain::ids::{LetterId, TurnId};
use protocol::journal::{
    Accepted, AskRows, CommitOutcome, DeadLetter, Enqueued, JournalError, LetterDetail, Line, Loaded, LogPosition,
    Moving, OutRow, Queued, Rows, Told, Unfinished,
};
use protocol::trace::{Span, Step};
use tokio::sync::oneshot::Sender;

use crate::backup;
use crate::engine::Engine;
use crate::key::LinesAt;
use crate::read::Source;
use crate::state::LoadPlan;

/// One answer.
pub enum Reply {
    /// A new message: first to the sink, then to its door.
    Accepted(Enqueued, Queued, Told),
    /// Another verdict over a message.
    Enqueue(Enqueued, Told),
    /// A verdict over a commit.
    Commit(CommitOutcome, Sender<CommitOutcome>),
    /// An activation; its lines are read from the log.
    Load(Box<LoadPlan>, Sender<Result<Loaded, JournalError>>),
    /// The file of an ended transcript; its lines are read from the log.
    Ended(Box<(Moving, Vec<LinesAt>)>, Sender<Result<Option<Moving>, JournalError>>),
    /// A message is read from the log.
    Read(LogPosition, Sender<Result<Arc<Accepted>, JournalError>>),
    /// Done.
    Unit(Sender<()>),
    /// Keys with work.
    Unfinished(Vec<Unfinished>, Sender<Vec<Unfinished>>),
    /// Dead letters.
    Letters(Vec<DeadLetter>, Sender<Vec<DeadLetter>>),
    /// Open rows; their texts are read from the log.
    Rows(AskRows, Sender<Rows>),
    /// A dead letter; its content is read from the log.
    Letter(LetterId, Sender<Option<LetterDetail>>),
    /// The row of a dead letter is read, to be opened again.
    Redeliver(LetterId, Sender<Option<OutRow>>),
    /// It was opened again, or not.
    Reopened(Option<OutRow>, Sender<Option<OutRow>>),
    /// Whether there was something to do.
    Flag(bool, Sender<bool>),
    /// A copy of the log.
    Backup(PathBuf, Sender<Result<u64, JournalError>>),
    /// Everything needed lies in this segment or later ones.
    Retire(u64),
}

impl Reply {
    /// Answers although the batch did not become durable, or it cannot be known.
    pub fn refuse(self, why: &str) {
        match self {
            Self::Commit(_, reply) => drop(reply.send(CommitOutcome::Unknown { why: why.to_owned() })),
            Self::Load(_, reply) => drop(reply.send(Err(JournalError::Closed))),
            Self::Ended(_, reply) => drop(reply.send(Err(JournalError::Closed))),
            Self::Read(_, reply) => drop(reply.send(Err(JournalError::Closed))),
            Self::Backup(_, reply) => drop(reply.send(Err(JournalError::Closed))),
            // No verdict can be given: the closed channel says so.
            Self::Accepted(..)
            | Self::Enqueue(..)
            | Self::Unit(_)
            | Self::Unfinished(..)
            | Self::Letters(..)
            | Self::Rows(..)
            | Self::Letter(..)
            | Self::Redeliver(..)
            | Self::Reopened(..)
            | Self::Flag(..)
            | Self::Retire(_) => {}
        }
    }
}

impl Engine {
    /// Hands the batch's new messages and rows on in log order, then answers everybody.
    pub(crate) fn deliver(&mut self) {
        let mut replies = std::mem::take(&mut self.replies);
        for reply in &mut replies {
            if let Reply::Accepted(_, queued, _) = reply {
                self.span(queued.item.turn);
                self.around.sink.queued(queued.clone());
            }
        }
        for row in std::mem::take(&mut self.rows_out) {
            self.around.out.out(row);
        }
        for reply in replies.drain(..) {
            self.answer(reply);
        }
        if self.replies.is_empty() {
            // Its memory serves the next batch.
            self.replies = replies;
        }
    }

    /// A message became durable.
    fn span(&self, turn: TurnId) {
        self.around.metrics.traces.end(|| {
            let ended_us = self.around.ports.clock.wall_us();
            let begun_us = ended_us.saturating_sub(u64::try_from(self.wrote.as_micros()).unwrap_or(u64::MAX));
            Span { turn, step: Step::Enqueue, begun_us, ended_us, error: None, fields: Vec::new() }
        });
    }

    fn answer(&mut self, reply: Reply) {
        // Whoever asked may be gone; then nobody needs the answer.
        match reply {
            Reply::Accepted(answer, _, told) | Reply::Enqueue(answer, told) => told.tell(answer),
            Reply::Commit(outcome, reply) => drop(reply.send(outcome)),
            Reply::Load(plan, reply) => self.answer_load(*plan, reply),
            Reply::Ended(ended, reply) => {
                let (mut moving, lines) = *ended;
                let sources = self.sources(&lines);
                self.around.ports.offload.run(Box::new(move || {
                    drop(reply.send(read_lines(sources).map(|lines| {
                        moving.lines = lines;
                        Some(moving)
                    })));
                }));
            }
            Reply::Read(at, reply) => match self.source(self.state.resolve(at)) {
                Some(source) => self.around.ports.offload.run(Box::new(move || drop(reply.send(source.accepted())))),
                None => drop(reply.send(Err(JournalError::Unreadable("its segment is gone".to_owned())))),
            },
            Reply::Unit(reply) => reply.send(()).unwrap_or_default(),
            Reply::Unfinished(found, reply) => drop(reply.send(found)),
            Reply::Letters(letters, reply) => drop(reply.send(letters)),
            Reply::Rows(ask, reply) => self.answer_rows(&ask, reply),
            Reply::Letter(id, reply) => self.answer_letter(id, reply),
            Reply::Redeliver(id, reply) => self.answer_redeliver(id, reply),
            Reply::Reopened(row, reply) => drop(reply.send(row)),
            Reply::Flag(flag, reply) => drop(reply.send(flag)),
            Reply::Backup(to, reply) => {
                let copy = backup::plan(&self.log);
                let disk = self.around.ports.disk.clone();
                self.around.ports.offload.run(Box::new(move || {
                    let done = backup::copy(disk.as_ref(), &to, copy);
                    drop(reply.send(done.map_err(|error| JournalError::Unreadable(error.to_string()))));
                }));
            }
            Reply::Retire(oldest) => self.retire(oldest),
        }
    }

    fn answer_load(&mut self, plan: LoadPlan, reply: Sender<Result<Loaded, JournalError>>) {
        let LoadPlan { mut loaded, lines, ended } = plan;
        if lines.is_empty() && ended.is_empty() {
            return drop(reply.send(Ok(loaded)));
        }
        let (lines, ended) = (self.sources(&lines), self.sources(&ended));
        self.around.ports.offload.run(Box::new(move || {
            let answer = read_lines(lines).and_then(|lines| {
                loaded.lines = lines;
                if let Some(moving) = &mut loaded.moving {
                    moving.lines = read_lines(ended)?;
                }
                Ok(loaded)
            });
            drop(reply.send(answer));
        }));
    }

    /// Where the lines of commits are read from; `None` when a segment is gone.
    pub(crate) fn sources(&self, lines: &[LinesAt]) -> Option<Vec<(Source, u64)>> {
        lines.iter().map(|lines| Some((self.source(lines.at)?, lines.commit))).collect()
    }

    /// Where a record is read from.
    pub(crate) fn source(&self, at: LogPosition) -> Option<Source> {
        self.log.locate(at).map(|(file, offset)| Source { file, offset })
    }

    fn retire(&mut self, oldest: u64) {
        let removed = self.log.retire(oldest);
        if removed.is_empty() {
            return;
        }
        let (disk, dir) = (self.around.ports.disk.clone(), self.log.dir.clone());
        self.around.ports.offload.run(Box::new(move || {
            for path in removed {
                if let Err(error) = disk.remove(&path) {
                    tracing::warn!(%error, "a retired segment cannot be removed; the next start tries again");
                }
            }
            if let Err(error) = disk.sync_dir(&dir) {
                tracing::warn!(%error, "the removal of a retired segment cannot be synced");
            }
        }));
    }
}

/// Reads the lines of commits, in order.
pub(crate) fn read_lines(sources: Option<Vec<(Source, u64)>>) -> Result<Vec<Line>, JournalError> {
    let sources = sources.ok_or_else(|| JournalError::Unreadable("a segment is gone".to_owned()))?;
    let read: Result<Vec<_>, _> = sources.iter().map(|(source, commit)| source.lines(*commit)).collect();
    Ok(read?.concat())
}
