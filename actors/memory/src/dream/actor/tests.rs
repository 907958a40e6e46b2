use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;

use actix::Recipient;
use domain::chat::{StopReason, Usage};
use domain::command::Guide;
use domain::cron::Timing;
use domain::heartbeat::{EVALUATOR, EVALUATOR_FILE};
use domain::ids::TurnId;
use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::tz::TimeZone;
use protocol::metrics::Metrics;
use protocol::turn::{TurnWatch, WatchedTooMany};
use supervision::log::MemoryLog;
use supervision::memory::{PowerCutDisk, RuntimeClock, memory_ports};
use supervision::ports::{Disk, Ports};
use supervision::{LocalPlacement, tell};
use testkit::deadline::{run_paused, with_deadline};
use tokio::sync::mpsc;

use super::super::Turns;
use super::*;
use crate::files::{read_text, replace};

const HOUR: Duration = Duration::from_secs(3600);
const HISTORY: &str = "memory/history.jsonl";
const MEMORY: &str = "memory/MEMORY.md";
const CURSOR: &str = "memory/.dream_cursor";

/// The sessions: accept what is begun, and tell its end when the test says so.
struct Sessions {
    begun: mpsc::UnboundedSender<(SessionKey, TurnId, String)>,
    deleted: mpsc::UnboundedSender<SessionKey>,
    refuses: Mutex<Option<String>>,
    known: Mutex<BTreeMap<TurnId, TurnRecord>>,
    watchers: Mutex<BTreeMap<TurnId, Recipient<TurnEnded>>>,
}

impl Turns for Sessions {
    fn begin(&self, key: &SessionKey, turn: TurnId, text: String) -> BoxFuture<'static, Result<(), String>> {
        if let Some(why) = self.refuses.lock().unwrap().clone() {
            return std::future::ready(Err(why)).boxed();
        }
        self.known.lock().unwrap().insert(turn, TurnRecord::Open);
        self.begun.send((key.clone(), turn, text)).unwrap();
        std::future::ready(Ok(())).boxed()
    }

    fn read(&self, _: &SessionKey, turn: TurnId) -> BoxFuture<'static, Result<Option<TurnRecord>, String>> {
        let known = self.known.lock().unwrap().get(&turn).cloned();
        std::future::ready(Ok(known)).boxed()
    }

    fn delete(&self, key: &SessionKey) -> BoxFuture<'static, Result<(), String>> {
        self.deleted.send(key.clone()).unwrap();
        std::future::ready(Ok(())).boxed()
    }
}

impl TurnWatch for Sessions {
    fn watch(&self, _: &SessionKey, turn: TurnId, to: Recipient<TurnEnded>) -> Result<(), WatchedTooMany> {
        self.watchers.lock().unwrap().insert(turn, to);
        Ok(())
    }

    fn accepted(&self, _: TurnId) {}

    fn ended(&self, _: TurnEnded) {
        unreachable!("ends are looked for in transcripts by nobody here")
    }

    fn unwatch(&self, turn: TurnId) {
        self.watchers.lock().unwrap().remove(&turn);
    }
}

#[derive(actix::Message)]
#[rtype(result = "()")]
struct Crash;

impl Handler<Crash> for Dreamer {
    type Result = ();

    fn handle(&mut self, _: Crash, _: &mut Self::Context) {
        panic!("a handler fails");
    }
}

struct Stage {
    disk: Arc<PowerCutDisk>,
    ports: Ports,
    metrics: Metrics,
    sessions: Arc<Sessions>,
    begun: mpsc::UnboundedReceiver<(SessionKey, TurnId, String)>,
    deleted: mpsc::UnboundedReceiver<SessionKey>,
}

impl Stage {
    fn new() -> Self {
        let disk = PowerCutDisk::new();
        disk.create_dir_all(Path::new("/w")).unwrap();
        let ports = memory_ports(Arc::clone(&disk), RuntimeClock::new(), 1);
        let (begin, begun) = mpsc::unbounded_channel();
        let (delete, deleted) = mpsc::unbounded_channel();
        let sessions = Sessions {
            begun: begin,
            deleted: delete,
            refuses: Mutex::default(),
            known: Mutex::default(),
            watchers: Mutex::default(),
        };
        Self { disk, ports, metrics: Metrics::default(), sessions: Arc::new(sessions), begun, deleted }
    }

