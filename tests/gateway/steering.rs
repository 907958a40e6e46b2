//! Messages that come while a turn of their session runs, in each mode of the queue.

use std::time::Duration;

use serde_json::{Value, json};
use testkit::model::Model;
use testkit::receiver::Receiver;

use crate::support::{Gateway, PATIENCE, Place, Socket, said};

/// A call that runs until the file `go` is there.
const CALL: &str =
    r#"[[tool=exec {"command": "echo ran >> ran; while [ ! -e go ]; do sleep 0.02; done; echo found"}]]"#;

fn place(model: &Model, extra: Value) -> Place {
    let mut config = json!({
        "session": {"policies": {"websocket": {"profile": "full", "sandbox": "configured", "workspaceAccess": "rw"}}},
        "tools": {"exec": {"sandbox": "off"}},
    });
    crate::support::merge(&mut config, extra);
    Place::with_model(&model.url(), config)
}

async fn until(what: &str, is: impl Fn() -> bool) {
    let waiting = tokio::time::timeout(PATIENCE, async {
        while !is() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    assert!(waiting.await.is_ok(), "{what} does not come");
}

async fn client(gateway: &Gateway) -> Socket {
    let mut socket = gateway.websocket("").await;
    socket.until("ready").await;
    socket
}

fn workspace(place: &Place, name: &str) -> std::path::PathBuf {
    place.path().join("workspace").join(name)
}

fn has_begun(place: &Place) -> bool {
    workspace(place, "ran").exists()
}

fn go(place: &Place) {
    std::fs::write(workspace(place, "go"), "").unwrap();
}

/// Role and text of the messages of a request, but for the instructions.
fn shown(request: &Value) -> Vec<(String, String)> {
    let messages = request["messages"].as_array().unwrap().iter().skip(1);
    let text = |message: &Value| message["content"].as_str().unwrap_or_default().to_owned();
    messages.map(|message| (message["role"].as_str().unwrap().to_owned(), text(message))).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_reaches_the_running_turn_between_its_calls() {
    let model = Model::start_on_thread();
    let place = place(&model, json!({}));
    let gateway = place.start().await;
    let mut socket = client(&gateway).await;
    socket.say("room", &format!("look {CALL}"), "m1").await;
    let first = socket.until("accepted").await;
    assert_eq!(first["state"], "running");
    until("the call", || has_begun(&place)).await;
    socket.say("room", "and mind the gap", "m2").await;
    // As large as one that is read from the log.
    let large = "and a lot more".repeat(200);
    socket.say("room", &large, "m3").await;
    for position in 1..=2 {
        let accepted = socket.until("accepted").await;
        assert_eq!((&accepted["state"], &accepted["position"]), (&json!("steered"), &json!(position)));
    }
    socket.say("room", "/usage", "m4").await;
    let alone = socket.until("accepted").await;
    assert_eq!((&alone["state"], &alone["position"]), (&json!("queued"), &json!(3)), "a command joins no turn");
    go(&place);
    for _ in 0..2 {
        let joined = socket.until("turn_end").await;
        assert_eq!((&joined["result"], &joined["into"]), (&json!("joined"), &first["turn_id"]), "{joined}");
    }
    let done = socket.until("turn_end").await;
    assert_eq!((&done["result"], &done["turn_id"]), (&json!("done"), &first["turn_id"]));
    let commanded = socket.until("turn_end").await;
    assert_eq!((&commanded["result"], &commanded["turn_id"]), (&json!("done"), &alone["turn_id"]));
    assert_eq!(model.requests().len(), 2, "one turn, two rounds");
    let asked = shown(&model.requests()[1]);
    let said_last: String = asked.iter().skip(3).map(|(role, text)| format!("{role}: {text};")).collect();
    assert!(asked[2].0 == "tool" && asked[2].1.contains("found"), "{asked:?}");
    assert!(said_last.contains("mind the gap") && said_last.contains(&large), "{said_last}");
    let journal = &gateway.admin("status").await["journal"];
    assert_eq!((&journal["accepted"], &journal["done"], &journal["open"]), (&json!(4), &json!(4), &json!(0)));

    // Whoever repeats it gets the answer of the turn that took it up, also from the next process.
    gateway.kill_nine();
    let gateway = place.start().await;
    let mut socket = client(&gateway).await;
    socket.say("room", "and mind the gap", "m2").await;
    assert_eq!(socket.until("accepted").await["state"], "duplicate");
    let answer = socket.until("message").await["text"].clone();
    let joined = socket.until("turn_end").await;
    assert_eq!((&joined["result"], &joined["into"]), (&json!("joined"), &first["turn_id"]));
    assert_eq!(gateway.terminate().await, Some(0));
    let lines = said(&place.transcript("websocket.room"));
    let roles: Vec<&str> = lines.iter().map(|(role, _)| role.as_str()).collect();
    assert_eq!(roles[..6], ["user", "assistant", "toolResult", "user", "user", "assistant"]);
    assert_eq!(answer, lines[5].1.as_str());
    assert_eq!((lines.len(), lines[6].1.as_str()), (8, "/usage"), "it has its own answer, behind all of that");
}

/// Where the process is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kill {
    /// The call runs, the message waits.
    Waiting,
    /// The message was taken up, the model is asked again.
    Steered,
    /// The turn has ended.
    Answered,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_at_any_step_repeats_nothing_that_was_taken_up_and_loses_nothing() {
    for kill in [Kill::Waiting, Kill::Steered, Kill::Answered] {
        let model = Model::start_on_thread();
        let place = place(&model, json!({}));
        let gateway = place.start().await;
        let mut socket = client(&gateway).await;
        socket.say("room", &format!("look {CALL}"), "m1").await;
        until("the call", || has_begun(&place)).await;
        socket.say("room", "also this", "m2").await;
        socket.until("accepted").await;
        socket.until("accepted").await;
        if kill >= Kill::Steered {
            let never = kill == Kill::Steered;
            model.config(|config| config.delay = if never { Duration::from_secs(3600) } else { Duration::ZERO });
            go(&place);
            until("the second round", || model.requests().len() == 2).await;
        }
        if kill == Kill::Answered {
            gateway.settle().await;
        }
        gateway.kill_nine();
        model.config(|config| config.delay = Duration::ZERO);
        go(&place);
        let gateway = place.start().await;
        gateway.settle().await;
        let journal = gateway.admin("status").await["journal"].clone();
        assert_eq!(gateway.terminate().await, Some(0));
        assert_eq!(journal["open"], 0, "{kill:?}");
        let lines = place.transcript("websocket.room");
        let said = said(&lines);
        let users: Vec<&str> = said.iter().filter(|(role, _)| role == "user").map(|(_, text)| text.as_str()).collect();
        assert_eq!(users, [format!("look {CALL}").as_str(), "also this"], "{kill:?}: each stands once");
        let results = said.iter().filter(|(role, _)| role == "toolResult").count();
        let ends = lines.iter().filter(|line| line["message"]["turnEnd"].is_string()).count();
        let joined = lines.iter().filter(|line| line["message"]["intoTurn"].is_string()).count();
        assert_eq!((results, ends + joined), (1, 2), "{kill:?}: {said:?}");
        assert!(kill < Kill::Steered || joined == 1, "{kill:?}: what was taken up stays so");
        let ran = std::fs::read_to_string(workspace(&place, "ran")).unwrap();
        assert_eq!(ran.lines().count(), 1, "{kill:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_messages_are_collected_by_one_turn() {
    let model = Model::start_on_thread();
    let queue = json!({"mode": "collect", "debounceMs": 300});
    let place = place(&model, json!({"queue": queue}));
    let gateway = place.start().await;
    let mut socket = client(&gateway).await;
    // What comes when nothing runs is answered at once, and by itself.
    socket.say("room", &format!("look {CALL}"), "first").await;
    assert_eq!(socket.until("accepted").await["state"], "running");
    until("the call", || has_begun(&place)).await;
    for n in 0..10 {
        socket.say("room", &format!("part {n}."), &format!("m{n}")).await;
        assert_eq!(socket.until("accepted").await["state"], "queued");
    }
    go(&place);
    assert_eq!(socket.until("turn_end").await["result"], "done");
    for n in 0..10 {
        let end = socket.until("turn_end").await;
        assert_eq!(end["result"], if n < 9 { "joined" } else { "done" });
    }
    let requests = model.requests();
    assert_eq!(requests.len(), 3, "two rounds, and one turn for all that came meanwhile");
    let asked = |at: usize| shown(&requests[at]).into_iter().map(|(_, text)| text).collect::<String>();
    assert!((0..10).all(|n| asked(2).contains(&format!("part {n}.")) && !asked(1).contains("part")), "{}", asked(2));
    gateway.terminate().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_to_be_collected_is_collected_by_the_next_process() {
    let model = Model::start_on_thread();
    let place = place(&model, json!({"queue": {"mode": "collect", "debounceMs": 60_000}}));
    let gateway = place.start().await;
    let mut socket = client(&gateway).await;
    socket.say("room", &format!("look {CALL}"), "first").await;
    socket.until("accepted").await;
    until("the call", || has_begun(&place)).await;
    for n in 0..5 {
        socket.say("room", &format!("part {n}."), &format!("m{n}")).await;
        socket.until("accepted").await;
    }
    go(&place);
    socket.until("turn_end").await;
    gateway.kill_nine();
    assert_eq!(model.requests().len(), 2);
    let gateway = place.start().await;
    gateway.settle().await;
    let journal = gateway.admin("status").await["journal"].clone();
    assert_eq!((&journal["done"], &journal["open"]), (&json!(5), &json!(0)), "those that were open");
    assert_eq!(gateway.terminate().await, Some(0));
    assert_eq!(model.requests().len(), 3);
    let lines = place.transcript("websocket.room");
    assert_eq!(lines.iter().filter(|line| line["message"]["intoTurn"].is_string()).count(), 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_webhook_gets_one_reply_for_all_that_a_turn_answered_also_over_a_kill() {
    for killed in [false, true] {
        let (model, receiver) = (Model::start_on_thread(), Receiver::start());
        let webhook = json!({"enabled": true, "port": 0, "url": receiver.url(), "allowFrom": "*"});
        let direct = json!({"profile": "full", "sandbox": "configured", "workspaceAccess": "rw"});
        let extra = json!({"channels": {"webhook": webhook}, "session": {"policies": {"direct": direct}}});
        let place = place(&model, extra);
        let mut gateway = place.start().await;
        let first = posted(&gateway, "m1", &format!("look {CALL}")).await;
        until("the call", || has_begun(&place)).await;
        let second = posted(&gateway, "m2", "also this").await;
        assert_eq!((&first["state"], &second["state"]), (&json!("running"), &json!("steered")));
        if killed {
            model.config(|config| config.delay = Duration::from_secs(3600));
            go(&place);
            until("the second round", || model.requests().len() == 2).await;
            gateway.kill_nine();
            model.config(|config| config.delay = Duration::ZERO);
            gateway = place.start().await;
        }
        go(&place);
        gateway.delivered().await;
        assert_eq!(gateway.terminate().await, Some(0));
        let requests = receiver.requests();
        let turns: Vec<&Value> = requests.iter().map(|request| &request.body["turn_id"]).collect();
        assert_eq!(turns, [&first["turn_id"]], "killed: {killed}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_interrupts_the_running_turn() {
    let model = Model::start_on_thread();
    let place = place(&model, json!({"queue": {"mode": "interrupt"}}));
    let gateway = place.start().await;
    let mut socket = client(&gateway).await;
    socket.say("room", "first [[hang]]", "m1").await;
    until("the model call", || model.requests().len() == 1).await;
    socket.say("room", "second", "m2").await;
    assert_eq!(socket.until("turn_end").await["result"], "cancelled");
    assert_eq!(socket.until("turn_end").await["result"], "done");
    gateway.terminate().await;
    let why: Vec<Value> = place
        .events()
        .into_iter()
        .filter(|event| event["event"] == "turn_cancelled")
        .map(|event| event["reason"].clone())
        .collect();
    assert_eq!(why, ["a new message came, and the queue's mode is interrupt"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn too_many_messages_are_refused_or_dropped() {
    for drop in ["refuse", "old", "summarize"] {
        let model = Model::start_on_thread();
        let place = place(&model, json!({"queue": {"mode": "followup", "cap": 2, "drop": drop}}));
        let gateway = place.start().await;
        let mut socket = client(&gateway).await;
        model.config(|config| config.delay = Duration::from_secs(3600));
        socket.say("room", "running", "m0").await;
        until("the model call", || model.requests().len() == 1).await;
        let mut watcher = client(&gateway).await;
        watcher.send(json!({"type": "attach", "chat_id": "room"})).await;
        watcher.until("attached").await;
        for n in 1..=3 {
            socket.say("room", &format!("waiting {n}"), &format!("m{n}")).await;
        }
        for _ in 0..3 {
            socket.until("accepted").await;
        }
        if drop == "refuse" {
            assert_eq!(socket.until("error").await["reason"], "busy");
        } else {
            socket.until("accepted").await;
            let told = watcher.until("message").await["text"].clone();
            assert_eq!(told, "Too many messages are waiting, so the oldest was dropped: waiting 1", "told at once");
        }
        model.config(|config| config.delay = Duration::ZERO);
        socket.send(json!({"type": "message", "chat_id": "room", "content": "/stop"})).await;
        assert_eq!(socket.until("turn_end").await["result"], "cancelled");
        if drop != "refuse" {
            let told = socket.until("message").await["text"].clone();
            let told = if told.as_str().unwrap().starts_with("Stopped the") {
                socket.until("message").await["text"].clone()
            } else {
                told
            };
            assert_eq!(told, "Dropped: too many messages were waiting. Please send it again if it still matters.");
            assert_eq!(socket.until("turn_end").await["result"], "cancelled");
        }
        for _ in 0..2 {
            assert_eq!(socket.until("turn_end").await["result"], "done", "{drop}");
        }
        let last = shown(model.requests().last().unwrap());
        let said = last.iter().filter(|(role, _)| role == "user");
        let count = |part: &str| said.clone().map(|(_, text)| text.matches(part).count()).sum::<usize>();
        // What its sender was told to send again stands in no request, but for the list of what was dropped.
        assert_eq!(count("waiting 1"), usize::from(drop != "old"), "{drop}: {last:?}");
        assert_eq!(count("\n- waiting 1"), usize::from(drop == "summarize"), "{drop}: {last:?}");
        gateway.terminate().await;
    }
}

async fn chat(gateway: &Gateway, text: &str) -> Value {
    let body = json!({"user": "ann", "messages": [{"role": "user", "content": text}]});
    gateway.chat(body, None).await.1["choices"][0]["message"]["content"].clone()
}

async fn posted(gateway: &Gateway, id: &str, text: &str) -> Value {
    let body = json!({"chat_id": "7", "message_id": id, "text": text});
    let sent = provider::http_client().unwrap().post(gateway.beacon().webhook_url.unwrap()).json(&body).send();
    sent.await.unwrap().json().await.unwrap()
}

async fn post(gateway: &Gateway, text: &str) -> Value {
    posted(gateway, "m", text).await["text"].clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rules_of_a_session_are_set_at_every_door_and_kept() {
    let (model, receiver) = (Model::start_on_thread(), Receiver::start());
    let webhook = json!({"enabled": true, "port": 0, "url": receiver.url(), "allowFrom": "*"});
    let place = place(&model, json!({"channels": {"webhook": webhook}}));
    let gateway = place.start().await;
    let usual = "Queue: steer, cap 20, drop refuse, debounce 500 ms. 0 waiting.";
    let collects = "Queue: collect, cap 3, drop old, debounce 2000 ms. 0 waiting.";
    let set = "/queue collect cap:3 drop:old debounce:2s";
    let mut socket = client(&gateway).await;
    for (text, told) in [("/queue", usual), (set, collects)] {
        socket.send(json!({"type": "message", "chat_id": "room", "content": text})).await;
        assert_eq!(socket.until("message").await["text"], told);
    }
    assert_eq!(chat(&gateway, set).await, collects);
    assert_eq!(post(&gateway, set).await, collects);
    let agent = |text: &str| {
        let out = place.run(&["agent", "-m", text]);
        String::from_utf8_lossy(&out.stdout).trim().to_owned()
    };
    assert_eq!(tokio::task::block_in_place(|| agent(set)), collects);
    gateway.kill_nine();

    let gateway = place.start().await;
    let mut socket = client(&gateway).await;
    socket.send(json!({"type": "message", "chat_id": "room", "content": "/queue"})).await;
    assert_eq!(socket.until("message").await["text"], collects);
    assert_eq!(chat(&gateway, "/queue").await, collects);
    assert_eq!(post(&gateway, "/queue").await, collects);
    socket.send(json!({"type": "message", "chat_id": "room", "content": "/queue loud"})).await;
    let refused = socket.until("message").await["text"].clone();
    assert!(refused.as_str().unwrap().starts_with("Please write it so: /queue [steer|"), "{refused}");
    socket.send(json!({"type": "message", "chat_id": "room", "content": "/queue default"})).await;
    assert_eq!(socket.until("message").await["text"], usual);
    assert!(model.requests().is_empty());
    assert_eq!(gateway.terminate().await, Some(0));
    assert_eq!(agent("/queue"), collects, "without a gateway, too");
    let kept: Vec<Value> = place.transcript("websocket.room").iter().map(|line| line["customType"].clone()).collect();
    assert_eq!(kept, ["greenroom.queue"; 2]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_behind_a_command_is_queued_and_not_offered_to_the_running_turn() {
    let model = Model::start_on_thread();
    let place = place(&model, json!({}));
    let gateway = place.start().await;
    let mut socket = client(&gateway).await;
    socket.say("room", &format!("look {CALL}"), "m1").await;
    socket.until("accepted").await;
    until("the call", || has_begun(&place)).await;
    socket.say("room", "/usage", "m2").await;
    assert_eq!(socket.until("accepted").await["state"], "queued");
    // The session has heard of the command.
    while !gateway.admin("tree").await.to_string().contains(r#""inbox":1"#) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    socket.say("room", "hello", "m3").await;
    let behind = socket.until("accepted").await;
    assert_eq!((&behind["state"], &behind["position"]), (&json!("queued"), &json!(2)));
    go(&place);
    for _ in 0..3 {
        assert_eq!(socket.until("turn_end").await["result"], "done", "each has a turn of its own");
    }
    gateway.terminate().await;
}
