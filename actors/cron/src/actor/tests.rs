pub(crate) mod double;

use std::path::Path;

use domain::cron::scheduler::Draft;
use domain::cron::{Missed, RunStatus, Schedule};
use jiff::tz::TimeZone;
use protocol::cron::Jobs;
use protocol::journal::Enqueue;
use protocol::session::TurnRecord;
use protocol::turn::{Route, TurnResult};
use serde_json::{Value, json};
use supervision::log::MemoryLog;
use supervision::memory::{Fault, PowerCutDisk, RuntimeClock, memory_ports};
use supervision::ports::{Clock, Disk, Open};
use supervision::{Kernel, LocalPlacement, RestartPolicy, tell};
use testkit::deadline::run_paused;
use testkit::journal::QuietJournal;

use super::*;
use double::Double;

const HOUR: u64 = 3_600_000;

/// The actor among doubles.
struct Stage {
    disk: Arc<PowerCutDisk>,
    ports: Ports,
    metrics: Metrics,
    log: Arc<MemoryLog>,
    double: Arc<Double>,
    desk: Arc<Desk>,
    cron: Addr<Cron>,
}

#[derive(actix::Message)]
#[rtype(result = "()")]
struct Crash;

impl Handler<Crash> for Cron {
    type Result = ();

    fn handle(&mut self, _: Crash, _: &mut Self::Context) {
        panic!("a handler fails");
    }
}

impl Stage {
    fn new(jobs: Value) -> Self {
        let disk = PowerCutDisk::new();
        disk.create_dir_all(Path::new("/w/cron")).unwrap();
        put(&disk, "cron/jobs.json", &jobs.to_string());
        Self::on(disk, Double::new())
    }

    /// A process on that disk, with what the journal and the transcripts know.
    fn on(disk: Arc<PowerCutDisk>, double: Arc<Double>) -> Self {
        let ports = memory_ports(Arc::clone(&disk), RuntimeClock::new(), 1);
        let (metrics, log) = (Metrics::default(), MemoryLog::new());
        let desk = Arc::new(Desk::new(TimeZone::UTC, &metrics));
        let deps = Deps {
            ports: ports.clone(),
            metrics: metrics.clone(),
            log: log.clone(),
            journal: Arc::new(QuietJournal(double.clone())),
            sessions: double.clone(),
            ends: double.clone(),
            workspace: "/w".into(),
            zones: Zones { local: TimeZone::UTC, named: |name| TimeZone::get(name).ok() },
            channels: [Arc::from("webhook")].into(),
            desk: desk.clone(),
        };
        let kernel = Kernel::new(ports.clone(), log.clone(), metrics.clone());
        let cron = Cron::start(&kernel, &LocalPlacement::new(), RestartPolicy::default(), deps);
        Self { disk, ports, metrics, log, double, desk, cron }
    }

    async fn ask(&self, ask: Ask) -> Result<Answer, Refusal> {
        self.desk.ask(ask).await.unwrap()
    }

    async fn list(&self) -> Vec<JobView> {
        self.ask(Ask::List).await.unwrap().jobs
    }

    fn on_disk(&self) -> Value {
        serde_json::from_slice(&self.disk.read(Path::new("/w/cron/jobs.json")).unwrap()).unwrap()
    }

    /// The file of a run.
    fn kept(&self, turn: TurnId) -> Value {
        let path = format!("/w/cron/runs/{turn}.json");
        serde_json::from_slice(&self.disk.read(Path::new(&path)).unwrap()).unwrap()
    }

    fn names(&self) -> Vec<EventName> {
        let ours = self.log.events().into_iter().filter(|event| event.kind == Kind::Cron);
        ours.map(|event| event.event).filter(|name| *name != EventName::Started).collect()
    }

    fn runs(&self, result: &'static str) -> u64 {
        self.metrics.cron.runs.get_or_create(&ByResult { result }).get()
    }

    /// What is awaited has happened when nothing else is left to do.
    async fn wait(&self, ms: u64) {
        tokio::time::sleep(Duration::from_millis(ms)).await;
    }
}

fn put(disk: &PowerCutDisk, path: &str, text: &str) {
    let file = disk.open(&Path::new("/w").join(path), Open::Create).unwrap();
    file.set_length(0).unwrap();
    file.write_at(text.as_bytes(), 0).unwrap();
    file.sync_data().unwrap();
    disk.sync_dir(Path::new("/w/cron")).unwrap();
}

