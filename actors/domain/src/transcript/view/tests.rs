use super::*;
use crate::transcript::read_lines;

fn user(id: &str, parent: &str, second: u8, text: &str) -> String {
    format!(
        r#"{{"type":"message","id":"{id}","parentId":{parent},"timestamp":"2026-01-01T00:00:{second:02}.000Z","message":{{"role":"user","content":"{text}"}}}}"#
    )
}

#[test]
fn branches_are_drawn_oldest_first_and_orphans_as_roots() {
    let lines = [
        user("a", "null", 1, "\\n\\n first line \\nsecond"),
        user("late", "\"a\"", 9, "x"),
        user("early", "\"a\"", 2, "x"),
        user("orphan", "\"gone\"", 0, "x"),
        user("same", "\"a\"", 2, "x"),
        r#"{"type":"label","id":"l","parentId":"early","targetId":"a","label":"start","timestamp":"2026-01-01T00:00:10.000Z"}"#
            .to_owned(),
        r#"{"type":"novelty","id":"u","parentId":"l"}"#.to_owned(),
        user("twice", "\"a\"", 3, "one"),
        user("twice", "\"l\"", 3, "two"),
    ];
    let nodes = tree_of(&read_lines(lines.join("\n").as_bytes()));
    let drawn: Vec<String> = nodes
        .iter()
        .map(|node| format!("{}{}{}", " ".repeat(node.depth), node.id, if node.on_path { " *" } else { "" }))
        .collect();
    assert_eq!(drawn, ["a *", " early *", "  l *", "   twice *", " same", " twice", " late", "orphan"]);
    let first = &nodes[0];
    assert_eq!((first.kind, first.role, first.preview.as_str()), ("message", Some("user"), "first line"));
    assert_eq!((first.label.as_deref(), first.label_ms), (Some("start"), Some(1_767_225_610_000)));
    assert_eq!(first.children, ["early", "same", "twice", "late"]);
    assert_eq!(
        (nodes[2].kind, nodes[2].preview.as_str(), nodes[2].parent.as_deref()),
        ("label", "start", Some("early"))
    );
}

#[test]
fn a_conversation_may_be_as_long_as_it_likes() {
    let mut lines = vec![user("0", "null", 1, "x")];
    lines.extend((1..50_000).map(|at| user(&at.to_string(), &format!("\"{}\"", at - 1), 1, "x")));
    let nodes = tree_of(&read_lines(lines.join("\n").as_bytes()));
    assert_eq!((nodes.len(), nodes[49_999].depth), (50_000, 49_999));
    assert!(nodes.iter().all(|node| node.on_path));
}

#[test]
fn previews_are_short_and_say_what_it_is() {
    let long = "x".repeat(200);
    let message = |rest: &str| format!(r#"{{"type":"message","id":"a","message":{{{rest}}}}}"#);
    for (line, expected) in [
        (user("a", "null", 1, &long), format!("{}…", "x".repeat(PREVIEW_CHARS_MAX - 1))),
        (
            message(
                r#""role":"assistant","content":[{"type":"toolCall","name":"read"},{"type":"toolCall","name":"exec"}]"#,
            ),
            "read, exec".to_owned(),
        ),
        (message(r#""role":"assistant","content":"hi""#), "hi".to_owned()),
        (message(r#""role":"toolResult","content":[{"type":"text","text":"done"}]"#), "done".to_owned()),
        (message(r#""role":"bashExecution","command":"ls","output":"x","excludeFromContext":true"#), String::new()),
        (r#"{"type":"session_info","id":"a","name":" Garden "}"#.to_owned(), "Garden".to_owned()),
        (r#"{"type":"model_change","id":"a","provider":"p","modelId":"m"}"#.to_owned(), "p/m".to_owned()),
        (r#"{"type":"thinking_level_change","id":"a","thinkingLevel":"high"}"#.to_owned(), "high".to_owned()),
        (r#"{"type":"custom","customType":"note","id":"a"}"#.to_owned(), "note".to_owned()),
        (r#"{"type":"custom_message","content":"shown","id":"a"}"#.to_owned(), "shown".to_owned()),
        (r#"{"type":"compaction","summary":"s","id":"a"}"#.to_owned(), "s".to_owned()),
        (r#"{"type":"branch_summary","summary":"b","id":"a"}"#.to_owned(), "b".to_owned()),
        (r#"{"type":"reset","id":"a"}"#.to_owned(), String::new()),
    ] {
        assert_eq!(tree_of(&read_lines(line.as_bytes()))[0].preview, expected, "{line}");
    }
}

#[test]
fn ids_are_as_long_as_it_takes_to_tell_them_apart() {
    assert_eq!(id_chars(["0123456789a", "0123456789b"].into_iter()), 11);
    assert_eq!(id_chars(["a", "b"].into_iter()), ID_CHARS);
}