    /// Another life of the process.
    fn start(&self, pace: Pace) -> Addr<Dreamer> {
        let deps = DreamDeps {
            ports: self.ports.clone(),
            metrics: self.metrics.clone(),
            turns: self.sessions.clone(),
            ends: self.sessions.clone(),
            pace,
            memory_bytes_max: 32,
        };
        let archive = Arc::new(Archive::new("/w".into(), TimeZone::UTC));
        let kernel = Kernel::new(self.ports.clone(), MemoryLog::new(), self.metrics.clone());
        Dreamer::start(&kernel, &LocalPlacement::new(), RestartPolicy::default(), deps, archive)
    }

    fn remember(&self, cursors: std::ops::RangeInclusive<u64>) {
        let line = |cursor| format!("{{\"cursor\":{cursor},\"timestamp\":\"t\",\"content\":\"said {cursor}\"}}\n");
        self.write(HISTORY, &cursors.map(line).collect::<String>());
    }

    fn write(&self, path: &str, text: &str) {
        replace(&*self.disk, Path::new("/w"), path, text.as_bytes()).unwrap();
    }

    fn read(&self, path: &str) -> Option<String> {
        read_text(&*self.disk, Path::new("/w"), path, 1 << 20).unwrap()
    }

    async fn next(&mut self) -> (SessionKey, TurnId, String) {
        with_deadline("a Dream", self.begun.recv()).await.unwrap()
    }

    fn end(&self, key: &SessionKey, turn: TurnId, result: TurnResult) {
        let record = TurnRecord::Ended {
            result,
            into: None,
            text: String::new(),
            stop: StopReason::Stop,
            usage: Usage::default(),
            model: "m".to_owned(),
        };
        self.sessions.known.lock().unwrap().insert(turn, record);
        let watcher = self.sessions.watchers.lock().unwrap().remove(&turn);
        let ended =
            TurnEnded { key: key.clone(), turn, result, text: "".into(), usage: Usage::default(), model: "m".into() };
        if let Some(watcher) = watcher {
            tell(&watcher, ended).unwrap();
        }
    }

    fn count(&self, result: &'static str) -> u64 {
        self.metrics.work.dreams.get_or_create(&ByResult { result }).get()
    }
}

async fn ask(dreamer: &Addr<Dreamer>, ask: DreamAsk) -> String {
    let (reply, told) = oneshot::channel();
    tell(&dreamer.clone().recipient(), AskDream { ask, reply }).unwrap();
    with_deadline("an answer", told).await.unwrap().unwrap_or_else(|why| why)
}

fn every_two_hours() -> Pace {
    Pace::By(Timing::Every(2 * 3_600_000))
}

/// Lets everything that is ready happen.
async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

#[test]
fn each_two_hours_twenty_lines_are_worked_in_and_passed_once_that_is_answered() {
    run_paused("dreams", async {
        let mut stage = Stage::new();
        stage.remember(1..=25);
        stage.write(MEMORY, "old\n");
        let _dreamer = stage.start(every_two_hours());
        tokio::time::sleep(2 * HOUR - Duration::from_secs(1)).await;
        settle().await;
        assert!(stage.begun.try_recv().is_err(), "it is not time");
        let (key, turn, text) = stage.next().await;
        assert!(key.as_str().starts_with("dream:"), "{key}");
        assert!(text.contains("said 1\n") && text.contains("said 20") && !text.contains("said 21"), "{text}");
        assert!(text.contains("```\nold\n```"), "{text}");
        stage.write(MEMORY, "old\nnew\n");
        stage.end(&key, turn, TurnResult::Done);
        settle().await;
        assert_eq!(stage.read(CURSOR).as_deref(), Some("20"));
        let (key, turn, text) = stage.next().await;
        assert!(text.contains("said 21") && !text.contains("said 20\n"), "{text}");
        stage.end(&key, turn, TurnResult::Failed);
        settle().await;
        assert_eq!(stage.read(CURSOR).as_deref(), Some("20"), "what was not answered is not passed");
        let (_, _, again) = stage.next().await;
        assert_eq!(again, text);
        assert_eq!((stage.count("done"), stage.count("failed")), (1, 1));
    });
}

