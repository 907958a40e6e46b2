//! The index against a model of the rules that is as plain as they are told: maps of ids, looked up anew each time.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::chat::Content;
use crate::transcript::{Transcript, read_lines};

/// One line, as a test makes it.
#[derive(Debug, Clone)]
struct Given {
    kind: &'static str,
    id: String,
    /// `None`: not named; `Some(None)`: null.
    parent: Option<Option<String>>,
    target: Option<Option<String>>,
    append: Option<String>,
    text: String,
    side: bool,
    ms: u64,
}

#[derive(Default)]
struct Model {
    lines: Vec<Given>,
    /// Logical parents, as ids.
    parents: Vec<Option<String>>,
    valid: Vec<bool>,
    leaf: Option<String>,
    cursor: Option<String>,
    labels: BTreeMap<String, (String, u64)>,
    name: Option<String>,
}

impl Given {
    fn is_node(&self) -> bool {
        !matches!(self.kind, "leaf" | "novelty")
    }

    fn line(&self) -> String {
        let mut line = serde_json::json!({"type": self.kind, "id": self.id, "timestamp": crate::time::iso_ms(self.ms)});
        let fields = line.as_object_mut().unwrap();
        if let Some(parent) = &self.parent {
            fields.insert("parentId".to_owned(), serde_json::json!(parent));
        }
        if let Some(target) = &self.target {
            let field = if self.kind == "compaction" { "firstKeptEntryId" } else { "targetId" };
            fields.insert(field.to_owned(), serde_json::json!(target));
        }
        if let Some(append) = &self.append {
            fields.insert("appendParentId".to_owned(), serde_json::json!(append));
        }
        if self.side {
            fields.insert("appendMode".to_owned(), serde_json::json!("side"));
        }
        for (kind, field) in [("label", "label"), ("session_info", "name"), ("compaction", "summary")] {
            if self.kind == kind {
                fields.insert(field.to_owned(), serde_json::json!(self.text));
            }
        }
        if self.kind == "message" {
            fields.insert("message".to_owned(), serde_json::json!({"role": "user", "content": self.text}));
        }
        line.to_string()
    }
}

impl Model {
    fn add(&mut self, line: &Given) {
        let mut valid = false;
        let parent = if line.kind == "leaf" {
            let known = |id: &String| self.at(id).is_some_and(|at| self.lines[at].kind != "leaf" || self.valid[at]);
            let target = line.target.clone().flatten();
            valid =
                line.target.is_some() && target.as_ref().is_none_or(known) && line.append.as_ref().is_none_or(known);
            if valid {
                self.leaf = target.and_then(|id| self.node(&id));
                self.cursor = line.append.clone().or_else(|| self.leaf.clone());
                self.leaf.clone()
            } else {
                self.through(line.parent.clone().flatten())
            }
        } else if line.is_node() && !line.side {
            let parent = match &line.parent {
                None => self.leaf.clone(),
                Some(None) => None,
                Some(parent) if *parent == self.cursor => self.leaf.clone(),
                Some(Some(id)) => self.through(Some(id.clone())),
            };
            self.leaf = Some(line.id.clone());
            self.cursor = Some(line.id.clone());
            parent
        } else {
            let parent = match &line.parent {
                None if line.is_node() => self.cursor.clone(),
                parent => self.through(parent.clone().flatten()),
            };
            if line.is_node() || line.parent.is_some() {
                self.cursor = Some(line.id.clone());
            }
            parent
        };
        if line.kind == "label" {
            let target = line.target.clone().flatten().unwrap_or_default();
            if line.text.is_empty() {
                self.labels.remove(&target);
            } else {
                self.labels.insert(target, (line.text.clone(), line.ms));
            }
        }
        if line.kind == "session_info" {
            self.name = Some(line.text.trim().to_owned()).filter(|name| !name.is_empty());
        }
        self.parents.push(parent);
        self.valid.push(valid);
        self.lines.push(line.clone());
    }

    /// What stands for a line that is no node, once it was read.
    fn through(&self, id: Option<String>) -> Option<String> {
        let at = id.as_ref().and_then(|id| self.at(id)).filter(|at| !self.lines[*at].is_node());
        at.map_or(id, |at| self.parents[at].clone())
    }

    fn at(&self, id: &str) -> Option<usize> {
        let node = self.lines.iter().rposition(|line| line.id == id && line.is_node());
        node.or_else(|| self.lines.iter().rposition(|line| line.id == id))
    }

