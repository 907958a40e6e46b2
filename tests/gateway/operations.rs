//! What whoever is on call uses: health, metrics, tree, logs, backup, orderly stop.

use serde_json::{Value, json};
use testkit::deadline::with_deadline;

use crate::support::{Place, said};

async fn say(gateway: &crate::support::Gateway, chat: &str, text: &str) {
    let (status, body) =
        gateway.chat(json!({"user": chat, "messages": [{"role": "user", "content": text}]}), None).await;
    assert_eq!(status, 200, "{body}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn health_readiness_and_metrics_are_served() {
    let place = Place::new(json!({}));
    let gateway = place.start().await;
    say(&gateway, "ann", "hello").await;
    assert_eq!(gateway.get("/health").await.0, 200);
    assert_eq!(gateway.get("/ready").await.0, 200);
    let (status, metrics) = gateway.get("/metrics").await;
    assert_eq!(status, 200);
    for line in [
        "greenroom_turns_total{result=\"done\"} 1",
        "greenroom_accepted_total{door=\"api\"} 1",
        "greenroom_journal_writable 1",
        "greenroom_turn_seconds_count 1",
    ] {
        assert!(metrics.contains(line), "{line} is missing in\n{metrics}");
    }
    for name in [
        "sessions",
        "turns_running",
        "inbox_messages",
        "inbox_oldest_seconds",
        "mailbox_messages",
        "restarts",
        "dead_letters",
        "journal_batch_records",
        "journal_sync_seconds",
        "journal_bytes",
        "provider_calls",
        "provider_seconds",
    ] {
        assert!(metrics.contains(&format!("# TYPE greenroom_{name}")), "{name} is missing");
    }
    assert!(!metrics.contains(":ann"), "a session key is no label");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_commands_talk_to_the_running_gateway() {
    let place = Place::new(json!({}));
    let gateway = place.start().await;
    say(&gateway, "ann", "hello").await;
    let run = |arguments: &'static [&'static str]| {
        let out = place.run(arguments);
        assert!(out.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap()
    };
    assert!(run(&["agent", "-m", "through the gateway"]).contains("through the gateway"));
    assert!(run(&["status"]).contains("serving"));
    let tree: Value = serde_json::from_str(&run(&["tree", "--json"])).unwrap();
    assert!(tree.to_string().contains("api:user:ann"), "{tree}");
    assert!(run(&["tree"]).contains("api:user:ann"));
    let list: Value = serde_json::from_str(&run(&["sessions", "list", "--json"])).unwrap();
    assert_eq!(list["items"].as_array().unwrap().len(), 2, "{list}");
    assert!(run(&["sessions", "show", "api:user:ann"]).contains("hello"));
    assert!(run(&["logs", "--session", "api:user:ann", "--json"]).contains("activated"));
    assert!(run(&["deadletters", "list"]).contains("no dead letters"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_of_a_running_gateway_restores_elsewhere_with_everything() {
    let place = Place::new(json!({}));
    let gateway = place.start().await;
    say(&gateway, "ann", "remember me").await;
    let backup = tempfile::tempdir().unwrap();
    let target = backup.path().join("copy");
    let out = place.run(&["backup", target.to_str().unwrap()]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    drop(gateway);
    for own in ["config.json", "workspace/AGENTS.md"] {
        let used = Place::empty();
        let file = used.path().join(own);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, "{}").unwrap();
        let out = used.run(&["restore", target.to_str().unwrap()]);
        let told = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!((out.status.code(), told.contains("is there already")), (Some(1), true), "{own}: {told}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "{}", "{own} is as it was");
        assert!(!used.path().join("journal").exists());
    }
    let elsewhere = Place::empty();
    let out = elsewhere.run(&["restore", target.to_str().unwrap()]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let again = elsewhere.run(&["restore", target.to_str().unwrap()]);
    assert_ne!(again.status.code(), Some(0), "a directory that holds data is not overwritten");
    let gateway = elsewhere.start().await;
    say(&gateway, "ann", "and now").await;
    assert_eq!(gateway.terminate().await, Some(0));
    let messages = said(&elsewhere.transcript("api.user.ann"));
    assert_eq!(messages.len(), 4, "{messages:?}");
    assert_eq!(messages[0].1, "remember me");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_orderly_stop_keeps_the_running_turn_for_the_next_start_and_counts_it_as_no_crash() {
    let place = Place::new(json!({"runtime": {"drainSeconds": 0}}));
    let gateway = place.start().await;
    let mut socket = gateway.websocket("").await;
    socket.until("ready").await;
    socket.say("a", "slow [[delay=2000]]", "m1").await;
    socket.until("accepted").await;
    assert_eq!(gateway.terminate().await, Some(0));
    let gateway = place.start().await;
    gateway.settle().await;
    gateway.terminate().await;
    let messages = said(&place.transcript("websocket.a"));
    assert_eq!(messages.len(), 2, "{messages:?}");
    let events = place.events();
    let recovered: Vec<_> = events.iter().filter(|event| event["event"] == "turn_recovered").collect();
    assert_eq!(recovered.len(), 1, "{events:?}");
    assert!(recovered[0]["reason"].as_str().unwrap().contains("interrupted"), "{}", recovered[0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_signal_during_the_start_stops_in_order() {
    for signal in ["TERM", "INT"] {
        let place = Place::new(json!({}));
        let gateway = place.spawn();
        let begun = async {
            while !place.path().join("run/lock").exists() {
                tokio::task::yield_now().await;
            }
        };
        with_deadline("the start", begun).await;
        gateway.signal(signal);
        assert_eq!(gateway.ended().await, Some(0), "{signal}");
        assert_eq!(place.events().last().unwrap()["event"], "process_stopped", "{signal}");
        assert_eq!(place.start().await.terminate().await, Some(0));
        let started = place.events().into_iter().rfind(|event| event["event"] == "process_started").unwrap();
        assert_eq!(started["reason"], "gateway; the process before it stopped in order");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_sessions_leave_memory_and_wake_with_their_history() {
    let place = Place::new(json!({"runtime": {"idleSeconds": 1}}));
    let gateway = place.start().await;
    say(&gateway, "ann", "one").await;
    loop {
        let events = place.events();
        if events.iter().any(|event| event["event"] == "passivated" && event["session"] == "api:user:ann") {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    say(&gateway, "ann", "two").await;
    gateway.terminate().await;
    assert_eq!(said(&place.transcript("api.user.ann")).len(), 4);
}