fn hourly(id: &str) -> Value {
    json!({"id": id, "name": id, "schedule": {"kind": "every", "everyMs": HOUR}, "payload": {"message": "m", "sessionKey": "websocket:1"}})
}

fn draft() -> Box<Draft> {
    Box::new(Draft {
        name: Some("tea".to_owned()),
        message: "make tea".to_owned(),
        schedule: Schedule::every(HOUR),
        key: Some(SessionKey::new("webhook:7").unwrap()),
        origin: Some(("webhook".to_owned(), "7".to_owned())),
        metadata: Default::default(),
        missed: Some(Missed::Once),
        timeout_ms: None,
        keep: false,
    })
}

fn said(message: &Enqueue) -> (String, String, String) {
    let body = domain::body::TurnBody::decode(&message.body).unwrap();
    let text = domain::chat::plain_text(&body.content);
    (message.key.to_string(), message.message_id.to_string(), text.rsplit("\n\n").next().unwrap().to_owned())
}

#[test]
fn a_job_is_made_runs_and_is_written_down() {
    run_paused("a job", async {
        let stage = Stage::new(json!({"jobs": []}));
        let begun_ms = stage.ports.clock.wall_ms();
        let made = stage.ask(Ask::Add(draft())).await.unwrap();
        assert_eq!((made.jobs[0].name.as_str(), made.unsaved), ("tea", None));
        let id = made.jobs[0].id.clone();
        assert_eq!(stage.on_disk()["jobs"][0]["id"], json!(id), "what is answered is in the file");
        let message = stage.double.next().await;
        let due_ms = begun_ms + HOUR;
        assert_eq!(said(&message), ("webhook:7".into(), format!("{id}:{due_ms}"), "make tea".into()));
        assert_eq!(message.source.as_str(), "cron");
        assert!(matches!(&message.route, Route::Push(route) if &*route.chat == "7"), "{:?}", message.route);
        stage.wait(1).await;
        assert_eq!(stage.on_disk()["jobs"][0]["state"]["running"]["runId"], json!(message.turn));
        let kept = stage.kept(message.turn);
        assert_eq!(
            (&kept["status"], &kept["job_id"], &kept["due_at_ms"]),
            (&json!("queued"), &json!(id), &json!(due_ms))
        );
        stage.wait(5000).await;
        stage.double.end(message.turn, TurnResult::Done, "done");
        stage.wait(1).await;
        let job = &stage.on_disk()["jobs"][0]["state"];
        assert_eq!((&job["lastStatus"], job["running"].is_null()), (&json!("ok"), true));
        assert_eq!(job["nextRunAtMs"], json!(due_ms + HOUR));
        let kept = stage.kept(message.turn);
        assert_eq!((&kept["status"], &kept["response"]), (&json!("ok"), &json!("done")));
        assert!(kept["prompt"].as_str().unwrap().ends_with("make tea"), "{kept}");
        assert_eq!((stage.runs("accepted"), stage.runs("ok")), (1, 1));
        assert_eq!((stage.metrics.cron.jobs.get(), stage.metrics.cron.running.get()), (1, 0));
        assert_eq!(stage.metrics.mailbox_messages.get_or_create(&protocol::metrics::ByKind { kind: "cron" }).get(), 0);
    });
}

#[test]
fn jobs_run_side_by_side_and_none_beside_itself() {
    run_paused("side by side", async {
        let mut slow = hourly("a");
        slow["timeoutMs"] = json!(24 * HOUR);
        let stage = Stage::new(json!({"jobs": [slow, hourly("b")]}));
        let [a, b] = [stage.double.next().await, stage.double.next().await];
        assert_eq!([said(&a).1, said(&b).1].map(|id| id.chars().next()), [Some('a'), Some('b')]);
        stage.double.end(b.turn, TurnResult::Failed, "The model cannot be reached.\nmore");
        let again = stage.double.next().await;
        assert!(said(&again).1.starts_with("b:"));
        stage.wait(1).await;
        assert_eq!(stage.names(), [EventName::CronFailed, EventName::CronSkipped]);
        let event = stage.log.named(EventName::CronFailed).remove(0);
        assert_eq!((event.turn, event.session.unwrap().as_str()), (Some(b.turn), "websocket:1"));
        let history = &stage.on_disk()["jobs"];
        assert_eq!(history[0]["state"]["runHistory"][0]["error"], "the run before had not ended");
        assert_eq!(history[1]["state"]["runHistory"][0]["error"], "The model cannot be reached.");
    });
}

