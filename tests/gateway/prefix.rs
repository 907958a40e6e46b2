//! What the prompt caches of providers live on: each request begins as the one before.

use serde_json::{Value, json};
use testkit::model::Model;

use crate::support::{Place, Socket};

const TURNS: usize = 50;

/// What was sent: the system prompt, the tools, and the messages without the bracket that ends them.
struct Sent {
    system: String,
    tools: String,
    messages: String,
}

impl Sent {
    fn of(request: &Value) -> Self {
        let messages = request["messages"].as_array().unwrap();
        assert_eq!(messages[0]["role"], "system");
        let text = Value::Array(messages[1..].to_vec()).to_string();
        Self {
            system: messages[0]["content"].as_str().unwrap().to_owned(),
            tools: request["tools"].to_string(),
            messages: text.strip_suffix(']').unwrap().to_owned(),
        }
    }
}

async fn ask(socket: &mut Socket, number: usize) {
    let text = match number % 5 {
        0 => r#"look [[tool=list_dir {"path":"."}]]"#.to_owned(),
        1 => r#"both [[tool=list_dir {"path":"."}]][[tool=list_dir {"path":"memory"}]]"#.to_owned(),
        2 => "think [[reasoning=hm]]".to_owned(),
        3 => format!("a long one: {}", "word ".repeat(100)),
        _ => format!("message {number}"),
    };
    socket.say("garden", &text, &format!("m{number}")).await;
    assert_eq!(socket.until("turn_end").await["result"], "done", "{text}");
}

/// Runs turns, with a kill after the 20th and a compaction after the 30th. No summary is asked of the model.
async fn fifty_turns(model: &Model) {
    let place = Place::with_model(&model.url(), json!({}));
    let mut gateway = place.start().await;
    let mut socket = gateway.client().await;
    for number in 0..TURNS {
        ask(&mut socket, number).await;
        if number == 19 {
            gateway.kill_nine();
            gateway = place.start().await;
            socket = gateway.client().await;
        }
        if number == 29 {
            let out = place.run(&["sessions", "compact", "websocket:garden", "--keep-last", "6"]);
            assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        }
    }
    assert_eq!(gateway.terminate().await, Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_of_fifty_turns_asks_with_the_bytes_of_the_one_before_but_at_a_compaction() {
    let model = Model::start_on_thread();
    fifty_turns(&model).await;
    // Others than turns ask without tools.
    let requests: Vec<Value> = model.requests().into_iter().filter(|request| request["tools"].is_array()).collect();
    assert_eq!(requests.len(), TURNS + TURNS / 5 * 2, "one for each turn, one more for each that calls tools");
    let sent: Vec<Sent> = requests.iter().map(Sent::of).collect();
    let mut compactions = 0;
    for (number, pair) in sent.windows(2).enumerate() {
        let [before, after] = pair else { panic!("windows have two") };
        assert_eq!(before.tools, after.tools, "request {number}");
        assert!(after.system.starts_with(&before.system), "request {number}: {}", after.system);
        if before.system == after.system {
            assert!(after.messages.starts_with(&before.messages), "request {number}");
        } else {
            assert!(after.system.contains("[Archived Context Summary]"));
            assert!(after.messages.len() < before.messages.len());
            compactions += 1;
        }
    }
    assert_eq!(compactions, 1);
}

/// How the request begins that asks for a summary.
const ASKS: &str = "Summarise the conversation so far.";
/// Where what belongs to the session alone begins in the system prompt: what was archived.
const TAIL: [&str; 2] = ["# Recent History", "[Archived Context Summary]"];

impl Sent {
    /// The system prompt up to what was archived.
    fn stable(&self) -> &str {
        let begins = TAIL.iter().filter_map(|mark| self.system.find(mark)).min();
        self.system.split_at(begins.unwrap_or(self.system.len())).0.trim_end_matches(['\n', '-'])
    }
}

/// The messages without the last one, as they stand in the request.
fn but_last(request: &Value) -> String {
    let messages = request["messages"].as_array().unwrap();
    let text = Value::Array(messages[1..messages.len() - 1].to_vec()).to_string();
    text.strip_suffix(']').unwrap().to_owned()
}

fn is_for_summary(request: &Value) -> bool {
    request["messages"].as_array().unwrap().last().unwrap()["content"].to_string().contains(ASKS)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_summary_by_the_model_changes_the_tail_and_keeps_every_byte_of_what_stays() {
    let model = Model::start_on_thread();
    let defaults = json!({"contextWindowTokens": 16_000, "maxTokens": 500});
    let place = Place::with_model(&model.url(), json!({"agents": {"defaults": defaults}}));
    let gateway = place.start().await;
    let mut socket = gateway.client().await;
    for number in 0..TURNS {
        ask(&mut socket, number).await;
        if number % 5 == 4 {
            let text = format!("much: {}", "word ".repeat(600));
            socket.say("garden", &text, &format!("l{number}")).await;
            assert_eq!(socket.until("turn_end").await["result"], "done");
        }
    }
    assert_eq!(gateway.terminate().await, Some(0));
    let requests = model.requests();
    let (mut last, mut summaries, mut shortened): (Option<Sent>, _, _) = (None, 0, 0);
    for (number, request) in requests.iter().enumerate() {
        let sent = Sent::of(request);
        let Some(before) = last.take() else {
            last = Some(sent);
            continue;
        };
        assert_eq!((before.stable(), &before.tools), (sent.stable(), &sent.tools), "request {number}");
        if is_for_summary(request) {
            summaries += 1;
            assert_eq!(before.system, sent.system, "request {number} asks with what the provider has in its cache");
            assert!(before.messages.starts_with(&but_last(request)), "request {number}");
            last = Some(before);
            continue;
        }
        if sent.messages.starts_with(&before.messages) {
            assert_eq!(before.system, sent.system, "request {number}");
        } else {
            // The scripted model may sum up two parts in the same words: then the system prompt is the same, too.
            shortened += 1;
            assert!(sent.system.contains(TAIL[1]), "request {number}");
            let messages = sent.messages.trim_start_matches('[');
            // What was said alike may stand there more than once.
            let first = messages.split_once("},{").unwrap().0;
            let mut kept = before.messages.match_indices(first).map(|(at, _)| before.messages.split_at(at).1);
            assert!(kept.any(|kept| messages.starts_with(kept)), "request {number}: {}\n{messages}", before.messages);
        }
        last = Some(sent);
    }
    assert!(shortened >= 1 && summaries >= shortened, "{summaries} summaries, {shortened} of them shown");
}
