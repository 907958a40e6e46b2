use std::path::Path;

use domain::chat::{AssistantMessage, StopReason};
use domain::ids::{Attempt, Epoch, SessionKey, TurnId};
use domain::request::{ChatRequest, ToolChoice};
use protocol::edit::Part;
use protocol::provider::{Delta, Failure, FailureKind};
use protocol::turn::Pulse;
use supervision::log::MemoryLog;
use supervision::memory::{PowerCutDisk, RuntimeClock, memory_ports};
use supervision::ports::Disk;
use supervision::{Kernel, LocalPlacement, RestartPolicy};
use testkit::deadline::{run_paused, with_deadline};
use testkit::probe::Probe;
use uuid::Uuid;

use super::*;

/// The actor among probes.
struct Stage {
    disk: Arc<PowerCutDisk>,
    metrics: Metrics,
    permits: Probe<AskPermit>,
    model: Probe<Complete>,
    told: Probe<Summarised>,
    summarise: Recipient<Summarise>,
    crash: Recipient<Crash>,
    asked: u128,
}

#[derive(actix::Message)]
#[rtype(result = "()")]
struct Crash;

impl Handler<Crash> for Memory {
    type Result = ();

    fn handle(&mut self, _: Crash, _: &mut Self::Context) {
        panic!("a handler fails");
    }
}

impl Stage {
    fn new() -> Self {
        let disk = PowerCutDisk::new();
        disk.create_dir_all(Path::new("/w")).unwrap();
        let ports = memory_ports(Arc::clone(&disk), RuntimeClock::new(), 1);
        let metrics = Metrics::default();
        let (permits, model) = (Probe::new(), Probe::new());
        let deps = Deps {
            ports: ports.clone(),
            metrics: metrics.clone(),
            archive: Arc::new(Archive::new("/w".into(), jiff::tz::TimeZone::UTC)),
            neighbours: Neighbours { permits: permits.recipient(), model: model.recipient() },
        };
        let kernel = Kernel::new(ports, MemoryLog::new(), metrics.clone());
        let memory = Memory::start(&kernel, &LocalPlacement::new(), RestartPolicy::default(), deps);
        let (summarise, crash) = (memory.clone().recipient(), memory.recipient());
        Self { disk, metrics, permits, model, told: Probe::new(), summarise, crash, asked: 0 }
    }

    fn ask(&mut self, raw: &str) -> (Stamp, CancellationToken, Pulse) {
        self.send(raw, Some(request()), false)
    }

    /// Of what has failed before.
    fn ask_again(&mut self, raw: &str) -> (Stamp, CancellationToken, Pulse) {
        self.send(raw, Some(request()), true)
    }

    fn send(&mut self, raw: &str, request: Option<ChatRequest>, is_last: bool) -> (Stamp, CancellationToken, Pulse) {
        self.asked += 1;
        let turn = TurnId(Uuid::from_u128(self.asked));
        let stamp = Stamp { epoch: Epoch(1), turn, attempt: Attempt::FIRST, round: 1 };
        let (cancel, pulse) = (CancellationToken::new(), Pulse::default());
        let summarise = Summarise {
            stamp,
            key: SessionKey::new("api:1").unwrap(),
            part: Part { first: "f".to_owned(), last: self.asked.to_string() },
            request,
            raw: raw.into(),
            is_last,
            pulse: pulse.clone(),
            cancel: cancel.clone(),
            reply_to: self.told.recipient(),
        };
        tell(&self.summarise, summarise).unwrap();
        (stamp, cancel, pulse)
    }

    async fn called(&mut self) -> Complete {
        let ask = self.permits.next().await;
        tell(&ask.reply_to, Event::Permitted { stamp: ask.stamp, permit: Permit::new(()) }).unwrap();
        self.model.next().await
    }

    fn lines(&self) -> Vec<String> {
        let bytes = self.disk.read(Path::new("/w/memory/history.jsonl")).unwrap_or_default();
        let past = domain::prompt::read_past(&String::from_utf8(bytes).unwrap(), 0);
        past.iter().map(|past| past.text.to_string()).collect()
    }

    fn counted(&self, result: &'static str) -> u64 {
        self.metrics.work.summaries.get_or_create(&ByResult { result }).get()
    }
}

fn request() -> ChatRequest {
    ChatRequest {
        model: "m".into(),
        system: "s".into(),
        system_tail: None,
        messages: Vec::new().into(),
        tools: [].into(),
        choice: ToolChoice::None,
        effort: None,
        tokens: 1,
        max_tokens: 1,
        temperature: 0.0,
    }
}

fn answer(text: &str, stop: StopReason) -> Box<AssistantMessage> {
    Box::new(AssistantMessage { stop, ..AssistantMessage::new(text, "p", "m") })
}

fn complete(call: &Complete, message: Box<AssistantMessage>) {
    tell(&call.reply_to, Event::Completed { stamp: call.stamp, message }).unwrap();
}

