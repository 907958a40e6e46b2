//! What the fuzz target and the fixed corpus do with an input: make files of it, recover them, and look whether that was
//! right. Whatever the files are, recovery
//!
//! * never panics, and refuses or accepts the same files the same way twice;
//! * takes exactly the sound batches, which a reader of its own in here counts;
//! * finds the same the second time;
//! * goes on after `repair`, if it refused for damage.
//!
//! The first byte of an input chooses what the rest is: bytes of segments behind a sound head (0), changes to a log that
//! was written in earnest (1), records in batches whose checksums are right (2).

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use domain::body::body_hash;
use domain::ids::{DeliveryId, MessageId, SessionKey, Source, TurnId};
use journal::{LogJournal, Nobody, OpenError, Options, RecoveryReport, Surroundings};
use protocol::journal::{Closes, Commit, Enqueue, Journal, Line, Loaded, Move, Out, Quarantine, Shelf, TurnEnd};
use protocol::metrics::Metrics;
use protocol::turn::{PushRoute, Route};
use supervision::log::MemoryLog;
use supervision::memory::{PowerCutDisk, TestClock, memory_ports};
use supervision::ports::{Disk, Open, Ports};
use uuid::Uuid;

const DIR: &str = "/journal";
const SEGMENT: usize = 8192;
const HEAD: usize = 4096;
const BATCH_HEAD: usize = 32;

/// Runs one input.
pub fn run(data: &[u8]) {
    let Some((mode, rest)) = data.split_first() else { return };
    let disk = match mode % 3 {
        0 => segments_of(rest),
        1 => changed_log(rest),
        _ => sealed_records(rest),
    };
    recover(&disk);
}

fn recover(disk: &Arc<PowerCutDisk>) {
    let sound = sound_batches(disk);
    match open(disk) {
        Ok((journal, found)) => {
            assert_eq!(found.batches, sound, "exactly the sound batches are taken");
            drop(journal.close());
            drop(journal);
            let (_, again) = open(disk).expect("what was recovered is recovered again");
            let known = |report: &RecoveryReport| (report.keys, report.open_turns, report.dead_letters);
            assert_eq!(known(&again), known(&found), "the second time it is the same");
        }
        Err(refused) => {
            let again = open(disk).err().map(|again| again.to_string());
            assert_eq!(again, Some(refused.to_string()), "it is refused the same way");
            drop(journal::check(Path::new(DIR), &**disk));
            if let OpenError::Damaged { .. } = refused {
                mend(disk);
            }
        }
    }
}

fn mend(disk: &Arc<PowerCutDisk>) {
    match journal::repair(&options(), &ports(disk), Some(Path::new("/journal/aside"))) {
        Ok(report) => {
            let (_, found) = open(disk).unwrap_or_else(|error| panic!("{error} after {report:?}"));
            let kept = (report.open_turns, report.dead_letters);
            assert_eq!((found.open_turns, found.dead_letters), kept);
            // A session that was closed and has nothing open is not copied.
            assert!(found.keys <= report.keys, "{} keys after {report:?}", found.keys);
        }
        // A record of a type that this version does not know may stand behind the damage.
        Err(OpenError::UnknownRecord { .. } | OpenError::NewerFormat { .. }) => {}
        // Neither damage nor a writer puts a body without its hash behind a sound checksum: then nothing is done.
        Err(OpenError::Io { source, .. }) if source.to_string().ends_with("nothing was changed") => {
            assert!(matches!(open(disk), Err(OpenError::Damaged { .. })), "something was changed");
        }
        Err(error) => panic!("it cannot be repaired: {error}"),
    }
}

// === the files ===

fn empty() -> Arc<PowerCutDisk> {
    let disk = PowerCutDisk::new();
    disk.create_dir_all(Path::new(DIR)).unwrap();
    disk.create_dir_all(Path::new("/sessions")).unwrap();
    disk
}

fn path(number: u64) -> PathBuf {
    Path::new(DIR).join(format!("{number:016x}.seg"))
}

fn head(number: u64) -> Vec<u8> {
    let mut bytes = Vec::from(*b"GRJ1");
    bytes.extend_from_slice(&[1, 0, 0, 0]);
    for field in [number, (number - 1) * SEGMENT as u64, SEGMENT as u64] {
        bytes.extend_from_slice(&field.to_le_bytes());
    }
    bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
    bytes.resize(HEAD, 0);
    bytes
}

