//! What commands answer, and what they change. Everything here blocks: it runs on the blocking pool, alone with the
//! transcript file.

use std::io;
use std::sync::Arc;

use domain::chat::{StopReason, Usage, plain_text};
use domain::command::{Command, GoalAsk, NOTHING_SAID};
use domain::goal::GOAL;
use domain::keys::SessionKind;
use domain::prompt::Skill;
use domain::tally::{DEFAULT, MODEL_NOTE, ModelNote, OFF, Tally};
use domain::text::{counted, ellipsis, one_line};
use domain::transcript::{Entry, Kind, Position, TreeIndex, TurnClose, read_entry, view};
use protocol::edit::Edit;
use supervision::ports::Ports;

use crate::draw;
use crate::reading::{Reading, Source};
use crate::settings::{self, Settings};
use crate::shared::SessionConfig;
use crate::turn::{Commanded, Drawn};

/// Characters of a message that `/history` shows.
const SHOWN_CHARS_MAX: usize = 200;
/// Characters of an entry that `/tree` shows.
const TREE_CHARS_MAX: usize = 60;
/// Entries that `/tree` shows: the newest.
const TREE_MAX: usize = 40;

/// What is told when everything was read anew.
pub const REFRESHED: &str =
    "The conversation goes on. Instructions, memory and skills of the workspace were read anew.";
/// What is told where memory and prompts are not open.
pub const CLOSED: &str = "That part of the workspace is not open to this session. Nothing was changed.";
/// What is told when the memory does not answer.
pub const NO_MEMORY: &str = "The memory did not answer; please try again.";
/// What is told when the transcript cannot be read.
pub const UNREADABLE: &str = "The conversation cannot be read right now; nothing was changed.";

/// Follows `command`, behind what was `read`.
pub fn follow(
    command: &Command,
    read: Reading,
    source: &Source,
    (config, kind): (&SessionConfig, SessionKind),
    ports: &Ports,
) -> io::Result<Commanded> {
    let tell = |text: String| Commanded { text, ..Commanded::default() };
    let settings = Settings::of(config, kind, &read.tally);
    if read.tree.is_empty() && command.is_about_what_was_said() {
        return Ok(tell(NOTHING_SAID.to_owned()));
    }
    let edit = match command {
        Command::History(count) => return history(&read.tree, source, *count).map(tell),
        Command::Tree => return tree(&read.tree, source).map(tell),
        Command::Usage => return usage(&read.tree, source).map(tell),
        Command::Context => return Ok(tell(context(&read, settings.preset.context_window_tokens))),
        Command::Model(name) => return Ok(model(name.as_deref(), read, (config, kind), ports)),
        Command::Think(level) => return Ok(think(*level, read, &settings, ports)),
        Command::Goal(ask) => return Ok(goal(ask, read, ports)),
        // Those are done elsewhere.
        Command::New { .. }
        | Command::Refresh { .. }
        | Command::Compact { .. }
        | Command::Skills
        | Command::Dream(_)
        | Command::Trigger(_) => {
            return Ok(tell(String::new()));
        }
        Command::Branch { entry } => Edit::Branch { to: Some(entry.clone()), summary: None },
        Command::Label { entry, text } => Edit::Label { entry: entry.clone(), text: text.clone() },
        Command::Name(name) => Edit::Rename { name: name.clone() },
    };
    let drawn = edit.check().and_then(|()| draw::draw_first(read, source, &edit, ports));
    Ok(match drawn {
        Ok(drawn) => Commanded { text: done(command, &drawn), drawn: Some(Box::new(drawn)), ..Commanded::default() },
        Err(error) => tell(format!("Nothing was changed: {error}.")),
    })
}

fn done(command: &Command, drawn: &Drawn) -> String {
    match command {
        Command::Branch { .. } if drawn.additions.is_empty() => "The conversation stands there already.".to_owned(),
        Command::Branch { entry } => {
            format!("The conversation goes on behind entry {entry}. What came after it stays, as a branch.")
        }
        Command::Label { entry, text: Some(text) } => format!("Entry {entry} is labelled {text}."),
        Command::Label { entry, text: None } => format!("Entry {entry} has no label any more."),
        Command::Name(name) => format!("This session is called {name}."),
        Command::New { .. }
        | Command::Refresh { .. }
        | Command::Compact { .. }
        | Command::History(_)
        | Command::Model(_)
        | Command::Think(_)
        | Command::Goal(_)
        | Command::Dream(_)
        | Command::Skills
        | Command::Trigger(_)
        | Command::Tree
        | Command::Usage
        | Command::Context => String::new(),
    }
}

