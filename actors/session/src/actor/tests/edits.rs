//! Edits between turns.

use domain::exchange::single::Format;
use domain::ids::SessionKey;
use domain::transcript::{Transcript, read_lines};
use protocol::edit::{EDITS_MAX, Edit, EditError, Edited, Keep, Patience};
use protocol::journal::{RecentIds, ViewMark};
use protocol::transcripts::TranscriptReader;

use super::*;

type Answer = oneshot::Receiver<Result<Edited, EditError>>;

fn ask_as(stage: &Stage, edit: Edit, patience: Patience) -> Answer {
    let (reply, answer) = oneshot::channel();
    stage.mail(Mail::Edit { edit, patience, reply });
    answer
}

fn ask(stage: &Stage, edit: Edit) -> Answer {
    ask_as(stage, edit, Patience::Wait)
}

async fn edit(stage: &Stage, edit: Edit) -> Result<Edited, EditError> {
    with_deadline("an edit", ask(stage, edit)).await.unwrap()
}

fn transcript(stage: &Stage) -> Transcript {
    read_lines(stage.file().as_bytes())
}

fn id(stage: &Stage, place: usize) -> String {
    transcript(stage).entries()[place].id.as_ref().to_owned()
}

fn entries(edited: &Edited) -> Vec<String> {
    match edited {
        Edited::Appended { entries, .. } => entries.iter().map(|id| id.as_ref().to_owned()).collect(),
        Edited::Forked { .. } | Edited::Exported { .. } => panic!("nothing was appended"),
    }
}

/// Two turns, filed: a header and four messages.
async fn two_turns() -> Stage {
    let mut stage = Stage::new();
    stage.turn("one", "first").await;
    stage.turn("two", "second").await;
    stage.filed(5).await;
    stage
}

/// The texts of the next turn's request.
async fn asked(stage: &mut Stage, text: &str) -> Vec<String> {
    stage.say(text);
    let call = stage.called().await;
    let texts = texts(&call);
    stage.complete(&call, answer("ok"));
    stage.finished().await;
    texts
}

#[test]
fn the_next_message_follows_a_label_and_a_name() {
    run_paused("label", async {
        let mut stage = two_turns().await;
        let target = id(&stage, 1);
        let start = target.chars().take(9).collect::<String>();
        let label = Edit::Label { entry: start, text: Some("keep".to_owned()) };
        let labelled = entries(&edit(&stage, label).await.unwrap());
        let named = entries(&edit(&stage, Edit::Rename { name: "Taxes".to_owned() }).await.unwrap());
        assert_eq!(asked(&mut stage, "three").await, ["one", "first", "two", "second", "three"]);
        stage.filed(9).await;
        let transcript = transcript(&stage);
        let entries = transcript.entries();
        assert_eq!(&*entries[4].id, labelled[0]);
        assert_eq!(entries[5].parent.as_deref(), Some(labelled[0].as_str()));
        assert_eq!(entries[6].parent.as_deref(), Some(named[0].as_str()));
        assert_eq!(&*transcript.tree().label(&target).unwrap().text, "keep");
        assert_eq!(transcript.tree().name().unwrap().as_ref(), "Taxes");
        let tree = stage.transcripts().tree(&key()).unwrap().unwrap();
        assert_eq!((tree.items.len(), tree.items[1].label.as_deref()), (8, Some("keep")));
    });
}

#[test]
fn a_branch_goes_on_from_its_entry_and_keeps_the_other() {
    run_paused("branch", async {
        let mut stage = two_turns().await;
        let (first, last) = (id(&stage, 1), id(&stage, 3));
        let moved = edit(&stage, Edit::Branch { to: Some(first.clone()), summary: None }).await.unwrap();
        let Edited::Appended { leaf, .. } = moved else { panic!("lines were appended") };
        assert_eq!(leaf.as_deref(), Some(first.as_str()));
        let nothing = edit(&stage, Edit::Branch { to: Some(first.clone()), summary: None }).await.unwrap();
        assert!(entries(&nothing).is_empty(), "it stands there already");
        assert_eq!(asked(&mut stage, "other").await, ["one", "first", "other"]);
        let told = Edit::Branch { to: Some(last), summary: Some("went astray".to_owned()) };
        edit(&stage, told).await.unwrap();
        let texts = asked(&mut stage, "back").await;
        assert_eq!((texts.len(), texts[3].as_str()), (5, "second"));
        assert!(texts[4].contains("went astray") && texts[4].ends_with("\n\nback"), "{}", texts[4]);
        edit(&stage, Edit::Branch { to: None, summary: None }).await.unwrap();
        assert_eq!(asked(&mut stage, "root").await, ["root"]);
    });
}

