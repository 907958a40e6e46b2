//! Jobs that are due at times: made by a model or from the command line, run once whatever dies.

use std::time::Duration;

use serde_json::{Value, json};
use testkit::model::{Model, PlannedError};
use testkit::receiver::Receiver;

use crate::support::{Gateway, PATIENCE, Place, said};

fn output(place: &Place, arguments: &[&str]) -> String {
    let out = place.run(arguments);
    let (said, complaint) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert_eq!(out.status.code(), Some(0), "{arguments:?}: {said}{complaint}");
    said.into_owned()
}

fn body(place: &Place, arguments: &[&str]) -> Value {
    let text = output(place, &[arguments, &["--json"]].concat());
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{arguments:?} printed {text:?}: {error}"))
}

fn put_jobs(place: &Place, jobs: &Value) {
    let directory = place.path().join("workspace/cron");
    std::fs::create_dir_all(&directory).unwrap();
    std::fs::write(directory.join("jobs.json"), json!({"version": 1, "jobs": jobs}).to_string()).unwrap();
}

fn jobs(place: &Place) -> Vec<Value> {
    let text = std::fs::read_to_string(place.path().join("workspace/cron/jobs.json")).unwrap();
    serde_json::from_str::<Value>(&text).unwrap()["jobs"].as_array().unwrap().clone()
}

/// The events of a transcript, by the ids of their messages.
fn events(lines: &[Value]) -> Vec<String> {
    let events = lines.iter().filter(|line| line["customType"] == "greenroom.event");
    events.map(|line| line["details"]["idempotencyKey"].as_str().unwrap().to_owned()).collect()
}

async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let waited = tokio::time::timeout(PATIENCE, async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    assert!(waited.await.is_ok(), "{what}");
}

