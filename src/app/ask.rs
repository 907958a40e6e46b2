//! Saying something to a session from inside the process, and following the turn.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use channel::hub::{Keep, Shown, Sink, Watch};
use domain::body::{TurnBody, body_hash};
use domain::command;
use domain::ids::{MessageId, SessionKey, Source, TurnId};
use futures::Stream;
use protocol::journal::{AcceptedState, DuplicateState, Enqueue, Enqueued};
use protocol::session::{Mail, Status, Stopped, TurnRecord};
use protocol::turn::{Finished, Lane, Route, TurnEvent, TurnProgress};
use tokio::sync::{mpsc, oneshot};

use super::App;
use crate::exit::{Exit, ExitCode};

/// The events of one turn, ending with its one `Finished`. Dropping it stops watching, not the turn.
///
/// The buffer holds at most what one turn says.
pub struct TurnStream {
    /// The turn.
    pub turn: TurnId,
    /// What becomes of the message.
    pub taken: Taken,
    events: mpsc::UnboundedReceiver<TurnEvent>,
    _watch: Watch,
}

/// What becomes of a message that was taken, when it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// Its turn begins.
    Running,
    /// It is offered to the turn that runs.
    Steered,
    /// It waits.
    Queued {
        /// For so many turns.
        position: u32,
    },
    /// It waits until its session is no longer held back.
    Quarantined,
    /// It was taken before.
    Before,
}

/// Whether a turn that runs may take a message up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Joins {
    /// Yes, as a chat's.
    Yes,
    /// No: it has an answer of its own.
    No,
}

struct ToChannel(mpsc::UnboundedSender<TurnEvent>);

impl Sink for ToChannel {
    fn show(&self, shown: &Shown) {
        // Whoever stopped listening misses nothing that the transcript does not have.
        let _ = self.0.send(shown.event.clone());
    }
}

impl Stream for TurnStream {
    type Item = TurnEvent;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<TurnEvent>> {
        self.events.poll_recv(cx)
    }
}

impl TurnStream {
    /// Waits for the end of the turn.
    pub async fn finished(mut self) -> anyhow::Result<Arc<Finished>> {
        while let Some(event) = self.events.recv().await {
            if let TurnProgress::Finished(finished) = event.what {
                return Ok(finished);
            }
        }
        anyhow::bail!("the turn ended without an outcome")
    }
}

impl App {
    /// Submits a text and returns once it is on disk.
    pub async fn submit(&self, key: &SessionKey, text: &str) -> anyhow::Result<TurnStream> {
        let id = MessageId::new(&self.ports().ids.uuid_v7().to_string())?;
        self.submit_as(key, text, id).await
    }

    /// Like [`submit`](Self::submit), of somebody who writes while turns run.
    pub async fn say(&self, key: &SessionKey, text: &str, joins: Joins) -> anyhow::Result<TurnStream> {
        let id = MessageId::new(&self.ports().ids.uuid_v7().to_string())?;
        self.enqueue(key, text, id, joins).await
    }

    /// Like [`submit`](Self::submit), with the caller's own id of the message: the same id again starts nothing and
    /// follows the first one's turn, as long as that one is open.
    pub async fn submit_as(&self, key: &SessionKey, text: &str, message_id: MessageId) -> anyhow::Result<TurnStream> {
        self.enqueue(key, text, message_id, Joins::No).await
    }

    async fn enqueue(
        &self,
        key: &SessionKey,
        text: &str,
        message_id: MessageId,
        joins: Joins,
    ) -> anyhow::Result<TurnStream> {
        let route = match joins {
            Joins::Yes => Route::Live,
            Joins::No => Route::Reply,
        };
        let source = Source::new("cli")?;
        let lane = Lane::of_message(&source, &route, &command::parse(text));
        let turn = TurnId(self.ports().ids.uuid_v7());
        let body = TurnBody::text(text).encode();
        let enqueue = Enqueue {
            key: key.clone(),
            turn,
            source,
            message_id,
            route,
            body_hash: body_hash(&body),
            body: body.into(),
            retry_of: None,
        };
        let stream = self.watch(key, turn);
        match self.journal().enqueue(enqueue).await? {
            Enqueued::Accepted { position, state, .. } => {
                let steers = || lane.is_some() && lane == self.sessions().steers(key);
                let taken = match state {
                    AcceptedState::Running => Taken::Running,
                    AcceptedState::Queued if steers() => Taken::Steered,
                    AcceptedState::Queued => Taken::Queued { position },
                    AcceptedState::Quarantined => Taken::Quarantined,
                };
                Ok(TurnStream { taken, ..stream })
            }
            Enqueued::Duplicate { turn, state: DuplicateState::Open } => Ok(self.watch(key, turn)),
            Enqueued::Duplicate { state: DuplicateState::Ended, .. } => {
                Err(Exit::new(ExitCode::Failed, "this message was answered before; the transcript has it").into())
            }
            Enqueued::Conflict { .. } => {
                Err(Exit::new(ExitCode::Failed, "this message id was used before with another text").into())
            }
            Enqueued::Busy { retry_after_ms, why } => {
                let message = format!("too busy ({why:?}); try again in {retry_after_ms} ms");
                Err(Exit::new(ExitCode::Refused, message).into())
            }
            Enqueued::Quarantined { .. } => {
                let message = "this session is held back after crashes and its queue is full; see `greenroom logs`";
                Err(Exit::new(ExitCode::Refused, message).into())
            }
            Enqueued::Draining => Err(Exit::new(ExitCode::Refused, "the process is stopping").into()),
        }
    }

    /// Follows a turn that will be submitted.
    pub fn watch(&self, key: &SessionKey, turn: TurnId) -> TurnStream {
        let (tx, events) = mpsc::unbounded_channel();
        let watch = self.hub().watch_turn(key, turn, Keep::Yes, Arc::new(ToChannel(tx)));
        TurnStream { turn, taken: Taken::Before, events, _watch: watch }
    }

    /// Says something and waits for the answer.
    pub async fn ask(&self, key: &SessionKey, text: &str) -> anyhow::Result<Arc<Finished>> {
        self.submit(key, text).await?.finished().await
    }

    /// Cancels the running turn of a session, and with `all` the waiting ones. `None`: nothing runs.
    pub async fn cancel(&self, key: &SessionKey, all: bool) -> Option<Stopped> {
        let (reply, stopped) = oneshot::channel();
        self.sessions().tell_live(key, Mail::Stop { all, reply }).ok()?;
        // A session that goes away meanwhile has nothing left to cancel.
        stopped.await.ok()
    }

    /// What a session does.
    pub async fn status(&self, key: &SessionKey) -> anyhow::Result<Status> {
        let (reply, status) = oneshot::channel();
        self.sessions().tell(key, Mail::Status { reply })?;
        Ok(status.await?)
    }

    /// What the transcript says about a turn.
    pub async fn turn(&self, key: &SessionKey, turn: TurnId) -> anyhow::Result<Option<TurnRecord>> {
        let (reply, record) = oneshot::channel();
        self.sessions().tell(key, Mail::ReadTurn { turn, reply })?;
        Ok(record.await?)
    }
}
