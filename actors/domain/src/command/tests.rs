use proptest::prelude::*;

use super::*;
use crate::chat::Content;

fn told(text: &str) -> Option<String> {
    match parse(text) {
        Parsed::Refused(refused) => Some(refused.to_string()),
        Parsed::Text | Parsed::Control(_) | Parsed::Turn(_) => None,
    }
}

#[test]
fn spellings_of_commands() {
    let stop = |all| Parsed::Control(Control::Stop { all });
    for (text, parsed) in [
        ("/stop", stop(false)),
        ("  /STOP  ", stop(false)),
        ("/Stop@some_bot", stop(false)),
        ("/stop all", stop(true)),
        ("/stop@bot\n ALL", stop(true)),
        ("/status", Parsed::Control(Control::Status)),
        ("/SubAgents@bot", Parsed::Control(Control::Subagents(RunAsk::List))),
        ("/help\n", Parsed::Control(Control::Help)),
        ("/start", Parsed::Control(Control::Help)),
        ("/START@bot invite-17", Parsed::Control(Control::Help)),
        ("please /stop", Parsed::Text),
        ("/usr/bin is what?", Parsed::Text),
        ("/r/rust", Parsed::Text),
        ("// no comment", Parsed::Text),
        ("/notes.txt", Parsed::Text),
        ("", Parsed::Text),
        ("@/stop", Parsed::Text),
    ] {
        assert_eq!(parse(text), parsed, "{text:?}");
    }
}

#[test]
fn spellings_of_commands_that_are_turns() {
    let text = |text: &str| Some(text.to_owned());
    for (written, command) in [
        ("/new", Command::New { rest: None }),
        ("/NEW@bot what  now?\nThis:", Command::New { rest: text("what  now?\nThis:") }),
        ("/reset hi", Command::New { rest: text("hi") }),
        ("/reset softly now", Command::New { rest: text("softly now") }),
        ("/new soft", Command::New { rest: text("soft") }),
        ("/reset Soft", Command::Refresh { rest: None }),
        ("/reset soft\n what  now?", Command::Refresh { rest: text("what  now?") }),
        ("/compact", Command::Compact { asked: None }),
        ("/compact keep the  prices", Command::Compact { asked: text("keep the  prices") }),
        ("/history", Command::History(10)),
        ("/history 3", Command::History(3)),
        ("/history 1000", Command::History(50)),
        ("/branch 0a1b", Command::Branch { entry: "0a1b".to_owned() }),
        ("/branch the fork", Command::Branch { entry: "the fork".to_owned() }),
        ("/label 0a1b", Command::Label { entry: "0a1b".to_owned(), text: None }),
        ("/label 0a1b  the  fork ", Command::Label { entry: "0a1b".to_owned(), text: text("the  fork") }),
        ("/name Plans\nfor May", Command::Name("Plans for May".to_owned())),
        ("/Title Plans\nfor June", Command::Name("Plans for June".to_owned())),
        ("/dream-prompt", Command::Dream(DreamAsk::Prompt { of: Guide::Dream, init: false })),
        ("/evaluator-prompt", Command::Dream(DreamAsk::Prompt { of: Guide::Evaluator, init: false })),
        ("/Evaluator-Prompt@bot Init", Command::Dream(DreamAsk::Prompt { of: Guide::Evaluator, init: true })),
        ("/tree", Command::Tree),
        ("/usage", Command::Usage),
        ("/context", Command::Context),
    ] {
        assert_eq!(parse(written), Parsed::Turn(command), "{written:?}");
    }
    for (written, usage) in [
        ("/history 0", "/history [number]"),
        ("/history all", "/history [number]"),
        ("/branch", "/branch entry"),
        ("/label", "/label entry [text]"),
        ("/name", "/name text"),
        ("/title", "/title text"),
        ("/tree x", "/tree"),
        ("/evaluator-prompt reset", "/evaluator-prompt [init]"),
    ] {
        assert_eq!(parse(written), Parsed::Refused(Refused::Malformed { usage }), "{written:?}");
    }
}

