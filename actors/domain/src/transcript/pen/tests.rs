use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::transcript::{Transcript, read_lines};

const HEADER: &str = r#"{"type":"session","version":3,"id":"s","timestamp":"2026-01-01T00:00:00.000Z","cwd":"/w"}"#;

/// A file that is only ever appended to, and read again after each change.
struct File {
    text: String,
    next_id: u64,
}

impl File {
    fn new(lines: &[&str]) -> Self {
        Self { text: format!("{HEADER}\n{}\n", lines.join("\n")), next_id: 0xa0 }
    }

    fn read(&self) -> Transcript {
        read_lines(self.text.as_bytes())
    }

    fn path(&self) -> Vec<String> {
        self.read().path_to_leaf().iter().map(|entry| entry.id.as_ref().to_owned()).collect()
    }

    /// What the pen gives is appended; what is in memory is then what the file says.
    fn change<T: IntoIterator<Item = Addition>>(&mut self, change: impl FnOnce(&mut Pen<'_>) -> T) -> Vec<String> {
        let mut memory = self.read();
        let next_id = &mut self.next_id;
        let mut ids = || {
            *next_id += 1;
            EntryId(*next_id)
        };
        let additions = change(&mut Pen::new(memory.tree(), &mut ids, 1_795_985_609_123));
        let mut given = Vec::new();
        for Addition { line, entry } in additions {
            self.text.push_str(&line);
            self.text.push('\n');
            memory.push(entry);
            given.push(line);
        }
        let read = self.read();
        assert_eq!(read.problems, []);
        assert_eq!(read.entries(), memory.entries());
        assert_eq!((read.leaf(), read.append_parent()), (memory.leaf(), memory.append_parent()));
        assert_eq!(read.path_to_leaf(), memory.path_to_leaf());
        given
    }

    fn say(&mut self, id: &str) {
        let parent = self.read().append_parent().map(str::to_owned);
        self.text.push_str(&message(id, parent.as_deref()));
        self.text.push('\n');
    }
}

fn message(id: &str, parent: Option<&str>) -> String {
    let message = json!({"role": "user", "content": id});
    json!({"type": "message", "id": id, "parentId": parent, "timestamp": "2026-01-01T00:00:00.000Z", "message": message})
        .to_string()
}

fn three() -> File {
    let lines = [message("a", None), message("b", Some("a")), message("c", Some("b"))];
    File::new(&lines.each_ref().map(String::as_str))
}

#[test]
fn lines_have_the_form_of_the_program_whose_format_this_is() {
    let mut file = three();
    let details = json!({"files": ["a.md"]});
    let at = "2026-11-29T20:53:29.123Z";
    let mut check = |change: &dyn Fn(&mut Pen<'_>) -> Addition, expected: &str| {
        let lines = file.change(|pen| [change(pen)]);
        assert_eq!(lines, [expected.replace("AT", at)]);
    };
    check(
        &|pen| pen.label("a", Some("start")).unwrap(),
        r#"{"type":"label","id":"00000000000000a1","parentId":"c","timestamp":"AT","targetId":"a","label":"start"}"#,
    );
    check(
        &|pen| pen.label("a", Some("")).unwrap(),
        r#"{"type":"label","id":"00000000000000a2","parentId":"00000000000000a1","timestamp":"AT","targetId":"a"}"#,
    );
    check(
        &|pen| pen.rename(" Garden \n"),
        r#"{"type":"session_info","id":"00000000000000a3","parentId":"00000000000000a2","timestamp":"AT","name":"Garden"}"#,
    );
    check(
        &|pen| pen.model("demo", "big"),
        r#"{"type":"model_change","id":"00000000000000a4","parentId":"00000000000000a3","timestamp":"AT","provider":"demo","modelId":"big"}"#,
    );
    check(
        &|pen| pen.thinking_level("high"),
        r#"{"type":"thinking_level_change","id":"00000000000000a5","parentId":"00000000000000a4","timestamp":"AT","thinkingLevel":"high"}"#,
    );
    check(
        &|pen| pen.custom("note", None),
        r#"{"type":"custom","customType":"note","id":"00000000000000a6","parentId":"00000000000000a5","timestamp":"AT"}"#,
    );
    check(
        &|pen| pen.custom_message("hint", &[Content::text("x")], false, Some(&details)),
        r#"{"type":"custom_message","customType":"hint","content":[{"type":"text","text":"x"}],"display":false,"details":{"files":["a.md"]},"id":"00000000000000a7","parentId":"00000000000000a6","timestamp":"AT"}"#,
    );
    check(
        &|pen| {
            let fields =
                CompactionFields { summary: "s", first_kept: Some("b"), tokens_before: 9, ..Default::default() };
            pen.compact(&CompactionFields { tokens_after: Some(3), details: Some(&details), ..fields }).unwrap()
        },
        r#"{"type":"compaction","id":"00000000000000a8","parentId":"00000000000000a7","timestamp":"AT","summary":"s","firstKeptEntryId":"b","tokensBefore":9,"tokensAfter":3,"details":{"files":["a.md"]}}"#,
    );
    check(
        &|pen| pen.compact(&CompactionFields { summary: "all", tokens_before: 1, ..Default::default() }).unwrap(),
        r#"{"type":"compaction","id":"00000000000000a9","parentId":"00000000000000a8","timestamp":"AT","summary":"all","firstKeptEntryId":"00000000000000a9","tokensBefore":1}"#,
    );
    check(
        &|pen| pen.reset("new", Some("c")).unwrap(),
        r#"{"type":"reset","id":"00000000000000aa","parentId":"00000000000000a9","timestamp":"AT","reason":"new","firstKeptEntryId":"c"}"#,
    );
    check(
        &|pen| pen.branch(Some("b")).unwrap().unwrap(),
        r#"{"type":"leaf","id":"00000000000000ab","parentId":"00000000000000aa","timestamp":"AT","targetId":"b"}"#,
    );
    check(
        &|pen| pen.branch_with_summary(Some("a"), "left", Some(&details)).unwrap().remove(0),
        r#"{"type":"branch_summary","id":"00000000000000ac","parentId":"a","timestamp":"AT","fromId":"a","summary":"left","details":{"files":["a.md"]}}"#,
    );
    check(
        &|pen| pen.branch_with_summary(None, "all left", None).unwrap().remove(0),
        r#"{"type":"branch_summary","id":"00000000000000ad","parentId":null,"timestamp":"AT","fromId":"root","summary":"all left"}"#,
    );
}

#[test]
fn a_label_is_a_parent_like_any_other_and_shows_nothing() {
    let mut file = three();
    file.change(|pen| pen.label("b", Some("here")));
    file.say("d");
    let transcript = file.read();
    let tree = transcript.tree();
    let at = tree.position("d").unwrap();
    assert_eq!(tree.raw_parent(at), Some("00000000000000a1"));
    assert_eq!(file.path(), ["a", "b", "c", "00000000000000a1", "d"]);
    let shown: Vec<&str> = tree.shown(&tree.path()).into_iter().map(|at| tree.id(at)).collect();
    assert_eq!(shown, ["a", "b", "c", "d"]);
    assert_eq!(tree.label("b").map(|label| &*label.text), Some("here"));
    file.change(|pen| pen.label("b", Some("there")));
    file.change(|pen| pen.label("a", Some("first")));
    let named = |file: &File| {
        let transcript = file.read();
        let tree = transcript.tree();
        let labels = tree.labels().into_iter();
        labels.map(|(at, label)| format!("{}: {}", tree.id(at), label.text)).collect::<Vec<_>>()
    };
    assert_eq!(named(&file), ["b: there", "a: first"]);
    file.change(|pen| pen.label("b", None));
    assert_eq!(named(&file), ["a: first"]);
    file.change(|pen| [pen.rename("x")]);
    file.change(|pen| [pen.rename("  ")]);
    assert_eq!(file.read().tree().name(), None);
}

#[test]
fn a_branch_holds_as_soon_as_it_is_written() {
    let mut file = three();
    file.change(|pen| pen.branch(Some("a")).unwrap());
    assert_eq!(file.path(), ["a"]);
    assert!(file.change(|pen| pen.branch(Some("a")).unwrap()).is_empty());
    file.say("d");
    assert_eq!(file.path(), ["a", "d"]);
    file.change(|pen| pen.branch(Some("c")).unwrap());
    assert_eq!(file.path(), ["a", "b", "c"]);
    file.change(|pen| pen.branch(None).unwrap());
    assert_eq!(file.path(), [""; 0]);
    file.say("e");
    assert_eq!(file.path(), ["e"]);
    let roots = file.read();
    assert_eq!(roots.tree().children(None).len(), 2);
    file.change(|pen| pen.branch_with_summary(Some("d"), "gave up", None).unwrap());
    file.say("f");
    assert_eq!(file.path(), ["a", "d", "00000000000000a4", "f"]);
}

#[test]
fn branching_to_the_tip_of_a_side_branch_arrives_there() {
    let mut file = three();
    let side = crate::transcript::side_line(&message("mirror", Some("c")));
    assert!(side.contains(r#""timestamp":"2026-01-01T00:00:00.000Z","appendMode":"side","message":"#), "{side}");
    file.text.push_str(&format!("{side}\n"));
    assert_eq!((file.read().leaf(), file.read().append_parent()), (Some("c"), Some("mirror")));
    let lines = file.change(|pen| pen.branch_with_summary(Some("mirror"), "s", None).unwrap());
    assert_eq!(lines.len(), 2);
    assert_eq!(file.path(), ["a", "b", "c", "mirror", "00000000000000a2"]);
}

#[test]
fn what_is_not_there_is_refused() {
    let mut file = three();
    file.text.push_str("{\"type\":\"novelty\",\"id\":\"u\",\"parentId\":\"b\"}\n");
    file.text.push_str("{\"type\":\"novelty\",\"id\":\"v\"}\n");
    let transcript = file.read();
    let mut ids = || EntryId(1);
    let mut pen = Pen::new(transcript.tree(), &mut ids, 0);
    assert_eq!(pen.label("zz", Some("x")), Err(EditError::UnknownEntry));
    assert_eq!(pen.label("u", Some("x")), Err(EditError::UnknownEntry));
    assert_eq!(pen.branch(Some("zz")), Err(EditError::UnknownEntry));
    assert_eq!(pen.branch(Some("v")), Err(EditError::UnknownEntry));
    assert_eq!(pen.branch_with_summary(Some("zz"), "", None), Err(EditError::UnknownEntry));
    assert_eq!(pen.reset("new", Some("zz")), Err(EditError::UnknownEntry));
    // An unknown record stands for the entry that it hangs on.
    let EntryKind::Leaf { target, .. } = pen.branch(Some("u")).unwrap().unwrap().entry.kind else { panic!("a leaf") };
    assert_eq!(target.as_deref(), Some("b"));
    file.change(|pen| pen.branch(Some("a")).unwrap());
    let transcript = file.read();
    let mut pen = Pen::new(transcript.tree(), &mut ids, 0);
    let fields = CompactionFields { first_kept: Some("c"), ..Default::default() };
    assert_eq!(pen.compact(&fields), Err(EditError::NotOnPath));
}

#[test]
fn ids_are_unused_and_times_do_not_run_backwards() {
    let mut file = three();
    file.text.push_str(&message("00000000000000a1", Some("00000000000000a2")));
    file.text.push('\n');
    let lines = file.change(|pen| [pen.rename("x")]);
    assert!(lines[0].contains(r#""id":"00000000000000a3""#), "{lines:?}");
    let transcript = file.read();
    let mut ids = || EntryId(7);
    let entry = Pen::new(transcript.tree(), &mut ids, 5).rename("y").entry;
    assert_eq!(entry.timestamp_ms, transcript.last_ms());
}

/// What a person or the model does to a session.
#[derive(Debug, Clone)]
enum Deed {
    Say,
    Label(usize, bool),
    Rename,
    Branch(Option<usize>),
    Summary(Option<usize>),
    Compact(Option<usize>),
    Reset(Option<usize>),
    /// Somebody else appends a line behind the entry.
    Foreign(usize, bool),
}

fn deed() -> impl Strategy<Value = Deed> {
    let place = || 0usize..12;
    prop_oneof![
        4 => Just(Deed::Say),
        1 => (place(), any::<bool>()).prop_map(|(at, set)| Deed::Label(at, set)),
        1 => Just(Deed::Rename),
        2 => prop::option::weighted(0.9, place()).prop_map(Deed::Branch),
        1 => prop::option::weighted(0.9, place()).prop_map(Deed::Summary),
        1 => prop::option::of(place()).prop_map(Deed::Compact),
        1 => prop::option::of(place()).prop_map(Deed::Reset),
        1 => (place(), any::<bool>()).prop_map(|(at, side)| Deed::Foreign(at, side)),
    ]
}

proptest! {
    /// Against a model that is a list of parents and the place where the conversation stands.
    #[test]
    fn any_deeds_lead_where_they_should(deeds in prop::collection::vec(deed(), 1..24)) {
        let mut file = File::new(&[&message("m0", None)]);
        let mut parents: BTreeMap<String, Option<String>> = BTreeMap::from([("m0".to_owned(), None)]);
        let mut order = vec!["m0".to_owned()];
        let mut leaf = Some("m0".to_owned());
        for (number, deed) in deeds.into_iter().enumerate() {
            let before = file.text.clone();
            let pick = |at: usize| order[at % order.len()].clone();
            let on_path = file.path();
            let kept = |at: Option<usize>| at.and_then(|at| (!on_path.is_empty()).then(|| on_path[at % on_path.len()].clone()));
            let lines = match deed.clone() {
                Deed::Say => {
                    file.say(&format!("n{number}"));
                    vec![file.text.trim_end().lines().last().unwrap().to_owned()]
                }
                Deed::Label(at, set) => file.change(|pen| pen.label(&pick(at), set.then_some("x"))),
                Deed::Rename => file.change(|pen| [pen.rename("x")]),
                Deed::Branch(at) => {
                    leaf = at.map(pick);
                    file.change(|pen| pen.branch(leaf.as_deref()).unwrap())
                }
                Deed::Summary(at) => {
                    leaf = at.map(pick);
                    file.change(|pen| pen.branch_with_summary(leaf.as_deref(), "s", None).unwrap())
                }
                Deed::Compact(at) => {
                    let first_kept = kept(at);
                    let fields = CompactionFields { first_kept: first_kept.as_deref(), summary: "s", ..Default::default() };
                    file.change(|pen| pen.compact(&fields))
                }
                Deed::Reset(at) => file.change(|pen| pen.reset("new", kept(at).as_deref())),
                Deed::Foreign(at, side) => {
                    let (id, parent) = (format!("f{number}"), pick(at));
                    let line = message(&id, Some(&parent));
                    let cursor = file.read().append_parent().map(str::to_owned);
                    let line = if side { crate::transcript::side_line(&line) } else { line };
                    file.text.push_str(&format!("{line}\n"));
                    let follows = if cursor.as_ref() == Some(&parent) && !side { leaf.clone() } else { Some(parent) };
                    parents.insert(id.clone(), follows);
                    order.push(id.clone());
                    if !side {
                        leaf = Some(id);
                    }
                    Vec::new()
                }
            };
            for line in lines {
                let line: Value = serde_json::from_str(&line).unwrap();
                let id = line["id"].as_str().unwrap().to_owned();
                if line["type"] != "leaf" {
                    parents.insert(id.clone(), leaf.replace(id.clone()));
                    order.push(id);
                }
            }
            prop_assert!(file.text.starts_with(&before), "what was there stays");
            let mut path = Vec::new();
            let mut next = leaf.clone();
            while let Some(id) = next {
                next = parents[&id].clone();
                path.insert(0, id);
            }
            prop_assert_eq!(file.path(), path, "{:?}", deed);
        }
        let nodes = crate::transcript::view::tree_of(&file.read());
        prop_assert_eq!(nodes.len(), order.len(), "nothing is ever lost");
    }
}
