//! What a sender may say. Pure.

use std::sync::Arc;

use domain::ids::{MessageId, SessionKey, Source};
use domain::keys::{Inbound, Peer, PeerKind, Router};
use protocol::turn::PushRoute;
use serde::Deserialize;

use super::CHANNEL;
use crate::doors::{source, source_of};
use crate::websocket::frames::place;

/// Longest chat or thread id, in bytes.
const ID_BYTES_MAX: usize = 200;
/// Between chat and thread in a session key; not part of a chat id, so that no two pairs share a key.
const THREAD: &str = ":thread";

#[derive(Debug, Deserialize)]
struct Body {
    chat_id: Option<String>,
    message_id: Option<String>,
    text: Option<String>,
    thread: Option<String>,
    sender: Option<String>,
}

/// A message that can be taken.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Received {
    pub key: SessionKey,
    pub source: Source,
    pub message_id: MessageId,
    pub text: String,
    pub route: PushRoute,
    /// Who wrote it, as the allow list has it.
    pub sender: String,
}

/// Reads the body of a request; the error is a sentence for its sender. Without a router each chat has its own session.
pub(super) fn parse(bytes: &[u8], router: Option<&Router>) -> Result<Received, String> {
    let body: Body = serde_json::from_slice(bytes).map_err(|why| {
        let place = place(&why);
        format!("the body is {{\"chat_id\", \"message_id\", \"text\", \"thread\"?, \"sender\"?}}; {place}")
    })?;
    let Body { chat_id, message_id, text, thread, sender } = body;
    let missing = |name: &str| format!("\"{name}\" is missing");
    let chat_id = chat_id.ok_or_else(|| missing("chat_id"))?;
    let message_id = message_id.ok_or_else(|| missing("message_id"))?;
    let message_id = MessageId::new(&message_id).map_err(|why| format!("\"message_id\": {why}"))?;
    let text = text.ok_or_else(|| missing("text"))?;
    if text.trim().is_empty() {
        return Err("\"text\" is empty".to_owned());
    }
    check_id("chat_id", &chat_id)?;
    if chat_id.contains(THREAD) {
        return Err(format!("\"chat_id\" must not contain {THREAD:?}"));
    }
    thread.as_ref().map_or(Ok(()), |thread| check_id("thread", thread))?;
    let key = match (router, &thread) {
        (Some(router), thread) => {
            let sender = sender.as_deref().filter(|sender| *sender != chat_id);
            let kind = if sender.is_some() { PeerKind::Group } else { PeerKind::Direct };
            let message = Inbound::of(CHANNEL, Peer { kind, id: &chat_id });
            router.route(&Inbound { thread: thread.as_deref(), ..message })
        }
        (None, None) => SessionKey::new(&format!("{CHANNEL}:{chat_id}")),
        (None, Some(thread)) => SessionKey::new(&format!("{CHANNEL}:{chat_id}{THREAD}:{thread}")),
    };
    let key = key.map_err(|why| why.to_string())?;
    let source = if router.is_some() { source_of(CHANNEL, &chat_id) } else { source(CHANNEL) };
    let route = PushRoute {
        channel: CHANNEL.into(),
        account: "default".into(),
        chat: chat_id.as_str().into(),
        thread: thread.map(Arc::from),
    };
    Ok(Received { key, source, message_id, text, route, sender: sender.unwrap_or(chat_id) })
}

fn check_id(name: &str, id: &str) -> Result<(), String> {
    if id.is_empty() || id.len() > ID_BYTES_MAX {
        return Err(format!("\"{name}\" must have 1 to {ID_BYTES_MAX} bytes"));
    }
    if id.chars().any(char::is_control) {
        return Err(format!("\"{name}\" must not contain control characters"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use domain::keys::{DmScope, IdentityLinks};
    use serde_json::json;

    use super::*;

    #[test]
    fn chat_and_thread_make_the_session() {
        for (chat, thread, key) in [
            ("7", None, "webhook:7"),
            ("7", Some("a"), "webhook:7:thread:a"),
            ("!room:server", Some("thread:x"), "webhook:!room:server:thread:thread:x"),
        ] {
            let body = json!({"chat_id": chat, "message_id": "m", "text": "hi", "thread": thread, "extra": 1});
            let received = parse(body.to_string().as_bytes(), None).unwrap();
            assert_eq!((received.key.as_str(), received.source.as_str()), (key, "webhook"));
            assert_eq!((&*received.route.chat, received.route.thread.as_deref()), (chat, thread));
            assert_eq!(received.sender, chat);
        }
    }

    #[test]
    fn chats_that_share_a_session_are_sources_of_their_own() {
        let router = |scope| Router {
            scope,
            links: IdentityLinks([("ann".to_owned(), vec!["webhook:7".to_owned()])].into()),
            main_key: "main".to_owned(),
            bindings: Vec::new(),
            unified: false,
        };
        let parse = |scope, body: serde_json::Value| parse(body.to_string().as_bytes(), Some(&router(scope))).unwrap();
        let seven = json!({"chat_id": "7", "message_id": "m", "text": "hi"});
        let eight = json!({"chat_id": "Eight", "message_id": "m", "text": "hi", "sender": "Eight"});
        let group = json!({"chat_id": "G", "message_id": "m", "text": "hi", "sender": "ann", "thread": "t"});
        let [one, two] = [&seven, &eight].map(|body| parse(DmScope::Main, body.clone()));
        assert_eq!((one.key.as_str(), &one.key), ("agent:main:main", &two.key));
        assert_ne!(one.source, two.source);
        assert!(one.source.as_str().starts_with("webhook:"));
        assert_eq!((&*one.route.chat, &*two.route.chat), ("7", "Eight"));
        for (body, key) in [
            (seven, "agent:main:webhook:direct:ann"),
            (eight, "agent:main:webhook:direct:Eight"),
            (group, "agent:main:webhook:group:G:thread:t"),
        ] {
            assert_eq!(parse(DmScope::PerChannelPeer, body).key.as_str(), key);
        }
    }

    #[test]
    fn what_cannot_be_taken_is_said() {
        let long = "x".repeat(ID_BYTES_MAX + 1);
        for (body, said) in [
            (json!({"message_id": "m", "text": "hi"}).to_string(), "\"chat_id\" is missing"),
            (json!({"chat_id": "7", "text": "hi"}).to_string(), "\"message_id\" is missing"),
            (json!({"chat_id": "7", "message_id": "m"}).to_string(), "\"text\" is missing"),
            (json!({"chat_id": 7, "message_id": "m", "text": "hi"}).to_string(), "line 1 column 12"),
            (json!({"chat_id": "7", "message_id": "é", "text": "hi"}).to_string(), "printable ASCII"),
            (json!({"chat_id": "7", "message_id": "m", "text": " \n"}).to_string(), "\"text\" is empty"),
            (json!({"chat_id": "", "message_id": "m", "text": "hi"}).to_string(), "\"chat_id\" must have 1 to"),
            (json!({"chat_id": long, "message_id": "m", "text": "hi"}).to_string(), "\"chat_id\" must have 1 to"),
            (json!({"chat_id": "a:thread", "message_id": "m", "text": "hi"}).to_string(), "must not contain"),
            (json!({"chat_id": "a\n", "message_id": "m", "text": "hi"}).to_string(), "control characters"),
            (json!({"chat_id": "7", "message_id": "m", "text": "hi", "thread": ""}).to_string(), "\"thread\" must"),
            ("{".to_owned(), "line 1"),
        ] {
            let found = parse(body.as_bytes(), None).unwrap_err();
            assert!(found.contains(said), "{body}: {found}");
        }
    }
}
