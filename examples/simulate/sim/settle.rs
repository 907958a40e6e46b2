//! The end of a run: faults stop, clients come back with everything that they said, and all accounts must close.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use channel::outbox::PushChannel;
use domain::ids::{DeliveryId, LetterId, SessionKey, TurnId};
use domain::prompt::CANCELLED_NOTICE;
use domain::text::{TextLimit, split};
use domain::transcript::{EntryKind, TurnClose, read_lines};
use protocol::journal::LetterKind;
use protocol::session::TurnRecord;
use protocol::turn::TurnResult;
use supervision::memory::PowerCutDisk;
use supervision::ports::Disk;

use super::books::Books;
use super::drive::{Running, transcript};
use super::files::{File, Place, files_of};
use super::handing;
use super::joins::Joins;
use super::process::locked;
use super::pusher::SimChannel;
use super::receipts::Account;
use super::work::Work;

/// Within this time after the last fault everything is answered, in seconds: quarantines, stalls and backoffs included.
const DRAIN_S: u64 = 3_600;
/// How often a client repeats a message that is refused.
const REPEATS_MAX: u32 = 60;
/// No quarantine lasts longer, in seconds: the longest one that is configured, and a moment.
const QUARANTINE_S: u64 = 300;
/// Within this time everything idle leaves memory, in seconds.
const LEAVE_S: u64 = 120;

/// Brings everything to its end and closes the accounts.
pub async fn settle(running: &Running) {
    running.process.calm_down();
    running.process.note(|_| "nothing goes wrong by itself any more".to_owned());
    running.end_jobs().await;
    running.end_handing().await;
    drain(running, "at the end").await;
    repeat(running).await;
    drain(running, "after everything was repeated").await;
    ask_for_turns(running).await;
    running.check_queues().await;
    running.end_runs().await;
    // What could not be moved when its session ended is moved when that wakes.
    (0..running.process.world.plan.keys.len()).for_each(|key| running.status(key));
    second().await;
    leave(running).await;
    if running.process.is_alive() {
        close(running).await;
    }
}

/// Clients repeat what they sent, until it is acknowledged: what was accepted, or else what they meant to say.
async fn repeat(running: &Running) {
    for message in 0..running.process.world.plan.messages.len() {
        for _ in 0..REPEATS_MAX {
            let other = {
                let books = running.process.world.books();
                let Some(said) = books.said.get(message).filter(|said| said.sent) else { break };
                said.turn.and_then(|turn| books.turns.get(&turn)).is_some_and(|turn| turn.other)
            };
            running.send(message, other);
            second().await;
            if !running.process.is_alive() {
                return;
            }
            if running.process.world.books().said.get(message).is_some_and(|said| said.turn.is_some()) {
                break;
            }
            tokio::time::sleep(Duration::from_secs(20)).await;
        }
    }
}

async fn second() {
    tokio::time::sleep(Duration::from_secs(1)).await;
}

async fn drain(running: &Running, when: &str) {
    for _ in 0..DRAIN_S {
        second().await;
        if !running.process.is_alive() {
            return;
        }
        // A journal without a thread looks for space when it is called.
        drop(running.app.journal().unfinished());
        let status = running.app.journal().status();
        if (status.open, status.outbox) == (0, 0) {
            return;
        }
    }
    let outbox = running.app.journal().status().outbox;
    let unfinished = running.app.journal().unfinished().await.unwrap_or_default();
    let left: Vec<String> = unfinished.iter().map(|one| format!("{} ({})", one.key, one.turns)).collect();
    running.process.note(|books| {
        books.wrong(format!("turns stay open {when}: {left:?}, and {outbox} messages unsent"));
        "turns stay open".to_owned()
    });
}

