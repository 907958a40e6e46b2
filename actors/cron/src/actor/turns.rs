//! Messages into sessions, and the ends of their turns.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use actix::{ActorFutureExt, AsyncContext, Context, WrapFuture};
use domain::body::body_hash;
use domain::chat::plain_text;
use domain::cron::scheduler::{End, Fire, Input, Verdict};
use domain::cron::{JobId, RunStatus};
use domain::event::EventKind;
use domain::ids::{MessageId, SessionKey, Source, TurnId};
use protocol::journal::{BusyReason, Enqueue, Enqueued};
use protocol::session::{Mail, TurnRecord};
use protocol::turn::{TurnEnded, TurnResult};
use supervision::planted::{Bug, planted};
use supervision::ports::offload;
use tokio::sync::oneshot;

use super::Cron;
use crate::reminder;
use crate::runs::{Run, Runs};

/// How soon a transcript is asked again that could not answer.
const ASK_AGAIN: Duration = Duration::from_secs(30);
/// How soon a message is offered again that the journal could not judge.
const OFFER_AGAIN_MS: u64 = 1000;

/// How a turn ended, and what it said last.
pub(super) struct Ended {
    end: End,
    response: Arc<str>,
}

impl Cron {
    /// Hands a message to its session. Its end is told from before on, so that it cannot be missed.
    pub(super) fn fire(&mut self, fire: Fire, ctx: &mut Context<Self>) {
        let (job, due_ms) = (fire.job.id.clone(), fire.due_ms);
        let ids = Source::new(EventKind::Cron.source()).and_then(|source| Ok((source, job.message_id(due_ms)?)));
        let (source, message_id) = match ids {
            Ok(ids) => ids,
            Err(bad) => {
                let verdict = Verdict::Impossible(bad.to_string());
                return self.later(Input::Verdict { job, due_ms, verdict }, ctx);
            }
        };
        let body = reminder::body(&fire, &self.deps.zones.local);
        let prompt = plain_text(&body.content);
        let body: Arc<[u8]> = body.encode().into();
        let turn = TurnId(self.deps.ports.ids.uuid_v7());
        let message_id = if planted(Bug::FreshMoment) {
            MessageId::new(&format!("{turn}:{due_ms}")).unwrap_or(message_id)
        } else {
            message_id
        };
        // Without a place among the watched, the transcript is asked.
        let told = self.deps.ends.watch(&fire.key, turn, ctx.address().recipient()).is_ok();
        let message = Enqueue {
            key: fire.key.clone(),
            turn,
            source,
            message_id,
            route: reminder::route(&fire.job, &self.deps.channels),
            body_hash: body_hash(&body),
            body,
            retry_of: None,
        };
        self.offered.insert(turn, None);
        let verdict = self.deps.journal.enqueue(message);
        ctx.spawn(verdict.into_actor(self).map(move |enqueued, cron, ctx| {
            let verdict = cron.verdict(enqueued.ok());
            let ended = cron.offered.remove(&turn).flatten();
            if verdict == Verdict::Accepted(turn) {
                cron.count("accepted");
                if told {
                    cron.fresh.insert(turn);
                }
            } else {
                cron.deps.ends.unwatch(turn);
                cron.count("refused");
            }
            if let Verdict::Accepted(turn) = verdict {
                let run = Run { turn, job: job.clone(), key: fire.key };
                cron.write_down(ctx, move |runs| runs.queued(&run, &fire.job.name, due_ms, &prompt));
            }
            cron.step(Input::Verdict { job, due_ms, verdict }, ctx);
            cron.fresh.remove(&turn);
            if let Some(ended) = ended {
                cron.end(turn, ended, ctx);
            }
        }));
    }

    /// In a turn of its own: an effect is being performed.
    fn later(&mut self, input: Input, ctx: &mut Context<Self>) {
        ctx.run_later(Duration::ZERO, move |cron, ctx| cron.step(input, ctx));
    }

    fn verdict(&self, enqueued: Option<Enqueued>) -> Verdict {
        let refused = |retry_after_ms, why: &str| Verdict::Refused { retry_after_ms, why: why.to_owned() };
        match enqueued {
            // The same id with another text: the job was changed since the moment was used.
            Some(Enqueued::Accepted { turn, .. } | Enqueued::Duplicate { turn, .. } | Enqueued::Conflict { turn }) => {
                Verdict::Accepted(turn)
            }
            Some(Enqueued::Busy { retry_after_ms, why }) => refused(retry_after_ms, busy(why)),
            Some(Enqueued::Quarantined { until_ms }) => {
                refused(until_ms.saturating_sub(self.now_ms()), "the session is quarantined and full")
            }
            Some(Enqueued::Draining) => refused(OFFER_AGAIN_MS, "the gateway is stopping"),
            None => refused(OFFER_AGAIN_MS, "the journal is closed"),
        }
    }

