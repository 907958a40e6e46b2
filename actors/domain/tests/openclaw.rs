//! Transcripts of OpenClaw, and what OpenClaw 2026.6.11 itself made of them: `tests/fixtures/openclaw/README.md`.
//!
//! Where we differ on purpose, it is said here: two records on one line are both read, of two lines with one id only
//! the later one has children, a message that is kept from the model sets no model, and nothing is left out of a tree.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests fail by panicking")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use domain::ids::EntryId;
use domain::transcript::copy::{Step, extract, fork};
use domain::transcript::{EntryKind, Kind, Note, Pen, Position, Transcript, read_lines, view};
use serde_json::{Value, json};

struct Case {
    name: String,
    bytes: Vec<u8>,
    expected: Value,
    transcript: Transcript,
}

fn dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/openclaw")
}

/// All cases but those named.
fn cases(but: &[&str]) -> Vec<Case> {
    let files = std::fs::read_dir(dir().join("transcripts")).unwrap().map(|file| file.unwrap().path());
    let mut cases: Vec<Case> = files
        .map(|file| {
            let name = file.file_stem().unwrap().to_str().unwrap().to_owned();
            let expected = std::fs::read(dir().join(format!("expected/{name}.json"))).unwrap();
            let bytes = std::fs::read(file).unwrap();
            let transcript = read_lines(&bytes);
            Case { expected: serde_json::from_slice(&expected).unwrap(), name, bytes, transcript }
        })
        .collect();
    assert!(cases.len() > 50);
    for name in but {
        let at = cases.iter().position(|case| case.name == *name).unwrap();
        cases.remove(at);
    }
    cases
}

impl Case {
    /// Ids that are made while reading differ from those of the other program, which has them in this order.
    fn named(&self, id: &str) -> Value {
        if self.name != "v1" {
            return json!(id);
        }
        let number = u32::from_str_radix(id, 16).unwrap() + 10;
        json!(format!("<new-{number}>"))
    }

    fn ids(&self, path: &[Position]) -> Value {
        path.iter().map(|at| self.named(self.transcript.tree().id(*at))).collect()
    }

    fn leaf(&self) -> Position {
        let tree = self.transcript.tree();
        tree.position(tree.leaf().unwrap()).unwrap()
    }

    /// The role that the other program gives each message that its model is shown.
    fn roles(&self, path: &[Position]) -> Vec<&'static str> {
        let tree = self.transcript.tree();
        let mut roles: Vec<&str> = Vec::new();
        for at in tree.shown(path) {
            let kind = tree.kind(at);
            if kind == Kind::Compaction {
                roles.insert(0, "compactionSummary");
            } else if kind == Kind::BranchSummary {
                roles.push("branchSummary");
            } else {
                roles.push(kind.role().unwrap_or("custom"));
            }
        }
        roles
    }
}

#[test]
fn entries_have_the_same_parents() {
    for case in cases(&["two-on-one-line"]) {
        let tree = case.transcript.tree();
        let nodes = tree.positions().filter(|at| tree.kind(*at).is_node());
        let entries: Vec<Value> = nodes
            .map(|at| {
                let parent = tree.parent(at).map(|parent| case.named(tree.id(parent)));
                json!({"id": case.named(tree.id(at)), "type": tree.kind(at).name(), "parentId": parent})
            })
            .collect();
        assert_eq!(json!(entries), case.expected["entries"], "{}", case.name);
        let header = case.transcript.header.as_ref().map_or("", |header| &header.id);
        if case.expected["recovered_corrupt_header"] == false && case.name != "empty" {
            assert_eq!(header, case.expected["header"]["id"], "{}", case.name);
        }
    }
}

#[test]
fn leaf_cursor_and_path_are_the_same() {
    for case in cases(&["two-on-one-line"]) {
        let tree = case.transcript.tree();
        let leaf = tree.leaf().map(|leaf| case.named(leaf));
        assert_eq!(json!(leaf), case.expected["leaf_id"], "{}", case.name);
        assert_eq!(case.ids(&tree.path()), case.expected["branch"], "{}", case.name);
        if case.name != "v1" {
            assert_eq!(json!(tree.append_parent()), case.expected["internal"]["append_cursor"], "{}", case.name);
        }
        for (id, parent) in case.expected["internal"]["logical_parents"].as_object().unwrap() {
            let at = tree.position(id).unwrap();
            assert_eq!(json!(tree.parent(at).map(|parent| tree.id(parent))), *parent, "{}", case.name);
        }
        for ignored in case.expected["internal"]["ignored_leaf_rows"].as_array().unwrap() {
            assert!(!tree.is_valid_leaf_row(tree.position(ignored.as_str().unwrap()).unwrap()), "{}", case.name);
        }
        for tip in case.expected["other_tips"].as_array().unwrap() {
            let path = tree.path_to(tree.position(tip["tip"].as_str().unwrap()).unwrap());
            assert_eq!(case.ids(&path), tip["branch"], "{}", case.name);
        }
    }
}

