use std::path::Path;
use std::sync::Mutex;

use supervision::log::MemoryLog;
use supervision::memory::{PowerCutDisk, RuntimeClock, memory_ports};
use supervision::ports::{Disk, Offload, Open};
use supervision::{Kernel, LocalPlacement, tell};
use testkit::deadline::run_paused;
use testkit::journal::QuietJournal;

use super::*;
use crate::actor::tests::{double::Double, ended};
use domain::ids::SessionKey;
use domain::trigger::{Status, TriggerId};
use protocol::session::TurnRecord;
use protocol::trigger::TriggerBook;
use protocol::turn::TurnResult;
use serde_json::Value;

struct Stage {
    disk: Arc<PowerCutDisk>,
    store: Arc<TriggerStore>,
    double: Arc<Double>,
    log: Arc<MemoryLog>,
    metrics: Metrics,
    actor: Addr<Triggers>,
    id: TriggerId,
}

#[derive(actix::Message)]
#[rtype(result = "()")]
struct Crash;

impl Handler<Crash> for Triggers {
    type Result = ();

    fn handle(&mut self, _: Crash, _: &mut Self::Context) {
        panic!("a handler fails");
    }
}

/// A pool that does nothing while it hangs.
#[derive(Default)]
struct Hanging {
    hangs: Mutex<bool>,
    late: Mutex<Vec<Box<dyn FnOnce() + Send>>>,
}

impl Offload for Hanging {
    fn run(&self, job: Box<dyn FnOnce() + Send>) {
        if *self.hangs.lock().unwrap() {
            self.late.lock().unwrap().push(job);
        } else {
            job();
        }
    }
}

impl Stage {
    fn new() -> (Self, Arc<Hanging>) {
        let disk = PowerCutDisk::new();
        disk.create_dir_all(Path::new("/w")).unwrap();
        Self::on(disk, Double::new())
    }

    fn on(disk: Arc<PowerCutDisk>, double: Arc<Double>) -> (Self, Arc<Hanging>) {
        let pool = Arc::new(Hanging::default());
        let ports = memory_ports(Arc::clone(&disk), RuntimeClock::new(), 1);
        let ports = Ports { offload: pool.clone(), ..ports };
        let (metrics, log) = (Metrics::default(), MemoryLog::new());
        let store = Arc::new(TriggerStore::new("/w".into(), ports.clone()));
        let target = Target::of_session(SessionKey::new("webhook:7").unwrap());
        let id = store.create(b"seed", "door", &target).unwrap().id;
        let deps = TriggersDeps {
            ports: ports.clone(),
            metrics: metrics.clone(),
            log: log.clone(),
            journal: Arc::new(QuietJournal(double.clone())),
            sessions: double.clone(),
            ends: double.clone(),
            store: store.clone(),
            channels: [Arc::from("webhook")].into(),
        };
        let kernel = Kernel::new(ports, log.clone(), metrics.clone());
        let actor = Triggers::start(&kernel, &LocalPlacement::new(), RestartPolicy::default(), deps);
        (Self { disk, store, double, log, metrics, actor, id }, pool)
    }

    fn put(&self, message: &str) -> String {
        self.store.put(&self.id, message.to_owned()).unwrap()
    }

    fn count(&self, result: &'static str) -> u64 {
        self.metrics.triggers.deliveries.get_or_create(&ByResult { result }).get()
    }

    fn names(&self, directory: &str) -> Vec<String> {
        let paths = self.disk.list(&Path::new("/w/triggers").join(directory)).unwrap_or_default();
        paths.iter().map(|path| path.file_name().unwrap().to_str().unwrap().to_owned()).collect()
    }

    async fn wait(&self, ms: u64) {
        tokio::time::sleep(Duration::from_millis(ms)).await;
    }
}

#[test]
fn what_is_handed_in_is_an_event_of_its_session_and_its_end_is_written_down() {
    run_paused("a delivery", async {
        let (stage, _) = Stage::new();
        let name = stage.put("the backup is done");
        let message = stage.double.next().await;
        assert_eq!((message.key.as_str(), message.source.as_str()), ("webhook:7", "trigger"));
        assert_eq!(format!("{}.json", message.message_id), name);
        assert!(matches!(&message.route, Route::Push(route) if &*route.chat == "7"), "{:?}", message.route);
        let body = TurnBody::decode(&message.body).unwrap();
        assert_eq!(domain::chat::plain_text(&body.content), "the backup is done");
        let event = body.event.unwrap();
        assert_eq!((event.kind, &*event.id, &*event.name), (EventKind::Trigger, stage.id.as_str(), "door"));
        stage.wait(1).await;
        assert_eq!((stage.names("processing"), stage.names("runs")), (vec![], vec![name]));
        stage.double.end(message.turn, TurnResult::Done, "good");
        stage.wait(1).await;
        let trigger = stage.store.list().unwrap().remove(0);
        assert_eq!((trigger.last_status, stage.count("accepted"), stage.count("ok")), (Some(Status::Ok), 1, 1));
        stage.put("more");
        let message = stage.double.next().await;
        stage.wait(1).await;
        stage.double.end(message.turn, TurnResult::Failed, "no model\nmore");
        stage.wait(1).await;
        assert_eq!(stage.store.list().unwrap()[0].last_error.as_deref(), Some("no model"));
    });
}

