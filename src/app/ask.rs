//! Saying something to a session from inside the process, and following the turn.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use channel::hub::{Keep, Shown, Sink, Watch};
use domain::body::{TurnBody, body_hash};
use domain::ids::{MessageId, SessionKey, Source, TurnId};
use domain::queue::QueueAsk;
use futures::Stream;
use protocol::journal::{DuplicateState, Enqueue, Enqueued};
use protocol::session::{Mail, QueueState, Status, Stopped, TurnRecord};
use protocol::turn::{Finished, Route, TurnEvent, TurnProgress};
use tokio::sync::{mpsc, oneshot};

use super::App;
use crate::exit::{Exit, ExitCode};

/// The events of one turn, ending with its one `Finished`. Dropping it stops watching, not the turn.
///
/// The buffer holds at most what one turn says.
pub struct TurnStream {
    /// The turn.
    pub turn: TurnId,
    events: mpsc::UnboundedReceiver<TurnEvent>,
    _watch: Watch,
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

    /// Like [`submit`](Self::submit), with the caller's own id of the message: the same id again starts nothing and
    /// follows the first one's turn, as long as that one is open.
    pub async fn submit_as(&self, key: &SessionKey, text: &str, message_id: MessageId) -> anyhow::Result<TurnStream> {
        let turn = TurnId(self.ports().ids.uuid_v7());
        let body = TurnBody::text(text).encode();
        let enqueue = Enqueue {
            key: key.clone(),
            turn,
            source: Source::new("cli")?,
            message_id,
            route: Route::Reply,
            body_hash: body_hash(&body),
            body: body.into(),
            retry_of: None,
        };
        let stream = self.watch(key, turn);
        match self.journal().enqueue(enqueue).await? {
            Enqueued::Accepted { .. } => Ok(stream),
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
        TurnStream { turn, events, _watch: watch }
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

    /// Shows or sets what becomes of messages that come to a session while a turn runs.
    pub async fn queue(&self, key: &SessionKey, ask: QueueAsk) -> anyhow::Result<QueueState> {
        let (reply, state) = oneshot::channel();
        self.sessions().tell(key, Mail::Queue { ask, reply })?;
        Ok(state.await?)
    }

    /// What the transcript says about a turn.
    pub async fn turn(&self, key: &SessionKey, turn: TurnId) -> anyhow::Result<Option<TurnRecord>> {
        let (reply, record) = oneshot::channel();
        self.sessions().tell(key, Mail::ReadTurn { turn, reply })?;
        Ok(record.await?)
    }
}
