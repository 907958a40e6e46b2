//! The push channel that hands the reports of sub-agents over to their parents' sessions: as messages, through the
//! journal. What is a duplicate there was handed over before.
//!
//! The `account` of such a route is the turn that sent the run off, its `chat` the session of that, its `thread` the run.
//! **Invariant:** a report reaches the conversation that has this turn, and none that has the same name later: when that
//! is gone, it becomes a dead letter.

use std::sync::Arc;
use std::time::Duration;

use actix::Recipient;
use domain::body::{TurnBody, body_hash};
use domain::event::{Event, EventKind};
use domain::ids::{BadId, MessageId, RunId, SessionKey, Source, TurnId};
use domain::run::Report;
use domain::text::{TextLimit, TextUnit};
use futures::FutureExt;
use futures::future::BoxFuture;
use protocol::journal::{Enqueue, Enqueued, Journal};
use protocol::registry::Sessions;
use protocol::session::Mail;
use protocol::subagent::{REPORTS, RunMail};
use protocol::turn::Route;
use supervision::ports::Ports;
use supervision::tell;
use tokio::sync::oneshot;

use crate::outbox::{Delivery, Outcome, PushChannel};

/// A report is never cut into parts; it has a bound of its own.
const CHARS_MAX: usize = 16 << 20;
/// Why a report is not taken.
const GONE: &str = "the conversation that asked for it was deleted or put away";
/// How long the journal may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// The channel.
pub struct Reports {
    journal: Arc<dyn Journal>,
    sessions: Arc<dyn Sessions>,
    ports: Ports,
    keeper: Recipient<RunMail>,
}

// === impl Reports ===

impl Reports {
    /// Hands over to that journal, for those sessions, and tells the keeper.
    pub fn new(
        journal: Arc<dyn Journal>,
        sessions: Arc<dyn Sessions>,
        ports: Ports,
        keeper: Recipient<RunMail>,
    ) -> Self {
        Self { journal, sessions, ports, keeper }
    }

    /// Whether the conversation that is to be told is the one that sent the run off; `None` if it cannot be asked now.
    fn has_turn(&self, key: &SessionKey, turn: TurnId) -> impl Future<Output = Option<bool>> + use<> {
        let (reply, has) = oneshot::channel();
        // One that cannot be reached drops the question.
        let _ = self.sessions.tell(key, Mail::Has { turn, reply });
        async move { has.await.ok() }
    }
}

impl PushChannel for Reports {
    fn name(&self) -> &str {
        REPORTS
    }

    fn limit(&self) -> TextLimit {
        TextLimit { unit: TextUnit::Chars, max: CHARS_MAX }
    }

    fn patience(&self) -> Duration {
        PATIENCE
    }

    fn send(&self, delivery: Delivery) -> BoxFuture<'static, Outcome> {
        let run: Option<RunId> = delivery.route.thread.as_deref().and_then(|run| run.parse().ok());
        let Some((run, message)) =
            run.and_then(|run| Some((run, message(run, &delivery, TurnId(self.ports.ids.uuid_v7())).ok()?)))
        else {
            let refused = Outcome::Refused { reason: "the session that it is for has no legal name".into() };
            return futures::future::ready(refused).boxed();
        };
        let (journal, keeper) = (self.journal.clone(), self.keeper.clone());
        // A row of before this was told has no turn.
        let turn: Option<TurnId> = delivery.route.account.parse().ok();
        let asked = turn.map(|turn| self.has_turn(&message.key, turn));
        async move {
            let has = match asked {
                Some(asked) => asked.await,
                None => Some(true),
            };
            match has {
                Some(true) => {}
                Some(false) => return Outcome::Refused { reason: GONE.into() },
                None => return Outcome::failed("the session of its parent cannot be asked now"),
            }
            let verdict = journal.enqueue(message);
            let outcome = outcome(verdict.await.unwrap_or(Enqueued::Draining));
            if outcome == Outcome::Delivered {
                // Only whoever waits for the run wants to know.
                let _ = tell(&keeper, RunMail::Reported { run });
            }
            outcome
        }
        .boxed()
    }
}

