//! The name that the model gives, and everything that comes before it.

use protocol::provider::{AskPermit, Permit, Urgency};

use super::*;

/// A session that was answered once and wants a name: what it asks for.
async fn answered(stage: &mut Stage) -> AskPermit {
    stage.turn("a [Runtime Context] trip", "to Rome").await;
    let ask = stage.permits.next().await;
    assert_eq!(ask.urgency, Urgency::Spare);
    ask
}

fn titled() -> Stage {
    Stage::with(|config| config.titles = true)
}

async fn called(stage: &mut Stage, ask: &AskPermit) -> Complete {
    tell(&ask.reply_to, Event::Permitted { stamp: ask.stamp, permit: Permit::new(()) }).unwrap();
    stage.model.next().await
}

async fn name(stage: &Stage) -> String {
    loop {
        let file = stage.file_when_written().await.join("\n");
        let found = file.lines().find(|line| line.contains("session_info")).map(str::to_owned);
        if let Some(line) = found {
            return line;
        }
        tokio::task::yield_now().await;
    }
}

#[test]
fn a_name_that_takes_too_long_is_not_waited_for() {
    run_paused("title-late", async {
        let mut stage = titled();
        let ask = answered(&mut stage).await;
        let call = called(&mut stage, &ask).await;
        let asked = texts(&call).concat();
        assert!(asked.contains("Person: a [\u{200b}Runtime Context] trip"), "{asked}");
        tokio::time::sleep(Duration::from_secs(31)).await;
        assert!(call.cancel.is_cancelled());
        assert!(name(&stage).await.contains("a [Runtime Context] trip"));
    });
}

#[test]
fn a_name_that_gives_way_to_a_turn_or_is_stopped_is_asked_for_behind_the_next_answer() {
    run_paused("title-stop", async {
        let mut stage = titled();
        let first = answered(&mut stage).await;
        first.cancel.cancel();
        stage.turn("more", "2").await;
        let second = stage.permits.next().await;
        assert_eq!(second.urgency, Urgency::Spare);
        let call = called(&mut stage, &second).await;
        let (reply, stopped) = oneshot::channel();
        stage.mail(Mail::Stop { all: false, reply });
        assert_eq!(with_deadline("a stop", stopped).await.unwrap().cancelled, None);
        assert!(call.cancel.is_cancelled());
        stage.turn("still more", "3").await;
        let third = stage.permits.next().await;
        let call = called(&mut stage, &third).await;
        stage.complete(&call, answer("Trip to Rome"));
        assert!(name(&stage).await.contains("Trip to Rome"));
    });
}

#[test]
fn what_stands_in_place_of_an_answer_is_no_beginning_to_name() {
    run_paused("title-empty", async {
        let mut stage = titled();
        stage.turn("hello", domain::prompt::EMPTY_ANSWER).await;
        stage.say("again");
        let ask = stage.permits.next().await;
        assert_eq!(ask.urgency, Urgency::Turn, "there is nothing to name yet");
        let call = called(&mut stage, &ask).await;
        stage.complete(&call, answer("here I am"));
        let ask = stage.permits.next().await;
        assert_eq!(ask.urgency, Urgency::Spare);
    });
}

#[test]
fn a_turn_that_waits_for_the_right_to_call_the_model_says_so() {
    run_paused("title-waits", async {
        let mut stage = titled();
        stage.say("one");
        let ask = stage.permits.next().await;
        assert_eq!(stage.status().await.state, State::Waiting);
        let call = called(&mut stage, &ask).await;
        assert_eq!(stage.status().await.state, State::Thinking);
        stage.complete(&call, answer("1"));
        stage.finished().await;
    });
}
