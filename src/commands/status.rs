//! `greenroom status`: whether a gateway runs here, and how it is.

use domain::text::counted;
use serde_json::{Value, json};

use super::admin::{Admin, hidden};
use super::words::span;
use super::{print, print_json};
use crate::app::lock::Lock;
use crate::cli::Output;
use crate::config::Loaded;

/// Prints the status; no gateway is an answer too, not a failure.
pub async fn run(loaded: &Loaded, output: Output) -> anyhow::Result<()> {
    let paths = &loaded.paths;
    let gateway = match Admin::find(paths).await? {
        Some(admin) => Some((admin.beacon().clone(), admin.get("status").await?)),
        None => None,
    };
    if output.json {
        let without = || match Lock::gateway(&paths.run.join("lock")) {
            Some(who) => json!({"running": true, "reachable": false, "pid": who.pid}),
            None => json!({"running": false}),
        };
        return print_json(&gateway.map_or_else(without, |(_, status)| status));
    }
    print(&format!("data       {}", paths.data.display()))?;
    print(&format!("workspace  {}", paths.workspace.display()))?;
    let Some((beacon, status)) = gateway else {
        let hidden = hidden(paths).unwrap_or_else(|| "not running".to_owned());
        return print(&format!("gateway    {hidden}"));
    };
    let urls = [
        ("websocket", &beacon.websocket_url),
        ("api", &beacon.api_url),
        ("webhook", &beacon.webhook_url),
        ("admin", &Some(beacon.admin_url.clone())),
    ];
    print(&format!("gateway    {}", gateway_line(beacon.pid, &status)))?;
    for (name, url) in urls {
        if let Some(url) = url {
            print(&format!("{name:10} {url}"))?;
        }
    }
    let running = counted(status["turns_running"].as_u64().unwrap_or(0), "turn");
    print(&format!("sessions   {} live, {running} running", status["sessions_live"]))?;
    print(&format!("turns      {}", turns_line(&status["journal"])))?;
    let now_ms = u64::try_from(jiff::Timestamp::now().as_millisecond()).unwrap_or(0);
    outbox_lines(&status["outbox"], now_ms).iter().try_for_each(|line| print(&format!("outbox     {line}")))
}

/// One line for each channel that had something to deliver.
fn outbox_lines(outbox: &Value, now_ms: u64) -> Vec<String> {
    let channels = outbox.as_array().into_iter().flatten();
    let line = |channel: &Value| {
        let name = channel["channel"].as_str().unwrap_or("?");
        let oldest = channel["oldest_ms"].as_u64().map(|oldest| now_ms.saturating_sub(oldest) / 1000);
        let age = oldest.map_or_else(String::new, |seconds| format!(", the oldest for {seconds} s"));
        format!("{name}: {} waiting{age}", channel["messages"].as_u64().unwrap_or(0))
    };
    channels.map(line).collect()
}

fn gateway_line(pid: u32, status: &Value) -> String {
    let text = |name: &str| status[name].as_str().unwrap_or("?").to_owned();
    let up = span(status["uptime_ms"].as_u64().unwrap_or(0));
    let reasons: Vec<&str> = status["not_ready"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let mut why = if reasons.is_empty() { String::new() } else { format!(", not ready: {}", reasons.join(", ")) };
    let degraded: Vec<&str> = status["degraded"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if !degraded.is_empty() {
        why.push_str(&format!(", degraded: {}", degraded.join(", ")));
    }
    format!("{}, process {pid}, version {}, up {up}{why}", text("phase"), text("version"))
}

fn turns_line(journal: &Value) -> String {
    let count = |name: &str| journal[name].as_u64().unwrap_or(0);
    let mut disk =
        if journal["writable"] == true { String::new() } else { "; the journal cannot be written".to_owned() };
    if let (Some(needed), Some(free)) =
        (journal["space"]["needed_bytes"].as_u64(), journal["space"]["free_bytes"].as_u64())
    {
        disk.push_str(&format!(", its disk is full: {needed} bytes are needed, {free} are free"));
    }
    format!(
        "{} accepted: {} done ({} answered, {} failed), {} cancelled, {} dead, {} open{disk}",
        count("accepted"),
        count("done"),
        count("done").saturating_sub(count("failed")),
        count("failed"),
        count("cancelled"),
        count("dead"),
        count("open")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_is_told_in_sentences() {
        let status = json!({"phase": "serving", "version": "1", "uptime_ms": 61_000, "not_ready": ["journal"]});
        assert_eq!(gateway_line(7, &status), "serving, process 7, version 1, up 61 s, not ready: journal");
        let status = json!({"phase": "serving", "version": "1", "uptime_ms": 0, "degraded": ["memory_high"]});
        assert_eq!(gateway_line(7, &status), "serving, process 7, version 1, up 0.0 s, degraded: memory_high");
        let outbox = json!([
            {"channel": "webhook", "messages": 3, "oldest_ms": 1000},
            {"channel": "own", "messages": 0, "oldest_ms": null},
        ]);
        assert_eq!(outbox_lines(&outbox, 6500), ["webhook: 3 waiting, the oldest for 5 s", "own: 0 waiting"]);
        let journal = json!({
            "accepted": 5, "done": 3, "failed": 1, "open": 1, "cancelled": 1, "dead": 0, "writable": false
        });
        let expected = "5 accepted: 3 done (2 answered, 1 failed), 1 cancelled, 0 dead, 1 open; the journal cannot be \
                        written";
        assert_eq!(turns_line(&journal), expected);
        let full = json!({"writable": false, "space": {"needed_bytes": 64, "free_bytes": 7}});
        let lacks = "; the journal cannot be written, its disk is full: 64 bytes are needed, 7 are free";
        assert!(turns_line(&full).ends_with(lacks), "{}", turns_line(&full));
    }
}
