//! Runs: what a session sends a sub-agent to do, and what that reports. Pure.
//!
//! A run is a session of its own, with the key `agent:<id>:subagent:<run id>`. What it was sent to do rides in the body of
//! its first message, and stands before that in its transcript as a `custom` entry of type [`RUN`], which is how it is
//! known over restarts. Its id is made of the call that asked for it: whoever repeats that call means the same run.

pub mod ask;
mod report;

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::ids::{BadId, RunId, SessionKey, Source, ToolCallId, TurnId};
use crate::keys::{AgentId, Base, Key, Place};
use crate::policy::{Pattern, Policies, Policy, Profile, ToolRule};
use crate::scope::Scope;
use crate::transcript::Entry;

pub use ask::RunAsk;
pub use report::{Ended, REPORT_BYTES_MAX, Report, STEPS_SHOWN, Status, Step, is_silent};

/// The `customType` of the entry.
pub const RUN: &str = "greenroom.run";
/// Characters of a label that was made of a task.
const LABEL_CHARS_MAX: usize = 30;
/// Tools that no sub-agent has, whatever its parent may.
const NEVER: [&str; 8] =
    ["spawn", "subagents", "cron", "message", "gateway", "sessions_spawn", "sessions_send", "agents_list"];

/// How something is said to a sub-agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Saying {
    /// For a turn of its own, behind what it does.
    Send,
    /// In what it does, as soon as the calls under way have ended.
    Steer,
}

/// What a sub-agent was sent to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunSpec {
    /// The run.
    pub run: RunId,
    /// Whose it is.
    pub parent: SessionKey,
    /// The turn that asked for it.
    pub turn: TurnId,
    /// The door of that turn: with the parent it decides what the run may do.
    pub source: Source,
    /// For people.
    pub label: Arc<str>,
    /// What is to be done.
    pub task: Arc<str>,
    /// The preset of the model; the parent's kind of session decides otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<Arc<str>>,
    /// The tools that it is given, of those that its parent has; empty for all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<Arc<str>>,
    /// Seconds after which it is stopped; 0 for no limit.
    #[serde(default)]
    pub timeout_s: u32,
    /// Tokens, read and written, after which it is stopped; 0 for no limit.
    #[serde(default)]
    pub budget_tokens: u64,
    /// Rounds with tools that it has; 0 for as many as any turn.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub rounds: u32,
    /// Whether it begins with what its parent's conversation was before the turn that asked for it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fork: bool,
    /// Whether it outlives a stop of its parent.
    #[serde(default)]
    pub detached: bool,
    /// Where the parent's answer to its report goes: a route, as JSON. `None`: it is only kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route: Option<Value>,
    /// Where it works, if not in the workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<Arc<Scope>>,
    /// The run that it does once more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_of: Option<RunId>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

// === impl RunId ===

impl RunId {
    /// That of a call which asks for this. Models use the ids of calls again in later rounds of a turn: what is asked for tells
    /// the calls apart, and is the same when a turn that crashed makes its call again.
    pub fn of_call(turn: TurnId, call: &ToolCallId, asks: &str) -> Self {
        Self(uuid::Uuid::new_v5(&turn.0, format!("{}\0{asks}", call.0).as_bytes()))
    }
}

// === impl RunSpec ===

impl RunSpec {
    /// The key of its session.
    pub fn key(&self) -> Result<SessionKey, BadId> {
        child_key(&self.parent, self.run)
    }

    /// What it may do: what its parent may, and less.
    pub fn policy(&self, policies: &Policies) -> Policy {
        let parent = policies.of(policies.kind(&self.parent, &self.source));
        let names = |names: &mut dyn Iterator<Item = &str>| names.map(|name| Pattern::Name(name.to_owned())).collect();
        let allow = names(&mut self.tools.iter().map(|name| &**name));
        let deny = names(&mut NEVER.into_iter());
        let mut policy = Policy::clone(parent);
        policy.tools.push(ToolRule { profile: Profile::Full, allow, deny });
        policy
    }

    /// The same run with another task: what it is told when it has begun.
    pub fn goes_on_with(&self, text: &str) -> Self {
        Self { task: text.into(), ..self.clone() }
    }

    /// What stands in the system prompt.
    pub fn instruction(&self) -> String {
        let again = match self.retry_of {
            Some(before) => format!(
                " The task was given out before (run {before}), and part of it may be done: look at what is there before you \
                 do anything again."
            ),
            None => String::new(),
        };
        format!(
            "# You are a sub-agent\n\nAnother agent sent you to do one task, named {:?}. Nobody can answer questions: decide \
             what is not said, and say what you decided. Do the task and nothing else. Your last message is the report that \
             the other agent is given, and all that it is given: it must say what was found or done, what was not, and where \
             files are.{again}",
            self.label
        )
    }
}

/// A label for a task that has none.
pub fn label_of(task: &str) -> String {
    let line = task.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("task");
    crate::text::first_chars(line, LABEL_CHARS_MAX).to_owned()
}

/// Whether a sub-agent may be given a tool of that name, if its parent has it.
pub fn may_be_given(tool: &str) -> bool {
    !NEVER.contains(&tool)
}

