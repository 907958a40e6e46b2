//! A server that answers every connection with the same bytes, for answers that no HTTP library would send.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// Longest request that is read.
const REQUEST_BYTES_MAX: usize = 1 << 20;

/// What happens after the last byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Afterwards {
    /// The connection is closed.
    Close,
    /// It stays open, silent.
    KeepOpen,
}

/// The server; stops when dropped.
#[derive(Debug)]
pub struct RawServer {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl RawServer {
    /// Serves `answer` on the current runtime.
    pub async fn start(answer: impl Into<Vec<u8>>, afterwards: Afterwards) -> Self {
        let answer: Vec<u8> = answer.into();
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("loopback has free ports");
        let address = listener.local_addr().expect("a bound socket has an address");
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((socket, _)) = listener.accept().await {
                connections.spawn(serve(socket, answer.clone(), afterwards));
            }
        });
        Self { address, task }
    }

    /// Serves an event stream with status 200 that holds exactly `events`.
    pub async fn event_stream(events: &str, afterwards: Afterwards) -> Self {
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
        Self::start(format!("{head}{events}"), afterwards).await
    }

    /// Serves a whole answer.
    pub async fn answer(status: u16, headers: &str, body: &str) -> Self {
        let length = body.len();
        let answer =
            format!("HTTP/1.1 {status} X\r\n{headers}content-length: {length}\r\nconnection: close\r\n\r\n{body}");
        Self::start(answer, Afterwards::Close).await
    }

    /// Base of its addresses, like a model server's.
    pub fn url(&self) -> String {
        format!("http://{}/v1", self.address)
    }
}

impl Drop for RawServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(mut socket: TcpStream, answer: Vec<u8>, afterwards: Afterwards) {
    if read_request(&mut socket).await.is_none() || socket.write_all(&answer).await.is_err() {
        return;
    }
    match afterwards {
        Afterwards::Close => {
            // Whoever left already needs no goodbye.
            let _ = socket.shutdown().await;
        }
        Afterwards::KeepOpen => {
            let mut rest = [0; 64];
            while socket.read(&mut rest).await.is_ok_and(|count| count > 0) {}
        }
    }
}

/// Reads one request with its body, so that closing does not reset the connection under the answer.
async fn read_request(socket: &mut TcpStream) -> Option<()> {
    let mut request = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        if let Some(head) = request.windows(4).position(|four| four == b"\r\n\r\n") {
            let text = String::from_utf8_lossy(request.get(..head)?).to_ascii_lowercase();
            let length =
                text.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse::<usize>().ok());
            if request.len() >= head + 4 + length.unwrap_or(0) {
                return Some(());
            }
        }
        let count = socket.read(&mut chunk).await.ok()?;
        if count == 0 || request.len() > REQUEST_BYTES_MAX {
            return None;
        }
        request.extend_from_slice(chunk.get(..count)?);
    }
}
