//! Commands that are turns.

use domain::command::{DreamAsk, Guide};
use domain::keys::SessionKind;
use domain::policy::{Access, Policies, Policy};
use protocol::memory::{Summarised, Summary};

use super::*;

/// Says a command; what it answers.
async fn told(stage: &mut Stage, command: &str) -> String {
    let seq = stage.say(command);
    let (id, finished) = stage.finished().await;
    assert_eq!((id, finished.result), (turn(seq), TurnResult::Done), "{command}");
    finished.text.clone()
}

#[test]
fn commands_are_answered_without_the_model_and_never_shown_to_it() {
    run_paused("commands", async {
        let mut stage = Stage::new();
        assert_eq!(told(&mut stage, "/history").await, "Nothing has been said here yet.");
        stage.turn("hello", "world").await;
        stage.turn("again", "yes").await;
        assert_eq!(told(&mut stage, "/History@bot 3").await, "assistant: world\nuser: again\nassistant: yes");
        let usage = told(&mut stage, "/usage").await;
        assert!(
            usage.starts_with("This conversation: 2 turns answered, with 2 model calls that came to their end: "),
            "{usage}"
        );
        let context = told(&mut stage, "/context").await;
        assert!(
            context.starts_with("The conversation has ") && context.contains(" of 65000 tokens (0 %). "),
            "{context}"
        );
        assert!(!context.contains("about"), "the provider counted: {context}");
        assert_eq!(told(&mut stage, "/name Plans for May").await, "This session is called Plans for May.");
        assert_eq!(stage.logged(EventName::SessionEdited).await.reason.as_deref(), Some("rename"));
        let tree = told(&mut stage, "/tree").await;
        assert_eq!(tree.lines().count(), 5, "{tree}");
        assert!(tree.lines().skip(1).all(|line| line.starts_with("● ")), "{tree}");
        stage.say("more");
        let call = stage.called().await;
        assert_eq!(texts(&call), ["hello", "world", "again", "yes", "more"]);
        stage.complete(&call, answer("done"));
        stage.finished().await;
        let commits = stage.journal.books().commits.len();
        assert_eq!(commits, 9, "one for each turn");
    });
}

#[test]
fn what_is_asked_of_dream_is_answered_by_the_memory_where_that_is_open() {
    run_paused("dream commands", async {
        let mut stage = Stage::new();
        for (command, ask) in [
            ("/dream", DreamAsk::Begin),
            ("/dream-log 3f9c0a1b", DreamAsk::Log(Some("3f9c0a1b".to_owned()))),
            ("/dream-restore", DreamAsk::Restore(None)),
            ("/dream-prompt INIT", DreamAsk::Prompt { of: Guide::Dream, init: true }),
            ("/evaluator-prompt", DreamAsk::Prompt { of: Guide::Evaluator, init: false }),
        ] {
            stage.say_through("cli", &TurnBody::text(command));
            let asked = stage.dream.next().await;
            assert_eq!(asked.ask, ask, "{command}");
            asked.reply.send(Ok(format!("told of {command}"))).unwrap();
            assert_eq!(stage.finished().await.1.text, format!("told of {command}"));
        }
        stage.say_through("cli", &TurnBody::text("/dream"));
        drop(stage.dream.next().await);
        assert!(stage.finished().await.1.text.contains("did not answer"));
    });
}

#[test]
fn who_may_not_read_the_workspace_hears_nothing_of_the_memory() {
    run_paused("closed memory", async {
        let mut stage = Stage::with(|config| {
            let closed = Policy { workspace: Access::Read, ..Policy::default_of(SessionKind::WebSocket) };
            config.policies = std::sync::Arc::new(Policies::new("main", [(SessionKind::WebSocket, closed)]));
        });
        for command in ["/dream", "/dream-restore 3f9c0a1b", "/dream-prompt init", "/evaluator-prompt init"] {
            let told = told(&mut stage, command).await;
            assert!(told.contains("not open to this session"), "{command}: {told}");
        }
        stage.say("/dream-log");
        stage.dream.next().await.reply.send(Ok("a diff".to_owned())).unwrap();
        assert_eq!(stage.finished().await.1.text, "a diff", "who may read it may read this");
    });
}

