//! What a session may do, by its kind.
//!
//! The rule: doors that only the owner can open have the owner's rights. These are the terminal, and the WebSocket and
//! the API, which listen on loopback or ask for a token, and the main session while the owner speaks in it. What the
//! owner set up to run by itself may look at the workspace but not change it. Everybody else talks to the model without
//! tools, until the configuration opens some.
//!
//! | kind | tools | commands | workspace |
//! |---|---|---|---|
//! | `main`, `cli`, `api`, `websocket` | `full` | as `tools.exec.sandbox` says | write |
//! | `cron`, `heartbeat` | `coding` | only in a sandbox | read |
//! | `dream` | those that read and write files | none | write: the memory and the skills |
//! | `direct`, `group`, `thread`, `hook`, `subagent`, `unknown` | `minimal` | only in a sandbox | none |
//!
//! The network is closed to sandboxed commands of all kinds. A tool is allowed when every [`ToolRule`] lets it pass; each
//! rule only narrows, and `deny` wins. A session that may not write the workspace runs commands in a sandbox only, and
//! its file tools stay inside the workspace.
//!
//! **Source:** names of profiles and groups as in `openclaw` 2026.6.11; the defaults are stricter.

mod active;
mod tools;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use active::ActiveTools;
pub use tools::{BadPattern, Pattern, Profile, ToolRule, known_tools};

use crate::ids::{SessionKey, Source};
use crate::keys::{Key, MAIN_KEY, SessionKind};

/// What is open of the workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// Nothing.
    None,
    /// It can be read.
    Read,
    /// It can be read and written.
    Write,
}

/// How commands are kept apart from the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SandboxLevel {
    /// As `tools.exec.sandbox` says.
    AsConfigured,
    /// In a sandbox, or not at all.
    Required,
}

/// What a session may do.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    /// Which tools, rule by rule.
    pub tools: Vec<ToolRule>,
    /// How commands run.
    pub sandbox: SandboxLevel,
    /// Whether sandboxed commands reach the network.
    pub network: bool,
    /// What is open of the workspace.
    pub workspace: Access,
    /// What of it can be written, if not all: paths in it, those of directories with a `/` at their end.
    pub writes: Option<&'static [&'static str]>,
    /// The model that answers, instead of the configured one.
    pub model: Option<Arc<str>>,
}

/// What Dream may write.
const DREAM_WRITES: &[&str] = &["skills/", "SOUL.md", "USER.md", "memory/MEMORY.md"];
/// The tools that it has for that.
const DREAM_TOOLS: [&str; 4] = ["read_file", "edit_file", "write_file", "apply_patch"];

/// The policies of all kinds.
#[derive(Debug, Clone, PartialEq)]
pub struct Policies {
    main_key: Arc<str>,
    by_kind: BTreeMap<SessionKind, Arc<Policy>>,
}

/// Why a tool is not allowed; the text is for the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// The profile lacks it.
    #[error("the tool profile `{}` has it not", profile.word())]
    Profile {
        /// Which.
        profile: Profile,
    },
    /// There is a list of allowed tools without it.
    #[error("it is not among the tools that are allowed")]
    NotAllowed,
    /// It is on a list of denied tools.
    #[error("it is among the tools that are denied")]
    Denied,
}

// === impl Policy ===

impl Policy {
    /// The policy of a kind for which nothing is configured.
    pub fn default_of(kind: SessionKind) -> Self {
        let (profile, sandbox, workspace) = match kind {
            SessionKind::Main | SessionKind::Cli | SessionKind::Api | SessionKind::WebSocket => {
                (Profile::Full, SandboxLevel::AsConfigured, Access::Write)
            }
            SessionKind::Cron | SessionKind::Heartbeat => (Profile::Coding, SandboxLevel::Required, Access::Read),
            SessionKind::Dream => (Profile::Coding, SandboxLevel::Required, Access::Write),
            SessionKind::Direct
            | SessionKind::Group
            | SessionKind::Thread
            | SessionKind::Hook
            | SessionKind::Subagent
            | SessionKind::Unknown => (Profile::Minimal, SandboxLevel::Required, Access::None),
        };
        let mut rule = ToolRule::profile(profile);
        let is_dream = kind == SessionKind::Dream;
        if is_dream {
            rule.allow = DREAM_TOOLS.map(|name| Pattern::Name(name.to_owned())).into();
        }
        let writes = is_dream.then_some(DREAM_WRITES);
        Self { tools: vec![rule], sandbox, network: false, workspace, writes, model: None }
    }

