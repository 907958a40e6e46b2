//! Dream, as this process does it: its turns are messages of a source of their own, accepted by the journal like any.

use std::io;
use std::sync::Arc;

use actix::Recipient;
use domain::body::{TurnBody, body_hash};
use domain::command::DreamAsk;
use domain::ids::{MessageId, SessionKey, Source, TurnId};
use futures::FutureExt;
use futures::future::BoxFuture;
use memory::{Archive, DreamDeps, Pace, Turns};
use protocol::journal::{Enqueue, Enqueued, Journal, Shelf};
use protocol::memory::{AskDream, Lines, Recall, Shown, WhichLines};
use protocol::metrics::{ByKind, Metrics};
use protocol::registry::Sessions;
use protocol::session::{Mail, NotClosed, TurnRecord};
use protocol::supervision::Kind;
use protocol::turn::{Route, TurnWatch};
use provider::Backend;
use supervision::ports::Ports;
use supervision::tell;
use tokio::sync::oneshot;

use super::ground::Ground;
use super::options::Purpose;
use super::parts;
use crate::config::Loaded;

const NO_GATEWAY: &str = "Only a running gateway dreams. Nothing was changed.";
const NO_MODEL: &str = "The built-in model has nothing to remember. Nothing was changed.";

/// The sessions, for Dream.
struct DreamTurns {
    journal: Arc<dyn Journal>,
    sessions: Arc<dyn Sessions>,
}

impl Turns for DreamTurns {
    fn begin(&self, key: &SessionKey, turn: TurnId, text: String) -> BoxFuture<'static, Result<(), String>> {
        let (Ok(source), Ok(message_id)) = (Source::new("cron"), MessageId::new(&format!("dream:{turn}"))) else {
            return std::future::ready(Err("it has no name".to_owned())).boxed();
        };
        let body = TurnBody::text(text).encode();
        let verdict = self.journal.enqueue(Enqueue {
            key: key.clone(),
            turn,
            source,
            message_id,
            route: Route::Reply,
            body_hash: body_hash(&body),
            body: body.into(),
            retry_of: None,
        });
        async move {
            match verdict.await {
                Ok(Enqueued::Accepted { .. } | Enqueued::Duplicate { .. }) => Ok(()),
                Ok(Enqueued::Busy { .. }) => Err("the gateway is too busy".to_owned()),
                Ok(Enqueued::Conflict { .. }) => Err("another message has its name".to_owned()),
                Ok(Enqueued::Quarantined { .. }) => Err("its session is held back after crashes".to_owned()),
                Ok(Enqueued::Draining) | Err(_) => Err("the gateway is stopping".to_owned()),
            }
        }
        .boxed()
    }

    fn read(&self, key: &SessionKey, turn: TurnId) -> BoxFuture<'static, Result<Option<TurnRecord>, String>> {
        let (reply, record) = oneshot::channel();
        let told = self.sessions.tell(key, Mail::ReadTurn { turn, reply });
        async move {
            told.map_err(|why| why.to_string())?;
            record.await.map_err(|_| "it is on its way out".to_owned())
        }
        .boxed()
    }

    fn delete(&self, key: &SessionKey) -> BoxFuture<'static, Result<(), String>> {
        let (reply, closed) = oneshot::channel();
        let told = self.sessions.tell(key, Mail::Close { to: Shelf::Deleted, if_quiet: true, reply });
        async move {
            told.map_err(|why| why.to_string())?;
            match closed.await {
                // Whoever deleted it before did the same.
                Ok(Ok(_) | Err(NotClosed::Nothing)) => Ok(()),
                Ok(Err(why)) => Err(why.to_string()),
                Err(_) => Err("it is on its way out".to_owned()),
            }
        }
        .boxed()
    }
}

/// The archive of the workspace.
pub fn archive(loaded: &Loaded) -> Arc<Archive> {
    Arc::new(Archive::new(loaded.paths.workspace.clone(), super::sessions::zone(&loaded.config)))
}

/// What is remembered, for doors and commands.
struct Remembered {
    archive: Arc<Archive>,
    ports: Ports,
    metrics: Metrics,
    memory_bytes_max: u64,
    dream: Recipient<AskDream>,
}

impl Recall for Remembered {
    fn shown(&self) -> io::Result<Shown> {
        self.archive.shown(&*self.ports.disk, self.memory_bytes_max)
    }

    fn lines(&self, which: &WhichLines) -> io::Result<Lines> {
        self.archive.lines(&*self.ports.disk, which)
    }

    fn dream(&self, ask: DreamAsk) -> oneshot::Receiver<Result<String, String>> {
        let (reply, told) = oneshot::channel();
        let mailbox = self.metrics.mailbox_messages.get_or_create_owned(&ByKind { kind: Kind::Memory.word() });
        mailbox.inc();
        if tell(&self.dream, AskDream { ask, reply }).is_err() {
            // The receiver says so.
            mailbox.dec();
        }
        told
    }
}

/// What is remembered; whoever asks for something of Dream asks `dream`.
pub fn recall(loaded: &Loaded, ground: &Ground, dream: Recipient<AskDream>) -> Arc<dyn Recall> {
    Arc::new(Remembered {
        archive: archive(loaded),
        ports: ground.ports.clone(),
        metrics: ground.metrics.clone(),
        memory_bytes_max: loaded.config.agents.defaults.dream.memory_bytes_max,
        dream,
    })
}

/// What Dream is started with.
pub fn deps(
    (loaded, purpose): (&Loaded, Purpose),
    ground: &Ground,
    model: &parts::Model,
    journal: Arc<dyn Journal>,
    sessions: Arc<dyn Sessions>,
    ends: Arc<dyn TurnWatch>,
) -> DreamDeps {
    DreamDeps {
        ports: ground.ports.clone(),
        metrics: ground.metrics.clone(),
        turns: Arc::new(DreamTurns { journal, sessions }),
        ends,
        pace: pace(loaded, purpose, model),
        memory_bytes_max: loaded.config.agents.defaults.dream.memory_bytes_max,
    }
}

fn pace(loaded: &Loaded, purpose: Purpose, model: &parts::Model) -> Pace {
    let dream = &loaded.config.agents.defaults.dream;
    match purpose {
        Purpose::OneShot | Purpose::AtRest => return Pace::Not(NO_GATEWAY),
        Purpose::Gateway | Purpose::Embedded => {}
    }
    match &model.settings.backend {
        Backend::Offline | Backend::Own(_) => return Pace::Not(NO_MODEL),
        Backend::OpenAi(_) => {}
    }
    if !dream.enabled {
        return Pace::Off;
    }
    // What cannot be followed was refused with the configuration.
    dream.timing(super::sessions::zone(&loaded.config)).map_or(Pace::Off, Pace::By)
}