#[test]
fn labels_name_and_settings_are_the_same() {
    for case in cases(&["two-on-one-line"]) {
        let tree = case.transcript.tree();
        let labels: BTreeMap<&str, &str> =
            tree.labels().into_iter().map(|(target, label)| (tree.id(target), &*label.text)).collect();
        assert_eq!(json!(labels), case.expected["labels"], "{}", case.name);
        assert_eq!(json!(tree.name()), case.expected["session_name"], "{}", case.name);
        let path = tree.path();
        let settings = tree.settings(&path);
        let context = &case.expected["context"];
        assert_eq!(json!(settings.thinking.unwrap_or("off")), context["thinkingLevel"], "{}", case.name);
        if context["model"]["provider"] != "openclaw" {
            let model = settings.model.map(|(provider, model)| json!({"provider": provider, "modelId": model}));
            assert_eq!(json!(model), context["model"], "{}", case.name);
        }
    }
}

#[test]
fn the_model_is_shown_the_same_entries() {
    for case in cases(&["two-on-one-line"]) {
        let shown = |message: &&Value| {
            let mirror = message["provider"] == "openclaw" && message["role"] == "assistant";
            message["role"].is_string() && message["excludeFromContext"] != true && !mirror
        };
        let messages = case.expected["context"]["messages"].as_array().unwrap();
        let roles: Vec<&str> = messages.iter().filter(shown).map(|message| message["role"].as_str().unwrap()).collect();
        assert_eq!(case.roles(&case.transcript.tree().path()), roles, "{}", case.name);
    }
}

#[test]
fn trees_are_drawn_the_same() {
    fn add(nested: &Value, depth: usize, out: &mut Vec<Value>) {
        for node in nested.as_array().unwrap() {
            let children: Vec<&Value> = node["children"].as_array().unwrap().iter().map(|child| &child["id"]).collect();
            out.push(json!([node["id"], node["type"], node["label"], node["labelTimestamp"], depth, children]));
            add(&node["children"], depth + 1, out);
        }
    }
    for case in cases(&["two-on-one-line", "duplicate-ids", "cycle"]) {
        let (mut expected, mut drawn) = (Vec::new(), Vec::new());
        add(&case.expected["tree"], 0, &mut expected);
        for node in view::tree_of(&case.transcript) {
            let children: Vec<Value> = node.children.iter().map(|child| case.named(child)).collect();
            let label_time = node.label_ms.map(domain::time::iso_ms);
            drawn.push(json!([case.named(&node.id), node.kind, node.label, label_time, node.depth, children]));
        }
        assert_eq!(drawn, expected, "{}", case.name);
    }
    let cycle = cases(&[]).into_iter().find(|case| case.name == "cycle").unwrap();
    assert_eq!(view::tree_of(&cycle.transcript).len(), 2);
}

#[test]
fn what_is_appended_goes_where_it_would_have_gone() {
    for case in cases(&["two-on-one-line", "v1"]) {
        let tree = case.transcript.tree();
        let mut number = 0xf000;
        let mut ids = || {
            number += 1;
            EntryId(number)
        };
        let addition = Pen::new(tree, &mut ids, 0).rename("garden");
        let appended = &case.expected["append_two"];
        assert_eq!(json!(addition.entry.parent), appended["user_row_raw_parent"], "{}", case.name);
        let mut bytes = case.bytes.clone();
        if !bytes.is_empty() && !bytes.ends_with(b"\n") {
            bytes.push(b'\n');
        }
        bytes.extend_from_slice(addition.line.as_bytes());
        let again = read_lines(&bytes);
        let at = again.tree().position(&addition.entry.id).unwrap();
        let parent = again.tree().parent(at).map(|parent| again.tree().id(parent));
        assert_eq!(json!(parent), appended["user_row_logical_parent"], "{}", case.name);
        assert_eq!(again.leaf(), Some(&*addition.entry.id), "{}", case.name);
    }
}

fn written(steps: &[Step], bytes: &[u8]) -> Vec<String> {
    let read = |place: &std::ops::Range<u64>| {
        Ok::<_, std::convert::Infallible>(bytes[place.start as usize..place.end as usize].to_vec())
    };
    steps.iter().filter_map(|step| step.line(read).unwrap()).collect()
}