    /// Sees to it that the end of a turn is told.
    pub(super) fn watch(&mut self, job: JobId, key: SessionKey, turn: TurnId, ctx: &mut Context<Self>) {
        self.turns.insert(turn, Run { turn, job, key: key.clone() });
        if self.fresh.contains(&turn) {
            return;
        }
        // Told from now on; what was before, the transcript knows.
        let told = self.deps.ends.watch(&key, turn, ctx.address().recipient()).is_ok();
        self.ask_transcript(key, turn, told, ctx);
    }

    fn ask_transcript(&mut self, key: SessionKey, turn: TurnId, told: bool, ctx: &mut Context<Self>) {
        let (reply, answer) = oneshot::channel();
        // One that cannot be reached now drops the question, and is asked again.
        let _ = self.deps.sessions.tell(&key, Mail::ReadTurn { turn, reply });
        ctx.spawn(answer.into_actor(self).map(move |record, cron, ctx| {
            if !cron.turns.contains_key(&turn) {
                return;
            }
            match record {
                Ok(Some(TurnRecord::Ended { result, text, .. })) => {
                    cron.deps.ends.unwatch(turn);
                    cron.end(turn, end_of(result, text.into()), ctx);
                }
                Ok(Some(TurnRecord::Open)) if told => {}
                Ok(None) => {
                    cron.deps.ends.unwatch(turn);
                    let error = Some("its session does not know the turn any more".to_owned());
                    let end = End { status: RunStatus::Error, error };
                    cron.end(turn, Ended { end, response: "".into() }, ctx);
                }
                Ok(Some(TurnRecord::Open)) | Err(_) => {
                    ctx.run_later(ASK_AGAIN, move |cron, ctx| {
                        if cron.turns.contains_key(&turn) {
                            cron.ask_transcript(key, turn, told, ctx);
                        }
                    });
                }
            }
        }));
    }

    pub(super) fn turn_ended(&mut self, ended: &TurnEnded, ctx: &mut Context<Self>) {
        let how = end_of(ended.result, Arc::clone(&ended.text));
        match self.offered.get_mut(&ended.turn) {
            Some(early) => *early = Some(how),
            None => self.end(ended.turn, how, ctx),
        }
    }

    fn end(&mut self, turn: TurnId, Ended { end, response }: Ended, ctx: &mut Context<Self>) {
        let Some(run) = self.turns.remove(&turn) else { return };
        self.count(match end.status {
            RunStatus::Ok => "ok",
            RunStatus::Error | RunStatus::Skipped => "error",
        });
        let (job, how) = (run.job.clone(), end.clone());
        self.write_down(ctx, move |runs| runs.ended(&run, &how, &response));
        self.step(Input::Ended { job, turn, end }, ctx);
    }

    /// Where that fails, the run goes on: people miss a file that they could have read.
    fn write_down(&self, ctx: &mut Context<Self>, job: impl FnOnce(&Runs) -> io::Result<()> + Send + 'static) {
        let runs = Arc::clone(&self.runs);
        let written = offload(&*self.deps.ports.offload, move || job(&runs));
        ctx.spawn(written.into_actor(self).map(|written, cron, _| {
            if let Ok(Err(error)) = written {
                cron.deps.metrics.cron.unsaved.inc();
                tracing::warn!(%error, "the file of a run in cron/runs cannot be written");
            }
        }));
    }

    pub(super) fn cancel(&self, key: &SessionKey, turn: TurnId) {
        // One that is not live is cancelled when it is.
        let _ = self.deps.sessions.tell(key, Mail::CancelTurn { turn });
    }
}

fn end_of(result: TurnResult, response: Arc<str>) -> Ended {
    let error = match result {
        TurnResult::Done | TurnResult::Joined => None,
        TurnResult::Failed => Some(response.lines().next().unwrap_or("it failed").to_owned()),
        TurnResult::DeadLettered => Some("it was given up and is a dead letter".to_owned()),
        TurnResult::Cancelled => Some("it was cancelled".to_owned()),
    };
    let status = if error.is_none() { RunStatus::Ok } else { RunStatus::Error };
    Ended { end: End { status, error }, response }
}

fn busy(why: BusyReason) -> &'static str {
    match why {
        BusyReason::Session => "the session has too many waiting messages",
        BusyReason::Process => "the gateway has too many waiting messages",
        BusyReason::Memory => "the gateway is short of memory",
        BusyReason::Disk => "the journal has no space",
        BusyReason::Transcript => "the transcript of the session cannot be read",
    }
}