#[test]
fn a_run_that_takes_too_long_is_cancelled() {
    run_paused("too long", async {
        let mut job = hourly("a");
        job["timeoutMs"] = json!(60_000);
        let stage = Stage::new(json!({"jobs": [job]}));
        let message = stage.double.next().await;
        let (key, turn) = stage.double.cancelled().await;
        assert_eq!((key.as_str(), turn), ("websocket:1", message.turn));
        stage.double.end(turn, TurnResult::Cancelled, "");
        stage.wait(1).await;
        let state = &stage.on_disk()["jobs"][0]["state"];
        assert_eq!(
            (&state["lastStatus"], &state["lastError"]),
            (&json!("error"), &json!("it did not end within 60 s and was cancelled"))
        );
    });
}

#[test]
fn a_message_that_is_refused_is_offered_again_with_the_same_id() {
    run_paused("refused", async {
        let stage = Stage::new(json!({"jobs": [hourly("a")]}));
        stage.double.refuse(2);
        let ids = [stage.double.next().await, stage.double.next().await, stage.double.next().await];
        let ids = ids.map(|message| said(&message).1);
        assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
        stage.wait(1).await;
        assert_eq!((stage.runs("refused"), stage.runs("accepted"), stage.double.watched()), (2, 1, 1));
    });
}

#[test]
fn a_process_that_dies_runs_no_moment_twice_and_learns_how_its_runs_ended() {
    run_paused("death", async {
        let mut job = hourly("a");
        job["missed"] = json!("all");
        let first = Stage::new(json!({"jobs": [job]}));
        let message = first.double.next().await;
        first.wait(1).await;
        let (disk, double) = (first.disk.copy(), first.double.reborn());
        // It ended while nobody was there.
        double.know(message.turn, Some(ended(TurnResult::Done)));
        let second = Stage::on(disk, double);
        second.wait(1).await;
        let state = &second.on_disk()["jobs"][0]["state"];
        assert_eq!((&state["lastStatus"], state["runHistory"].as_array().unwrap().len()), (&json!("ok"), 1));
        assert_eq!(second.double.count(), 0, "nothing is handed over again");
        // The save is lost: the journal knows the message.
        let lost = second.disk.copy();
        let message = second.double.next().await;
        second.wait(1).await;
        let double = second.double.reborn();
        double.know(message.turn, Some(TurnRecord::Open));
        let third = Stage::on(lost, double);
        // The clock of the double begins anew; so the moment is in the future again.
        let again = third.double.next().await;
        assert_eq!(said(&again).1, said(&message).1);
        third.wait(1).await;
        assert_eq!(third.on_disk()["jobs"][0]["state"]["running"]["runId"], json!(message.turn));
        third.double.end(message.turn, TurnResult::Done, "");
        third.wait(1).await;
        assert_eq!(third.on_disk()["jobs"][0]["state"]["lastStatus"], "ok");
    });
}

pub(crate) fn ended(result: TurnResult) -> TurnRecord {
    TurnRecord::Ended {
        result,
        into: None,
        text: String::new(),
        stop: domain::chat::StopReason::Stop,
        usage: Default::default(),
        model: String::new(),
    }
}

#[test]
fn a_session_that_knows_nothing_of_a_run_or_cannot_answer() {
    run_paused("unknown", async {
        let mut job = hourly("a");
        let turn = TurnId(uuid::Uuid::from_u128(7));
        let at_ms = RuntimeClock::new().wall_ms();
        job["state"] = json!({"running": {"dueMs": 1, "atMs": at_ms, "runId": turn}});
        let double = Double::new();
        let disk = PowerCutDisk::new();
        disk.create_dir_all(Path::new("/w/cron")).unwrap();
        put(&disk, "cron/jobs.json", &json!({"jobs": [job]}).to_string());
        double.silent(true);
        let stage = Stage::on(disk, double);
        stage.wait(1000).await;
        assert!(stage.list().await[0].running, "it is asked again later");
        stage.double.silent(false);
        stage.wait(30_000).await;
        let view = stage.list().await.remove(0);
        assert_eq!(view.last_status, Some(RunStatus::Error));
        assert_eq!(view.last_error.as_deref(), Some("its session does not know the turn any more"));
    });
}

