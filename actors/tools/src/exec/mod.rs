//! `exec`: shell commands, in a sandbox unless the configuration says `off`.
//!
//! ```text
//! Exec::call ── guard ── working_dir ── permit ── own task: process::run ── output
//!                                                    │ spawn in a group of its own, read both pipes into bounded buffers
//!                                                    │ exit | timeout | cancel
//!                                                    └ TERM, KILL, until no process of the call is left
//! ```
//!
//! With bubblewrap a command sees the system's programs read-only, an empty `/tmp` and the workspace without the
//! gateway's private files, has no network, no capabilities and a pid namespace of its own. Switched off, it runs as
//! the gateway's user with all that this user may do; then only `guard` and the environment are limited.

mod guard;
mod output;
mod process;
mod sandbox;
mod survivors;

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use domain::policy::{Access, Policy};
use domain::request::ToolSpec;
use domain::scope::{AccessMode, Scope};
use futures::FutureExt;
use futures::future::BoxFuture;
use protocol::tools::ToolEnd;
use serde_json::{Map, Value, json};
use tokio::sync::Semaphore;

use crate::place::{Fence, PathError};
use crate::tool::{Call, Outcome, Tool};
use output::Capture;
use process::{Ended, Invocation};
use sandbox::Plan;

pub use sandbox::{SandboxChoice, SandboxMode, probe_sandbox};

/// The longest time a model can ask for.
const TIMEOUT_MAX: Duration = Duration::from_secs(600);
/// In place of "no timeout": a day.
const UNLIMITED: Duration = Duration::from_secs(24 * 3600);
/// Commands that run at the same time in one process.
const COMMANDS_MAX: usize = 64;
/// How long a command waits for its turn among them.
const QUEUE_WAIT_MAX: Duration = Duration::from_secs(60);
/// What killing a command may take on top of its timeout.
const KILL_ROOM: Duration = Duration::from_secs(20);
/// Of one result.
const OUTPUT_CHARS_MAX: usize = 10_000;
/// Marks all processes of one call.
const MARKER: &str = "GREENROOM_CALL";

/// How commands run.
#[derive(Debug, Clone)]
pub struct ExecConfig {
    /// Whether the tool exists.
    pub enable: bool,
    /// The sandbox that is asked for.
    pub sandbox: SandboxChoice,
    /// When the model names none; zero means none at all.
    pub timeout: Duration,
    /// Environment variables of the gateway that commands see, beside `HOME`, `LANG`, `TERM` and `PATH`.
    pub allowed_env_keys: Vec<String>,
    /// Put before the gateway's `PATH`.
    pub path_prepend: Option<String>,
    /// Put after the gateway's `PATH`.
    pub path_append: Option<String>,
}

/// Runs commands.
pub(crate) struct Exec {
    fence: Arc<Fence>,
    /// How to start a command, or why none can be started.
    mode: Result<Mode, String>,
    timeout: Duration,
    environment: Vec<(OsString, OsString)>,
    shell: PathBuf,
    permits: Arc<Semaphore>,
}

/// How a command is isolated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Bubblewrap,
    Plain,
}

// === impl Exec ===

impl Exec {
    /// Decides the mode once, which may start bubblewrap for a trial.
    pub(crate) fn new(fence: Arc<Fence>, config: &ExecConfig) -> Self {
        Self {
            fence,
            mode: mode(config.sandbox, probe_sandbox),
            timeout: config.timeout,
            environment: environment(config, |key| std::env::var_os(key)),
            shell: shell(),
            permits: Arc::new(Semaphore::new(COMMANDS_MAX)),
        }
    }

    /// The model's wish up to [`TIMEOUT_MAX`], else the configured value, which may be longer.
    fn timeout(&self, arguments: &Map<String, Value>) -> Duration {
        match arguments.get("timeout").and_then(Value::as_u64) {
            Some(seconds) => Duration::from_secs(seconds).min(TIMEOUT_MAX),
            None if self.timeout.is_zero() => UNLIMITED,
            None => self.timeout,
        }
    }
}

