//! What a turn costs in a session with very many entries, next to one in a session that has just begun.

use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use domain::ids::{SessionId, SessionKey};
use domain::stem::stem;
use domain::transcript::{HeaderFields, header_line};
use serde_json::{Value, json};

use crate::load;
use crate::server::Gateway;

/// Turns in each of the two sessions.
const TURNS: usize = 1_000;
/// Numbers of their users.
const LONG: u64 = 0;
const SHORT: u64 = 1;

/// Takes turns in a session of `entries` entries and in a new one, one after the other.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures time")]
pub async fn measure(entries: u64) -> anyhow::Result<Value> {
    let directory = tempfile::tempdir()?;
    let bytes = write_session(&directory.path().join("workspace/sessions"), entries)?;
    let gateway = Gateway::start(directory.path(), None, json!({})).await?;
    let (client, url) = (provider::http_client()?, &gateway.server.url);
    let before = load::rss(gateway.server.pid())?;
    let begin = Instant::now();
    load::turn(&client, url, LONG).await?;
    let opening = begin.elapsed();
    load::turn(&client, url, SHORT).await?;
    let (mut long, mut short) = (Vec::with_capacity(TURNS), Vec::with_capacity(TURNS));
    for _ in 0..TURNS {
        for (user, times) in [(LONG, &mut long), (SHORT, &mut short)] {
            let begin = Instant::now();
            load::turn(&client, url, user).await?;
            times.push(begin.elapsed());
        }
    }
    let grown = load::rss(gateway.server.pid())?.saturating_sub(before);
    let mean_us = |times: &[Duration]| times.iter().sum::<Duration>().as_micros() as f64 / times.len() as f64;
    let (long_us, short_us) = (mean_us(&long), mean_us(&short));
    let ((long_p50_ms, _), (short_p50_ms, _)) = (load::percentiles(&mut long), load::percentiles(&mut short));
    Ok(json!({
        "entries": entries, "bytes": bytes, "first_turn_ms": opening.as_millis(), "rss_grown_bytes": grown,
        "long_mean_us": long_us.round(), "short_mean_us": short_us.round(), "ratio": crate::share(long_us, short_us),
        "long_p50_ms": long_p50_ms, "short_p50_ms": short_p50_ms,
    }))
}

/// A transcript of that many messages; how long it is.
fn write_session(directory: &Path, entries: u64) -> anyhow::Result<u64> {
    std::fs::create_dir_all(directory)?;
    let key = SessionKey::new(&format!("api:user:u{LONG}"))?;
    let path = directory.join(format!("{}.jsonl", stem(&key)));
    let mut file = BufWriter::new(std::fs::File::create(&path)?);
    let session = SessionId(uuid::Uuid::from_u128(1));
    let fields = HeaderFields { session, key: &key, timestamp_ms: 1_767_225_600_000, cwd: "/w", parent_session: None };
    writeln!(file, "{}", header_line(&fields))?;
    for n in 0..entries {
        let role = if n % 2 == 0 { "user" } else { "assistant" };
        let parent = n.checked_sub(1).map(|before| format!("{before:016x}"));
        let entry = json!({"type": "message", "id": format!("{n:016x}"), "parentId": parent,
            "timestamp": "2026-01-01T00:00:00.000Z", "message": {"role": role, "content": "x".repeat(350)}});
        writeln!(file, "{entry}")?;
    }
    file.flush()?;
    Ok(std::fs::metadata(path)?.len())
}
