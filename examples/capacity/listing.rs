//! How long a gateway with many sessions takes to list them: after a start, page by page, and all of them.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use domain::ids::{SessionId, SessionKey};
use domain::stem::stem;
use domain::transcript::{HeaderFields, header_line};
use greenroom::app::beacon::Beacon;
use serde_json::{Value, json};

use crate::load;
use crate::server::Gateway;

/// How often the whole list is asked for.
const ROUNDS: usize = 20;
/// Sessions of one page, as the gateway gives them out.
const PAGE: usize = 1000;

/// Lists `sessions` sessions that an earlier gateway left.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures time")]
pub async fn measure(sessions: u64) -> anyhow::Result<Value> {
    let directory = tempfile::tempdir()?;
    write_sessions(&directory.path().join("workspace/sessions"), sessions)?;
    let gateway = Gateway::start(directory.path(), None, json!({})).await?;
    let begin = Instant::now();
    let beacon = Beacon::read(&directory.path().join("run")).context("the gateway says where it is")?;
    let (mut pages, mut lists) = (Vec::new(), Vec::new());
    let mut known = Duration::ZERO;
    for round in 0..=ROUNDS {
        let list = Instant::now();
        let mut times = whole_list(&beacon, sessions).await?;
        // The first one waits until all are known.
        if round == 0 {
            known = begin.elapsed();
        } else {
            lists.push(list.elapsed());
            pages.append(&mut times);
        }
    }
    let rss = load::rss(gateway.server.pid())?;
    let ((page_p50_ms, page_p99_ms), (list_p50_ms, list_p99_ms)) =
        (load::percentiles(&mut pages), load::percentiles(&mut lists));
    Ok(json!({
        "sessions": sessions, "known_after_ready_ms": known.as_millis(), "page": PAGE, "page_p50_ms": page_p50_ms,
        "page_p99_ms": page_p99_ms, "list_p50_ms": list_p50_ms, "list_p99_ms": list_p99_ms, "rss_bytes": rss,
    }))
}

/// One transcript for each session: a header and two messages.
fn write_sessions(directory: &Path, sessions: u64) -> anyhow::Result<()> {
    std::fs::create_dir_all(directory)?;
    for n in 0..sessions {
        let key = SessionKey::new(&format!("websocket:listed-{n}"))?;
        let session = SessionId(uuid::Uuid::from_u128(u128::from(n)));
        let header = header_line(&HeaderFields {
            session,
            key: &key,
            timestamp_ms: 1_767_225_600_000,
            cwd: "/w",
            parent_session: None,
        });
        let entry = |id: u8, role: &str| {
            let message = json!({"role": role, "content": format!("what was said in session {n}")});
            json!({"type": "message", "id": format!("{id:016x}"), "timestamp": "2026-01-01T00:00:00.000Z", "message": message})
        };
        let text = format!("{header}\n{}\n{}\n", entry(1, "user"), entry(2, "assistant"));
        std::fs::write(directory.join(format!("{}.jsonl", stem(&key))), text)?;
    }
    Ok(())
}

/// Asks for all pages; how long each took.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures time")]
async fn whole_list(beacon: &Beacon, sessions: u64) -> anyhow::Result<Vec<Duration>> {
    let client = provider::http_client()?;
    let (mut times, mut listed, mut cursor) = (Vec::new(), 0, None::<String>);
    loop {
        let cursor_query = cursor.map(|cursor| format!("&cursor={}", cursor.replace(':', "%3A"))).unwrap_or_default();
        let url = format!("{}/admin/v1/sessions?limit={PAGE}{cursor_query}", beacon.admin_url);
        let begin = Instant::now();
        let body = client.get(url).bearer_auth(&beacon.token).send().await?.error_for_status()?.bytes().await?;
        times.push(begin.elapsed());
        let page: Value = serde_json::from_slice(&body)?;
        listed += page["items"].as_array().map_or(0, Vec::len) as u64;
        match page["next"].as_str() {
            Some(next) => cursor = Some(next.to_owned()),
            None => break,
        }
    }
    ensure!(listed == sessions, "{listed} of {sessions} sessions are listed");
    Ok(times)
}
