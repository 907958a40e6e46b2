//! Conversations that are too long: their beginning is summarised by the memory.

use protocol::memory::{Summarise, Summarised, Summary};
use protocol::provider::Permit;

use super::*;

/// So that a few messages of [`LONG`] fill the model's window.
fn small() -> Stage {
    Stage::with(|config| {
        config.preset.context_window_tokens = 4_000;
        config.preset.max_tokens = 500;
    })
}

/// About 500 tokens.
pub(super) fn long(what: &str) -> String {
    format!("{what} {}", "word ".repeat(400))
}

/// The stage after so many turns of that length.
pub(super) async fn after(turns: usize, mut stage: Stage) -> Stage {
    for number in 0..turns {
        stage.turn(&long(&format!("question {number}")), "fine").await;
    }
    stage
}

pub(super) async fn asked(stage: &mut Stage) -> Summarise {
    stage.memory.next().await
}

pub(super) fn summarised(ask: &Summarise, summary: Summary) {
    tell(&ask.reply_to, Summarised { stamp: ask.stamp, summary }).unwrap();
}

pub(super) async fn notice(stage: &mut Stage) -> String {
    loop {
        if let TurnProgress::Notice(text) = stage.event().await.what {
            return text.to_string();
        }
    }
}

/// What the log says was changed.
pub(super) fn changes(stage: &Stage) -> Vec<String> {
    stage.log.named(EventName::SessionEdited).into_iter().filter_map(|event| event.reason).collect()
}

#[test]
fn a_conversation_that_fills_the_window_is_summarised_before_the_model_is_called() {
    run_paused("before a turn", async {
        let mut stage = after(4, small()).await;
        stage.say(&long("the fifth"));
        stage.permit().await;
        let ask = asked(&mut stage).await;
        assert!(stage.model.try_next().is_none(), "nothing is sent that does not fit");
        let request = ask.request.as_ref().unwrap();
        assert_eq!(request.choice, domain::request::ToolChoice::None);
        let said: Vec<String> = request.messages.iter().map(|message| format!("{message:?}")).collect();
        assert!(said[0].contains("question 0") && !said.concat().contains("the fifth"));
        assert!(said.last().unwrap().contains("Summarise the conversation so far."));
        assert!(ask.raw.starts_with("[RAW] ") && ask.raw.contains("USER: question 0"));
        summarised(&ask, Summary::Text("they asked four things".into()));
        let told = notice(&mut stage).await;
        assert!(told.starts_with("Earlier messages were summarised to make room (about "), "{told}");
        let call = stage.called().await;
        let shown = format!("{:?} {:?}", call.request.system_tail, texts(&call));
        assert!(shown.contains("they asked four things") && shown.contains("the fifth"), "{shown}");
        assert!(!shown.contains("question 0"), "{shown}");
        stage.complete(&call, answer("done"));
        assert_eq!(stage.finished().await.1.result, TurnResult::Done);
        assert_eq!(changes(&stage), ["compact"]);
        let lines: Vec<String> = stage.file_when_written().await;
        let place = |word: &str| lines.iter().position(|line| line.contains(word)).unwrap();
        assert!(place("they asked four things") < place("the fifth"), "the entry stands before the user's line");
    });
}

#[test]
fn what_the_model_could_not_sum_up_is_left_out_all_the_same_and_nobody_tries_again() {
    run_paused("raw", async {
        let mut stage = after(4, small()).await;
        stage.say(&long("the fifth"));
        stage.permit().await;
        let ask = asked(&mut stage).await;
        // As the memory does it before it answers.
        let line = serde_json::json!({
            "cursor": 1, "timestamp": "2026-11-30 14:19", "content": &*ask.raw, "session_key": key().as_str(),
        });
        stage.disk.create_dir_all(Path::new("/w/memory")).unwrap();
        let history = stage.disk.open(Path::new("/w/memory/history.jsonl"), Open::Create).unwrap();
        history.write_at(format!("{line}\n").as_bytes(), 0).unwrap();
        summarised(&ask, Summary::Raw("length"));
        assert!(notice(&mut stage).await.contains("were archived as they are"));
        let call = stage.called().await;
        let shown = format!("{:?} {:?}", call.request.system_tail, texts(&call));
        assert!(shown.contains("Messages left out here: ") && shown.contains("USER: question 0"), "{shown}");
        assert!(!texts(&call).concat().contains("question 0"), "what is archived is no message any more");
        stage.complete(&call, answer("done"));
        stage.finished().await;
        assert_eq!(changes(&stage), ["compact: raw"]);
    });
}

