//! The state that the log describes. Every record changes it through [`State::apply`], while it is being written and
//! while it is being recovered, so both see the same. **Invariant:** pure; accepted = done + dead + cancelled + open, where
//! a turn that joined another counts as done.

mod ask;
mod change;
mod letters;
mod moving;
mod outbox;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use domain::ids::{DeliveryId, Epoch, LetterId, Seq, SessionId, SessionKey, TurnId};
use protocol::journal::{
    Accepted, Closes, Commit, DeadLetter, LeftBy, LetterKind, Line, LogPosition, Moving, OutRow, RecentId, TurnEnd,
    ViewMark, ViewWritten,
};

pub use self::ask::LoadPlan;
use self::change::{failures, grow, shrink};
pub use self::letters::{Kept, Letters};
pub use self::moving::MovingFiles;
pub use self::outbox::{Outbox, Row};
use crate::ids::{Known, RecentSet, id_hash};
use crate::key::{KeyState, LinesAt, OpenTurn, Written};
use crate::record::{EndedId, Ending, Floors, Record, RowPlace};

/// Sums over all keys.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Accepted.
    pub accepted: u64,
    /// Done.
    pub done: u64,
    /// Of these, those that ended with a failure.
    pub failed: u64,
    /// Dead.
    pub dead: u64,
    /// Cancelled.
    pub cancelled: u64,
    /// Open.
    pub open: u64,
    /// Bytes of open bodies.
    pub open_bytes: u64,
    /// Bytes of records whose lines no file is known to have.
    pub line_bytes: u64,
}

/// All keys.
#[derive(Debug, Default)]
pub struct State {
    /// Each key.
    pub keys: HashMap<SessionKey, Box<KeyState>>,
    /// Sums.
    pub totals: Totals,
    /// Dead letters.
    pub letters: Letters,
    /// Replies that are not delivered yet.
    pub outbox: Outbox,
    /// Files of ended transcripts that have to be moved.
    pub moving: MovingFiles,
    /// For new keys.
    pub floors: Floors,
    /// Whether the process before this one ended without a word while turns were open; to be written down.
    pub died: bool,
    moved: HashMap<LogPosition, LogPosition>,
    ages: BTreeMap<u64, u32>,
}

impl State {
    fn entry(&mut self, key: &SessionKey, at: LogPosition) -> &mut KeyState {
        if !self.keys.contains_key(key) {
            self.keys.insert(key.clone(), Box::new(KeyState::new(at, self.floors)));
        }
        self.keys.get_mut(key).expect("it was just inserted")
    }

    /// Applies the record that lies at `at` with `bytes` bytes of payload.
    pub fn apply(&mut self, at: LogPosition, bytes: u32, record: Record) {
        match record {
            Record::Accepted { key, message } | Record::Carried { key, message } => self.message(&key, message, at),
            Record::Commit { commit, at_ms, endings } => self.commit(*commit, endings, at_ms, at, bytes),
            Record::Epoch { key, session, epoch } => {
                let key = self.entry(&key, at);
                key.session = Some(session);
                key.epoch = key.epoch.max(epoch);
                // What has to be counted stays until the turn begins again; an end of the process from now on is a death.
                if let Some(marks) = &mut key.marks {
                    marks.left.take_if(|left| *left == LeftBy::Interrupted);
                }
            }
            Record::Quarantined(quarantine) => {
                let key = self.entry(&quarantine.key, at);
                if let Some(first) = key.open.first().map(|open| open.turn) {
                    let marks = key.marks.get_or_insert_default();
                    if quarantine.turn == Some(first) {
                        marks.left = Some(LeftBy::Crash);
                    } else {
                        // A crash while loading is nobody's, and one at the end of a turn is not the next one's.
                        marks.left.get_or_insert(LeftBy::Interrupted);
                    }
                }
                key.quarantine = Some(Box::new((quarantine.until_ms, quarantine.times, quarantine.reason)));
            }
            Record::Released { key } => {
                if let Some(key) = self.keys.get_mut(&key) {
                    key.quarantine = None;
                }
            }
            Record::ViewSynced { key, session, commit, mark } => self.view_synced(&key, session, commit, mark, at),
            Record::Key(record) => {
                let name = record.key.clone();
                let key = self.entry(&name, at);
                let freed = key.replace(*record);
                key.base = at;
                self.totals.line_bytes -= freed;
            }
            Record::Lines { key, session, commit, lines } => {
                self.carried_lines(&key, session, LinesAt { commit, at, bytes }, &lines);
            }
            Record::Letter { letter, content } => {
                let content = content.is_some().then_some(at);
                self.letters.bury(Kept { letter: *letter, at, content, bytes });
            }
            Record::LetterClosed(id) => drop(self.letters.close(id)),
            Record::Moving(moving) => self.totals.line_bytes -= self.moving.copied(*moving, at),
            Record::Moved { key, session } => self.totals.line_bytes -= self.moving.done(&key, session),
            Record::Sending(id) => self.outbox.sending(id),
            Record::Sent(id) => drop(self.outbox.close(id)),
            Record::Undeliverable { id, reason, at_ms } => self.undeliverable(id, reason, at_ms, at),
            Record::Row { row, place } => {
                if place.is_none() {
                    self.letters.close(LetterId::Delivery(row.out.id));
                }
                self.outbox.open(place.unwrap_or(RowPlace { at, n: 0 }), Row::new(&row, at));
            }
            Record::Forgotten { key } => self.forget(&key),
            Record::Left(by) => {
                self.leave_all(by);
            }
            Record::Checkpoint { oldest: _, floors } => self.raise_floors(floors),
        }
    }

