//! Somebody else changes the transcript while its session is live.

use protocol::provider::Permit;

use super::*;

const FILE: &str = "/w/sessions/websocket.stage.jsonl";

fn append(stage: &Stage, bytes: &[u8]) {
    let file = stage.disk.open(Path::new(FILE), Open::Write).unwrap();
    file.write_at(bytes, file.length().unwrap()).unwrap();
}

fn cut(stage: &Stage, length: usize) {
    stage.disk.open(Path::new(FILE), Open::Write).unwrap().set_length(length as u64).unwrap();
}

fn copies(stage: &Stage) -> Vec<Vec<u8>> {
    let names = stage.disk.list(Path::new("/w/sessions")).unwrap();
    let damaged = names.iter().filter(|name| name.to_string_lossy().contains(".jsonl.damaged-"));
    damaged.map(|name| stage.disk.read(name).unwrap()).collect()
}

/// What the checkpointer does: lines that stand in the file are forgotten.
fn checkpoint(stage: &Stage) {
    let mut books = stage.journal.books();
    let written = books.views.last().unwrap().mark.clone();
    books.view = written;
    books.lines.clear();
}

/// The call of a turn whose session loads again once it may call.
async fn called_after_reload(stage: &mut Stage) -> Complete {
    let ask = stage.permits.next().await;
    tell(&ask.reply_to, Event::Permitted { stamp: ask.stamp, permit: Permit::new(()) }).unwrap();
    let call = stage.called().await;
    assert!(call.stamp.epoch > ask.stamp.epoch);
    call
}

/// A first turn that is filed and was some time ago.
async fn begun() -> Stage {
    let mut stage = Stage::new();
    stage.turn("one", "1").await;
    stage.filed(3).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    stage
}

/// Puts the session to sleep and shows what it says when it wakes.
async fn woken(stage: &mut Stage) -> Vec<String> {
    stage.status().await;
    checkpoint(stage);
    stage.mail(Mail::Passivate);
    stage.asleep().await;
    stage.say("last");
    texts(&stage.called().await)
}

#[test]
fn an_unfinished_line_of_somebody_else_is_moved_aside_and_ours_stays_readable() {
    for unfinished in
        ["{\"type\":\"cust", "junk", "{\"type\":\"custom\",\"id\":\"f\"}\n{\"type\":\"cust", "no json\n", "\0\0"]
    {
        run_paused("unfinished line", async move {
            let mut stage = begun().await;
            append(&stage, unfinished.as_bytes());
            stage.turn("two", "2").await;
            let whole = unfinished.contains("custom");
            // The file's own lines, then a foreign one and a leaf row that is written only if one was in the way.
            stage.filed(5 + usize::from(whole)).await;
            let file = stage.file();
            assert!(file.ends_with('\n'));
            for line in file.lines() {
                serde_json::from_str::<serde_json::Value>(line).unwrap();
            }
            assert_eq!(file.matches("\"ws:2\"").count(), 1, "{file}");
            if unfinished != "\0\0" {
                let rest = unfinished.trim_start_matches("{\"type\":\"custom\",\"id\":\"f\"}\n");
                assert_eq!(copies(&stage), [rest.as_bytes()]);
                let event = stage.logged(EventName::ViewRepaired).await;
                assert!(event.lost.contains(&rest.len().to_string()), "{}", event.lost);
            }
            assert_eq!(woken(&mut stage).await, ["one", "1", "two", "2", "last"]);
        });
    }
}

#[test]
fn a_record_that_lacks_only_its_line_end_stays() {
    run_paused("unended record", async {
        let mut stage = begun().await;
        append(&stage, b"{\"type\":\"custom\",\"id\":\"f\"}");
        stage.turn("two", "2").await;
        stage.filed(7).await;
        assert!(stage.file().contains("\"f\"}\n"));
        assert!(copies(&stage).is_empty());
        assert_eq!(woken(&mut stage).await, ["one", "1", "two", "2", "last"]);
    });
}

#[test]
fn lines_that_somebody_cut_off_are_written_again_from_the_journal() {
    run_paused("cut before a call", async {
        let before = begun().await.file().len();
        for length in (0..before).step_by(37) {
            let mut stage = begun().await;
            cut(&stage, length);
            let seq = stage.say("two");
            let call = called_after_reload(&mut stage).await;
            assert_eq!(texts(&call), ["one", "1", "two"], "cut to {length}");
            stage.complete(&call, answer("2"));
            assert_eq!(stage.finished().await.0, turn(seq));
            stage.filed(5).await;
            let event = stage.logged(EventName::ViewRepaired).await;
            assert!(event.reason.unwrap().contains(&length.to_string()));
            assert_eq!(event.lost, "nothing");
            let lines = stage.journal.books().lines.iter().map(|line| format!("{}\n", line.text)).collect::<String>();
            assert_eq!(stage.file(), lines);
        }
    });
}

#[test]
fn a_cut_that_is_first_seen_when_lines_are_written_is_repaired_too() {
    run_paused("cut before a write", async {
        let mut stage = Stage::new();
        stage.turn("one", "1").await;
        stage.filed(3).await;
        stage.say("two");
        let call = stage.called().await;
        cut(&stage, 100);
        stage.complete(&call, answer("2"));
        assert_eq!(stage.finished().await.0, turn(2));
        stage.filed(5).await;
        stage.status().await;
        assert_eq!(stage.journal.books().views.last().unwrap().mark.length, stage.file().len() as u64);
        assert_eq!(woken(&mut stage).await, ["one", "1", "two", "2", "last"]);
    });
}

#[test]
fn what_neither_file_nor_journal_has_is_told() {
    run_paused("lost for good", async {
        let mut stage = begun().await;
        stage.status().await;
        checkpoint(&stage);
        let kept = stage.file().lines().next().unwrap().len() + 1;
        let had = stage.file().len();
        cut(&stage, kept + 10);
        stage.say("two");
        let call = called_after_reload(&mut stage).await;
        assert_eq!(texts(&call), ["two"]);
        stage.complete(&call, answer("2"));
        stage.finished().await;
        stage.filed(3).await;
        let events = stage.log.named(EventName::ViewRepaired);
        let lost: String = events.iter().map(|event| event.lost.as_str()).collect();
        assert!(lost.contains(&had.to_string()), "{lost}");
        assert_eq!(copies(&stage).concat().len(), 10);
    });
}

#[test]
fn a_cut_file_on_a_full_disk_does_not_begin_turns_again() {
    run_paused("cut and full", async {
        let mut stage = begun().await;
        cut(&stage, 50);
        stage.disk.set_full(true);
        stage.say("two");
        let call = called_after_reload(&mut stage).await;
        assert_eq!(texts(&call), ["one", "1", "two"]);
        tokio::time::sleep(Duration::from_secs(100)).await;
        assert!(!call.cancel.is_cancelled());
        stage.disk.set_full(false);
        stage.complete(&call, answer("2"));
        assert_eq!(stage.finished().await.0, turn(2));
        tokio::time::sleep(Duration::from_secs(120)).await;
        stage.filed(5).await;
    });
}