/// The agent whose sub-agents the runs of `parent` are.
pub fn agent_of(parent: &SessionKey) -> AgentId {
    Key::from(parent).base.of_agent().map(|(agent, _)| agent.clone()).unwrap_or_default()
}

/// The key of a run's session.
pub fn child_key(parent: &SessionKey, run: RunId) -> Result<SessionKey, BadId> {
    SessionKey::new(&Key::of(Base::Agent(agent_of(parent), Place::Subagent(run.to_string()))).to_string())
}

/// The run whose session that is, as far as its key says.
pub fn run_of(key: &SessionKey) -> Option<RunId> {
    let base = Key::from(key).base;
    let (_, place) = base.of_agent()?;
    if let Place::Subagent(id) = place { id.parse().ok() } else { None }
}

/// The run that an entry says its session is.
pub fn set_by(entry: &Entry) -> Option<Arc<RunSpec>> {
    entry.custom(RUN)?.and_then(|data| serde_json::from_str(data).ok())
}

#[cfg(test)]
pub(crate) mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::keys::SessionKind;
    use crate::policy::Denied;
    use crate::transcript::{Head, custom_line, read_lines};

    pub(crate) fn spec(parent: &str, source: &str) -> RunSpec {
        RunSpec {
            run: RunId(Uuid::from_u128(7)),
            parent: SessionKey::new(parent).unwrap(),
            turn: TurnId(Uuid::from_u128(1)),
            source: Source::new(source).unwrap(),
            label: "toads".into(),
            task: "Count the toads.".into(),
            model: None,
            tools: Vec::new(),
            timeout_s: 0,
            budget_tokens: 0,
            rounds: 0,
            fork: false,
            detached: false,
            route: None,
            scope: None,
            retry_of: None,
        }
    }

    #[test]
    fn every_parent_has_children_of_the_kind_and_the_same_call_is_the_same_run() {
        for (parent, agent) in [
            ("agent:work:main", "work"),
            ("agent:a:telegram:group:5:thread:6", "a"),
            ("websocket:garden", "main"),
            ("cli:direct", "main"),
            ("unified:default", "main"),
            ("cron:job", "main"),
        ] {
            let key = spec(parent, "ws").key().unwrap();
            assert_eq!(key.as_str(), format!("agent:{agent}:subagent:00000000-0000-0000-0000-000000000007"));
            assert_eq!(Key::from(&key).kind("main"), SessionKind::Subagent);
            assert_eq!((Key::from(&key).subagent_depth(), run_of(&key)), (1, Some(RunId(Uuid::from_u128(7)))));
        }
        let (turn, call) = (TurnId(Uuid::from_u128(3)), ToolCallId("call_1".into()));
        let first = RunId::of_call(turn, &call, "count");
        assert_eq!(first, RunId::of_call(turn, &call, "count"));
        assert_ne!(first, RunId::of_call(TurnId(Uuid::from_u128(4)), &call, "count"));
        assert_ne!(first, RunId::of_call(turn, &ToolCallId("call_2".into()), "count"));
        assert_ne!(first, RunId::of_call(turn, &call, "write"), "the id is used once more");
    }

    #[test]
    fn it_may_do_what_its_parent_may_and_less() {
        let policies = Policies::default();
        let owners = spec("websocket:garden", "ws").policy(&policies);
        assert_eq!((owners.permits("exec"), owners.permits("spawn")), (Ok(()), Err(Denied::Denied)));
        assert!(["cron", "message", "subagents"].iter().all(|tool| owners.permits(tool).is_err()));
        let narrowed = RunSpec { tools: vec!["read_file".into(), "spawn".into()], ..spec("cli:direct", "cli") };
        let narrowed = narrowed.policy(&policies);
        let allowed = ["read_file", "exec", "spawn"].map(|tool| narrowed.permits(tool).is_ok());
        assert_eq!(allowed, [true, false, false]);
        let strangers = spec("agent:main:main", "telegram:bot").policy(&policies);
        assert!(strangers.permits("read_file").is_err() && strangers.confines());
    }

    #[test]
    fn the_transcript_says_what_it_is() {
        let spec = RunSpec { timeout_s: 5, route: Some(serde_json::json!({"kind": "live"})), ..spec("a:b", "ws") };
        let head = Head { id: "a".into(), parent: None, timestamp_ms: 1 };
        let line = custom_line(&head, RUN, serde_json::to_string(&spec).ok().as_deref());
        assert_eq!(read_lines(line.as_bytes()).entries().iter().find_map(set_by), Some(Arc::new(spec)));
    }

    #[test]
    fn whoever_does_it_once_more_is_told_so() {
        let first = spec("cli:direct", "cli");
        let again = RunSpec { retry_of: Some(RunId(Uuid::from_u128(9))), ..first.clone() };
        let said = again.instruction();
        assert!(said.starts_with(&first.instruction()), "{said}");
        assert!(said.contains("(run 00000000-0000-0000-0000-000000000009)"), "{said}");
    }

    #[test]
    fn a_task_makes_a_label() {
        assert_eq!(
            label_of("\n  Count all the toads in the pond behind the house\nnow"),
            "Count all the toads in the pon"
        );
        assert_eq!(label_of(" \n"), "task");
    }
}
