//! Sub-agents and those who sent them off: what becomes of one when something befalls the other.
//!
//! What users of other programs reported about sub-agents, and the test that would find it here, is a table in `faults`.

use std::sync::Arc;

use channel::hub::{Shown, Sink};
use domain::ids::SessionKey;
use greenroom::app::{App, Options};
use greenroom::config::{LoadRequest, load};
use protocol::turn::{TurnProgress, TurnResult};
use serde_json::{Value, json};
use testkit::deadline::with_deadline;
use testkit::model::Model;

use crate::subagents::{children, events, printed, sends, through, until};
use crate::support::{Gateway, Place, said};

/// A task with these directives, so long that its report does not repeat them to the parent's model.
fn task(directives: &str) -> String {
    format!("{}{directives}", "count the toads ".repeat(40))
}

async fn begin(extra: Value) -> (Place, Gateway, Model) {
    let model = Model::start_on_thread();
    let place = Place::with_model(&model.url(), extra);
    let gateway = place.start().await;
    (place, gateway, model)
}

fn rows(place: &Place) -> Vec<Value> {
    printed(place, &["list"])["items"].as_array().unwrap().clone()
}

async fn letters(gateway: &Gateway) -> Vec<Value> {
    gateway.admin("deadletters").await["items"].as_array().unwrap().clone()
}