#[test]
fn the_time_of_the_last_dream_counts_also_in_another_life() {
    run_paused("an earlier life", async {
        let mut stage = Stage::new();
        stage.remember(1..=2);
        let last_ms = stage.ports.clock.wall_ms();
        tokio::time::sleep(HOUR).await;
        stage.write("memory/.dream.json", &format!("{{\"last_ms\":{last_ms}}}"));
        let dreamer = stage.start(every_two_hours());
        let (key, turn, _) = stage.next().await;
        let waited = stage.ports.clock.wall_ms() - last_ms;
        assert!((7_200_000..7_210_000).contains(&waited), "{waited}");
        tell(&dreamer.clone().recipient(), Crash).unwrap();
        stage.end(&key, turn, TurnResult::Done);
        tokio::time::sleep(LOOK_AFTER_MAX * 2).await;
        assert_eq!(stage.read(CURSOR).as_deref(), Some("2"));
        assert!(stage.begun.try_recv().is_err(), "it was not begun twice");
        assert_eq!(stage.count("done"), 1);
    });
}

#[test]
fn what_an_earlier_life_began_is_asked_how_it_ended() {
    for (record, cursor, count) in [("done", Some("2"), 1), ("open", Some("2"), 1), ("unknown", None, 0)] {
        run_paused("a Dream of an earlier life", async {
            let stage = Stage::new();
            stage.remember(1..=2);
            let (key, turn) = (SessionKey::new("dream:1").unwrap(), TurnId(stage.ports.ids.uuid_v7()));
            let last_ms = stage.ports.clock.wall_ms();
            let running = Running { key: key.clone(), turn, upto: 2 };
            let standing = Standing { last_ms, running: Some(running), sessions: Vec::new() };
            stage.write("memory/.dream.json", &serde_json::to_string(&standing).unwrap());
            match record {
                "done" => stage.end(&key, turn, TurnResult::Done),
                "open" => drop(stage.sessions.known.lock().unwrap().insert(turn, TurnRecord::Open)),
                other => assert_eq!(other, "unknown"),
            }
            let _dreamer = stage.start(every_two_hours());
            settle().await;
            if record == "open" {
                assert_eq!(stage.read(CURSOR), None);
                stage.end(&key, turn, TurnResult::Done);
                settle().await;
            }
            assert_eq!(stage.read(CURSOR).as_deref(), cursor, "{record}");
            assert_eq!(stage.count("done"), count, "{record}");
            assert!(!stage.read("memory/.dream.json").unwrap().contains("running"), "{record}");
        });
    }
}

#[test]
fn the_prompt_of_the_heartbeats_judge_is_written_once_and_never_over_what_is_there() {
    run_paused("/evaluator-prompt", async {
        let stage = Stage::new();
        let dreamer = stage.start(Pace::Off);
        settle().await;
        let asked = async |init| ask(&dreamer, DreamAsk::Prompt { of: Guide::Evaluator, init }).await;
        assert!(asked(false).await.contains("follows what is built in. `/evaluator-prompt init`"));
        assert_eq!(stage.read(EVALUATOR_FILE), None, "who only asks writes nothing");
        assert!(asked(true).await.starts_with("prompts/evaluator.md has"));
        assert_eq!(stage.read(EVALUATOR_FILE).as_deref(), Some(EVALUATOR));
        for (own, told) in [("Tell all.", "follows prompts/evaluator.md (9 characters)"), (" \n", "is empty")] {
            stage.write(EVALUATOR_FILE, own);
            let answer = asked(true).await;
            assert!(answer.contains(told) && answer.ends_with("Nothing was changed."), "{answer}");
            assert_eq!(stage.read(EVALUATOR_FILE).as_deref(), Some(own));
        }
        assert_eq!(stage.read("prompts/dream.md"), None);
    });
}

#[test]
fn who_asks_is_told_what_is_done() {
    run_paused("/dream", async {
        let mut stage = Stage::new();
        let dreamer = stage.start(every_two_hours());
        settle().await;
        assert!(ask(&dreamer, DreamAsk::Begin).await.contains("nothing new"));
        assert!(ask(&dreamer, DreamAsk::Log(None)).await.contains("No version"));
        stage.remember(1..=21);
        let told = ask(&dreamer, DreamAsk::Begin).await;
        assert!(told.contains("20 lines in session dream:") && told.contains("1 more"), "{told}");
        let (key, turn, _) = stage.next().await;
        assert!(ask(&dreamer, DreamAsk::Begin).await.contains("under way"));
        assert!(ask(&dreamer, DreamAsk::Restore(Some("abcd".to_owned()))).await.contains("under way"));
        stage.write(MEMORY, "learnt\n");
        stage.end(&key, turn, TurnResult::Done);
        settle().await;
        let log = ask(&dreamer, DreamAsk::Log(None)).await;
        assert!(log.contains("+learnt") && log.contains(key.as_str()), "{log}");
        let id: String = log.chars().take(8).collect();
        let restored = ask(&dreamer, DreamAsk::Restore(Some(id))).await;
        assert!(restored.contains("This is version"), "{restored}");
        assert_eq!(stage.read(MEMORY), None);
        assert!(ask(&dreamer, DreamAsk::Restore(None)).await.starts_with(|first: char| first.is_ascii_hexdigit()));
        assert!(ask(&dreamer, DreamAsk::Log(Some("ffff0000".to_owned()))).await.contains("no version"));
        assert!(ask(&dreamer, DreamAsk::Prompt { of: Guide::Dream, init: false }).await.contains("built in"));
        ask(&dreamer, DreamAsk::Prompt { of: Guide::Dream, init: true }).await;
        assert_eq!(stage.read("prompts/dream.md").as_deref(), Some(domain::memory::dream::GUIDE));
        stage.write("prompts/dream.md", "my own guide");
        stage.remember(22..=22);
        ask(&dreamer, DreamAsk::Begin).await;
        assert!(stage.next().await.2.starts_with("my own guide\n"));
    });
}