#[test]
fn what_was_set_aside_is_named_when_nothing_is_left() {
    run_paused("set aside", async {
        let stage = two_turns().await;
        stage.status().await;
        stage.mail(Mail::Passivate);
        stage.asleep().await;
        {
            let mut books = stage.journal.books();
            let length = stage.file().len() as u64;
            (books.lines, books.view) = (Vec::new(), ViewMark { length, last_entry: None });
        }
        let path = Path::new("/w/sessions/websocket.stage.jsonl");
        stage.disk.open(path, Open::Write).unwrap().set_length(40).unwrap();
        let renamed = edit(&stage, Edit::Rename { name: "Taxes".to_owned() }).await;
        let Err(EditError::Lost(why)) = renamed else { panic!("{renamed:?}") };
        assert!(why.contains("/w/sessions/websocket.stage.jsonl.damaged-"), "{why}");
        assert_eq!(stage.transcripts().check(&key()).unwrap(), None, "an empty file is no session");
    });
}

#[test]
fn a_reset_begins_anew_also_after_sleep() {
    run_paused("reset", async {
        let mut stage = two_turns().await;
        edit(&stage, Edit::Reset).await.unwrap();
        stage.filed(6).await;
        stage.status().await;
        stage.mail(Mail::Passivate);
        stage.asleep().await;
        assert_eq!(asked(&mut stage, "anew").await, ["anew"]);
        stage.filed(8).await;
        assert_eq!(transcript(&stage).path_to_leaf().len(), 7, "nothing is cut out");
    });
}

#[test]
fn a_compaction_keeps_what_was_asked_for() {
    run_paused("compact", async {
        let mut stage = Stage::new();
        stage.turn(&"long ".repeat(200), "first").await;
        stage.turn("two", "second").await;
        stage.filed(5).await;
        let compact = Edit::Compact { keep: Keep::Messages(2), summary: Some("it was long".to_owned()) };
        let Edited::Appended { compacted, .. } = edit(&stage, compact.clone()).await.unwrap() else { panic!() };
        let compacted = compacted.unwrap();
        assert_eq!(compacted.first_kept.as_deref(), Some(id(&stage, 2).as_str()));
        assert!(compacted.tokens_after < compacted.tokens_before);
        stage.say("three");
        let call = stage.called().await;
        assert_eq!(texts(&call), ["two", "second", "three"]);
        assert_eq!(call.request.system_tail.as_deref(), Some("[Archived Context Summary]\n\nit was long"));
        stage.complete(&call, answer("third"));
        stage.finished().await;
        let days = Edit::Compact { keep: Keep::Days(1), summary: None };
        assert!(matches!(edit(&stage, days).await, Err(EditError::NotCompacted(_))));
    });
}

#[test]
fn an_edit_waits_for_the_turn_that_runs_and_goes_before_those_that_wait() {
    run_paused("edit behind a turn", async {
        let mut stage = Stage::new();
        stage.turn("one", "first").await;
        stage.say("two");
        let call = stage.called().await;
        stage.say("three");
        let mut reset = ask(&stage, Edit::Reset);
        let refused = with_deadline("a refusal", ask_as(&stage, Edit::Reset, Patience::Refuse)).await.unwrap();
        assert_eq!(refused, Err(EditError::Busy));
        stage.status().await;
        assert!(reset.try_recv().is_err(), "it waits");
        stage.complete(&call, answer("second"));
        with_deadline("the edit", reset).await.unwrap().unwrap();
        let call = stage.called().await;
        assert_eq!(texts(&call), ["three"]);
        let waiting: Vec<Answer> = (0..EDITS_MAX).map(|_| ask(&stage, Edit::Reset)).collect();
        let over = with_deadline("a refusal", ask(&stage, Edit::Reset)).await.unwrap();
        assert_eq!(over, Err(EditError::Full));
        stage.mail(Mail::Interrupt);
        for one in waiting {
            assert_eq!(with_deadline("the refusals", one).await.unwrap(), Err(EditError::Stopping));
        }
    });
}