/// How many processes have that argument.
fn processes(argument: &str) -> usize {
    let has = |entry: &std::fs::DirEntry| {
        // One that has ended meanwhile has none.
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|word| word == argument.as_bytes())
    };
    std::fs::read_dir("/proc").unwrap().flatten().filter(has).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_report_for_a_conversation_that_was_deleted_is_a_dead_letter_and_begins_no_other() {
    let (place, gateway, _model) = begin(json!({})).await;
    let detached = sends(&["count [[delay=1500]] [[say=5 toads]]"], json!({"detach": true}));
    gateway.say("cli:direct", &detached, "m1").await;
    gateway.post("sessions/cli%3Adirect/delete".to_owned()).await;
    until("the dead letter", async || letters(&gateway).await.len() == 1).await;
    let letter = letters(&gateway).await.remove(0);
    assert_eq!((&letter["kind"], &letter["channel"]), (&json!("delivery"), &json!("session")), "{letter}");
    assert!(letter["reason"].as_str().unwrap().contains("was deleted or put away"), "{letter}");
    let list = printed(&place, &["list"]);
    let row = &list["items"][0];
    assert_eq!((&row["state"], &row["delivery"]), (&json!("done"), &json!("undelivered")), "{list}");
    assert_eq!(list["undelivered"][0]["id"], letter["id"]);
    let known = gateway.admin("sessions").await;
    assert!(known["items"].as_array().unwrap().iter().all(|session| session["key"] != "cli:direct"), "{known}");
    // Another conversation of the same name did not ask for it either.
    gateway.say("cli:direct", "hello", "m2").await;
    let id = letter["id"].as_str().unwrap();
    gateway.post(format!("deadletters/{}/retry", id.replace(':', "%3A"))).await;
    gateway.delivered().await;
    until("the dead letter again", async || letters(&gateway).await.len() == 1).await;
    assert!(events(&place.transcript("cli.direct")).is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_stops_a_conversation_after_a_restart_stops_what_it_had_sent_off() {
    let (place, gateway, _model) = begin(json!({})).await;
    gateway.say("cli:direct", &sends(&["count [[hang]]"], json!({})), "m1").await;
    gateway.kill_nine();
    let gateway = place.start().await;
    gateway.post("sessions/cli%3Adirect/stop".to_owned()).await;
    until("the end of the child", async || gateway.admin("status").await["journal"]["cancelled"] == 1).await;
    gateway.delivered().await;
    assert!(events(&place.transcript("cli.direct")).is_empty());
    assert_eq!(rows(&place)[0]["state"], "cancelled");
}

/// Panics inside the session, when its turn reports that the tool `list_dir` begins.
struct Bomb;

impl Sink for Bomb {
    fn show(&self, shown: &Shown) {
        if let TurnProgress::ToolStarted { name, .. } = &shown.event.what {
            assert_ne!(name, "list_dir", "the bomb went off");
        }
    }
}

#[test]
fn the_dead_letter_of_a_turn_ends_what_it_had_sent_off() {
    let place = Place::empty();
    greenroom::run(async {
        let env = [("GREENROOM_HOME".to_owned(), place.path().display().to_string())].into();
        let loaded = load(&LoadRequest { config: None, workspace: None, env }).unwrap();
        let app = App::start(Options::embedded(loaded)).await.unwrap();
        let victim = SessionKey::new("cli:victim")?;
        let _bomb = app.hub().attach_chat(&victim, None, Arc::new(Bomb));
        let text = format!("{} [[tool@2=list_dir {{\"path\":\".\"}}]]", sends(&["count [[delay=600000]]"], json!({})));
        let poisoned = app.submit(&victim, &text).await?;
        let poisoned = with_deadline("dead letter", poisoned.finished()).await?;
        assert_eq!(poisoned.result, TurnResult::DeadLettered);
        until("the end of the child", async || app.journal().status().cancelled == 1).await;
        app.stop().await;
        Ok(())
    })
    .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_sub_agent_runs_is_killed_with_it_and_with_the_process() {
    for (number, stops) in [(1, true), (2, false)] {
        let (_place, gateway, _model) = begin(json!({"runtime": {"drainSeconds": 1}})).await;
        let seconds = format!("3{}.{number}", std::process::id());
        let command = json!({"command": format!("sleep {seconds} & sleep {seconds}")});
        let task = task(&format!("[[tool=exec {command}]]"));
        gateway.say("cli:direct", &sends(&[&task], json!({})), "m1").await;
        until("both processes", async || processes(&seconds) >= 2).await;
        let left = if stops {
            gateway.post("sessions/cli%3Adirect/stop".to_owned()).await;
            Some(gateway)
        } else {
            gateway.terminate().await;
            None
        };
        until("the end of both processes", async || processes(&seconds) == 0).await;
        drop(left);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tool_that_fails_ends_a_sub_agent_no_more_than_its_parent() {
    let (place, gateway, _model) = begin(json!({})).await;
    let fails = r#"[[tool=read_file {"path":"no-such-file"}]] [[say=there are none]]"#;
    assert_eq!(gateway.say("cli:parent", fails, "m1").await, "done");
    gateway.say("cli:direct", &sends(&[&task(fails)], json!({})), "m1").await;
    through(&gateway, 4).await;
    let told = events(&place.transcript("cli.direct"));
    assert!(
        matches!(&told[..], [(_, status, text)] if status == "done" && text.contains("there are none")),
        "{told:?}"
    );
    let result = |stem: &str| said(&place.transcript(stem)).into_iter().find(|(role, _)| role == "toolResult").unwrap();
    assert_eq!(result(&children(&place)[0]), result("cli.parent"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_report_that_is_refused_at_first_waits_is_seen_to_wait_and_comes() {
    let (place, gateway, _model) = begin(json!({"runtime": {"inboxMax": 1}})).await;
    let mut socket = gateway.client().await;
    socket.say("a", &sends(&[&task("[[delay=1500]] [[say=5 toads]]")], json!({})), "m1").await;
    socket.until("turn_end").await;
    // One that runs and one that waits: no more are taken.
    socket.say("a", "wait [[hang]]", "m2").await;
    until("the second turn", async || gateway.admin("status").await["turns_running"] == 2).await;
    socket.say("a", "and then", "m3").await;
    until("the end of the child", async || rows(&place)[0]["state"] == "done").await;
    let row = rows(&place).remove(0);
    assert_eq!(row["delivery"], "pending", "{row}");
    assert!(events(&place.transcript("websocket.a")).is_empty());
    socket.say("a", "/stop all", "m4").await;
    until("the report", async || rows(&place)[0]["delivery"] == "delivered").await;
    gateway.delivered().await;
    let told = events(&place.transcript("websocket.a"));
    assert!(matches!(&told[..], [(_, status, text)] if status == "done" && text.contains("5 toads")), "{told:?}");
    assert!(letters(&gateway).await.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_user_says_meanwhile_leaves_a_sub_agent_with_its_parent() {
    let (place, gateway, _model) = begin(json!({})).await;
    gateway.say("cli:direct", &sends(&[&task("[[delay=1500]] [[say=5 toads]]")], json!({})), "m1").await;
    assert_eq!(gateway.say("cli:direct", "hello", "m2").await, "done");
    let row = rows(&place).remove(0);
    assert_eq!((&row["state"], &row["parent"]), (&json!("running"), &json!("cli:direct")));
    through(&gateway, 4).await;
    let lines = place.transcript("cli.direct");
    let [(run, status, _)] = &events(&lines)[..] else { panic!("{lines:?}") };
    assert_eq!((json!(run), status), (row["run"].clone(), &json!("done")));
    let at = |is: &dyn Fn(&Value) -> bool| lines.iter().position(is).unwrap();
    let hello = at(&|line| line["message"]["content"][0]["text"] == "hello");
    assert!(hello < at(&|line| line["customType"] == "greenroom.event"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_cannot_go_on_has_failed_whatever_it_says() {
    let (place, gateway, _model) = begin(json!({})).await;
    let says = r#"[[tool=list_dir {"path":"."}]] [[error=400]] [[say=all done]]"#;
    gateway.say("cli:direct", &sends(&[&task(says)], json!({})), "m1").await;
    through(&gateway, 3).await;
    let told = events(&place.transcript("cli.direct"));
    assert!(matches!(&told[..], [(_, status, _)] if status == "failed"), "{told:?}");
    assert_eq!(rows(&place)[0]["state"], "failed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_begun_before_a_kill_is_not_done_again_unless_somebody_is_told() {
    let (place, gateway, model) = begin(json!({})).await;
    let command = json!({"command": "echo x >> ran; while [ ! -e go ]; do sleep 0.02; done"});
    let task = task(&format!("[[tool=exec {command}]] [[say=5 toads]]"));
    gateway.say("cli:direct", &sends(&[&task], json!({})), "m1").await;
    let workspace = place.path().join("workspace");
    let ran = || std::fs::read_to_string(workspace.join("ran")).unwrap_or_default();
    until("the command", async || ran() == "x\n").await;
    gateway.kill_nine();
    std::fs::write(workspace.join("go"), "").unwrap();
    let gateway = place.start().await;
    through(&gateway, 2).await;
    assert_eq!(ran(), "x\n");
    let results: Vec<String> = said(&place.transcript(&children(&place)[0]))
        .into_iter()
        .filter_map(|(role, text)| (role == "toolResult").then_some(text))
        .collect();
    assert!(matches!(&results[..], [text] if text.contains("unknown")), "{results:?}");
    assert_eq!(events(&place.transcript("cli.direct"))[0].1, "done");
    let run = rows(&place)[0]["run"].as_str().unwrap().to_owned();
    let out = place.run(&["subagents", "retry", &run]);
    let said = String::from_utf8(out.stdout).unwrap();
    assert!(said.contains(&format!("{run} had called exec: what that did stands")), "{said}");
    until("the command again", async || ran() == "x\nx\n").await;
    gateway.delivered().await;
    let again = format!("The task was given out before (run {run})");
    let told = |request: &Value| request["messages"][0]["content"].as_str().unwrap().contains(&again);
    assert!(model.requests().iter().any(told), "the model of the second run is told of the first");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sub_agents_are_seen_wherever_sessions_are() {
    let (place, gateway, _model) = begin(json!({})).await;
    gateway.say("cli:direct", &sends(&["count [[hang]]"], json!({})), "m1").await;
    let key = rows(&place)[0]["key"].as_str().unwrap().to_owned();
    let printed = |arguments: &[&str]| {
        let out = place.run(arguments);
        assert!(out.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap()
    };
    let tree = printed(&["tree"]);
    assert!(tree.contains("─ subagent  running") && tree.contains(&format!("{key}  thinking")), "{tree}");
    let top = printed(&["top", "--json"]);
    assert!(top.contains(&key), "{top}");
    let logs = printed(&["logs", "--session", &key]);
    assert!(logs.contains("activated"), "{logs}");
    let metrics = gateway.get("/metrics").await.1;
    for line in ["greenroom_subagent_runs 1", "greenroom_mailbox_messages{kind=\"subagent\"}"] {
        assert!(metrics.contains(line), "{line}");
    }
}