/// The message with which the report reaches the parent. The end of a run that was never read says nothing but that.
fn message(run: RunId, delivery: &Delivery, turn: TurnId) -> Result<Enqueue, BadId> {
    let Report { event, route, later, text } = serde_json::from_str(&delivery.text).unwrap_or_else(|_| Report {
        event: Event {
            kind: EventKind::Subagent,
            id: run.to_string().into(),
            name: "task".into(),
            status: Some("cancelled".into()),
        },
        route: None,
        later: false,
        text: delivery.text.as_ref().to_owned(),
    });
    let message_id = if later { format!("run:{run}:{}", delivery.turn) } else { format!("run:{run}") };
    let source = Source::new(event.kind.source())?;
    let body = TurnBody { event: Some(event.into()), ..TurnBody::text(text) }.encode();
    Ok(Enqueue {
        key: SessionKey::new(&delivery.route.chat)?,
        turn,
        source,
        message_id: MessageId::new(&message_id)?,
        route: route.and_then(|route| serde_json::from_value(route).ok()).unwrap_or(Route::Live),
        body_hash: body_hash(&body),
        body: body.into(),
        retry_of: None,
    })
}

fn outcome(verdict: Enqueued) -> Outcome {
    match verdict {
        Enqueued::Accepted { .. } | Enqueued::Duplicate { .. } => Outcome::Delivered,
        Enqueued::Conflict { .. } => Outcome::Refused { reason: "the session has another report of this run".into() },
        Enqueued::Busy { retry_after_ms, .. } => Outcome::Failed {
            reason: "the session of its parent takes no messages now".into(),
            retry_after: Some(Duration::from_millis(retry_after_ms)),
            taken: false,
        },
        Enqueued::Quarantined { .. } => Outcome::failed("the session of its parent is held back after crashes"),
        Enqueued::Draining => Outcome::failed("the gateway is stopping"),
    }
}

#[cfg(test)]
mod tests {
    use domain::ids::{DeliveryId, Seq};
    use protocol::journal::{AcceptedState, BusyReason, DuplicateState};
    use protocol::turn::PushRoute;
    use uuid::Uuid;

    use super::*;

    fn delivery(text: &str) -> Delivery {
        let turn = TurnId(Uuid::from_u128(3));
        let route = PushRoute {
            channel: REPORTS.into(),
            account: "".into(),
            chat: "cli:direct".into(),
            thread: Some(Uuid::from_u128(7).to_string().into()),
        };
        let key = SessionKey::new("agent:main:subagent:7").unwrap();
        Delivery { id: DeliveryId { turn, n: 1 }, turn, key, route, parts: 1, text: text.into(), repeat: false }
    }

    #[test]
    fn a_verdict_of_the_journal_decides() {
        let turn = TurnId(Uuid::from_u128(1));
        for (verdict, word) in [
            (Enqueued::Accepted { turn, seq: Seq(1), position: 0, state: AcceptedState::Running }, "delivered"),
            (Enqueued::Duplicate { turn, state: DuplicateState::Ended }, "delivered"),
            (Enqueued::Conflict { turn }, "refused"),
            (Enqueued::Busy { retry_after_ms: 7, why: BusyReason::Session }, "failed"),
            (Enqueued::Quarantined { until_ms: 1 }, "failed"),
            (Enqueued::Draining, "failed"),
        ] {
            let found = match outcome(verdict) {
                Outcome::Delivered => "delivered",
                Outcome::Refused { .. } => "refused",
                Outcome::Failed { .. } => "failed",
            };
            assert_eq!(found, word);
        }
    }

    #[test]
    fn a_report_is_the_same_message_each_time_and_goes_where_its_parent_was_asked() {
        let run = RunId(Uuid::from_u128(7));
        let event = Event { kind: EventKind::Subagent, id: "7".into(), name: "toads".into(), status: None };
        let push = Route::Push(PushRoute { channel: "hook".into(), ..delivery("").route });
        let report = Report {
            event: event.clone(),
            route: serde_json::to_value(&push).ok(),
            later: false,
            text: "5 toads".into(),
        };
        let turn = TurnId(Uuid::from_u128(9));
        let text = serde_json::to_string(&report).unwrap();
        let [first, again] = [(); 2].map(|()| message(run, &delivery(&text), turn).unwrap());
        assert_eq!((&first.message_id, first.body_hash), (&again.message_id, again.body_hash));
        assert_eq!((first.key.as_str(), first.route), ("cli:direct", push));
        let later = serde_json::to_string(&Report { later: true, ..report }).unwrap();
        let later = message(run, &delivery(&later), turn).unwrap();
        assert_eq!(later.message_id.as_str(), format!("{}:{}", first.message_id.as_str(), delivery("").turn));
        let body = TurnBody::decode(&first.body).unwrap();
        assert_eq!((body.event, body.content), (Some(event.into()), TurnBody::text("5 toads").content));
        let plain = message(run, &delivery("Stopped."), turn).unwrap();
        let body = TurnBody::decode(&plain.body).unwrap();
        assert_eq!((plain.route, body.event.unwrap().status.as_deref()), (Route::Live, Some("cancelled")));
    }
}