/// Says which model answers, or sets it.
fn model(name: Option<&str>, read: Reading, (config, kind): (&SessionConfig, SessionKind), ports: &Ports) -> Commanded {
    let tell = |text: String| Commanded { text, ..Commanded::default() };
    let told = |tally: &Tally| Settings::of(config, kind, tally).told();
    let preset = match name {
        None => {
            let gone = read.tally.preset.as_ref().filter(|name| settings::check(&config.presets, name).is_err());
            let gone = gone.map(|name| format!(" Preset {name} is not available any more.")).unwrap_or_default();
            return tell(format!("Model: {}.{gone} {}", told(&read.tally), settings::list(&config.presets)));
        }
        Some(name) if name.eq_ignore_ascii_case(DEFAULT) => None,
        Some(name) => match settings::check(&config.presets, name) {
            Ok(preset) => Some(preset),
            Err(why) => return tell(why),
        },
    };
    let text = format!("From now on, {} answers here.", told(&Tally { preset: preset.clone(), ..read.tally.clone() }));
    let data = serde_json::to_value(ModelNote { preset }).ok();
    let drawn = draw::set(read, "model", ports, |pen| pen.custom(MODEL_NOTE, data.as_ref()));
    Commanded { text, drawn: Some(Box::new(drawn)), ..Commanded::default() }
}

/// Says what the session works on, ends that, or names it as what is to be gone on with.
fn goal(ask: &GoalAsk, read: Reading, ports: &Ports) -> Commanded {
    let tell = |text: String| Commanded { text, ..Commanded::default() };
    let goal = read.tally.goal.clone();
    let ended = match (ask, &goal) {
        (GoalAsk::Show, Some(goal)) => return tell(goal.told()),
        (GoalAsk::Resume, Some(goal)) if goal.is_open() => {
            return Commanded { resumes: Some(Arc::clone(&goal.objective)), ..Commanded::default() };
        }
        (GoalAsk::End(status), Some(goal)) if goal.is_open() => goal.ended(*status, None),
        // The last is done by the turn itself.
        (GoalAsk::Show | GoalAsk::End(_) | GoalAsk::Resume | GoalAsk::Set(_), _) => {
            return tell("No goal is worked on here. /goal followed by one begins with it.".to_owned());
        }
    };
    let text = ended.told();
    let data = serde_json::to_value(ended).ok();
    let drawn = draw::set(read, "goal", ports, |pen| pen.custom(GOAL, data.as_ref()));
    Commanded { text, drawn: Some(Box::new(drawn)), ..Commanded::default() }
}

