//! Jobs, as a model makes them.

use std::sync::{Arc, Mutex};

use domain::cron::scheduler::{Input, Refusal};
use domain::cron::{JobId, Scheduler, Zones};
use jiff::tz::TimeZone;
use protocol::cron::{Answer, Ask, Jobs};
use protocol::tools::ToolEnd;
use protocol::turn::{PushRoute, Route};
use serde_json::json;
use testkit::deadline::run;
use tokio::sync::oneshot;

use super::Bench;
use crate::{Cron, SandboxChoice};

/// 2026-03-28T08:00:00Z.
const NOW: u64 = 1_774_684_800_000;

/// A scheduler without a clock.
struct Desk {
    zone: TimeZone,
    scheduler: Mutex<Scheduler>,
    gone: bool,
}

impl Desk {
    fn new(gone: bool) -> Arc<Self> {
        let zone = TimeZone::get("Europe/Berlin").unwrap();
        let mut scheduler = Scheduler::new(Zones { local: zone.clone(), named: |name| TimeZone::get(name).ok() });
        let system = json!({"jobs": [{"id": "dream", "name": "d", "schedule": {"kind": "every", "everyMs": 7}, "payload": {"kind": "system_event"}}]});
        let file = domain::cron::file::File::decode(system.to_string().as_bytes()).unwrap();
        scheduler.step(Input::Read { file: Some(file), actions: vec![] }, NOW);
        Arc::new(Self { zone, scheduler: scheduler.into(), gone })
    }
}

impl Jobs for Desk {
    fn ask(&self, ask: Ask) -> oneshot::Receiver<Result<Answer, Refusal>> {
        let (reply, answer) = oneshot::channel();
        if self.gone {
            return answer;
        }
        let mut scheduler = self.scheduler.lock().unwrap();
        let count = scheduler.count().0;
        let jobs = match ask {
            Ask::List => scheduler.list(),
            Ask::Add(draft) => {
                let id = JobId::new(&format!("0000000{count}")).unwrap();
                scheduler.add(id, *draft, NOW).map(|(job, _)| vec![job])
            }
            Ask::Remove(id) => scheduler.remove(&id, NOW).map(|(job, _)| vec![job]),
            other @ (Ask::Show(_) | Ask::Enable { .. } | Ask::Run(_)) => panic!("{other:?}"),
        };
        let _ = reply.send(jobs.map(|jobs| Answer { jobs, unsaved: None }));
        answer
    }

    fn zone(&self) -> &TimeZone {
        &self.zone
    }
}

fn bench(gone: bool) -> (Bench, Arc<Desk>) {
    let desk = Desk::new(gone);
    (Bench::with(SandboxChoice::Off, vec![Arc::new(Cron::new(desk.clone()))]), desk)
}

#[test]
fn jobs_are_made_shown_and_removed() {
    run("jobs", async {
        let (mut bench, desk) = bench(false);
        for (arguments, expect) in [
            (
                json!({"action": "add", "message": "make tea", "at": "2026-03-29T02:30"}),
                "Made the job \"make tea\" (00000001): at 2026-03-29 03:00:00 CEST, next at 2026-03-29 03:00:00 CEST.",
            ),
            (
                json!({"action": "add", "message": "look", "name": "eyes", "every_seconds": "3600", "isolated": true}),
                "Made the job \"eyes\" (00000002): every 1 h, next at 2026-03-28 10:00:00 CET.",
            ),
            (
                json!({"action": "add", "message": "work", "cron_expr": "0 9 * * mon-fri", "tz": "UTC", "missed": "all"}),
                "Made the job \"work\" (00000003): 0 9 * * mon-fri (UTC), next at 2026-03-30 11:00:00 CEST.",
            ),
            (json!({"action": "remove", "job_id": "00000002"}), "Removed the job \"eyes\" (00000002)."),
            (
                json!({"action": "list"}),
                "- \"make tea\" (00000001): at 2026-03-29 03:00:00 CEST, next at 2026-03-29 03:00:00 CEST\n\
                 - \"work\" (00000003): 0 9 * * mon-fri (UTC), next at 2026-03-30 11:00:00 CEST\n\
                 - \"d\" (dream, of the system): every 7 ms, not due any more\n",
            ),
        ] {
            assert_eq!(bench.call("cron", arguments).await, (ToolEnd::Ok, expect.to_owned()));
        }
        let file = desk.scheduler.lock().unwrap().file();
        let tea = &file.jobs[1].payload;
        assert_eq!(tea.session_key.as_deref(), Some("cli:direct"));
        assert_eq!((tea.origin_channel.as_deref(), tea.origin_chat_id.as_deref()), (Some("cli"), Some("direct")));
    });
}

