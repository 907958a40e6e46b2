//! Deleting, archiving, and taking back.

use protocol::journal::{Closes, Move, Moving, Shelf, TurnEnd, ViewMark};
use protocol::session::{Closed, NotClosed, NotRestored, Restored, State};
use protocol::transcripts::TranscriptReader;

use super::*;

type Answer<T> = oneshot::Receiver<T>;

fn close(stage: &Stage, to: Shelf) -> Answer<Result<Closed, NotClosed>> {
    let (reply, answer) = oneshot::channel();
    stage.mail(Mail::Close { to, if_quiet: to == Shelf::Archive, reply });
    answer
}

fn restore(stage: &Stage) -> Answer<Result<Restored, NotRestored>> {
    let (reply, answer) = oneshot::channel();
    stage.mail(Mail::Restore { reply });
    answer
}

async fn now<T>(answer: Answer<T>) -> T {
    with_deadline("an answer", answer).await.unwrap()
}

fn names(stage: &Stage, dir: &str) -> Vec<String> {
    let names = stage.disk.list(Path::new(dir)).unwrap_or_default();
    names.iter().map(|path| path.file_name().unwrap().to_str().unwrap().to_owned()).collect()
}

#[test]
fn a_deleted_session_ends_all_its_turns_and_what_comes_later_begins_anew() {
    run_paused("delete", async {
        let mut stage = Stage::new();
        stage.turn("one", "1").await;
        let running = stage.say("two");
        let call = stage.called().await;
        let waiting = stage.say("three");
        stage.status().await;
        stage.journal.books().hold = true;
        let mut told = close(&stage, Shelf::Deleted);
        stage.status().await;
        assert!(call.cancel.is_cancelled());
        assert!(told.try_recv().is_err(), "answered before it is durable");
        let late = stage.say("four");
        stage.journal.let_go();
        let closed = now(told).await.unwrap();
        assert_eq!(closed.cancelled, 2);
        for seq in [running, waiting] {
            let (turn_id, finished) = stage.finished().await;
            assert_eq!((turn_id, finished.result), (turn(seq), TurnResult::Cancelled));
        }
        {
            let books = stage.journal.books();
            let end = books.commits.last().unwrap();
            let ended: Vec<_> =
                end.ended.iter().map(|(turn, end)| (*turn, matches!(end, TurnEnd::Cancelled { .. }))).collect();
            assert_eq!(ended, [(turn(running), true), (turn(waiting), true)], "one commit ends all");
            assert!(matches!(end.closes, Some(Closes::Moves(place)) if place.to == Shelf::Deleted));
            assert_eq!(closed.session, end.session);
        }
        let call = stage.called().await;
        assert_eq!((texts(&call), call.stamp.turn), (vec!["four".to_owned()], turn(late)));
        assert_eq!(call.stamp.attempt, Attempt::FIRST);
        stage.complete(&call, answer("4"));
        stage.finished().await;
        stage.filed(3).await;
        assert_ne!(stage.status().await.session, Some(closed.session));
        let file = closed.file.unwrap();
        assert_eq!(names(&stage, "/w/sessions"), ["websocket.stage.jsonl".to_owned(), file.clone()]);
        let kept = stage.disk.read(&Path::new("/w/sessions").join(&file)).unwrap();
        let kept = String::from_utf8(kept).unwrap();
        assert!(kept.contains("two") && !kept.contains("four"), "{kept}");
        assert!(!stage.file().contains("parentSession"), "a deleted transcript is nobody's parent");
        assert!(stage.journal.books().moving.is_none());
        assert_eq!(stage.logged(EventName::SessionDeleted).await.session, Some(key()));
        let told = stage.log.named(EventName::TurnCancelled);
        let told: Vec<_> = told.iter().map(|event| (event.turn, event.reason.as_deref())).collect();
        let why = Some("its session was deleted");
        assert_eq!(told, [(Some(turn(running)), why), (Some(turn(waiting)), why)]);
    });
}

#[test]
fn a_sleeping_session_is_woken_to_be_deleted_and_leaves() {
    run_paused("delete asleep", async {
        let mut stage = Stage::new();
        stage.turn("one", "1").await;
        stage.filed(3).await;
        stage.status().await;
        stage.mail(Mail::Passivate);
        stage.asleep().await;
        let closed = now(close(&stage, Shelf::Deleted)).await.unwrap();
        assert_eq!(closed.cancelled, 0);
        stage.asleep().await;
        let left = stage.log.named(EventName::Passivated);
        let left: Vec<_> = left.iter().map(|event| event.reason.as_deref()).collect();
        assert_eq!(left, [Some("idle"), Some("deleted")]);
        assert_eq!(names(&stage, "/w/sessions"), [closed.file.unwrap()]);
        assert_eq!(stage.transcripts().index().count(), 0, "it is listed no more");
        assert_eq!(now(close(&stage, Shelf::Deleted)).await.unwrap_err(), NotClosed::Nothing);
    });
}