#[test]
fn a_refused_delivery_is_tried_ten_times_and_then_given_up_with_a_word() {
    run_paused("refused", async {
        let (stage, _) = Stage::new();
        stage.double.refuse(12);
        let name = stage.put("x");
        let mut ids = BTreeSet::new();
        for _ in 0..10 {
            ids.insert(stage.double.next().await.message_id);
        }
        assert_eq!(ids.len(), 1, "it is the same message");
        stage.wait(1).await;
        assert_eq!((stage.names("processing"), stage.names("failed")), (vec![], vec![name]));
        let told = stage.log.named(EventName::CronFailed).remove(0);
        assert!(told.reason.unwrap().contains("is given up"));
        assert_eq!((told.path, told.session.unwrap().as_str()), (ActorPath(PATH.into()), "webhook:7"));
        assert_eq!((stage.count("refused"), stage.count("failed")), (10, 1));
        assert_eq!(stage.store.list().unwrap()[0].last_status, Some(Status::Error));
        assert_eq!(stage.double.watched(), 0);
        // Another one is not held up by it.
        stage.double.refuse(0);
        stage.put("y");
        stage.double.next().await;
    });
}

#[test]
fn what_a_process_left_is_one_message_still() {
    run_paused("death", async {
        let (first, _) = Stage::new();
        let name = first.put("x");
        let place = |directory: &str| Path::new("/w/triggers").join(directory).join(&name);
        let bytes = first.disk.read(&place("inbox")).unwrap();
        let message = first.double.next().await;
        // The journal had it, and the file was not removed yet.
        let left = first.disk.copy();
        left.open(&place("processing"), Open::Create).unwrap().write_at(&bytes, 0).unwrap();
        let double = first.double.reborn();
        double.know(message.turn, Some(TurnRecord::Open));
        let (second, _) = Stage::on(left, double);
        let again = second.double.next().await;
        assert_eq!((&again.message_id, again.body_hash), (&message.message_id, message.body_hash));
        second.wait(1).await;
        assert_eq!((second.names("processing"), second.names("runs")), (vec![], vec![name]));
        second.double.end(message.turn, TurnResult::Done, "good");
        second.wait(1).await;
        assert_eq!(second.store.list().unwrap()[0].last_status, Some(Status::Ok));
    });
}

#[test]
fn an_end_that_no_process_saw_is_written_down_by_the_next_one() {
    for (record, expect) in
        [(Some(ended(TurnResult::Done)), "ok"), (Some(ended(TurnResult::Cancelled)), "error"), (None, "error")]
    {
        run_paused("unseen end", async {
            let (first, _) = Stage::new();
            let name = first.put("x");
            let message = first.double.next().await;
            first.wait(1).await;
            let double = first.double.reborn();
            double.know(message.turn, record);
            let (second, _) = Stage::on(first.disk.copy(), double);
            second.wait(1).await;
            let run = second.disk.read(&Path::new("/w/triggers/runs").join(name)).unwrap();
            assert_eq!(serde_json::from_slice::<Value>(&run).unwrap()["status"], expect);
            assert_eq!((second.count("ok") + second.count("error"), second.double.watched()), (1, 0));
            assert_eq!(second.double.count(), 0, "nothing is handed over again");
        });
    }
}

#[test]
fn a_crash_forgets_no_claim() {
    run_paused("crash", async {
        let (stage, _) = Stage::new();
        stage.double.refuse(1);
        stage.put("x");
        let first = stage.double.next().await;
        tell(&stage.actor.clone().recipient(), Crash).unwrap();
        let again = stage.double.next().await;
        assert_eq!(first.message_id, again.message_id);
        stage.wait(1).await;
        assert_eq!(stage.names("processing"), [""; 0]);
    });
}

#[test]
fn a_look_that_hangs_is_given_up_and_told_once() {
    run_paused("hang", async {
        let (stage, pool) = Stage::new();
        stage.wait(1).await;
        let name = stage.put("x");
        *pool.hangs.lock().unwrap() = true;
        stage.wait(60_000).await;
        assert_eq!(stage.metrics.triggers.poll_failures.get(), 2);
        let told = stage.log.named(EventName::CronFailed);
        assert!(told.len() == 1 && told[0].reason.as_deref().unwrap().contains("more than 10 s"), "{told:?}");
        *pool.hangs.lock().unwrap() = false;
        // What hung goes on at last, and claims for nobody.
        for job in std::mem::take(&mut *pool.late.lock().unwrap()) {
            job();
        }
        let message = stage.double.next().await;
        assert_eq!(format!("{}.json", message.message_id), name);
        stage.wait(60_000).await;
        assert_eq!((stage.double.count(), stage.names("processing").len()), (0, 0));
    });
}
