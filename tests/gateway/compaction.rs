//! Conversations that outgrow the model's context, through the real program.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};
use testkit::model::Model;

use crate::support::{Gateway, PATIENCE, Place};

const WINDOW: u64 = 12_000;
const MAX_TOKENS: u64 = 500;
/// How the request begins that asks for a summary.
const ASKS: &str = "Summarise the conversation so far.";

fn place(model: &Model) -> Place {
    place_of(model, WINDOW)
}

fn place_of(model: &Model, window: u64) -> Place {
    let defaults = json!({"contextWindowTokens": window, "maxTokens": MAX_TOKENS});
    Place::with_model(&model.url(), json!({"agents": {"defaults": defaults}}))
}

async fn chat(gateway: &Gateway, text: &str) -> (u16, String) {
    let (status, body) =
        gateway.chat(json!({"user": "ann", "messages": [{"role": "user", "content": text}]}), None).await;
    let said = body["choices"][0]["message"]["content"].as_str().or(body["error"]["message"].as_str());
    (status, said.unwrap_or_default().to_owned())
}

/// About 800 tokens.
fn long(what: &str) -> String {
    format!("{what} {}", "word ".repeat(640))
}

fn text(message: &Value) -> String {
    let content = &message["content"];
    let Some(parts) = content.as_array() else { return content.as_str().unwrap_or_default().to_owned() };
    parts.iter().filter_map(|part| part["text"].as_str()).collect()
}

/// Whether a request asks for a summary.
fn asks(request: &Value) -> bool {
    request["messages"].as_array().unwrap().last().is_some_and(|last| text(last).starts_with(ASKS))
}

fn compactions(lines: &[Value]) -> Vec<&Value> {
    lines.iter().filter(|line| line["type"] == "compaction").collect()
}

