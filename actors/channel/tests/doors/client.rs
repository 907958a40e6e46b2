//! A bare HTTP client, so that requests can be as wrong as they like.

use std::net::SocketAddr;

use serde_json::Value;
use testkit::deadline::with_deadline;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

pub struct Reply {
    pub status: u16,
    head: String,
    pub body: String,
}

impl Reply {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    fn parse(bytes: &[u8]) -> Self {
        let at = bytes.windows(4).position(|four| four == b"\r\n\r\n").expect("a whole head");
        let head = String::from_utf8(bytes[..at].to_vec()).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let mut body = bytes[at + 4..].to_vec();
        if head.to_ascii_lowercase().contains("transfer-encoding: chunked") {
            body = unchunk(&body);
        }
        Self { status, head, body: String::from_utf8(body).unwrap() }
    }
}

fn unchunk(mut bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    while let Some(end) = bytes.windows(2).position(|two| two == b"\r\n") {
        let length = usize::from_str_radix(std::str::from_utf8(&bytes[..end]).unwrap(), 16).unwrap();
        out.extend_from_slice(&bytes[end + 2..end + 2 + length]);
        bytes = &bytes[end + 4 + length..];
        if length == 0 {
            break;
        }
    }
    out
}

/// Sends a request and leaves the answer unread.
pub async fn send(to: SocketAddr, method: &str, path: &str, headers: &str, body: &[u8]) -> TcpStream {
    let mut socket = TcpStream::connect(to).await.unwrap();
    let host = if headers.contains("host:") { "" } else { "host: localhost\r\n" };
    let kind = match headers.contains("content-type:") || body.is_empty() {
        true => "",
        false => "content-type: application/json\r\n",
    };
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\n{host}{kind}{headers}content-length: {length}\r\nconnection: close\r\n\r\n"
    );
    socket.write_all(head.as_bytes()).await.unwrap();
    // A server that refuses the head may close before the body is through.
    let _ = socket.write_all(body).await;
    socket
}

/// Reads until `text` came; returns all that came.
pub async fn read_until(socket: &mut TcpStream, text: &str) -> String {
    let mut got = Vec::new();
    let mut chunk = [0; 4096];
    with_deadline(text, async {
        while !String::from_utf8_lossy(&got).contains(text) {
            let count = socket.read(&mut chunk).await.unwrap();
            assert!(count > 0, "closed before {text:?}: {}", String::from_utf8_lossy(&got));
            got.extend_from_slice(&chunk[..count]);
        }
    })
    .await;
    String::from_utf8_lossy(&got).into_owned()
}

/// Reads the answer to its end.
pub async fn receive(mut socket: TcpStream) -> Reply {
    let mut bytes = Vec::new();
    with_deadline("answer", async {
        let mut chunk = [0; 4096];
        // A reset after the answer is as good as an end.
        while let Ok(count) = socket.read(&mut chunk).await {
            if count == 0 {
                break;
            }
            bytes.extend_from_slice(&chunk[..count]);
        }
    })
    .await;
    Reply::parse(&bytes)
}

pub async fn get(to: SocketAddr, path: &str, headers: &str) -> Reply {
    receive(send(to, "GET", path, headers, b"").await).await
}

pub async fn post(to: SocketAddr, path: &str, headers: &str, body: &[u8]) -> Reply {
    receive(send(to, "POST", path, headers, body).await).await
}