#[test]
fn a_refused_dream_is_tried_again_at_its_time() {
    run_paused("a refused dream", async {
        let mut stage = Stage::new();
        stage.remember(1..=1);
        *stage.sessions.refuses.lock().unwrap() = Some("the gateway is too busy".to_owned());
        let dreamer = stage.start(every_two_hours());
        settle().await;
        assert_eq!(ask(&dreamer, DreamAsk::Begin).await, "Dream cannot begin: the gateway is too busy.");
        *stage.sessions.refuses.lock().unwrap() = None;
        stage.next().await;
        assert_eq!(stage.count("refused"), 1);
    });
}

#[test]
fn the_sessions_of_old_dreams_go() {
    run_paused("old dreams", async {
        let mut stage = Stage::new();
        let dreamer = stage.start(every_two_hours());
        settle().await;
        let mut keys = Vec::new();
        for cursor in 1..=11 {
            stage.remember(cursor..=cursor);
            ask(&dreamer, DreamAsk::Begin).await;
            let (key, turn, _) = stage.next().await;
            stage.end(&key, turn, TurnResult::Done);
            // Keys are told apart by the second.
            tokio::time::sleep(Duration::from_secs(2)).await;
            keys.push(key);
        }
        assert_eq!(stage.deleted.try_recv().ok().as_ref(), keys.first());
        assert!(stage.deleted.try_recv().is_err());
    });
}

#[test]
fn a_memory_that_is_too_large_is_told_and_shortened() {
    run_paused("a large memory", async {
        let mut stage = Stage::new();
        stage.write(MEMORY, &"x".repeat(33));
        let dreamer = stage.start(every_two_hours());
        settle().await;
        assert_eq!(stage.metrics.degraded(), ["memory_file_large"]);
        assert!(stage.begun.try_recv().is_err(), "it is not time");
        tokio::time::sleep(2 * HOUR).await;
        let (key, turn, text) = stage.next().await;
        assert!(text.contains("more than 32 bytes") && text.contains("\nNothing."), "{text}");
        // Nobody shortened it: the next time asks again.
        stage.end(&key, turn, TurnResult::Done);
        settle().await;
        assert_eq!(stage.metrics.degraded(), ["memory_file_large"]);
        ask(&dreamer, DreamAsk::Begin).await;
        let (key, turn, _) = stage.next().await;
        stage.write(MEMORY, "short\n");
        stage.end(&key, turn, TurnResult::Done);
        settle().await;
        assert!(stage.metrics.degraded().is_empty());
        assert_eq!(stage.metrics.work.memory_file_bytes.get(), 6);
        assert!(ask(&dreamer, DreamAsk::Log(None)).await.contains(&"x".repeat(33)), "what it said is kept");
    });
}

#[test]
fn who_does_not_dream_passes_all_and_who_cannot_writes_nothing() {
    run_paused("no dreams", async {
        let mut stage = Stage::new();
        stage.remember(1..=3);
        let dreamer = stage.start(Pace::Not("no gateway"));
        settle().await;
        assert_eq!(ask(&dreamer, DreamAsk::Begin).await, "no gateway");
        assert_eq!((stage.read(CURSOR), stage.read("memory/.dream.json")), (None, None));
        let dreamer = stage.start(Pace::Off);
        settle().await;
        assert_eq!(stage.read(CURSOR).as_deref(), Some("3"));
        assert!(ask(&dreamer, DreamAsk::Begin).await.contains("switched off"));
        tokio::time::sleep(3 * HOUR).await;
        assert!(stage.begun.try_recv().is_err());
    });
}