    /// The id of the node that an id stands for.
    fn node(&self, id: &str) -> Option<String> {
        let mut id = id.to_owned();
        for _ in 0..=self.lines.len() {
            let at = self.at(&id)?;
            if self.lines[at].is_node() {
                return Some(id);
            }
            id = self.parents[at].clone()?;
        }
        None
    }

    fn parent(&self, at: usize) -> Option<usize> {
        self.at(&self.node(self.parents[at].as_ref()?)?)
    }

    fn path(&self) -> Vec<u32> {
        let mut path = Vec::new();
        let mut next = self.leaf.as_ref().and_then(|leaf| self.at(leaf));
        while let Some(at) = next.filter(|at| !path.contains(&(*at as u32))) {
            path.push(at as u32);
            next = self.parent(at);
        }
        path.reverse();
        path
    }

    fn shown(&self) -> Vec<u32> {
        let path = self.path();
        let kind = |at: &u32| self.lines[*at as usize].kind;
        let is_shown = |at: &&u32| kind(at) == "message";
        let Some(boundary) = path.iter().rposition(|at| kind(at) == "compaction") else {
            return path.iter().filter(is_shown).copied().collect();
        };
        let first = self.lines[path[boundary] as usize].target.clone().flatten();
        let first = first.and_then(|first| self.node(&first)).and_then(|first| self.at(&first));
        let kept = path[..boundary].iter().position(|at| Some(*at as usize) == first).unwrap_or(boundary);
        let first = path.get(kept);
        let kept = path[kept..boundary].iter().filter(|at| is_shown(at) || first == Some(at));
        kept.chain([&path[boundary]]).chain(path[boundary..].iter().filter(is_shown)).copied().collect()
    }
}

fn given() -> impl Strategy<Value = Given> {
    let kinds = prop::sample::select(vec![
        "message",
        "message",
        "message",
        "label",
        "session_info",
        "custom",
        "compaction",
        "leaf",
        "leaf",
        "novelty",
    ]);
    let id = || prop::sample::select(vec!["a", "b", "c", "d", "e", "f", "g"]).prop_map(str::to_owned);
    let link = move || prop::option::of(prop::option::weighted(0.9, id()));
    let text = prop::sample::select(vec!["", " ", "one", "two"]).prop_map(str::to_owned);
    (kinds, id(), link(), link(), prop::option::weighted(0.3, id()), text, prop::bool::weighted(0.2), 1u64..5).prop_map(
        |(kind, id, parent, target, append, text, side, ms)| {
            // A compaction that keeps from a record which is no node is another test's.
            Given { kind, id, parent, target, append, text, side: side && kind != "leaf", ms }
        },
    )
}

/// Lines with ids of their own, most of which follow what was there.
fn conversation() -> impl Strategy<Value = Vec<Given>> {
    prop::collection::vec((given(), 0usize..6, any::<bool>()), 0..20).prop_map(|given| {
        let mut lines: Vec<Given> = Vec::new();
        for (mut line, back, follows) in given {
            line.id = format!("n{}", lines.len());
            let earlier = |back: usize| lines.len().checked_sub(back + 1).map(|at| lines[at].id.clone());
            line.parent = if follows { Some(earlier(0)) } else { Some(earlier(back)) };
            line.target = Some(earlier(back));
            line.append = line.append.and_then(|_| earlier(back / 2));
            lines.push(line);
        }
        lines
    })
}

