//! The transcript file: late, full disks, other writers.

use super::*;

#[test]
fn the_transcript_answers_for_turns_that_ended() {
    run_paused("read turn", async {
        let mut stage = Stage::new();
        stage.turn("one", "1").await;
        stage.say("two");
        let call = stage.called().await;
        let ask = |stage: &Stage, seq| {
            let (reply, record) = oneshot::channel();
            stage.mail(Mail::ReadTurn { turn: turn(seq), reply });
            with_deadline("a record", record)
        };
        let record = ask(&stage, 1).await.unwrap();
        assert!(matches!(record, Some(TurnRecord::Ended { text, .. }) if text == "1"));
        assert!(matches!(ask(&stage, 2).await.unwrap(), Some(TurnRecord::Open)));
        assert!(ask(&stage, 3).await.unwrap().is_none());
        stage.complete(&call, answer("2"));
        stage.finished().await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        let record = ask(&stage, 2).await.unwrap();
        assert!(matches!(record, Some(TurnRecord::Ended { text, .. }) if text == "2"));
    });
}

#[test]
fn a_turn_without_an_end_that_nobody_runs_has_no_outcome() {
    run_paused("lost", async {
        let mut stage = Stage::new();
        stage.turn("one", "1").await;
        stage.filed(3).await;
        // As after a damaged journal: the transcript has a message, and the journal has lost its turn.
        let user = stage.file().lines().nth(1).unwrap().replace(&turn(1).to_string(), &turn(9).to_string());
        assert!(user.contains(&turn(9).to_string()), "{user}");
        let file = stage.disk.open(Path::new("/w/sessions/websocket.stage.jsonl"), Open::Write).unwrap();
        file.write_at(format!("{user}\n").as_bytes(), file.length().unwrap()).unwrap();
        tokio::time::sleep(Duration::from_secs(60)).await;
        let (reply, record) = oneshot::channel();
        stage.mail(Mail::ReadTurn { turn: turn(9), reply });
        assert!(with_deadline("a record", record).await.unwrap().is_none());
    });
}

#[test]
fn a_full_disk_never_fails_a_turn_and_the_file_follows_later() {
    run_paused("full disk", async {
        let mut stage = Stage::new();
        stage.turn("one", "1").await;
        stage.filed(3).await;
        stage.disk.set_full(true);
        stage.turn("two", "2").await;
        stage.turn("three", "3").await;
        assert_eq!(stage.file().lines().count(), 3);
        stage.mail(Mail::Passivate);
        stage.status().await;
        assert_eq!(stage.slots.len(), 1, "it stays until the file is written");
        stage.disk.set_full(false);
        tokio::time::sleep(Duration::from_secs(120)).await;
        assert_eq!(stage.file().lines().count(), 7);
        let books = stage.journal.books();
        assert_eq!(books.views.last().unwrap().commit, 3);
    });
}

#[test]
fn an_orderly_stop_tries_the_file_once_more_and_does_not_wait_for_a_full_disk() {
    for space in [true, false] {
        run_paused("stop after a full disk", async move {
            let mut stage = Stage::new();
            stage.turn("one", "1").await;
            stage.filed(3).await;
            stage.disk.set_full(true);
            stage.turn("two", "2").await;
            stage.status().await;
            stage.disk.set_full(!space);
            stage.mail(Mail::Interrupt);
            stage.asleep().await;
            assert_eq!(stage.file().lines().count(), if space { 5 } else { 3 });
        });
    }
}

#[test]
fn a_session_that_cannot_write_its_file_loads_all_the_same() {
    run_paused("load on a full disk", async {
        let mut stage = Stage::new();
        stage.turn("one", "1").await;
        stage.filed(3).await;
        stage.status().await;
        stage.disk.remove(Path::new("/w/sessions/websocket.stage.jsonl")).unwrap();
        stage.mail(Mail::Passivate);
        stage.asleep().await;
        stage.disk.set_full(true);
        stage.say("two");
        let call = stage.called().await;
        assert_eq!(texts(&call), ["one", "1", "two"]);
    });
}

#[test]
fn what_somebody_else_wrote_into_the_file_is_seen_by_the_next_turn() {
    run_paused("foreign", async {
        let mut stage = Stage::new();
        stage.turn("one", "1").await;
        tokio::time::sleep(Duration::from_secs(3)).await;
        let parent = stage.journal.books().lines.last().unwrap().id.clone();
        let line = format!(
            "{{\"type\":\"message\",\"id\":\"feed\",\"parentId\":\"{parent}\",\"timestamp\":\"2026-01-01T00:00:00Z\",\
             \"message\":{{\"role\":\"user\",\"content\":\"by hand\"}}}}\n"
        );
        let file = stage.disk.open(Path::new("/w/sessions/websocket.stage.jsonl"), Open::Write).unwrap();
        file.write_at(line.as_bytes(), file.length().unwrap()).unwrap();
        stage.say("two");
        let call = stage.called().await;
        let seen = texts(&call);
        assert!(seen.iter().any(|text| text.contains("by hand")), "{seen:?}");
        stage.complete(&call, answer("2"));
        stage.finished().await;
        stage.filed(6).await;
        assert!(stage.file().contains(r#""parentId":"feed""#));
        assert!(stage.log.named(EventName::ViewRepaired).is_empty());
    });
}