async fn ask_for_turns(running: &Running) {
    let acknowledged: Vec<(usize, TurnId)> = {
        let books = running.process.world.books();
        books.said.iter().enumerate().filter_map(|(message, said)| said.turn.map(|turn| (message, turn))).collect()
    };
    for (message, turn) in acknowledged {
        let plan = &running.process.world.plan;
        let key = &plan.keys[plan.messages[message].key];
        let mut record = running.app.turn(key, turn).await;
        for _ in 0..QUARANTINE_S {
            // A session that is held back answers when that is over, one that has just ended a turn a moment later.
            let settled = record.as_ref().is_ok_and(|record| !matches!(record, Some(TurnRecord::Open)));
            if settled || !running.process.is_alive() {
                break;
            }
            second().await;
            record = running.app.turn(key, turn).await;
        }
        if !running.process.is_alive() {
            return;
        }
        running.process.note(|books| {
            let silent = books.turns.get(&turn).is_some_and(|turn| turn.unwanted);
            match record {
                Ok(Some(TurnRecord::Ended { text, .. })) => {
                    if let Some(turn) = books.turns.get_mut(&turn) {
                        turn.text = Some(text);
                    }
                }
                Ok(None) if silent => {}
                other => books.wrong(format!("m{message} was acknowledged; its session says {other:?}")),
            }
            format!("m{message} is asked for")
        });
    }
}

async fn leave(running: &Running) {
    for _ in 0..LEAVE_S {
        if running.app.sessions().live() == 0 {
            break;
        }
        second().await;
        if !running.process.is_alive() {
            return;
        }
    }
    locked(&running.watches).clear();
    let (live, watched) = (running.app.sessions().live(), running.app.hub().sessions());
    let metrics = running.app.kernel().metrics();
    let (turns, lag) = (metrics.turns_running.get(), metrics.view_lag_bytes.get());
    let bytes = running.app.journal().status().open_bytes;
    running.process.note(|books| {
        if (live, watched, turns, lag, bytes) != (0, 0, 0, 0, 0) {
            books.wrong(format!(
                "idle, but {live} live, {watched} watched, {turns} running, {lag} bytes behind, {bytes} bytes open"
            ));
        }
        "everything has left memory".to_owned()
    });
}

/// Checks transcripts and dead letters against what was acknowledged.
async fn close(running: &Running) {
    let limit = SimChannel(running.process.clone()).limit();
    let letters = running.app.dead_letters().await.unwrap_or_default();
    let disk = &running.process.disk;
    let keys = &running.process.world.plan.keys;
    let files: Vec<(SessionKey, Vec<File>)> = keys.iter().map(|key| (key.clone(), files_of(disk, key))).collect();
    let work = running.process.world.plan.work.as_ref();
    running.process.note(|books| {
        let mut written = Written::default();
        if let Some(work) = work
            && let Err(wrong) = check_work(books, &mut written, work, disk)
        {
            books.wrong(wrong);
        }
        for (key, files) in &files {
            let ids: Result<Vec<_>, _> = files.iter().map(|file| written.read(key, file)).collect();
            let checked = ids.and_then(|ids| books.files(key).check(files, &ids));
            if let Err(wrong) = checked {
                books.wrong(format!("{key}: {wrong}"));
            }
        }
        books.check_runs(&files, &letters);
        for (key, bytes) in &books.forks.clone() {
            let now = disk.read(&transcript(key)).unwrap_or_default();
            let file = File { place: Place::Live, bytes: now };
            if file.bytes != *bytes {
                books.wrong(format!("the copy {key} has changed"));
            }
            if let Err(wrong) = Written::default().read(key, &file) {
                books.wrong(format!("the copy {key}: {wrong}"));
            }
        }
        let mut dead: BTreeMap<TurnId, u32> = BTreeMap::new();
        for letter in letters.iter().filter(|letter| letter.kind == LetterKind::Turn) {
            *dead.entry(letter.turn).or_default() += 1;
        }
        let undelivered = letters.iter().filter_map(|letter| match letter.id {
            LetterId::Delivery(id) => Some(id),
            LetterId::Turn(_) => None,
        });
        let undelivered: BTreeSet<DeliveryId> = undelivered.collect();
        for message in 0..books.said.len() {
            if books.said[message].sent && books.said[message].turn.is_none() {
                books.wrong(format!("m{message} was never acknowledged"));
            }
        }
        let turns: Vec<TurnId> = books.turns.keys().copied().collect();
        for turn in turns {
            let accounts =
                [account(books, turn, &written, &dead), delivered(books, turn, &written, &undelivered, limit)];
            for wrong in accounts.into_iter().filter_map(Result::err) {
                books.wrong(wrong);
            }
        }
        "the accounts are closed".to_owned()
    });
}

