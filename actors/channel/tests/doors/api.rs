//! The OpenAI-compatible door.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use channel::Secret;
use channel::openai_api::{ApiConfig, serve};
use domain::body::{ContextRole, HistorySource, TurnBody};
use domain::chat::StopReason;
use protocol::journal::{BusyReason, Enqueued};
use protocol::session::TurnRecord;
use protocol::turn::{Finished, TurnProgress, TurnResult};
use serde_json::{Value, json};
use testkit::deadline::with_deadline;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use crate::client::{Reply, get, post, read_until, receive, send};
use crate::world::{Player, World, ended, finished, text_of};

const CHAT: &str = "/v1/chat/completions";

async fn open(config: ApiConfig) -> (Arc<World>, SocketAddr, JoinHandle<()>) {
    let world = World::new();
    let (listener, address) = world.listen().await;
    let serving = tokio::spawn(serve(listener, world.doors.clone(), config, world.shutdown.clone()));
    (world, address, serving)
}

fn ask(text: &str, more: Value) -> Vec<u8> {
    let mut body = json!({"model": "m", "messages": [{"role": "user", "content": text}]});
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    body.to_string().into_bytes()
}

fn chunks(body: &str) -> Vec<Value> {
    let data = body.lines().filter_map(|line| line.strip_prefix("data: "));
    data.filter_map(|data| serde_json::from_str(data).ok()).collect()
}

fn text(chunks: &[Value]) -> String {
    chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str()).collect()
}

#[tokio::test]
async fn a_plain_answer_has_openais_shape() {
    let (world, address, _) = open(ApiConfig::new("m")).await;
    let reply = tokio::spawn(async move { post(address, CHAT, "", &ask("hi", json!({"session_id": "s"}))).await });
    let message = world.message().await;
    assert_eq!((message.key.as_str(), text_of(&message).as_str()), ("api:s", "hi"));
    world.play(&message.key, message.turn).answer("Hello");
    let reply = reply.await.unwrap();
    assert_eq!(reply.status, 200);
    assert_eq!(reply.header("x-greenroom-turn"), Some(message.turn.to_string().as_str()));
    let body = reply.json();
    assert_eq!(body["id"], format!("chatcmpl-{}", message.turn));
    assert_eq!(body["object"], "chat.completion");
    assert_eq!(body["choices"][0]["message"], json!({"role": "assistant", "content": "Hello", "refusal": null}));
    assert_eq!(body["choices"][0]["finish_reason"], "stop");
    assert_eq!(body["usage"]["total_tokens"], 5);
}

#[tokio::test]
async fn commands_are_answered_at_once_in_the_shape_of_an_answer() {
    let (world, address, _) = open(ApiConfig::new("m")).await;
    for (command, answer) in
        [("/stop all", "Nothing was running. Dropped 1 waiting."), ("/hlep", "Did you mean /help?")]
    {
        let reply = post(address, CHAT, "", &ask(command, json!({"session_id": "s"}))).await;
        let choice = &reply.json()["choices"][0];
        assert_eq!((reply.status, &choice["finish_reason"]), (200, &"stop".into()));
        assert!(choice["message"]["content"].as_str().unwrap().contains(answer), "{}", reply.body);
        assert_eq!(reply.header("x-greenroom-turn"), None, "there is no turn");
        let reply = post(address, CHAT, "", &ask(command, json!({"session_id": "s", "stream": true}))).await;
        assert!(reply.body.ends_with("data: [DONE]\n\n"), "{}", reply.body);
        assert!(text(&chunks(&reply.body)).contains(answer), "{}", reply.body);
    }
    // A conversation of its own is nobody's to command.
    let own = json!({"messages": [{"role": "user", "content": "/help"}, {"role": "assistant", "content": "?"},
        {"role": "user", "content": "/stop"}]});
    let reply = tokio::spawn(async move { post(address, CHAT, "", own.to_string().as_bytes()).await });
    let message = world.message().await;
    assert_eq!(text_of(&message), "/stop");
    world.play(&message.key, message.turn).answer("Hello");
    assert_eq!(reply.await.unwrap().json()["choices"][0]["message"]["content"], "Hello");
}