#[test]
fn what_cannot_be_done_says_why_and_writes_nothing() {
    run_paused("refused edits", async {
        let mut stage = Stage::new();
        let label = |entry: &str, text: &str| Edit::Label { entry: entry.to_owned(), text: Some(text.to_owned()) };
        assert_eq!(edit(&stage, label("a", "x")).await, Err(EditError::NoSession));
        stage.say("one");
        let call = stage.called().await;
        stage.complete(&call, calls(&["read", "read"]));
        for _ in 0..2 {
            let run = stage.tools.next().await;
            end_tool(&run, "found");
        }
        let call = stage.called().await;
        stage.complete(&call, answer("done"));
        stage.finished().await;
        stage.filed(6).await;
        let before = stage.file();
        let (asking, first_result, last_result) = (id(&stage, 1), id(&stage, 2), id(&stage, 3));
        let branch = |to: &str| Edit::Branch { to: Some(to.to_owned()), summary: None };
        let long = "x".repeat(600);
        for (asked, why) in [
            (label("zz", "x"), EditError::UnknownEntry("zz".to_owned())),
            (label("", "x"), EditError::UnknownEntry("\"\"".to_owned())),
            (label(&asking, &long), EditError::TooLong { what: "a label", chars_max: 512 }),
            (branch(&asking), EditError::CutPair(asking.clone())),
            (branch(&first_result), EditError::CutPair(first_result.clone())),
            (Edit::Fork { to: key(), entry: None }, EditError::Exists(key())),
        ] {
            assert_eq!(edit(&stage, asked).await, Err(why));
        }
        assert_eq!(stage.file(), before);
        edit(&stage, branch(&last_result)).await.unwrap();
        assert_eq!(asked(&mut stage, "go on").await.len(), 5);
    });
}

#[test]
fn a_fork_is_a_session_of_its_own() {
    run_paused("fork", async {
        let stage = two_turns().await;
        let to = SessionKey::new("api:fork").unwrap();
        let end = id(&stage, 1);
        let forked = edit(&stage, Edit::Fork { to: to.clone(), entry: Some(end.clone()) }).await;
        assert_eq!(
            forked,
            Ok(Edited::Forked { key: to.clone(), forked_from: key(), copied: 2, attachments_missing: 0 })
        );
        let again = edit(&stage, Edit::Fork { to: to.clone(), entry: None }).await;
        assert_eq!(again, Err(EditError::Exists(to.clone())));
        let bytes = stage.disk.read(Path::new("/w/sessions/api.fork.jsonl")).unwrap();
        let fork = read_lines(&bytes);
        let header = fork.header.as_ref().unwrap();
        assert_eq!(header.session_key.as_deref(), Some("api:fork"));
        assert_eq!(header.parent_session.as_deref(), Some("/w/sessions/websocket.stage.jsonl"));
        assert_eq!((fork.entries().len(), &*fork.entries()[1].id), (3, end.as_str()));
        assert!(stage.transcripts().page(None, 9).items.iter().any(|item| item.key == to));
        // A message id that was used there is not one that was used here.
        assert_eq!(stage.transcripts().recent(&to).unwrap(), []);
        assert_eq!(stage.transcripts().recent(&key()).unwrap().len(), 2);
        let whole = SessionKey::new("api:whole").unwrap();
        let forked = edit(&stage, Edit::Fork { to: whole, entry: None }).await;
        assert!(matches!(forked, Ok(Edited::Forked { copied: 4, .. })));
        assert_eq!(stage.disk.list(Path::new("/w/sessions")).unwrap().len(), 3, "no half files stay");
    });
}

#[test]
fn an_export_has_everything_and_comes_back_under_any_key() {
    run_paused("export", async {
        let mut stage = Stage::new();
        stage.turn("one", "first").await;
        // Nothing says that the file has the turn already.
        let file = Path::new("/out/one.jsonl").to_owned();
        stage.disk.create_dir_all(Path::new("/out")).unwrap();
        let export = || Edit::Export { file: file.clone(), format: Format::Greenroom };
        let done = edit(&stage, export()).await.unwrap();
        let bytes = stage.disk.read(&file).unwrap();
        let expected = Edited::Exported { key: key(), file: file.clone(), bytes: bytes.len(), remarks: Vec::new() };
        assert_eq!((done, read_lines(&bytes).entries().len()), (expected, 2));
        assert_eq!(edit(&stage, export()).await, Err(EditError::FileExists(file.clone())));
        stage.filed(3).await;
        assert_eq!(stage.file().as_bytes(), bytes);

        let (files, to) = (stage.transcripts(), SessionKey::new("api:copy").unwrap());
        assert_eq!(files.bring_in(&file, None, &|_| Ok(())), Err(EditError::Exists(key())), "its file is there");
        assert_eq!(
            files.bring_in(&file, Some(&to), &|_| Err(EditError::Stopping)),
            Err(EditError::Stopping),
            "it may not"
        );
        let brought = files.bring_in(&file, Some(&to), &|_| Ok(())).unwrap();
        assert_eq!((&brought.key, brought.messages), (&to, 2));
        assert!(files.page(None, 9).items.iter().any(|item| item.key == to));
        assert_eq!(files.recent(&to).unwrap(), [], "message ids of another session are not its own");
        assert_eq!(stage.disk.list(Path::new("/w/sessions")).unwrap().len(), 2, "no half files stay");
    });
}

