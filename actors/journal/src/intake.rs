//! The calls that change something: messages, activations, commits; and the look-up of ids that messages wait for.

use std::io;
use std::sync::Arc;

use domain::ids::{MessageId, SessionId, SessionKey};
use protocol::journal::{
    Accepted, BusyReason, Commit, CommitOutcome, Enqueue, Enqueued, JournalError, LeftBy, Loaded, LogPosition, Moving,
    OutRow, Queued, RecentId, Told, TurnEnd,
};
use supervision::planted::{Bug, planted};
use supervision::pressure::Level;
use tokio::sync::oneshot::Sender;

use crate::admit::{Admission, Bounds, Gate, RETRY_DISK_MS, admit, busy, process_full, session_full};
use crate::call::Call;
use crate::engine::{Engine, Room, STALLED_MAX};
use crate::ids::id_hash;
use crate::key::KeyState;
use crate::outgoing::size_of_out;
use crate::record::Record;
use crate::reply::Reply;

/// Keys whose ids are read in one piece of work.
const FIND_KEYS_MAX: usize = 32;
/// New messages are refused above this share of `journal.maxBytes`.
const FULL_PERCENT: u64 = 75;

impl Engine {
    pub(crate) fn enqueue(&mut self, message: Enqueue, told: Told) {
        if let Some(parked) = self.parked.get_mut(&message.key) {
            let bytes = message.body.len() as u64;
            if parked.len() >= self.options.inbox_max as usize {
                return told.tell(session_full(parked.len()));
            }
            if self.state.totals.open_bytes + self.parked_bytes + bytes > self.options.queued_max_bytes {
                return told.tell(process_full(self.state.totals.open, BusyReason::Process));
            }
            self.parked_bytes += bytes;
            return parked.push_back((message, told));
        }
        self.decide(message, told);
    }

    fn decide(&mut self, message: Enqueue, told: Told) {
        if let Some(why) = &self.failed {
            // The state has what never became durable: nothing may be answered out of it.
            return Self::refuse(Call::Enqueue(message, told), why);
        }
        let id = id_hash(&message.source, &message.message_id);
        let gate = Gate {
            now_ms: self.around.ports.clock.wall_ms(),
            draining: self.draining,
            disk_busy: self.disk_busy(),
            queued_bytes: self.state.totals.open_bytes + self.parked_bytes,
            open: self.state.totals.open,
            memory_short: self.options.memory.level() == Level::Refusing,
        };
        let bounds = Bounds {
            inbox_max: self.options.inbox_max,
            inbox_max_bytes: self.options.inbox_max_bytes,
            queued_max_bytes: self.options.queued_max_bytes,
            queue_cap: self.options.queue_cap,
        };
        let fresh;
        let key = match self.state.keys.get(&message.key) {
            Some(key) => key.as_ref(),
            None => {
                fresh = KeyState::new(LogPosition(0), self.state.floors);
                &fresh
            }
        };
        match admit(key, &message, id, &bounds, &gate) {
            Admission::Answer(answer) => self.replies.push(Reply::Enqueue(answer, told)),
            Admission::FindIds => {
                self.parked_bytes += message.body.len() as u64;
                self.state.set_finding(&message.key, true);
                self.finding.push(message.key.clone());
                self.parked.entry(message.key.clone()).or_default().push_back((message, told));
            }
            Admission::Accept { seq, position, state } => {
                let size = 256 + message.key.as_str().len() + message.message_id.as_str().len() + message.body.len();
                match self.room(size) {
                    Room::Ready => {}
                    Room::Stalled => return self.stall(Call::Enqueue(message, told)),
                    Room::TooLarge | Room::Failed => {
                        return self.replies.push(Reply::Enqueue(busy(RETRY_DISK_MS, BusyReason::Disk), told));
                    }
                }
                let answer = Enqueued::Accepted { turn: message.turn, seq, position, state };
                let key = message.key.clone();
                let accepted = Accepted {
                    turn: message.turn,
                    seq,
                    source: message.source,
                    message_id: message.message_id,
                    body_hash: message.body_hash,
                    route: message.route,
                    body: message.body,
                    accepted_ms: gate.now_ms,
                    retry_of: message.retry_of,
                };
                self.append(Record::Accepted { key: key.clone(), message: Arc::new(accepted) });
                match self.state.newest(&key) {
                    Some(item) => self.replies.push(Reply::Accepted(answer, Queued { key, item }, told)),
                    None => self.replies.push(Reply::Enqueue(answer, told)),
                }
            }
        }
    }

    pub(crate) fn tell_ended(&mut self, key: &SessionKey, reply: Sender<Result<Option<Moving>, JournalError>>) {
        match self.state.moving.of(key) {
            Some(ended) => {
                let ended = Box::new((ended.moving.clone(), ended.lines.clone()));
                self.replies.push(Reply::Ended(ended, reply));
            }
            // The asker may be gone.
            None => drop(reply.send(Ok(None))),
        }
    }

    fn disk_busy(&self) -> bool {
        self.read_only
            || self.stalled.len() >= STALLED_MAX
            || self.log.live_bytes() * 100 > self.log.max_bytes * FULL_PERCENT
    }

    pub(crate) fn load(&mut self, key: SessionKey, reply: Sender<Result<Loaded, JournalError>>) {
        let Some((key, reply)) = self.catch_up.keep(key, reply) else { return };
        match self.room(128 + key.as_str().len()) {
            Room::Ready => {}
            Room::Stalled => return self.stall(Call::Load(key, reply)),
            Room::TooLarge | Room::Failed => return drop(reply.send(Err(JournalError::Closed))),
        }
        let plan = self.state.plan_load(&key, SessionId(self.around.ports.ids.uuid_v7()));
        let (session, epoch) = (plan.loaded.session, plan.loaded.epoch);
        self.note(Record::Epoch { key: key.clone(), session, epoch });
        self.state.hold(&key);
        self.replies.push(Reply::Load(Box::new(plan), reply));
    }

