//! Every metric, with its type and the values of its labels; and that dashboard and rules name no other ones.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use testkit::receiver::Receiver;

use crate::support::{Gateway, PATIENCE, Place};

/// What a label may say.
#[derive(Debug, Clone, Copy)]
enum Says {
    /// One of these.
    One(&'static [&'static str]),
    /// One of our own words: the code has them as literals or as names of an enum.
    Word,
    /// A number below 100.
    Number,
}

type Row = (&'static str, &'static str, &'static [(&'static str, Says)]);

const KINDS: Says = Says::One(&[
    "journal",
    "registry",
    "session",
    "provider",
    "tools",
    "tool_call",
    "channel",
    "outbox",
    "memory",
    "cron",
    "subagent",
    "process",
    "log",
    "turn",
    "delivery",
]);
const DOORS: Says = Says::One(&["ws", "api", "webhook", "hook", "admin"]);
const CHANNELS: Says = Says::One(&["session", "webhook"]);
const PROVIDERS: Says = Says::One(&["offline"]);
const RESULTS_OF_SILENCE: Says = Says::One(&["done", "nothing", "overtaken", "unreachable", "failed"]);
const TOOLS: Says =
    Says::One(&["cron", "exec", "list_dir", "read_file", "spawn", "subagents", "write_file", "unknown"]);

