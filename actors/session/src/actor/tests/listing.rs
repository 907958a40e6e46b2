//! What the list of sessions says of one, from its first message on.

use protocol::transcripts::Summary;

use super::*;

fn listed(stage: &Stage) -> Vec<Summary> {
    stage.transcripts().index().page(None, 10).items
}

#[test]
fn a_session_is_listed_from_its_first_message_on_and_kept_up_to_date() {
    run_paused("listing", async {
        let mut stage = Stage::new();
        assert!(listed(&stage).is_empty());
        stage.journal.books().hold = true;
        stage.say("\n hello there \n and more");
        stage.status().await;
        let one = listed(&stage).remove(0);
        assert_eq!((one.key, one.entries, one.preview), (key(), Some(0), None), "it is still being loaded");
        stage.journal.let_go();
        let call = stage.called().await;
        stage.complete(&call, answer("1"));
        stage.finished().await;
        stage.turn("two", "2").await;
        stage.filed(5).await;
        stage.status().await;
        let one = listed(&stage).remove(0);
        let bytes = stage.file().len() as u64;
        assert_eq!((one.entries, one.bytes, one.preview.as_deref()), (Some(4), bytes, Some("hello there")));
        assert!(one.session.is_some() && one.updated_ms > 0);
        // Nothing of that is forgotten or counted twice over a sleep.
        stage.mail(Mail::Passivate);
        stage.asleep().await;
        stage.turn("three", "3").await;
        let again = listed(&stage).remove(0);
        assert_eq!((again.entries, again.preview, again.session), (Some(6), one.preview, one.session));
    });
}

#[test]
fn a_look_at_nothing_lists_nothing_and_a_closed_session_goes() {
    run_paused("closed listing", async {
        let mut stage = Stage::new();
        stage.status().await;
        assert!(listed(&stage).is_empty(), "nobody has said anything");
        stage.say_body(&TurnBody { ephemeral: true, ..TurnBody::text("once") });
        let call = stage.called().await;
        assert_eq!(listed(&stage).len(), 1);
        stage.complete(&call, answer("done"));
        stage.finished().await;
        stage.asleep().await;
        assert!(listed(&stage).is_empty());
    });
}
