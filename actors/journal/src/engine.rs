//! The one writer: takes calls, decides them against the state, puts records into a batch, makes the batch durable,
//! hands new messages on in log order, and only then answers.
//!
//! ```text
//!  take(call)* ──▶ turn(): copy forward a little ─▶ write + sync ─▶ Queued… ─▶ answers… ─▶ start work elsewhere
//! ```
//!
//! The state runs ahead of the disk by the open batch. Nothing of that is seen outside: everything that answers out
//! of the state waits for the batch that it was decided in.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use domain::ids::SessionKey;
use protocol::journal::{
    CommitOutcome, Enqueue, Enqueued, JournalError, JournalStatus, LeftBy, LogPosition, OutRow, OutSink, QueuedSink,
    RecentIds, Space, Told,
};
use protocol::metrics::{ByState, Metrics, gauge};
use protocol::supervision::{ActorPath, Event, EventName, Kind, SupervisionLog};
use supervision::planted::{Bug, planted};
use supervision::ports::Ports;
use tokio::sync::oneshot::Sender;
use tokio::sync::watch;

use crate::batch::{self, RECORD_HEADER_BYTES};
use crate::call::Call;
use crate::carry::{Checkpoint, Notes};
use crate::catch_up::CatchUp;
use crate::log::Log;
use crate::options::{Options, RECORD_BYTES_MAX};
use crate::pump::Post;
use crate::record::Record;
use crate::recovery::Recovered;
use crate::reply::Reply;
use crate::state::State;

/// How often a journal that cannot get space tries again.
pub const PROBE_INTERVAL: Duration = Duration::from_secs(1);
/// A batch is closed when it has this many bytes, or [`BATCH_CALLS_MAX`] answers wait for it.
const BATCH_BYTES_MAX: usize = 2 << 20;
/// See [`BATCH_BYTES_MAX`].
const BATCH_CALLS_MAX: usize = 8192;
/// Calls that wait for space; beyond, messages are refused and commits answered `Unknown`.
pub(crate) const STALLED_MAX: usize = 50_000;

/// Everything outside that a journal uses.
#[derive(Clone)]
pub struct Surroundings {
    /// Disk, clock, ids, pool.
    pub ports: Ports,
    /// Counters.
    pub metrics: Metrics,
    /// Events.
    pub log: Arc<dyn SupervisionLog>,
    /// Where accepted messages go.
    pub sink: Arc<dyn QueuedSink>,
    /// Where rows of the outbox go.
    pub out: Arc<dyn OutSink>,
    /// Where ids of transcripts come from.
    pub recent: Arc<dyn RecentIds>,
}

/// Whether a record can be put into the log now.
#[derive(Debug, PartialEq, Eq)]
pub enum Room {
    /// It can.
    Ready,
    /// The next segment is not there yet.
    Stalled,
    /// No segment will ever take it.
    TooLarge,
    /// The journal failed.
    Failed,
}

/// Messages of one key whose ids are being looked up, in order.
pub(crate) type Parked = VecDeque<(Enqueue, Told)>;

/// The writer.
pub struct Engine {
    pub(crate) options: Options,
    pub(crate) around: Surroundings,
    pub(crate) state: State,
    pub(crate) log: Log,
    pub(crate) post: Post,
    pub(crate) checkpoint: Checkpoint,
    pub(crate) catch_up: CatchUp,
    pub(crate) replies: Vec<Reply>,
    /// Rows of the batch, for the sink.
    pub(crate) rows_out: Vec<OutRow>,
    batch: Vec<u8>,
    pub(crate) batch_records: u32,
    /// Somebody waits for the batch; a batch of notes alone is written along with the next one.
    pub(crate) urgent: bool,
    pub(crate) stalled: VecDeque<Call>,
    pub(crate) parked: HashMap<SessionKey, Parked>,
    pub(crate) parked_bytes: u64,
    pub(crate) finding: Vec<SessionKey>,
    pub(crate) read_only: bool,
    /// What the disk lacks then.
    pub(crate) space: Option<Space>,
    pub(crate) probe_at: Duration,
    pub(crate) draining: bool,
    pub(crate) closed: bool,
    /// Told once nothing of it touches the disk any more.
    pub(crate) closing: Vec<Sender<()>>,
    /// How long the last write and sync took.
    pub(crate) wrote: Duration,
    pub(crate) failed: Option<String>,
    fail: watch::Sender<Option<String>>,
    status: Arc<Mutex<JournalStatus>>,
}

