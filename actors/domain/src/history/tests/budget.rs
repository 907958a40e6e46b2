//! What gives way when there is not room for all.

use super::*;

/// A running turn of that many rounds, each with one result of `chars` characters.
fn rounds(count: usize, tool: &str, chars: usize) -> Vec<EntryKind> {
    let mut kinds = vec![user("go")];
    for number in 0..count {
        let id = format!("c{number}");
        kinds.push(assistant("", StopReason::ToolUse, &[(&id, tool)]));
        kinds.push(tool_result(&id, tool, &"r".repeat(chars), false, false));
    }
    kinds
}

#[test]
fn a_running_turn_leaves_its_oldest_results_out_in_steps_and_what_can_be_had_again_first() {
    let left_out =
        |messages: &[Message]| messages.iter().filter(|message| message_text(message).contains("omitted")).count();
    let cut = |count, tool, room| {
        let mut own = shown_at(&Render::default(), rounds(count, tool, 4000), 0);
        trim(&mut own, room, Trim::Usual);
        own
    };
    // Each result has a thousand tokens. When the eleventh overruns the room, three go, and there is room for two more.
    let counts: Vec<usize> = (8..14).map(|count| left_out(&cut(count, "grep", 10_500))).collect();
    assert_eq!(counts, [0, 0, 0, 3, 3, 3]);
    let note = "[grep result omitted to save space: 4000 characters; call it again if needed]";
    assert_eq!(message_text(&cut(11, "grep", 10_500)[2]), note);
    // What had an effect stays as long as shortening suffices.
    let write = cut(4, "write_file", 3000);
    assert_eq!(left_out(&write), 0);
    assert!(write.iter().map(message_tokens).sum::<u64>() <= 3000);
    // The whole text of this one is still in its file.
    let kept = format!("{PERSISTED}\npath: a.txt\nsize: 9 characters\npreview:\n{}", "p".repeat(1200));
    let mut kinds = rounds(2, "grep", 4000);
    kinds[2] = tool_result("c0", "grep", &kept, false, false);
    let mut own = shown_at(&Render::default(), kinds, 0);
    trim(&mut own, 1200, Trim::Usual);
    assert_eq!(message_text(&own[2]), format!("{PERSISTED}\npath: a.txt\nsize: 9 characters"));
    // When even notes are too much, the oldest rounds go; an overrun leaves only the last results, and those short.
    assert!(told(&cut(200, "grep", 1500)).len() < 150);
    let mut own = shown_at(&Render::default(), rounds(5, "write_file", 9000), 0);
    trim(&mut own, u64::MAX, Trim::Hard);
    assert_eq!((left_out(&own), message_text(&own[10]).len() < 4200), (4, true));
}

fn message_text(message: &Message) -> String {
    told([message]).remove(0).split_once('=').map(|(_, text)| text.to_owned()).unwrap_or_default()
}

#[test]
fn big_results_of_the_running_turn_go_before_the_conversation() {
    let mut kinds = vec![user(&"h".repeat(4000)), assistant("yes", StopReason::Stop, &[])];
    kinds.extend(rounds(3, "grep", 4000));
    let transcript = transcript(kinds);
    let path = transcript.path_to_leaf();
    let history = Render::default().select(&path, 2, 3500);
    assert_eq!(history.turns_left_out, 0);
    assert!(history.tokens <= 3500);
    // A conversation that is over half of the budget gives way.
    assert_eq!(Render::default().select(&path, 2, 1000).turns_left_out, 1);
}

#[test]
fn a_turn_behind_two_thousand_messages_reads_no_more_entries_than_one_behind_ten() {
    let mut kept = Kept::default();
    let mut grown = Transcript::default();
    let mut read = Vec::new();
    // Two thousand messages, the older ones behind a boundary.
    for number in 0..1000_u128 {
        if number == 400 {
            let head = Head { id: "boundary".into(), parent: None, timestamp_ms: 1 };
            grown.follow(Entry::new(head, compaction("S", None)));
        }
        let turn = TurnId(uuid::Uuid::from_u128(number));
        for kind in [user("question"), assistant("answer", StopReason::Stop, &[])] {
            let head = Head { id: grown.entries().len().to_string().into(), parent: None, timestamp_ms: 1 };
            grown.follow(Entry::new(head, of_turn(kind, number)));
        }
        let before = kept.read();
        let own = kept.follow(&grown, turn, &Render::default());
        let place = Place { transcript: &grown, turn, render: &Render::default() };
        let history = kept.select(place, &own, 0, 3000);
        assert!(history.tokens <= 3000 && own.len() == 2);
        read.push(kept.read() - before);
    }
    // The first turn's are made anew with the second's, when it is known that there is something to keep; and all of
    // them at the boundary, as long as nothing is kept behind it.
    read.drain(400..402);
    assert!(read.iter().all(|read| *read <= 8), "{read:?}");
}

#[test]
fn the_budget_keeps_the_newest_turns() {
    let kinds = vec![
        user("one"),
        assistant("1", StopReason::Stop, &[]),
        user("two"),
        assistant("2", StopReason::Stop, &[]),
        user("three"),
    ];
    let transcript = transcript(kinds);
    let path = transcript.path_to_leaf();
    for (budget, expected, left_out) in [
        (1000, vec!["u:one", "a:1()", "u:two", "a:2()", "u:three"], 0),
        (16, vec!["u:two", "a:2()", "u:three"], 1),
        (15, vec!["u:three"], 2),
        (0, vec!["u:three"], 2),
    ] {
        let history = select(&path, budget);
        assert_eq!(
            (told(history.messages.iter()), history.turns_left_out),
            (expected.iter().map(|s| (*s).to_owned()).collect(), left_out)
        );
        assert_eq!(history.tokens, history.messages.iter().map(message_tokens).sum::<u64>());
    }
}
