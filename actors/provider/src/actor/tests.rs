use domain::body::Reader;
use domain::chat::{Content, Message, StopReason};
use domain::ids::{Attempt, Epoch, SessionKey, TurnId};
use domain::request::ToolChoice;
use protocol::metrics::{ByProviderResult, Metrics};
use protocol::supervision::EventName;
use supervision::log::MemoryLog;
use supervision::memory::RuntimeClock;
use supervision::ports::Ports;
use testkit::deadline::{run, run_paused, timed};
use testkit::model::{Model, PlannedError};
use testkit::probe::Probe;
use uuid::Uuid;

use super::*;
use crate::{Limits, Server, Settings};

/// A front end and an asker.
struct Scene {
    provider: actix::Addr<Provider>,
    shared: Arc<Shared>,
    log: Arc<MemoryLog>,
    probe: Probe<Event>,
    cancel: CancellationToken,
}

const STAMP: Stamp = Stamp { epoch: Epoch(3), turn: TurnId(Uuid::from_u128(0xabc)), attempt: Attempt(2), round: 4 };

impl Scene {
    #[allow(clippy::disallowed_methods, reason = "the test watches the actor")]
    fn new(backend: crate::Backend) -> Self {
        let log = MemoryLog::new();
        let settings = Settings { backend, concurrent_max: 1, limits: Limits::default() };
        let ports = Ports { clock: RuntimeClock::new(), ..supervision::real::real_ports(1).unwrap() };
        let shared = Shared::new(settings, Metrics::default(), ports, log.clone()).unwrap();
        let provider = Provider::new(shared.clone()).start();
        Self { provider, shared, log, probe: Probe::new(), cancel: CancellationToken::new() }
    }

    fn offline() -> Self {
        Self::new(crate::Backend::Offline)
    }

    fn server(model: &Model) -> Self {
        let key = Some("secret-1".to_owned().into());
        Self::new(crate::Backend::OpenAi(Server {
            name: "test".to_owned(),
            base: model.url(),
            key,
            ..Server::default()
        }))
    }

    fn ask_permit(&self) {
        let ask = AskPermit {
            urgency: protocol::provider::Urgency::Turn,
            stamp: STAMP,
            key: SessionKey::new("k").unwrap(),
            cancel: self.cancel.clone(),
            reply_to: self.probe.recipient(),
        };
        tell(&self.provider.clone().recipient(), ask).unwrap();
    }

    async fn complete(&mut self, text: &str) {
        self.ask_permit();
        let Event::Permitted { stamp: STAMP, permit } = self.probe.next().await else { panic!("no permit") };
        let request = ChatRequest {
            model: "m".into(),
            system: "".into(),
            system_tail: None,
            messages: vec![Message::User([Content::text(text)].into())].into(),
            tokens: 0,
            tools: [].into(),
            choice: ToolChoice::Auto,
            effort: None,
            max_tokens: 100,
            temperature: 0.5,
        };
        let (cancel, reply_to) = (self.cancel.clone(), self.probe.recipient());
        let complete = Complete { stamp: STAMP, permit, request, cancel, reply_to };
        tell(&self.provider.clone().recipient(), complete).unwrap();
    }

    /// The deltas and the last event of the running call.
    async fn end(&mut self) -> (Vec<Delta>, Event) {
        let mut deltas = Vec::new();
        loop {
            match self.probe.next().await {
                Event::Delta { stamp: STAMP, delta } => deltas.push(delta),
                event => return (deltas, event),
            }
        }
    }

    async fn completed(&mut self) -> Box<AssistantMessage> {
        match self.end().await.1 {
            Event::Completed { stamp: STAMP, message } => message,
            other => panic!("not completed but {other:?}"),
        }
    }

    async fn failed(&mut self) -> Failure {
        match self.end().await.1 {
            Event::Failed { stamp: STAMP, failure } => failure,
            other => panic!("not failed but {other:?}"),
        }
    }