    fn raise_floors(&mut self, to: Floors) {
        self.floors.epoch = self.floors.epoch.max(to.epoch);
        self.floors.seq = self.floors.seq.max(to.seq);
    }

    fn forget(&mut self, key: &SessionKey) {
        let Some(gone) = self.keys.remove(key) else { return };
        // Only where records are missing is there something left: whoever wrote this knew that it had ended.
        gone.open.iter().for_each(|open| self.uncount(open));
        self.totals.line_bytes -= gone.lines.iter().map(|lines| u64::from(lines.bytes)).sum::<u64>();
        // What begins after a closed transcript counts from one again.
        if !gone.closed {
            self.raise_floors(Floors { epoch: gone.epoch, seq: Seq(gone.next_seq.0.saturating_sub(1)) });
        }
    }

    fn accept(&mut self, key: &SessionKey, message: Arc<Accepted>, at: LogPosition) {
        if let Some(dead) = message.retry_of {
            self.letters.close(LetterId::Turn(dead));
        }
        let id = id_hash(&message.source, &message.message_id);
        let open = OpenTurn::new(message, id, at);
        let (bytes, accepted_ms) = (u64::from(open.bytes), open.accepted_ms);
        let key = self.entry(key, at);
        key.next_seq = key.next_seq.max(Seq(open.seq.0 + 1));
        key.open_bytes += bytes;
        key.closed = false;
        let place = key.open.partition_point(|other| other.seq < open.seq);
        grow(&mut key.open);
        key.open.insert(place, open);
        self.totals.accepted += 1;
        self.totals.open += 1;
        self.totals.open_bytes += bytes;
        *self.ages.entry(accepted_ms).or_default() += 1;
    }

    /// A message, which may be a copy of one that is known.
    fn message(&mut self, key: &SessionKey, message: Arc<Accepted>, at: LogPosition) {
        let known = self.keys.get_mut(key).and_then(|key| key.open.iter_mut().find(|open| open.turn == message.turn));
        match known {
            Some(open) => {
                open.at = at;
                self.moved.insert(open.handed, at);
            }
            None => self.accept(key, message, at),
        }
    }

    fn carried_lines(&mut self, key: &SessionKey, session: SessionId, lines: LinesAt, texts: &[Line]) {
        if let Some(added) = self.moving.copied_lines(key, session, lines) {
            self.totals.line_bytes += added;
            return;
        }
        let key = self.entry(key, lines.at);
        // While a log is read whose older segments are gone, the lines may come before whatever else is said of their key.
        let known = key.session.map_or(!key.closed, |known| known == session);
        if !known || lines.commit <= key.view_commit || texts.is_empty() {
            return;
        }
        key.session = Some(session);
        let place = key.lines.partition_point(|other| other.commit < lines.commit);
        match key.lines.get_mut(place).filter(|other| other.commit == lines.commit) {
            Some(known) => *known = lines,
            None => {
                key.lines.insert(place, lines);
                self.totals.line_bytes += u64::from(lines.bytes);
            }
        }
    }

    fn undeliverable(&mut self, id: DeliveryId, reason: Arc<str>, at_ms: u64, at: LogPosition) {
        let Some(row) = self.outbox.close(id) else { return };
        let letter = DeadLetter {
            id: LetterId::Delivery(id),
            kind: LetterKind::Delivery,
            turn: id.turn,
            key: row.key,
            message_id: None,
            channel: Some(row.channel),
            reason,
            at_ms,
        };
        self.letters.bury(Kept { letter, at, content: Some(row.at), bytes: row.bytes });
    }

