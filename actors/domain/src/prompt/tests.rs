use std::sync::Arc;

use serde_json::json;

use super::request::assistant_entry;
use super::*;
use crate::body::{ContextMessage, ContextRole, HistorySource, TurnBody};
use crate::chat::{Content, Message};
use crate::history::Kept;
use crate::ids::TurnId;
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

#[test]
fn the_system_prompt_names_workspace_tools_and_files_in_order() {
    let file = |name: &str, content: &str| BootstrapFile { name: name.to_owned(), content: content.to_owned() };
    let bootstrap =
        [file("USER.md", "likes tea"), file("AGENTS.md", "be kind"), file("TOOLS.md", " "), file("X.md", "no")];
    let parts = SystemParts { workspace: "/home/a/ws", tools: &[tool()], bootstrap: &bootstrap };
    let prompt = system_prompt(&parts);
    assert!(prompt.contains("/home/a/ws\n") && prompt.contains("- read_file: Reads a file.\n"));
    assert!(prompt.ends_with("\n# AGENTS.md\n\nbe kind\n\n# USER.md\n\nlikes tea\n"));
    assert_eq!(prompt, system_prompt(&parts));
    let bare = system_prompt(&SystemParts { tools: &[], bootstrap: &[], ..parts });
    assert!(!bare.contains("# Tools"));
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