    fn calls(&self, result: &'static str) -> u64 {
        let provider = self.shared.name.to_string();
        self.shared.metrics.provider_calls.get_or_create(&ByProviderResult { provider, result }).get()
    }
}

/// Lets everybody else on this thread run until it is so.
async fn until(is_so: impl Fn() -> bool) {
    while !is_so() {
        tokio::task::yield_now().await;
    }
}

#[test]
fn the_offline_model_answers_at_once_or_in_time() {
    run_paused("offline", async {
        let mut scene = Scene::offline();
        scene.complete("[[say=hi]][[tokens=3]]").await;
        let (deltas, _) = scene.end().await;
        assert_eq!(deltas.len(), 3);
        scene.complete("[[say=hi]][[tokens=3;delay=30000;itd=1000]]").await;
        let (message, took) = timed(scene.completed()).await;
        assert_eq!(took, Duration::from_secs(32));
        assert_eq!((message.text.as_str(), &*message.provider), ("hi t1 t2", "offline"));
        scene.complete("[[tool=x]]").await;
        let message = scene.completed().await;
        assert_eq!((message.stop, &*message.calls[0].id.0), (StopReason::ToolUse, "call_000000000abc_2_4_0"));
        assert_eq!(scene.calls("ok"), 3);
    });
}

#[test]
fn a_call_holds_its_place_until_it_ends() {
    run_paused("places", async {
        let mut scene = Scene::offline();
        scene.complete("[[delay=1000]]").await;
        scene.ask_permit();
        assert!(matches!(scene.end().await.1, Event::Permitted { .. }), "the place is free before the end is told");
        assert!(matches!(scene.end().await.1, Event::Completed { .. }));
    });
}

#[test]
fn a_cancelled_call_answers_nothing_more() {
    run("cancel", async {
        let model = Model::start().await;
        for (mut scene, remote) in [(Scene::offline(), 0), (Scene::server(&model), 1)] {
            scene.complete("[[delay=3600000]]").await;
            until(|| model.stats().concurrent == remote).await;
            scene.ask_permit();
            let cancel = std::mem::take(&mut scene.cancel);
            scene.ask_permit();
            cancel.cancel();
            assert!(matches!(scene.probe.next().await, Event::Permitted { .. }), "the waiting ask was cancelled too");
            assert!(scene.probe.try_next().is_none());
            assert_eq!(scene.calls("cancelled"), 1);
            until(|| model.stats().client_gone == remote).await;
        }
    });
}

#[test]
fn a_server_answers_and_what_passes_is_tried_again() {
    run("retries", async {
        let model = Model::start().await;
        let mut scene = Scene::server(&model);
        let error = PlannedError { retry_after_s: Some(0), ..PlannedError::times(503, 1) };
        model.config(|config| config.error = Some(error));
        scene.complete("x [[tokens=2]]").await;
        let (deltas, _) = scene.end().await;
        assert_eq!((deltas.len(), model.stats().requests, scene.calls("ok")), (2, 2, 1));
        let sent = model.requests().remove(1);
        assert_eq!(
            (&sent["stream"], &sent["max_tokens"], &sent["temperature"]),
            (&true.into(), &100.into(), &0.5.into())
        );
        scene.complete("y [[truncate;tokens=2]]").await;
        let (deltas, end) = scene.end().await;
        assert_eq!(deltas.len(), 2, "nothing is tried again once it was shown");
        assert!(matches!(end, Event::Failed { failure: Failure { kind: FailureKind::Transient, .. }, .. }));
        assert_eq!(model.stats().requests, 3);
    });
}