#[test]
fn a_summary_that_fails_is_asked_for_by_the_next_turns_and_is_the_last_with_the_third_failure() {
    run_paused("failures", async {
        let mut stage = after(4, small()).await;
        for (number, is_last) in [(4, false), (5, false), (6, true)] {
            let own = format!("question {number} ");
            stage.say(&long(own.trim()));
            stage.permit().await;
            let ask = asked(&mut stage).await;
            assert_eq!(ask.is_last, is_last, "{number}");
            assert!(ask.raw.contains("USER: question 0 "), "nothing was left out meanwhile");
            summarised(&ask, if is_last { Summary::Raw("length") } else { Summary::Failed("length") });
            let told = notice(&mut stage).await;
            assert_eq!(told.contains("this time"), !is_last, "{told}");
            let call = stage.called().await;
            let said = texts(&call).concat();
            assert!(said.contains(&own) && !said.contains("question 0 "), "{said}");
            stage.complete(&call, answer("fine"));
            assert_eq!(stage.finished().await.1.result, TurnResult::Done);
        }
        assert_eq!(changes(&stage), ["compact: failed", "compact: failed", "compact: raw"]);
        assert!(stage.memory.try_next().is_none());
    });
}

#[test]
fn a_model_that_finds_the_request_too_long_is_asked_again_once_with_less() {
    run_paused("overflow", async {
        let mut stage = after(4, Stage::new()).await;
        let turn_seq = stage.say("and now?");
        let call = stage.called().await;
        let before = texts(&call).len();
        let too_long = || Failure { kind: FailureKind::ContextTooLong, detail: "too many".into() };
        tell(&call.reply_to, Event::Failed { stamp: call.stamp, failure: too_long() }).unwrap();
        let ask = asked(&mut stage).await;
        assert!(ask.is_last, "it is not answered unless the conversation gets shorter now");
        summarised(&ask, Summary::Text("they asked".into()));
        let call = stage.called().await;
        assert!(texts(&call).len() < before);
        tell(&call.reply_to, Event::Failed { stamp: call.stamp, failure: too_long() }).unwrap();
        let (turn_id, finished) = stage.finished().await;
        assert_eq!((turn_id, finished.result), (turn(turn_seq), TurnResult::Failed));
        assert!(finished.text.contains("also after it was summarised"), "{}", finished.text);
        assert!(stage.memory.try_next().is_none());
    });
}

#[test]
fn a_turn_that_is_stopped_gives_its_summary_up_and_a_late_one_changes_nothing() {
    run_paused("stopped", async {
        let mut stage = after(4, small()).await;
        stage.say(&long("the fifth"));
        stage.permit().await;
        let ask = asked(&mut stage).await;
        let (reply, stopped) = oneshot::channel();
        stage.mail(Mail::Stop { all: false, reply });
        with_deadline("the stop", stopped).await.unwrap();
        assert_eq!(stage.finished().await.1.result, TurnResult::Cancelled);
        assert!(ask.cancel.is_cancelled());
        summarised(&ask, Summary::Text("too late".into()));
        stage.status().await;
        assert!(changes(&stage).is_empty());
        assert_eq!(stage.metrics.stale_events.get_or_create(&ByKind { kind: "session" }).get(), 1);
    });
}

#[test]
fn a_conversation_of_one_message_is_not_summarised() {
    run_paused("nothing to cut", async {
        let mut stage = small();
        let seq = stage.say(&"word ".repeat(4000));
        stage.permit().await;
        let call = stage.called().await;
        stage.complete(&call, answer("long"));
        assert_eq!(stage.finished().await.0, turn(seq));
        assert!(stage.memory.try_next().is_none());
    });
}

/// A conversation of which the last answer filled the window.
async fn filled() -> Stage {
    let mut stage = after(3, small()).await;
    stage.turn("and now?", &"word ".repeat(800)).await;
    stage
}