#[test]
fn a_new_conversation_begins_with_the_command_or_with_the_text_behind_it() {
    run_paused("new", async {
        let mut stage = Stage::new();
        stage.turn("hello", "world").await;
        stage.say("/new and now?");
        let call = stage.called().await;
        assert_eq!(texts(&call), ["and now?"]);
        stage.complete(&call, answer("this"));
        stage.finished().await;
        assert!(told(&mut stage, "/reset").await.starts_with("A new conversation begins."));
        assert_eq!(told(&mut stage, "/history").await, "Nothing has been said here yet.");
        stage.say("fresh");
        let call = stage.called().await;
        assert_eq!(texts(&call), ["fresh"]);
        stage.complete(&call, answer("air"));
        stage.finished().await;
        assert_eq!(stage.logged(EventName::SessionEdited).await.reason.as_deref(), Some("reset: new"));
        let books = stage.journal.books();
        let resets = books.lines.iter().filter(|line| line.text.contains(r#""type":"reset""#));
        assert_eq!(resets.filter(|line| line.text.contains(r#""reason":"new""#)).count(), 2);
    });
}

#[test]
fn files_that_come_with_a_command_are_no_part_of_it_but_of_the_message_behind_it() {
    run_paused("files", async {
        let mut stage = Stage::new();
        let file = "[Attachment: plan.txt, at /m/websocket/websocket.stage/1.txt]";
        assert_eq!(told(&mut stage, &format!("/name x\n{file}")).await, "This session is called x.");
        for command in ["/new", "/reset soft", "/goal"] {
            stage.say(&format!("{command} what is it?\n{file}"));
            let call = stage.called().await;
            assert_eq!(texts(&call).last(), Some(&format!("what is it?\n{file}")), "{command}");
            stage.complete(&call, answer("GOAL: completed"));
            stage.finished().await;
        }
        let goal = told(&mut stage, "/goal").await;
        assert!(goal.contains("what is it?") && !goal.contains("Attachment"), "{goal}");
    });
}

#[test]
fn a_branch_goes_on_behind_the_entry_that_is_named() {
    run_paused("branch", async {
        let mut stage = Stage::new();
        stage.turn("one", "1").await;
        stage.turn("two", "2").await;
        let tree = told(&mut stage, "/tree").await;
        let entry = tree.lines().find(|line| line.ends_with("assistant: 1")).unwrap();
        let entry = entry.split_whitespace().nth(1).unwrap().to_owned();
        assert_eq!(
            told(&mut stage, &format!("/label {entry} the fork")).await,
            format!("Entry {entry} is labelled the fork.")
        );
        let text = told(&mut stage, "/branch nowhere").await;
        assert!(text.starts_with("Nothing was changed: no entry"), "{text}");
        told(&mut stage, &format!("/branch {entry}")).await;
        stage.say("three");
        let call = stage.called().await;
        assert_eq!(texts(&call), ["one", "1", "three"]);
        stage.complete(&call, answer("3"));
        stage.finished().await;
        let tree = told(&mut stage, "/tree").await;
        assert!(tree.contains("assistant: 1 [the fork]"), "{tree}");
        assert!(tree.lines().any(|line| line.starts_with("○ ") && line.ends_with("user: two")), "{tree}");
        assert_eq!(
            told(&mut stage, "/branch the fork").await,
            "The conversation goes on behind entry the fork. What came after it stays, as a branch."
        );
        assert_eq!(told(&mut stage, "/compact").await, "Nothing was changed: there is nothing to summarise yet.");
    });
}

#[test]
fn a_long_conversation_is_summarised_as_asked_but_for_its_last_messages() {
    run_paused("compact", async {
        let mut stage = Stage::new();
        let long = "words ".repeat(200);
        for turn in 0..8 {
            stage.turn(&format!("q{turn} {long}"), &format!("a{turn} {long}")).await;
        }
        stage.say("/compact keep the prices");
        let ask = stage.memory.next().await;
        let request = format!("{:?}", ask.request.as_ref().unwrap().messages);
        assert!(request.contains("Above all: keep the prices") && request.contains("a3 ") && !request.contains("q4 "));
        let summary = Summary::Text("four questions".into());
        tell(&ask.reply_to, Summarised { stamp: ask.stamp, summary }).unwrap();
        let text = stage.finished().await.1.text.clone();
        assert!(text.starts_with("Summarised: about ") && text.contains(" tokens."), "{text}");
        stage.say("more");
        let call = stage.called().await;
        let shown = texts(&call);
        assert!(format!("{:?}{shown:?}", call.request.system_tail).contains("four questions"));
        assert_eq!(shown.iter().filter(|text| text.ends_with(long.trim_end()) || text.ends_with(&long)).count(), 8);
        assert!(shown.iter().any(|text| text.starts_with("q4")) && !shown.iter().any(|text| text.starts_with("a3")));
        stage.complete(&call, answer("done"));
        stage.finished().await;
    });
}

#[test]
fn a_soft_reset_goes_on_and_reads_the_workspace_anew() {
    run_paused("soft", async {
        let mut stage = Stage::new();
        let write = |stage: &Stage, text: &str| {
            let file = stage.disk.open(Path::new("/w/AGENTS.md"), Open::Create).unwrap();
            file.write_at(text.as_bytes(), 0).unwrap();
        };
        write(&stage, "Speak of apples.");
        stage.turn("hello", "world").await;
        write(&stage, "Speak of pears. ");
        // Within the time for which the files are trusted.
        stage.say("/reset soft and now?");
        let call = stage.called().await;
        assert_eq!(texts(&call), ["hello", "world", "and now?"]);
        assert!(call.request.system.contains("Speak of pears."), "{}", call.request.system);
        stage.complete(&call, answer("this"));
        stage.finished().await;
        let said = told(&mut stage, "/reset soft").await;
        assert!(said.starts_with("The conversation goes on."), "{said}");
        assert_eq!(told(&mut stage, "/title Fruit").await, "This session is called Fruit.");
        stage.say("more");
        let call = stage.called().await;
        assert_eq!(texts(&call), ["hello", "world", "and now?", "this", "more"]);
    });
}