#[test]
fn what_is_no_command_is_refused_in_words() {
    let long = format!("/{}", "x".repeat(200));
    for (text, words) in [
        ("/hlep", "Unknown command /hlep. Did you mean /help? It was not sent to the model."),
        ("/Stopp it now", "Unknown command /Stopp. Did you mean /stop? It was not sent to the model."),
        ("/stop!", "Unknown command /stop!. Did you mean /stop? It was not sent to the model."),
        ("/xyzzy", "Unknown command /xyzzy. See /help. It was not sent to the model."),
        ("/", "Unknown command /. See /help. It was not sent to the model."),
        ("/помощь", "Unknown command /помощь. See /help. It was not sent to the model."),
        ("/stop it", "Please write it so: /stop [all]. It was not sent to the model."),
        (
            "/queue cap:0",
            "Please write it so: /queue [steer|followup|collect|interrupt] [cap:1-100000] [drop:refuse|old|summarize] \
             [debounce:0-600000ms]. It was not sent to the model.",
        ),
        ("/status now", "Please write it so: /status. It was not sent to the model."),
        ("/Pairing list", "/pairing is not available in this version. It was not sent to the model."),
    ] {
        assert_eq!(told(text).as_deref(), Some(words), "{text:?}");
    }
    assert_eq!(told(&long).map(|text| text.chars().count()), Some(99));
}

#[test]
fn a_request_with_its_own_conversation_has_no_commands() {
    let help = TurnBody::text("/help");
    assert_eq!(of_body(&help), Parsed::Control(Control::Help));
    assert_eq!(of_body(&TurnBody { history: HistorySource::Request, ..help.clone() }), Parsed::Text);
    assert_eq!(of_body(&TurnBody { ephemeral: true, ..help.clone() }), Parsed::Text);
    let image = Content::Image { data: "QQ==".into(), mime: "image/png".to_owned(), path: None };
    let both = TurnBody { content: [image, Content::text("/help")].into(), ..help };
    assert_eq!(of_body(&both), Parsed::Control(Control::Help));
}

#[test]
fn what_a_command_says_ends_before_the_files_that_came_with_it() {
    for (text, command) in [
        ("/name x", Command::Name("x".to_owned())),
        ("/history 3", Command::History(3)),
        ("/new and\nthis?", Command::New { rest: Some("and\nthis?".to_owned()) }),
    ] {
        let body = TurnBody::text(format!("{text}\n[Attachment: a.txt, at /m/1.txt]\n[Attachment: /m/2.csv]"));
        assert_eq!(of_body(&body), Parsed::Turn(command), "{text}");
    }
    assert_eq!(of_body(&TurnBody::text("[Attachment: /m/2.csv]")), Parsed::Text);
}

#[test]
fn the_lists_are_in_order_and_apart() {
    let mut names: Vec<&str> = TABLE.iter().map(|entry| entry.name).collect();
    names.extend(ABSENT);
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count, "no name stands twice");
    for entry in TABLE {
        assert!(entry.usage.starts_with(entry.name) && !entry.what.is_empty(), "{entry:?}");
        assert!(help().contains(entry.usage));
    }
}

#[test]
fn a_command_is_suggested_to_those_who_slipped() {
    for (text, nearest) in [
        ("/hlep", Some("/help")),
        ("/statsu", Some("/status")),
        ("/histroy", Some("/history")),
        ("/cntxt", Some("/context")),
        ("/contxt", Some("/context")),
        ("/restrat", Some("/restart")),
        ("/restarts", Some("/restart")),
        ("/restarted", None),
        ("/retry", None),
        ("/rset", Some("/reset")),
        ("/nwe", Some("/new")),
        ("/now", Some("/new")),
        ("/cancel", Some("/stop")),
        ("/Abort", Some("/stop")),
        ("/clear", Some("/new")),
        ("/subagent", Some("/subagents")),
        ("/agents", Some("/subagents")),
        ("/exit", None),
        ("/quit", None),
        ("/tmp", None),
        ("/ne", Some("/new")),
        ("/хелп", None),
        ("/n", None),
    ] {
        match parse(text) {
            Parsed::Refused(Refused::Unknown { nearest: told, .. }) => assert_eq!(told, nearest, "{text}"),
            other @ (Parsed::Text | Parsed::Control(_) | Parsed::Turn(_) | Parsed::Refused(_)) => {
                panic!("{text}: {other:?}")
            }
        }
    }
}

proptest! {
    #[test]
    fn nothing_that_begins_with_a_command_word_is_text(
        word in "[a-zA-Z0-9_-]{1,20}", bot in "(@[a-z_]{1,9})?", rest in "([ \n][a-z /]{0,20})?", space in "[ \n]{0,3}",
    ) {
        prop_assert_ne!(parse(&format!("{space}/{word}{bot}{rest}")), Parsed::Text);
    }

    #[test]
    fn any_text_is_understood_and_answered_shortly(text in "/?.{0,200}") {
        prop_assert!(told(&text).is_none_or(|told| told.chars().count() < 200));
    }
}
