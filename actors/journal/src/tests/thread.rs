//! The journal as programs use it: on its thread, on the real disk.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};

use domain::ids::{SessionKey, TurnId};
use protocol::journal::*;
use protocol::metrics::Metrics;
use supervision::log::MemoryLog;
use supervision::real::real_ports;
use tokio::task::JoinSet;

use super::machine::*;
use crate::{LogJournal, Options, RecoveryReport, Surroundings};

const SESSIONS_MANY: u64 = 20;
const TURNS: u64 = 30;

fn open(dir: &Path, sink: Arc<Sink>, recent: Arc<dyn RecentIds>) -> (Arc<LogJournal>, RecoveryReport) {
    let options = Options {
        segment_bytes: 64 << 10,
        max_bytes: 16 << 20,
        ..Options::new(dir.join("journal"), dir.join("sessions"))
    };
    std::fs::create_dir_all(dir.join("sessions")).unwrap();
    let ports = real_ports(2).unwrap();
    let (metrics, log, out) = (Metrics::default(), MemoryLog::new(), Arc::new(RowSink::default()));
    LogJournal::open(options, Surroundings { ports, metrics, log, sink, out, recent }).unwrap()
}

async fn converse(journal: Arc<LogJournal>, session: u64) -> Vec<TurnId> {
    let name = format!("ws:{session}");
    let mut live: Option<Loaded> = None;
    let mut turns = Vec::new();
    for n in 0..TURNS {
        let message = message(&name, session * 1000 + n + 1, &format!("m{n}"), &[b'x'; 300]);
        let turn = message.turn;
        assert!(matches!(journal.enqueue(message).await.unwrap(), Enqueued::Accepted { .. }));
        turns.push(turn);
        if live.is_none() {
            live = Some(journal.load(key(&name)).await.unwrap().unwrap());
        }
        let at = live.as_mut().unwrap();
        let mut end = commit(&key(&name), at.session, at.epoch, at.next_commit);
        end.lines = vec![line(&format!("{session}-{n}"))];
        end.ended = vec![(turn, TurnEnd::Done)];
        assert_eq!(journal.commit(end).await.unwrap(), CommitOutcome::Done);
        at.next_commit += 1;
    }
    turns
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_sessions_share_one_log() {
    let dir = tempfile::tempdir().unwrap();
    let sink = Arc::new(Sink::default());
    let (journal, _) = open(dir.path(), sink.clone(), Arc::new(Transcripts::default()));
    let mut all = JoinSet::new();
    for session in 0..SESSIONS_MANY {
        all.spawn(converse(journal.clone(), session));
    }
    let turns: Vec<_> = all.join_all().await;
    let mut queued: BTreeMap<SessionKey, Vec<TurnId>> = BTreeMap::new();
    for one in sink.0.lock().unwrap().iter() {
        queued.entry(one.key.clone()).or_default().push(one.item.turn);
    }
    for own in turns {
        assert!(queued.values().any(|queued| *queued == own), "each session's messages were handed on in order");
    }
    let status = journal.status();
    assert_eq!((status.accepted, status.done, status.open), (SESSIONS_MANY * TURNS, SESSIONS_MANY * TURNS, 0));
    journal.close().await.unwrap();
    let (journal, report) = open(dir.path(), sink, Arc::new(Transcripts::default()));
    assert_eq!((report.keys as u64, report.open_turns), (SESSIONS_MANY, 0));
    let status = journal.status();
    assert!(status.writable && status.total_bytes > 0, "told from the first moment: {status:?}");
    for session in 0..SESSIONS_MANY {
        let loaded = journal.load(key(&format!("ws:{session}"))).await.unwrap().unwrap();
        assert_eq!((loaded.lines.len() as u64, loaded.next_commit), (TURNS, TURNS + 1));
    }
    assert!(crate::check(&dir.path().join("journal"), &supervision::real::RealDisk).unwrap().damage.is_none());
}

/// Fails once, then knows nothing.
struct Stumbling(Mutex<bool>);

impl RecentIds for Stumbling {
    fn recent(&self, _: &SessionKey) -> io::Result<Vec<RecentId>> {
        if std::mem::replace(&mut *self.0.lock().unwrap(), true) {
            Ok(Vec::new())
        } else {
            Err(io::Error::other("unreadable"))
        }
    }
}

#[tokio::test]
async fn a_message_whose_past_is_unreadable_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, _) = open(dir.path(), Arc::default(), Arc::new(Stumbling(Mutex::default())));
    let busy = journal.enqueue(message("a", 1, "m1", b"x")).await.unwrap();
    assert!(matches!(busy, Enqueued::Busy { why: BusyReason::Transcript, .. }));
    let again = journal.enqueue(message("a", 2, "m1", b"x")).await.unwrap();
    assert!(matches!(again, Enqueued::Accepted { position: 0, .. }));
}

#[tokio::test]
async fn commits_may_be_sent_without_waiting() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, _) = open(dir.path(), Arc::default(), Arc::new(Transcripts::default()));
    let loaded = journal.load(key("a")).await.unwrap().unwrap();
    let answers: Vec<_> =
        (1..=50).map(|n| journal.commit(commit(&key("a"), loaded.session, loaded.epoch, n))).collect();
    for answer in answers {
        assert_eq!(answer.await.unwrap(), CommitOutcome::Done);
    }
    drop(journal.close());
    // Either it is told so, or nobody is there any more to tell it.
    let late = journal.commit(commit(&key("a"), loaded.session, loaded.epoch, 51)).await;
    assert!(matches!(late, Ok(CommitOutcome::Unknown { .. }) | Err(_)));
}
