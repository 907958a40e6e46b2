//! Skills: files of the workspace that tell the model how to do something well.
//!
//! **Source:** `skills/<name>/SKILL.md` of nanobot and OpenClaw, with the front matter `name`, `description`, `always` and
//! `metadata.{nanobot|openclaw}.{always, requires.bins, requires.env}`.

use std::fmt::Write;
use std::sync::Arc;

use serde_json::Value;

use super::BOOTSTRAP_CHARS_MAX;
use super::front_matter::front_matter;
use crate::text::{ellipsis, head_and_tail, one_line};

/// Characters of a description that are listed.
const DESCRIPTION_CHARS_MAX: usize = 500;
/// Characters of texts that are shown whole, all skills together; those that find no room are only listed.
const ACTIVE_CHARS_MAX: usize = 60_000;
/// The tool without which no skill can be looked at.
const READER: &str = "read_file";

/// One skill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skill {
    /// The directory it lies in, below `skills`.
    pub directory: String,
    /// What it calls itself; else the directory.
    pub name: String,
    /// What it is for.
    pub description: String,
    /// Its text, if it is to be shown always.
    pub always: Option<Arc<str>>,
    /// What it needs and is not here, each in words.
    pub missing: Vec<String>,
}

/// What a skill needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need<'a> {
    /// A command, by its name.
    Command(&'a str),
    /// A variable of the environment.
    Variable(&'a str),
}

/// The skill in `directory` whose `SKILL.md` has this text.
pub fn read_skill(directory: &str, text: &str, has: impl Fn(Need<'_>) -> bool) -> Skill {
    let (front, body) = front_matter(text);
    let word = |key: &str| front.get(key).and_then(Value::as_str).map(str::trim).filter(|word| !word.is_empty());
    let ours = ["nanobot", "openclaw"].map(|program| front.get("metadata").and_then(|metadata| metadata.get(program)));
    let ours = || ours.into_iter().flatten();
    let needs = |kind: &str| {
        let named = ours().filter_map(|ours| ours.get("requires")?.get(kind)?.as_array());
        named.flatten().filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>()
    };
    let commands = needs("bins").into_iter().filter(|name| !has(Need::Command(name)));
    let commands: Vec<String> = commands.map(|name| format!("the command {}", one_line(&name))).collect();
    let variables = needs("env").into_iter().filter(|name| !has(Need::Variable(name)));
    let missing = commands.into_iter().chain(variables.map(|name| format!("the variable {}", one_line(&name))));
    let always = front.get("always").is_some_and(is_true) || ours().any(|ours| ours.get("always").is_some_and(is_true));
    let body = body.trim();
    Skill {
        directory: directory.to_owned(),
        name: one_line(word("name").unwrap_or(directory)),
        description: one_line(word("description").unwrap_or_default()),
        always: (always && !body.is_empty()).then(|| head_and_tail(body, BOOTSTRAP_CHARS_MAX).into()),
        missing: missing.collect(),
    }
}

fn is_true(value: &Value) -> bool {
    value.as_bool().unwrap_or_else(|| value.as_str().is_some_and(|word| word.eq_ignore_ascii_case("true")))
}

/// Which of `skills` are shown whole: all that are to be, as long as there is room.
fn shown_whole(skills: &[Skill]) -> Vec<(&Skill, &str)> {
    let mut room = ACTIVE_CHARS_MAX;
    let mut shown = Vec::new();
    for skill in skills.iter().filter(|skill| skill.missing.is_empty()) {
        if let Some(text) = skill.always.as_deref()
            && let Some(left) = room.checked_sub(text.chars().count())
        {
            room = left;
            shown.push((skill, text));
        }
    }
    shown
}

/// Those that are always shown.
pub(super) fn active_skills(skills: &[Skill]) -> Option<String> {
    let all: Vec<String> =
        shown_whole(skills).into_iter().map(|(skill, text)| format!("## {}\n\n{text}", skill.name)).collect();
    (!all.is_empty()).then(|| format!("# Active Skills\n\n{}", all.join("\n\n")))
}

/// The list of the others, for sessions that can read files.
pub(super) fn skills_index(skills: &[Skill], has_tool: impl Fn(&str) -> bool) -> Option<String> {
    let whole = shown_whole(skills);
    let listed: Vec<&Skill> =
        skills.iter().filter(|skill| !whole.iter().any(|(shown, _)| shown.directory == skill.directory)).collect();
    if listed.is_empty() || !has_tool(READER) {
        return None;
    }
    let mut out = String::from(
        "# Skills\n\n\
         Each is a file that tells how to do something well. Before you do what one of them is for, read it with read_file.\n",
    );
    for skill in listed {
        write!(out, "\n- {}", skill.name).expect("writing to a string cannot fail");
        if !skill.description.is_empty() {
            let description = ellipsis(&skill.description, DESCRIPTION_CHARS_MAX);
            write!(out, ": {description}").expect("writing to a string cannot fail");
        }
        match &skill.missing[..] {
            [] => write!(out, " (skills/{}/SKILL.md)", skill.directory),
            missing => write!(out, " (unavailable: needs {})", missing.join(", ")),
        }
        .expect("writing to a string cannot fail");
    }
    Some(out)
}
