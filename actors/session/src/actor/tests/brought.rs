//! Files that came from elsewhere go on here: not a byte of them changes, and what is said next follows their cursor.

use domain::transcript::{Transcript, read_lines};
use serde_json::Value;

use super::*;

const FILE: &str = "/w/sessions/websocket.stage.jsonl";

pub(super) fn put(stage: &Stage, bytes: &[u8]) {
    stage.disk.open(Path::new(FILE), Open::Create).unwrap().write_at(bytes, 0).unwrap();
}

/// One more turn on a file; gives the texts that the model was shown, and the lines that came behind `kept`.
async fn go_on(stage: &mut Stage, kept: &[u8]) -> (Vec<String>, Vec<Value>) {
    stage.say("one more");
    let call = stage.called().await;
    stage.complete(&call, answer("gladly"));
    stage.finished().await;
    let written = async {
        while !stage.file_bytes().ends_with(b"\n") || !String::from_utf8_lossy(&stage.file_bytes()).contains("gladly") {
            // On the paused clock: it lets writes gather and go over.
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    with_deadline("the file", written).await;
    let after = stage.file_bytes();
    assert!(after.starts_with(kept), "bytes that were there changed");
    let added = String::from_utf8(after[kept.len()..].to_vec()).unwrap();
    (texts(&call), added.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
}

impl Stage {
    fn file_bytes(&self) -> Vec<u8> {
        self.disk.read(Path::new(FILE)).unwrap_or_default()
    }
}

fn copies(stage: &Stage) -> Vec<Vec<u8>> {
    let names = stage.disk.list(Path::new("/w/sessions")).unwrap();
    let aside = names.iter().filter(|name| name.as_path() != Path::new(FILE));
    aside.map(|name| stage.disk.read(name).unwrap()).collect()
}

/// What stays of a file: a last record without its line end gets one, a last line that is none goes.
fn kept(bytes: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let (lines, last) = bytes.split_at(whole);
    if !last.is_empty() && serde_json::from_slice::<Value>(last).is_ok() {
        return ([bytes, b"\n"].concat(), Vec::new());
    }
    (lines.to_vec(), last.to_vec())
}

#[test]
fn every_file_of_openclaw_goes_on_from_its_cursor_with_all_its_bytes() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/openclaw/transcripts");
    let mut files: Vec<_> = std::fs::read_dir(fixtures).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    assert!(files.len() > 50);
    for file in files {
        let name = file.file_stem().unwrap().to_string_lossy().into_owned();
        let bytes = std::fs::read(file).unwrap();
        run_paused("a file of openclaw", async move {
            let mut stage = Stage::new();
            put(&stage, &bytes);
            let before = read_lines(&bytes);
            let (kept, last) = kept(&bytes);
            let (shown, mut added) = go_on(&mut stage, &kept).await;
            assert_eq!(copies(&stage), Vec::from_iter((!last.is_empty()).then_some(last)), "{name}");
            if before.header.is_none() {
                assert_eq!(added.remove(0)["type"], "session", "{name}");
            }
            let parents: Vec<Option<&str>> = added.iter().map(|line| line["parentId"].as_str()).collect();
            assert_eq!(parents, [before.append_parent(), added[0]["id"].as_str()], "{name}");
            assert_eq!(added[0]["message"]["role"], "user", "{name}");
            let after = read_lines(&stage.file_bytes());
            assert_eq!(&after.entries()[..before.entries().len()], before.entries(), "{name}");
            let mut expected = shown_of(&before);
            let joined = shown.last().is_some_and(|last| last != "one more");
            let last = expected.pop_if(|_| joined).map_or("one more".to_owned(), |last| last + "\n\none more");
            expected.push(last);
            assert_eq!(shown, expected, "{name}");
            let damaged = stage.log.named(EventName::ViewDamaged);
            let whole = read_lines(&kept);
            assert_eq!(damaged.len(), usize::from(whole.problems_total > 0), "{name}");
            if let Some(event) = damaged.first() {
                let first = whole.problems[0].line;
                let said = event.reason.as_deref().unwrap();
                assert!(said.contains(&format!("{} fault", whole.problems_total)), "{name}: {said}");
                assert!(said.contains(&format!("line {first};")), "{name}: {said}");
            }
        });
    }
}

/// The texts of a conversation as the model is shown it.
fn shown_of(transcript: &Transcript) -> Vec<String> {
    let history = domain::history::select(&transcript.path_to_leaf(), 1_000_000);
    let text = |message: &Message| match message {
        Message::User(content) => plain_text(content),
        Message::Assistant(assistant) => assistant.text.clone(),
        Message::ToolResult(result) => plain_text(&result.content),
    };
    history.messages.iter().map(text).collect()
}

#[test]
fn a_fork_in_which_nobody_answered_keeps_what_was_said_in_it() {
    run_paused("a fork with questions only", async {
        let header = r#"{"type":"session","version":3,"id":"f","timestamp":"2026-01-01T00:00:00.000Z","cwd":"/w","parentSession":"/w/sessions/old.jsonl"}"#;
        let user = |id: &str, parent: &str| {
            format!(
                r#"{{"type":"message","id":"{id}","parentId":{parent},"timestamp":"2026-01-01T00:00:01.000Z","message":{{"role":"user","content":"{id}"}}}}"#
            )
        };
        let bytes = format!("{header}\n{}\n{}\n", user("a", "null"), user("b", "\"a\""));
        let mut stage = Stage::new();
        put(&stage, bytes.as_bytes());
        let (shown, added) = go_on(&mut stage, bytes.as_bytes()).await;
        assert_eq!(
            shown.join(" ").replace('\n', " ").split_whitespace().collect::<Vec<_>>(),
            ["a", "b", "one", "more"]
        );
        assert_eq!((added.len(), added[0]["parentId"].as_str()), (2, Some("b")));
    });
}

#[test]
fn a_new_file_begins_with_its_header_then_the_question_then_the_answer() {
    run_paused("a new file", async {
        let mut stage = Stage::new();
        stage.say("one");
        let call = stage.called().await;
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert_eq!(stage.file(), "", "until there is an answer, the journal has the question");
        stage.complete(&call, answer("1"));
        stage.finished().await;
        stage.filed(3).await;
        let lines = read_lines(stage.file().as_bytes());
        assert!(lines.header.is_some());
        let kinds: Vec<_> = lines.path_to_leaf().iter().map(|entry| entry.user().is_some()).collect();
        assert_eq!(kinds, [true, false]);
        assert!(stage.file().starts_with(r#"{"type":"session","version":3,"#), "line 1 is the header");
    });
}
