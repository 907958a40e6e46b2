//! Commands that need the transcript: read and drawn up on the blocking pool, answered to the machine.

use std::io;
use std::sync::Arc;

use actix::{ActorFutureExt, AsyncContext, Context as Ctx, WrapFuture};
use domain::command::{Command, DreamAsk};
use domain::ids::{Attempt, TurnId};
use domain::policy::Access;
use protocol::memory::AskDream;
use tokio::sync::oneshot;

use super::{Life, Session};
use crate::file::{self, Standing};
use crate::shared::tell_front;
use crate::turn::{Commanded, Input};
use crate::{answers, reading, trigger};

/// How the file stands, and what came of the command unless it is another file than the one that was known.
type Followed = (Standing, Option<Commanded>);

// === impl Session ===

impl Session {
    /// Has everything that the model is told read anew.
    pub(super) fn distrust(&mut self) {
        if let Life::Live(live) = &mut self.state {
            live.context = None;
        }
        self.shared.system.distrust();
    }

    pub(super) fn follow(&mut self, command: Command, ctx: &mut Ctx<Self>) {
        if let Command::Compact { asked } = command {
            self.compact_as_asked(asked, ctx);
            return;
        }
        if let Command::Dream(ask) = command {
            self.ask_dream(ask, ctx);
            return;
        }
        let Life::Live(live) = &self.state else { return };
        let Some(work) = live.work.as_ref().map(|work| (work.turn, work.attempt)) else { return };
        let (life, at, pending) = (self.life, live.view.length(), live.view.pending().to_vec());
        let Some(accepted) = live.machine.body().map(|(accepted, ..)| accepted) else { return };
        let kind = self.shared.config.policies.kind(self.lease.key(), &accepted.source);
        let target = trigger::target(self.lease.key(), &accepted.route);
        let shared = Arc::clone(&self.shared);
        let job = self.on_file(move |ports, path| -> io::Result<Followed> {
            let (standing, source) = file::peek(&*ports.disk, path, at, &pending)?;
            if standing.behind {
                return Ok((standing, None));
            }
            if matches!(command, Command::Refresh { .. }) {
                shared.system.refresh(ports);
                return Ok((standing, Some(Commanded { text: answers::REFRESHED.to_owned(), ..Commanded::default() })));
            }
            if let Command::Trigger(name) = &command {
                let text = trigger::follow(shared.triggers.as_deref(), name.as_deref(), &target, work.0);
                return Ok((standing, Some(Commanded { text, ..Commanded::default() })));
            }
            if command == Command::Skills {
                let skills = if shared.system.remembers(kind) { shared.system.skills() } else { Vec::new() };
                return Ok((standing, Some(Commanded { text: answers::skills(&skills), ..Commanded::default() })));
            }
            let read = reading::read(&source, shared.window_tokens, None)?;
            let commanded = answers::follow(&command, read, &source, (&shared.config, kind), ports)?;
            Ok((standing, Some(commanded)))
        });
        ctx.spawn(job.into_actor(self).map(move |outcome, session, ctx| {
            if session.life == life {
                let outcome = outcome.unwrap_or_else(|_| Err(io::Error::other("the read panicked")));
                session.followed(outcome, at, work, ctx);
                session.note();
            }
        }));
    }

    /// Has the memory answer.
    fn ask_dream(&mut self, ask: DreamAsk, ctx: &mut Ctx<Self>) {
        let Life::Live(live) = &self.state else { return };
        let Some(work) = live.work.as_ref().map(|work| (work.turn, work.attempt)) else { return };
        let Some(source) = live.machine.body().map(|(accepted, ..)| &accepted.source) else { return };
        let policies = &self.shared.config.policies;
        let open = policies.of(policies.kind(self.lease.key(), source)).workspace;
        let needed = match ask {
            DreamAsk::Log(_) | DreamAsk::Restore(None) | DreamAsk::Prompt { init: false, .. } => Access::Read,
            DreamAsk::Begin | DreamAsk::Restore(Some(_)) | DreamAsk::Prompt { init: true, .. } => Access::Write,
        };
        if open < needed {
            let text = answers::CLOSED.to_owned();
            self.step(Input::Commanded(Box::new(Commanded { text, ..Commanded::default() })), ctx);
            return;
        }
        let (life, (reply, told)) = (self.life, oneshot::channel());
        // One that is gone drops the reply.
        let _ = tell_front(&self.neighbours.dream, &self.shared.mail.memory, AskDream { ask, reply });
        ctx.spawn(told.into_actor(self).map(move |told, session, ctx| {
            let Life::Live(live) = &session.state else { return };
            if session.life != life || live.machine.running().map(|(turn, attempt, ..)| (turn, attempt)) != Some(work) {
                return session.stale();
            }
            let told = told.unwrap_or_else(|_| Err(answers::NO_MEMORY.to_owned()));
            let text = told.unwrap_or_else(|why| why);
            session.step(Input::Commanded(Box::new(Commanded { text, ..Commanded::default() })), ctx);
            session.note();
        }));
    }

    /// Takes what came of the command of an attempt, when `at` bytes of the file were known.
    fn followed(&mut self, outcome: io::Result<Followed>, at: u64, work: (TurnId, Attempt), ctx: &mut Ctx<Self>) {
        let Life::Live(live) = &mut self.state else { return };
        // Its turn was ended meanwhile.
        if live.machine.running().map(|(turn, attempt, ..)| (turn, attempt)) != Some(work) {
            self.stale();
            return;
        }
        let commanded = match outcome {
            Ok((standing, commanded)) => {
                live.view.found(at, &standing);
                let Some(commanded) = commanded else {
                    self.report_found(standing.found, None);
                    self.reload(ctx);
                    return;
                };
                commanded
            }
            Err(error) => {
                tracing::warn!(session = %self.lease.key(), %error, "transcript cannot be read");
                Commanded { text: answers::UNREADABLE.to_owned(), ..Commanded::default() }
            }
        };
        self.step(Input::Commanded(Box::new(commanded)), ctx);
    }
}
