//! Conversations here that only the built-in offline model answered: somebody tried the program before moving in. They go
//! into the archive where a session that moves in has their place.

use std::collections::BTreeSet;
use std::path::Path;

use channel::gateway::closing::{Open, close};
use domain::exchange::Remark;
use domain::ids::SessionKey;
use protocol::journal::Shelf;
use serde_json::Value;
use supervision::ports::Disk;
use supervision::real::RealDisk;

use crate::app::{App, Options};
use crate::config::Loaded;

/// The longest transcript that is looked at, in bytes: nobody tries for longer.
const BYTES_MAX: u64 = 1 << 20;
/// Who answered, where it was the offline model.
const OFFLINE: &str = "offline";

/// Whether only the offline model answered in the transcript at `path`.
pub fn is_one(disk: &dyn Disk, path: &Path) -> bool {
    let short = disk.stat(path).is_ok_and(|stat| stat.length <= BYTES_MAX);
    short && disk.read(path).is_ok_and(|bytes| answered_offline(&bytes))
}

/// Whether there may be one in the directory of the sessions.
pub fn any(sessions: &Path) -> bool {
    let found = RealDisk.list(sessions).unwrap_or_default();
    found.iter().any(|path| path.extension().is_some_and(|kind| kind == "jsonl") && is_one(&RealDisk, path))
}

/// Whether a transcript has answers, and all of them are the offline model's.
fn answered_offline(bytes: &[u8]) -> bool {
    let lines = bytes.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice::<Value>(line).ok());
    let answers = lines.filter(|line| line["message"]["role"] == "assistant");
    let mut providers = answers.map(|line| line["message"]["provider"] == OFFLINE).peekable();
    providers.peek().is_some() && providers.all(|offline| offline)
}

/// Archives these; those for which it was done. A turn that is open in one keeps it where it is, and what moves in is told
/// as a conflict.
pub async fn put_away(loaded: &Loaded, trials: Vec<SessionKey>) -> anyhow::Result<BTreeSet<SessionKey>> {
    let mut away = BTreeSet::new();
    if trials.is_empty() {
        return Ok(away);
    }
    let app = App::start(Options::at_rest(loaded.clone())).await?;
    for key in trials {
        match close(app.sessions(), &key, Shelf::Archive, Open::Refused).await {
            Ok(_) => away.extend([key]),
            Err(fault) => tracing::warn!(session = %key, "not archived: {}", fault.message),
        }
    }
    app.stop().await;
    Ok(away)
}

/// What is told of the session that comes in its place.
pub fn remark(key: &SessionKey) -> Remark {
    Remark::of(format!(
        "what was said here with the built-in model goes into the archive: `greenroom sessions show --archived {key}`"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_offline_model_alone_answered_is_a_trial() {
        let answer = |provider: &str| format!(r#"{{"message":{{"role":"assistant","provider":"{provider}"}}}}"#);
        let asked = r#"{"message":{"role":"user","content":"hello"}}"#.to_owned();
        for (lines, trial) in [
            (vec![asked.clone(), answer("offline")], true),
            (vec![asked.clone(), answer("offline"), answer("openai")], false),
            (vec![asked.clone()], false),
            (vec![], false),
            (vec![asked, r#"{"message":{"role":"assistant"}}"#.to_owned()], false),
        ] {
            assert_eq!(answered_offline(lines.join("\n").as_bytes()), trial, "{lines:?}");
        }
    }
}
