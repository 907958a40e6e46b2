//! Sub-agents, as a model sends and awaits them.

use std::sync::Arc;

use domain::chat::Arguments;
use domain::ids::SessionKey;
use domain::run::Saying;
use protocol::subagent::{NotSpawned, RunMail, RunRow};
use protocol::tools::ToolEnd;
use serde_json::{Value, json};
use testkit::deadline::run;
use testkit::probe::Probe;

use super::Bench;
use crate::{Offer, SandboxChoice, Spawn, Subagents, Tool};

/// A bench whose keeper is the probe.
fn bench(keeper: &Probe<RunMail>) -> Bench {
    let tools = ["cron", "exec", "read_file", "spawn"].map(str::to_owned).to_vec();
    let offer = Offer { presets: vec!["fast".into(), "far_away".into()], tools };
    let tools: [Arc<dyn Tool>; 2] =
        [Arc::new(Spawn::new(keeper.recipient(), offer)), Arc::new(Subagents::new(keeper.recipient()))];
    Bench::with(SandboxChoice::Off, tools.to_vec())
}

#[test]
fn what_cannot_be_given_is_refused_with_what_can_and_nothing_is_begun() {
    run("refusals", async {
        let mut keeper = Probe::new();
        let mut bench = bench(&keeper);
        for (more, why) in [
            (
                json!({"model": "slow"}),
                "there is no model preset \"slow\". Presets: default, fast, far_away. Nothing was",
            ),
            (
                json!({"agent": "work"}),
                "there is no agent \"work\" for sub-agents of this session. Agents: main. Nothing",
            ),
            (json!({"tools": ["exec", "fly"]}), "cannot be given \"fly\". Tools: exec, read_file. Nothing was begun."),
            (json!({"tools": ["cron"]}), "cannot be given \"cron\". Tools: exec, read_file."),
            (json!({"tools": ["spawn"]}), "cannot be given \"spawn\"."),
        ] {
            let mut arguments = json!({"task": "count"});
            arguments.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let (end, text) = bench.call("spawn", arguments).await;
            assert!(end == ToolEnd::Error && text.contains(why), "{more}: {text}");
        }
        assert!(keeper.try_next().is_none());
    });
}

#[test]
fn what_is_asked_for_is_what_the_keeper_is_told() {
    run("spawn", async {
        let mut keeper = Probe::new();
        let mut bench = bench(&keeper);
        bench.be("agent:work:main", "cli");
        let arguments = json!({"task": "count", "model": "Far-Away", "agentId": "work", "tools": ["exec"], "wait": true,
                               "context": "fork", "iterations": 3, "budget": 9});
        let Value::Object(arguments) = arguments else { panic!("an object") };
        bench.start("spawn", Arguments::Object(arguments));
        let RunMail::Spawn { spec, waits: true, reply } = keeper.next().await else { panic!("a spawn") };
        assert_eq!((spec.model.as_deref(), &*spec.tools), (Some("far_away"), &["exec".into()][..]));
        assert_eq!((spec.rounds, spec.budget_tokens, spec.fork, spec.timeout_s), (3, 9, true, 3600));
        reply.send(Err(NotSpawned::OverTree { left: 4, of: 5 })).unwrap();
        let (end, text) = bench.answer().await;
        assert!(end == ToolEnd::Error && text.contains("of the 5 tokens"), "{text}");
    });
}

fn row(state: &'static str) -> RunRow {
    let id = "00000000-0000-0000-0000-000000000007";
    RunRow {
        run: id.parse().unwrap(),
        parent: SessionKey::new("cli:direct").unwrap(),
        key: SessionKey::new("agent:main:subagent:7").unwrap(),
        label: "toads".into(),
        state,
        turn: id.parse().unwrap(),
        since_ms: 1,
        detached: false,
        text: Some("five of them".into()),
        usage: None,
        delivery: None,
    }
}

#[test]
fn who_waits_learns_that_they_ended_and_their_reports_say_what_they_found() {
    run("wait", async {
        let mut keeper = Probe::new();
        let mut bench = bench(&keeper);
        for timeout in [None, Some(1)] {
            let arguments = json!({"action": "wait", "any": true, "timeout": timeout.unwrap_or(3000)});
            let Value::Object(arguments) = arguments else { panic!("an object") };
            bench.start("subagents", Arguments::Object(arguments));
            let RunMail::List { reply, .. } = keeper.next().await else { panic!("a list") };
            reply.send(vec![row("running")]).unwrap();
            let RunMail::Wait { runs, any: true, reply } = keeper.next().await else { panic!("a wait") };
            assert_eq!(runs, [row("running").run]);
            let held = match timeout {
                None => reply.send(vec![row("done")]).err().map(|_| panic!("nobody waits")),
                Some(_) => Some(reply),
            };
            let (end, text) = bench.answer().await;
            assert_eq!(end, ToolEnd::Ok);
            if held.is_some() {
                assert!(text.starts_with("The time is over"), "{text}");
            } else {
                assert!(text.starts_with("Ended:\n- \"toads\": done (run") && !text.contains("five"), "{text}");
            }
        }
    });
}

#[test]
fn the_message_of_a_call_is_told_once_and_as_it_is_meant() {
    run("say", async {
        let mut keeper = Probe::new();
        let mut bench = bench(&keeper);
        let arguments = json!({"action": "steer", "runs": ["toads"], "message": "look left"});
        let Value::Object(arguments) = arguments else { panic!("an object") };
        bench.start("subagents", Arguments::Object(arguments));
        let RunMail::List { reply, .. } = keeper.next().await else { panic!("a list") };
        reply.send(vec![row("running")]).unwrap();
        let RunMail::Say { saying, text, reply, .. } = keeper.next().await else { panic!("words") };
        assert_eq!((saying, text.as_str()), (Saying::Steer, "look left"));
        reply.send(Ok(())).unwrap();
        assert_eq!(bench.answer().await, (ToolEnd::Ok, "Told.".to_owned()));
    });
}
