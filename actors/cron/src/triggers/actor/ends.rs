//! How the turns of deliveries end: told while the process lives, and looked for in transcripts where it was not told.

use std::sync::Arc;
use std::time::Duration;

use actix::{ActorFutureExt, AsyncContext, Context, WrapFuture};
use domain::ids::TurnId;
use protocol::session::{Mail, TurnRecord};
use protocol::turn::TurnResult;
use supervision::ports::offload;
use tokio::sync::oneshot;

use super::{TURNS_MAX, Told, Triggers};

/// How soon a transcript is asked again that could not answer.
const ASK_AGAIN: Duration = Duration::from_secs(30);

impl Triggers {
    /// Deliveries of an earlier process, or of an actor that crashed, whose ends were not written down.
    pub(super) fn look_for_ends(&mut self, ctx: &mut Context<Self>) {
        let store = Arc::clone(&self.deps.store);
        let open = offload(&*self.deps.ports.offload, move || store.open());
        ctx.spawn(open.into_actor(self).map(|open, triggers, ctx| match open {
            Ok(Ok(open)) => open.into_iter().for_each(|told| triggers.follow(told, ctx)),
            Ok(Err(error)) => tracing::warn!(%error, "triggers/runs cannot be read"),
            Err(_) => tracing::warn!("the look at triggers/runs failed"),
        }));
    }

    /// Sees to it that the end of a turn is written down that may be over.
    pub(super) fn follow(&mut self, told: Told, ctx: &mut Context<Self>) {
        let turn = told.turn;
        // Of one over that, the next process looks for the end.
        if self.turns.len() >= TURNS_MAX || self.turns.contains_key(&turn) {
            return;
        }
        let watched = self.deps.ends.watch(&told.key, turn, ctx.address().recipient()).is_ok();
        self.turns.insert(turn, told);
        self.ask_transcript(turn, watched, ctx);
    }

    fn ask_transcript(&mut self, turn: TurnId, watched: bool, ctx: &mut Context<Self>) {
        let Some(told) = self.turns.get(&turn) else { return };
        let (reply, answer) = oneshot::channel();
        // One that cannot be reached now drops the question, and is asked again.
        let _ = self.deps.sessions.tell(&told.key, Mail::ReadTurn { turn, reply });
        ctx.spawn(answer.into_actor(self).map(move |record, triggers, ctx| match record {
            Ok(Some(TurnRecord::Ended { result, text, .. })) => {
                triggers.deps.ends.unwatch(turn);
                triggers.ended(turn, result, &text, ctx);
            }
            Ok(Some(TurnRecord::Open)) if watched => {}
            Ok(None) => {
                triggers.deps.ends.unwatch(turn);
                triggers.close(turn, Err("its session does not know the turn any more".to_owned()), ctx);
            }
            Ok(Some(TurnRecord::Open)) | Err(_) => {
                ctx.run_later(ASK_AGAIN, move |triggers, ctx| triggers.ask_transcript(turn, watched, ctx));
            }
        }));
    }

    /// A turn has ended.
    pub(super) fn ended(&mut self, turn: TurnId, result: TurnResult, text: &str, ctx: &mut Context<Self>) {
        let end = match result {
            TurnResult::Done | TurnResult::Joined => Ok(text.to_owned()),
            TurnResult::Failed => Err(text.lines().next().unwrap_or("it failed").to_owned()),
            TurnResult::DeadLettered => Err("it was given up and is a dead letter".to_owned()),
            TurnResult::Cancelled => Err("it was cancelled".to_owned()),
        };
        self.close(turn, end, ctx);
    }

    fn close(&mut self, turn: TurnId, end: Result<String, String>, ctx: &mut Context<Self>) {
        let Some(told) = self.turns.remove(&turn) else { return };
        self.count(if end.is_ok() { "ok" } else { "error" });
        self.on_files(ctx, move |store| store.ended(&told, end.as_deref().map_err(String::as_str)));
    }
}