impl Tool for Exec {
    fn spec(&self) -> ToolSpec {
        let place = match &self.mode {
            Ok(Mode::Bubblewrap) => {
                "It runs in a sandbox: only the workspace can be written, there is no network, and /tmp is empty at each call."
            }
            Ok(Mode::Plain) => "It runs without a sandbox.",
            Err(_) => "It is not usable on this machine.",
        };
        ToolSpec {
            name: "exec".to_owned(),
            description: format!(
                "Runs a shell command and returns its output and exit code. {place} Standard input is empty. Processes \
                 left in the background end with the call."
            ),
            parameters: json!({
                "type": "object",
                "properties": {
                    "command": {"type": "string", "description": "The command, for bash"},
                    "working_dir": {"type": "string", "description": "Directory inside the workspace to run in (default: the workspace)"},
                    "timeout": {"type": "integer", "minimum": 1, "maximum": TIMEOUT_MAX.as_secs(), "description": "Seconds after which the command is ended (default 60)"}
                },
                "required": ["command"],
                "additionalProperties": false
            }),
            parallel: false,
            idempotent: false,
        }
    }

    fn aliases(&self) -> &'static [(&'static str, &'static str)] {
        &[("cmd", "command"), ("workdir", "working_dir")]
    }

    fn deadline(&self, arguments: &Map<String, Value>) -> Duration {
        self.timeout(arguments) + QUEUE_WAIT_MAX + KILL_ROOM
    }

    fn call(&self, call: Call) -> BoxFuture<'static, Outcome> {
        let command = call.text("command").unwrap_or_default().to_owned();
        let mode = match (&self.mode, guard::check(&command)) {
            (Err(refusal), _) => return refuse(refusal.clone()),
            (Ok(_), Err(denied)) => return refuse(format!("the command is refused: {denied}.")),
            (Ok(mode), Ok(())) => *mode,
        };
        if command.trim().is_empty() || command.contains('\0') {
            return refuse("the command is empty, or contains a NUL character".to_owned());
        }
        let request = Request {
            fence: self.fence.of(&call.key).scoped(call.scope.as_deref(), &call.policy),
            confined: call.policy.confines() || is_restricted(call.scope.as_deref()),
            policy: call.policy.clone(),
            mode,
            command,
            working_dir: call.text("working_dir").unwrap_or(".").to_owned(),
            timeout: self.timeout(&call.arguments),
            environment: self.environment.clone(),
            shell: self.shell.clone(),
            marker: call.ports.ids.uuid_v7().to_string(),
        };
        let (permits, fence) = (self.permits.clone(), self.fence.clone());
        async move {
            let Ok(Ok(_permit)) = tokio::time::timeout(QUEUE_WAIT_MAX, permits.acquire_owned()).await else {
                return Outcome::error("Error: too many commands run at the same time; try again later.");
            };
            let timeout = request.timeout;
            let invocation = match call.blocking(move || request.invocation()).await {
                Ok(invocation) => invocation,
                Err(problem) => return Outcome::error(format!("Error: {problem}")),
            };
            let printed = call.clone();
            let printed = move || printed.progress();
            let running = process::run(invocation, call.cancel.clone(), call.ports.offload.clone(), printed);
            let ran = call.own(running).await;
            call.blocking(move || fence.keep_open()).await;
            match ran {
                Ok(Ok((ended, stdout, stderr))) => report(ended, &stdout, &stderr, timeout),
                Ok(Err(error)) => Outcome::error(format!("Error: the command could not be started: {error}")),
                Err(failed) if failed.is_panic() => std::panic::resume_unwind(failed.into_panic()),
                Err(_) => Outcome::ended(ToolEnd::Cancelled, "Error: the gateway is stopping."),
            }
        }
        .boxed()
    }
}

/// How to run commands, or why none is run. Asks for the sandbox only when one is wanted.
fn mode(choice: SandboxChoice, probe: impl FnOnce() -> SandboxMode) -> Result<Mode, String> {
    match choice {
        SandboxChoice::Off => Ok(Mode::Plain),
        SandboxChoice::Auto | SandboxChoice::Bubblewrap => match probe() {
            SandboxMode::Bubblewrap { .. } => Ok(Mode::Bubblewrap),
            SandboxMode::Unavailable { reason } => Err(format!(
                "exec is refused, as commands cannot be isolated here: {reason}. Install bubblewrap (package \
                 `bubblewrap`) and allow user namespaces, or set `tools.exec.sandbox` to \"off\" to run commands \
                 without isolation."
            )),
        },
    }
}

