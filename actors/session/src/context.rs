//! The conversation in memory, while it is hot.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use domain::body::TurnBody;
use domain::chat::{AssistantMessage, Message, StopReason, Usage, plain_text};
use domain::goal::Goal;
use domain::history::{Kept, Render, Runtime, Trim};
use domain::ids::{SessionKey, TurnId};
use domain::keys::{Key, SessionKind};
use domain::prompt::{Built, DROPPED_NOTICE, EMPTY_ANSWER, Nudge, RequestParts, Round, chat_request, past_of};
use domain::run::RunSpec;
use domain::tally::Tally;
use domain::transcript::{Entry, Transcript, TreeIndex, UserMark, turn_record};
use protocol::session::TurnRecord;
use protocol::turn::TurnResult;

use crate::file::Standing;
use crate::reading::Window;
use crate::shared::Shared;
use crate::turn::{Tools, Written};

/// How long a conversation in memory is trusted before the file is looked at again.
pub const FRESH_FOR: Duration = Duration::from_secs(2);

/// What the model can see of a transcript, counted among what all sessions keep.
pub struct Context {
    window: Window,
    kept: Kept,
    /// When it was last known to be what the file says.
    pub checked_at: Duration,
    /// What could not be read of the file when it was loaded, and where that is now.
    pub set_aside: Option<Box<str>>,
    shared: Arc<Shared>,
}

/// What a conversation in memory says of a turn.
pub enum Told {
    /// All that there is.
    Known(Option<TurnRecord>),
    /// The file has to be asked.
    Unknown,
}

/// How a request is to be made.
#[derive(Debug, Clone)]
pub struct Asked<'a> {
    /// The session's key.
    pub key: &'a SessionKey,
    /// Whether tools are on offer.
    pub tools: Tools,
    /// What the model is told behind the conversation.
    pub nudge: Option<Nudge>,
    /// What may be offered.
    pub kind: SessionKind,
    /// Where the conversation works, if not in the workspace.
    pub project: Option<&'a Path>,
    /// What ties the turn to its message.
    pub mark: UserMark,
    /// How the turn is cut to size.
    pub trim: Trim,
    /// What the session was set to.
    pub tally: &'a Tally,
    /// What the session works on.
    pub goal: Option<&'a Goal>,
    /// What it was sent to do, of a sub-agent.
    pub run: Option<&'a RunSpec>,
    /// Whether the conversation begins anew with the turn.
    pub begins_anew: bool,
}

// === impl Context ===

impl Context {
    /// Keeps `window`.
    pub fn new(window: Window, now: Duration, shared: &Arc<Shared>) -> Self {
        shared.hot.add(window.bytes);
        Self { window, kept: Kept::default(), checked_at: now, set_aside: None, shared: Arc::clone(shared) }
    }

    /// With what was found in the file when it was loaded.
    pub fn found(mut self, standing: &Standing) -> Self {
        self.set_aside = standing.found.as_ref().and_then(|found| found.lost.as_deref()).map(Box::from);
        self
    }

    /// Adds our own entries, whose lines take `bytes`, as they are committed.
    pub fn push(&mut self, entries: Vec<Entry>, bytes: u64) {
        self.window.bytes += bytes;
        self.shared.hot.add(bytes);
        for entry in entries {
            self.window.transcript.follow(entry);
        }
    }

    /// Lets go what no request can show any more, once that is most of it. Between turns.
    pub fn trim(&mut self) {
        let before = self.window.bytes;
        if self.window.trim(self.shared.window_tokens) {
            self.kept = Kept::default();
            self.shared.hot.take(before - self.window.bytes);
        }
    }

    /// The next model call of `turn`.
    pub fn request(&mut self, turn: TurnId, body: &TurnBody, asked: Asked<'_>) -> Built {
        let shared = &self.shared;
        let settings = shared.settings(asked.kind, asked.tally);
        let (key, past) = (Key::from(asked.key), shared.system.past());
        let frame = match asked.run {
            Some(run) => Arc::new(shared.system.frame_of_run(
                run,
                &run.policy(&shared.config.policies),
                &shared.rules.tools,
                asked.project,
            )),
            None => shared.system.frame(asked.kind, &key, asked.project),
        };
        let runtime = Runtime { key: &key, zone: &shared.config.reset.zone };
        let parts = RequestParts {
            render: Render { runtime: shared.config.runtime_context.then_some(runtime), trim: asked.trim },
            mark: Some(&asked.mark),
            model: &settings.preset.model,
            max_tokens: settings.preset.max_tokens,
            temperature: settings.preset.temperature,
            effort: settings.preset.effort.as_ref(),
            context_window_tokens: settings.preset.context_window_tokens,
            context_block_limit: shared.config.context_block_limit,
            frame: &frame,
            past: &past_of(&past, &key, asked.run.is_none() && shared.system.remembers(asked.kind)),
            transcript: &self.window.transcript,
            turn,
            body,
            round: match asked.tools {
                Tools::Offered => Round::Open,
                Tools::Withheld => Round::Last,
            },
            nudge: asked.nudge.as_ref(),
            goal: asked.goal,
            begins_anew: asked.begins_anew,
        };
        chat_request(&parts, &mut self.kept)
    }