#[test]
fn a_conversation_that_an_answer_has_filled_is_summarised_while_nobody_waits() {
    run_paused("after a turn", async {
        let mut stage = filled().await;
        let ask = asked(&mut stage).await;
        summarised(&ask, Summary::Text("they asked three things".into()));
        stage.logged(EventName::SessionEdited).await;
        assert_eq!(changes(&stage), ["compact"]);
        stage.say("go on");
        assert!(notice(&mut stage).await.starts_with("Earlier messages were summarised meanwhile"));
        let call = stage.called().await;
        let shown = format!("{:?} {:?}", call.request.system_tail, texts(&call));
        assert!(shown.contains("they asked three things") && !shown.contains("question 0"), "{shown}");
        stage.complete(&call, answer("done"));
        stage.finished().await;
        assert!(stage.memory.try_next().is_none());
        stage.say("and on");
        let call = stage.called().await;
        stage.complete(&call, answer("done"));
        assert!(!tells_again(&mut stage).await, "it is told once");
    });
}

/// Whether the turn that ends next has a notice.
async fn tells_again(stage: &mut Stage) -> bool {
    let mut told = false;
    loop {
        let what = stage.event().await.what;
        told |= matches!(what, TurnProgress::Notice(_));
        if matches!(what, TurnProgress::Finished(_)) {
            return told;
        }
    }
}

#[test]
fn a_summary_that_comes_behind_a_new_beginning_is_dropped() {
    run_paused("raced by /new", async {
        let mut stage = filled().await;
        let ask = asked(&mut stage).await;
        stage.say("/new");
        assert_eq!(stage.finished().await.1.result, TurnResult::Done);
        summarised(&ask, Summary::Text("of before".into()));
        stage.turn("hello", "hi").await;
        let lines = stage.file_when_written().await;
        assert!(!lines.iter().any(|line| line.contains("of before")), "{lines:?}");
        assert_eq!(changes(&stage), ["reset: new"]);
    });
}

/// One turn; how many parts were summarised for it, or behind the one before.
async fn parts_of_turn(stage: &mut Stage) -> usize {
    stage.say("go on");
    let mut parts = 0;
    loop {
        tokio::select! {
            biased;
            ask = stage.memory.next() => {
                parts += 1;
                let text = || Summary::Text("so far".into());
                summarised(&ask, ask.request.as_ref().map_or(Summary::Raw("too_long"), |_| text()));
            }
            ask = stage.permits.next() => {
                tell(&ask.reply_to, Event::Permitted { stamp: ask.stamp, permit: Permit::new(()) }).unwrap();
            }
            call = stage.model.next() => {
                stage.complete(&call, answer("on and on"));
                stage.finished().await;
                return parts;
            }
        }
    }
}

/// For each of some turns in a conversation that was brought along: how many parts of it were summarised.
fn parts_of(messages: usize) -> Vec<usize> {
    let (tx, rx) = std::sync::mpsc::channel();
    run_paused("a conversation brought along", async move {
        let mut stage = small();
        super::brought::put(&stage, brought(messages).as_bytes());
        for _ in 0..6 {
            tx.send(parts_of_turn(&mut stage).await).unwrap();
        }
    });
    rx.iter().collect()
}

/// Messages of about 100 tokens each.
fn brought(messages: usize) -> String {
    let header = serde_json::json!({"type": "session", "version": 3, "id": "s", "cwd": "/"});
    let line = |at: usize| {
        let (role, parent) = (["user", "assistant"][at % 2], at.checked_sub(1).map(|before| before.to_string()));
        let message = serde_json::json!({"role": role, "content": "word ".repeat(80)});
        format!(
            "{}\n",
            serde_json::json!({"type": "message", "id": at.to_string(), "parentId": parent, "message": message})
        )
    };
    format!("{header}\n{}", (0..messages).map(line).collect::<String>())
}

#[test]
fn a_conversation_of_any_length_is_summarised_in_as_few_parts() {
    let (short, long) = (parts_of(400), parts_of(4_000));
    assert_eq!(short, long, "each part is a call of the model, and the whole transcript is read for it");
    assert!(short.iter().sum::<usize>() < 12 && short.ends_with(&[0, 0]), "{short:?}");
}
