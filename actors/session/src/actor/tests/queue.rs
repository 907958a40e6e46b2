//! The rules of the queue, set while a turn runs.

use domain::queue::{QueueAsk, QueueMode, QueueSet};
use protocol::session::QueueState;

use super::*;

fn set(mode: QueueMode) -> QueueAsk {
    QueueAsk::Set(QueueSet { mode: Some(mode), ..QueueSet::default() })
}

fn ask(stage: &Stage, ask: QueueAsk) -> oneshot::Receiver<QueueState> {
    let (reply, state) = oneshot::channel();
    stage.mail(Mail::Queue { ask, reply });
    state
}

#[test]
fn rules_that_are_set_while_the_conversation_is_read_for_a_call_hold_that_call_up_no_longer() {
    run_paused("queue", async {
        let mut stage = Stage::new();
        stage.turn("one", "1").await;
        // From then on it is read anew before a call.
        tokio::time::sleep(Duration::from_secs(5)).await;
        stage.say("two");
        stage.permit().await;
        let asked = ask(&stage, set(QueueMode::Collect));
        let call = stage.model.next().await;
        assert_eq!(with_deadline("the rules", asked).await.unwrap().rules.mode, QueueMode::Collect);
        assert_eq!(texts(&call), ["one", "1", "two"]);
        stage.complete(&call, answer("2"));
        stage.finished().await;
    });
}

#[test]
fn rules_outlive_a_session_that_leaves_memory() {
    run_paused("queue-kept", async {
        let mut stage = Stage::new();
        stage.turn("one", "1").await;
        let asked = ask(&stage, set(QueueMode::Interrupt));
        with_deadline("the rules", asked).await.unwrap();
        stage.filed(4).await;
        stage.mail(Mail::Passivate);
        stage.asleep().await;
        let asked = ask(&stage, QueueAsk::Show);
        assert_eq!(with_deadline("the rules", asked).await.unwrap().rules.mode, QueueMode::Interrupt);
    });
}

#[test]
fn rules_on_their_way_while_the_conversation_is_read_for_a_call_stay_where_they_are() {
    run_paused("queue-under-way", async {
        let mut stage = Stage::new();
        stage.status().await;
        // By then the conversation is let go, and read for the next call: there is no file yet.
        tokio::time::sleep(Duration::from_secs(60)).await;
        stage.say("one");
        stage.event().await;
        stage.journal.books().hold = true;
        let asked = ask(&stage, set(QueueMode::Collect));
        stage.permit().await;
        let call = stage.model.next().await;
        stage.journal.let_go();
        with_deadline("the rules", asked).await.unwrap();
        stage.complete(&call, answer("1"));
        stage.finished().await;
        let file = stage.file_when_written().await.join("\n");
        assert_eq!(file.matches(r#""type":"session""#).count(), 1, "{file}");
        let read = domain::transcript::read_lines(file.as_bytes());
        assert_eq!((read.problems_total, read.path_to_leaf().len()), (0, 3), "{file}");
    });
}