/// Checks what the sessions of jobs say.
fn check_work(books: &mut Books, written: &mut Written, work: &Work, disk: &PowerCutDisk) -> Result<(), String> {
    let mut transcripts = Vec::new();
    for key in &books.of_work {
        let file = File { place: Place::Live, bytes: disk.read(&transcript(key)).unwrap_or_default() };
        written.read(key, &file)?;
        let read = read_lines(&file.bytes);
        if *key == handing::session() {
            books.counts.handed_in += books.handed.check(disk, &read, books.read_faults)?;
        }
        transcripts.push(read);
    }
    books.counts.jobs_run += books.jobs.check(&work.jobs, &transcripts)?;
    Ok(())
}

/// What the transcripts say.
#[derive(Default)]
struct Written {
    users: BTreeMap<TurnId, u32>,
    joins: Joins,
    ends: BTreeMap<TurnId, Vec<TurnClose>>,
    /// Turns of transcripts that have ended.
    past: BTreeSet<TurnId>,
}

impl Written {
    /// Reads a transcript. The answer are the ids of its entries.
    fn read(&mut self, key: &SessionKey, file: &File) -> Result<Vec<String>, String> {
        let transcript = read_lines(&file.bytes);
        if transcript.problems_total > 0 {
            return Err(format!("the transcript of {key} is damaged"));
        }
        let (mut calls, mut results, mut texts) = (Vec::new(), Vec::new(), Vec::new());
        for entry in transcript.entries() {
            match &entry.kind {
                EntryKind::User(user) => {
                    if let Some(mark) = &user.mark {
                        *self.users.entry(mark.turn).or_default() += 1;
                        self.joins.read(mark);
                        texts.push(mark.idempotency_key.clone());
                    }
                }
                EntryKind::Assistant(assistant) => {
                    calls.extend(assistant.message.calls.iter().map(|call| call.id.clone()));
                    if let (Some(turn), Some(end)) = (assistant.turn, assistant.end) {
                        self.ends.entry(turn).or_default().push(end);
                        if file.place != Place::Live {
                            self.past.insert(turn);
                        }
                    } else if let (Some(turn), true) = (assistant.turn, assistant.message.calls.is_empty()) {
                        return Err(format!("the transcript of {key} has an answer that ends nothing, of {turn}"));
                    }
                }
                EntryKind::ToolResult(result) => results.push(result.result.call.clone()),
                EntryKind::Opaque => {
                    return Err(format!(
                        "the transcript of {key} has a line of nobody's: {}",
                        String::from_utf8_lossy(&file.bytes)
                    ));
                }
                EntryKind::Shown(_)
                | EntryKind::Compaction { .. }
                | EntryKind::BranchSummary(_)
                | EntryKind::Reset { .. }
                | EntryKind::Silent(_)
                | EntryKind::Leaf { .. } => {}
            }
        }
        calls.sort();
        results.sort();
        if calls != results {
            return Err(format!("the transcript of {key} has calls {calls:?} and results {results:?}"));
        }
        let all = texts.len();
        texts.sort();
        texts.dedup();
        if texts.len() != all {
            return Err(format!("the transcript of {key} has a message twice"));
        }
        Ok(transcript.entries().iter().map(|entry| entry.id.to_string()).collect())
    }
}