/// Family, type, labels. A metric that is missing here fails the test: think of its labels, then add it.
const FAMILIES: &[Row] = &[
    ("greenroom_accepted", "counter", &[("door", DOORS)]),
    ("greenroom_actors", "gauge", &[("kind", KINDS)]),
    ("greenroom_arbiter_delay_seconds", "histogram", &[("arbiter", Says::Number)]),
    ("greenroom_arbiters_blocked", "gauge", &[]),
    ("greenroom_archive_failures", "counter", &[]),
    ("greenroom_attachments_removed", "counter", &[]),
    ("greenroom_attachments_removed_bytes", "counter", &[]),
    ("greenroom_cache_bytes", "gauge", &[("cache", Says::One(&["context", "hub"]))]),
    ("greenroom_connections", "gauge", &[("door", DOORS)]),
    ("greenroom_crash_histories", "gauge", &[]),
    ("greenroom_cron_jobs", "gauge", &[]),
    ("greenroom_cron_running", "gauge", &[]),
    ("greenroom_cron_runs", "counter", &[("result", Says::One(&["accepted", "refused", "skipped", "ok", "error"]))]),
    ("greenroom_cron_unsaved", "counter", &[]),
    ("greenroom_dead_letters", "counter", &[("kind", Says::One(&["turn", "delivery"]))]),
    (
        "greenroom_delivery_attempts",
        "counter",
        &[("channel", CHANNELS), ("result", Says::One(&["delivered", "refused", "failed"]))],
    ),
    ("greenroom_events", "counter", &[("kind", KINDS), ("event", Says::Word)]),
    ("greenroom_frame_bytes", "gauge", &[]),
    ("greenroom_handler_seconds", "histogram", &[("kind", KINDS)]),
    ("greenroom_dreams", "counter", &[("result", Says::One(&["done", "failed", "nothing", "refused"]))]),
    ("greenroom_heartbeats", "counter", &[("result", Says::Word)]),
    ("greenroom_hub_sessions", "gauge", &[]),
    ("greenroom_idle_compactions", "counter", &[("result", RESULTS_OF_SILENCE)]),
    ("greenroom_inbox_messages", "gauge", &[]),
    ("greenroom_inbox_oldest_seconds", "gauge", &[]),
    ("greenroom_journal_batch_records", "histogram", &[]),
    ("greenroom_journal_bytes", "gauge", &[("state", Says::One(&["live", "total"]))]),
    ("greenroom_journal_calls", "gauge", &[("state", Says::One(&["queue", "space", "ids"]))]),
    ("greenroom_journal_keys", "gauge", &[]),
    ("greenroom_journal_sync_seconds", "histogram", &[]),
    ("greenroom_journal_writable", "gauge", &[]),
    ("greenroom_limit", "gauge", &[("bound", Says::One(&protocol::metrics::BOUNDS))]),
    ("greenroom_log_lost_events", "counter", &[]),
    ("greenroom_log_queue_events", "gauge", &[]),
    ("greenroom_mailbox_messages", "gauge", &[("kind", KINDS)]),
    ("greenroom_memory_file_bytes", "gauge", &[]),
    ("greenroom_memory_file_large", "gauge", &[]),
    ("greenroom_memory_pressure", "gauge", &[]),
    ("greenroom_outbox_messages", "gauge", &[("channel", CHANNELS)]),
    ("greenroom_outbox_oldest_seconds", "gauge", &[("channel", CHANNELS)]),
    ("greenroom_pool_jobs", "gauge", &[("state", Says::One(&["waiting", "running"]))]),
    ("greenroom_pool_refused", "counter", &[]),
    ("greenroom_pool_wait_seconds", "histogram", &[]),
    ("greenroom_provider_calls", "counter", &[("provider", PROVIDERS), ("result", Says::Word)]),
    ("greenroom_provider_permits", "gauge", &[("provider", PROVIDERS), ("state", Says::One(&["taken", "waiting"]))]),
    ("greenroom_provider_retries", "counter", &[("provider", PROVIDERS), ("reason", Says::Word)]),
    ("greenroom_provider_seconds", "histogram", &[("provider", PROVIDERS)]),
    (
        "greenroom_provider_tokens",
        "counter",
        &[("provider", PROVIDERS), ("direction", Says::One(&["input", "output"]))],
    ),
    ("greenroom_providers_open", "gauge", &[]),
    ("greenroom_refused", "counter", &[("door", DOORS), ("reason", Says::Word)]),
    ("greenroom_restarts", "counter", &[("kind", KINDS), ("reason", Says::Word)]),
    ("greenroom_send_buffer_bytes", "gauge", &[("door", DOORS)]),
    ("greenroom_session_reloads", "counter", &[]),
    ("greenroom_sessions", "gauge", &[("state", Says::One(&["listed", "live", "quarantined"]))]),
    ("greenroom_sessions_held", "gauge", &[]),
    ("greenroom_shards_paused", "gauge", &[]),
    ("greenroom_slow_clients", "counter", &[("door", DOORS)]),
    ("greenroom_stale_events", "counter", &[("kind", KINDS)]),
    ("greenroom_subagent_runs", "gauge", &[]),
    ("greenroom_summaries", "counter", &[("result", Says::One(&["text", "nothing", "failed", "raw"]))]),
    ("greenroom_summaries_running", "gauge", &[]),
    ("greenroom_tool_calls", "counter", &[("tool", TOOLS), ("result", Says::One(&["ok", "error"]))]),
    ("greenroom_tool_calls_running", "gauge", &[]),
    ("greenroom_tool_results_kept", "counter", &[]),
    ("greenroom_tool_seconds", "histogram", &[("tool", TOOLS)]),
    (
        "greenroom_trigger_deliveries",
        "counter",
        &[("result", Says::One(&["accepted", "refused", "failed", "bad", "ok", "error"]))],
    ),
    ("greenroom_trigger_open", "gauge", &[]),
    ("greenroom_trigger_poll_failures", "counter", &[]),
    ("greenroom_trigger_write_failures", "counter", &[]),
    ("greenroom_turn_seconds", "histogram", &[]),
    ("greenroom_turns", "counter", &[("result", Says::One(&["done", "failed", "dead_lettered", "cancelled"]))]),
    ("greenroom_turns_running", "gauge", &[]),
    ("greenroom_turns_waiting", "gauge", &[]),
    ("greenroom_view_lag_bytes", "gauge", &[]),
    ("greenroom_view_retries", "counter", &[]),
    ("greenroom_watched_turns", "gauge", &[]),
    ("process_cpu_seconds", "counter", &[]),
    ("process_max_fds", "gauge", &[]),
    ("process_open_fds", "gauge", &[]),
    ("process_resident_memory_bytes", "gauge", &[]),
    ("process_start_time_seconds", "gauge", &[]),
    ("process_threads", "gauge", &[]),
    ("process_virtual_memory_bytes", "gauge", &[]),
];

/// One family as it was printed.
#[derive(Debug, Default)]
struct Family {
    help: String,
    kind: String,
    /// Suffix of the sample's name, and its labels.
    samples: Vec<(String, BTreeMap<String, String>)>,
}