/// The skills that there are, one to a line.
pub fn skills(skills: &[Skill]) -> String {
    if skills.is_empty() {
        return "There are no skills here.".to_owned();
    }
    let line = |skill: &Skill| {
        let description = if skill.description.is_empty() { String::new() } else { format!(": {}", skill.description) };
        let missing = match skill.missing.as_slice() {
            [] => String::new(),
            missing => format!(" (unavailable: needs {})", missing.join(", ")),
        };
        format!("{}{}{missing}", skill.name, ellipsis(&description, SHOWN_CHARS_MAX))
    };
    skills.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Says how hard the model thinks, or sets it.
fn think(level: Option<&'static str>, read: Reading, settings: &Settings, ports: &Ports) -> Commanded {
    let Some(level) = level else {
        let text = match (&read.tally.effort, &settings.preset.effort) {
            (Some(level), _) => format!("Thinking: {level}."),
            (None, Some(level)) => format!("Thinking: {level}, as configured."),
            (None, None) => "Thinking: as the provider chooses.".to_owned(),
        };
        return Commanded { text, ..Commanded::default() };
    };
    let text = match level {
        DEFAULT => "From now on, the model thinks as configured.".to_owned(),
        OFF => "From now on, the model is asked for no thinking.".to_owned(),
        level => format!("From now on, the model is asked for {level} thinking."),
    };
    let drawn = draw::set(read, "thinking", ports, |pen| pen.thinking_level(level));
    Commanded { text, drawn: Some(Box::new(drawn)), ..Commanded::default() }
}

/// The last messages of the conversation.
fn history(tree: &TreeIndex, source: &Source, count: usize) -> io::Result<String> {
    let mut lines = Vec::new();
    for at in since_reset(tree).into_iter().rev() {
        if lines.len() == count {
            break;
        }
        lines.extend(entry(tree, source, at)?.as_ref().and_then(message_line));
    }
    lines.reverse();
    Ok(if lines.is_empty() { NOTHING_SAID.to_owned() } else { lines.join("\n") })
}

/// A message of the conversation on one line; `None` for all else.
fn message_line(entry: &Entry) -> Option<String> {
    let (who, text) = match (entry.user(), entry.assistant()) {
        (Some(user), _) if user.event.is_some() => ("event", plain_text(&user.content)),
        (Some(user), _) if !user.is_command() => ("user", plain_text(&user.content)),
        (_, Some(assistant)) if !assistant.transcript_only => ("assistant", assistant.message.text.clone()),
        (_, _) => return None,
    };
    let text = one_line(text.trim());
    (!text.is_empty()).then(|| format!("{who}: {}", ellipsis(&text, SHOWN_CHARS_MAX)))
}

/// The newest messages and summaries of all branches, in the order of the file.
fn tree(tree: &TreeIndex, source: &Source) -> io::Result<String> {
    let shown =
        |at| matches!(tree.kind(at), Kind::User | Kind::Event | Kind::Assistant | Kind::Compaction | Kind::Reset);
    let mut nodes = view::tree(tree, |_| String::new());
    // As many as where all of them are shown.
    let chars = view::id_chars(nodes.iter().map(|node| &*node.id));
    nodes.retain(|node| shown(node.at) && !node.side);
    nodes.sort_by_key(|node| node.at);
    let older = nodes.len().saturating_sub(TREE_MAX);
    let mut lines = Vec::with_capacity(TREE_MAX + 2);
    lines.push("● is the conversation as it stands; /branch goes on behind an entry.".to_owned());
    if older > 0 {
        lines.push(format!("({older} before)"));
    }
    for node in nodes.drain(older..) {
        let Some(entry) = entry(tree, source, node.at)? else { continue };
        if entry.assistant().is_some_and(|assistant| assistant.transcript_only) {
            continue;
        }
        let mark = view::mark_of(node.on_path, node.side);
        let preview = view::preview(&entry);
        let label = node.label.map(|label| format!(" [{label}]")).unwrap_or_default();
        let id: String = node.id.chars().take(chars).collect();
        let who = node.role.unwrap_or(node.kind);
        lines.push(format!("{mark} {id} {who}: {}{label}", ellipsis(&preview, TREE_CHARS_MAX)));
    }
    Ok(lines.join("\n"))
}

/// What the model has read and written since the conversation began.
fn usage(tree: &TreeIndex, source: &Source) -> io::Result<String> {
    let (mut sum, mut calls, mut answered, mut other) = (Usage::default(), 0_u64, 0_u64, 0_u64);
    for at in since_reset(tree).into_iter().filter(|at| tree.kind(*at) == Kind::Assistant) {
        let Some(entry) = entry(tree, source, at)? else { continue };
        let Some(assistant) = entry.assistant().filter(|assistant| !assistant.transcript_only) else { continue };
        sum = sum.plus(assistant.message.usage);
        match assistant.message.stop {
            StopReason::Stop | StopReason::Length | StopReason::ToolUse => calls += 1,
            // A notice stands in place of what the model would have said.
            StopReason::Error | StopReason::Aborted => {}
        }
        match assistant.end {
            Some(TurnClose::Done) => answered += 1,
            Some(TurnClose::Failed | TurnClose::Dead | TurnClose::Cancelled) => other += 1,
            None => {}
        }
    }
    let Usage { input_tokens, output_tokens, cached_tokens } = sum;
    let other = if other == 0 { String::new() } else { format!(" and {other} cancelled or failed") };
    Ok(format!(
        "This conversation: {} answered{other}, with {} that came to their end: {input_tokens} tokens read by the model \
         ({cached_tokens} of them from its cache), {output_tokens} written. Summaries and the naming of conversations are \
         not counted.",
        counted(answered, "turn"),
        counted(calls, "model call")
    ))
}

/// How much of the model's window the conversation fills.
fn context(read: &Reading, window_tokens: u64) -> String {
    let Some(fill) = read.tally.fill(Some(read.window.shown())) else { return NOTHING_SAID.to_owned() };
    format!(
        "The conversation has {}. What would not fit any more is summed up by the model, the oldest first; the transcript \
         keeps it.",
        fill.told(window_tokens)
    )
}

/// The entries of the conversation, since it last began anew.
fn since_reset(tree: &TreeIndex) -> Vec<Position> {
    let mut path = tree.path();
    let begin = path.iter().rposition(|at| tree.kind(*at) == Kind::Reset).map_or(0, |at| at + 1);
    path.split_off(begin.min(path.len()))
}

fn entry(tree: &TreeIndex, source: &Source, at: Position) -> io::Result<Option<Entry>> {
    Ok(read_entry(tree, at, &source.range(tree.place(at))?))
}
