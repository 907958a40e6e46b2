//! What became of the things that moved, one line each.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use domain::exchange::Remark;
use domain::ids::SessionKey;
use serde::Serialize;
use serde_json::{Value, json};

use super::{print, print_json};
use crate::cli::Output;

/// One thing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Item {
    /// What it is: `config`, `session`, `memory` ...
    pub kind: &'static str,
    /// Its name: a session's key, or a path below the source.
    pub name: String,
    /// What became of it.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// What was odd about it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<Remark>,
}

/// What became of a thing, or would.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "result", rename_all = "snake_case")]
pub enum Outcome {
    /// It is there now. Reports say `imported` or `exported`.
    Moved {
        /// Where.
        to: PathBuf,
    },
    /// It was there before.
    AlreadyHere {
        /// Where.
        to: PathBuf,
    },
    /// It stays where it is.
    Skipped {
        /// Why.
        why: String,
    },
    /// Another one has its place; both are kept.
    Conflict {
        /// Its place.
        to: PathBuf,
        /// Where the one that came is.
        copy: PathBuf,
        /// What brings it, where something else was here before.
        #[serde(skip_serializing_if = "Option::is_none")]
        how: Option<String>,
    },
    /// It could not be read or written.
    Failed {
        /// Why.
        why: String,
    },
}

/// Everything.
#[derive(Debug, Default)]
pub struct Report {
    /// In the order in which it was done.
    pub items: Vec<Item>,
    /// Whether something failed as there is no space for it, or the file system is read-only.
    pub no_space: bool,
    /// Sessions that are here and give way to one that comes.
    pub trials: Vec<SessionKey>,
}

/// How a report is worded.
#[derive(Debug, Clone, Copy)]
pub struct Wording {
    /// `imported` or `exported`.
    pub moved: &'static str,
    /// `already here` or `already there`.
    pub already: &'static str,
    /// Whether nothing was done.
    pub dry_run: bool,
}

// === impl Report ===

impl Report {
    /// Adds an item.
    pub fn add(&mut self, kind: &'static str, name: impl Into<String>, outcome: Outcome, remarks: Vec<Remark>) {
        self.items.push(Item { kind, name: name.into(), outcome, remarks });
    }

    /// Adds something that stays where it is.
    pub fn skip(&mut self, kind: &'static str, name: impl Into<String>, why: impl Into<String>) {
        self.add(kind, name, Outcome::Skipped { why: why.into() }, Vec::new());
    }

    /// Adds something that could not be moved.
    pub fn fail(&mut self, kind: &'static str, name: impl Into<String>, why: impl ToString) {
        self.add(kind, name, Outcome::Failed { why: why.to_string() }, Vec::new());
    }

    /// How many could not be moved.
    pub fn failed(&self) -> usize {
        self.count(|outcome| matches!(outcome, Outcome::Failed { .. }))
    }

    /// How many did not come as something else was here before.
    pub fn left(&self) -> usize {
        self.count(|outcome| matches!(outcome, Outcome::Conflict { how: Some(_), .. }))
    }

    fn count(&self, is: impl Fn(&Outcome) -> bool) -> usize {
        self.items.iter().filter(|item| is(&item.outcome)).count()
    }

    /// Prints it.
    pub fn print(&self, from: &Path, to: &Path, words: Wording, output: Output) -> anyhow::Result<()> {
        if output.json { print_json(&self.body(from, to, words)) } else { print(&self.text(from, to, words)) }
    }

    fn counts(&self) -> [usize; 5] {
        [
            self.count(|outcome| matches!(outcome, Outcome::Moved { .. })),
            self.count(|outcome| matches!(outcome, Outcome::AlreadyHere { .. })),
            self.count(|outcome| matches!(outcome, Outcome::Skipped { .. })),
            self.count(|outcome| matches!(outcome, Outcome::Conflict { .. })),
            self.failed(),
        ]
    }

    fn body(&self, from: &Path, to: &Path, words: Wording) -> Value {
        let [moved, already, skipped, conflicts, failed] = self.counts();
        let items = self.items.iter().map(|item| {
            let mut item = json!(item);
            if item["result"] == "moved" {
                item["result"] = json!(words.moved);
            }
            item
        });
        let items: Vec<Value> = items.collect();
        let counts = json!({words.moved: moved, "already_here": already, "skipped": skipped, "conflicts": conflicts, "failed": failed});
        json!({"dry_run": words.dry_run, "from": from, "to": to, "items": items, "counts": counts})
    }

    fn text(&self, from: &Path, to: &Path, words: Wording) -> String {
        let mut text = String::new();
        for item in &self.items {
            let (result, rest) = match &item.outcome {
                Outcome::Moved { .. } if words.dry_run => ("would come", String::new()),
                Outcome::Moved { .. } => (words.moved, String::new()),
                Outcome::AlreadyHere { .. } => (words.already, String::new()),
                Outcome::Skipped { why } => ("skipped", format!(": {why}")),
                Outcome::Conflict { to, copy, how } => {
                    let how = how.as_deref().map(|how| format!("; {how}")).unwrap_or_default();
                    ("conflict", format!(": {} stays, the other copy is {}{how}", to.display(), copy.display()))
                }
                Outcome::Failed { why } => ("failed", format!(": {why}")),
            };
            push(&mut text, format_args!("{result:13} {:9} {}{rest}\n", item.kind, item.name));
            for remark in &item.remarks {
                let line = remark.line.map(|line| format!("line {line}: ")).unwrap_or_default();
                push(&mut text, format_args!("{:13}   {line}{}\n", "", remark.what));
            }
        }
        let [moved, already, skipped, conflicts, failed] = self.counts();
        let how = if words.dry_run { "would be done, nothing was" } else { "done" };
        push(
            &mut text,
            format_args!(
                "{} -> {} ({how}): {moved} {}, {already} {}, {skipped} skipped, {conflicts} in conflict, {failed} failed",
                from.display(),
                to.display(),
                words.moved,
                words.already
            ),
        );
        text
    }
}

fn push(text: &mut String, piece: std::fmt::Arguments<'_>) {
    text.write_fmt(piece).expect("writing to a string cannot fail");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thing_has_a_line() {
        let conflict = || {
            let how = Some("copy it".to_owned());
            Outcome::Conflict { to: "/t/s".into(), copy: "/t/c".into(), how }
        };
        let mut report = Report::default();
        let remarks = vec![Remark::at(3, "odd")];
        report.add("session", "telegram:1", Outcome::Moved { to: "/t/a".into() }, remarks);
        report.add("workspace", "SOUL.md", conflict(), Vec::new());
        report.skip("other", "auth", "sign in again");
        report.fail("session", "x.jsonl", "no");
        let words = Wording { moved: "imported", already: "already here", dry_run: false };
        let text = report.text(Path::new("/f"), Path::new("/t"), words);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "imported      session   telegram:1");
        assert_eq!(lines[1].trim(), "line 3: odd");
        assert_eq!(lines[2], "conflict      workspace SOUL.md: /t/s stays, the other copy is /t/c; copy it");
        assert_eq!(report.left(), 1);
        assert_eq!(lines[5], "/f -> /t (done): 1 imported, 0 already here, 1 skipped, 1 in conflict, 1 failed");
        let body = report.body(Path::new("/f"), Path::new("/t"), words);
        assert_eq!(body["items"][0]["result"], "imported");
        assert_eq!((&body["counts"]["failed"], report.failed()), (&json!(1), 1));
    }
}