fn refuse(text: String) -> BoxFuture<'static, Outcome> {
    std::future::ready(Outcome::error(format!("Error: {text}"))).boxed()
}

/// A command with all that decides how it runs.
struct Request {
    fence: Arc<Fence>,
    policy: Arc<Policy>,
    /// Whether nothing of the session may run outside of a sandbox.
    confined: bool,
    mode: Mode,
    command: String,
    working_dir: String,
    timeout: Duration,
    environment: Vec<(OsString, OsString)>,
    shell: PathBuf,
    marker: String,
}

// === impl Request ===

impl Request {
    /// Where the command begins; without the workspace there is only an empty place.
    fn working_dir(&self) -> Result<PathBuf, String> {
        if self.policy.workspace == Access::None {
            let only = self.working_dir == ".";
            return only.then(|| PathBuf::from("/tmp")).ok_or_else(|| format!("working_dir: {}", PathError::Closed));
        }
        let problem = |error: PathError| format!("working_dir: {error}");
        let target = self.fence.confined(&self.policy).locate(&self.working_dir).map_err(problem)?;
        target.open_dir().map_err(problem)?;
        Ok(target.path)
    }

    /// Looks at the file system; blocks.
    fn invocation(mut self) -> Result<Invocation, String> {
        if self.mode == Mode::Plain && self.confined {
            self.mode = confined(probe_sandbox())?;
        }
        let cwd = self.working_dir()?;
        let policy = self.fence.policy().map_err(|error| error.to_string())?;
        let marker = OsString::from(&self.marker);
        let shell = vec![
            self.shell.clone().into_os_string(),
            "-c".into(),
            sandbox::limits(self.mode == Mode::Bubblewrap).into(),
            self.shell.into_os_string(),
            self.command.into(),
        ];
        let mut environment = self.environment;
        let command = match self.mode {
            Mode::Plain => shell,
            Mode::Bubblewrap => {
                let access = self.policy.workspace;
                if access != Access::None && !cwd.starts_with(&policy.workspace) {
                    return Err("working_dir: only directories of the workspace exist in the sandbox".to_owned());
                }
                self.fence.keep_sessions().map_err(|error| error.to_string())?;
                // The real one does not exist in there.
                environment.retain(|(key, _)| key != "HOME");
                environment.push(("HOME".into(), "/tmp".into()));
                let marker = (MARKER.as_ref(), &*marker);
                let plan = Plan { policy: &policy, access, network: self.policy.network, cwd: &cwd, marker };
                sandbox::wrap(&plan, shell)?
            }
        };
        environment.push((MARKER.into(), marker));
        Ok(Invocation { command, environment, cwd, marker: self.marker, timeout: self.timeout })
    }
}

/// Whether a session works in a project and may change nothing else.
fn is_restricted(scope: Option<&Scope>) -> bool {
    scope.is_some_and(|scope| scope.access_mode == AccessMode::Restricted)
}

/// How a command runs whose session is kept off the machine, where others run without a sandbox.
fn confined(found: SandboxMode) -> Result<Mode, String> {
    match found {
        SandboxMode::Bubblewrap { .. } => Ok(Mode::Bubblewrap),
        SandboxMode::Unavailable { reason } => {
            Err(format!("this session may run commands only in a sandbox, and there is none here: {reason}."))
        }
    }
}

