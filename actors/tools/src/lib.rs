//! Tool catalogue, policy, sandbox and built-in tools.
//!
//! [`Tools`] is an actor, one per arbiter, that runs each call in a task of its own ([`Tool::call`]) and answers every
//! [`RunTool`](protocol::tools::RunTool) with exactly one `ToolFinished`, after everything that the call started has
//! ended. What can be called is fixed at start in a [`Catalog`]: the built-in tools and those a program adds.
//!
//! **Invariant:** no tool reads or writes what the gateway keeps for itself (sessions, journal, logs, configuration):
//! the file tools judge the resolved target (`paths`), commands run where those files do not exist (`exec`).
//! A result that is too long for the model is kept whole in the workspace (`offload`).
//!
//! The file tools and `exec` use the file system of the machine directly, on the blocking pool: the refusal to follow
//! a link that appeared after the check needs directory handles, which the `Disk` port does not have.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod actor;
mod arguments;
mod catalog;
mod cron;
mod edited;
mod exec;
mod list_dir;
mod offload;
mod paths;
mod place;
mod read_file;
mod run;
mod seen;
mod spawn;
mod subagents;
#[cfg(test)]
mod tests;
mod text;
mod tool;
mod write_file;

pub use actor::Tools;
pub use catalog::{Builder, Catalog, ToolsConfig};
pub use cron::Cron;
pub use domain::request::ToolSpec;
pub use exec::{ExecConfig, SandboxChoice, SandboxMode, probe_sandbox};
pub use spawn::{Offer, Spawn};
pub use subagents::Subagents;
pub use tool::{Call, Outcome, Tool};
