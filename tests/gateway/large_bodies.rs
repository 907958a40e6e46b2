//! Bodies of a megabyte and more: answered, or refused with an error that says why, alone and beside others.

use futures::future::join_all;
use serde_json::{Value, json};
use testkit::model::Model;

use crate::support::{Gateway, PATIENCE, Place};

const SIZES: [usize; 2] = [1_200_000, 1_900_000];
/// A call that runs until the file `go` is there.
const CALL: &str =
    r#"[[tool=exec {"command": "echo ran >> ran; while [ ! -e go ]; do sleep 0.02; done; echo found"}]]"#;

/// A request that brings about so many bytes of history, and ends with `text`.
fn request(session: Option<&str>, bytes: usize, text: &str) -> Value {
    let piece = "word ".repeat(bytes / 12 / 5);
    let said = |n: usize| json!({"role": if n.is_multiple_of(2) { "user" } else { "assistant" }, "content": piece});
    let last = json!({"role": "user", "content": text});
    let messages: Vec<Value> = (0..12).map(said).chain([last]).collect();
    let mut body = json!({ "messages": messages });
    if let Some(session) = session {
        body["session_id"] = json!(session);
    }
    body
}

fn answer(reply: &Value) -> &str {
    reply["choices"][0]["message"]["content"].as_str().unwrap_or_default()
}