impl Engine {
    /// Takes over a recovered log.
    pub fn new(
        options: Options,
        around: Surroundings,
        recovered: Recovered,
        post: Post,
        notes: Notes,
        status: Arc<Mutex<JournalStatus>>,
        fail: watch::Sender<Option<String>>,
    ) -> Self {
        let catch_up = CatchUp::new(&recovered.state);
        let mut engine = Self {
            options,
            around,
            state: recovered.state,
            log: recovered.log,
            post,
            checkpoint: Checkpoint::new(notes),
            catch_up,
            replies: Vec::new(),
            rows_out: Vec::new(),
            batch: vec![0; batch::HEADER_BYTES],
            batch_records: 0,
            urgent: false,
            stalled: VecDeque::new(),
            parked: HashMap::new(),
            parked_bytes: 0,
            finding: Vec::new(),
            read_only: false,
            space: None,
            probe_at: Duration::ZERO,
            draining: false,
            closed: false,
            closing: Vec::new(),
            wrote: Duration::ZERO,
            failed: None,
            fail,
            status,
        };
        engine.around.metrics.journal_writable.set(1);
        if let Some(why) = recovered.no_space {
            engine.become_read_only(&why);
        }
        if engine.state.died && engine.room(8) == Room::Ready {
            // It is counted once, also when this process does not begin all of these turns again.
            engine.note(Record::Left(LeftBy::Death));
        }
        engine.show();
        engine
    }

    /// Takes one call. Its answer may leave now or in [`turn`](Self::turn).
    pub fn take(&mut self, call: Call) {
        if let Some(why) = &self.failed {
            self.closed |= matches!(call, Call::Close(_));
            return Self::refuse(call, why);
        }
        if self.closed {
            self.log.preparing &= !matches!(call, Call::Prepared(_));
            if matches!(call, Call::CaughtUp(_)) {
                self.catch_up.give_up();
            }
            return Self::refuse(call, "the journal is closed");
        }
        match call {
            Call::Enqueue(message, told) => self.enqueue(message, told),
            Call::Load(key, reply) => self.load(key, reply),
            Call::Commit(commit, reply) => self.commit(commit, reply),
            Call::Accepted(at, reply) => self.replies.push(Reply::Read(at, reply)),
            Call::Release(key, epoch) => {
                if self.state.release(&key, epoch) && self.room(16 + key.as_str().len()) == Room::Ready {
                    self.note(Record::Forgotten { key });
                }
            }
            Call::Bound(key, cap) => self.state.bound(&key, cap),
            Call::Ended(key, reply) => self.tell_ended(&key, reply),
            Call::Moved(key, session) => self.moved(key, session),
            Call::Quarantine(quarantine, reply) => {
                let size = 128 + quarantine.key.as_str().len() + quarantine.reason.len();
                match self.room(size) {
                    Room::Ready => {
                        self.append(Record::Quarantined(quarantine));
                        self.replies.push(Reply::Unit(reply));
                    }
                    Room::Stalled => self.stall(Call::Quarantine(quarantine, reply)),
                    Room::TooLarge | Room::Failed => {}
                }
            }
            Call::Unquarantine(key, reply) => match self.room(64 + key.as_str().len()) {
                Room::Ready => {
                    self.append(Record::Released { key });
                    self.replies.push(Reply::Unit(reply));
                }
                Room::Stalled => self.stall(Call::Unquarantine(key, reply)),
                Room::TooLarge | Room::Failed => {}
            },
            Call::Unfinished(reply) => {
                let found = self.state.unfinished(self.around.ports.clock.wall_ms());
                self.replies.push(Reply::Unfinished(found, reply));
            }
            // The asker may be gone.
            Call::FindTurn(turn, reply) => drop(reply.send(self.state.find_turn(turn))),
            Call::OpenOf(key, reply) => drop(reply.send(self.state.open_of(&key))),
            Call::AskCaughtUp(reply) => self.catch_up.tell(reply),
            Call::DeadLetters(reply) => {
                let letters = self.state.letters.iter().map(|kept| kept.letter.clone()).collect();
                self.replies.push(Reply::Letters(letters, reply));
            }
            Call::Outgoing(call) => self.outgoing(call),
            Call::Drain => self.draining = true,
            Call::Close(reply) => self.close(reply),
            Call::Backup(to, reply) => self.replies.push(Reply::Backup(to, reply)),
            Call::RecentIds(found) => self.found(found),
            Call::Prepared(prepared) => self.prepared(prepared),
            Call::ViewsSynced(result) => self.views_synced(result),
            Call::CarryRead(read) => self.carry_read(read),
            Call::CaughtUp(caught_up) => self.caught_up(caught_up),
            Call::Tick => {}
        }
    }