fn put(disk: &PowerCutDisk, number: u64, body: &[u8]) {
    let mut bytes = head(number);
    bytes.extend_from_slice(body.get(..SEGMENT - HEAD).unwrap_or(body));
    bytes.resize(SEGMENT, 0);
    disk.open(&path(number), Open::Create).unwrap().write_at(&bytes, 0).unwrap();
}

fn segments_of(data: &[u8]) -> Arc<PowerCutDisk> {
    let disk = empty();
    for (number, body) in (1..=3).zip(data.chunks(SEGMENT - HEAD)) {
        put(&disk, number, body);
    }
    disk
}

/// Each change is a segment, an offset (two bytes), a length and that many bytes.
fn changed_log(mut data: &[u8]) -> Arc<PowerCutDisk> {
    static WRITTEN: OnceLock<Arc<PowerCutDisk>> = OnceLock::new();
    let disk = WRITTEN.get_or_init(written_log).copy();
    let files: Vec<_> = disk.list(Path::new(DIR)).unwrap();
    while let Some(([segment, low, high, length], rest)) = data.split_first_chunk::<4>() {
        let (bytes, rest) = rest.split_at(usize::from(*length).min(rest.len()));
        let offset = u64::from(u16::from_le_bytes([*low, *high])) % SEGMENT as u64;
        let bytes = &bytes[..bytes.len().min(SEGMENT - offset as usize)];
        if let Some(file) = files.get(usize::from(*segment) % files.len().max(1)) {
            disk.open(file, Open::Write).unwrap().write_at(bytes, offset).unwrap();
        }
        data = rest;
    }
    disk
}

/// Each record is a type, a length (two bytes) and that many bytes, in a batch of its own.
fn sealed_records(data: &[u8]) -> Arc<PowerCutDisk> {
    let (disk, mut body, mut number) = (empty(), Vec::new(), 1u64);
    let mut rest = data;
    while let Some(([kind, low, high], tail)) = rest.split_first_chunk::<3>() {
        let length = usize::from(u16::from_le_bytes([*low, *high]) % 1024).min(tail.len());
        let (payload, tail) = tail.split_at(length);
        let mut batch = vec![0; BATCH_HEAD];
        batch.extend_from_slice(&(length as u32).to_le_bytes());
        batch.push(*kind);
        batch.extend_from_slice(payload);
        seal(&mut batch, 1, number);
        if body.len() + batch.len() > SEGMENT - HEAD {
            break;
        }
        body.extend_from_slice(&batch);
        number += 1;
        rest = tail;
    }
    put(&disk, 1, &body);
    disk
}

fn seal(batch: &mut Vec<u8>, segment: u64, number: u64) {
    let payload = (batch.len() - BATCH_HEAD) as u32;
    batch[..4].copy_from_slice(b"GRJB");
    batch[4..8].copy_from_slice(&payload.to_le_bytes());
    batch[8..16].copy_from_slice(&segment.to_le_bytes());
    batch[16..24].copy_from_slice(&number.to_le_bytes());
    batch[24..28].copy_from_slice(&1u32.to_le_bytes());
    let crc = crc32c::crc32c_append(crc32c::crc32c(&batch[..28]), &batch[BATCH_HEAD..]);
    batch[28..32].copy_from_slice(&crc.to_le_bytes());
    batch.resize(batch.len().next_multiple_of(8), 0);
}

// === a reader of its own ===

/// Batches of the newest segments without a hole between them, in order from the first, up to the first bad one.
fn sound_batches(disk: &PowerCutDisk) -> u64 {
    let (mut expected, mut oldest) = (None, 1);
    let mut per_segment = Vec::new();
    for number in 1..=64u64 {
        let Ok(bytes) = disk.read(&path(number)) else { continue };
        let (mut at, mut batches) = (HEAD, 0);
        while let Some((next, length, checkpoint)) = batch_at(&bytes, at, number) {
            if expected.is_some_and(|expected| expected != next) {
                break;
            }
            oldest = checkpoint.max(oldest);
            (expected, at, batches) = (Some(next + 1), at + length, batches + 1);
        }
        per_segment.push((number, batches));
    }
    per_segment.into_iter().filter(|(number, _)| *number >= oldest).map(|(_, batches)| batches).sum()
}