/// Status, `Retry-After` and body.
async fn post(gateway: &Gateway, body: &Value) -> (u16, Option<String>, Value) {
    let url = format!("{}/chat/completions", gateway.api());
    let reply = provider::http_client().unwrap().post(url).json(body).send().await.unwrap();
    let after = reply.headers().get("retry-after").map(|after| after.to_str().unwrap().to_owned());
    (reply.status().as_u16(), after, reply.json().await.unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_history_is_shown_as_far_as_the_model_has_room_and_a_long_message_whole() {
    let model = Model::start_on_thread();
    for (window, has_room) in [(2_000_000, true), (100_000, false)] {
        let config = json!({"agents": {"defaults": {"contextWindowTokens": window}}});
        let place = Place::with_model(&model.url(), config);
        let gateway = place.start().await;
        for (size, session) in [(SIZES[0], None), (SIZES[0], Some("s")), (SIZES[1], None), (SIZES[1], Some("s"))] {
            let (status, reply) = gateway.chat(request(session, size, "and now?"), None).await;
            assert_eq!((status, answer(&reply)), (200, "echo:and now?"), "{size} {session:?}: {reply:.300}");
            let shown = model.requests().pop().unwrap()["messages"].to_string().len();
            assert_eq!(shown >= size, has_room, "of {size} bytes, {shown} were shown");
        }
        for size in SIZES {
            let message = json!({"role": "user", "content": "word ".repeat(size / 5)});
            let (status, reply) = gateway.chat(json!({"user": "ann", "messages": [message]}), None).await;
            assert_eq!((status, answer(&reply).starts_with("echo:word")), (200, true), "{reply:.300}");
            let shown = model.requests().pop().unwrap()["messages"].to_string().len();
            assert!(shown >= size, "the message itself is shown whole, and only the model can refuse it: {shown}");
        }
        let (status, reply) = gateway.chat(json!({"messages": [{"role": "user", "content": "hello"}]}), None).await;
        assert_eq!((status, answer(&reply)), (200, "echo:hello"));
        assert_eq!(gateway.terminate().await, Some(0));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_more_than_may_wait_in_a_session_is_refused_and_holds_up_no_other() {
    let model = Model::start_on_thread();
    let config = json!({
        "agents": {"defaults": {"contextWindowTokens": 2_000_000}},
        "runtime": {"inboxMaxBytes": 4 << 20},
        "tools": {"exec": {"sandbox": "off"}},
    });
    let place = Place::with_model(&model.url(), config);
    let gateway = place.start().await;
    let first = request(Some("s"), SIZES[1], &format!("look {CALL}"));
    let (one, others) = tokio::join!(post(&gateway, &first), async {
        let ran = place.path().join("workspace/ran");
        let begun = tokio::time::timeout(PATIENCE, async {
            while !ran.exists() {
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
        });
        begun.await.expect("the first one runs");
        let next: Vec<Value> = (0..3).map(|n| request(Some("s"), SIZES[1], &format!("next {n}"))).collect();
        let all = join_all(next.iter().map(|body| post(&gateway, body)));
        let small = async {
            for n in 0..5 {
                let body = json!({"user": n.to_string(), "messages": [{"role": "user", "content": "hello"}]});
                assert_eq!(post(&gateway, &body).await.0, 200);
            }
            let (status, _, reply) = post(&gateway, &request(None, SIZES[0], "and now?")).await;
            assert_eq!((status, answer(&reply)), (200, "echo:and now?"));
            std::fs::write(place.path().join("workspace/go"), "").unwrap();
        };
        tokio::join!(all, small).0
    });
    assert_eq!(one.0, 200, "{:.300}", one.2);
    let refused: Vec<_> = others.iter().filter(|(status, ..)| *status == 429).collect();
    assert_eq!(refused.len(), 2, "one more has room: {others:?}");
    for (_, after, reply) in refused {
        assert!(after.is_some() && reply["error"]["code"] == "session_full", "{after:?} {reply}");
    }
    assert_eq!(others.iter().filter(|(status, ..)| *status == 200).count(), 1, "{others:?}");
    let (_, metrics) = gateway.get("/metrics").await;
    assert!(metrics.contains(r#"greenroom_refused_total{door="api",reason="session_full"} 2"#), "{metrics}");
    gateway.terminate().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_bytes_at_once_than_the_process_takes_are_refused_until_there_is_room() {
    let model = Model::start_on_thread();
    let config = json!({
        "agents": {"defaults": {"contextWindowTokens": 2_000_000}},
        "runtime": {"frameBytesInFlight": 3_000_000},
    });
    let place = Place::with_model(&model.url(), config);
    let gateway = place.start().await;
    let ask = async |size: usize| {
        let body = request(None, size, "and now?");
        loop {
            let (status, after, reply) = post(&gateway, &body).await;
            match status {
                200 => return assert_eq!(answer(&reply), "echo:and now?"),
                status => {
                    assert_eq!((status, &reply["error"]["code"]), (503, &json!("process_full")), "{reply}");
                    assert!(after.is_some(), "{reply}");
                }
            }
        }
    };
    join_all([0, 1, 0, 1, 0, 1].map(|at| ask(SIZES[at]))).await;
    let too_much = request(None, 3_100_000, "and now?");
    assert_eq!(post(&gateway, &too_much).await.0, 503, "it has no room, ever");
    let (status, _, reply) = post(&gateway, &request(None, 100, "still here?")).await;
    assert_eq!((status, answer(&reply)), (200, "echo:still here?"));
    gateway.terminate().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frame_has_little_text_but_large_files_and_others_are_answered_meanwhile() {
    let model = Model::start_on_thread();
    let place = Place::with_model(&model.url(), json!({}));
    let gateway = place.start().await;
    let (mut socket, mut other) = (gateway.client().await, gateway.client().await);
    for size in SIZES {
        socket.say("a", &"word ".repeat(size / 5), "text").await;
        let refused = socket.until("error").await;
        assert_eq!((&refused["reason"], &refused["message_id"]), (&json!("too_large"), &json!("text")), "{refused}");
        // What a PNG begins with, and zeros.
        let data = format!("iVBORw0KGgoA{}", "AAAA".repeat(size / 3));
        let media = json!([format!("data:image/png;base64,{data}"), format!("data:text/plain;base64,{data}")]);
        let id = format!("files-{size}");
        let frame = json!({"type": "message", "chat_id": "a", "content": "look", "message_id": id, "media": media});
        socket.send(frame).await;
        other.say("b", "hello", &id).await;
        for one in [&mut other, &mut socket] {
            assert_eq!(one.until("accepted").await["message_id"], id.as_str());
            assert_eq!(one.until("turn_end").await["result"], "done");
        }
        assert!(model.requests().iter().any(|asked| asked.to_string().contains(&data)), "the model is shown it");
    }
    gateway.terminate().await;
}