    /// Finishes what was taken.
    pub fn turn(&mut self) {
        self.take_notes();
        self.carry_some();
        self.catch_up_some();
        self.flush();
        self.find_ids();
        self.prepare_next();
        self.show();
        if self.ended() {
            for reply in self.closing.drain(..) {
                let _ = reply.send(());
            }
        }
    }

    /// Whether it has something to do without being called.
    pub fn has_work(&self) -> bool {
        !self.failed() && !self.closed && (self.checkpoint.has_work() || self.catch_up.has_work())
    }

    /// Whether it waits for space and wants to look again after [`PROBE_INTERVAL`].
    pub fn waits_for_space(&self) -> bool {
        self.read_only
    }

    /// Whether it is time to write.
    pub fn batch_is_full(&self) -> bool {
        self.batch.len() >= BATCH_BYTES_MAX || self.replies.len() >= BATCH_CALLS_MAX
    }

    /// Whether its disk failed.
    pub fn failed(&self) -> bool {
        self.failed.is_some()
    }

    /// Whether it was closed and nothing of it touches the disk any more.
    pub fn ended(&self) -> bool {
        let working = self.log.preparing || self.catch_up.is_running();
        self.closed && (!working || self.failed())
    }

    /// Answers a call that comes too late.
    pub fn refuse(call: Call, why: &str) {
        // Whoever asked may be gone; then nobody needs the answer.
        match call {
            Call::Enqueue(_, told) => told.tell(Enqueued::Draining),
            Call::Commit(_, reply) => drop(reply.send(CommitOutcome::Unknown { why: why.to_owned() })),
            Call::Load(_, reply) => drop(reply.send(Err(JournalError::Closed))),
            Call::Ended(_, reply) => drop(reply.send(Err(JournalError::Closed))),
            Call::Accepted(_, reply) => drop(reply.send(Err(JournalError::Closed))),
            Call::Backup(_, reply) => drop(reply.send(Err(JournalError::Closed))),
            Call::Close(reply) => reply.send(()).unwrap_or_default(),
            Call::Quarantine(..)
            | Call::Unquarantine(..)
            | Call::Unfinished(_)
            | Call::FindTurn(..)
            | Call::OpenOf(..)
            | Call::AskCaughtUp(_)
            | Call::DeadLetters(_)
            | Call::Outgoing(_)
            | Call::Release(..)
            | Call::Bound(..)
            | Call::Moved(..)
            | Call::Drain
            | Call::RecentIds(_)
            | Call::Prepared(_)
            | Call::ViewsSynced(_)
            | Call::CarryRead(_)
            | Call::CaughtUp(_)
            | Call::Tick => {}
        }
    }

    // === the batch ===

    /// Makes sure that a record of up to `bytes` bytes fits behind the open batch.
    pub(crate) fn room(&mut self, bytes: usize) -> Room {
        if !self.stalled.is_empty() {
            return Room::Stalled;
        }
        self.room_now(bytes)
    }

    /// Whether a record of `bytes` bytes can be in the log at all.
    pub(crate) fn takes(&self, bytes: usize) -> bool {
        space_alone(bytes) <= self.log.capacity() && bytes as u64 <= RECORD_BYTES_MAX + (1 << 20)
    }

    fn room_now(&mut self, bytes: usize) -> Room {
        if self.failed.is_some() {
            return Room::Failed;
        }
        if !self.takes(bytes) {
            return Room::TooLarge;
        }
        let alone = space_alone(bytes);
        let record = alone - batch::HEADER_BYTES as u64;
        if self.batch.len() as u64 + record > self.log.room() {
            self.urgent |= self.batch_records > 0;
            self.flush();
            if self.failed.is_some() {
                return Room::Failed;
            }
            if alone > self.log.room() {
                if !self.log.roll() {
                    return Room::Stalled;
                }
                self.checkpoint.due = true;
            }
        }
        Room::Ready
    }

    /// Puts a record for whose durability somebody waits into the batch. There must be [`room`](Self::room).
    pub(crate) fn append(&mut self, record: Record) {
        self.urgent = true;
        self.note(record);
    }

    /// Puts a record into the batch that may wait for company.
    pub(crate) fn note(&mut self, record: Record) {
        let start = self.batch.len();
        self.batch.extend_from_slice(&[0; RECORD_HEADER_BYTES]);
        record.put(&mut self.batch);
        let bytes = u32::try_from(self.batch.len() - start - RECORD_HEADER_BYTES).expect("room bounds a record");
        self.batch[start..start + 4].copy_from_slice(&bytes.to_le_bytes());
        self.batch[start + 4] = record.kind();
        self.batch_records += 1;
        self.state.apply(LogPosition(self.log.here() + start as u64), bytes, record);
    }