/// Number, length with padding, and the oldest segment that it asks for, of the batch at `at`.
fn batch_at(bytes: &[u8], at: usize, segment: u64) -> Option<(u64, usize, u64)> {
    let head = bytes.get(at..at + BATCH_HEAD)?;
    let int = |from: usize| u64::from_le_bytes(head[from..from + 8].try_into().unwrap());
    let payload = bytes.get(at + BATCH_HEAD..)?.get(..u32::from_le_bytes(head[4..8].try_into().unwrap()) as usize)?;
    let crc = crc32c::crc32c_append(crc32c::crc32c(&head[..28]), payload);
    if &head[..4] != b"GRJB" || int(8) != segment || head[28..] != crc.to_le_bytes() {
        return None;
    }
    let (mut checkpoint, mut rest) = (0, payload);
    while let Some(([a, b, c, d, kind], tail)) = rest.split_first_chunk::<5>() {
        let record = tail.get(..u32::from_le_bytes([*a, *b, *c, *d]) as usize)?;
        if *kind == 12 {
            // None asks for a segment that came after its own.
            checkpoint = Some(first_integer(record)).filter(|asked| *asked <= segment).unwrap_or(0).max(checkpoint);
        }
        rest = &tail[record.len()..];
    }
    Some((int(16), (BATCH_HEAD + payload.len()).next_multiple_of(8), checkpoint))
}

/// The integer at the front: seven bits a byte, lowest first.
fn first_integer(record: &[u8]) -> u64 {
    let last = record.iter().position(|byte| *byte < 0x80).map_or(record.len(), |last| last + 1).min(9);
    record[..last].iter().rev().fold(0, |sum, byte| sum << 7 | u64::from(byte & 0x7f))
}

// === a log that was written in earnest ===

fn options() -> Options {
    Options { segment_bytes: SEGMENT as u64, max_bytes: 1 << 20, ..Options::new(DIR, "/sessions") }
}

fn ports(disk: &Arc<PowerCutDisk>) -> Ports {
    memory_ports(disk.clone(), TestClock::new(), 1)
}

fn open(disk: &Arc<PowerCutDisk>) -> Result<(Arc<LogJournal>, RecoveryReport), OpenError> {
    let nobody = Arc::new(Nobody);
    let (metrics, log) = (Metrics::default(), MemoryLog::new());
    let (sink, out, recent) = (nobody.clone(), nobody.clone(), nobody);
    LogJournal::open_local(options(), Surroundings { ports: ports(disk), metrics, log, sink, out, recent })
}

fn written_log() -> Arc<PowerCutDisk> {
    let disk = empty();
    let (journal, _) = open(&disk).unwrap();
    for n in 1..=36u64 {
        let name = SessionKey::new(&format!("k{}", n % 5)).unwrap();
        let turn = TurnId(Uuid::from_u128(n.into()));
        let body = vec![b'x'; 20 + 60 * (n as usize % 4)];
        let push = PushRoute { channel: "webhook".into(), account: "".into(), chat: "c".into(), thread: None };
        drop(journal.enqueue(Enqueue {
            key: name.clone(),
            turn,
            source: Source::new("ws").unwrap(),
            message_id: MessageId::new(&format!("m{n}")).unwrap(),
            route: if n % 3 == 0 { Route::Push(push.clone()) } else { Route::Live },
            body_hash: body_hash(&body),
            body: body.into(),
            retry_of: None,
        }));
        if n % 4 == 0 {
            continue;
        }
        let Loaded { session, epoch, next_commit, .. } = journal.load(name.clone()).try_recv().unwrap().unwrap();
        let end = match n % 7 {
            0 => TurnEnd::Dead { reason: "crashes".into() },
            3 => TurnEnd::Joined { into: TurnId(Uuid::from_u128(u128::from(n) - 1)) },
            _ => TurnEnd::Done,
        };
        let id = DeliveryId { turn, n: 1 };
        let out = Out { id, turn, route: push, text: "y".repeat(40).into(), parts: 1 };
        drop(journal.commit(Commit {
            key: name.clone(),
            session,
            epoch,
            number: next_commit,
            lines: vec![Line { id: format!("e{n}").into(), text: "{}".into() }],
            tools_started: Vec::new(),
            ended: vec![(turn, end)],
            out: if n % 3 == 0 { vec![out] } else { Vec::new() },
            started: None,
            interrupted: false,
            closes: (n % 11 == 0).then_some(match n % 2 {
                0 => Closes::Moved,
                _ => Closes::Moves(Move { to: Shelf::Deleted, at_ms: n }),
            }),
        }));
        drop(journal.sending(id));
        drop(if n % 2 == 0 { journal.sent(id) } else { journal.undeliverable(id, "410".into()) });
        journal.release(name.clone(), epoch);
        if n % 9 == 0 {
            drop(journal.quarantine(Quarantine {
                key: name,
                until_ms: 9,
                times: 1,
                reason: "crashes".into(),
                turn: None,
            }));
        }
    }
    drop(journal.close());
    disk
}
