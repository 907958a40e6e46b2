//! A workspace with very many conversations: none costs anything until it is used, and all of them are listed.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::support::{Gateway, Place};

const SESSIONS: usize = 10_000;

/// Transcripts as an earlier life left them.
fn write_sessions(place: &Place) {
    let directory = place.path().join("workspace/sessions");
    std::fs::create_dir_all(&directory).unwrap();
    for n in 0..SESSIONS {
        let mut text = String::new();
        let key = format!("websocket:old-{n:05}");
        let header = json!({"type": "session", "version": 3, "id": format!("s{n}"), "timestamp": "2026-01-01T00:00:00.000Z", "cwd": "/w", "sessionKey": key});
        let entry = json!({"type": "message", "id": format!("{n:08x}"), "parentId": null, "timestamp": "2026-01-02T00:00:00.000Z", "message": {"role": "user", "content": format!("question {n}")}});
        writeln!(text, "{header}\n{entry}").unwrap();
        std::fs::write(directory.join(format!("websocket.old-{n:05}.jsonl")), text).unwrap();
    }
}

/// All sessions, page by page.
async fn listed(gateway: &Gateway) -> Vec<Value> {
    let (mut items, mut cursor) = (Vec::new(), None::<String>);
    loop {
        let query = cursor.map(|cursor| format!("?cursor={}", cursor.replace(':', "%3A"))).unwrap_or_default();
        let mut page = gateway.admin(&format!("sessions{query}")).await;
        items.append(page["items"].as_array_mut().unwrap_or_else(|| panic!("no page")));
        match page["next"].as_str() {
            Some(next) => cursor = Some(next.to_owned()),
            None => return items,
        }
    }
}

fn activated(place: &Place) -> Vec<String> {
    let events = place.events().into_iter().filter(|event| event["event"] == "activated");
    events.map(|event| event["session"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_loads_only_sessions_with_work_and_lists_all_of_ten_thousand() {
    let place = Place::new(json!({}));
    let gateway = place.start().await;
    let mut socket = gateway.websocket("").await;
    socket.until("ready").await;
    socket.say("busy", "slow [[delay=600000]]", "m1").await;
    socket.until("accepted").await;
    gateway.kill_nine();
    write_sessions(&place);
    std::fs::remove_file(place.path().join("logs/supervision.jsonl")).unwrap();

    let gateway = place.start().await;
    let items = listed(&gateway).await;
    assert_eq!(items.len(), SESSIONS + 1);
    let keys: Vec<&str> = items.iter().map(|item| item["key"].as_str().unwrap()).collect();
    assert!(keys.is_sorted_by(|a, b| a < b), "each once, in order");
    let old = &items[1 + 4711];
    assert_eq!(
        (&old["key"], &old["session"], &old["preview"], &old["entries"], &old["state"]),
        (&json!("websocket:old-04711"), &json!("s4711"), &json!("question 4711"), &json!(1), &json!("asleep"))
    );
    assert_eq!((keys[0], &items[0]["state"]), ("websocket:busy", &json!("thinking")));
    assert_eq!(gateway.admin("status").await["sessions_live"], 1);
    assert_eq!(activated(&place), ["websocket:busy"]);
    let (_, metrics) = gateway.get("/metrics").await;
    assert!(metrics.contains(&format!("greenroom_sessions{{state=\"listed\"}} {}", SESSIONS + 1)), "{metrics}");

    // One that is used is brought up to date in the list.
    assert_eq!(gateway.say("websocket:old-00007", "and now", "m1").await, "done");
    let seven = listed(&gateway).await.remove(1 + 7);
    assert_eq!((&seven["key"], &seven["entries"]), (&json!("websocket:old-00007"), &json!(3)), "{seven}");
    assert_eq!((&seven["preview"], &seven["session"]), (&json!("question 7"), &json!("s7")));
    assert_eq!(activated(&place), ["websocket:busy", "websocket:old-00007"]);
    drop(gateway);
    // The same without a gateway.
    let out = place.run(&["sessions", "list", "--json"]);
    let body: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(body["items"].as_array().unwrap().len(), SESSIONS, "a turn that never ended has no transcript");
    assert_eq!((&body["items"][0]["key"], &body["items"][0]["entries"]), (&json!("websocket:old-00007"), &json!(3)));
}
