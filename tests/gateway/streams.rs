//! What comes while a turn runs, also to clients that are cut off or read nothing.

use futures::StreamExt;
use serde_json::{Value, json};
use testkit::deadline::with_deadline;
use tokio::net::TcpSocket;
use tokio_tungstenite::tungstenite::Message;

use crate::support::{Gateway, PATIENCE, Place, said};

/// An event stream of the API, read by its events.
struct Events {
    response: reqwest::Response,
    bytes: Vec<u8>,
}

impl Events {
    async fn ask(gateway: &Gateway, content: &str, headers: &[(&'static str, String)]) -> Self {
        let body = json!({"user": "ann", "stream": true, "messages": [{"role": "user", "content": content}]});
        let mut request =
            provider::http_client().unwrap().post(format!("{}/chat/completions", gateway.api())).json(&body);
        for (name, value) in headers {
            request = request.header(*name, value);
        }
        let response = with_deadline("an answer", request.send()).await.unwrap();
        Self { response, bytes: Vec::new() }
    }

    /// Id and data of the next event.
    async fn next(&mut self) -> Option<(Option<String>, String)> {
        loop {
            if let Some(end) = self.bytes.windows(2).position(|two| two == b"\n\n") {
                let event: Vec<u8> = self.bytes.drain(..end + 2).collect();
                let event = String::from_utf8(event).unwrap();
                let field = |name: &str| event.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
                match field("data: ") {
                    Some(data) => return Some((field("id: "), data)),
                    None => continue,
                }
            }
            self.bytes.extend(with_deadline("an event", self.response.chunk()).await.unwrap()?);
        }
    }

    /// The text up to the end, or of `count` events; and the id of the last event that had one.
    async fn text(&mut self, count: usize) -> (String, Option<String>) {
        let (mut text, mut last) = (String::new(), None);
        for _ in 0..count {
            let Some((id, data)) = self.next().await else { break };
            if data == "[DONE]" {
                break;
            }
            let chunk: Value = serde_json::from_str(&data).unwrap();
            text.push_str(chunk["choices"][0]["delta"]["content"].as_str().unwrap_or_default());
            last = id.or(last);
        }
        (text, last)
    }
}

const ALL: usize = usize::MAX;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_api_stream_goes_on_behind_its_last_event() {
    let place = Place::new(json!({}));
    let gateway = place.start().await;
    let content = "hello [[tokens=40;itd=20]]";
    let key = |last: Option<&str>| {
        let last = last.map(|last| ("last-event-id", last.to_owned()));
        [("idempotency-key", "k1".to_owned())].into_iter().chain(last).collect::<Vec<_>>()
    };
    let (begin, mark) = Events::ask(&gateway, content, &key(None)).await.text(5).await;
    let mark = mark.unwrap();
    // While the turn runs.
    let (rest, _) = Events::ask(&gateway, content, &key(Some(&mark))).await.text(ALL).await;
    let whole = format!("{begin}{rest}");
    assert!(whole.ends_with(" t39"), "{whole}");
    let (again, _) = Events::ask(&gateway, content, &key(None)).await.text(ALL).await;
    assert_eq!(again, whole);
    // After its end, and after a restart.
    gateway.kill_nine();
    let gateway = place.start().await;
    let (rest, _) = Events::ask(&gateway, content, &key(Some(&mark))).await.text(ALL).await;
    assert_eq!(format!("{begin}{rest}"), whole);
    for (headers, code) in [
        (key(Some("seven")), "invalid_last_event_id"),
        (vec![("last-event-id", mark.clone())], "invalid_last_event_id"),
    ] {
        let refused = Events::ask(&gateway, content, &headers).await.response;
        assert_eq!(refused.status(), 400);
        assert_eq!(refused.json::<Value>().await.unwrap()["error"]["code"], code);
    }
    gateway.terminate().await;
    assert_eq!(said(&place.transcript("api.user.ann")).len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chat_sees_what_tools_do_unless_it_is_told_not_to() {
    let ask = r#"write [[tool=write_file {"path":"a.txt","content":"one\n"}]] [[say=done]]"#;
    let place = Place::new(json!({}));
    let gateway = place.start().await;
    let mut socket = gateway.client().await;
    socket.say("room", ask, "m1").await;
    let began = socket.until("message").await;
    assert_eq!((&began["kind"], &began["text"]), (&json!("tool_hint"), &json!("write a.txt")));
    assert_eq!(began["tool_events"][0]["arguments"]["path"], "a.txt");
    let ended = socket.until("message").await;
    let item = &ended["tool_events"][0];
    assert_eq!((&item["phase"], &item["files"]), (&json!("end"), &json!(["a.txt"])));
    assert!(item["result"].as_str().unwrap().contains("a.txt") && item["took_ms"].is_u64(), "{item}");
    let edit = socket.until("file_edit").await;
    assert_eq!(edit["edits"], json!([{"path": "a.txt", "added": 1, "removed": 0, "diff": "@@ -0,0 +1 @@\n+one\n"}]));
    socket.until("turn_end").await;
    gateway.terminate().await;
    let quiet = json!({"channels": {"sendProgress": false, "sendToolHints": false, "showReasoning": false}});
    let place = Place::new(quiet);
    let gateway = place.start().await;
    let mut socket = gateway.client().await;
    socket.say("room", &format!("{ask} [[reasoning=hm]]"), "m1").await;
    let mut seen = Vec::new();
    while !seen.contains(&"turn_end".to_owned()) {
        let frame = socket.next().await.unwrap();
        seen.push(frame["event"].as_str().unwrap().to_owned());
    }
    seen.retain(|event| event != "goal_status");
    seen.dedup();
    assert_eq!(seen, ["accepted", "delta", "stream_end", "turn_end"]);
    gateway.terminate().await;
}

/// What may wait for one client is less than this.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_of_almost_two_megabytes_arrives_however_it_is_asked_for() {
    let place = Place::new(json!({}));
    let gateway = place.start().await;
    for tokens in [165_000, 250_000] {
        let (chat, content) = (format!("room{tokens}"), format!("long [[tokens={tokens}]]"));
        let is_whole = |text: &str| text.len() > 6 * tokens && text.ends_with(&format!(" t{}", tokens - 1));
        let mut socket = gateway.client().await;
        socket.say(&chat, &content, "m1").await;
        let accepted = socket.until("accepted").await;
        let mut text = String::new();
        loop {
            let frame = socket.next().await.expect("the connection stays open");
            match frame["event"].as_str().unwrap() {
                "delta" => text.push_str(frame["text"].as_str().unwrap()),
                "turn_end" => break,
                _ => {}
            }
        }
        assert!(is_whole(&text), "{} bytes", text.len());
        socket.say(&chat, &content, "m1").await;
        assert_eq!(socket.until("accepted").await["state"], "duplicate");
        let again = socket.until("message").await["text"].clone();
        assert!(is_whole(again.as_str().unwrap()));
        let mut other = gateway.client().await;
        let cursor = format!("{}.1.1", accepted["turn_id"].as_str().unwrap());
        other.send(json!({"type": "attach", "chat_id": chat, "after": cursor})).await;
        let rest = other.until("message").await["text"].clone();
        assert!(is_whole(rest.as_str().unwrap()));
        let key = [("idempotency-key", tokens.to_string())];
        for _ in 0..2 {
            let (text, _) = Events::ask(&gateway, &content, &key).await.text(ALL).await;
            assert!(is_whole(&text), "{} bytes", text.len());
        }
    }
    gateway.terminate().await;
}

/// Of a client that reads nothing the turns do not wait; it loses its connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_does_not_read_holds_up_nobody() {
    const MESSAGES: usize = 8;
    let place = Place::new(json!({}));
    let gateway = place.start().await;
    let url = gateway.beacon().websocket_url.unwrap();
    let address = url.trim_start_matches("ws://").split('/').next().unwrap().parse().unwrap();
    let socket = TcpSocket::new_v4().unwrap();
    // So that little is on its way.
    socket.set_recv_buffer_size(4096).unwrap();
    let stream = socket.connect(address).await.unwrap();
    let (mut slow, _) = tokio_tungstenite::client_async(&url, stream).await.unwrap();
    for number in 0..MESSAGES {
        let content = format!("{number} [[tokens=100000]]");
        let frame = json!({"type": "message", "chat_id": "a", "content": content, "message_id": format!("m{number}")});
        futures::SinkExt::send(&mut slow, Message::text(frame.to_string())).await.unwrap();
    }
    let mut other = gateway.client().await;
    other.say("b", "hello", "m1").await;
    other.until("turn_end").await;
    let ended = async {
        loop {
            let (_, metrics) = gateway.get("/metrics").await;
            let shows = |line: &str| metrics.lines().any(|other| other == line);
            let done = format!("greenroom_turns_total{{result=\"done\"}} {}", MESSAGES + 1);
            if shows(&done) && shows("greenroom_slow_clients_total{door=\"ws\"} 1") {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, ended).await.expect("all turns end, and the client that reads nothing is let go");
    while let Some(Ok(message)) = with_deadline("the end of the connection", slow.next()).await {
        if let Message::Close(Some(close)) = message {
            assert_eq!(u16::from(close.code), 1013);
        }
    }
    gateway.terminate().await;
    assert_eq!(said(&place.transcript("websocket.a")).len(), 2 * MESSAGES);
}
