//! What the tool front end (one per arbiter) is asked.
//!
//! | message | from | answer |
//! |---|---|---|
//! | [`RunTool`] | session | exactly one [`ToolFinished`] at `reply_to`, also after cancel, timeout or panic |
//!
//! The session has made `tool started` durable before it sends [`RunTool`].
//! When [`ToolFinished`] arrives, no process of the call is left.

use std::sync::Arc;

use actix::Recipient;
use domain::chat::{ToolCall, ToolResult};
use domain::ids::{SessionKey, Source};
use domain::run::RunSpec;
use domain::scope::Scope;
use tokio_util::sync::CancellationToken;

use crate::turn::{FileEdit, Pulse, Route, Stamp};

/// How a result begins that is kept in a file; its second line names that, as `path: ...`.
pub use domain::history::PERSISTED;

/// What a refusal says of a path that is not in the workspace.
pub const OUTSIDE_WORKSPACE: &str = "is outside the workspace";

/// Runs one tool call.
#[derive(Debug, actix::Message)]
#[rtype(result = "()")]
pub struct RunTool {
    /// Who asks.
    pub stamp: Stamp,
    /// The session on whose behalf it runs.
    pub key: SessionKey,
    /// The door through which the message came that it works on: decides with the key what is allowed.
    pub source: Source,
    /// Where the answer to that message goes.
    pub route: Route,
    /// Where the session works, if not in the workspace.
    pub scope: Option<Arc<Scope>>,
    /// What the session was sent to do, of a sub-agent: decides what is allowed in place of its key.
    pub run: Option<Arc<RunSpec>>,
    /// Name and arguments as the model wrote them; unknown names and bad arguments become error results.
    pub call: ToolCall,
    /// Beats whenever the call gets on, for example when a command prints something.
    pub pulse: Pulse,
    /// Ends the call and kills its process group.
    pub cancel: CancellationToken,
    /// Where the result goes.
    pub reply_to: Recipient<ToolFinished>,
}

/// A tool call ended.
#[derive(Debug, actix::Message)]
#[rtype(result = "()")]
pub struct ToolFinished {
    /// Of the asker.
    pub stamp: Stamp,
    /// What the model will see.
    pub result: ToolResult,
    /// How it ended, for log and metrics.
    pub end: ToolEnd,
    /// What it made of a file.
    pub edit: Option<Arc<FileEdit>>,
}

/// How a tool call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ToolEnd {
    /// It returned a result.
    Ok,
    /// It returned an error, or was refused.
    Error,
    /// Its deadline passed.
    TimedOut,
    /// It was cancelled.
    Cancelled,
    /// It panicked.
    Panicked,
}