/// What a command sees of the gateway's environment, where `value` looks variables up.
fn environment(config: &ExecConfig, value: impl Fn(&str) -> Option<OsString>) -> Vec<(OsString, OsString)> {
    let or = |key: &str, default: &str| value(key).unwrap_or_else(|| default.into());
    let path = or("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    let (before, after) = (config.path_prepend.as_deref(), config.path_append.as_deref());
    let parts = [before.map(OsStr::new), Some(&*path), after.map(OsStr::new)];
    let parts: Vec<&OsStr> = parts.into_iter().flatten().filter(|part| !part.is_empty()).collect();
    let mut all = vec![
        ("HOME".into(), or("HOME", "/")),
        ("LANG".into(), or("LANG", "C.UTF-8")),
        ("TERM".into(), or("TERM", "dumb")),
        ("PATH".into(), parts.join(OsStr::new(":"))),
    ];
    for key in &config.allowed_env_keys {
        if all.iter().all(|(known, _)| known != OsStr::new(key))
            && let Some(value) = value(key)
        {
            all.push((key.into(), value));
        }
    }
    all
}

fn shell() -> PathBuf {
    let bash = ["/bin/bash", "/usr/bin/bash"].into_iter().map(PathBuf::from).find(|path| path.exists());
    bash.unwrap_or_else(|| "/bin/sh".into())
}

/// The result as the model sees it.
fn report(ended: Ended, stdout: &Capture, stderr: &Capture, timeout: Duration) -> Outcome {
    let text = output::render(stdout, stderr, OUTPUT_CHARS_MAX);
    match ended {
        Ended::Exited { code } => Outcome::text(format!("{text}Exit code: {code}")),
        Ended::Killed { signal } => {
            Outcome::text(format!("{text}Exit code: {} (killed by signal {signal})", 128 + signal))
        }
        Ended::TimedOut => Outcome::ended(
            ToolEnd::TimedOut,
            format!("{text}Error: the command did not end within {} s and was killed.", timeout.as_secs()),
        ),
        Ended::Cancelled => Outcome::ended(ToolEnd::Cancelled, "Error: the call was cancelled."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_sandbox_nothing_runs_unless_it_is_switched_off() {
        let none = || SandboxMode::Unavailable { reason: "bwrap is not installed".into() };
        let some = || SandboxMode::Bubblewrap { version: "bubblewrap 1".into() };
        assert_eq!(mode(SandboxChoice::Off, || panic!("nobody asked for one")), Ok(Mode::Plain));
        for choice in [SandboxChoice::Auto, SandboxChoice::Bubblewrap] {
            assert_eq!(mode(choice, some), Ok(Mode::Bubblewrap));
            let refusal = mode(choice, none).unwrap_err();
            for part in ["bwrap is not installed", "Install bubblewrap", "`tools.exec.sandbox` to \"off\""] {
                assert!(refusal.contains(part), "{refusal}");
            }
        }
    }

    #[test]
    fn a_command_sees_only_what_is_allowed_of_the_environment() {
        let config = ExecConfig {
            enable: true,
            sandbox: SandboxChoice::Off,
            timeout: Duration::ZERO,
            allowed_env_keys: vec!["GIT_AUTHOR".into(), "MISSING".into(), "HOME".into()],
            path_prepend: Some("/first".into()),
            path_append: Some("/last".into()),
        };
        let ours = |key: &str| match key {
            "HOME" => Some("/home/u".into()),
            "PATH" => Some("/bin".into()),
            "GIT_AUTHOR" => Some("me".into()),
            "OPENAI_API_KEY" => Some("secret".into()),
            _ => None,
        };
        let seen: Vec<(OsString, OsString)> = [
            ("HOME", "/home/u"),
            ("LANG", "C.UTF-8"),
            ("TERM", "dumb"),
            ("PATH", "/first:/bin:/last"),
            ("GIT_AUTHOR", "me"),
        ]
        .map(|(key, value)| (key.into(), value.into()))
        .into();
        assert_eq!(environment(&config, ours), seen);
    }

    #[test]
    fn the_model_may_ask_for_less_time_and_the_configuration_for_more() {
        let timeout = |configured, asked: Value| {
            let home = testkit::workspace::TempWorkspace::new();
            let (workspace, sessions) = (home.workspace(), home.path("s"));
            let fence = Fence {
                workspace,
                readable: Vec::new(),
                attachments: Vec::new(),
                sessions,
                forbidden: vec![],
                reach: crate::paths::Reach::Workspace,
                only: None,
                kept: Vec::new(),
                seen: Arc::default(),
            };
            let config = ExecConfig {
                enable: true,
                sandbox: SandboxChoice::Off,
                timeout: Duration::from_secs(configured),
                allowed_env_keys: vec![],
                path_prepend: None,
                path_append: None,
            };
            let arguments = asked.as_object().cloned().unwrap_or_default();
            Exec::new(Arc::new(fence), &config).timeout(&arguments).as_secs()
        };
        assert_eq!(timeout(60, json!({})), 60);
        assert_eq!(timeout(60, json!({"timeout": 5})), 5);
        assert_eq!(timeout(60, json!({"timeout": 600})), 600);
        assert_eq!(timeout(3600, json!({})), 3600);
        assert_eq!(timeout(0, json!({})), UNLIMITED.as_secs());
    }
}
