//! One trace for each turn, across all actors and across a crash, at a collector of our own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::routing::post;
use serde_json::{Value, json};

use crate::support::{PATIENCE, Place};

/// A collector that keeps what it is sent.
#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Vec<Value>>>);

impl Collector {
    async fn start() -> (Self, String) {
        let collector = Self::default();
        let kept = collector.clone();
        let take = move |body: axum::body::Bytes| async move {
            let body: Value = serde_json::from_slice(&body).unwrap();
            let resources = body["resourceSpans"].as_array().unwrap();
            let scopes = resources.iter().flat_map(|resource| resource["scopeSpans"].as_array().unwrap());
            let spans = scopes.flat_map(|scope| scope["spans"].as_array().unwrap()).cloned();
            kept.0.lock().unwrap().extend(spans);
            axum::Json(json!({}))
        };
        let app = Router::new().route("/v1/traces", post(take));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        (collector, url)
    }

    /// The spans of one turn, once there are as many of each name as `expect` says.
    async fn trace(&self, turn: &str, expect: &[(&str, usize)]) -> Vec<Value> {
        let id = turn.replace('-', "");
        let expect: BTreeMap<String, usize> = expect.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
        let mut found = Vec::new();
        let came = tokio::time::timeout(PATIENCE, async {
            loop {
                found = self.0.lock().unwrap().iter().filter(|span| span["traceId"] == id).cloned().collect();
                if names(&found) == expect {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        let came = came.await.is_ok();
        assert!(came, "{expect:?} did not come, but {:?}", names(&found));
        found
    }
}

fn names(spans: &[Value]) -> BTreeMap<String, usize> {
    let mut names = BTreeMap::new();
    for span in spans {
        *names.entry(span["name"].as_str().unwrap().to_owned()).or_default() += 1;
    }
    names
}

fn attribute<'a>(span: &'a Value, key: &str) -> Option<&'a Value> {
    let all = span["attributes"].as_array()?;
    all.iter().find(|attribute| attribute["key"] == key).map(|attribute| &attribute["value"])
}

/// Each span has its own id, all but the root have a parent in the trace, and it is the right one.
fn check_tree(spans: &[Value]) {
    let ids: BTreeSet<&str> = spans.iter().map(|span| span["spanId"].as_str().unwrap()).collect();
    assert_eq!(ids.len(), spans.len(), "{spans:#?}");
    for span in spans {
        let name = span["name"].as_str().unwrap();
        let parent = span["parentSpanId"].as_str().unwrap_or_default();
        let parent = spans.iter().find(|other| other["spanId"] == parent).map(|other| other["name"].as_str().unwrap());
        let expect = match name.split(' ').next().unwrap() {
            "turn" => None,
            "accept" | "deliver" | "invoke_agent" => Some("turn"),
            "journal" if name == "journal enqueue" => Some("accept"),
            "journal" | "chat" | "execute_tool" => Some("invoke_agent greenroom"),
            other => panic!("an unknown span: {other}"),
        };
        assert_eq!(parent, expect, "{name}");
    }
}

fn environment(url: &str) -> [(&str, &str); 3] {
    [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", url),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"),
        ("OTEL_BSP_SCHEDULE_DELAY", "20"),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_is_one_trace_across_all_actors() {
    let (collector, url) = Collector::start().await;
    let place = Place::new(json!({}));
    let gateway = place.start_with(&environment(&url)).await;
    let mut socket = gateway.websocket("").await;
    socket.until("ready").await;
    socket.say("secretchat", "secretword [[tool=list_dir {\"path\":\".\"}]]", "secretid").await;
    let turn = socket.until("accepted").await["turn_id"].as_str().unwrap().to_owned();
    socket.until("turn_end").await;
    let spans = collector
        .trace(
            &turn,
            &[
                ("turn", 1),
                ("accept", 1),
                ("journal enqueue", 1),
                ("invoke_agent greenroom", 1),
                ("chat offline", 2),
                ("execute_tool list_dir", 1),
                ("journal commit", 3),
                ("deliver", 1),
            ],
        )
        .await;
    check_tree(&spans);
    let call = spans.iter().find(|span| span["name"] == "chat offline").unwrap();
    for (key, value) in
        [("gen_ai.operation.name", "chat"), ("gen_ai.provider.name", "offline"), ("gen_ai.request.model", "offline")]
    {
        assert_eq!(attribute(call, key).unwrap()["stringValue"], value, "{call:#}");
    }
    for key in ["gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens"] {
        assert!(attribute(call, key).is_some(), "{call:#}");
    }
    let all = json!(*collector.0.lock().unwrap()).to_string();
    assert!(!all.contains("secret"), "a content, a key or a message id in {all}");
    let another = gateway.chat(json!({"user": "x", "messages": [{"role": "user", "content": "hi"}]}), None).await;
    assert_eq!(another.0, 200);
    assert_eq!(gateway.terminate().await, Some(0));
    let traces: BTreeSet<String> = collector.0.lock().unwrap().iter().map(|span| span["traceId"].to_string()).collect();
    assert_eq!(traces.len(), 2, "two turns, two traces; the last is sent before the process ends");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_that_a_crash_cut_goes_on_in_its_trace() {
    let (collector, url) = Collector::start().await;
    let place = Place::new(json!({}));
    let gateway = place.start_with(&environment(&url)).await;
    let mut socket = gateway.websocket("").await;
    socket.until("ready").await;
    socket.say("a", "slow [[delay=1500]]", "m1").await;
    let turn = socket.until("accepted").await["turn_id"].as_str().unwrap().to_owned();
    collector.trace(&turn, &[("accept", 1), ("journal enqueue", 1), ("journal commit", 1)]).await;
    gateway.kill_nine();
    let gateway = place.start_with(&environment(&url)).await;
    let spans = collector
        .trace(
            &turn,
            &[
                ("turn", 1),
                ("accept", 1),
                ("journal enqueue", 1),
                ("invoke_agent greenroom", 2),
                ("chat offline", 1),
                ("journal commit", 3),
                ("deliver", 1),
            ],
        )
        .await;
    check_tree(&spans);
    let cut: Vec<&Value> = spans.iter().filter(|span| attribute(span, "error.type").is_some()).collect();
    assert_eq!(cut.len(), 1, "{spans:#?}");
    assert_eq!(cut[0]["name"], "invoke_agent greenroom");
    assert_eq!(attribute(cut[0], "error.type").unwrap()["stringValue"], "process_died");
    drop(gateway);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collector_that_is_away_holds_nothing_up() {
    let place = Place::new(json!({}));
    let gateway = place.start_with(&environment("http://127.0.0.1:9")).await;
    let (status, body) = gateway.chat(json!({"messages": [{"role": "user", "content": "hello"}]}), None).await;
    assert_eq!(status, 200, "{body}");
    let failed = tokio::time::timeout(PATIENCE, async {
        while !gateway.get("/metrics").await.1.contains("greenroom_spans_total{state=\"failed\"}") {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    assert!(failed.await.is_ok(), "the spans that could not be sent are not counted");
    assert_eq!(gateway.terminate().await, Some(0));
}
