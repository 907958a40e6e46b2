//! Frames and bodies of 64 MiB at every door: refused by their limit, with the right word, and never kept in memory.

use futures::future::join_all;
use serde_json::json;
use testkit::deadline::with_deadline;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::vitals::{Vitals, mib, peak_rss};
use crate::support::{Gateway, Place};

const HUGE: usize = 64 << 20;
/// How many at each door at once.
const AT_ONCE: usize = 6;
/// What all of them together may cost the gateway in memory. Six bodies of unknown length may each be read up to the
/// API's limit of 20 MiB, and an allocator keeps some of it for a while.
const GROWTH_MAX: u64 = 192 << 20;

/// What a huge sender is told.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Told {
    /// The code and the reason of a WebSocket's close frame.
    Closed(u16, String),
    /// The status and the error's code.
    Answered(u16, String),
}

fn host(url: &str) -> &str {
    url.split("//").nth(1).unwrap().split('/').next().unwrap()
}

/// Sends a head and then bytes without end, and reads what the server says meanwhile.
async fn pour(url: &str, head: Vec<u8>, chunked: bool, finished: impl Fn(&[u8]) -> Option<Told>) -> Told {
    let mut stream = TcpStream::connect(host(url)).await.unwrap();
    stream.write_all(&head).await.unwrap();
    let (mut from, mut to) = stream.into_split();
    let pouring = tokio::spawn(async move {
        let piece = vec![b'a'; 64 << 10];
        let framed = [format!("{:x}\r\n", piece.len()).as_bytes(), &piece, b"\r\n"].concat();
        let piece = if chunked { framed } else { piece };
        let mut sent = 0;
        // The server hangs up as soon as it knows enough.
        while sent < HUGE && to.write_all(&piece).await.is_ok() {
            sent += 64 << 10;
        }
        // Kept open, so that what the server said can be read to its end.
        to
    });
    let mut heard = Vec::new();
    let mut buffer = vec![0; 16 << 10];
    let told = with_deadline("a word about a huge frame", async {
        loop {
            let count = from.read(&mut buffer).await.unwrap_or(0);
            assert!(count > 0, "the connection ended without a word: {:?}", String::from_utf8_lossy(&heard));
            heard.extend_from_slice(&buffer[..count]);
            if let Some(told) = finished(&heard) {
                return told;
            }
        }
    });
    let told = told.await;
    drop(pouring.await.unwrap());
    told
}

fn answered(heard: &[u8]) -> Option<Told> {
    let text = std::str::from_utf8(heard).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let body: serde_json::Value = serde_json::from_str(body).ok()?;
    Some(Told::Answered(status, body["error"]["code"].as_str()?.to_owned()))
}

/// Looks for a close frame behind the handshake's head and whatever frames came first (all of them short).
fn closed(heard: &[u8]) -> Option<Told> {
    let head = heard.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let mut rest = heard.get(head..)?;
    loop {
        let (kind, length) = (rest.first()? & 0x0F, usize::from(*rest.get(1)?));
        let (start, length) = match length {
            126 => (4, usize::from(u16::from_be_bytes([*rest.get(2)?, *rest.get(3)?]))),
            length => (2, length),
        };
        let payload = rest.get(start..start + length)?;
        if kind == 8 {
            let code = u16::from_be_bytes([*payload.first()?, *payload.get(1)?]);
            return Some(Told::Closed(code, String::from_utf8_lossy(payload.get(2..)?).into_owned()));
        }
        rest = rest.get(start + length..)?;
    }
}

async fn websocket_frame(gateway: &Gateway) -> Told {
    let url = gateway.beacon().websocket_url.unwrap();
    let mut head = format!(
        "GET / HTTP/1.1\r\nhost: {}\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
         sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        host(&url)
    )
    .into_bytes();
    // Final, text; masked with zeros; a length of eight bytes.
    head.extend_from_slice(&[0x81, 0x80 | 127]);
    head.extend_from_slice(&(HUGE as u64).to_be_bytes());
    head.extend_from_slice(&[0; 4]);
    pour(&url, head, false, closed).await
}

async fn http_body(url: &str, path: &str, extra: &str, length: Option<usize>) -> Told {
    let length = match length {
        Some(length) => format!("content-length: {length}"),
        None => "transfer-encoding: chunked".to_owned(),
    };
    let chunked = length.starts_with("transfer");
    let host = host(url);
    let head =
        format!("POST {path} HTTP/1.1\r\nhost: {host}\r\n{extra}content-type: application/json\r\n{length}\r\n\r\n");
    pour(url, head.into_bytes(), chunked, answered).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frames_of_sixty_four_mebibytes_are_refused_by_their_limit_without_being_kept() {
    let place = Place::new(json!({}));
    let gateway = place.start().await;
    let mut neighbor = gateway.client().await;
    neighbor.say("calm", "hello [[tokens=50;itd=20]]", "m").await;
    neighbor.until("accepted").await;
    let before = Vitals::of(gateway.pid());
    let (api, admin, token) = (gateway.api(), gateway.beacon().admin_url, gateway.beacon().token);
    let token = format!("authorization: Bearer {token}\r\n");
    let flood = async {
        let frames = join_all((0..AT_ONCE).map(|_| websocket_frame(&gateway)));
        let declared = join_all((0..AT_ONCE).map(|_| http_body(&api, "/v1/chat/completions", "", Some(HUGE))));
        let chunked = join_all((0..AT_ONCE).map(|_| http_body(&api, "/v1/chat/completions", "", None)));
        let said = join_all(
            (0..AT_ONCE).map(|_| http_body(&admin, "/admin/v1/sessions/cli:direct/messages", &token, Some(HUGE))),
        );
        futures::join!(frames, declared, chunked, said)
    };
    let ((frames, declared, chunked, said), peak) = peak_rss(gateway.pid(), flood).await;
    for told in frames {
        assert_eq!(told, Told::Closed(1009, "the frame is too large".to_owned()));
    }
    for told in [declared, chunked, said].concat() {
        assert_eq!(told, Told::Answered(413, "request_too_large".to_owned()));
    }
    let growth = peak.saturating_sub(before.rss_bytes);
    assert!(growth < GROWTH_MAX, "{} more memory", mib(growth));
    let end = neighbor.until("turn_end").await;
    assert_eq!(end["result"], "done");
    assert_eq!(gateway.get("/health").await.0, 200);
    println!("chaos frames: {} of 64 MiB refused, memory {} + {}", 4 * AT_ONCE, mib(before.rss_bytes), mib(growth));
}