/// An acknowledged message stands answered exactly once, or as a dead letter, or was cancelled.
fn account(books: &Books, turn: TurnId, written: &Written, dead: &BTreeMap<TurnId, u32>) -> Result<(), String> {
    let Some(known) = books.turns.get(&turn) else { return Ok(()) };
    let message = known.message;
    let ends = written.ends.get(&turn).map(Vec::as_slice).unwrap_or_default();
    let users = written.users.get(&turn).copied().unwrap_or(0);
    let letters = dead.get(&turn).copied().unwrap_or(0);
    let silent = known.unwanted && users == 0 && ends.is_empty() && known.end.is_none_or(is_cancelled);
    if silent {
        return Ok(());
    }
    if !known.acknowledged {
        // Nobody was told of it: it may have been taken all the same, and its transcript have ended since.
        let once = users <= 1 && ends.len() <= 1;
        return if once { Ok(()) } else { Err(format!("m{message} stands {users} times in its transcript")) };
    }
    if written.joins.of(turn).is_some() {
        return written.joins.account(known, ends, users, letters);
    }
    if users != u32::from(!known.unreadable) || ends.len() != 1 {
        return Err(format!("m{message} stands {users} times in its transcript, and ends there as {ends:?}"));
    }
    let (letter, shown) = match ends.first() {
        Some(TurnClose::Done) => (0, TurnResult::Done),
        Some(TurnClose::Failed) => (0, TurnResult::Failed),
        Some(TurnClose::Cancelled) => (0, TurnResult::Cancelled),
        Some(TurnClose::Dead) | None => (1, TurnResult::DeadLettered),
    };
    if letters != letter {
        return Err(format!("m{message} ended as {shown:?} and has {letters} dead letters"));
    }
    match known.end {
        Some(end) if end != shown => Err(format!("m{message} was shown as {end:?} and stands as {shown:?}")),
        Some(_) | None => Ok(()),
    }
}

/// Each part of what a pushed turn said was received, or is a dead letter.
fn delivered(
    books: &Books,
    turn: TurnId,
    written: &Written,
    undelivered: &BTreeSet<DeliveryId>,
    limit: TextLimit,
) -> Result<(), String> {
    let Some(known) = books.turns.get(&turn).filter(|known| known.acknowledged) else { return Ok(()) };
    let message = known.message;
    let mut out = books.receipts.of(turn).peekable();
    if !known.pushed || written.joins.of(turn).is_some() {
        return if out.peek().is_none() { Ok(()) } else { Err(format!("m{message} was pushed to somebody")) };
    }
    if written.past.contains(&turn) {
        // Its session does not say any more what it said; all parts of it went out all the same.
        let rows: Vec<(u32, Account<'_>)> = out.collect();
        let parts = rows.first().map_or(0, |(_, row)| row.parts);
        let whole = (1..=parts).eq(rows.iter().map(|(n, _)| *n));
        let told = |(n, row): &(u32, Account<'_>)| row.received || undelivered.contains(&DeliveryId { turn, n: *n });
        let complete = whole && rows.iter().all(told);
        return if complete {
            Ok(())
        } else {
            Err(format!("of m{message}, whose session has ended, parts are missing"))
        };
    }
    // What was cancelled before it began stands in no transcript; its user is told all the same.
    let text = known.text.as_deref().unwrap_or(CANCELLED_NOTICE);
    let mut parts = split(text, limit);
    parts.retain(|part| !part.trim().is_empty());
    let mut rows: BTreeMap<u32, Account<'_>> = out.collect();
    for (n, part) in (1..).zip(parts) {
        let letter = undelivered.contains(&DeliveryId { turn, n });
        let Some(row) = rows.remove(&n) else {
            return Err(format!("part {n} of m{message} was never sent"));
        };
        if row.text != part {
            return Err(format!("part {n} of m{message} says something else than its turn"));
        }
        if letter && !row.refused && !books.aged {
            return Err(format!("part {n} of m{message} was given up and nobody had refused it"));
        }
        if !letter && !row.received {
            return Err(format!("part {n} of m{message} was neither received nor given up"));
        }
    }
    if rows.is_empty() { Ok(()) } else { Err(format!("m{message} was pushed in more parts than it has")) }
}

fn is_cancelled(end: TurnResult) -> bool {
    end == TurnResult::Cancelled
}