    /// Whether the tool may be called.
    pub fn permits(&self, tool: &str) -> Result<(), Denied> {
        self.tools.iter().try_for_each(|rule| rule.permits(tool))
    }

    /// Whether it keeps a session off something of the machine, so that nothing may run outside of a sandbox.
    pub fn confines(&self) -> bool {
        self.sandbox == SandboxLevel::Required || self.workspace != Access::Write
    }
}

// === impl Policies ===

impl Policies {
    /// The defaults with those of some kinds replaced.
    pub fn new(main_key: &str, own: impl IntoIterator<Item = (SessionKind, Policy)>) -> Self {
        let mut by_kind: BTreeMap<_, _> =
            SessionKind::ALL.map(|kind| (kind, Arc::new(Policy::default_of(kind)))).into();
        by_kind.extend(own.into_iter().map(|(kind, policy)| (kind, Arc::new(policy))));
        Self { main_key: main_key.into(), by_kind }
    }

    /// The kind of a turn that came through `source` into the session `key`.
    pub fn kind(&self, key: &SessionKey, source: &Source) -> SessionKind {
        SessionKind::of_turn(key, source, &self.main_key)
    }

    /// The kind of the session `key`.
    pub fn kind_of(&self, key: &SessionKey) -> SessionKind {
        Key::from(key).kind(&self.main_key)
    }

    /// What sessions of a kind may do.
    pub fn of(&self, kind: SessionKind) -> &Arc<Policy> {
        self.by_kind.get(&kind).expect("`new` has put in all kinds")
    }
}

impl Default for Policies {
    fn default() -> Self {
        Self::new(MAIN_KEY, [])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_owners_doors_are_open_by_default() {
        let policies = Policies::default();
        for (key, source, exec, write, access) in [
            ("cli:direct", "cli", true, true, Access::Write),
            ("agent:main:main", "cli", true, true, Access::Write),
            ("api:default", "api", true, true, Access::Write),
            ("websocket:c", "ws", true, true, Access::Write),
            ("agent:main:main", "telegram:default", false, false, Access::None),
            ("telegram:-100", "telegram:default", false, false, Access::None),
            ("agent:main:telegram:direct:5", "telegram:default", false, false, Access::None),
            ("agent:main:discord:channel:5:thread:6", "discord:default", false, false, Access::None),
            ("webhook:7", "webhook", false, false, Access::None),
            ("hook:1", "hook", false, false, Access::None),
            ("agent:main:subagent:1", "run", false, false, Access::None),
            ("nonsense", "cli", false, false, Access::None),
            ("cron:job", "cron", true, true, Access::Read),
            ("heartbeat", "heartbeat", true, true, Access::Read),
            ("dream:20261130-090000", "cron", false, true, Access::Write),
        ] {
            let kind = policies.kind(&SessionKey::new(key).unwrap(), &Source::new(source).unwrap());
            let policy = policies.of(kind);
            assert_eq!(policy.permits("exec").is_ok(), exec, "{key}");
            assert_eq!(policy.permits("write_file").is_ok(), write, "{key}");
            assert_eq!(policy.workspace, access, "{key}");
            assert_eq!(policy.confines(), access != Access::Write || key.starts_with("dream:"), "{key}");
            assert!(!policy.network);
        }
    }

    #[test]
    fn what_is_configured_for_one_kind_changes_no_other() {
        let open = Policy::default_of(SessionKind::Cli);
        let policies = Policies::new("home", [(SessionKind::Direct, open.clone())]);
        assert_eq!(**policies.of(SessionKind::Direct), open);
        assert_eq!(**policies.of(SessionKind::Group), Policy::default_of(SessionKind::Group));
        let key = SessionKey::new("agent:main:home").unwrap();
        assert_eq!(policies.kind(&key, &Source::new("cli").unwrap()), SessionKind::Main);
    }
}
