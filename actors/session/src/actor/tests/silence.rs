//! Conversations in which nothing was said for long: all but their last messages are summarised.

use protocol::edit::{EditError, Edited};
use protocol::memory::Summary;

use super::compacting::{after, asked, changes, notice, summarised};
use super::*;

/// As the stage has it, and a little more.
const SILENCE: Duration = Duration::from_secs(901);

type Answer = oneshot::Receiver<Result<Edited, EditError>>;

fn condense(stage: &Stage) -> Answer {
    let (reply, answer) = oneshot::channel();
    stage.mail(Mail::Condense { reply });
    answer
}

async fn outcome(answer: Answer) -> Result<Edited, EditError> {
    with_deadline("an answer", answer).await.unwrap()
}

/// Puts the session to sleep, once everything is in its file.
async fn sleep(stage: &Stage) {
    stage.file_when_written().await;
    stage.mail(Mail::Passivate);
    stage.asleep().await;
}

#[test]
fn a_silent_session_wakes_keeps_its_last_messages_and_sleeps_again() {
    run_paused("silent", async {
        let mut stage = after(6, Stage::new()).await;
        sleep(&stage).await;
        tokio::time::sleep(SILENCE).await;
        let answered = condense(&stage);
        let ask = asked(&mut stage).await;
        assert!(ask.raw.contains("question 1 ") && !ask.raw.contains("question 2 "), "8 messages stay");
        summarised(&ask, Summary::Text("they asked two things".into()));
        assert!(matches!(outcome(answered).await, Ok(Edited::Appended { entries, .. }) if entries.len() == 1));
        assert_eq!(changes(&stage), ["compact: idle"]);
        sleep(&stage).await;
        tokio::time::sleep(SILENCE).await;
        // Nothing was said since.
        assert!(matches!(outcome(condense(&stage)).await, Err(EditError::NotCompacted(_))));
        assert!(stage.memory.try_next().is_none());
        sleep(&stage).await;
        stage.say("back again");
        assert!(notice(&mut stage).await.starts_with("Earlier messages were summarised meanwhile"));
        let call = stage.called().await;
        let shown = format!("{:?} {:?}", call.request.system_tail, texts(&call));
        assert!(shown.contains("they asked two things") && shown.contains("question 2 "), "{shown}");
        assert!(!shown.contains("question 1 "), "{shown}");
        stage.complete(&call, answer("hello"));
        assert_eq!(stage.finished().await.1.text, "hello");
    });
}

#[test]
fn nothing_is_done_while_somebody_speaks_or_little_was_said() {
    run_paused("not silent", async {
        let mut stage = after(4, Stage::new()).await;
        assert_eq!(outcome(condense(&stage)).await, Err(EditError::Busy), "the last word is too new");
        tokio::time::sleep(SILENCE).await;
        assert!(matches!(outcome(condense(&stage)).await, Err(EditError::NotCompacted(_))), "8 messages stay anyway");
        stage.say("question 4");
        let call = stage.called().await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(outcome(condense(&stage)).await, Err(EditError::Busy), "a turn runs");
        stage.complete(&call, answer("fine"));
        stage.finished().await;
        assert!(stage.memory.try_next().is_none() && changes(&stage).is_empty());
    });
}

#[test]
fn a_message_that_comes_meanwhile_waits_for_no_summary() {
    run_paused("spoken meanwhile", async {
        let mut stage = after(6, Stage::new()).await;
        tokio::time::sleep(SILENCE).await;
        let answered = condense(&stage);
        let ask = asked(&mut stage).await;
        stage.turn("are you there?", "yes").await;
        assert!(changes(&stage).is_empty());
        summarised(&ask, Summary::Raw("timeout"));
        assert!(outcome(answered).await.is_ok(), "what it stands for is still there");
        assert_eq!(changes(&stage), ["compact: idle, raw"]);
        stage.say("good");
        let call = stage.called().await;
        let shown = texts(&call);
        assert!(shown.iter().any(|text| text == "are you there?") && shown[0].contains("question 2 "), "{shown:?}");
    });
}

#[test]
fn whoever_asked_hears_of_it_when_a_new_conversation_begins_meanwhile() {
    run_paused("anew meanwhile", async {
        let mut stage = after(6, Stage::new()).await;
        tokio::time::sleep(SILENCE).await;
        let answered = condense(&stage);
        let ask = asked(&mut stage).await;
        stage.say("/new");
        stage.finished().await;
        summarised(&ask, Summary::Text("of before".into()));
        assert!(matches!(outcome(answered).await, Err(EditError::NotCompacted(_))));
        assert_eq!(changes(&stage), ["reset: new"]);
    });
}
