//! What must be true of a log that was left: it is read the same way each time, and the process that starts on it knows
//! what it says.

use std::path::Path;
use std::sync::Arc;

use journal::{LogJournal, Nobody, Options, Surroundings};
use protocol::journal::Journal;
use protocol::metrics::Metrics;
use supervision::log::MemoryLog;
use supervision::memory::{PowerCutDisk, RuntimeClock, memory_ports};

use super::drive::{HOME, Running};

/// What a log says, as text. Opening it writes, so it is opened on a copy.
async fn replay(running: &Running, disk: &PowerCutDisk) -> Result<String, String> {
    let plan = &running.process.world.plan;
    let home = Path::new(HOME);
    let options = Options {
        segment_bytes: plan.segment_bytes,
        max_bytes: plan.journal_bytes,
        ..Options::new(home.join("journal"), home.join("workspace/sessions"))
    };
    let ports = memory_ports(disk.copy(), RuntimeClock::new(), 1);
    let nobody = Arc::new(Nobody);
    let (metrics, log) = (Metrics::default(), MemoryLog::new());
    let (sink, out, recent) = (nobody.clone(), nobody.clone(), nobody);
    let opened = LogJournal::open_local(options, Surroundings { ports, metrics, log, sink, out, recent });
    let (journal, _) = opened.map_err(|error| error.to_string())?;
    Ok(tell(&*journal).await)
}

/// The turns and the letters of a journal.
async fn tell(journal: &dyn Journal) -> String {
    let (unfinished, letters) = (journal.unfinished().await, journal.dead_letters().await);
    let mut unfinished = unfinished.unwrap_or_default();
    unfinished.sort_by(|a, b| a.key.cmp(&b.key));
    let unfinished: Vec<_> =
        unfinished.iter().filter(|one| one.turns > 0).map(|one| (&one.key, &one.cut, one.turns)).collect();
    let letters = letters.unwrap_or_default();
    let letters: Vec<_> = letters.iter().map(|letter| (&letter.key, letter.turn, &letter.reason)).collect();
    format!("open {} unfinished {unfinished:?} letters {letters:?}", journal.status().open)
}

/// Compares two replays of `before`, and the process that has just started on it.
pub async fn check(running: &Running, before: &PowerCutDisk) {
    let process = &running.process;
    let (first, again) = (replay(running, before).await, replay(running, before).await);
    if !process.is_alive() {
        return;
    }
    process.note(|books| {
        match (&first, &again) {
            (Ok(first), Ok(again)) if first == again => {}
            (Ok(_), Ok(_)) => books.wrong(format!("the log is read in two ways: {first:?} and {again:?}")),
            (Err(error), _) | (_, Err(error)) => books.wrong(format!("the log cannot be read: {error}")),
        }
        "the log was replayed".to_owned()
    });
    let status = running.app.journal().status();
    let expected = first.unwrap_or_default();
    process.note(|books| {
        if !expected.starts_with(&format!("open {} ", status.open)) {
            books.wrong(format!("the process began with {} open turns, the log says {expected}", status.open));
        }
        format!("the process has {} open turns", status.open)
    });
}