/// Reads the text format; only what ours uses of it.
fn families(text: &str) -> BTreeMap<String, Family> {
    let mut found: BTreeMap<String, Family> = BTreeMap::new();
    let mut last = String::new();
    for line in text.lines().filter(|line| *line != "# EOF") {
        if let Some(comment) = line.strip_prefix("# ") {
            let (what, rest) = comment.split_once(' ').unwrap();
            let (name, text) = rest.split_once(' ').unwrap();
            let family = found.entry(name.to_owned()).or_default();
            match what {
                "HELP" => family.help = text.to_owned(),
                "TYPE" => family.kind = text.to_owned(),
                other => panic!("{other} in {line}"),
            }
            last = name.to_owned();
            continue;
        }
        let (sample, _) = line.rsplit_once(' ').unwrap();
        let (name, labels) = sample.split_once('{').unwrap_or((sample, "}"));
        let suffix = name.strip_prefix(&last).unwrap_or_else(|| panic!("{line} does not belong to {last}"));
        let labels = labels.strip_suffix('}').unwrap().split(',').filter(|label| !label.is_empty()).map(|label| {
            let (key, value) = label.split_once('=').unwrap();
            (key.to_owned(), value.trim_matches('"').to_owned())
        });
        let labels = labels.filter(|(key, _)| key != "le").collect();
        found.get_mut(&last).unwrap().samples.push((suffix.to_owned(), labels));
    }
    found
}

fn check_family(name: &str, family: &Family, (_, kind, labels): Row) {
    assert_eq!(family.kind, kind, "{name}");
    assert!(family.help.len() > 3, "{name} says nothing of itself");
    assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{name}");
    for unit in ["seconds", "bytes"] {
        assert!(!name.contains(unit) || name.ends_with(unit), "{name} must end with its unit");
    }
    for (suffix, found) in &family.samples {
        match kind {
            "counter" => assert_eq!(suffix, "_total", "{name}"),
            "gauge" => assert_eq!(suffix, "", "{name}"),
            _ => assert!(["_bucket", "_sum", "_count"].contains(&suffix.as_str()), "{name}{suffix}"),
        }
        let keys: BTreeSet<&str> = found.keys().map(String::as_str).collect();
        assert_eq!(keys, labels.iter().map(|(key, _)| *key).collect(), "{name}");
        for (key, says) in labels {
            let value = found[*key].as_str();
            let allowed = match says {
                Says::One(values) => values.contains(&value),
                Says::Word => value.len() <= 40 && value.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'),
                Says::Number => value.parse::<u8>().is_ok_and(|number| number < 100),
            };
            assert!(allowed, "{name}: {key}={value:?} is not from {says:?}");
        }
    }
}

