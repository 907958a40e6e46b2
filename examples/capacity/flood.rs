//! Many chats over few WebSocket connections: one message to each, and what came back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Context;
use futures::{SinkExt, StreamExt};
use serde::Deserialize;
use serde_json::json;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

/// Connections of one flood.
const CONNECTIONS: u64 = 8;
/// Messages of one connection that wait for `accepted`.
const WINDOW: u64 = 1024;

/// What came back so far.
#[derive(Debug, Default)]
pub struct Tally {
    /// Messages that are durable.
    pub accepted: AtomicU64,
    /// Turns whose end was seen.
    pub ended: AtomicU64,
    /// Refusals.
    pub refused: AtomicU64,
}

/// What a flood waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// Every message is accepted.
    Accepted,
    /// Every turn ended.
    Ended,
}

/// The part of a server frame that is counted.
#[derive(Deserialize)]
pub struct Frame<'a> {
    /// Its name.
    #[serde(borrow)]
    pub event: std::borrow::Cow<'a, str>,
    /// Whether it answers a control message.
    #[serde(default)]
    pub control: bool,
}

type Socket = WebSocketStream<MaybeTlsStream<tokio::net::TcpStream>>;

/// One message `text` to each of `chats` chats. The connections stay open until the returned flood is dropped.
pub async fn flood(url: &str, chats: u64, text: &str, until: Until, tally: Arc<Tally>) -> anyhow::Result<Vec<Socket>> {
    let tasks: Vec<_> = (0..CONNECTIONS)
        .map(|at| {
            let (url, text, tally) = (url.to_owned(), text.to_owned(), tally.clone());
            let share = chats / CONNECTIONS + u64::from(at < chats % CONNECTIONS);
            tokio::spawn(async move { talk(&url, at, share, &text, until, &tally).await })
        })
        .collect();
    let mut sockets = Vec::new();
    for task in tasks {
        sockets.push(task.await??);
    }
    Ok(sockets)
}

/// A frame that says `text` to a chat.
pub fn message(chat: &str, text: &str, id: u64) -> Message {
    let frame = json!({"type": "message", "chat_id": chat, "content": text, "message_id": format!("m{id}")});
    Message::text(frame.to_string())
}

/// A connection of its own.
pub async fn connect(url: &str) -> anyhow::Result<Socket> {
    Ok(connect_async(url).await?.0)
}

async fn talk(url: &str, at: u64, chats: u64, text: &str, until: Until, tally: &Tally) -> anyhow::Result<Socket> {
    let mut socket = connect(url).await?;
    let (mut sent, mut settled, mut ended) = (0, 0, 0);
    while settled < chats || (until == Until::Ended && ended < chats) {
        let mut fed = false;
        while sent < chats && sent - settled < WINDOW {
            socket.feed(message(&format!("c{at}-{sent}"), text, sent)).await?;
            sent += 1;
            fed = true;
        }
        if fed {
            socket.flush().await?;
        }
        let Message::Text(frame) = socket.next().await.context("the gateway closed the connection")?? else { continue };
        match serde_json::from_str::<Frame<'_>>(&frame)?.event.as_ref() {
            "accepted" => {
                settled += 1;
                tally.accepted.fetch_add(1, Ordering::Relaxed);
            }
            "turn_end" => {
                ended += 1;
                tally.ended.fetch_add(1, Ordering::Relaxed);
            }
            "error" => {
                (settled, ended) = (settled + 1, ended + 1);
                tally.refused.fetch_add(1, Ordering::Relaxed);
            }
            _ => {}
        }
    }
    Ok(socket)
}
