//! Goals: the model is sent on after each answer, over kills, until it says that the goal is reached.

use std::time::Duration;

use serde_json::{Value, json};
use testkit::model::Model;

use crate::support::Place;

async fn chat(gateway: &crate::support::Gateway, text: &str) -> String {
    let body = json!({"user": "ann", "messages": [{"role": "user", "content": text}]});
    let (status, body) = gateway.chat(body, None).await;
    assert_eq!(status, 200, "{body}");
    body["choices"][0]["message"]["content"].as_str().unwrap().to_owned()
}

fn system(request: &Value) -> String {
    request["messages"][0]["content"].to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_goal_is_worked_on_over_many_answers_until_the_model_ends_it() {
    let model = Model::start_on_thread();
    let place = Place::with_model(&model.url(), json!({"agents": {"defaults": {"maxToolIterations": 2}}}));
    let gateway = place.start().await;
    assert_eq!(chat(&gateway, "/goal").await, "No goal is worked on here. /goal followed by one begins with it.");
    let answer = chat(&gateway, "/goal build the site").await;
    assert!(answer.contains("12 times in a turn is as often as I am sent on"), "{answer}");
    let requests = model.requests();
    assert_eq!(requests.len(), 13, "the message, and twelve times more");
    assert!(requests.iter().all(|request| system(request).contains("# Goal\\n\\nbuild the site")), "{}", requests[0]);
    let last = |request: &Value| request["messages"].as_array().unwrap().last().unwrap()["content"].to_string();
    assert!(last(&requests[0]).contains("build the site") && last(&requests[12]).contains("not reached yet"));
    assert!(requests.iter().all(|request| request["tool_choice"] != "none"), "each has its own rounds with tools");
    let paused = "Paused: build the site\nThe next message goes on with it; `/goal stop` gives it up.";
    assert_eq!(chat(&gateway, "/goal").await, paused);
    let status = chat(&gateway, "/status").await;
    assert!(status.contains("\nGoal: build the site. Paused: the next message goes on with it."), "{status}");

    assert_eq!(chat(&gateway, "how far? [[say=GOAL: completed it is up]]").await, "GOAL: completed it is up");
    assert_eq!(model.requests().len(), 14);
    assert_eq!(chat(&gateway, "/goal").await, "Reached: build the site it is up");
    assert_eq!(chat(&gateway, "and now?").await, "echo:and now?");
    assert!(!system(&model.requests()[14]).contains("# Goal"));

    chat(&gateway, "/goal paint it [[say=GOAL: blocked no paint]]").await;
    assert_eq!(
        chat(&gateway, "/goal").await,
        "Blocked: paint it [[say=GOAL: blocked no paint]] no paint\n`/goal resume` goes on with it; `/goal stop` gives it up."
    );
    chat(&gateway, "/new").await;
    assert_eq!(chat(&gateway, "/goal").await, "No goal is worked on here. /goal followed by one begins with it.");
    gateway.terminate().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_goal_goes_on_behind_a_kill_and_is_sent_on_no_more_often_for_it() {
    let model = Model::start_on_thread();
    let place = Place::with_model(&model.url(), json!({}));
    let gateway = place.start().await;
    model.config(|config| config.delay = Duration::from_millis(40));
    let mut socket = gateway.websocket("").await;
    socket.until("ready").await;
    socket.say("room", "/goal build the site", "m1").await;
    let goal = socket.until("goal_state").await;
    assert_eq!(goal["goal_state"], json!({"active": true, "status": "active", "objective": "build the site"}));
    for _ in 0..4 {
        socket.until("stream_end").await;
    }
    gateway.kill_nine();
    model.config(|config| config.delay = Duration::ZERO);
    let gateway = place.start().await;
    gateway.settle().await;
    gateway.terminate().await;
    let lines = place.transcript("websocket.room");
    let answers = lines.iter().filter(|line| line["message"]["role"] == "assistant").count();
    assert_eq!(answers, 13, "{lines:?}");
    let goals: Vec<&Value> = lines.iter().filter(|line| line["customType"] == "greenroom.goal").collect();
    assert_eq!(goals.len(), 1);
    assert_eq!(goals[0]["data"], json!({"status": "active", "objective": "build the site"}));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chat_is_shown_the_goal_and_how_the_conversation_stands_when_a_turn_ends() {
    let model = Model::start_on_thread();
    let place = Place::with_model(&model.url(), json!({"agents": {"defaults": {"contextWindowTokens": 50_000}}}));
    let mut gateway = place.start().await;
    let mut socket = gateway.client().await;
    socket.say("a", "hello", "m1").await;
    let end = socket.until("turn_end").await;
    assert_eq!((&end["context_window_tokens"], &end["goal_state"]), (&json!(50_000), &json!({"active": false})));
    socket.say("a", "/goal build the site [[say=GOAL: completed it is up]]", "m2").await;
    let objective = "build the site [[say=GOAL: completed it is up]]";
    let reached = json!({"active": false, "status": "completed", "objective": objective, "recap": "it is up"});
    assert_eq!(socket.until("goal_state").await["goal_state"], reached);
    assert_eq!(socket.until("turn_end").await["goal_state"], reached);
    // Who comes back is told how it stands, also of turns that have ended, and after a restart.
    let after = format!("{}.1.2", end["turn_id"].as_str().unwrap());
    for _ in 0..2 {
        socket.send(json!({"type": "attach", "chat_id": "a", "after": after})).await;
        let end = socket.until("turn_end").await;
        assert_eq!((&end["context_window_tokens"], &end["goal_state"]), (&json!(50_000), &reached));
        assert_eq!(socket.until("goal_state").await["goal_state"], reached);
        gateway.kill_nine();
        gateway = place.start().await;
        socket = gateway.client().await;
        socket.send(json!({"type": "attach", "chat_id": "a"})).await;
        assert_eq!(socket.until("goal_state").await["goal_state"], reached);
    }
    // A person's word counts as well.
    socket.say("a", "/goal paint it [[say=GOAL: blocked no paint]]", "m3").await;
    socket.until("turn_end").await;
    socket.say("a", "/new", "m4").await;
    assert_eq!(socket.until("turn_end").await["goal_state"], json!({"active": false}));
    gateway.terminate().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_pauses_the_goal_until_it_is_resumed_also_over_kills() {
    let model = Model::start_on_thread();
    let place = Place::with_model(&model.url(), json!({}));
    let mut gateway = place.start().await;
    model.config(|config| config.delay = Duration::from_millis(40));
    let mut socket = gateway.client().await;
    socket.say("room", "/goal build the site", "m1").await;
    for _ in 0..2 {
        socket.until("stream_end").await;
    }
    socket.send(json!({"type": "message", "chat_id": "room", "content": "/stop"})).await;
    let paused = json!({"active": false, "status": "paused", "objective": "build the site"});
    let (mut told, mut ended) = (false, false);
    while !(told && ended) {
        let frame = socket.next().await.unwrap();
        ended |= frame["event"] == "turn_end" && frame["result"] == "cancelled" && frame["goal_state"] == paused;
        let answer = frame["text"].as_str().filter(|_| frame["control"] == true);
        told |= answer == Some("Stopped the running turn. The goal is paused: `/goal resume` goes on with it.");
    }
    gateway.kill_nine();
    model.config(|config| config.delay = Duration::ZERO);
    gateway = place.start().await;
    let ask = async |gateway: &crate::support::Gateway, text: &str, id: &str| {
        let mut socket = gateway.client().await;
        socket.say("room", text, id).await;
        loop {
            let frame = socket.next().await.unwrap();
            if matches!(frame["event"].as_str(), Some("message" | "stream_end")) && frame["kind"] != "progress" {
                socket.until("turn_end").await;
                return frame["text"].as_str().unwrap_or_default().to_owned();
            }
        }
    };
    let before = model.requests().len();
    ask(&gateway, "hello", "m2").await;
    let requests = model.requests();
    assert_eq!(requests.len(), before + 1, "nobody is sent on");
    assert!(!system(&requests[before]).contains("# Goal"));
    let text = "Paused: build the site\n`/goal resume` goes on with it; `/goal stop` gives it up.";
    assert_eq!(ask(&gateway, "/goal", "m3").await, text);

    model.config(|config| config.delay = Duration::from_millis(40));
    let mut socket = gateway.client().await;
    socket.say("room", "/goal resume", "m4").await;
    assert_eq!(socket.until("goal_state").await["goal_state"]["active"], true);
    for _ in 0..3 {
        socket.until("stream_end").await;
    }
    gateway.kill_nine();
    model.config(|config| config.delay = Duration::ZERO);
    gateway = place.start().await;
    gateway.settle().await;
    let requests = model.requests();
    let last = requests.last().unwrap();
    assert!(system(last).contains("# Goal\\n\\nbuild the site") && last.to_string().contains("Go on with the goal."));
    gateway.terminate().await;
    let lines = place.transcript("websocket.room");
    let from = lines.iter().position(|line| line.to_string().contains("Go on with the goal.")).unwrap();
    let answers = lines[from..].iter().filter(|line| line["message"]["role"] == "assistant").count();
    assert_eq!(answers, 13, "the message, and twelve times more, over the kill");
    let goals: Vec<&Value> = lines.iter().filter(|line| line["customType"] == "greenroom.goal").collect();
    let statuses: Vec<&Value> = goals.iter().map(|goal| &goal["data"]["status"]).collect();
    assert_eq!(statuses, ["active", "paused", "active"]);
}