    fn view_synced(&mut self, key: &SessionKey, session: SessionId, commit: u64, mark: ViewMark, at: LogPosition) {
        let key = self.entry(key, at);
        if key.session != Some(session) || commit < key.view_commit {
            return;
        }
        key.view = mark;
        key.view_commit = commit;
        let kept = key.lines.partition_point(|lines| lines.commit <= commit);
        let freed: u64 = key.lines.drain(..kept).map(|lines| u64::from(lines.bytes)).sum();
        if !key.finding {
            key.ended.retain(|ended| ended.commit > commit);
        }
        shrink(&mut key.lines);
        shrink(&mut key.ended);
        self.totals.line_bytes -= freed;
    }

    fn commit(&mut self, commit: Commit, endings: Vec<Option<Ending>>, at_ms: u64, at: LogPosition, bytes: u32) {
        let key = self.entry(&commit.key, at);
        key.epoch = key.epoch.max(commit.epoch);
        key.next_commit = key.next_commit.max(commit.number + 1);
        let (mut freed, mut added) = (0, 0);
        if key.session != Some(commit.session) {
            freed += key.change_session(Some(commit.session), commit.number);
        }
        if !commit.lines.is_empty() {
            grow(&mut key.lines);
            key.lines.push(LinesAt { commit: commit.number, at, bytes });
            added = u64::from(bytes);
        }
        key.mark(&commit);
        let mut ended_by = commit.number;
        if let Some(Closes::Moves(place)) = commit.closes {
            ended_by = EndedId::CLOSED;
            let (view, lines) = (key.view.clone(), std::mem::take(&mut key.lines));
            let (key, session) = (commit.key.clone(), commit.session);
            freed += self.moving.add(Moving { key, session, place, view, lines: Vec::new() }, lines, at);
        }
        let key = self.entry(&commit.key, at);
        if let Some(closes) = commit.closes {
            freed += match closes {
                Closes::Moves(_) => key.close(commit.number),
                // A stateless request, whose key comes once.
                Closes::Moved => key.change_session(None, commit.number),
            };
            key.closed = true;
            // Its incarnation has nothing to crash in any more.
            key.loaded = false;
        }
        self.totals.line_bytes = self.totals.line_bytes + added - freed;
        let (failed, done) = (failures(&commit), self.totals.done);
        for ((turn, end), ending) in commit.ended.into_iter().zip(endings) {
            let (open, reason) = self.close_turn(&commit.key, turn, end, at);
            let Some(Ending { id, body_hash, message_id }) = ending else { continue };
            self.entry(&commit.key, at).remember_ended(EndedId { commit: ended_by, id, turn, body_hash });
            if let (Some(reason), Some(message_id)) = (reason, message_id) {
                let letter = DeadLetter {
                    id: LetterId::Turn(turn),
                    kind: LetterKind::Turn,
                    turn,
                    key: commit.key.clone(),
                    message_id: Some(message_id),
                    channel: None,
                    reason,
                    at_ms,
                };
                let content = open.as_ref().map(|open| open.at);
                self.letters.bury(Kept { letter, at, content, bytes: open.map_or(0, |open| open.bytes) });
            }
        }
        self.totals.failed += failed.min(self.totals.done - done);
        for (n, out) in (0..).zip(commit.out) {
            let row = OutRow { out, key: commit.key.clone(), committed_ms: at_ms, sending: false };
            self.outbox.open(RowPlace { at, n }, Row::new(&row, at));
        }
    }

    /// Takes a turn out of the open ones, and counts it if it was one. The turn, and the reason if it died.
    fn close_turn(
        &mut self,
        name: &SessionKey,
        turn: TurnId,
        end: TurnEnd,
        at: LogPosition,
    ) -> (Option<OpenTurn>, Option<Arc<str>>) {
        let open = self.entry(name, at).take_open(turn);
        let count = u64::from(open.is_some());
        let reason = match end {
            TurnEnd::Done | TurnEnd::Joined { into: _ } => {
                self.totals.done += count;
                None
            }
            TurnEnd::Dead { reason } => {
                self.totals.dead += count;
                Some(reason)
            }
            TurnEnd::Cancelled { why: _ } => {
                self.totals.cancelled += count;
                None
            }
        };
        if let Some(open) = &open {
            self.uncount(open);
        }
        (open, reason)
    }