#[test]
fn what_does_not_pass_fails_at_once_and_says_who_and_why() {
    run("refusals", async {
        let model = Model::start().await;
        let mut scene = Scene::server(&model);
        for (what, kind, part) in [
            ("401", FailureKind::Unauthorized, "test answered 401"),
            ("context", FailureKind::ContextTooLong, "test answered 400"),
            ("404", FailureKind::Refused, "test answered 404"),
            // The last, as nobody is asked after it.
            ("quota", FailureKind::Billing, "test answered 429"),
        ] {
            scene.complete(&format!("[[error={what}]]")).await;
            let failure = scene.failed().await;
            assert_eq!(failure.kind, kind);
            assert!(failure.detail.contains(part), "{}", failure.detail);
        }
        assert_eq!(model.stats().requests, 4);
    });
}

#[test]
fn tries_are_bounded() {
    // Both ends are on this thread, so no timer jumps over a message on its way.
    run_paused("bounded tries", async {
        let model = Model::start().await;
        let mut scene = Scene::server(&model);
        scene.complete("[[error=429;retry_after=3600]]").await;
        let (failure, took) = timed(scene.failed()).await;
        assert_eq!(failure.kind, FailureKind::RateLimited);
        assert_eq!(model.stats().requests, 1 + RETRIES_MAX as u64);
        assert_eq!(took.as_secs(), RETRIES_MAX as u64 * WAIT_MAX.as_secs(), "the hour is capped");
    });
}

#[test]
fn a_call_that_ends_without_an_answer_says_so() {
    run("crash", async {
        let mut scene = Scene::offline();
        let reply = Reply {
            shared: scene.shared.clone(),
            stamp: STAMP,
            to: scene.probe.recipient(),
            model: "m".into(),
            asked_tokens: 7,
            cancel: scene.cancel.clone(),
            permit: None,
            begun: Duration::ZERO,
            open: true,
        };
        let crash = actix_rt::spawn(async move {
            let _reply = reply;
            panic!("a test panics");
        });
        assert!(crash.await.is_err());
        assert_eq!(scene.failed().await.kind, FailureKind::Transient);
        assert_eq!(scene.calls("crashed"), 1);
    });
}

#[test]
fn a_provider_that_fails_in_a_row_is_left_alone_and_tried_again_by_one_call() {
    run_paused("breaker", async {
        let model = Model::start().await;
        let mut scene = Scene::server(&model);
        let asked = || model.stats().requests;
        // Two calls try four times each. The next two try once, as something was shown; the tenth failure is the last
        // thing that happens, so that no wait for a further try shortens the time that the provider is left alone.
        for what in ["[[error=500]]", "[[error=500]]", "[[truncate;tokens=2]]", "[[truncate;tokens=2]]"] {
            scene.complete(what).await;
            assert_eq!(scene.failed().await.kind, FailureKind::Transient);
        }
        let before = asked();
        let opened = scene.log.named(EventName::ProviderOpened).remove(0);
        assert_eq!((opened.backoff_ms, opened.verdict.as_deref()), (Some(5000), Some("not asked for 5 s")));
        assert_eq!(scene.shared.metrics.degraded(), ["provider_not_asked"]);
        scene.complete("hello").await;
        let failure = scene.failed().await;
        assert!(failure.detail.contains("test is not asked for now"), "{}", failure.detail);
        assert_eq!((asked(), scene.calls("not_asked")), (before, 1), "the provider is not asked");
        tokio::time::sleep(Duration::from_secs(5)).await;
        scene.complete("hello").await;
        scene.completed().await;
        let closed = scene.log.named(EventName::ProviderClosed).remove(0);
        assert_eq!(closed.cause.as_deref(), Some(&*opened.id));
        assert!(scene.shared.metrics.degraded().is_empty());
    });
}

#[test]
fn an_account_without_credit_is_asked_once_and_not_for_each_message() {
    run_paused("billing", async {
        let model = Model::start().await;
        let mut scene = Scene::server(&model);
        for _ in 0..390 {
            scene.complete("[[error=quota]]").await;
            let failure = scene.failed().await;
            assert_eq!(failure.kind, FailureKind::Billing);
            assert!(failure.told("test", "m", Reader::Chat).contains("no credit left"), "{failure}");
        }
        assert_eq!(model.stats().requests, 1);
    });
}