/// Something of everything: all doors, tools that exist and one that does not, a refusal.
async fn use_it(gateway: &Gateway) {
    let mut socket = gateway.websocket("").await;
    socket.until("ready").await;
    socket.say("secretchat", "look around [[tool=list_dir {\"path\":\".\"}]]", "m1").await;
    socket.until("turn_end").await;
    for text in ["hush [[tool=secrettool {}]]", "hello secretword"] {
        let body = json!({"user": "secretuser", "messages": [{"role": "user", "content": text}]});
        assert_eq!(gateway.chat(body, None).await.0, 200);
    }
    assert_eq!(gateway.get("/admin/v1/status").await.0, 401);
    let pushed = json!({"chat_id": "secretchat", "message_id": "m1", "text": "secretword"});
    let url = gateway.beacon().webhook_url.unwrap();
    let reply = provider::http_client().unwrap().post(url).json(&pushed).send().await.unwrap();
    assert_eq!(reply.status(), 202);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_metric_has_its_type_and_labels_from_closed_sets() {
    let receiver = Receiver::start();
    let place = Place::new(
        json!({"channels": {"webhook": {"enabled": true, "port": 0, "url": receiver.url(), "allowFrom": "*"}}}),
    );
    let gateway = place.start().await;
    use_it(&gateway).await;
    let names: BTreeSet<&str> = FAMILIES.iter().map(|(name, ..)| *name).collect();
    // Some come with the first second of the timers.
    let complete = tokio::time::timeout(PATIENCE, async {
        loop {
            let text = gateway.get("/metrics").await.1;
            let found = families(&text);
            if names.iter().all(|name| found.get(*name).is_some_and(|family| !family.samples.is_empty())) {
                return text;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
    let text = match complete.await {
        Ok(text) => text,
        Err(_) => {
            let found = families(&gateway.get("/metrics").await.1);
            let missing: Vec<_> = names.iter().filter(|name| !found.contains_key(**name)).collect();
            panic!("never seen: {missing:?}");
        }
    };
    assert!(text.ends_with("# EOF\n"));
    for (name, family) in &families(&text) {
        let row = FAMILIES.iter().find(|(known, ..)| known == name);
        check_family(name, family, *row.unwrap_or_else(|| panic!("{name} is not in the table")));
    }
    assert!(!text.contains("secret"), "a key, a name of a model's own, or a content in\n{text}");
    assert!(text.contains("greenroom_tool_calls_total{tool=\"unknown\",result=\"error\"} 1"), "{text}");
    assert!(text.contains("greenroom_tool_calls_total{tool=\"list_dir\",result=\"ok\"} 1"), "{text}");
    assert!(text.contains("greenroom_connections{door=\"ws\"} 0\n"), "the socket was closed:\n{text}");
    assert!(text.contains("greenroom_tool_calls_running 0\n"), "{text}");
    for kind in ["memory", "provider", "tools"] {
        assert!(text.contains(&format!("greenroom_mailbox_messages{{kind=\"{kind}\"}} 0\n")), "{text}");
    }
}

fn monitoring(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/monitoring").join(file);
    std::fs::read_to_string(&path).unwrap()
}

/// The metrics that an expression names.
fn named(expression: &str) -> Vec<&str> {
    let words = expression.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    words.filter(|word| word.starts_with("greenroom_") || word.starts_with("process_")).collect()
}

/// Fails unless every metric of the expression is one of ours, with the suffix that its type has.
fn check_expression(place: &str, expression: &str) {
    let names = named(expression);
    assert!(!names.is_empty(), "{place} asks for nothing of ours: {expression}");
    for name in names {
        let fits = FAMILIES.iter().any(|(family, kind, _)| {
            let Some(suffix) = name.strip_prefix(family) else { return false };
            match *kind {
                "counter" => suffix == "_total",
                "gauge" => suffix.is_empty(),
                _ => ["_bucket", "_sum", "_count"].contains(&suffix),
            }
        });
        assert!(fits, "{place}: there is no metric {name}");
    }
    for (open, close) in [('(', ')'), ('{', '}'), ('[', ']')] {
        assert_eq!(expression.matches(open).count(), expression.matches(close).count(), "{place}: {expression}");
    }
}

#[test]
fn the_dashboard_asks_for_metrics_that_exist() {
    let dashboard: Value = serde_json::from_str(&monitoring("dashboard.json")).unwrap();
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    assert!(variables.iter().any(|variable| variable["type"] == "datasource" && variable["name"] == "datasource"));
    let panels = dashboard["panels"].as_array().unwrap();
    let mut ids = BTreeSet::new();
    let mut asked = String::new();
    for panel in panels {
        let title = panel["title"].as_str().unwrap();
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{title} has the id of another panel");
        if panel["type"] == "row" {
            continue;
        }
        assert_eq!(panel["datasource"]["uid"], "${datasource}", "{title}");
        let targets = panel["targets"].as_array().unwrap();
        assert!(!targets.is_empty(), "{title}");
        for target in targets {
            let expression = target["expr"].as_str().unwrap();
            check_expression(title, expression);
            asked.push_str(expression);
        }
    }
    for needed in [
        "accepted_total",
        "turns_total",
        "dead_letters_total",
        "turn_seconds_bucket",
        "inbox_messages",
        "inbox_oldest_seconds",
        "restarts_total",
        "journal_sync_seconds_bucket",
        "journal_batch_records_sum",
        "journal_bytes",
        "journal_writable",
        "provider_calls_total",
        "provider_seconds_bucket",
        "process_resident_memory_bytes",
        "process_open_fds",
        "process_threads",
        "process_cpu_seconds_total",
        "turns_waiting",
        "shards_paused",
        "providers_open",
        "memory_pressure",
        "arbiters_blocked",
    ] {
        assert!(asked.contains(needed), "no panel shows {needed}");
    }
}

#[test]
fn the_rules_ask_for_metrics_that_exist() {
    let rules = monitoring("rules.yml");
    let mut alerts = BTreeSet::new();
    for rule in rules.split("      - alert: ").skip(1) {
        let (name, body) = rule.split_once('\n').unwrap();
        assert!(alerts.insert(name), "{name} is there twice");
        let field = |key: &str| body.lines().find_map(|line| line.trim_start().strip_prefix(key)).map(str::trim);
        check_expression(name, field("expr:").unwrap_or_else(|| panic!("{name} has no expression")));
        assert!(["{severity: critical}", "{severity: warning}"].contains(&field("labels:").unwrap()), "{name}");
        for key in ["summary:", "description:"] {
            assert!(field(key).is_some_and(|text| text.len() > 10), "{name} has no {key}");
        }
    }
    for needed in [
        "JournalNotWritable",
        "OldestMessage",
        "DeadLetters",
        "Quarantine",
        "RestartStorm",
        "StuckTurns",
        "LogNearItsLimit",
        "MemoryHigh",
        "SessionsPaused",
        "ArbiterBlocked",
        "ProviderNotAsked",
    ] {
        assert!(alerts.iter().any(|alert| alert.ends_with(needed)), "no rule {needed}");
    }
}
