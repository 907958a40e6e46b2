use std::sync::Arc;

use serde_json::json;

use super::request::assistant_entry;
use super::*;
use crate::body::{ContextMessage, ContextRole, HistorySource, TurnBody};
use crate::chat::{Content, Message};
use crate::history::Kept;
use crate::ids::{SessionKey, TurnId};
use crate::keys::Key;
use crate::request::{ChatRequest, ToolChoice, ToolSpec};
use crate::transcript::{Entry, EntryKind, Head, Transcript, UserEntry, UserMark};

fn turn(number: u128) -> TurnId {
    TurnId(uuid::Uuid::from_u128(number))
}

fn tool() -> ToolSpec {
    ToolSpec {
        name: "read_file".to_owned(),
        description: "Reads a file.\nMore.".to_owned(),
        parameters: json!({"type": "object"}),
        parallel: true,
        idempotent: true,
    }
}

fn asked(number: u128, text: &str) -> EntryKind {
    let mark = UserMark {
        turn: turn(number),
        idempotency_key: "ws:1".into(),
        body_hash: 1,
        accepted_ms: 0,
        into: None,
        command: false,
    };
    EntryKind::User(UserEntry { content: [Content::text(text)].into(), mark: Some(mark) })
}

fn conversation() -> Transcript {
    let mut transcript = Transcript::default();
    let answer = assistant_entry("one", &"m".into()).kind;
    for (id, kind) in [("a", asked(1, "first")), ("b", answer), ("c", asked(2, "second"))] {
        let parent = transcript.append_parent().map(Arc::from);
        transcript.push(Entry::new(Head { id: id.into(), parent, timestamp_ms: 1 }, kind));
    }
    transcript
}

fn build(transcript: &Transcript, number: u128, body: &TurnBody, round: Round) -> ChatRequest {
    let parts = RequestParts {
        begins_anew: false,
        model: &"m".into(),
        max_tokens: 100,
        temperature: 0.1,
        context_window_tokens: 10_000,
        frame: &Frame::new("SYSTEM\n", Arc::from([tool()])),
        transcript,
        turn: turn(number),
        body,
        round,
        nudge: None,
    };
    chat_request(&parts, &mut Kept::default())
}

fn texts(request: &ChatRequest) -> Vec<String> {
    let text = |message: &Message| match message {
        Message::User(content) => crate::chat::plain_text(content),
        Message::Assistant(message) => message.text.clone(),
        Message::ToolResult(_) => "result".to_owned(),
    };
    request.messages.iter().map(text).collect()
}

fn file(name: &'static str, content: &str) -> BootstrapFile {
    BootstrapFile { name, content: content.into() }
}

fn parts<'a>(tools: &'a [ToolSpec], bootstrap: &'a [BootstrapFile]) -> SystemParts<'a> {
    let hint = Hint::None;
    let (agent, version, os, arch, workspace) = ("Beet", "1.2.3", "linux", "x86_64", "/home/a/ws");
    SystemParts { agent, version, os, arch, workspace, hint, tools, bootstrap }
}

fn assert_golden(prompt: &str, golden: &str) {
    assert!(format!("{prompt}\n") == golden, "the golden file says something else than:\n{prompt}");
}

#[test]
fn the_system_prompt_is_made_of_its_parts_in_order() {
    let files = [file("TOOLS.md", "use make"), file("USER.md", " likes tea\n"), file("AGENTS.md", "be kind")];
    let tools = [tool()];
    let whole = SystemParts { hint: Hint::Chat, ..parts(&tools, &files) };
    assert_golden(&system_prompt(&whole), include_str!("golden/whole.txt"));
    assert_eq!(system_prompt(&whole), system_prompt(&whole));
    assert_golden(&system_prompt(&parts(&[], &[])), include_str!("golden/bare.txt"));
}