#[tokio::test]
async fn a_streamed_answer_comes_piece_by_piece() {
    let (world, address, _) = open(ApiConfig::new("m")).await;
    let more = json!({"stream": true, "stream_options": {"include_usage": true}, "user": "u"});
    let mut socket = send(address, "POST", CHAT, "", &ask("hi", more)).await;
    let message = world.message().await;
    assert_eq!(message.key.as_str(), "api:user:u");
    let mut turn = world.play(&message.key, message.turn);
    turn.start().say("Hel");
    let first = read_until(&mut socket, "\"Hel\"").await;
    assert!(first.contains("text/event-stream"));
    turn.emit(TurnProgress::Reasoning("hm".to_owned()));
    let quiet = read_until(&mut socket, ": running\n").await;
    turn.say("lo").end("Hello").finish(TurnResult::Done, "Hello");
    let rest = read_until(&mut socket, "[DONE]").await;
    // Once an event has had an id, the official Python client takes a blank line behind a comment for an event.
    assert!(!format!("{first}{quiet}{rest}").contains(": running\n\n"));
    assert!(first.contains("\"role\":\"assistant\""));
    assert!(
        rest.contains("\"lo\"") && rest.contains("\"finish_reason\":\"stop\"") && rest.contains("\"total_tokens\":5")
    );
}