async fn history(gateway: &Gateway, id: &str) -> Vec<Value> {
    gateway.admin(&format!("cron/{id}")).await["history"].as_array().cloned().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_a_chat_makes_runs_in_it_once_over_a_kill() {
    let model = Model::start_on_thread();
    let place = Place::with_model(&model.url(), json!({}));
    let gateway = place.start().await;
    let mut socket = gateway.client().await;
    let call = json!({"action": "add", "name": "tea", "message": "make tea", "every_seconds": 1});
    socket.say("kitchen", &format!("[[tool=cron {call}]] [[show_results]]"), "m1").await;
    let made = socket.until("turn_end").await;
    let id = body(&place, &["cron", "list"])["items"][0]["id"].as_str().unwrap().to_owned();
    let text = place.transcript("websocket.kitchen").last().unwrap()["message"]["content"].to_string();
    assert!(text.contains(&format!("Made the job \\\"tea\\\" ({id})")), "{made} {text}");

    // It is killed while the model works on the first run.
    model.config(|config| config.delay = Duration::from_secs(3600));
    eventually("the job is due", async || jobs(&place)[0]["state"]["running"].is_object()).await;
    gateway.kill_nine();
    let due = jobs(&place)[0]["state"]["running"]["dueMs"].as_u64().unwrap();
    model.config(|config| config.delay = Duration::ZERO);
    let gateway = place.start().await;
    eventually("the first run has ended", async || !history(&gateway, &id).await.is_empty()).await;
    output(&place, &["cron", "disable", &id]);
    gateway.settle().await;
    eventually("no run is open", async || gateway.admin(&format!("cron/{id}")).await["running"] == false).await;
    assert!(history(&gateway, &id).await.iter().any(|run| run["status"] == "ok"));
    gateway.terminate().await;

    let lines = place.transcript("websocket.kitchen");
    let events = events(&lines);
    assert_eq!(events.iter().filter(|key| **key == format!("cron:{id}:{due}")).count(), 1, "{events:?}");
    let once: std::collections::BTreeSet<&String> = events.iter().collect();
    assert_eq!(once.len(), events.len(), "{events:?}");
    let answers = said(&lines).into_iter().filter(|(role, text)| role == "assistant" && text.contains("make tea"));
    assert_eq!(answers.count(), events.len(), "each is answered once: {:?}", said(&lines));
    let asked = model.requests().into_iter().map(|request| request["messages"].to_string());
    let fenced = asked.filter(|messages| messages.contains("Background Event") && messages.contains("make tea"));
    assert!(fenced.count() > 0, "the model is told that no person said it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_missed_is_made_up_for_once_over_kills() {
    let place = Place::new(json!({}));
    let job = |id: &str, missed: &str| {
        json!({
            "id": id, "name": id, "schedule": {"kind": "at", "atMs": 1000}, "deleteAfterRun": false, "missed": missed,
            "payload": {"message": "late", "sessionKey": format!("websocket:{id}")}, "state": {"nextRunAtMs": 1000},
        })
    };
    put_jobs(&place, &json!([job("aa000001", "once"), job("aa000002", "skip")]));
    for _ in 0..3 {
        let gateway = place.start().await;
        eventually("the job has run", async || history(&gateway, "aa000001").await.len() == 1).await;
        gateway.settle().await;
        eventually("that is written", async || jobs(&place)[0]["state"]["lastStatus"] == "ok").await;
        gateway.kill_nine();
    }
    assert_eq!(events(&place.transcript("websocket.aa000001")), ["cron:aa000001:1000"]);
    assert!(!place.path().join("workspace/sessions/websocket.aa000002.jsonl").exists());
    assert_eq!(jobs(&place)[0]["enabled"], false, "it had its only moment");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_command_line_does_the_same_with_and_without_a_gateway() {
    let place = Place::new(json!({"agents": {"defaults": {"timezone": "Europe/Berlin"}}}));
    let mut gateway = None;
    for round in 0..2 {
        if round == 1 {
            gateway = Some(place.start().await);
        }
        assert_eq!(output(&place, &["cron", "list"]), "no jobs\n");
        let add =
            ["cron", "add", "-m", "water the tomatoes", "--cron", "0 7 * * mon-fri", "--session", "websocket:ann"];
        let made = body(&place, &add);
        let id = made["id"].as_str().unwrap();
        assert_eq!((&made["name"], &made["session"]), (&json!("water the tomatoes"), &json!("websocket:ann")));
        assert_eq!(made["schedule"], "0 7 * * mon-fri");
        let origin = jobs(&place)[0]["payload"].clone();
        assert_eq!((&origin["originChannel"], &origin["originChatId"]), (&json!("websocket"), &json!("ann")));
        let list = output(&place, &["cron", "list"]);
        assert!(list.contains(id) && list.contains("07:00:00") && list.contains("water the tomatoes"), "{list}");
        assert_eq!(body(&place, &["cron", "disable", id])["enabled"], false);
        assert_eq!(body(&place, &["cron", "enable", id])["enabled"], true);
        assert_eq!(output(&place, &["cron", "history", id]), "no runs yet\n");
        if let Some(gateway) = &gateway {
            output(&place, &["cron", "run", id]);
            eventually("it has run", async || history(gateway, id).await.len() == 1).await;
            let runs = body(&place, &["cron", "history", id]);
            assert_eq!(runs["items"][0]["status"], "ok", "{runs}");
            assert!(output(&place, &["cron", "history", id]).contains(" ok "));
        } else {
            assert_eq!(place.run(&["cron", "run", id]).status.code(), Some(6));
        }
        assert!(output(&place, &["cron", "remove", id]).contains("removed"));
        if gateway.is_some() {
            let runs = body(&place, &["cron", "history", id]);
            assert_eq!(runs["items"][0]["status"], "ok", "what ran is known of one that is gone: {runs}");
        }
        for (arguments, code, said) in [
            (vec!["cron", "remove", id], 1, "there is no job"),
            (vec!["cron", "add", "-m", "x", "--cron", "0 25 * * *"], 2, "schedule.expr: the hour `25`"),
            (vec!["cron", "add", "-m", "x", "--at", "soon"], 2, "--at: `soon` is no time"),
            (vec!["cron", "add", "-m", "x", "--at", "2020-01-01"], 1, "schedule.atMs is in the past"),
            (vec!["cron", "add", "-m", "x"], 2, "--at"),
            (vec!["cron", "add", "-m", "x", "--every", "1w"], 2, "as in 30m"),
            (vec!["cron", "add", "-m", "x", "--every", "5m", "--tz", "UTC"], 2, "--tz"),
            (vec!["cron", "add", "-m", "x", "--every", "5m", "--keep"], 2, "--keep"),
            (vec!["cron", "add", "-m", "x", "--every", "5m", "--to", "nochan:7"], 2, "\"nochan\" is not enabled"),
        ] {
            let out = place.run(&arguments);
            let complaint = String::from_utf8_lossy(&out.stderr).into_owned();
            assert_eq!(out.status.code(), Some(code), "{arguments:?}: {complaint}");
            assert!(complaint.contains(said), "{arguments:?}: {complaint}");
        }
        let missing: Value =
            serde_json::from_slice(&place.run(&["cron", "remove", id, "--json"]).stdout).unwrap_or_default();
        assert_eq!(missing["error"]["code"], "not_found", "round {round}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_file_stops_no_gateway_and_is_kept() {
    let place = Place::new(json!({}));
    put_jobs(&place, &json!([{"id": "x"}]));
    for arguments in [vec!["cron", "list"], vec!["cron", "add", "-m", "x", "--every", "5m"]] {
        let out = place.run(&arguments);
        let complaint = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(out.status.code() == Some(1) && complaint.contains("it is left as it is"), "{complaint}");
        assert_eq!(jobs(&place), [json!({"id": "x"})]);
    }
    let gateway = place.start().await;
    assert_eq!(gateway.say("cli:ann", "hello", "m1").await, "done");
    let out = place.run(&["cron", "list"]);
    let complaint = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.code() == Some(1) && complaint.contains("jobs[0]: missing field `name`"), "{complaint}");
    let tree = gateway.admin("tree").await.to_string();
    assert!(tree.contains("\"/cron\""), "{tree}");
    assert!(gateway.get("/metrics").await.1.contains("\ngreenroom_cron_jobs 0\n"));
    gateway.terminate().await;
    let kept = std::fs::read_dir(place.path().join("workspace/cron")).unwrap();
    let names: Vec<String> = kept.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    assert!(names.iter().any(|name| name.starts_with("jobs.json.corrupt-")), "{names:?}");
    let told = |place: &Place| place.events().iter().filter(|event| event["event"] == "cron_damaged").count();
    assert_eq!(told(&place), 1);
    let listed = place.run(&["cron", "list"]);
    assert!(String::from_utf8_lossy(&listed.stderr).contains("the damaged one is kept as cron/jobs.json.corrupt-"));
    place.start().await.terminate().await;
    assert_eq!(told(&place), 2, "the next process tells of it too");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_answer_of_a_job_is_pushed_to_its_chat_once_and_a_failure_is_written_down() {
    let (model, receiver) = (Model::start_on_thread(), Receiver::start());
    let webhook = json!({"enabled": true, "port": 0, "url": receiver.url(), "allowFrom": "*"});
    let place = Place::with_model(&model.url(), json!({"channels": {"webhook": webhook}}));
    let gateway = place.start().await;
    let made =
        body(&place, &["cron", "add", "-m", "[[say=Tea!]]", "--every", "1d", "--to", "webhook:7", "--name", "tea"]);
    let id = made["id"].as_str().unwrap();
    assert_eq!(made["session"], format!("cron:{id}"), "it has a session of its own");
    output(&place, &["cron", "run", id]);
    let requests = receiver.wait_for("the answer", |requests| !requests.is_empty()).await;
    assert_eq!((&requests[0].body["chat_id"], &requests[0].body["text"]), (&json!("7"), &json!("Tea!")));
    eventually("it has run", async || history(&gateway, id).await.len() == 1).await;

    model.config(|config| config.error = Some(PlannedError::always("quota")));
    output(&place, &["cron", "run", id]);
    eventually("it has failed", async || history(&gateway, id).await.len() == 2).await;
    gateway.delivered().await;
    let runs = history(&gateway, id).await;
    assert_eq!((&runs[0]["status"], &runs[1]["status"]), (&json!("ok"), &json!("error")), "{runs:?}");
    assert!(runs[1]["error"].as_str().is_some_and(|error| !error.is_empty()), "{runs:?}");
    assert_eq!(receiver.requests().len(), 2, "the chat is told of the failure, too, and of nothing twice");
    gateway.terminate().await;
    let failed: Vec<Value> = place.events().into_iter().filter(|event| event["event"] == "cron_failed").collect();
    assert_eq!(
        (failed.len(), &failed[0]["path"], &failed[0]["session"]),
        (1, &json!("/cron"), &json!(format!("cron:{id}")))
    );
    assert!(output(&place, &["cron", "list"]).contains("every 1 d"));
}
