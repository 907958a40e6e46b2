//! One trace for each turn, across all actors and across a crash, at a collector of our own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::routing::post;
use serde_json::{Value, json};
use testkit::receiver::{Answer, Receiver};

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
            "accept" | "deliver" | "push" | "invoke_agent" => Some("turn"),
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
    let mut socket = gateway.client().await;
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
    let delivered = spans.iter().find(|span| span["name"] == "deliver").unwrap();
    assert_eq!(attribute(delivered, "greenroom.route").unwrap()["stringValue"], "live");
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
    let mut socket = gateway.client().await;
    socket.say("a", "slow [[tool=list_dir {\"path\":\".\"}]][[delay=1500]]", "m1").await;
    let turn = socket.until("accepted").await["turn_id"].as_str().unwrap().to_owned();
    // What the first process had done and told when it is killed in the middle of the second model call.
    let before = [
        ("accept", 1),
        ("journal enqueue", 1),
        ("chat offline", 1),
        ("execute_tool list_dir", 1),
        ("journal commit", 2),
    ];
    collector.trace(&turn, &before).await;
    gateway.kill_nine();
    let gateway = place.start_with(&environment(&url)).await;
    // The second asks the model again and runs no tool: its result is known.
    let all = [
        ("turn", 1),
        ("accept", 1),
        ("journal enqueue", 1),
        ("invoke_agent greenroom", 2),
        ("chat offline", 2),
        ("execute_tool list_dir", 1),
        ("journal commit", 4),
        ("deliver", 1),
    ];
    let spans = collector.trace(&turn, &all).await;
    check_tree(&spans);
    let cut: Vec<&Value> = spans.iter().filter(|span| attribute(span, "error.type").is_some()).collect();
    assert_eq!(cut.len(), 1, "{spans:#?}");
    assert_eq!(cut[0]["name"], "invoke_agent greenroom");
    assert_eq!(attribute(cut[0], "error.type").unwrap()["stringValue"], "process_died");
    drop(gateway);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_attempt_to_push_a_part_of_the_answer_is_in_the_trace_of_its_turn() {
    let ((collector, url), receiver) = (Collector::start().await, Receiver::start());
    let webhook =
        json!({"enabled": true, "port": 0, "url": receiver.url(), "maxMessageChars": 100, "allowFrom": ["*"]});
    let place = Place::new(json!({"channels": {"webhook": webhook}}));
    let gateway = place.start_with(&environment(&url)).await;
    receiver.plan([Answer::Status(503), Answer::Status(200), Answer::Status(410)]);
    let body = json!({"chat_id": "7", "message_id": "m1", "text": "word ".repeat(25)});
    let posted = provider::http_client().unwrap().post(gateway.beacon().webhook_url.unwrap()).json(&body);
    let reply: Value = posted.send().await.unwrap().json().await.unwrap();
    let turn = reply["turn_id"].as_str().unwrap().to_owned();
    gateway.delivered().await;
    let names = [
        ("turn", 1),
        ("accept", 1),
        ("journal enqueue", 1),
        ("invoke_agent greenroom", 1),
        ("chat offline", 1),
        ("journal commit", 1),
        ("deliver", 1),
        ("push webhook", 3),
    ];
    let mut spans = collector.trace(&turn, &names).await;
    check_tree(&spans);
    let delivered = spans.iter().find(|span| span["name"] == "deliver").unwrap();
    assert_eq!(attribute(delivered, "greenroom.route").unwrap()["stringValue"], "push");
    spans.retain(|span| span["name"] == "push webhook");
    spans.sort_by_key(|span| span["startTimeUnixNano"].as_str().unwrap().parse::<u64>().unwrap());
    let text = |span: &Value, key: &str| attribute(span, key).map(|value| value["stringValue"].clone());
    let told: Vec<_> = spans
        .iter()
        .map(|span| ["messaging.message.id", "error.type", "greenroom.delivery.repeat"].map(|key| text(span, key)))
        .collect();
    let row = |part: u32, error: Option<&str>, repeat: &str| {
        [Some(json!(format!("{turn}:{part}"))), error.map(|error| json!(error)), Some(json!(repeat))]
    };
    assert_eq!(told, [row(1, Some("failed"), "no"), row(1, None, "yes"), row(2, Some("refused"), "no")]);
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
