//! `greenroom sessions delete|archive|unarchive`: through the gateway or, when none runs, by the same actors here.

use channel::gateway::closing::{Open, close, delete_archived, restore};
use channel::gateway::letters::Fault;
use domain::ids::SessionKey;
use domain::text::counted;
use protocol::journal::Shelf;
use serde_json::{Value, json};

use super::admin::{Admin, encode};
use super::{print, print_json, sessions};
use crate::app::{App, Options};
use crate::cli::Output;
use crate::config::Loaded;
use crate::exit::{Exit, ExitCode};

/// What is to be done with a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// Cancel its turns, and make its file a tombstone.
    Delete,
    /// Put it into the archive.
    Archive,
    /// Take it back.
    Unarchive,
    /// Make a tombstone of its newest archived file.
    DeleteArchived,
}

impl Act {
    fn word(self) -> &'static str {
        match self {
            Self::Delete => "delete",
            Self::Archive => "archive",
            Self::Unarchive => "unarchive",
            Self::DeleteArchived => "delete",
        }
    }

    fn path(self, key: &SessionKey) -> String {
        let of = if self == Self::DeleteArchived { "archive" } else { "sessions" };
        format!("{of}/{}/{}", encode(key.as_str()), self.word())
    }
}

/// Does it, and prints what came of it.
pub async fn run(loaded: Loaded, key: &SessionKey, act: Act, output: Output) -> anyhow::Result<()> {
    let body: Value = match Admin::find(&loaded.paths).await? {
        Some(admin) => admin.post(&act.path(key), &json!({})).await?.json().await?,
        None => {
            loaded.require_workspace().map_err(Exit::from)?;
            if matches!(act, Act::Delete | Act::Archive) {
                sessions::has_file(&loaded, key)?;
            }
            let app = App::start(Options::at_rest(loaded)).await?;
            let done = match act {
                Act::Delete => close(app.sessions(), key, Shelf::Deleted, Open::Cancelled).await,
                Act::Archive => close(app.sessions(), key, Shelf::Archive, Open::Refused).await,
                Act::Unarchive => restore(app.sessions(), key).await,
                Act::DeleteArchived => {
                    let (files, now_ms) = (app.transcripts(), app.ports().clock.wall_ms());
                    delete_archived(&**files, &**app.kernel().log(), key, now_ms)
                }
            };
            app.stop().await;
            done.map_err(exit)?
        }
    };
    if output.json { print_json(&body) } else { print(&told(key, act, &body)) }
}

/// A fault as the end of a command: the same as when the gateway says it.
pub fn exit(fault: Fault) -> Exit {
    Exit::new(ExitCode::of_answer(fault.status, fault.code), fault.message).named(fault.code)
}

fn told(key: &SessionKey, act: Act, body: &Value) -> String {
    let file = body["file"].as_str().unwrap_or_default();
    let unmoved = body["unmoved"].as_str().map(|why| {
        format!("; its transcript cannot be put away yet, which is tried again before a new session begins: {why}")
    });
    match act {
        Act::Delete => {
            let turns = counted(usize::try_from(body["cancelled"].as_u64().unwrap_or(0)).unwrap_or(0), "turn");
            let file = if file.is_empty() { String::new() } else { format!("; its transcript is sessions/{file}") };
            format!("{key} is deleted, {turns} cancelled{file}{}", unmoved.unwrap_or_default())
        }
        Act::Archive if file.is_empty() => format!("{key} is archived{}", unmoved.unwrap_or_default()),
        Act::Archive => format!("{key} is archived as sessions/{file}"),
        Act::Unarchive => format!("{key} is back from sessions/{file}"),
        Act::DeleteArchived => format!("the archived {key} is deleted; its transcript is sessions/{file}"),
    }
}