#[tokio::test]
async fn a_request_with_a_history_brings_it_along() {
    let (world, address, _) = open(ApiConfig::new("m")).await;
    let body = json!({"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}]});
    let _socket = send(address, "POST", CHAT, "", body.to_string().as_bytes()).await;
    let message = world.message().await;
    assert_eq!(message.key.as_str(), format!("api:req:{}", message.turn));
    let body = TurnBody::decode(&message.body).unwrap();
    assert!(body.ephemeral && body.history == HistorySource::Request);
    let roles: Vec<ContextRole> = body.context.iter().map(|message| message.role).collect();
    assert_eq!(roles, [ContextRole::System, ContextRole::User, ContextRole::Assistant]);
}

#[tokio::test]
async fn one_key_is_one_turn() {
    let (world, address, _) = open(ApiConfig::new("m")).await;
    let key = "idempotency-key: k1\r\n";
    let first = send(address, "POST", CHAT, key, &ask("hi", json!({}))).await;
    let message = world.message().await;
    assert_eq!((message.key.as_str(), message.message_id.as_str()), ("api:default", "k1"));
    let mut turn = world.play(&message.key, message.turn);
    turn.start().say("Hel");
    world.backend.records.lock().unwrap().insert(message.turn, TurnRecord::Open);
    drop(first);
    let mut again = send(address, "POST", CHAT, key, &ask("hi", json!({"stream": true}))).await;
    let begun = read_until(&mut again, "\"Hel\"").await;
    assert!(begun.contains(&message.turn.to_string()));
    assert_eq!(post(address, CHAT, key, &ask("other", json!({}))).await.status, 422);
    turn.say("lo").end("Hello").finish(TurnResult::Done, "Hello");
    read_until(&mut again, "[DONE]").await;
    world.backend.records.lock().unwrap().insert(message.turn, ended(finished(TurnResult::Done, "Hello")));
    let late = post(address, CHAT, key, &ask("hi", json!({}))).await.json();
    assert_eq!(late["id"], format!("chatcmpl-{}", message.turn));
    assert_eq!(late["choices"][0]["message"]["content"], "Hello");
    let streamed = post(address, CHAT, key, &ask("hi", json!({"stream": true}))).await;
    assert_eq!(text(&chunks(&streamed.body)), "Hello");
    assert!(streamed.body.ends_with("data: [DONE]\n\n"));
}

#[tokio::test]
async fn a_turn_of_a_session_that_is_held_back_is_told_from_its_transcript() {
    let (world, address, _) = open(ApiConfig::new("m")).await;
    let key = "idempotency-key: k1\r\n";
    let first = send(address, "POST", CHAT, key, &ask("hi", json!({}))).await;
    let message = world.message().await;
    drop(first);
    world.backend.held_back.store(true, Ordering::Relaxed);
    // While it is open the repeat waits for its end.
    let mut waiting = send(address, "POST", CHAT, key, &ask("hi", json!({"stream": true}))).await;
    read_until(&mut waiting, "assistant").await;
    world.play(&message.key, message.turn).answer("Hello");
    read_until(&mut waiting, "[DONE]").await;
    world.backend.records.lock().unwrap().insert(message.turn, ended(finished(TurnResult::Done, "Hello")));
    let late = post(address, CHAT, key, &ask("hi", json!({}))).await;
    assert_eq!(late.json()["choices"][0]["message"]["content"], "Hello");
}

#[tokio::test]
async fn a_client_that_leaves_takes_its_turn_along() {
    let (world, address, _) = open(ApiConfig::new("m")).await;
    for stream in [false, true] {
        let socket = send(address, "POST", CHAT, "", &ask("hi", json!({"stream": stream}))).await;
        let message = world.message().await;
        world.play(&message.key, message.turn).start();
        drop(socket);
        assert_eq!(world.cancelled().await, message.turn);
    }
    assert_eq!(world.hub.sessions(), 0, "nothing is left behind");
}

/// A turn's four answers: whole and streamed, then both once more under the same key after it ended.
async fn four_answers(play: impl Fn(&mut Player), record: impl Fn() -> Finished) -> Vec<Reply> {
    let (world, address, _) = open(ApiConfig::new("m")).await;
    let mut replies = Vec::new();
    for stream in [false, true] {
        let key = format!("idempotency-key: {stream}\r\n");
        let body = ask("hi", json!({"stream": stream, "user": stream.to_string()}));
        let socket = send(address, "POST", CHAT, &key, &body).await;
        let message = world.message().await;
        play(&mut world.play(&message.key, message.turn));
        replies.push(receive(socket).await);
        world.backend.records.lock().unwrap().insert(message.turn, ended(record()));
        replies.push(post(address, CHAT, &key, &body).await);
    }
    replies
}

#[tokio::test]
async fn turns_without_an_answer_are_error_objects() {
    for (result, status, code) in [
        (TurnResult::Failed, 502, "provider_error"),
        (TurnResult::DeadLettered, 500, "dead_lettered"),
        (TurnResult::Cancelled, 409, "cancelled"),
    ] {
        let play = |turn: &mut Player| turn.start().say("par").finish(result, "sorry");
        let replies = four_answers(play, || finished(result, "sorry")).await;
        for reply in &replies[..2] {
            assert_eq!((reply.status, &reply.json()["error"]["code"]), (status, &code.into()));
            assert_eq!(reply.json()["error"]["message"], "sorry");
            assert_eq!(reply.header("x-should-retry"), Some("false"));
        }
        for reply in &replies[2..] {
            assert_eq!(reply.status, 200);
            let error = &chunks(&reply.body).pop().unwrap()["error"];
            assert_eq!((&error["code"], &error["message"]), (&code.into(), &"sorry".into()));
            assert!(!reply.body.contains("[DONE]") && !reply.body.contains(r#""finish_reason":""#), "{}", reply.body);
        }
    }
}

#[tokio::test]
async fn an_answer_that_was_cut_at_the_limit_says_so() {
    for (stop, reason) in [(StopReason::Stop, "stop"), (StopReason::Length, "length")] {
        let cut = || Finished { stop, ..finished(TurnResult::Done, "Hel") };
        let play = |turn: &mut Player| {
            turn.start().say("Hel").end("Hel").emit(TurnProgress::Finished(Arc::new(cut())));
        };
        let replies = four_answers(play, cut).await;
        for reply in &replies[..2] {
            assert_eq!(reply.json()["choices"][0]["finish_reason"], reason);
        }
        for reply in &replies[2..] {
            let chunks = chunks(&reply.body);
            assert_eq!(text(&chunks), "Hel");
            assert_eq!(chunks.last().unwrap()["choices"][0]["finish_reason"], reason);
            assert!(reply.body.ends_with("data: [DONE]\n\n"));
        }
    }
}

#[tokio::test]
async fn what_the_program_tells_is_a_comment_that_ends_with_a_single_newline() {
    let (world, address, _) = open(ApiConfig::new("m")).await;
    let socket = send(address, "POST", CHAT, "", &ask("hi", json!({"stream": true}))).await;
    let message = world.message().await;
    let mut turn = world.play(&message.key, message.turn);
    turn.start().say("Hel").emit(TurnProgress::Notice("The beginning\nwas summarised.".into()));
    turn.say("lo").end("Hello").finish(TurnResult::Done, "Hello");
    let body = receive(socket).await.body;
    let (before, behind) = body.split_once("\n: The beginning was summarised.\n").expect("the comment, on a line");
    // A blank line there would be an event without data to the official Python client.
    assert!(before.ends_with('\n') && behind.starts_with("id: "), "{body}");
    assert_eq!(text(&chunks(&body)), "Hello");
}

#[tokio::test]
async fn no_answer_in_time_is_a_504_and_cancels() {
    let config = ApiConfig { timeout: Duration::from_millis(20), ..ApiConfig::new("m") };
    let (world, address, _) = open(config).await;
    let reply = post(address, CHAT, "", &ask("hi", json!({}))).await;
    assert_eq!((reply.status, &reply.json()["error"]["code"]), (504, &"timeout".into()));
    assert_eq!(world.cancelled().await, world.message().await.turn);
}

#[tokio::test]
async fn bounds_say_when_to_come_back() {
    let (world, address, _) = open(ApiConfig::new("m")).await;
    for (refusal, status, retry) in [
        (Enqueued::Busy { retry_after_ms: 1200, why: BusyReason::Session }, 429, "2"),
        (Enqueued::Busy { retry_after_ms: 900, why: BusyReason::Disk }, 503, "1"),
        (Enqueued::Draining, 503, "5"),
    ] {
        world.refuse(refusal);
        let reply = post(address, CHAT, "", &ask("hi", json!({}))).await;
        assert_eq!((reply.status, reply.header("retry-after")), (status, Some(retry)));
        assert!(reply.json()["error"]["message"].is_string());
    }
}

#[tokio::test]
async fn wrong_requests_get_an_error_object() {
    let config = ApiConfig { api_key: Secret::new("sesame"), body_bytes_max: 2000, ..ApiConfig::new("m") };
    let (_world, address, _) = open(config).await;
    let key = "authorization: Bearer sesame\r\n";
    let json_key = format!("{key}content-type: application/json\r\n");
    let long = ask(&"x".repeat(3000), json!({}));
    let image = ask("", json!({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}));
    for (method, path, headers, body, status, code) in [
        ("POST", CHAT, "", ask("hi", json!({})), 401, "invalid_api_key"),
        ("POST", CHAT, "authorization: Bearer no\r\n", ask("hi", json!({})), 401, "invalid_api_key"),
        ("GET", "/v1/models", "", Vec::new(), 401, "invalid_api_key"),
        ("POST", CHAT, key, b"{\"messages\"".to_vec(), 400, "invalid_json"),
        ("POST", CHAT, key, b"\xff\xfe".to_vec(), 400, "invalid_json"),
        ("POST", CHAT, &json_key, Vec::new(), 400, "invalid_json"),
        ("POST", CHAT, key, Vec::new(), 415, "unsupported_media_type"),
        ("POST", CHAT, key, ask("hi", json!({"model": "other"})), 404, "model_not_found"),
        ("POST", CHAT, key, ask("hi", json!({"stream": 1})), 400, "invalid_type"),
        ("POST", CHAT, key, image, 400, "missing_required_parameter"),
        ("POST", CHAT, key, long, 413, "request_too_large"),
        ("GET", CHAT, key, Vec::new(), 405, "method_not_allowed"),
        ("GET", "/v2", key, Vec::new(), 404, "not_found"),
    ] {
        let reply = receive(send(address, method, path, headers, &body).await).await;
        assert_eq!((reply.status, &reply.json()["error"]["code"]), (status, &code.into()), "{method} {path}");
    }
    let reply =
        post(address, CHAT, &format!("{key}idempotency-key: {}\r\n", "x".repeat(201)), &ask("a", json!({}))).await;
    assert_eq!(reply.json()["error"]["code"], "invalid_idempotency_key");
    assert_eq!(get(address, "/v1/models", key).await.json()["data"][0]["id"], "m");
    assert_eq!(get(address, "/health", "").await.status, 200);
    let garbage = receive(send(address, "\u{1}GARBAGE", "x", "", b"").await).await;
    assert_eq!(garbage.status, 400);
}

#[tokio::test]
async fn running_answers_are_given_before_the_end() {
    let (world, address, serving) = open(ApiConfig::new("m")).await;
    let socket = send(address, "POST", CHAT, "", &ask("hi", json!({}))).await;
    let message = world.message().await;
    world.shutdown.cancel();
    world.play(&message.key, message.turn).answer("Hello");
    assert_eq!(receive(socket).await.status, 200);
    with_deadline("end of serving", serving).await.unwrap();
}

#[tokio::test]
async fn turns_that_are_kept_for_the_next_start_are_not_waited_for() {
    let (world, address, serving) = open(ApiConfig::new("m")).await;
    let plain = send(address, "POST", CHAT, "", &ask("hi", json!({}))).await;
    world.message().await;
    let streamed = send(address, "POST", CHAT, "", &ask("hi", json!({"stream": true}))).await;
    world.message().await;
    world.hub.close();
    world.shutdown.cancel();
    let reply = receive(plain).await;
    assert_eq!((reply.status, reply.header("retry-after")), (503, Some("5")));
    assert_eq!(chunks(&receive(streamed).await.body).last().unwrap()["error"]["code"], "draining");
    with_deadline("end of serving", serving).await.unwrap();
}

#[tokio::test]
async fn without_a_key_pages_in_a_browser_are_refused() {
    let (world, address, _) = open(ApiConfig::new("m")).await;
    let body = ask("hi", json!({}));
    for (headers, status, code) in [
        ("origin: http://evil.example\r\n", 403, "forbidden"),
        ("origin: null\r\ncontent-type: text/plain\r\n", 403, "forbidden"),
        ("origin: http://localhost:3000\r\nhost: localhost:8900\r\n", 403, "forbidden"),
        ("origin: http://evil.example\r\nhost: evil.example\r\n", 403, "forbidden"),
        ("host: evil.example\r\n", 403, "forbidden"),
        ("host: 127.0.0.1.evil.example:8900\r\n", 403, "forbidden"),
        ("content-type: text/plain\r\n", 415, "unsupported_media_type"),
        ("content-type: application/x-www-form-urlencoded\r\n", 415, "unsupported_media_type"),
    ] {
        let reply = post(address, CHAT, headers, &body).await;
        assert_eq!((reply.status, &reply.json()["error"]["code"]), (status, &code.into()), "{headers}");
        assert!(reply.json()["error"]["message"].is_string());
    }
    assert_eq!(get(address, "/v1/models", "host: evil.example\r\n").await.status, 403);
    for headers in ["host: 127.0.0.1:8900\r\n", "origin: http://localhost:8900\r\nhost: localhost:8900\r\n"] {
        let socket = send(address, "POST", CHAT, headers, &body).await;
        let message = world.message().await;
        world.play(&message.key, message.turn).answer("Hello");
        assert_eq!(receive(socket).await.status, 200, "{headers}");
    }
}

#[tokio::test]
async fn a_key_lets_in_from_anywhere() {
    let config = ApiConfig { api_key: Secret::new("sesame"), ..ApiConfig::new("m") };
    let (_world, address, _) = open(config).await;
    let page = "origin: https://app.example\r\nhost: box.lan\r\n";
    assert_eq!(get(address, "/v1/models", page).await.status, 401);
    assert_eq!(get(address, "/v1/models", &format!("{page}authorization: Bearer sesame\r\n")).await.status, 200);
}

#[tokio::test]
async fn connections_that_ask_for_nothing_keep_nobody_out() {
    let config = ApiConfig { connections_max: 2, ..ApiConfig::new("m") };
    let (world, address, _) = open(config).await;
    let asked = send(address, "POST", CHAT, "", &ask("hi", json!({}))).await;
    let message = world.message().await;
    let mut silent = Vec::new();
    for _ in 0..5 {
        silent.push(TcpStream::connect(address).await.unwrap());
        assert_eq!(get(address, "/health", "").await.status, 200);
    }
    let mut half = TcpStream::connect(address).await.unwrap();
    half.write_all(b"GET /health HTTP/1.1\r\nhost: x\r\n").await.unwrap();
    assert_eq!(get(address, "/health", "").await.status, 200, "half a head is none");
    for mut socket in silent.into_iter().chain([half]) {
        let closed = with_deadline("the silent one is closed", socket.read(&mut [0; 16])).await;
        assert!(matches!(closed, Ok(0) | Err(_)), "{closed:?}");
    }
    world.play(&message.key, message.turn).answer("Hello");
    assert_eq!(receive(asked).await.status, 200, "whoever was heard is answered");
}

#[tokio::test]
async fn a_connection_over_the_limit_is_told_so_at_once() {
    let config = ApiConfig { connections_max: 1, ..ApiConfig::new("m") };
    let (world, address, _) = open(config).await;
    let first = send(address, "POST", CHAT, "", &ask("hi", json!({}))).await;
    let message = world.message().await;
    let reply = get(address, "/health", "").await;
    assert_eq!((reply.status, &reply.json()["error"]["code"]), (503, &"busy".into()));
    world.play(&message.key, message.turn).answer("Hello");
    assert_eq!(receive(first).await.status, 200);
}