    /// Writes the batch if somebody waits for it, then answers everybody. A journal that failed only refuses.
    pub(crate) fn flush(&mut self) {
        if let Some(why) = &self.failed {
            for reply in std::mem::take(&mut self.replies) {
                reply.refuse(why);
            }
            return;
        }
        if self.urgent {
            self.urgent = false;
            if planted(Bug::AckBeforeSync) {
                self.deliver();
            }
            if let Err(error) = self.write() {
                return self.fail(&format!("the log's disk failed: {error}"));
            }
            // Whoever is answered finds it counted.
            self.show();
        }
        self.deliver();
    }

    fn write(&mut self) -> io::Result<()> {
        let records = std::mem::take(&mut self.batch_records);
        batch::seal(&mut self.batch, self.log.active.header.number, self.log.batch, records);
        let began = self.around.ports.clock.mono();
        self.log.write(&self.batch)?;
        let took = self.around.ports.clock.mono().saturating_sub(began);
        self.wrote = took;
        self.around.metrics.journal_sync_seconds.observe(took.as_secs_f64());
        self.around.metrics.journal_batch_records.observe(f64::from(records));
        self.batch.clear();
        self.batch.shrink_to(BATCH_BYTES_MAX);
        self.batch.resize(batch::HEADER_BYTES, 0);
        Ok(())
    }

    /// The disk of a live segment failed: it is never touched again, nothing is acknowledged any more.
    pub(crate) fn fail(&mut self, why: &str) {
        tracing::error!(why, "journal failed; nothing is acknowledged any more");
        self.failed = Some(why.to_owned());
        self.rows_out.clear();
        for reply in std::mem::take(&mut self.replies) {
            reply.refuse(why);
        }
        for call in std::mem::take(&mut self.stalled) {
            Self::refuse(call, why);
        }
        self.parked.clear();
        self.closing.clear();
        self.around.metrics.journal_writable.set(0);
        self.fail.send_replace(Some(why.to_owned()));
        self.show();
    }

    pub(crate) fn event(&self, name: EventName, reason: String) {
        let mut event = Event::new(name, ActorPath("/journal".into()), Kind::Journal);
        event.reason = Some(reason);
        if name == EventName::JournalWritable {
            event.cause = self.around.log.latest(EventName::JournalReadOnly);
        }
        self.around.log.record(event);
    }

    fn show(&mut self) {
        let writable = !self.read_only && self.failed.is_none() && !self.closed;
        let status = JournalStatus { space: self.space, ..status_of(&self.state, &self.log, writable) };
        let bytes = &self.around.metrics.journal_bytes;
        bytes.get_or_create(&ByState { state: "live" }).set(i64::try_from(status.live_bytes).unwrap_or(i64::MAX));
        bytes.get_or_create(&ByState { state: "total" }).set(i64::try_from(status.total_bytes).unwrap_or(i64::MAX));
        let work = &self.around.metrics.work;
        work.journal_keys.set(gauge(self.state.keys.len()));
        for (state, calls) in [("space", self.stalled.len()), ("ids", self.parked.len())] {
            work.journal_calls.get_or_create(&ByState { state }).set(gauge(calls));
        }
        *self.status.lock().unwrap_or_else(PoisonError::into_inner) = status;
    }
}

/// What is told of a log and its state.
pub fn status_of(state: &State, log: &Log, writable: bool) -> JournalStatus {
    let totals = state.totals;
    JournalStatus {
        accepted: totals.accepted,
        done: totals.done,
        failed: totals.failed,
        dead: totals.dead,
        cancelled: totals.cancelled,
        open: totals.open,
        oldest_open_ms: state.oldest_open_ms(),
        open_bytes: totals.open_bytes,
        outbox: state.outbox.len() as u64,
        oldest_out_ms: state.outbox.iter().next().map(|row| row.committed_ms),
        live_bytes: log.live_bytes(),
        total_bytes: log.total_bytes(),
        writable,
        space: None,
    }
}

/// What a record of `bytes` bytes takes in a batch of its own.
fn space_alone(bytes: usize) -> u64 {
    (batch::HEADER_BYTES + RECORD_HEADER_BYTES + bytes) as u64 + batch::ALIGN
}

impl Drop for Engine {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.fail.send_replace(Some("the journal's thread panicked".to_owned()));
        }
    }
}
