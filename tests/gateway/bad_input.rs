//! Whatever is wrong gets its own clear error, and nothing is lost or half-written.

use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;

use crate::support::{Place, said};

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_frames_get_errors_and_the_connection_goes_on() {
    let place = Place::new(json!({}));
    let gateway = place.start().await;
    let mut socket = gateway.websocket("").await;
    socket.until("ready").await;
    let long = "x".repeat(70 * 1024);
    for (frame, reason) in [
        (json!({"type": "dance"}), "bad_frame"),
        (json!({"type": "message", "chat_id": 7, "content": "x"}), "bad_frame"),
        (json!({"type": "message", "chat_id": "no spaces", "content": "x"}), "bad_frame"),
        (json!({"type": "message", "chat_id": "a", "content": "x", "message_id": "é"}), "bad_frame"),
        (json!({"type": "message", "chat_id": "a", "content": long}), "too_large"),
    ] {
        socket.send(frame.clone()).await;
        let error = socket.until("error").await;
        assert_eq!(error["reason"], reason, "{frame:.80}: {error}");
    }
    socket.send_raw(Message::text("{\"type\": \"message\", ")).await;
    assert_eq!(socket.until("error").await["reason"], "bad_frame");
    socket.send_raw(Message::binary(vec![1, 2, 3])).await;
    assert_eq!(socket.until("error").await["reason"], "bad_frame");
    socket.say("a", "still open", "m1").await;
    socket.until("turn_end").await;
    assert_eq!(gateway.terminate().await, Some(0));
    assert_eq!(said(&place.transcript("websocket.a")).len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_requests_get_error_objects_that_name_the_place() {
    let place = Place::new(json!({}));
    let gateway = place.start().await;
    let user = json!([{"role": "user", "content": "x"}]);
    for (body, status, words) in [
        (json!({"messages": []}), 400, "messages"),
        (json!({"messages": "hello"}), 400, "messages"),
        (json!({}), 400, "messages"),
        (json!({"messages": [{"role": "wizard", "content": "x"}]}), 400, "role"),
        (json!({"messages": user, "stream": "yes"}), 400, "stream"),
        (json!({"messages": user, "model": "another-model"}), 404, "model"),
    ] {
        let (found, reply) = gateway.chat(body.clone(), None).await;
        assert_eq!(found, status, "{body}: {reply}");
        let error = &reply["error"];
        assert!(error["message"].as_str().unwrap().contains(words), "{body}: {reply}");
        assert!(error.get("code").is_some() && error.get("type").is_some(), "{reply}");
    }
    let client = provider::http_client().unwrap();
    for body in [b"{\"messages\": ".to_vec(), vec![0xff, 0xfe, b'{'], Vec::new()] {
        let url = format!("{}/chat/completions", gateway.api());
        let reply = client.post(url).header("content-type", "application/json").body(body).send().await.unwrap();
        assert_eq!(reply.status(), 400);
        assert!(reply.json::<Value>().await.unwrap()["error"]["message"].is_string());
    }
    let (status, _) = gateway.chat(json!({"messages": user, "someday": true}), None).await;
    assert_eq!(status, 200, "fields that nobody knows are ignored, as OpenAI does");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_and_tokens_are_checked() {
    let place = Place::new(json!({"api": {"apiKey": "sesame"}, "channels": {"websocket": {"token": "t0ken"}}}));
    let gateway = place.start().await;
    let body = json!({"messages": [{"role": "user", "content": "x"}]});
    let (status, _) = gateway.chat(body.clone(), None).await;
    assert_eq!(status, 401);
    let url = format!("{}/chat/completions", gateway.api());
    let reply = provider::http_client().unwrap().post(url).bearer_auth("sesame").json(&body).send().await.unwrap();
    assert_eq!(reply.status(), 200);
    let url = gateway.beacon().websocket_url.unwrap();
    assert!(tokio_tungstenite::connect_async(format!("{url}?token=wrong")).await.is_err());
    gateway.websocket("?token=t0ken").await.until("ready").await;
    let (status, _) = gateway.get("/admin/v1/status").await;
    assert_eq!(status, 401);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_gateway_on_the_same_directory_is_refused_and_names_the_first() {
    let place = Place::new(json!({}));
    let gateway = place.start().await;
    let out = place.run(&["gateway"]);
    assert_eq!(out.status.code(), Some(4), "{}", text(&out.stderr));
    assert!(text(&out.stderr).contains(&format!("process {}", gateway.beacon().pid)), "{}", text(&out.stderr));
    let (status, _) = gateway.get("/health").await;
    assert_eq!(status, 200, "the first one is untouched");
}

#[test]
fn a_busy_port_is_named_with_its_key() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let place = Place::new(json!({"api": {"port": port}}));
    let out = place.run(&["gateway"]);
    assert_eq!(out.status.code(), Some(5));
    let error = text(&out.stderr);
    assert!(error.contains("api.port") && error.contains(&port.to_string()), "{error}");
}

#[test]
fn a_wrong_configuration_is_refused_with_file_line_and_key() {
    let place = Place::empty();
    for (config, words) in [
        ("{\"api\": {\"port\": \"many\"}}", vec!["config.json:1:", "api.port"]),
        ("{\"api\": ", vec!["config.json:1:"]),
        ("{\"api\": {\"host\": \"0.0.0.0\"}}", vec!["api.apiKey"]),
        ("{\"gateway\": {\"host\": \"0.0.0.0\"}}", vec!["admin.token"]),
        ("{\"channels\": {\"websocket\": {\"host\": \"0.0.0.0\"}}}", vec!["channels.websocket.token"]),
        ("{\"api\": {\"apiKey\": \"${NOT_SET_ANYWHERE}\"}}", vec!["NOT_SET_ANYWHERE"]),
        ("{\"agents\": {\"defaults\": {\"provider\": \"openai\"}}}", vec!["config.json:1:", "providers.openai.apiKey"]),
    ] {
        place.write_config(config);
        let out = place.run(&["gateway"]);
        assert_eq!(out.status.code(), Some(3), "{config}: {}", text(&out.stderr));
        for word in words {
            assert!(text(&out.stderr).contains(word), "{config}: {}", text(&out.stderr));
        }
        assert!(!place.path().join("journal").exists(), "nothing was made for a configuration that is refused");
    }
}

#[test]
fn an_unwritable_directory_is_a_clear_error() {
    let place = Place::empty();
    // A file where a directory belongs is refused for root too, whom modes do not stop.
    std::fs::write(place.path().join("journal"), "not a directory").unwrap();
    let out = place.run(&["agent", "-m", "x"]);
    assert_ne!(out.status.code(), Some(0));
    assert!(text(&out.stderr).contains("journal"), "{}", text(&out.stderr));
    assert_eq!(std::fs::read_to_string(place.path().join("journal")).unwrap(), "not a directory");
}