    /// What the model is shown of it.
    pub fn shown(&self) -> impl Iterator<Item = &Entry> {
        self.window.shown()
    }

    /// The first message and the first answer of what is in memory; `None` where one of them is missing.
    pub fn first_words(&self) -> Option<(String, String)> {
        let entries = self.window.transcript.entries();
        let said = entries.iter().find_map(|entry| entry.user().filter(|user| user.is_said()))?;
        let answers = entries.iter().filter_map(|entry| entry.assistant());
        // What stands in place of an answer says nothing of the conversation.
        let says = |message: &AssistantMessage| {
            message.error.is_none() && !message.text.trim().is_empty() && message.text != EMPTY_ANSWER
        };
        let mut answers = answers.filter(|answer| !answer.transcript_only && says(&answer.message));
        Some((plain_text(&said.content), answers.next()?.message.text.clone()))
    }

    /// What the transcript has of a turn.
    pub fn record(&self, turn: TurnId) -> Told {
        let transcript = &self.window.transcript;
        let from_its_begin =
            transcript.entries().iter().any(|entry| entry.user().is_some() && entry.turn() == Some(turn));
        let record = record(transcript, turn);
        let whole = (from_its_begin || self.window.is_all) && matches!(record, Some(TurnRecord::Ended { .. }));
        // A branch that was left may have it, or its end, or a session of before.
        if whole { Told::Known(record) } else { Told::Unknown }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        self.shared.hot.take(self.window.bytes);
    }
}

/// What `transcript` has of a turn, for its asker.
pub fn record(transcript: &Transcript, turn: TurnId) -> Option<TurnRecord> {
    use domain::transcript::TurnClose;
    if let Some(into) = joined(transcript, turn) {
        let answer = record(transcript, into).and_then(|record| match record {
            TurnRecord::Ended { text, stop, usage, model, .. } => Some((text, stop, usage, model)),
            TurnRecord::Open => None,
        });
        let open = || (String::new(), StopReason::Stop, Usage::default(), String::new());
        let (text, stop, usage, model) = answer.unwrap_or_else(open);
        return Some(TurnRecord::Ended { result: TurnResult::Joined, into: Some(into), text, stop, usage, model });
    }
    let record = turn_record(transcript, turn)?;
    let Some(end) = record.end else { return Some(TurnRecord::Open) };
    let (result, text) = match end {
        TurnClose::Done => (TurnResult::Done, record.text),
        TurnClose::Failed => (TurnResult::Failed, record.error.unwrap_or(record.text)),
        TurnClose::Dead => (TurnResult::DeadLettered, record.error.unwrap_or(record.text)),
        TurnClose::Cancelled => (TurnResult::Cancelled, record.error.unwrap_or(record.text)),
    };
    let stop = record.stop.unwrap_or(StopReason::Stop);
    let (usage, model) = (record.usage, record.model.to_string());
    Some(TurnRecord::Ended { result, into: None, text, stop, usage, model })
}

/// The turn that took up the message of `turn`, in whichever branch; never a turn that was taken up itself.
fn joined(transcript: &Transcript, turn: TurnId) -> Option<TurnId> {
    let entries = transcript.entries().iter();
    let of = |of: TurnId| entries.clone().rev().filter(move |entry| entry.turn() == Some(of));
    let into = of(turn).find_map(Entry::joined)?;
    of(into).all(|entry| entry.joined().is_none()).then_some(into)
}

/// Which of `turns` have their end in the transcript.
pub fn answered(tree: &TreeIndex, turns: &HashSet<TurnId>) -> HashSet<TurnId> {
    if turns.is_empty() {
        return HashSet::new();
    }
    let ends = tree.positions().filter(|at| tree.ends_turn(*at));
    ends.filter_map(|at| tree.turn(at)).filter(|turn| turns.contains(turn)).collect()
}

/// How far `turn` stands in `transcript`.
pub fn written(transcript: &Transcript, turn: TurnId) -> Written {
    let mut written = Written::default();
    let mut joins = false;
    for entry in transcript.path_to_leaf() {
        let joined = entry.joined() == Some(turn);
        written.steered += u32::from(joined && !joins && !written.messages.is_empty());
        joins = joined;
        if entry.turn() != Some(turn) {
            continue;
        }
        written.user |= entry.user().is_some();
        if let Some(assistant) = entry.assistant() {
            written.messages.push(Message::Assistant(Arc::clone(&assistant.message)));
        }
        if let Some(result) = entry.tool_result() {
            written.messages.push(Message::ToolResult(Arc::clone(&result.result)));
        }
    }
    written
}

/// What messages said that were dropped since the last turn that was none of them.
pub fn dropped(transcript: &Transcript) -> Vec<String> {
    let (mut said, mut turn) = (Vec::new(), None);
    for entry in transcript.path_to_leaf().into_iter().rev() {
        if let Some(assistant) = entry.assistant() {
            if assistant.message.error.as_deref() != Some(DROPPED_NOTICE) {
                break;
            }
            turn = assistant.turn;
        } else if let Some(user) = entry.user() {
            if entry.turn() != turn || turn.is_none() {
                break;
            }
            said.push(plain_text(&user.content));
        }
    }
    said.reverse();
    said
}