#[test]
fn files_that_others_change_are_read_again() {
    run_paused("changes", async {
        let stage = Stage::new(json!({"jobs": [hourly("a")]}));
        stage.wait(1).await;
        put(&stage.disk, "cron/jobs.json", &json!({"jobs": [hourly("a"), hourly("b")]}).to_string());
        let line = json!({"action": "del", "params": {"job_id": "a"}});
        put(&stage.disk, "cron/action.jsonl", &format!("{line}\n"));
        stage.wait(11_000).await;
        let ids: Vec<_> = stage.list().await.into_iter().map(|job| job.id.to_string()).collect();
        assert_eq!(ids, ["b"]);
        assert_eq!(stage.on_disk()["jobs"].as_array().unwrap().len(), 1);
        assert_eq!(stage.disk.read(Path::new("/w/cron/action.jsonl")).unwrap(), b"");
    });
}

#[test]
fn a_damaged_file_is_set_aside_and_a_good_one_mends_it() {
    run_paused("damage", async {
        let stage = Stage::new(json!({"jobs": [{"id": "x"}]}));
        stage.wait(1).await;
        let refused = stage.ask(Ask::Add(draft())).await.unwrap_err().to_string();
        assert!(
            refused.contains("jobs[0]: missing field `name`") && refused.contains("kept as cron/jobs.json.corrupt-"),
            "{refused}"
        );
        assert_eq!(stage.names(), [EventName::CronDamaged]);
        let kept = stage.disk.list(Path::new("/w/cron")).unwrap();
        assert!(kept.iter().any(|path| path.to_string_lossy().contains("jobs.json.corrupt-")), "{kept:?}");
        put(&stage.disk, "cron/jobs.json", &json!({"jobs": [hourly("a")]}).to_string());
        stage.wait(11_000).await;
        assert_eq!(stage.list().await.len(), 1);
        // Later, what is in memory is written again.
        put(&stage.disk, "cron/jobs.json", "{");
        stage.wait(11_000).await;
        assert_eq!((stage.on_disk()["jobs"].as_array().unwrap().len(), stage.names().len()), (1, 2));
    });
}

#[test]
fn a_full_disk_stops_no_job() {
    run_paused("full", async {
        let stage = Stage::new(json!({"jobs": [hourly("a")]}));
        stage.wait(1).await;
        stage.disk.set_full(true);
        let made = stage.ask(Ask::Add(draft())).await.unwrap();
        assert!(made.unsaved.is_some());
        let enabled = Ask::Enable { id: "a".to_owned(), enabled: true };
        assert_eq!(stage.ask(enabled).await.unwrap().jobs.len(), 1);
        assert_eq!(stage.names(), [EventName::CronUnsaved]);
        let [one, other] = [stage.double.next().await, stage.double.next().await];
        assert_ne!(one.message_id, other.message_id);
        stage.disk.set_full(false);
        stage.wait(61_000).await;
        assert_eq!(
            (stage.names().last(), stage.on_disk()["jobs"].as_array().unwrap().len()),
            (Some(&EventName::CronSaved), 2)
        );
    });
}

#[test]
fn a_turn_that_ends_before_its_verdict_is_heard_has_ended() {
    run_paused("haste", async {
        let stage = Stage::new(json!({"jobs": [hourly("a")]}));
        stage.double.hasty();
        stage.double.next().await;
        stage.wait(1).await;
        let view = stage.list().await.remove(0);
        assert_eq!((view.running, view.last_status), (false, Some(RunStatus::Ok)));
    });
}

#[test]
fn files_that_cannot_be_read_are_read_later() {
    run_paused("unreadable", async {
        let disk = PowerCutDisk::new();
        disk.create_dir_all(Path::new("/w/cron")).unwrap();
        put(&disk, "cron/jobs.json", &json!({"jobs": [hourly("a")]}).to_string());
        disk.fail_next(Fault::ReadEio);
        let stage = Stage::on(disk, Double::new());
        assert_eq!(stage.ask(Ask::List).await, Err(Refusal::Unread));
        stage.wait(11_000).await;
        assert_eq!(stage.list().await.len(), 1);
        assert_eq!(stage.names(), [EventName::CronUnsaved, EventName::CronSaved]);
    });
}

#[test]
fn a_crash_forgets_nothing_but_who_asked() {
    run_paused("crash", async {
        let stage = Stage::new(json!({"jobs": [hourly("a")]}));
        stage.ask(Ask::Add(draft())).await.unwrap();
        tell(&stage.cron.clone().recipient(), Crash).unwrap();
        stage.wait(2000).await;
        assert_eq!(stage.list().await.len(), 2);
        let ids = [stage.double.next().await, stage.double.next().await].map(|message| said(&message).1);
        assert_ne!(ids[0], ids[1]);
    });
}
