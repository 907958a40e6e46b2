use std::io;
use std::path::Path;

use actix::Addr;
use domain::body::TurnBody;
use domain::chat::{Arguments, AssistantMessage, StopReason, ToolCall};
use domain::ids::{SessionKey, ToolCallId, TurnId};
use domain::retention::PutAway;
use protocol::edit::EditError;
use protocol::journal::{Enqueue, Shelf};
use protocol::metrics::ByResult;
use protocol::provider::{Event, Failure, FailureKind, Permit};
use protocol::session::TurnRecord;
use protocol::supervision::EventName;
use protocol::transcripts::{BroughtIn, Check, EndedPage, Page, Summary, Tree};
use protocol::turn::{Route, TurnResult};
use serde_json::{Value, json};
use supervision::log::MemoryLog;
use supervision::memory::{PowerCutDisk, RuntimeClock, memory_ports};
use supervision::ports::{Disk, Open};
use supervision::{Kernel, LocalPlacement, RestartPolicy, tell};
use testkit::deadline::run_paused;
use testkit::journal::QuietJournal;
use testkit::probe::Probe;

use super::*;
use crate::actor::tests::double::Double;

/// A list of sessions, with the times at which they were written to.
struct Listed(Vec<(&'static str, u64)>);

impl TranscriptReader for Listed {
    fn page(&self, _: Option<&SessionKey>, _: usize) -> Page {
        let summary = |(key, updated_ms): &(&str, u64)| Summary {
            key: SessionKey::new(key).unwrap(),
            session: None,
            name: None,
            preview: None,
            entries: None,
            bytes: 0,
            updated_ms: *updated_ms,
        };
        Page { items: self.0.iter().map(summary).collect(), next: None }
    }
    fn all_known(&self) -> tokio::sync::watch::Receiver<bool> {
        tokio::sync::watch::channel(true).1
    }
    fn is_there(&self, _: &SessionKey) -> io::Result<bool> {
        Ok(false)
    }
    fn read(&self, _: &SessionKey) -> io::Result<Option<Vec<String>>> {
        Ok(None)
    }
    fn tree(&self, _: &SessionKey) -> io::Result<Option<Tree>> {
        Ok(None)
    }
    fn check(&self, _: &SessionKey) -> io::Result<Option<Check>> {
        Ok(None)
    }
    fn ended(&self, _: Shelf, _: Option<&str>, _: usize) -> io::Result<EndedPage> {
        Ok(EndedPage::default())
    }
    fn delete_archived(&self, _: &SessionKey, _: u64) -> io::Result<Option<String>> {
        Ok(None)
    }
    fn put_away(&self) -> io::Result<Vec<PutAway>> {
        Ok(Vec::new())
    }
    fn remove_put_away(&self, _: &str) -> io::Result<()> {
        Ok(())
    }
    fn bring_in(
        &self,
        _: &Path,
        _: Option<&SessionKey>,
        _: &dyn Fn(&SessionKey) -> Result<(), EditError>,
    ) -> Result<BroughtIn, EditError> {
        unreachable!("nothing is brought in")
    }
    fn read_archived(&self, _: &SessionKey) -> io::Result<Option<Vec<String>>> {
        Ok(None)
    }
    fn turn(&self, _: &SessionKey, _: TurnId) -> io::Result<Option<TurnRecord>> {
        Ok(None)
    }
}

struct Stage {
    disk: Arc<PowerCutDisk>,
    double: Arc<Double>,
    log: Arc<MemoryLog>,
    metrics: Metrics,
    permits: Probe<AskPermit>,
    model: Probe<Complete>,
    actor: Addr<Heartbeat>,
}

const TASKS: &str = "# Heartbeat\n## Active Tasks\n- water the plants\n";

impl Stage {
    fn new(tasks: &str, sessions: &[(&'static str, u64)]) -> Self {
        Self::with(tasks, sessions, None)
    }

    fn with(tasks: &str, sessions: &[(&'static str, u64)], hours: Option<ActiveHours>) -> Self {
        let disk = PowerCutDisk::new();
        disk.create_dir_all(Path::new("/w/prompts")).unwrap();
        put(&disk, "HEARTBEAT.md", tasks);
        let ports = memory_ports(Arc::clone(&disk), RuntimeClock::new(), 1);
        let (metrics, log, double) = (Metrics::default(), MemoryLog::new(), Double::new());
        let (permits, model) = (Probe::new(), Probe::new());
        let deps = HeartbeatDeps {
            ports: ports.clone(),
            metrics: metrics.clone(),
            log: log.clone(),
            journal: Arc::new(QuietJournal(double.clone())),
            ends: double.clone(),
            sessions: double.clone(),
            transcripts: Arc::new(Listed(sessions.to_vec())),
            workspace: "/w".into(),
            enabled: ["webhook", "websocket"].map(Arc::from).into(),
            told: [Arc::from("webhook")].into(),
            permits: permits.recipient(),
            model: model.recipient(),
            rules: HeartbeatRules {
                every: Duration::from_secs(1800),
                hours,
                zone: TimeZone::UTC,
                keep: 8,
                model: "m".into(),
                max_tokens: 8192,
            },
        };
        let kernel = Kernel::new(ports, log.clone(), metrics.clone());
        let actor = Heartbeat::start(&kernel, &LocalPlacement::new(), RestartPolicy::default(), deps);
        Self { disk, double, log, metrics, permits, model, actor }
    }

    fn count(&self, result: &'static str) -> u64 {
        self.metrics.heartbeat.beats.get_or_create(&ByResult { result }).get()
    }

    async fn wait(&self, seconds: u64) {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
    }

    /// A beat up to the question whether it is told.
    async fn asked(&mut self, report: &str) -> Complete {
        let beat = self.double.next().await;
        self.wait(1).await;
        self.double.end(beat.turn, TurnResult::Done, report);
        let ask = self.permits.next().await;
        tell(&ask.reply_to, Event::Permitted { stamp: ask.stamp, permit: Permit::new(()) }).unwrap();
        self.model.next().await
    }

    fn answer(&self, call: &Complete, arguments: Value) {
        let Value::Object(arguments) = arguments else { panic!() };
        let tool = ToolCall {
            id: ToolCallId("c".into()),
            name: "evaluate_notification".to_owned(),
            arguments: Arguments::Object(arguments),
        };
        let message =
            AssistantMessage { calls: vec![tool], stop: StopReason::ToolUse, ..AssistantMessage::new("", "p", "m") };
        tell(&call.reply_to, Event::Completed { stamp: call.stamp, message: Box::new(message) }).unwrap();
    }

    fn told(&self) -> Vec<String> {
        self.log.named(EventName::CronFailed).into_iter().filter_map(|event| event.reason).collect()
    }
}

fn put(disk: &PowerCutDisk, path: &str, text: &str) {
    let file = disk.open(&Path::new("/w").join(path), Open::Create).unwrap();
    file.write_at(text.as_bytes(), 0).unwrap();
}

fn says(message: &Enqueue) -> (String, String, Option<String>) {
    let body = TurnBody::decode(&message.body).unwrap();
    let id = message.message_id.to_string();
    let (kind, _) = id.split_once(':').unwrap();
    (message.key.to_string(), kind.to_owned(), body.says.map(|says| says.to_string()))
}

#[test]
fn what_is_worth_it_is_told_once_by_the_way_of_the_newest_session() {
    run_paused("a beat", async {
        let mut stage = Stage::new(TASKS, &[("cli:direct", 9), ("webhook:7", 5), ("websocket:1", 3)]);
        put(&stage.disk, "prompts/evaluator.md", "Be strict.");
        let beat = stage.double.next().await;
        assert_eq!(says(&beat), ("heartbeat".into(), "beat".into(), None));
        assert_eq!((beat.source.as_str(), &beat.route), ("heartbeat", &Route::Live));
        let body = TurnBody::decode(&beat.body).unwrap();
        assert!(domain::chat::plain_text(&body.content).ends_with("\n\n- water the plants"));
        stage.wait(1).await;
        stage.double.end(beat.turn, TurnResult::Done, "They are dry.");
        let ask = stage.permits.next().await;
        assert_eq!(ask.key.as_str(), "heartbeat");
        tell(&ask.reply_to, Event::Permitted { stamp: ask.stamp, permit: Permit::new(()) }).unwrap();
        let call = stage.model.next().await;
        assert_eq!((&*call.request.system, call.request.temperature), ("Be strict.", 0.0));
        stage.answer(&call, json!({"should_notify": true}));
        stage.double.refuse(1);
        let [first, again] = [stage.double.next().await, stage.double.next().await];
        assert_eq!(says(&first), ("webhook:7".into(), "told".into(), Some("They are dry.".into())));
        assert_eq!((&first.message_id, first.body_hash), (&again.message_id, again.body_hash));
        assert!(matches!(&again.route, Route::Push(route) if &*route.chat == "7"));
        stage.wait(1).await;
        assert_eq!((stage.count("told"), stage.told().len()), (1, 0));
    });
}

#[test]
fn what_is_not_worth_it_and_what_fails_is_silence_and_the_next_beat_comes() {
    run_paused("silence", async {
        let mut stage = Stage::new(TASKS, &[("websocket:1", 3)]);
        let call = stage.asked("All is well.").await;
        stage.answer(&call, json!({"should_notify": false, "reason": "routine"}));
        stage.wait(1).await;
        assert_eq!((stage.count("silent"), stage.told().len()), (1, 0));
        let call = stage.asked("All is well.").await;
        stage.answer(&call, json!({"reason": "?"}));
        let call = stage.asked("All is well.").await;
        let failure = Failure { kind: FailureKind::RateLimited, detail: "x".to_owned() };
        tell(&call.reply_to, Event::Failed { stamp: call.stamp, failure }).unwrap();
        // Nobody answers this one.
        stage.asked("All is well.").await;
        stage.wait(121).await;
        let beat = stage.double.next().await;
        stage.wait(1).await;
        stage.double.end(beat.turn, TurnResult::Failed, "no model");
        stage.wait(1).await;
        let told = stage.told();
        assert_eq!(told.len(), 4, "{told:?}");
        for (told, what) in told.iter().zip(["usable should_notify", "rate_limited", "in time", "ended as failed"]) {
            assert!(told.contains(what), "{told}");
        }
        assert_eq!((stage.count("failed"), stage.count("told"), stage.double.count()), (4, 0, 0));
        // An answer that comes late decides nothing.
        stage.answer(&call, json!({"should_notify": true}));
        stage.wait(1).await;
        assert_eq!(stage.double.count(), 0);
    });
}

#[test]
fn without_tasks_or_anybody_to_tell_no_model_is_asked() {
    run_paused("nothing", async {
        for (tasks, sessions, result) in [
            ("## Active Tasks\n<!-- none -->\n", [("websocket:1", 3)].as_slice(), "no_tasks"),
            (TASKS, &[("cli:direct", 3), ("telegram:1", 4), ("heartbeat", 5)], "no_target"),
        ] {
            let stage = Stage::new(tasks, sessions);
            stage.wait(2 * 1800 + 1).await;
            assert_eq!((stage.count(result), stage.double.count()), (2, 0), "{result}");
            assert_eq!(stage.told(), [""; 0]);
        }
    });
}

#[test]
fn it_rests_outside_of_its_hours() {
    run_paused("hours", async {
        // The clock begins at midnight.
        let hours = ActiveHours::parse("22:00", "02:00").unwrap();
        let stage = Stage::with("", &[("websocket:1", 3)], Some(hours));
        stage.wait(24 * 3600 + 60).await;
        assert_eq!((stage.count("no_tasks"), stage.count("inactive_hours")), (8, 40));
    });
}

#[test]
fn one_beat_at_a_time_and_none_for_ever() {
    run_paused("slow", async {
        let stage = Stage::new(TASKS, &[("websocket:1", 3)]);
        let first = stage.double.next().await;
        stage.wait(1801).await;
        assert_eq!((stage.count("running"), stage.double.count()), (1, 0));
        let (key, turn) = stage.double.cancelled().await;
        assert_eq!((key.as_str(), turn), ("heartbeat", first.turn));
        let second = stage.double.next().await;
        assert_ne!(first.message_id, second.message_id);
        assert_eq!(stage.told().len(), 1);
        assert_eq!(stage.double.watched(), 1);
        assert!(stage.actor.connected());
    });
}