    fn uncount(&mut self, open: &OpenTurn) {
        self.totals.open -= 1;
        self.totals.open_bytes -= u64::from(open.bytes);
        self.moved.remove(&open.handed);
        if let Some(count) = self.ages.get_mut(&open.accepted_ms) {
            *count -= 1;
            if *count == 0 {
                self.ages.remove(&open.accepted_ms);
            }
        }
    }

    /// An incarnation holds the key from now on. In memory only.
    pub fn hold(&mut self, key: &SessionKey) {
        if let Some(key) = self.keys.get_mut(key) {
            key.loaded = true;
            // It writes again whatever the file has of the journal's lines.
            key.distrusted = false;
        }
    }

    /// The incarnation let the key go; whether the key can be forgotten, because its transcript was closed.
    pub fn release(&mut self, name: &SessionKey, epoch: Epoch) -> bool {
        let Some(key) = self.keys.get_mut(name).filter(|key| key.epoch == epoch) else { return false };
        key.loaded = false;
        key.queue_cap = None;
        if key.open.is_empty() {
            key.recent = None;
        }
        key.closed && key.idle()
    }

    /// Notes how many turns may wait in the session that is loaded.
    pub fn bound(&mut self, name: &SessionKey, cap: Option<u32>) {
        if let Some(key) = self.keys.get_mut(name) {
            key.queue_cap = cap;
        }
    }

    /// Takes the ids that the transcript of `key` has, and those of turns whose lines its file may lack yet: these
    /// leave `ended` once the file is synced, and nobody reads it again then.
    pub fn remember(&mut self, name: &SessionKey, found: &[RecentId], at: LogPosition) {
        let key = self.entry(name, at);
        let mut recent = RecentSet::new(found);
        for ended in &key.ended {
            if recent.find(ended.id).is_none() {
                recent.add(ended.id, Known { turn: ended.turn, body_hash: ended.body_hash });
            }
        }
        key.recent = Some(Box::new(recent));
        key.finding = false;
    }

    /// The ids of a key are being read, or could not be.
    pub fn set_finding(&mut self, name: &SessionKey, finding: bool) {
        if let Some(key) = self.keys.get_mut(name) {
            key.finding = finding;
        }
    }

    /// Drops the ids of a key that nobody works on.
    pub fn drop_unused_ids(&mut self, name: &SessionKey) {
        let Some(key) = self.keys.get_mut(name).filter(|key| !key.loaded && key.open.is_empty()) else { return };
        key.recent = None;
        if key.session.is_none() && key.idle() {
            self.keys.remove(name);
        }
    }

    /// Notes what a session says of its file; whether this key had nothing noted before.
    pub fn note_written(&mut self, written: ViewWritten) -> bool {
        let Some(key) = self.keys.get_mut(&written.key) else { return false };
        if key.distrusted || key.session != Some(written.session) || written.commit < key.view_commit {
            return false;
        }
        let note = Written { session: written.session, commit: written.commit, mark: written.mark };
        key.written.replace(Box::new(note)).is_none()
    }

    /// Notes of each first open turn, unless it is known already, how it was left; whether there was such a turn.
    fn leave_all(&mut self, by: LeftBy) -> bool {
        let mut any = false;
        for key in self.keys.values_mut().filter(|key| key.begun_or_marked()) {
            let left = &mut key.marks.get_or_insert_default().left;
            any |= left.is_none();
            left.get_or_insert(by);
        }
        any
    }

    /// Whether of a first open turn it is not known how it was left.
    pub fn any_to_leave(&self) -> bool {
        let unknown = |key: &KeyState| key.marks.as_ref().is_none_or(|marks| marks.left.is_none());
        self.keys.values().any(|key| !key.open.is_empty() && unknown(key))
    }

    /// A sync of the transcripts failed: what was written to them may be missing on the device, now and after the next
    /// sync. Their lines stay in the log until their sessions load again and write them once more.
    pub fn distrust_views(&mut self) {
        for key in self.keys.values_mut().filter(|key| key.loaded || !key.lines.is_empty()) {
            key.distrusted = true;
            key.written = None;
        }
    }

    /// After the log was read: no incarnation of before is alive, and the process did not end in order unless a
    /// record says so.
    pub fn finish_recovery(&mut self) {
        self.died = self.leave_all(LeftBy::Death);
        self.totals = Totals {
            accepted: self.totals.open,
            open: self.totals.open,
            open_bytes: self.totals.open_bytes,
            line_bytes: self.totals.line_bytes,
            ..Totals::default()
        };
    }
}