#[track_caller]
fn check(lines: &[Given]) {
    let mut model = Model::default();
    let text: Vec<String> = lines.iter().map(Given::line).collect();
    lines.iter().for_each(|line| model.add(line));
    let transcript = read_lines(text.join("\n").as_bytes());
    let tree = transcript.tree();
    assert_eq!(tree.len(), lines.len());
    assert_eq!((tree.leaf(), tree.append_parent()), (model.leaf.as_deref(), model.cursor.as_deref()));
    let parents: Vec<_> = tree.positions().map(|at| tree.parent(at).map(|at| at.0 as usize)).collect();
    let expected: Vec<_> = (0..lines.len()).map(|at| model.parent(at)).collect();
    for at in tree.positions().filter(|at| tree.kind(*at).is_node()) {
        assert_eq!(parents[at.0 as usize], expected[at.0 as usize], "{at:?}");
        let children: Vec<usize> = tree.children(Some(at)).iter().map(|at| at.0 as usize).collect();
        let mut follow: Vec<usize> = (0..lines.len())
            .filter(|child| lines[*child].is_node() && expected[*child] == Some(at.0 as usize))
            .collect();
        follow.sort_by_key(|child| (lines[*child].ms, *child));
        assert_eq!(children, follow);
    }
    let path: Vec<u32> = tree.path().iter().map(|at| at.0).collect();
    assert_eq!(path, model.path());
    let label = |target: &String| tree.label(target).map(|label| (label.text.as_ref().to_owned(), label.timestamp_ms));
    for id in lines.iter().flat_map(|line| [Some(&line.id), line.target.as_ref().and_then(Option::as_ref)]).flatten() {
        assert_eq!(label(id), model.labels.get(id).cloned());
    }
    assert_eq!(tree.name().map(|name| &**name), model.name.as_deref());
    let first_kept_is_a_node = |line: &Given| {
        line.kind != "compaction"
            || line.target.iter().flatten().all(|id| model.at(id).is_none_or(|at| lines[at].is_node()))
    };
    if lines.iter().all(first_kept_is_a_node) {
        let shown: Vec<u32> = tree.shown(&tree.path()).iter().map(|at| at.0).collect();
        assert_eq!(shown, model.shown());
    }
    let ids: std::collections::BTreeSet<&str> = lines.iter().map(|line| line.id.as_str()).collect();
    if ids.len() == lines.len() {
        assert_same_messages(&transcript);
    }
}

/// What is shown of the entries that the index names is what is shown of all of them.
#[track_caller]
fn assert_same_messages(transcript: &Transcript) {
    let whole = crate::history::select(&transcript.path_to_leaf(), 1_000_000);
    let shown = transcript.tree().shown(&transcript.tree().path()).into_iter();
    let part = Transcript::part(shown.map(|at| transcript.entries()[at.0 as usize].clone()));
    assert_eq!(crate::history::select(&part.path_to_leaf(), 1_000_000), whole);
}

proptest! {
    #[test]
    fn any_lines_are_what_the_model_says(lines in prop::collection::vec(given(), 0..16)) {
        check(&lines);
    }

    #[test]
    fn any_conversation_is_what_the_model_says(lines in conversation()) {
        check(&lines);
    }
}

#[test]
fn an_entry_takes_few_bytes() {
    assert!(size_of::<Row>() <= 40);
    let mut tree = TreeIndex::default();
    let mut parent = RawParent::Root;
    for number in 0..10_000u64 {
        let id: Arc<str> = format!("{number:016x}").into();
        let kind = EntryKind::Shown([Content::text("hi")].into());
        let entry = Entry { id: Arc::clone(&id), parent: None, timestamp_ms: 1, side: false, kind };
        tree.insert(&entry, &parent, Kind::CustomMessage, number..number + 1);
        parent = RawParent::Id(id);
    }
    assert!(tree.is_plain());
    assert_eq!(tree.path().len(), 10_000);
    assert!(tree.bytes() / tree.len() <= 64 + 17, "{}", tree.bytes() / tree.len());
}

#[track_caller]
fn check_kept(lines: &[&str], expected: &[&str]) {
    let transcript = read_lines(lines.join("\n").as_bytes());
    let tree = transcript.tree();
    let shown: Vec<&str> = tree.shown(&tree.path()).into_iter().map(|at| tree.id(at)).collect();
    assert_eq!(shown, expected);
    assert_same_messages(&transcript);
}