/// The lines of the archive.
fn archive(place: &Place) -> Vec<Value> {
    let path = place.path().join("workspace/memory/history.jsonl");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Each call is followed at once by its results.
fn assert_pairs(request: &Value) {
    let messages = request["messages"].as_array().unwrap();
    let mut open: Vec<&Value> = Vec::new();
    for message in messages {
        if message["role"] == "tool" {
            let at = open.iter().position(|id| **id == message["tool_call_id"]);
            open.remove(at.unwrap_or_else(|| panic!("a result without its call: {message}")));
            continue;
        }
        assert!(open.is_empty(), "a call without its result before {message}");
        open = message["tool_calls"].as_array().into_iter().flatten().map(|call| &call["id"]).collect();
    }
    assert!(open.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_conversation_of_any_length_goes_on_within_the_models_window() {
    let model = Model::start_on_thread();
    let place = place(&model);
    let gateway = place.start().await;
    for number in 0..30 {
        let tool = if number % 3 == 0 { " [[tool=list_dir {\"path\":\".\"}]]" } else { "" };
        let (status, said) = chat(&gateway, &format!("{}{tool}", long(&format!("question {number}")))).await;
        assert!(status == 200 && said.starts_with("echo:question"), "{number}: {status} {said}");
    }
    let requests = model.requests();
    for request in &requests {
        assert_pairs(request);
        // What is said, in the same rough count; keys and quotes of the body are not.
        let tokens = request.to_string().len() as u64 / 4;
        assert!(tokens < WINDOW, "{tokens}");
    }
    let asked: Vec<&Value> = requests.iter().filter(|request| asks(request)).collect();
    assert!(asked.len() >= 2, "{}", asked.len());
    for ask in &asked {
        assert_eq!(ask["tool_choice"], "none");
        assert_eq!(ask["tools"], requests[0]["tools"], "what the provider has in its cache begins so");
    }
    gateway.terminate().await;
    let lines = place.transcript("api.user.ann");
    let entries = compactions(&lines);
    // One that a turn overtakes is given up.
    assert!(entries.len() >= 2 && entries.len() <= asked.len(), "{} {}", entries.len(), asked.len());
    // The last request shows the last summary once, and nothing from before it.
    let last = requests.last().unwrap().to_string();
    assert!(!last.contains("question 0 ") && last.contains("question 29 "), "{last}");
    // Each part that was summarised is kept once, also one that the conversation then overtook.
    let kept = archive(&place);
    assert!(entries.len() <= kept.len() && kept.len() <= asked.len(), "{} {}", kept.len(), asked.len());
    assert_eq!((&kept[0]["cursor"], &kept[0]["session_key"]), (&json!(1), &json!("api:user:ann")));
    let parts: BTreeSet<&str> = kept.iter().filter_map(|line| line["part"].as_str()).collect();
    assert_eq!(parts.len(), kept.len());
    let changed = place.events().into_iter().filter(|event| event["event"] == "session_edited").count();
    assert_eq!(changed, entries.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_model_that_refuses_a_request_as_too_long_gets_a_shorter_one_once() {
    let model = Model::start_on_thread();
    let place = place(&model);
    let gateway = place.start().await;
    // Few enough that the gateway finds none of their requests too long.
    for number in 0..3 {
        chat(&gateway, &long(&format!("question {number}"))).await;
    }
    let mut socket = gateway.websocket("").await;
    socket.until("ready").await;
    let (status, said) = chat(&gateway, "and now? [[error=context;times=1]]").await;
    assert_eq!((status, said.as_str()), (200, "echo:and now?"));
    assert_eq!(model.requests().iter().filter(|request| asks(request)).count(), 1);
    let (status, said) = chat(&gateway, "still? [[error=context;times=9]]").await;
    assert!(status != 200 && said.contains("also after it was summarised"), "{status} {said}");
    assert_eq!(chat(&gateway, "better?").await.1, "echo:better?");
    gateway.terminate().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_person_has_it_summed_up_and_is_told_also_when_the_model_cannot() {
    let model = Model::start_on_thread();
    let place = place_of(&model, 10 * WINDOW);
    let mut gateway = place.start().await;
    assert_eq!(chat(&gateway, "/compact").await.1, "Nothing was changed: there is nothing to summarise yet.");
    for number in 0..7 {
        chat(&gateway, &long(&format!("question {number}"))).await;
    }
    let (_, said) = chat(&gateway, "/compact [[say=they asked a lot]]").await;
    assert!(said.starts_with("Summarised: about ") && said.contains(" tokens."), "{said}");
    chat(&gateway, "more").await;
    let last = model.requests().pop().unwrap().to_string();
    assert!(last.contains("they asked a lot") && !last.contains("question 0 ") && last.contains("question 6 "));
    for number in 7..11 {
        chat(&gateway, &long(&format!("question {number}"))).await;
    }
    for _ in 0..2 {
        let (_, said) = chat(&gateway, "/compact [[say=half]] [[finish=length]]").await;
        assert!(said.starts_with("The model could not sum up the earlier messages this time."), "{said}");
        gateway.kill_nine();
        gateway = place.start().await;
    }
    let (_, said) = chat(&gateway, "/compact [[say=half]] [[finish=length]]").await;
    assert!(said.starts_with("The model could not sum up the earlier messages; they were archived"), "{said}");
    gateway.terminate().await;
    let kept = archive(&place);
    assert_eq!(kept[0]["content"], "they asked a lot");
    assert!(kept.last().unwrap()["content"].as_str().unwrap().starts_with("[RAW] "), "{kept:?}");
    let reasons: Vec<Value> = place.events().into_iter().filter(|event| event["event"] == "session_edited").collect();
    let reasons: Vec<&str> = reasons.iter().filter_map(|event| event["reason"].as_str()).collect();
    // A kill may take the last line of the log with it.
    let (failed, others): (Vec<&str>, Vec<&str>) = reasons.into_iter().partition(|reason| *reason == "compact: failed");
    assert!(others == ["compact", "compact: raw"] && failed.len() <= 2, "{failed:?} {others:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watchers_are_told_when_room_is_made_and_a_kill_in_the_middle_loses_nothing() {
    let model = Model::start_on_thread();
    let place = place(&model);
    let gateway = place.start().await;
    let mut socket = gateway.websocket("").await;
    socket.until("ready").await;
    let mut told = false;
    for number in 0..14 {
        socket.say("room", &long(&format!("question {number}")), &format!("m{number}")).await;
        loop {
            let frame = socket.next().await.unwrap();
            told |= frame.to_string().contains("Earlier messages were summarised to make room (about ");
            if frame["event"] == "turn_end" {
                break;
            }
        }
    }
    assert!(told, "{:?}", place.events());
    // However much the last turns have summarised, there is something left to.
    for number in 0..10 {
        socket.say("room", "short", &format!("s{number}")).await;
        socket.until("turn_end").await;
    }
    // The answer to the request for a summary takes its time; the process is killed before it is there.
    let before = model.requests().len();
    socket.say("room", "/compact [[delay=1500]] [[say=the summary]]", "c1").await;
    let asked = tokio::time::timeout(PATIENCE, async {
        while model.requests().len() == before {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    asked.await.unwrap();
    gateway.kill_nine();
    let gateway = place.start().await;
    gateway.settle().await;
    gateway.terminate().await;
    let lines = place.transcript("websocket.room");
    let last = compactions(&lines).pop().unwrap().to_string();
    assert!(last.contains("the summary"), "{last}");
    let answered = lines.iter().filter(|line| line.to_string().contains("Summarised: about ")).count();
    assert_eq!(answered, 1);
    for number in 0..14 {
        let asked = lines
            .iter()
            .filter(|line| line["message"]["role"] == "user")
            .filter(|line| line.to_string().contains(&format!("question {number} ")));
        assert_eq!(asked.count(), 1, "{number}");
    }
}

/// Writes a transcript in which that many messages were said, the last of them two hours ago.
fn said_before(place: &Place, user: &str, messages: u64) {
    let now = jiff::Timestamp::now();
    let at = |minutes: i64| (now - jiff::SignedDuration::from_mins(minutes)).to_string();
    let key = format!("api:user:{user}");
    let head =
        json!({"type": "session", "version": 3, "id": user, "timestamp": at(300), "cwd": "/", "sessionKey": key});
    let mut lines = vec![head.to_string()];
    for number in 0..messages {
        let parent = number.checked_sub(1).map(|before| format!("e{before}"));
        let text = long(&format!("line {number}"));
        let message = match number % 2 {
            0 => json!({"role": "user", "content": text}),
            _ => json!({
                "role": "assistant", "content": [{"type": "text", "text": text}], "provider": "p", "model": "m",
                "stopReason": "stop",
            }),
        };
        let timestamp = at(120 + i64::try_from(messages - number).unwrap());
        let line = json!({
            "type": "message", "id": format!("e{number}"), "parentId": parent, "timestamp": timestamp,
            "message": message,
        });
        lines.push(line.to_string());
    }
    let directory = place.path().join("workspace/sessions");
    std::fs::create_dir_all(&directory).unwrap();
    std::fs::write(directory.join(format!("api.user.{user}.jsonl")), lines.join("\n") + "\n").unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_conversations_are_summarised_but_for_their_last_messages_and_only_once() {
    let model = Model::start_on_thread();
    let defaults = json!({
        "contextWindowTokens": 10 * WINDOW, "maxTokens": MAX_TOKENS,
        "idleCompactAfterMinutes": 90, "idleCompactCheckIntervalSeconds": 1,
    });
    let place = Place::with_model(&model.url(), json!({"agents": {"defaults": defaults}}));
    said_before(&place, "ann", 14);
    said_before(&place, "bob", 8);
    said_before(&place, "cem", 10);
    let gateway = place.start().await;
    let of_silence = || {
        let events = place.events().into_iter().filter(|event| event["reason"] == "compact: idle");
        events.map(|event| event["session"].as_str().unwrap_or_default().to_owned()).collect::<Vec<_>>()
    };
    let done = tokio::time::timeout(PATIENCE, async {
        let both = "greenroom_idle_compactions_total{result=\"done\"} 2";
        while !gateway.get("/metrics").await.1.contains(both) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    done.await.unwrap();
    let (status, said) = chat(&gateway, "back again").await;
    assert_eq!((status, said.as_str()), (200, "echo:back again"));
    let requests = model.requests();
    let last = requests.last().unwrap().to_string();
    assert!(!last.contains("line 5 ") && last.contains("line 6 ") && last.contains("line 13 "), "{last}");
    gateway.terminate().await;
    assert_eq!(of_silence(), ["api:user:ann", "api:user:cem"]);
    assert_eq!(requests.iter().filter(|request| asks(request)).count(), 2);
    let woken = place.events().into_iter().any(|event| event["session"] == "api:user:bob");
    assert!(!woken, "what is short is left asleep");
    assert_eq!(archive(&place).len(), 2);
}