#[test]
fn a_summary_is_kept_before_it_is_told() {
    run_paused("memory", async {
        let mut stage = Stage::new();
        let (stamp, _, pulse) = stage.ask("raw");
        let call = stage.called().await;
        assert!(call.stamp.round >= ROUNDS_FROM && call.stamp.turn == stamp.turn, "no turn has that round");
        tokio::time::sleep(Duration::from_secs(5)).await;
        tell(&call.reply_to, Event::Delta { stamp: call.stamp, delta: Delta::Text("## Goal".into()) }).unwrap();
        complete(&call, answer("## Goal\nx", StopReason::Stop));
        let told = stage.told.next().await;
        assert_eq!(told, Summarised { stamp, summary: Summary::Text("## Goal\nx".into()) });
        assert_eq!((stage.lines(), stage.counted("text")), (vec!["## Goal\nx".to_owned()], 1));
        assert!(pulse.last() >= Duration::from_secs(5));
        assert_eq!(stage.metrics.work.summaries_running.get(), 0);

        stage.ask("raw");
        complete(&stage.called().await, answer("(nothing)", StopReason::Stop));
        assert_eq!((stage.told.next().await.summary, stage.lines().len()), (Summary::Nothing, 1));
    });
}

#[test]
fn whatever_the_model_does_instead_the_last_time_the_part_is_archived_as_it_is() {
    run_paused("memory", async {
        let mut stage = Stage::new();
        let (_, cancel, _) = stage.ask_again("raw 1");
        complete(&stage.called().await, answer("half", StopReason::Length));
        assert_eq!(stage.told.next().await.summary, Summary::Raw("length"));
        assert!(!cancel.is_cancelled(), "the asker's own work goes on");

        stage.ask_again("raw 2");
        let call = stage.called().await;
        let failure = Failure { kind: FailureKind::Overloaded, detail: "busy".into() };
        tell(&call.reply_to, Event::Failed { stamp: call.stamp, failure }).unwrap();
        assert_eq!(stage.told.next().await.summary, Summary::Raw("overloaded"));

        stage.ask_again("raw 3");
        let call = stage.called().await;
        assert_eq!(stage.told.next().await.summary, Summary::Raw("timeout"));
        assert!(call.cancel.is_cancelled());
        complete(&call, answer("too late", StopReason::Stop));

        // That nothing will ever hold is not asked for again.
        stage.send("raw 4", None, false);
        assert_eq!(stage.told.next().await.summary, Summary::Raw("too_large"));
        assert_eq!(stage.lines(), ["raw 1", "raw 2", "raw 3", "raw 4"]);
        assert_eq!((stage.counted("raw"), stage.model.try_next().is_none()), (4, true));
    });
}

#[test]
fn a_failure_that_is_not_the_last_archives_nothing() {
    run_paused("memory", async {
        let mut stage = Stage::new();
        stage.ask("raw");
        complete(&stage.called().await, answer("half", StopReason::Length));
        assert_eq!(stage.told.next().await.summary, Summary::Failed("length"));
        stage.ask("raw");
        stage.called().await;
        assert_eq!(stage.told.next().await.summary, Summary::Failed("timeout"));
        assert_eq!((stage.lines(), stage.counted("failed"), stage.counted("raw")), (Vec::new(), 2, 0));
    });
}

#[test]
fn a_wait_for_a_place_has_no_limit_and_who_gives_up_is_told_nothing() {
    run_paused("memory", async {
        let mut stage = Stage::new();
        let (_, cancel, _) = stage.ask("given up");
        let ask = stage.permits.next().await;
        tokio::time::sleep(TAKES_MAX * 2).await;
        assert_eq!(stage.metrics.work.summaries_running.get(), 1);
        cancel.cancel();
        stage.ask("raw");
        let call = stage.called().await;
        assert!(ask.cancel.is_cancelled());
        tell(&ask.reply_to, Event::Permitted { stamp: ask.stamp, permit: Permit::new(()) }).unwrap();
        complete(&call, answer("kept", StopReason::Stop));
        assert_eq!(stage.told.next().await.summary, Summary::Text("kept".into()));
        assert_eq!((stage.lines(), stage.told.try_next()), (vec!["kept".to_owned()], None));
    });
}

#[test]
fn a_disk_that_is_full_is_tried_again_and_holds_nobody_up_for_ever() {
    run_paused("memory", async {
        let mut stage = Stage::new();
        stage.disk.set_full(true);
        stage.ask("raw");
        complete(&stage.called().await, answer("lost", StopReason::Stop));
        assert_eq!(stage.told.next().await.summary, Summary::Text("lost".into()));
        assert_eq!(stage.metrics.work.archive_failures.get(), u64::from(TRIES_MAX));

        stage.ask("raw");
        complete(&stage.called().await, answer("kept", StopReason::Stop));
        let failed = async {
            while stage.metrics.work.archive_failures.get() == u64::from(TRIES_MAX) {
                tokio::task::yield_now().await;
            }
        };
        with_deadline("a failure", failed).await;
        stage.disk.set_full(false);
        stage.told.next().await;
        assert_eq!(stage.lines(), ["kept"]);
    });
}

#[test]
fn a_crash_asks_anew_once() {
    run_paused("memory", async {
        let mut stage = Stage::new();
        let (stamp, _, _) = stage.ask("raw");
        let first = stage.called().await;
        tell(&stage.crash, Crash).unwrap();
        let second = stage.called().await;
        assert!(first.cancel.is_cancelled() && first.stamp != second.stamp);
        complete(&first, answer("of before", StopReason::Stop));
        complete(&second, answer("of now", StopReason::Stop));
        assert_eq!(stage.told.next().await, Summarised { stamp, summary: Summary::Text("of now".into()) });

        stage.ask("raw");
        stage.called().await;
        tell(&stage.crash, Crash).unwrap();
        stage.called().await;
        tell(&stage.crash, Crash).unwrap();
        assert_eq!(stage.told.next().await.summary, Summary::Failed("crashed"));
        assert_eq!(stage.lines(), ["of now"]);
    });
}