#[test]
fn a_repair_mends_what_is_ours_and_cuts_nothing_out() {
    run_paused("repair", async {
        let path = Path::new("/w/sessions/websocket.stage.jsonl");
        let stage = two_turns().await;
        stage.status().await;
        let nothing = edit(&stage, Edit::Repair).await.unwrap();
        assert!(entries(&nothing).is_empty());
        stage.mail(Mail::Passivate);
        stage.asleep().await;
        // A file that was brought along: no header, a line that is none, a torn end.
        let file = stage.file();
        let (_, lines) = file.split_once('\n').unwrap();
        let damaged = format!("{lines}no json\n{{\"type\":\"mess");
        let stage = Stage::new();
        stage.disk.open(path, Open::Create).unwrap().write_at(damaged.as_bytes(), 0).unwrap();
        let found = stage.transcripts().check(&key()).unwrap().unwrap();
        let what: Vec<_> = found.problems.iter().map(|problem| (problem.line, problem.what)).collect();
        assert_eq!(what, [(Some(1), "header_missing"), (Some(5), "not_json"), (None, "torn_tail")]);
        assert!(found.repairable && !found.healthy);
        edit(&stage, Edit::Repair).await.unwrap();
        // Four messages, the line that is none, a header and what the repair leaves.
        stage.filed(7).await;
        assert!(stage.file().starts_with(&format!("{lines}no json\n")));
        let found = stage.transcripts().check(&key()).unwrap().unwrap();
        assert!(!found.repairable, "{found:?}");
        let names = stage.disk.list(Path::new("/w/sessions")).unwrap();
        let aside = names.iter().find(|name| name.to_string_lossy().contains(".damaged-")).unwrap();
        assert_eq!(stage.disk.read(aside).unwrap(), b"{\"type\":\"mess");
        assert!(entries(&edit(&stage, Edit::Repair).await.unwrap()).is_empty());
    });
}

#[test]
fn a_fork_takes_the_place_of_an_empty_file_and_tells_of_a_full_disk() {
    run_paused("fork", async {
        let stage = two_turns().await;
        let to = SessionKey::new("api:copy").unwrap();
        let fork = || edit(&stage, Edit::Fork { to: to.clone(), entry: None });
        let path = Path::new("/w/sessions/api.copy.jsonl");
        stage.status().await;
        stage.disk.set_full(true);
        let refused = fork().await.unwrap_err();
        assert!(matches!(refused, EditError::Disk(_)), "{refused:?}");
        stage.disk.set_full(false);
        stage.disk.open(path, Open::Create).unwrap();
        fork().await.unwrap();
        assert!(!stage.disk.read(path).unwrap().is_empty());
        assert_eq!(fork().await.unwrap_err(), EditError::Exists(to.clone()));
    });
}

#[test]
fn what_an_edit_did_is_told_without_its_text() {
    run_paused("edits told", async {
        let stage = two_turns().await;
        let entry = id(&stage, 0);
        let label = |text: Option<&str>| Edit::Label { entry: entry.clone(), text: text.map(str::to_owned) };
        edit(&stage, label(Some("a secret"))).await.unwrap();
        edit(&stage, Edit::Rename { name: "a secret".to_owned() }).await.unwrap();
        edit(&stage, Edit::Repair).await.unwrap();
        edit(&stage, Edit::Fork { to: SessionKey::new("api:8").unwrap(), entry: None }).await.unwrap();
        edit(&stage, Edit::Reset).await.unwrap();
        edit(&stage, Edit::Label { entry: "zz".to_owned(), text: None }).await.unwrap_err();
        let told = stage.log.named(EventName::SessionEdited);
        assert!(told.iter().all(|event| event.session == Some(key()) && event.turn.is_none()), "{told:?}");
        assert!(!format!("{told:?}").contains("secret"), "{told:?}");
        let told: Vec<_> = told.iter().map(|event| (event.reason.as_deref(), event.verdict.as_deref())).collect();
        let expected = [("label", None), ("rename", None), ("fork", Some("api:8 has the copy")), ("reset", None)];
        assert_eq!(told, expected.map(|(word, copy)| (Some(word), copy)), "the repair had nothing to do");
    });
}
