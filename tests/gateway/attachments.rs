//! Files that come with messages.

use serde_json::{Value, json};
use testkit::model::Model;

use crate::follower::Follower;
use crate::support::{Gateway, Place, Socket, said};

const PNG: &str = "data:image/png;base64,iVBORw0KGgo=";

async fn send(socket: &mut Socket, text: &str, id: &str, media: Value) {
    let frame = json!({"type": "message", "chat_id": "a", "content": text, "message_id": id, "media": media});
    socket.send(frame).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pictures_are_shown_once_and_other_files_are_named() {
    let model = Model::start_on_thread();
    let place = Place::with_model(&model.url(), json!({}));
    let gateway = place.start().await;
    let mut socket = gateway.client().await;
    let media = json!([{"data_url": PNG, "name": "a.png"}, {"data_url": "data:text/csv;base64,b25lLHR3bwo=", "name": "sizes.csv"}]);
    send(&mut socket, "look", "m1", media.clone()).await;
    // What comes after it stays behind it.
    socket.say("a", "and now?", "m2").await;
    for id in ["m1", "m2"] {
        assert_eq!(socket.until("accepted").await["message_id"], id);
    }
    socket.until("turn_end").await;
    socket.until("turn_end").await;
    let [first, second] = model.requests().try_into().unwrap();
    let parts = first["messages"][1]["content"].as_array().unwrap().clone();
    assert_eq!((parts.len(), &parts[0]["image_url"]["url"]), (2, &json!(PNG)));
    let text = parts[1]["text"].as_str().unwrap();
    let csv = text.split("[Attachment: sizes.csv, at ").nth(1).unwrap().split(']').next().unwrap();
    assert!(text.starts_with("look\n[Attachment: sizes.csv, at /"), "{text}");
    assert_eq!(std::fs::read_to_string(csv).unwrap(), "one,two\n");
    let earlier = second["messages"][1]["content"].as_str().unwrap();
    assert!(earlier.contains("look") && earlier.contains("[image: "), "{earlier}");
    assert!(!second.to_string().contains(PNG), "a picture is shown with its own message alone");
    // The same again is a repeat, also after a restart.
    gateway.kill_nine();
    let gateway = place.start().await;
    let mut socket = gateway.client().await;
    send(&mut socket, "look", "m1", media).await;
    assert_eq!(socket.until("accepted").await["state"], "duplicate");
    send(&mut socket, "look", "m1", json!([PNG])).await;
    assert_eq!(socket.until("error").await["reason"], "message_id_conflict");
    for (media, reason) in [
        (json!([PNG, PNG, PNG, PNG, PNG]), "too_large"),
        (json!(["data:x/y;base64,YQ=="]), "bad_frame"),
        (json!(["data:image/png;base64,aGVsbG8="]), "bad_frame"),
    ] {
        send(&mut socket, "look", "m3", media).await;
        let refused = socket.until("error").await;
        assert_eq!((&refused["reason"], &refused["message_id"]), (&json!(reason), &json!("m3")));
    }
    gateway.terminate().await;
    assert_eq!(said(&place.transcript("websocket.a")).len(), 4);
    let kept: Vec<_> = std::fs::read_dir(place.path().join("media/websocket/websocket.a")).unwrap().collect();
    assert_eq!(kept.len(), 2, "each file once, and no litter: {kept:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tools_may_read_what_was_attached_in_their_session_but_not_write_it() {
    let place = Place::new(json!({}));
    let gateway = place.start().await;
    let mut socket = gateway.client().await;
    send(&mut socket, "", "m1", json!(["data:text/plain;base64,c2VjcmV0IHBsYW4K"])).await;
    socket.until("turn_end").await;
    let path =
        std::fs::read_dir(place.path().join("media/websocket/websocket.a")).unwrap().next().unwrap().unwrap().path();
    let call = |tool: &str, more: Value| {
        let mut arguments = json!({"path": path.to_str().unwrap()});
        crate::support::merge(&mut arguments, more);
        format!("[[tool={tool} {arguments}]] [[show_results]]")
    };
    for (id, text, part) in [
        ("m2", call("read_file", json!({})), "secret plan"),
        ("m3", call("write_file", json!({"content": "x"})), "Nothing was written"),
        ("m4", call("read_file", json!({})), "is kept by the gateway for itself"),
    ] {
        socket.say(if id == "m4" { "b" } else { "a" }, &text, id).await;
        let ended = loop {
            let frame = socket.until("message").await;
            if frame["tool_events"][0]["phase"] != "start" {
                break frame["tool_events"][0].clone();
            }
        };
        assert!(ended.to_string().contains(part), "{ended}");
        socket.until("turn_end").await;
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "secret plan\n");
    gateway.terminate().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_picture_of_the_api_is_named_in_later_turns_also_behind_a_kill() {
    let model = Model::start_on_thread();
    let place = Place::with_model(&model.url(), json!({}));
    let gateway = place.start().await;
    let picture = json!([{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": PNG}}]);
    let ask = async |gateway: &Gateway, content: Value, user: Option<&str>| {
        let mut body = json!({"messages": [{"role": "user", "content": content}]});
        match user {
            Some(user) => body["user"] = json!(user),
            // It brings its own history, and nothing of it is shown later.
            None => body["messages"].as_array_mut().unwrap().insert(0, json!({"role": "assistant", "content": "hi"})),
        }
        let (status, body) = gateway.chat(body, None).await;
        assert_eq!(status, 200, "{body}");
    };
    ask(&gateway, picture.clone(), Some("ann")).await;
    ask(&gateway, picture, None).await;
    for request in model.requests() {
        assert!(request.to_string().contains(PNG), "it is shown with its own message");
    }
    gateway.kill_nine();
    let gateway = place.start().await;
    ask(&gateway, json!("and now?"), Some("ann")).await;
    let request = model.requests().pop().unwrap();
    let earlier = request["messages"][1]["content"].as_str().unwrap();
    let path = earlier.split("[image: ").nth(1).unwrap().split(']').next().unwrap();
    assert!(path.starts_with(place.path().join("media/api/api.user.ann").to_str().unwrap()), "{path}");
    assert_eq!(std::fs::read(path).unwrap(), b"\x89PNG\r\n\x1a\n");
    gateway.terminate().await;
    let kept: Vec<_> = std::fs::read_dir(place.path().join("media/api")).unwrap().collect();
    assert_eq!(kept.len(), 1, "what is shown once is not kept: {kept:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_no_message_came_to_name_is_removed_after_a_week_and_nothing_else() {
    let place = Place::new(json!({}));
    let gateway = place.start().await;
    let mut socket = gateway.client().await;
    let file = |text: &str| json!([format!("data:text/csv;base64,{text}")]);
    send(&mut socket, "look", "m1", file("b25lLHR3bwo=")).await;
    socket.until("turn_end").await;
    // The same id with another file: that is kept before the message is refused.
    for text in ["dGhyZWUK", "Zm91cgo="] {
        send(&mut socket, "look", "m1", file(text)).await;
        assert_eq!(socket.until("error").await["reason"], "message_id_conflict");
    }
    gateway.terminate().await;
    let directory = place.path().join("media/websocket/websocket.a");
    let kept = || {
        let files = std::fs::read_dir(&directory).unwrap().map(|file| file.unwrap().path());
        let mut all: Vec<_> = files.map(|file| (std::fs::read_to_string(&file).unwrap(), file)).collect();
        all.sort();
        all
    };
    let texts = || kept().into_iter().map(|(text, _)| text).collect::<Vec<_>>();
    assert_eq!(texts(), ["four\n", "one,two\n", "three\n"]);
    for (text, file) in kept() {
        if text != "four\n" {
            let file = std::fs::File::open(file).unwrap();
            let written = file.metadata().unwrap().modified().unwrap();
            file.set_modified(written - std::time::Duration::from_secs(8 * 24 * 3600)).unwrap();
        }
    }
    let doctor = || String::from_utf8(place.run(&["doctor"]).stdout).unwrap();
    let told = doctor();
    assert!(told.contains("3 files, 0 KiB; a gateway removes 1 file of these, 0 KiB, that no message names"), "{told}");
    let mut follower = Follower::start(&place, &["logs", "--follow", "--tail", "1000", "--json"]);
    let gateway = place.start().await;
    let event = follower.until("attachments_removed").await.pop().unwrap();
    assert_eq!(event["reason"], "1 file, 6 bytes, that no message names");
    assert_eq!(texts(), ["four\n", "one,two\n"], "one is named, the other is young");
    let (_, metrics) = gateway.get("/metrics").await;
    assert!(metrics.contains("\ngreenroom_attachments_removed_total 1\n"), "{metrics}");
    assert!(metrics.contains("\ngreenroom_attachments_removed_bytes_total 6\n"), "{metrics}");
    gateway.terminate().await;
    assert!(doctor().contains("2 files, 0 KiB\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fork_has_attachments_of_its_own_and_says_which_it_lacks() {
    let place = Place::new(json!({}));
    let gateway = place.start().await;
    let mut socket = gateway.client().await;
    let media = json!(["data:text/plain;base64,c2VjcmV0IHBsYW4K", "data:text/csv;base64,b25lLHR3bwo="]);
    send(&mut socket, "look", "m1", media).await;
    socket.until("turn_end").await;
    let files = |session: &str| {
        let files = std::fs::read_dir(place.path().join("media/websocket").join(session)).unwrap();
        let mut files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
        files.sort_by_key(|file| file.extension().map(std::ffi::OsStr::to_owned));
        files
    };
    let [csv, plan] = files("websocket.a").try_into().unwrap();
    std::fs::remove_file(csv).unwrap();
    let forked = place.run(&["sessions", "fork", "websocket:a", "websocket:f", "--json"]);
    let forked: Value = serde_json::from_slice(&forked.stdout).unwrap();
    assert_eq!((&forked["key"], &forked["attachments_missing"]), (&json!("websocket:f"), &json!(1)), "{forked}");
    let [copy] = files("websocket.f").try_into().unwrap();
    assert_eq!(copy.file_name(), plan.file_name());
    let lines = Value::from(place.transcript("websocket.f")).to_string();
    assert!(lines.contains(copy.to_str().unwrap()) && !lines.contains(plan.to_str().unwrap()), "{lines}");
    for (id, file, part) in [("m2", &copy, "secret plan"), ("m3", &plan, "is kept by the gateway for itself")] {
        let call = json!({"path": file.to_str().unwrap()});
        socket.say("f", &format!("[[tool=read_file {call}]] [[show_results]]"), id).await;
        let shown = loop {
            let frame = socket.until("message").await;
            if frame["tool_events"][0]["phase"] != "start" {
                break frame["tool_events"][0].to_string();
            }
        };
        assert!(shown.contains(part), "{shown}");
        socket.until("turn_end").await;
    }
    gateway.terminate().await;
}
