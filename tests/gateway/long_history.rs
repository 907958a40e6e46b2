//! A conversation of thousands of messages that has to go into a small window: none of them may get lost on the way.

use std::fmt::Write as _;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use serde_json::{Value, json};
use testkit::model::Model;

use crate::support::{Gateway, PATIENCE, Place};

const MESSAGES: usize = 5000;
/// A turn summarises so many parts before it calls the model.
const ROUNDS_MAX: usize = 5;
/// More than this takes.
const TURNS_MAX: usize = 6;
const KEY: &str = "api:user:ann";
/// How the request begins that asks for a summary.
const ASKS: &str = "Summarise the conversation so far.";

/// What a message says: its number, and enough besides that all of them fill the window several times.
fn numbered(number: usize) -> String {
    format!("m{number:04}. {}", "word ".repeat(10))
}

/// The numbers in a text, in its order.
fn numbers(text: &str) -> Vec<usize> {
    let is_number = |word: &&str| word.len() == 5 && word.starts_with('m');
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric()).filter(is_number);
    words.filter_map(|word| word.trim_start_matches('m').parse().ok()).collect()
}

fn file(place: &Place, path: &str) -> PathBuf {
    place.path().join("workspace").join(path)
}

/// Writes the transcript of a conversation in which all of that was said.
fn said_before(place: &Place) {
    let now = jiff::Timestamp::now();
    let at = |seconds: usize| (now - jiff::SignedDuration::from_secs(i64::try_from(seconds).unwrap())).to_string();
    let head = json!({
        "type": "session", "version": 3, "id": "ann", "timestamp": at(MESSAGES + 60), "cwd": "/", "sessionKey": KEY,
    });
    let mut lines = format!("{head}\n");
    for number in 0..MESSAGES {
        let parent = number.checked_sub(1).map(|before| format!("e{before}"));
        let text = numbered(number);
        let message = match number % 2 {
            0 => json!({"role": "user", "content": text}),
            _ => json!({
                "role": "assistant", "content": [{"type": "text", "text": text}], "provider": "p", "model": "m",
                "stopReason": "stop",
            }),
        };
        let line = json!({
            "type": "message", "id": format!("e{number}"), "parentId": parent, "timestamp": at(MESSAGES - number + 30),
            "message": message,
        });
        writeln!(lines, "{line}").unwrap();
    }
    std::fs::create_dir_all(file(place, "sessions")).unwrap();
    std::fs::write(file(place, "sessions/api.user.ann.jsonl"), lines).unwrap();
}

async fn chat(gateway: &Gateway, text: &str) -> Value {
    let body = json!({"user": "ann", "messages": [{"role": "user", "content": text}]});
    let (status, body) = tokio::time::timeout(PATIENCE, gateway.chat(body, None)).await.unwrap();
    assert_eq!(status, 200, "{body}");
    body["choices"][0]["message"]["content"].clone()
}

/// Of which messages the lines of the archive are.
fn archived(place: &Place) -> Vec<RangeInclusive<usize>> {
    let text = std::fs::read_to_string(file(place, "memory/history.jsonl")).unwrap_or_default();
    let number = |id: &str| id.strip_prefix('e').unwrap().parse::<usize>().unwrap();
    let range = |line: Value| {
        let (first, last) = line["part"].as_str().unwrap().split_once('.').unwrap();
        number(first)..=number(last)
    };
    text.lines().map(|line| range(serde_json::from_str(line).unwrap())).collect()
}

/// Each message stands in the transcript once. The archive has parts of the conversation from its first message on, without
/// a gap and none twice; the model is shown only messages behind those, in order and none twice. How many there are that
/// are neither archived nor shown.
fn left_out(place: &Place, request: &Value) -> usize {
    let lines = place.transcript("api.user.ann");
    let messages = lines.iter().filter(|line| line["type"] == "message");
    let written: Vec<usize> = messages.flat_map(|line| numbers(&line["message"]["content"].to_string())).collect();
    assert!(written.iter().copied().eq(0..MESSAGES), "{written:?}");
    let archived: Vec<usize> = archived(place).into_iter().flatten().collect();
    assert!(archived.iter().copied().eq(0..archived.len()), "{archived:?}");
    let last = lines.iter().rfind(|line| line["type"] == "compaction").unwrap();
    assert_eq!(last["firstKeptEntryId"], json!(format!("e{}", archived.len())), "{last}");
    let messages = request["messages"].as_array().unwrap().iter().skip(1);
    let shown: Vec<usize> = messages.flat_map(|message| numbers(&message["content"].to_string())).collect();
    assert!(shown.iter().copied().eq(MESSAGES - shown.len()..MESSAGES), "{shown:?}");
    (MESSAGES - shown.len()).checked_sub(archived.len()).expect("nothing that is archived is shown")
}

fn last_said(request: &Value) -> String {
    request["messages"].as_array().unwrap().last().unwrap()["content"].to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_five_thousand_messages_none_is_lost_and_none_shown_twice_on_the_way_into_a_small_window() {
    let model = Model::start_on_thread();
    let defaults = json!({"contextWindowTokens": 24_000, "maxTokens": 500});
    let place = Place::with_model(&model.url(), json!({"agents": {"defaults": defaults}}));
    said_before(&place);
    let mut gateway = place.start().await;
    let mut left = usize::MAX;
    for turn in 0..TURNS_MAX {
        let text = format!("go on {turn}");
        assert_eq!(chat(&gateway, &text).await, format!("echo:{text}"));
        assert_eq!(gateway.terminate().await, Some(0));
        let requests = model.requests();
        let of_turn = requests.iter().rposition(|request| last_said(request).contains(&text)).unwrap();
        let behind = requests.iter().take(of_turn).rev().take_while(|request| last_said(request).contains(ASKS));
        assert!(behind.count() <= ROUNDS_MAX, "turn {turn}");
        let now = left_out(&place, &requests[of_turn]);
        assert!(now < left, "{now} of {left} are still left out");
        left = now;
        gateway = place.start().await;
        if left == 0 {
            break;
        }
    }
    assert_eq!(left, 0, "in the end each is shown or archived");
    assert_eq!(gateway.terminate().await, Some(0));
}