#[test]
fn a_boundary_keeps_what_it_says() {
    let user = |id: &str, parent: &str| {
        format!(r#"{{"type":"message","id":"{id}","parentId":{parent},"message":{{"role":"user","content":"{id}"}}}}"#)
    };
    let (a, b) = (user("a", "\"root\""), user("b", "\"a\""));
    let opaque = r#"{"type":"novelty","id":"root","parentId":null}"#;
    let label = r#"{"type":"label","id":"l","parentId":"b","targetId":"a","label":"x"}"#;
    let boundary = |kind: &str, parent: &str, kept: &str| {
        format!(r#"{{"type":"{kind}","id":"z","parentId":"{parent}","summary":"s","firstKeptEntryId":{kept}}}"#)
    };
    let after = user("c", "\"z\"");
    for kind in ["compaction", "reset"] {
        // An entry, itself, one that is not there, nothing, a number.
        for (kept, expected) in [
            ("\"b\"", &["b", "z", "c"][..]),
            ("\"z\"", &["z", "c"]),
            ("\"gone\"", &["z", "c"]),
            ("null", &["z", "c"]),
            ("7", &["z", "c"]),
            // An unknown record before everything: what hangs on it.
            ("\"root\"", &["a", "b", "z", "c"]),
        ] {
            check_kept(&[opaque, &a, &b, &boundary(kind, "b", kept), &after], expected);
        }
        // A bookkeeping entry is a place like any other, and hides nothing.
        check_kept(&[&a, &b, label, &boundary(kind, "l", "\"l\""), &after], &["l", "z", "c"]);
        check_kept(&[&a, &b, label, &boundary(kind, "l", "\"b\""), &after], &["b", "z", "c"]);
        let between = r#"{"type":"novelty","id":"o","parentId":"a"}"#;
        let b = user("b", "\"o\"");
        check_kept(&[&a, between, &b, &boundary(kind, "b", "\"o\""), &after], &["a", "b", "z", "c"]);
    }
}

#[test]
fn turns_and_settings_are_told() {
    let turn = |number: u8| format!("00000000-0000-0000-0000-0000000000{number:02}");
    let message = |id: &str, parent: &str, rest: String| {
        format!(r#"{{"type":"message","id":"{id}","parentId":{parent},"message":{{{rest}}}}}"#)
    };
    let lines = [
        message("a", "null", format!(r#""role":"assistant","provider":"p","model":"m","turnId":"{}""#, turn(1))),
        message("b", "\"a\"", format!(r#""role":"assistant","turnId":"{}","turnEnd":"done""#, turn(1))),
        r#"{"type":"thinking_level_change","id":"c","parentId":"b","thinkingLevel":"high"}"#.to_owned(),
        message("d", "\"c\"", r#""role":"assistant","provider":"openclaw","model":"delivery-mirror""#.to_owned()),
        message("e", "\"d\"", format!(r#""role":"assistant","provider":"p","model":"n","turnId":"{}""#, turn(2))),
        r#"{"type":"model_change","id":"f","parentId":"d","provider":"q","modelId":"o"}"#.to_owned(),
    ];
    let transcript = read_lines(lines.join("\n").as_bytes());
    let tree = transcript.tree();
    let turns: Vec<_> = tree.positions().map(|at| tree.turn(at).map(|turn| turn.to_string())).collect();
    assert_eq!(turns, [Some(turn(1)), Some(turn(1)), None, None, Some(turn(2)), None]);
    assert_eq!(tree.positions().filter(|at| tree.ends_turn(*at)).collect::<Vec<_>>(), [Position(1)]);
    let settings = |id: &str| tree.settings(&tree.path_to(tree.position(id).unwrap()));
    assert_eq!(settings("b"), Settings { model: Some(("p", "m")), thinking: None });
    assert_eq!(settings("d"), Settings { model: Some(("p", "m")), thinking: Some("high") });
    assert_eq!(settings("e").model, Some(("p", "n")));
    assert_eq!(settings("f").model, Some(("q", "o")));
}

#[test]
fn a_part_grows_as_the_whole_does() {
    let user = |id: &str, parent: &str, rest: &str| {
        format!(
            r#"{{"type":"message","id":"{id}","parentId":"{parent}"{rest},"message":{{"role":"user","content":"{id}"}}}}"#
        )
    };
    let mut lines = vec![
        user("a", "gone", ""),
        user("b", "a", ""),
        r#"{"type":"label","id":"l","parentId":"b","targetId":"a","label":"x"}"#.to_owned(),
        r#"{"type":"compaction","id":"z","parentId":"l","summary":"s","firstKeptEntryId":"l"}"#.to_owned(),
        user("c", "z", ""),
        user("side", "c", r#","appendMode":"side""#),
    ];
    let whole = read_lines(lines.join("\n").as_bytes());
    let shown = whole.tree().shown(&whole.tree().path()).into_iter();
    let mut part = Transcript::part(shown.map(|at| whole.entries()[at.0 as usize].clone()));
    let mut parent = "side";
    for id in ["d", "e", "f"] {
        lines.push(user(id, parent, ""));
        let whole = read_lines(lines.join("\n").as_bytes());
        part.follow(whole.entries().last().unwrap().clone());
        let messages = |transcript: &Transcript| crate::history::select(&transcript.path_to_leaf(), 1_000_000);
        assert_eq!(messages(&part), messages(&whole));
        assert!(part.chain_from(0).is_some(), "requests share what was said before");
        parent = id;
    }
}