#[test]
fn what_cannot_be_done_is_said_in_the_words_of_the_arguments() {
    run("refusals", async {
        let (mut bench, _) = bench(false);
        for (arguments, expect) in [
            (json!({"action": "add", "at": "2026-12-24"}), "add needs message"),
            (json!({"action": "add", "message": "m"}), "add needs exactly one of at, every_seconds and cron_expr"),
            (
                json!({"action": "add", "message": "m", "at": "2026-12-24", "every_seconds": 5}),
                "add needs exactly one of",
            ),
            (json!({"action": "add", "message": "m", "at": "soon"}), "at: `soon` is no time"),
            (json!({"action": "add", "message": "m", "at": "2026-01-01"}), "at is in the past"),
            (json!({"action": "add", "message": "m", "cron_expr": "0 25 * * *"}), "cron_expr: the hour `25`"),
            (
                json!({"action": "add", "message": "m", "cron_expr": "0 9 * * *", "tz": "Moon"}),
                "tz `Moon` is not a known",
            ),
            (
                json!({"action": "add", "message": "m", "every_seconds": 5, "tz": "UTC"}),
                "tz can be given for patterns only",
            ),
            (json!({"action": "remove"}), "remove needs job_id"),
            (json!({"action": "remove", "job_id": "dream"}), "job dream belongs to the system"),
            (json!({"action": "remove", "job_id": "nope"}), "there is no job nope"),
        ] {
            let (end, text) = bench.call("cron", arguments).await;
            assert!(end == ToolEnd::Error && text.starts_with(&format!("Error: {expect}")), "{text}");
        }
    });
}

#[test]
fn jobs_come_from_chats_and_not_from_jobs() {
    run("routes", async {
        let (mut bench, desk) = bench(false);
        let add = json!({"action": "add", "message": "m", "every_seconds": 60});
        bench.be("cli:direct", "cron");
        let (end, text) = bench.call("cron", add.clone()).await;
        assert!(end == ToolEnd::Error && text.starts_with("Error: a scheduled job cannot schedule jobs"), "{text}");
        bench.be("api:default", "api");
        bench.route = Route::Reply;
        let (end, text) = bench.call("cron", add.clone()).await;
        assert!(end == ToolEnd::Error && text.contains("there is no chat"), "{text}");
        bench.be("agent:main:main", "cli");
        bench.route = Route::Push(PushRoute {
            channel: "webhook".into(),
            account: "b".into(),
            chat: "7".into(),
            thread: Some("t".into()),
        });
        assert_eq!(bench.call("cron", add.clone()).await.0, ToolEnd::Ok);
        let payload = desk.scheduler.lock().unwrap().file().jobs.pop().unwrap().payload;
        assert_eq!(payload.session_key.as_deref(), Some("agent:main:main"));
        assert_eq!(
            (payload.origin_channel.as_deref(), payload.origin_chat_id.as_deref()),
            (Some("webhook"), Some("7"))
        );
        assert_eq!((payload.origin("account").as_deref(), payload.origin("thread").as_deref()), (Some("b"), Some("t")));
        bench.be("telegram:7", "telegram");
        assert!(bench.call("cron", add).await.1.contains("not open to this session"));
    });
}

#[test]
fn without_a_gateway_nothing_is_promised() {
    run("gone", async {
        let (mut bench, _) = bench(true);
        let (end, text) = bench.call("cron", json!({"action": "list"})).await;
        assert!(end == ToolEnd::Error && text.contains("only while the gateway runs"), "{text}");
    });
}