fn read(lines: &[String]) -> Transcript {
    let header = r#"{"type":"session","version":3,"id":"new","timestamp":"2026-01-01T00:00:00.000Z","cwd":"/w"}"#;
    let transcript = read_lines(format!("{header}\n{}\n", lines.join("\n")).as_bytes());
    assert_eq!(transcript.problems, []);
    transcript
}

fn version(case: &Case) -> u64 {
    case.transcript.header.as_ref().map_or(3, |header| header.version)
}

#[test]
fn a_fork_has_the_same_entries_with_the_same_ids() {
    for case in cases(&["two-on-one-line", "empty", "only-garbage", "only-header"]) {
        let lines = written(&fork(case.transcript.tree(), version(&case)).unwrap(), &case.bytes);
        let forked = read(&lines);
        if case.expected["fork"]["rows"].is_u64() {
            assert_eq!(json!(lines.len()), case.expected["fork"]["rows"], "{}", case.name);
        }
        assert_eq!(forked.entries(), case.transcript.entries(), "{}", case.name);
        assert_eq!(forked.append_parent(), case.transcript.append_parent(), "{}", case.name);
        if version(&case) >= 3 {
            let source = String::from_utf8(case.bytes).unwrap();
            assert!(lines.iter().all(|line| source.contains(line.as_str())), "{}", case.name);
        }
    }
    assert!(fork(read_lines(b"").tree(), 3).is_err());
}

#[test]
fn an_extract_has_the_same_branch_with_its_labels_last() {
    for case in cases(&["two-on-one-line", "v1"]) {
        let expected = &case.expected["branched_session"];
        if expected.is_null() || !expected["error"].is_null() {
            continue;
        }
        let tree = case.transcript.tree();
        let mut number = 0xf000;
        let mut ids = || {
            number += 1;
            EntryId(number)
        };
        let steps = extract(tree, tree.id(case.leaf()), version(&case), &mut ids).unwrap();
        let extracted = read(&written(&steps, &case.bytes));
        let tree = extracted.tree();
        let rows: Vec<Value> = tree
            .positions()
            .filter(|at| tree.kind(*at).is_node())
            .map(|at| {
                let mut row = json!({"type": tree.kind(at).name(), "parentId": tree.parent(at).map(|at| tree.id(at))});
                if let EntryKind::Silent(Note::Label { target, label }) = &extracted.entries()[at.0 as usize].kind {
                    row["targetId"] = json!(target);
                    row["label"] = json!(label);
                    row["timestamp"] = json!(domain::time::iso_ms(tree.timestamp_ms(at)));
                } else {
                    row["id"] = json!(tree.id(at));
                }
                row
            })
            .collect();
        let mut wanted: Vec<Value> = expected["rows"].as_array().unwrap()[1..].to_vec();
        for at in 0..wanted.len() {
            if wanted[at]["type"] == "label" {
                wanted[at].as_object_mut().unwrap().remove("id");
                if wanted[at]["parentId"].as_str().unwrap().starts_with('<') {
                    wanted[at]["parentId"] = rows[at]["parentId"].clone();
                }
            }
        }
        assert_eq!(rows, wanted, "{}", case.name);
        let opaque = tree.positions().filter(|at| tree.kind(*at) == Kind::Opaque);
        let opaque: Vec<Value> = opaque.map(|at| json!([tree.id(at), tree.raw_parent(at)])).collect();
        let wanted = expected["opaque"].as_array().unwrap().iter();
        let wanted: Vec<Value> =
            wanted.map(|opaque| json!([opaque["record"]["id"], opaque["record"]["parentId"]])).collect();
        assert_eq!(opaque, wanted, "{}", case.name);
    }
}

#[test]
fn old_versions_read_as_if_they_had_been_migrated() {
    let cases = cases(&[]);
    let case = |name: &str| cases.iter().find(|case| case.name == name).unwrap();
    let v1 = case("v1");
    assert_eq!(v1.roles(&v1.transcript.tree().path())[..2], ["compactionSummary", "user"]);
    assert_eq!(v1.transcript.leaf(), Some("00000007"));
    let lines = written(&fork(v1.transcript.tree(), 1).unwrap(), &v1.bytes);
    assert!(
        lines[4].ends_with(
            r#""summary":"old","tokensBefore":9,"id":"00000005","parentId":"00000004","firstKeptEntryId":"00000003"}"#
        ),
        "{}",
        lines[4]
    );
    let v2 = case("v2");
    let lines = written(&fork(v2.transcript.tree(), 2).unwrap(), &v2.bytes);
    assert!(lines[2].contains(r#"{"role":"custom","#), "{}", lines[2]);
    let two = case("two-on-one-line");
    assert_eq!(two.transcript.entries().len(), 4);
    assert_eq!(written(&fork(two.transcript.tree(), 3).unwrap(), &two.bytes).len(), 4);
}
