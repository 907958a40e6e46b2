//! What a tool is: the trait that the built-in tools implement, and that a program implements to add its own.

use std::future::Future;
use std::panic::resume_unwind;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use domain::chat::Content;
use domain::ids::{SessionKey, Source, ToolCallId};
use domain::policy::Policy;
use domain::request::ToolSpec;
use domain::scope::Scope;
use futures::future::BoxFuture;
use protocol::tools::ToolEnd;
use protocol::turn::{FileEdit, Pulse, Route, Stamp};
use serde_json::{Map, Value};
use supervision::panic::{Caught, catch, caught};
use supervision::ports::{Ports, offload};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The deadline of a tool that names none.
const DEADLINE: Duration = Duration::from_secs(120);

/// Something that a model can call.
///
/// Calls of all sessions of an arbiter share its thread: work that blocks goes through [`Call::blocking`].
/// A panic in it becomes an error result and an event in the supervision log; nothing else notices.
pub trait Tool: Send + Sync + 'static {
    /// How the model sees it. Must be the same each time: it is asked once, when the catalog is built.
    fn spec(&self) -> ToolSpec;

    /// Runs one call. The arguments have been cast and validated against the schema of [`Tool::spec`].
    /// The future is dropped when the call is cancelled or its deadline passes; what must be cleaned up after that
    /// belongs into [`Call::own`].
    fn call(&self, call: Call) -> BoxFuture<'static, Outcome>;

    /// After how long the call is given up.
    fn deadline(&self, _arguments: &Map<String, Value>) -> Duration {
        DEADLINE
    }

    /// Other names under which a model may pass an argument: `(other, real)`.
    fn aliases(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }
}

/// One call, as a tool gets it.
#[derive(Clone)]
pub struct Call {
    /// Id that the model gave to it.
    pub id: ToolCallId,
    /// The session on whose behalf it runs.
    pub key: SessionKey,
    /// The door through which the message came that it works on.
    pub source: Source,
    /// Where the answer to that message goes.
    pub route: Route,
    /// What that session may do; that it may call this tool was checked.
    pub policy: Arc<Policy>,
    /// Where that session works, if not in the workspace.
    pub scope: Option<Arc<Scope>>,
    /// The turn it belongs to.
    pub stamp: Stamp,
    /// Validated arguments.
    pub arguments: Map<String, Value>,
    /// Cancelled when the result is no longer wanted, for whatever reason; also after the call has ended.
    pub cancel: CancellationToken,
    /// Beats when the call gets on; see [`Call::progress`].
    pub(crate) pulse: Pulse,
    /// Files, time, ids and the blocking pool.
    pub ports: Ports,
    /// What the call started; the call counts as finished when all of it has ended.
    pub(crate) owned: TaskTracker,
    /// The first panic in what the call started.
    pub(crate) crash: Arc<OnceLock<Arc<Caught>>>,
}

impl Call {
    /// Runs `task` beside the call. It is not dropped with the call's future, and the result is not reported before it
    /// has ended: it has to watch [`Call::cancel`].
    pub fn own<T: Send + 'static>(&self, task: impl Future<Output = T> + Send + 'static) -> tokio::task::JoinHandle<T> {
        let crash = self.crash.clone();
        self.owned.spawn(async move {
            match caught(task).await {
                Ok(value) => value,
                Err(panic) => raise(&crash, panic),
            }
        })
    }

    /// Runs `job` on the blocking pool; like [`Call::own`], the result is not reported before it has ended.
    ///
    /// # Panics
    /// As `job` does.
    pub async fn blocking<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> T {
        let owned = self.owned.token();
        let done = offload(&*self.ports.offload, move || {
            let result = catch(job);
            drop(owned);
            result
        });
        match done.await {
            Ok(Ok(value)) => value,
            Ok(Err(panic)) => raise(&self.crash, panic),
            Err(_) => resume_unwind(Box::new("the blocking pool takes no more work")),
        }
    }

    /// Shows that the call gets on, so that its turn is not taken for stuck. A call that ends soon need not.
    pub fn progress(&self) {
        self.pulse.beat(self.ports.clock.mono());
    }

    /// A text argument, or nothing.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.arguments.get(name).and_then(Value::as_str)
    }

    /// A whole, non-negative number, or nothing.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.arguments.get(name).and_then(Value::as_u64)
    }

    /// Whether a flag is set.
    pub fn flag(&self, name: &str) -> bool {
        self.arguments.get(name).and_then(Value::as_bool).unwrap_or(false)
    }
}

/// Panics on, in the task of the call, with what is known of the panic kept beside.
fn raise(crash: &OnceLock<Arc<Caught>>, panic: Caught) -> ! {
    // A second panic of the same call says nothing new.
    let _ = crash.set(Arc::new(panic));
    resume_unwind(Box::new("a part of the call panicked"))
}

/// How a call ended, and what the model is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// What the model is shown; shortened when too long.
    pub content: Vec<Content>,
    /// Anything but [`ToolEnd::Ok`] is an error for the model.
    pub end: ToolEnd,
    /// What the call made of a file: shown to people.
    pub edit: Option<Arc<FileEdit>>,
}

impl Outcome {
    /// Success, with what the model is shown.
    pub fn of(content: Vec<Content>) -> Self {
        Self { content, end: ToolEnd::Ok, edit: None }
    }

    /// Success, with a text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::of(vec![Content::text(text)])
    }

    /// Failure or refusal; the text says what is wrong and what would be right.
    pub fn error(text: impl Into<String>) -> Self {
        Self::ended(ToolEnd::Error, text)
    }

    /// A text with the given end.
    pub fn ended(end: ToolEnd, text: impl Into<String>) -> Self {
        Self { end, ..Self::text(text) }
    }
}
