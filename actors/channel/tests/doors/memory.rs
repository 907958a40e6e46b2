//! What is remembered, through the administration.

use std::io;
use std::net::SocketAddr;

use domain::command::DreamAsk;
use domain::memory::Line;
use protocol::memory::{Lines, Recall, Shown, ShownFile, WhichLines};
use serde_json::json;
use tokio::sync::oneshot;

use crate::client::{Reply, post};
use crate::gateway::{TOKEN, admin, open};

/// A memory that says what it was asked.
pub struct Remembered;

impl Recall for Remembered {
    fn shown(&self) -> io::Result<Shown> {
        let file = ShownFile { path: "SOUL.md", bytes: Some(5), text: Some("Kind.".to_owned()) };
        let (memory_bytes_max, not_worked_in, worked_in_up_to) = (9, 1, 2);
        let (versions, newest_version) = (0, None);
        Ok(Shown { files: vec![file], memory_bytes_max, not_worked_in, worked_in_up_to, versions, newest_version })
    }

    fn lines(&self, which: &WhichLines) -> io::Result<Lines> {
        if which.words == "broken" {
            return Err(io::Error::other("the disk is broken"));
        }
        let (timestamp, content) = ("2026-11-30 14:19".to_owned(), format!("{} {}", which.words, which.limit));
        let line = Line { cursor: 1, timestamp, content, session_key: which.session.clone(), part: None };
        Ok(Lines { items: vec![line], next: None, more: true })
    }

    fn dream(&self, ask: DreamAsk) -> oneshot::Receiver<Result<String, String>> {
        let (reply, told) = oneshot::channel();
        let answer = match ask {
            DreamAsk::Begin => Err("Dream is under way.".to_owned()),
            DreamAsk::Log(id) => Ok(format!("log {id:?}")),
            // It is on its way out.
            DreamAsk::Restore(Some(id)) if id == "gone" => return told,
            DreamAsk::Restore(id) => Ok(format!("restore {id:?}")),
            DreamAsk::Prompt { .. } => Err("no door asks that".to_owned()),
        };
        reply.send(answer).unwrap();
        told
    }
}

async fn order(to: SocketAddr, path: &str) -> Reply {
    post(to, &format!("/admin/v1/{path}"), TOKEN, b"").await
}

#[tokio::test]
async fn the_memory_is_shown_searched_and_put_back() {
    let (_world, address, _) = open().await;
    let shown = admin(address, "memory").await.json();
    assert_eq!((&shown["files"][0]["text"], &shown["not_worked_in"]), (&json!("Kind."), &json!(1)), "{shown}");
    let found = admin(address, "memory/lines?words=tomato%20bed&session=api%3A1").await.json();
    let line =
        json!({"cursor": 1, "timestamp": "2026-11-30 14:19", "content": "tomato bed 20", "session_key": "api:1"});
    assert_eq!(found, json!({"items": [line], "next": null, "more": true}));
    assert_eq!(admin(address, "memory/lines?limit=3").await.json()["items"][0]["content"], " 3");
    assert_eq!(admin(address, "memory/log").await.json(), json!({"text": "log None"}));
    assert_eq!(admin(address, "memory/log?id=3f9c").await.json(), json!({"text": "log Some(\"3f9c\")"}));
    assert_eq!(admin(address, "memory/versions").await.json(), json!({"text": "restore None"}));
    assert_eq!(order(address, "memory/restore/3f9c").await.json(), json!({"text": "restore Some(\"3f9c\")"}));
    for (reply, status, code) in [
        (order(address, "memory/dream").await, 409, "refused"),
        (order(address, "memory/restore/gone").await, 503, "draining"),
        (admin(address, "memory/lines?limit=many").await, 400, "bad_query"),
        (admin(address, "memory/lines?words=broken").await, 500, "unreadable"),
    ] {
        assert_eq!((reply.status, &reply.json()["error"]["code"]), (status, &json!(code)));
    }
}
