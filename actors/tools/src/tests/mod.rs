//! The front end as a session sees it: a message in, an answer out.

mod calls;
mod commands;
mod cron;
mod files;
mod kinds;
mod long;
mod memory;
mod runs;
mod sandboxed;
mod scoped;

use std::sync::Arc;
use std::time::Duration;

use actix::{Addr, Recipient};
use domain::chat::{Arguments, Content, ToolCall, plain_text};
use domain::ids::{Attempt, Epoch, SessionKey, Source, ToolCallId, TurnId};
use domain::scope::Scope;
use protocol::metrics::Metrics;
use protocol::supervision::{ActorPath, Kind};
use protocol::tools::{RunTool, ToolEnd, ToolFinished};
use protocol::turn::{Pulse, Route, Stamp};
use serde_json::{Value, json};
use supervision::log::MemoryLog;
use supervision::real::real_ports;
use supervision::{Child, Kernel, LocalPlacement, tell};
use testkit::probe::Probe;
use testkit::workspace::TempWorkspace;
use tokio_util::sync::CancellationToken;

use crate::{Catalog, ExecConfig, SandboxChoice, Tool, Tools, ToolsConfig};

/// A front end over a fresh workspace.
struct Bench {
    home: TempWorkspace,
    log: Arc<MemoryLog>,
    actor: Addr<Tools>,
    answers: Probe<ToolFinished>,
    pulse: Pulse,
    cancel: CancellationToken,
    /// Who calls, and through which door.
    session: (SessionKey, Source),
    /// Where it works, if not in the workspace.
    route: Route,
    scope: Option<Arc<Scope>>,
}

fn config(home: &TempWorkspace, sandbox: SandboxChoice) -> ToolsConfig {
    ToolsConfig {
        workspace: home.workspace(),
        sessions_dir: home.path("workspace/sessions"),
        forbidden: vec![home.path("journal"), home.path("config.json"), home.path("media")],
        attachments: vec![home.path("media/websocket")],
        restrict: true,
        result_chars_max: 16_000,
        exec: ExecConfig {
            enable: true,
            sandbox,
            timeout: Duration::from_secs(60),
            allowed_env_keys: vec![],
            path_prepend: None,
            path_append: None,
        },
        policies: Arc::default(),
    }
}

impl Bench {
    fn new() -> Self {
        Self::with(SandboxChoice::Off, vec![])
    }

    fn with(sandbox: SandboxChoice, tools: Vec<Arc<dyn Tool>>) -> Self {
        let home = TempWorkspace::new();
        home.write("workspace/sessions/a.jsonl", "private");
        home.write("journal/1", "private");
        home.write("config.json", "private");
        let builder = Catalog::builder(config(&home, sandbox));
        let catalog = tools.into_iter().fold(builder, crate::Builder::with).build();
        Self::over(home, Arc::new(catalog))
    }

    fn over(home: TempWorkspace, catalog: Arc<Catalog>) -> Self {
        let ports = real_ports(2).unwrap();
        let log = MemoryLog::new();
        let kernel = Kernel::new(ports, log.clone(), Metrics::default());
        kernel.keep_crashes_in(home.path("logs/crash"));
        let path = ActorPath("/tools/0".into());
        let make = {
            let kernel = kernel.clone();
            move |_: &mut _| Tools::new(catalog, kernel, path)
        };
        let actor = kernel.spawn(Child::new("/tools/0", Kind::Tools), &LocalPlacement::new(), 0, make);
        let session = (SessionKey::new("cli:direct").unwrap(), Source::new("cli").unwrap());
        let (pulse, cancel) = (Pulse::default(), CancellationToken::new());
        Self { home, log, actor, answers: Probe::new(), pulse, cancel, session, route: Route::Live, scope: None }
    }

    /// Calls come from that session from now on.
    fn be(&mut self, key: &str, source: &str) {
        self.session = (SessionKey::new(key).unwrap(), Source::new(source).unwrap());
    }

    fn start(&self, name: &str, arguments: Arguments) {
        let call = ToolCall { id: ToolCallId("call-1".into()), name: name.to_owned(), arguments };
        let message = RunTool {
            stamp: stamp(),
            key: self.session.0.clone(),
            source: self.session.1.clone(),
            route: self.route.clone(),
            scope: self.scope.clone(),
            run: None,
            call,
            pulse: self.pulse.clone(),
            cancel: self.cancel.clone(),
            reply_to: self.answers.recipient(),
        };
        let to: Recipient<RunTool> = self.actor.clone().recipient();
        tell(&to, message).unwrap();
    }

    async fn call(&mut self, name: &str, arguments: Value) -> (ToolEnd, String) {
        let Value::Object(arguments) = arguments else { panic!("arguments are an object") };
        self.start(name, Arguments::Object(arguments));
        self.answer().await
    }

    /// The answer to the only call under way.
    async fn answer(&mut self) -> (ToolEnd, String) {
        let ToolFinished { stamp: got, result, end, .. } = self.answers.next().await;
        assert_eq!((got, &*result.call.0), (stamp(), "call-1"));
        assert_eq!(result.is_error, end != ToolEnd::Ok);
        assert!(self.answers.try_next().is_none(), "one call, one answer");
        (end, plain_text(&result.content))
    }

    async fn exec(&mut self, command: &str) -> (ToolEnd, String) {
        self.call("exec", json!({"command": command})).await
    }
}

fn stamp() -> Stamp {
    Stamp { epoch: Epoch(3), turn: TurnId(uuid::Uuid::nil()), attempt: Attempt(1), round: 2 }
}

fn spec(name: &str) -> domain::request::ToolSpec {
    domain::request::ToolSpec {
        name: name.to_owned(),
        description: String::new(),
        parameters: json!({"type": "object", "properties": {}}),
        parallel: true,
        idempotent: true,
    }
}

fn texts(texts: &[&str]) -> Vec<Content> {
    texts.iter().map(|text| Content::text(*text)).collect()
}