#[test]
fn a_kill_before_the_file_is_away_is_made_good_by_the_next_activation() {
    run_paused("killed delete", async {
        let mut stage = Stage::new();
        stage.turn("one", "1").await;
        stage.filed(3).await;
        stage.status().await;
        stage.mail(Mail::Passivate);
        stage.asleep().await;
        // The end is durable, and the process was killed then.
        {
            let mut books = stage.journal.books();
            let place = Move { to: Shelf::Deleted, at_ms: 5 };
            let (lines, view) = (std::mem::take(&mut books.lines), ViewMark::default());
            books.moving = Some(Moving { key: key(), session: books.session(), place, view, lines });
            books.closed += 1;
            books.view = ViewMark::default();
        }
        stage.say("two");
        let call = stage.called().await;
        assert_eq!(texts(&call), ["two"], "nothing of the deleted one is there");
        assert!(stage.file().is_empty());
        assert_eq!(names(&stage, "/w/sessions"), ["websocket.stage.jsonl.deleted.1970-01-01T00-00-00.005Z"]);
        assert!(stage.journal.books().moving.is_none());
    });
}

#[test]
fn a_session_waits_until_the_one_before_it_can_be_put_away() {
    run_paused("an obstacle", async {
        let mut stage = Stage::new();
        stage.turn("one", "1").await;
        let obstacle = Path::new("/w/sessions/archive");
        drop(stage.disk.open(obstacle, Open::Create).unwrap());
        let closed = now(close(&stage, Shelf::Archive)).await.unwrap();
        assert_eq!(closed.file, None);
        let unmoved = closed.unmoved.unwrap();
        assert!(unmoved.contains("/w/sessions/archive"), "{unmoved}");
        stage.asleep().await;
        stage.say("two");
        let told = stage.logged(EventName::TurnStuck).await;
        assert!(told.reason.as_ref().unwrap().contains(&unmoved) && told.verdict.unwrap().contains("1 s"));
        assert_eq!(stage.metrics.degraded(), ["sessions_held"]);
        let status = stage.status().await;
        assert_eq!((status.state, status.inbox), (State::Held, 1));
        assert!(status.why.as_ref().unwrap().contains(&unmoved), "{:?}", status.why);
        assert_eq!(now(close(&stage, Shelf::Deleted)).await.unwrap_err(), NotClosed::Held);
        stage.disk.remove(obstacle).unwrap();
        let call = stage.called().await;
        assert_eq!(texts(&call), ["two"], "it goes on by itself, and nothing of the archived one is there");
        assert_eq!(names(&stage, "/w/sessions/archive").len(), 1);
        assert!(stage.metrics.degraded().is_empty() && stage.log.named(EventName::Restarted).is_empty());
    });
}

#[test]
fn an_archived_session_is_the_parent_of_the_next_and_can_be_taken_back() {
    run_paused("archive", async {
        let mut stage = Stage::new();
        stage.turn("one", "1").await;
        stage.say("two");
        let call = stage.called().await;
        assert_eq!(now(close(&stage, Shelf::Archive)).await.unwrap_err(), NotClosed::Busy);
        stage.complete(&call, answer("2"));
        stage.finished().await;
        stage.status().await;
        let first = now(close(&stage, Shelf::Archive)).await.unwrap().file.unwrap();
        assert!(first.starts_with("archive/websocket.stage.jsonl.archived."), "{first}");
        let shown = stage.transcripts().read_archived(&key()).unwrap().unwrap();
        assert_eq!(shown.len(), 5);

        stage.turn("three", "3").await;
        stage.filed(3).await;
        assert!(stage.file().contains(&format!("\"parentSession\":\"/w/sessions/{first}\"")), "{}", stage.file());
        assert_eq!(now(restore(&stage)).await.unwrap_err(), NotRestored::InUse);
        let second = now(close(&stage, Shelf::Archive)).await.unwrap().file.unwrap();
        let page = stage.transcripts().ended(Shelf::Archive, None, 10).unwrap();
        let files: Vec<_> = page.items.iter().map(|one| format!("archive/{}", one.file)).collect();
        assert_eq!(files, [first, second.clone()]);

        assert_eq!(now(restore(&stage)).await.unwrap().file, second, "the newest one");
        stage.say("four");
        let call = stage.called().await;
        assert_eq!(texts(&call), ["three", "3", "four"]);
        assert_eq!(now(restore(&stage)).await.unwrap_err(), NotRestored::InUse);
    });
}

#[test]
fn there_is_nothing_to_take_back_of_a_key_that_was_never_archived() {
    run_paused("restore nothing", async {
        let stage = Stage::new();
        assert_eq!(now(restore(&stage)).await.unwrap_err(), NotRestored::Nothing);
    });
}
