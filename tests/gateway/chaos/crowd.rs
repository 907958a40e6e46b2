//! Thousands of connections at once: the gateway still answers, and gives every handle back.

use futures::StreamExt;
use futures::stream;
use serde_json::json;
use testkit::deadline::with_deadline;

use super::vitals::{Vitals, mib, until};
use crate::support::{Gateway, Place, Socket};

const CONNECTIONS: usize = 5_000;
/// One in so many has a turn running.
const ACTIVE: usize = 25;
/// Handshakes under way at once.
const AT_ONCE: usize = 64;
/// Open files that two processes with so many connections need, with the gateway's shares for its other doors.
const FILES: u64 = 15_000;

async fn connect(gateway: &Gateway, number: usize) -> Socket {
    let mut socket = gateway.client().await;
    if number.is_multiple_of(ACTIVE) {
        socket.say(&format!("crowd-{number}"), "busy [[delay=600000]]", "m").await;
        socket.until("accepted").await;
    }
    socket
}

async fn answers(gateway: &Gateway, socket: &mut Socket) {
    let (status, _) = with_deadline("health", gateway.get("/health")).await;
    assert_eq!(status, 200);
    socket.say("crowd-0", "/status", "c").await;
    let control = with_deadline("a control message", async {
        loop {
            let event = socket.until("message").await;
            if event["control"] == true {
                return event;
            }
        }
    });
    let control = control.await;
    assert!(control["text"].as_str().unwrap().starts_with("Thinking"), "{control}");
    let body = json!({"user": "ann", "messages": [{"role": "user", "content": "hello"}]});
    assert_eq!(gateway.chat(body, None).await.0, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_thousand_connections_leave_room_for_health_and_control_and_give_their_handles_back() {
    let files = greenroom::app::limits::raise_file_limit();
    let connections = if files >= FILES { CONNECTIONS } else { usize::try_from(files / 4).unwrap() };
    if connections < CONNECTIONS {
        eprintln!("ONLY {connections} CONNECTIONS: this test needs {FILES} open files, the hard limit is {files}");
        assert!(super::may_do_less(), "a full run needs {FILES} open files");
    }
    let place = Place::new(json!({"runtime": {"idleSeconds": 1, "drainSeconds": 0}}));
    let gateway = place.start().await;
    answers_warmly(&gateway).await;
    let before = Vitals::of(gateway.pid());
    let crowd = stream::iter(0..connections).map(|number| connect(&gateway, number)).buffered(AT_ONCE);
    let mut crowd: Vec<Socket> = crowd.collect().await;
    let during = Vitals::of(gateway.pid());
    assert!(during.files >= connections, "{before:?} {during:?}");
    answers(&gateway, &mut crowd[0]).await;
    assert_eq!(gateway.admin("status").await["turns_running"], connections.div_ceil(ACTIVE));
    drop(crowd);
    // A few more than before are fine: the log's next segment, transcripts that are being written.
    let few = before.files + 16;
    let after = until(gateway.pid(), "handles do not come back", |vitals| vitals.files <= few).await;
    assert!(after.threads <= during.threads, "{during:?} {after:?}");
    let of_each = during.rss_bytes.saturating_sub(before.rss_bytes) / connections as u64;
    println!(
        "chaos crowd: {connections} connections, {} running turns, files {} -> {} -> {}, {of_each} bytes of memory each ({})",
        connections.div_ceil(ACTIVE),
        before.files,
        during.files,
        after.files,
        mib(during.rss_bytes),
    );
}

/// The first turn makes files and pools that stay.
async fn answers_warmly(gateway: &Gateway) {
    let mut socket = gateway.client().await;
    socket.say("warm", "hello", "m").await;
    socket.until("turn_end").await;
    let body = json!({"user": "ann", "messages": [{"role": "user", "content": "hello"}]});
    assert_eq!(gateway.chat(body, None).await.0, 200);
}
