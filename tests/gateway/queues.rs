//! What waits behind a running turn, who looks away meanwhile, and what a turn does to its own session.

use serde_json::{Value, json};
use testkit::model::Model;

use crate::support::{Gateway, Place, said};

const FOLLOW_UPS: usize = 10;

/// The cursor behind an event.
fn cursor(event: &Value) -> String {
    format!("{}.{}.{}", event["turn_id"].as_str().unwrap(), event["attempt"], event["seq"])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_messages_behind_a_running_turn_are_all_answered_in_order_after_a_kill() {
    let place = Place::new(json!({"queue": {"mode": "followup"}}));
    let gateway = place.start().await;
    let mut socket = gateway.websocket("").await;
    socket.until("ready").await;
    socket.say("room", "first [[delay=1500]]", "m0").await;
    assert_eq!(socket.until("accepted").await["state"], "running");
    for n in 1..=FOLLOW_UPS {
        socket.say("room", &format!("follow-up {n}"), &format!("m{n}")).await;
    }
    for n in 1..=FOLLOW_UPS {
        let accepted = socket.until("accepted").await;
        assert_eq!((&accepted["position"], &accepted["state"]), (&json!(n), &json!("queued")));
    }
    gateway.kill_nine();

    let gateway = place.start().await;
    gateway.settle().await;
    let status = gateway.admin("status").await;
    assert_eq!(status["journal"]["done"], FOLLOW_UPS + 1, "{status}");
    assert_eq!(gateway.terminate().await, Some(0));
    let said = said(&place.transcript("websocket.room"));
    let roles: Vec<&str> = said.iter().map(|(role, _)| role.as_str()).collect();
    assert_eq!(roles, ["user", "assistant"].repeat(FOLLOW_UPS + 1), "one after the other, each answered once");
    let asked: Vec<&str> = said.iter().step_by(2).map(|(_, text)| text.as_str()).collect();
    let expected: Vec<String> = (1..=FOLLOW_UPS).map(|n| format!("follow-up {n}")).collect();
    assert_eq!(asked[0], "first [[delay=1500]]");
    assert_eq!(asked[1..], expected);
    for (n, (_, answer)) in said.iter().skip(3).step_by(2).enumerate() {
        assert!(answer.contains(&format!("follow-up {}", n + 1)), "{answer}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_that_come_through_different_doors_queue_in_one_session() {
    const EACH: usize = 10;
    let place = Place::new(json!({}));
    let gateway = place.start().await;
    let mut socket = gateway.websocket("").await;
    socket.until("ready").await;
    let through_the_socket = async {
        for n in 0..EACH {
            socket.say("room", &format!("socket {n} [[delay=20]]"), &format!("s{n}")).await;
        }
        for _ in 0..2 * EACH {
            assert_eq!(socket.until("turn_end").await["result"], "done", "of both doors");
        }
    };
    let shared = &gateway;
    let through_the_admin = (0..EACH).map(|n| async move {
        assert_eq!(shared.say("websocket:room", &format!("admin {n} [[delay=20]]"), &format!("a{n}")).await, "done");
    });
    futures::join!(through_the_socket, futures::future::join_all(through_the_admin));
    for kind in ["accepted", "done"] {
        assert_eq!(gateway.admin("status").await["journal"][kind], 2 * EACH, "nobody got a conflict");
    }
    assert_eq!(gateway.terminate().await, Some(0));
    let said = said(&place.transcript("websocket.room"));
    let roles: Vec<&str> = said.iter().map(|(role, _)| role.as_str()).collect();
    assert_eq!(roles, ["user", "assistant"].repeat(2 * EACH), "one turn at a time, whoever asked");
    let of_the_socket: Vec<usize> =
        said.iter().filter_map(|(_, text)| text.strip_prefix("socket ")?.split(' ').next()?.parse().ok()).collect();
    assert_eq!(of_the_socket, (0..EACH).collect::<Vec<_>>(), "each sender in its order");
}

/// Begins a turn in `chat` and looks away after its first words: the cursor behind those.
async fn begin_and_leave(gateway: &Gateway, chat: &str) -> String {
    let mut socket = gateway.websocket("").await;
    socket.until("ready").await;
    socket.say(chat, "hello [[tokens=20;itd=50]]", "m1").await;
    cursor(&socket.until("delta").await)
}

/// Comes back to `chat`: the text of the answer.
async fn come_back(gateway: &Gateway, chat: &str, after: &str) -> String {
    let mut socket = gateway.websocket("").await;
    socket.until("ready").await;
    socket.send(json!({"type": "attach", "chat_id": chat, "after": after})).await;
    socket.until("attached").await;
    let message = socket.until("message").await;
    let end = socket.until("turn_end").await;
    assert_eq!((&end["result"], &end["turn_id"]), (&json!("done"), &message["turn_id"]));
    assert!(after.starts_with(end["turn_id"].as_str().unwrap()), "{after}: {end}");
    message["text"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_came_while_its_client_was_away_is_seen_when_it_comes_back() {
    let place = Place::new(json!({}));
    let gateway = place.start().await;
    let here = begin_and_leave(&gateway, "here").await;
    gateway.settle().await;
    let first = come_back(&gateway, "here", &here).await;
    // The same when the answer came in another life of the gateway.
    let killed = begin_and_leave(&gateway, "killed").await;
    gateway.kill_nine();
    let gateway = place.start().await;
    gateway.settle().await;
    let answer = come_back(&gateway, "killed", &killed).await;
    assert_eq!(answer, come_back(&gateway, "killed", &killed).await, "as often as it is asked for");
    assert_eq!(gateway.terminate().await, Some(0));
    for (chat, answer) in [("here", first), ("killed", answer)] {
        let lines = said(&place.transcript(&format!("websocket.{chat}")));
        assert_eq!((lines.len(), &lines[1].1), (2, &answer));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_model_that_fails_is_told_on_the_command_line_and_nothing_is_lost() {
    let model = Model::start_on_thread();
    let place = Place::with_model(&model.url(), json!({}));
    let fail_then_work = || {
        let out = place.run(&["agent", "-s", "cli:work", "-m", "please [[error=401]]"]);
        let (shown, error) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
        assert_eq!(out.status.code(), Some(1), "{shown}{error}");
        assert!(shown.contains("custom") && shown.contains("401"), "who failed, and how: {shown}");
        assert!(error.contains("was not answered"), "{error}");
        let out = place.run(&["agent", "-s", "cli:work", "-m", "and now"]);
        assert!(out.status.success() && String::from_utf8_lossy(&out.stdout).contains("echo:and now"));
    };
    fail_then_work();
    let gateway = place.start().await;
    tokio::task::block_in_place(fail_then_work);
    assert_eq!(gateway.terminate().await, Some(0));
    let said = said(&place.transcript("cli.work"));
    let asked: Vec<&str> = said.iter().filter(|(role, _)| role == "user").map(|(_, text)| text.as_str()).collect();
    assert_eq!(asked, ["please [[error=401]]", "and now"].repeat(2), "without a gateway and through one");
    let letters: Value = serde_json::from_slice(&place.run(&["deadletters", "list", "--json"]).stdout).unwrap();
    assert_eq!(letters["items"], json!([]), "it was answered, if sadly");
}

/// Runs `command` as a tool of a turn of `chat`: the end of the turn.
async fn run_tool(gateway: &Gateway, chat: &str, command: &str, id: &str) -> Value {
    let mut socket = gateway.websocket("").await;
    socket.until("ready").await;
    let call = json!({"command": command});
    socket.say(chat, &format!("[[tool=exec {call}]]"), id).await;
    socket.until("turn_end").await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tool_that_asks_its_own_gateway_about_its_own_session_is_answered() {
    let place = Place::new(json!({"tools": {"exec": {"sandbox": "off", "timeout": 5}}}));
    let gateway = place.start().await;
    let (home, program) = (place.path().display().to_string(), crate::support::program());
    let greenroom = format!("GREENROOM_HOME={home} {}", program.display());
    let command =
        format!("{greenroom} sessions show websocket:self --json; {greenroom} sessions list; {greenroom} tree");
    let end = run_tool(&gateway, "self", &command, "outer").await;
    assert_eq!(end["result"], "done");
    gateway.settle().await;
    // Waits for an answer that can only come after its own turn: until its time is over, and not longer.
    let end = run_tool(&gateway, "self", &format!("{greenroom} agent -s websocket:self -m waiting"), "waits").await;
    assert_eq!(end["result"], "done");
    gateway.settle().await;
    let status = gateway.admin("status").await;
    assert_eq!((&status["journal"]["open"], &status["turns_running"]), (&json!(0), &json!(0)));
    assert_eq!(gateway.terminate().await, Some(0));
    let lines = place.transcript("websocket.self");
    let said = said(&lines);
    let asked: Vec<&str> = said.iter().filter(|(role, _)| role == "user").map(|(_, text)| text.as_str()).collect();
    assert_eq!((asked.len(), asked[2]), (3, "waiting"), "{asked:?}");
    let results: Vec<&str> =
        said.iter().filter(|(role, _)| role == "toolResult").map(|(_, text)| text.as_str()).collect();
    assert!(
        results[0].contains("\"key\": \"websocket:self\"") && results[0].contains("running_tools"),
        "{}",
        results[0]
    );
    assert!(results[1].contains("did not end within 5 s"), "{}", results[1]);
}