    pub(crate) fn commit(&mut self, commit: Commit, reply: Sender<CommitOutcome>) {
        if let Some(outcome) = self.judge(&commit) {
            return self.replies.push(Reply::Commit(outcome, reply));
        }
        match self.room(size_of(&commit)) {
            Room::Ready => {
                let at_ms = self.around.ports.clock.wall_ms();
                let endings = self.state.endings(&commit);
                let rows = commit.out.iter().map(|out| OutRow {
                    out: out.clone(),
                    key: commit.key.clone(),
                    committed_ms: at_ms,
                    sending: false,
                });
                self.rows_out.extend(rows);
                let letters = self.state.letters.len();
                self.append(Record::Commit { commit: Box::new(commit), at_ms, endings });
                self.replies.push(Reply::Commit(CommitOutcome::Done, reply));
                if self.state.letters.len() > letters {
                    self.shed_letters();
                }
            }
            Room::Stalled => self.stall(Call::Commit(commit, reply)),
            Room::TooLarge => self.replies.push(Reply::Commit(CommitOutcome::TooLarge, reply)),
            Room::Failed => drop(reply.send(CommitOutcome::Unknown { why: "the log's disk failed".to_owned() })),
        }
    }

    fn judge(&self, commit: &Commit) -> Option<CommitOutcome> {
        let Some(key) = self.state.keys.get(&commit.key) else { return Some(CommitOutcome::Fenced) };
        // A transcript that has ended takes no more, also from the incarnation that ended it.
        if key.epoch != commit.epoch || !key.loaded || key.session != Some(commit.session) {
            return Some(CommitOutcome::Fenced);
        }
        // Commits that wait for space have not moved the number yet; they are judged again when it is there.
        if key.next_commit != commit.number && self.stalled.is_empty() {
            let why = format!("commit number {} came when {} was due", commit.number, key.next_commit);
            return Some(CommitOutcome::Unknown { why });
        }
        None
    }

    /// The file of an ended transcript is where it belongs. Nobody is answered any more before that is durable: whoever
    /// took the file back to its place would have it moved again.
    pub(crate) fn moved(&mut self, key: SessionKey, session: SessionId) {
        if self.state.moving.of(&key).is_none_or(|ended| ended.moving.session != session) {
            return;
        }
        match self.room(64 + key.as_str().len()) {
            Room::Ready if planted(Bug::ForgottenMove) => drop(self.state.moving.done(&key, session)),
            Room::Ready => self.append(Record::Moved { key, session }),
            Room::Stalled => self.stall(Call::Moved(key, session)),
            // The next process moves it again.
            Room::TooLarge | Room::Failed => {}
        }
    }

    pub(crate) fn close(&mut self, reply: Sender<()>) {
        if self.state.any_to_leave() && self.room(8) == Room::Ready {
            self.append(Record::Left(LeftBy::Interrupted));
        }
        self.urgent |= self.batch_records > 0;
        self.closing.push(reply);
        self.closed = true;
        for call in std::mem::take(&mut self.stalled) {
            Self::refuse(call, "the journal was closed while it waited for space");
        }
        for (_, parked) in self.parked.drain() {
            for (message, told) in parked {
                Self::refuse(Call::Enqueue(message, told), "the journal is closed");
            }
        }
    }

    pub(crate) fn find_ids(&mut self) {
        if self.failed() || self.closed {
            self.finding.clear();
        }
        while !self.finding.is_empty() {
            let keys: Vec<_> = self.finding.drain(..self.finding.len().min(FIND_KEYS_MAX)).collect();
            let (recent, post) = (self.around.recent.clone(), self.post.clone());
            self.around.ports.offload.run(Box::new(move || {
                let found = keys.into_iter().map(|key| {
                    let ids = recent.recent(&key);
                    (key, ids)
                });
                post.post(Call::RecentIds(found.collect()));
            }));
        }
    }

    pub(crate) fn found(&mut self, found: Vec<(SessionKey, io::Result<Vec<RecentId>>)>) {
        for (key, ids) in found {
            let parked = self.parked.remove(&key).unwrap_or_default();
            let bytes: u64 = parked.iter().map(|(message, _)| message.body.len() as u64).sum();
            self.parked_bytes -= bytes;
            match ids {
                Ok(ids) => {
                    let here = LogPosition(self.log.here());
                    self.state.remember(&key, &ids, here);
                    for (message, told) in parked {
                        self.decide(message, told);
                    }
                    self.state.drop_unused_ids(&key);
                }
                Err(error) => {
                    self.state.set_finding(&key, false);
                    tracing::warn!(%error, "recent message ids of a transcript cannot be read; message refused");
                    for (_, told) in parked {
                        told.tell(busy(RETRY_DISK_MS, BusyReason::Transcript));
                    }
                }
            }
        }
    }
}

/// At least the bytes of a commit's record.
fn size_of(commit: &Commit) -> usize {
    let lines: usize = commit.lines.iter().map(|line| line.id.len() + line.text.len() + 20).sum();
    let tools: usize = commit.tools_started.iter().map(|call| call.0.len() + 10).sum();
    let ends: usize = commit
        .ended
        .iter()
        .map(|(_, end)| match end {
            TurnEnd::Done => 48,
            TurnEnd::Joined { into: _ } => 64,
            TurnEnd::Dead { reason: why } | TurnEnd::Cancelled { why } => 64 + MessageId::BYTES_MAX + why.len(),
        })
        .sum();
    let out: usize = commit.out.iter().map(size_of_out).sum();
    256 + commit.key.as_str().len() + lines + tools + ends + out
}