#[test]
fn templates_that_nobody_changed_are_left_out_but_for_the_character() {
    let files: Vec<BootstrapFile> = BOOTSTRAP_FILES
        .into_iter()
        .map(|name| file(name, TEMPLATES.iter().find(|(path, _)| *path == name).unwrap().1))
        .collect();
    assert_golden(&system_prompt(&parts(&[], &files)), include_str!("golden/fresh.txt"));
    let changed = format!("{}- Be kind.\n", files[0].content);
    let prompt = system_prompt(&parts(&[], &[file("AGENTS.md", &changed), file("SOUL.md", " \n")]));
    assert!(prompt.ends_with(&format!("\n\n---\n\n## AGENTS.md\n\n{}", changed.trim())), "{prompt}");
    let long = "x".repeat(BOOTSTRAP_CHARS_MAX * 2);
    let prompt = system_prompt(&parts(&[], &[file("SOUL.md", &long)]));
    assert!(prompt.len() < BOOTSTRAP_CHARS_MAX + 2000, "the middle of a long file is left out");
}

#[test]
fn the_format_goes_by_the_place_of_the_session() {
    for (key, hint) in [
        ("telegram:7", Hint::Chat),
        ("agent:main:discord:channel:general", Hint::Chat),
        ("whatsapp:1@s.whatsapp.net", Hint::Plain),
        ("sms:+49", Hint::Plain),
        ("email:ann@example.org", Hint::Email),
        ("cli:direct", Hint::Terminal),
        ("mochat:room", Hint::Terminal),
        ("websocket:telegram", Hint::None),
        ("api:default", Hint::None),
        ("agent:main:main", Hint::None),
        ("unified:default", Hint::None),
    ] {
        assert_eq!(Hint::of(&Key::from(&SessionKey::new(key).unwrap())), hint, "{key}");
    }
}

#[test]
fn a_request_has_the_session_or_its_own_history() {
    let transcript = conversation();
    let context = |role, text: &str| ContextMessage { role, text: text.to_owned() };
    let mut body = TurnBody::text("second");
    body.context = vec![context(ContextRole::System, "Speak French.")];
    let request = build(&transcript, 2, &body, Round::Open);
    assert_eq!(texts(&request), ["first", "one", "second"]);
    assert_eq!(&*request.system, "SYSTEM\n");
    assert_eq!(request.system_tail.as_deref(), Some("# Instructions for this request\n\nSpeak French."));
    assert!(request.tokens > build(&transcript, 2, &TurnBody::text("second"), Round::Open).tokens);
    assert_eq!(request, build(&transcript, 2, &body, Round::Open));
    body.history = HistorySource::Request;
    body.context.extend([context(ContextRole::User, "mine"), context(ContextRole::Assistant, "yours")]);
    assert_eq!(texts(&build(&transcript, 2, &body, Round::Open)), ["mine", "yours", "second"]);
}

#[test]
fn a_turn_without_its_own_user_entry_shows_its_body_last() {
    let request = build(&conversation(), 3, &TurnBody::text("once more"), Round::Open);
    assert_eq!(texts(&request), ["first", "one", "second", "once more"]);
}

#[test]
fn the_last_round_allows_no_tools_and_asks_for_a_summary() {
    let open = build(&conversation(), 2, &TurnBody::text("second"), Round::Open);
    let request = build(&conversation(), 2, &TurnBody::text("second"), Round::Last);
    assert_eq!((open.choice, request.choice), (ToolChoice::Auto, ToolChoice::None));
    assert_eq!(
        (&request.system, &request.tools),
        (&open.system, &open.tools),
        "what the provider has cached begins so"
    );
    assert_eq!(texts(&request).last().map(String::as_str), Some(LAST_ROUND_INSTRUCTION));
}

#[test]
fn notices_say_what_happened_and_where_to_look() {
    let notice = dead_letter_notice(turn(1), 3, 0);
    assert!(notice.contains(": it crashed 3 times while it was worked on") && notice.contains("is kept"));
    assert!(notice.contains("`greenroom logs --why 00000000-0000-0000-0000-000000000001`"));
    for (crashes, deaths, expect) in [
        (1, 0, ": it crashed once while"),
        (0, 5, ": the whole process ended 5 times while"),
        (2, 1, ": it crashed 2 times and the whole process ended once while"),
    ] {
        let notice = dead_letter_notice(turn(1), crashes, deaths);
        assert!(notice.contains(expect), "{notice}");
    }
    assert!(failed_notice("quota used up").ends_with("quota used up"));
    assert!(too_large_notice(19_999_999).contains("20 MB"));
}
