//! Sub-agents: sent off, stopped, and their reports, whatever dies meanwhile.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use testkit::model::Model;

use crate::support::{Gateway, PATIENCE, Place, said};

/// A message that sends sub-agents off, one for each of these tasks.
pub fn sends(tasks: &[&str], more: Value) -> String {
    let call = |(number, task): (usize, &&str)| {
        let mut arguments = json!({"task": task, "label": format!("toads {number}")});
        crate::support::merge(&mut arguments, more.clone());
        format!("[[tool=spawn {arguments}]]")
    };
    let calls: Vec<String> = tasks.iter().enumerate().map(call).collect();
    format!("go {}", calls.join(" "))
}

/// The events of a transcript, by the run that they are of, with what they say.
pub fn events(lines: &[Value]) -> Vec<(String, Value, String)> {
    let events = lines.iter().filter(|line| line["customType"] == "greenroom.event");
    let told = events.map(|line| {
        let event = &line["details"]["event"];
        let text = line["content"][0]["text"].as_str().unwrap().to_owned();
        (event["id"].as_str().unwrap().to_owned(), event["status"].clone(), text)
    });
    told.collect()
}

pub async fn until(what: &str, mut is: impl AsyncFnMut() -> bool) {
    let waiting = tokio::time::timeout(PATIENCE, async {
        while !is().await {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    });
    assert!(waiting.await.is_ok(), "{what} does not come");
}

/// Waits until so many turns were accepted, and all of them and their reports are through.
pub async fn through(gateway: &Gateway, accepted: u64) {
    until("the last turn", async || gateway.admin("status").await["journal"]["accepted"].as_u64() >= Some(accepted))
        .await;
    gateway.delivered().await;
}

pub fn children(place: &Place) -> Vec<String> {
    let names = std::fs::read_dir(place.path().join("workspace/sessions")).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names
        .filter_map(|name| Some(name.strip_suffix(".jsonl")?.to_owned()))
        .filter(|stem| stem.contains("subagent"))
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_report_comes_by_itself_and_is_answered() {
    let model = Model::start_on_thread();
    let place = Place::with_model(&model.url(), json!({}));
    let gateway = place.start().await;
    let result = gateway.say("cli:direct", &sends(&["count [[say=5 toads]]"], json!({})), "m1").await;
    assert_eq!(result, "done");
    through(&gateway, 3).await;
    let lines = place.transcript("cli.direct");
    let [(run, status, text)] = &events(&lines)[..] else { panic!("{lines:?}") };
    assert!(status == "done" && text.contains("Result:\n5 toads"), "{text}");
    let said = said(&lines);
    assert_eq!(said.last().unwrap(), &("assistant".to_owned(), "5 toads".to_owned()), "{said:?}");
    assert!(!said.iter().any(|(role, text)| role == "user" && text.contains("Result:")), "no person said it");
    let [child] = &children(&place)[..] else { panic!("one child was sent off") };
    assert!(child.ends_with(run.as_str()));
    let kept = place.transcript(child);
    let note = kept.iter().find(|line| line["customType"] == "greenroom.run").unwrap();
    assert_eq!((&note["data"]["parent"], &note["data"]["label"]), (&json!("cli:direct"), &json!("toads 0")));
    // What the model was told of itself and of what it was given.
    let asked = model.requests();
    let of_child = asked
        .iter()
        .find(|request| request["messages"][0]["content"].as_str().unwrap().contains("# You are a sub-agent"));
    let of_child = of_child.unwrap();
    let tools: Vec<&str> =
        of_child["tools"].as_array().unwrap().iter().map(|tool| tool["function"]["name"].as_str().unwrap()).collect();
    assert!(tools.contains(&"read_file") && !tools.contains(&"spawn") && !tools.contains(&"subagents"), "{tools:?}");
    let told = asked.last().unwrap()["messages"].as_array().unwrap().last().unwrap().clone();
    let told = told["content"].as_str().unwrap();
    assert!(told.contains("[Background Event") && told.contains("From: sub-agent \"toads 0\": done"), "{told}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_report_outlives_a_kill_while_the_parent_sleeps() {
    let model = Model::start_on_thread();
    let place = Place::with_model(&model.url(), json!({}));
    let gateway = place.start().await;
    let task = "count [[delay=1500]] [[say=5 toads]]";
    assert_eq!(gateway.say("cli:direct", &sends(&[task], json!({})), "m1").await, "done");
    gateway.kill_nine();
    let gateway = place.start().await;
    // Only the child has work: the parent is not in memory.
    through(&gateway, 2).await;
    let lines = place.transcript("cli.direct");
    let [(_, status, text)] = &events(&lines)[..] else { panic!("{lines:?}") };
    assert!(status == "done" && text.contains("5 toads"), "{text}");
    assert_eq!(said(&lines).last().unwrap().1, "5 toads");
    assert_eq!(gateway.admin("deadletters").await["items"], json!([]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_is_waited_for_gives_its_result_and_no_report() {
    let model = Model::start_on_thread();
    let place = Place::with_model(&model.url(), json!({}));
    let gateway = place.start().await;
    gateway.say("cli:direct", &sends(&["count [[say=5 toads]]"], json!({"wait": true})), "m1").await;
    through(&gateway, 2).await;
    let lines = place.transcript("cli.direct");
    assert!(events(&lines).is_empty());
    let result = said(&lines).into_iter().find(|(role, _)| role == "toolResult").unwrap().1;
    assert!(result.contains(": done.") && result.contains("5 toads"), "{result}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn its_time_is_over_and_its_parent_is_told_so() {
    let model = Model::start_on_thread();
    let place = Place::with_model(&model.url(), json!({}));
    let gateway = place.start().await;
    gateway.say("cli:direct", &sends(&["count [[hang]]"], json!({"timeout": 1})), "m1").await;
    // The model hangs on the report, too, since that repeats the task.
    until("the report", async || {
        place.path().join("workspace/sessions/cli.direct.jsonl").exists()
            && gateway.admin("status").await["journal"]["cancelled"] == 1
    })
    .await;
    gateway.post("sessions/cli%3Adirect/stop".to_owned()).await;
    gateway.delivered().await;
    let lines = place.transcript("cli.direct");
    let [(_, status, text)] = &events(&lines)[..] else { panic!("{lines:?}") };
    assert!(status == "timed out" && text.contains("its time was over"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_of_the_parent_ends_its_children_without_a_word_but_not_detached_ones() {
    let model = Model::start_on_thread();
    let place = Place::with_model(&model.url(), json!({}));
    let gateway = place.start().await;
    gateway.say("cli:direct", &sends(&["count [[hang]]"], json!({})), "m1").await;
    let detached = sends(&["count [[delay=3000]] [[say=7 toads]]"], json!({"detach": true}));
    gateway.say("cli:direct", &detached, "m2").await;
    gateway.post("sessions/cli%3Adirect/stop".to_owned()).await;
    until("the end of the child", async || gateway.admin("status").await["journal"]["cancelled"] == 1).await;
    through(&gateway, 5).await;
    let told = events(&place.transcript("cli.direct"));
    assert!(matches!(&told[..], [(_, status, text)] if status == "done" && text.contains("7 toads")), "{told:?}");
}

/// What a command prints with `--json`.
pub fn printed(place: &Place, arguments: &[&str]) -> Value {
    let out = place.run(&[&["subagents"], arguments, &["--json"]].concat());
    assert!(out.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&out.stderr));
    serde_json::from_slice(&out.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_sees_stops_and_repeats_them() {
    let model = Model::start_on_thread();
    let place = Place::with_model(&model.url(), json!({}));
    let gateway = place.start().await;
    // So long that the report does not repeat what makes the model hang.
    let task = format!("{} [[hang]]", "count the toads ".repeat(40));
    gateway.say("cli:direct", &sends(&[&task], json!({})), "m1").await;
    let row = printed(&place, &["list"])["items"][0].clone();
    assert_eq!((&row["state"], &row["parent"]), (&json!("running"), &json!("cli:direct")));
    let run = row["run"].as_str().unwrap();
    assert_eq!(printed(&place, &["cancel", run])["cancelled"], true);
    through(&gateway, 3).await;
    let told = events(&place.transcript("cli.direct"));
    assert!(matches!(&told[..], [(id, status, _)] if id == run && status == "cancelled"), "{told:?}");
    assert_eq!(printed(&place, &["show", run])["state"], "cancelled");
    let again = printed(&place, &["retry", run]);
    assert_eq!(again["retry_of"], run);
    let second = again["run"].as_str().unwrap();
    assert_eq!(printed(&place, &["show", second])["state"], "running");
    printed(&place, &["cancel", second]);
    through(&gateway, 5).await;
    assert_eq!(events(&place.transcript("cli.direct")).len(), 2);
    let gone = place.run(&["subagents", "show", "00000000-0000-0000-0000-000000000001"]);
    assert_eq!(gone.status.code(), Some(1), "{}", String::from_utf8_lossy(&gone.stderr));
}

/// Parents, and how many children each has.
const PARENTS: usize = 50;
const CHILDREN: usize = 4;
/// Parents at a time: no more runs may be open.
const AT_ONCE: usize = 12;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_of_two_hundred_is_reported_once_whatever_is_killed() {
    let model = Model::start_on_thread();
    let place = Place::with_model(&model.url(), json!({}));
    let tasks = ["count [[delay=1..200]] [[say=toads]]"; CHILDREN];
    let text = sends(&tasks, json!({}));
    let mut accepted = 0;
    let mut gateway = place.start().await;
    for (wave, parents) in (0..PARENTS).collect::<Vec<_>>().chunks(AT_ONCE).enumerate() {
        let all = parents.iter().map(|parent| {
            let (gateway, key, text) = (&gateway, format!("cli:parent-{parent}"), &text);
            async move { gateway.say(&key, text, "m1").await }
        });
        futures::future::join_all(all).await;
        // At another moment in each wave; some reports are through by then.
        tokio::time::sleep(std::time::Duration::from_millis(40 * wave as u64)).await;
        gateway.kill_nine();
        gateway = place.start().await;
        accepted += parents.len();
        gateway.delivered().await;
    }
    gateway.delivered().await;
    assert_eq!(accepted, PARENTS);
    for parent in 0..PARENTS {
        let lines = place.transcript(&format!("cli.parent-{parent}"));
        let told = events(&lines);
        let runs: BTreeSet<&String> = told.iter().map(|(run, ..)| run).collect();
        assert_eq!((told.len(), runs.len()), (CHILDREN, CHILDREN), "parent {parent}: {told:?}");
        assert!(told.iter().all(|(_, status, _)| status == "done"), "{told:?}");
    }
    assert_eq!(children(&place).len(), PARENTS * CHILDREN);
    assert_eq!(gateway.admin("deadletters").await["items"], json!([]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_ran_in_an_earlier_process_is_known_and_can_be_repeated() {
    let model = Model::start_on_thread();
    let place = Place::with_model(&model.url(), json!({}));
    let gateway = place.start().await;
    gateway.say("cli:direct", &sends(&["count [[say=5 toads]]"], json!({})), "m1").await;
    through(&gateway, 3).await;
    // This one is cut by the kill, and ends in the next process.
    gateway.say("cli:direct", &sends(&["count [[delay=1500]] [[say=7 toads]]"], json!({})), "m2").await;
    gateway.kill_nine();
    let gateway = place.start().await;
    through(&gateway, 2).await;
    let items = || printed(&place, &["list"])["items"].as_array().unwrap().clone();
    until("both of them", async || items().iter().filter(|row| row["delivery"] == "delivered").count() == 2).await;
    let seen: Vec<Value> = items().iter().map(|row| json!([row["state"], row["parent"], row["text"]])).collect();
    assert_eq!(seen, [json!(["done", "cli:direct", "5 toads"]), json!(["done", "cli:direct", "7 toads"])]);
    let first = items()[0]["run"].as_str().unwrap().to_owned();
    gateway.terminate().await;
    let gateway = place.start().await;
    assert_eq!(printed(&place, &["show", &first])["text"], "5 toads");
    // The model is told the same by its tool.
    gateway.say("cli:direct", r#"look [[tool=subagents {"action":"list"}]]"#, "m3").await;
    gateway.delivered().await;
    let told = said(&place.transcript("cli.direct"));
    let listed = &told.iter().rev().find(|(role, _)| role == "toolResult").unwrap().1;
    assert!(listed.contains("5 toads") && listed.contains("7 toads"), "{listed}");
    assert_eq!(printed(&place, &["retry", &first])["retry_of"], first.as_str());
    until("the third", async || items().iter().filter(|row| row["delivery"] == "delivered").count() == 3).await;
    assert_eq!(items().len(), 3);
}
