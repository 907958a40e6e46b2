//! Checkpoints: so that nothing unfinished pins an old segment.
//!
//! ```text
//!  roll ─▶ sync the transcript files ─▶ note ViewSynced per key
//!       ─▶ copy what is needed of old segments to the end of the log ─▶ Checkpoint ─▶ old segments are reused
//! ```
//!
//! The newest [`KEEP_SEGMENTS`] segments are left alone, and more of them when much is alive: otherwise a log full of
//! waiting messages would copy itself around for ever. A crash in between loses nothing: the old segments are there
//! until the `Checkpoint` record is durable, and every copied record may be applied twice.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use domain::ids::{DeliveryId, LetterId, SessionKey, TurnId};
use protocol::journal::{Accepted, DeadLetter, JournalError, Line, LogPosition, OutRow, ViewWritten};
use supervision::planted::{Bug, planted};

use crate::call::Call;
use crate::engine::{Engine, Room};
use crate::key::{KeyState, OpenBody, Written};
use crate::read::Source;
use crate::record::{Content, Record};
use crate::reply::Reply;
use crate::segment::{Durability, SegmentHeader};
use crate::state::Kept;

/// Segments that are never copied from.
pub const KEEP_SEGMENTS: usize = 4;
/// Keys that are remembered although nothing is known of them but numbers.
pub const IDLE_KEYS_MAX: usize = 250_000;
/// What an id that only the log knows takes in a key's record.
const ENDED_ID_BYTES: u64 = 48;
/// Work per turn of the engine.
const KEYS_PER_TURN: usize = 256;
/// Bytes of records that are read at a time.
const READ_BYTES_MAX: u64 = 4 << 20;

/// What sessions said of their files since the engine looked last. Only a checkpoint needs it, so nobody is woken for
/// it; there is at most one for each commit that was answered since then.
pub type Notes = Arc<Mutex<Vec<ViewWritten>>>;

/// Where the checkpointer is.
#[derive(Default)]
pub struct Checkpoint {
    /// What is not taken yet.
    notes: Notes,
    /// Keys with a note that a file was written.
    pub noted: Vec<SessionKey>,
    /// A segment was filled since the last one began.
    pub due: bool,
    stage: Stage,
    /// There is no room; somebody else waits for the next segment, too.
    blocked: bool,
}

#[derive(Default)]
enum Stage {
    #[default]
    Idle,
    Syncing(Vec<(SessionKey, Written)>),
    Carrying(Carry),
}

struct Carry {
    /// The first segment that stays.
    oldest: u64,
    /// Its first byte.
    cutoff: LogPosition,
    keys: VecDeque<SessionKey>,
    rows: VecDeque<DeliveryId>,
    letters: VecDeque<LetterId>,
    reading: bool,
}

/// What a record that is read for copying is.
enum Wanted {
    Turn(SessionKey, TurnId),
    Lines(SessionKey, u64),
    Ended(SessionKey, u64),
    Row(DeliveryId),
    Letter(LetterId),
}

enum Got {
    Turn(Arc<Accepted>),
    Lines(Vec<Line>),
    Row(OutRow),
    Letter(Content),
}

/// A record that was read to be copied forward.
pub struct CarryRead {
    from: LogPosition,
    wanted: Wanted,
    got: Result<Got, JournalError>,
}

impl Checkpoint {
    /// Idle.
    pub fn new(notes: Notes) -> Self {
        Self { notes, ..Self::default() }
    }

    /// Whether a turn of the engine would bring it forward.
    pub fn has_work(&self) -> bool {
        match &self.stage {
            Stage::Idle => self.due,
            Stage::Syncing(_) => false,
            Stage::Carrying(carry) => !carry.reading && !self.blocked,
        }
    }

    /// Whether nothing is under way.
    pub fn is_idle(&self) -> bool {
        matches!(self.stage, Stage::Idle)
    }

    /// There is a new segment.
    pub fn resume(&mut self) {
        self.blocked = false;
    }
}

impl Engine {
    /// Takes what sessions said of their files.
    pub(crate) fn take_notes(&mut self) {
        let notes = std::mem::take(&mut *self.checkpoint.notes.lock().unwrap_or_else(PoisonError::into_inner));
        for written in notes {
            let key = written.key.clone();
            if self.state.note_written(written) {
                self.checkpoint.noted.push(key);
            }
        }
    }

    /// Brings the checkpoint forward a little.
    pub(crate) fn carry_some(&mut self) {
        if self.failed() || self.closed || !self.checkpoint.has_work() {
            return;
        }
        match std::mem::take(&mut self.checkpoint.stage) {
            Stage::Idle => self.begin_checkpoint(),
            Stage::Syncing(written) => self.checkpoint.stage = Stage::Syncing(written),
            Stage::Carrying(carry) => self.carry(carry),
        }
    }

    fn begin_checkpoint(&mut self) {
        self.checkpoint.due = false;
        let mut written = Vec::new();
        for key in std::mem::take(&mut self.checkpoint.noted) {
            if let Some(note) = self.state.keys.get_mut(&key).and_then(|state| state.written.take()) {
                written.push((key, *note));
            }
        }
        if written.is_empty() {
            return self.begin_carry();
        }
        self.checkpoint.stage = Stage::Syncing(written);
        if self.options.durability == Durability::Os {
            return self.views_synced(Ok(()));
        }
        let (disk, dir, post) = (self.around.ports.disk.clone(), self.options.sessions_dir.clone(), self.post.clone());
        self.around.ports.offload.run(Box::new(move || {
            let synced = if planted(Bug::UnsyncedView) { Ok(()) } else { disk.sync_fs(&dir) };
            post.post(Call::ViewsSynced(synced));
        }));
    }

    /// The transcript files that were noted are on the device, or not.
    pub(crate) fn views_synced(&mut self, result: io::Result<()>) {
        let Stage::Syncing(written) = std::mem::take(&mut self.checkpoint.stage) else { return };
        if let Err(error) = result {
            tracing::warn!(%error, "transcripts cannot be synced; their lines stay in the journal");
            self.checkpoint.noted.clear();
            self.state.distrust_views();
            return self.begin_carry();
        }
        for (key, note) in written {
            let last = note.mark.last_entry.as_ref().map_or(0, |entry| entry.len());
            if self.room(128 + key.as_str().len() + last) == Room::Ready {
                let Written { session, commit, mark } = note;
                self.note(Record::ViewSynced { key, session, commit, mark });
            } else {
                self.note_again(key, note);
            }
        }
        self.begin_carry();
    }

    fn note_again(&mut self, key: SessionKey, note: Written) {
        if let Some(state) = self.state.keys.get_mut(&key).filter(|state| state.written.is_none()) {
            state.written = Some(Box::new(note));
            self.checkpoint.noted.push(key);
        }
    }

    fn begin_carry(&mut self) {
        let totals = self.state.totals;
        let needed = totals.open_bytes
            + totals.line_bytes
            + self.state.outbox.bytes()
            + ENDED_ID_BYTES * self.state.keys.values().map(|key| key.ended.len() as u64).sum::<u64>()
            + self.state.letters.bytes()
            + 256
                * (totals.open
                    + (self.state.keys.len()
                        + self.state.moving.len()
                        + self.state.outbox.len()
                        + self.state.letters.len()) as u64);
        let keep = KEEP_SEGMENTS + (2 * needed / self.log.segment_bytes) as usize;
        let Some(excess) = self.log.live_segments().checked_sub(keep).filter(|excess| *excess > 0) else { return };
        let first = self.log.older.get(excess).unwrap_or(&self.log.active);
        self.carry_below(first.header);
    }

    /// Copies everything that is needed into the newest segment.
    pub(crate) fn carry_everything(&mut self) {
        self.carry_below(self.log.active.header);
    }

    fn carry_below(&mut self, first: SegmentHeader) {
        let (oldest, cutoff) = (first.number, LogPosition(first.base));
        let mut keys: Vec<_> = self
            .state
            .keys
            .iter()
            .filter(|(_, state)| state.needs_carry(cutoff))
            .map(|(key, state)| (state.base, key))
            .collect();
        keys.sort_unstable();
        let ended = self.state.moving.iter().filter(|ended| ended.is_below(cutoff)).map(|ended| &ended.moving.key);
        let keys = ended.chain(keys.into_iter().map(|(_, key)| key)).cloned().collect();
        let rows = self.state.outbox.iter().filter(|row| row.at < cutoff).map(|row| row.id).collect();
        let old_letter = |kept: &&Kept| kept.first() < cutoff;
        let letters = self.state.letters.iter().filter(old_letter).map(|kept| kept.letter.id).collect();
        self.checkpoint.stage = Stage::Carrying(Carry { oldest, cutoff, keys, rows, letters, reading: false });
    }

    fn carry(&mut self, mut carry: Carry) {
        let mut wanted = Vec::new();
        let mut bytes = 0;
        for _ in 0..KEYS_PER_TURN {
            if bytes >= READ_BYTES_MAX {
                break;
            }
            let Some(key) = carry.keys.pop_front() else { break };
            if !self.carry_key(&key, carry.cutoff, &mut wanted, &mut bytes) {
                carry.keys.push_front(key);
                self.checkpoint.blocked = true;
                break;
            }
        }
        if wanted.is_empty() && carry.keys.is_empty() && !self.checkpoint.blocked {
            self.want_outgoing(&mut carry, &mut wanted);
        }
        if !wanted.is_empty() {
            carry.reading = true;
            self.checkpoint.stage = Stage::Carrying(carry);
            return self.read_wanted(wanted);
        }
        if carry.is_done() && !self.checkpoint.blocked {
            if self.finish(carry.oldest) {
                return;
            }
            self.checkpoint.blocked = true;
        }
        self.checkpoint.stage = Stage::Carrying(carry);
    }

    /// Copies what is in memory of a key, and lists what has to be read; `false` when there is no room.
    fn carry_key(
        &mut self,
        key: &SessionKey,
        cutoff: LogPosition,
        wanted: &mut Vec<(LogPosition, Wanted)>,
        bytes: &mut u64,
    ) -> bool {
        if !self.carry_ended(key, cutoff, wanted, bytes) {
            return false;
        }
        let Some(state) = self.state.keys.get(key) else { return true };
        if state.base < cutoff {
            let crowded = self.state.keys.len() > IDLE_KEYS_MAX;
            let record = if (state.idle() && state.closed) || (state.rests() && crowded) {
                Record::Forgotten { key: key.clone() }
            } else {
                Record::Key(Box::new(state.record(key)))
            };
            if !self.copy(record) {
                return false;
            }
        }
        let Some(state) = self.state.keys.get(key) else { return true };
        let mut inline = Vec::new();
        for open in state.open.iter().filter(|open| open.at < cutoff) {
            match &open.body {
                OpenBody::Inline(message) => inline.push(message.clone()),
                OpenBody::InLog { .. } => {
                    *bytes += u64::from(open.bytes);
                    wanted.push((open.at, Wanted::Turn(key.clone(), open.turn)));
                }
            }
        }
        for lines in state.lines.iter().filter(|lines| lines.at < cutoff) {
            *bytes += u64::from(lines.bytes);
            wanted.push((lines.at, Wanted::Lines(key.clone(), lines.commit)));
        }
        inline.into_iter().all(|message| self.copy(Record::Carried { key: key.clone(), message }))
    }

    /// Copies that a file of a key has to be moved, and lists its lines to be read; `false` when there is no room.
    fn carry_ended(
        &mut self,
        key: &SessionKey,
        cutoff: LogPosition,
        wanted: &mut Vec<(LogPosition, Wanted)>,
        bytes: &mut u64,
    ) -> bool {
        let tells = self.state.moving.of(key).filter(|ended| ended.tells_below(cutoff));
        let tells = tells.map(|ended| Record::Moving(Box::new(ended.moving.clone())));
        if tells.is_some_and(|record| !self.copy(record)) {
            return false;
        }
        let ended = self.state.moving.of(key);
        for lines in ended.into_iter().flat_map(|ended| ended.lines_below(cutoff)) {
            *bytes += u64::from(lines.bytes);
            wanted.push((lines.at, Wanted::Ended(key.clone(), lines.commit)));
        }
        true
    }

    /// Lists rows and letters that have to be read.
    fn want_outgoing(&mut self, carry: &mut Carry, wanted: &mut Vec<(LogPosition, Wanted)>) {
        let mut bytes = 0;
        while bytes < READ_BYTES_MAX && wanted.len() < KEYS_PER_TURN {
            if let Some(id) = carry.rows.pop_front() {
                let Some((_, row)) = self.state.outbox.get(id).filter(|(_, row)| row.at < carry.cutoff) else {
                    continue;
                };
                bytes += u64::from(row.bytes);
                wanted.push((row.at, Wanted::Row(id)));
                continue;
            }
            let Some(id) = carry.letters.pop_front() else { return };
            let Some(kept) = self.state.letters.get(id).filter(|kept| kept.first() < carry.cutoff) else { continue };
            bytes += u64::from(kept.bytes) + 256;
            wanted.push((kept.content.unwrap_or(kept.at), Wanted::Letter(id)));
        }
    }

    /// Appends a copied record; `false` when there is no room.
    fn copy(&mut self, record: Record) -> bool {
        let mut payload = Vec::new();
        record.put(&mut payload);
        if self.room(payload.len()) != Room::Ready {
            return false;
        }
        self.append(record);
        true
    }

    fn read_wanted(&mut self, wanted: Vec<(LogPosition, Wanted)>) {
        // Places in the open batch cannot be among them: they are not below the cutoff.
        let sources: Vec<_> = wanted.into_iter().map(|(from, wanted)| (self.source(from), from, wanted)).collect();
        let post = self.post.clone();
        self.around.ports.offload.run(Box::new(move || {
            let read = sources.into_iter().map(|(source, from, wanted)| {
                let got = source
                    .ok_or_else(|| JournalError::Unreadable("its segment is gone".to_owned()))
                    .and_then(|source| read(&source, &wanted));
                CarryRead { from, wanted, got }
            });
            post.post(Call::CarryRead(read.collect()));
        }));
    }

    /// Copies what was read and is still needed.
    pub(crate) fn carry_read(&mut self, read: Vec<CarryRead>) {
        let Stage::Carrying(mut carry) = std::mem::take(&mut self.checkpoint.stage) else { return };
        carry.reading = false;
        for CarryRead { from, wanted, got } in read {
            if !self.needs(from, &wanted) {
                continue;
            }
            let got = match got {
                Ok(got) => Some(got),
                // A letter from before contents were kept has none.
                Err(_) if self.is_bare(&wanted) => None,
                Err(error) => {
                    // Its segment stays, so nothing is lost that was not lost before.
                    tracing::error!(%error, "a needed record of the journal cannot be read; old segments are kept");
                    return;
                }
            };
            let copied = self.snapshot(&wanted, got).is_none_or(|record| self.copy(record));
            if !copied {
                self.checkpoint.blocked = true;
                carry.again(wanted);
            }
        }
        self.checkpoint.stage = Stage::Carrying(carry);
    }

    fn needs(&self, from: LogPosition, wanted: &Wanted) -> bool {
        let state = &self.state;
        match wanted {
            Wanted::Turn(key, turn) => {
                let open = |key: &KeyState| key.open.iter().any(|open| open.turn == *turn && open.at == from);
                state.keys.get(key).is_some_and(|key| open(key))
            }
            Wanted::Lines(key, commit) => {
                let wait = |key: &KeyState| key.lines.iter().any(|lines| lines.commit == *commit && lines.at == from);
                state.keys.get(key).is_some_and(|key| wait(key))
            }
            Wanted::Ended(key, commit) => state
                .moving
                .of(key)
                .is_some_and(|ended| ended.lines.iter().any(|lines| lines.commit == *commit && lines.at == from)),
            Wanted::Row(id) => state.outbox.get(*id).is_some_and(|(_, row)| row.at == from),
            Wanted::Letter(id) => state.letters.get(*id).is_some_and(|kept| kept.content.unwrap_or(kept.at) == from),
        }
    }

    fn is_bare(&self, wanted: &Wanted) -> bool {
        let Wanted::Letter(id) = wanted else { return false };
        self.state.letters.get(*id).is_some_and(|kept| kept.content.is_none())
    }

    /// The record that stands for what was read.
    fn snapshot(&self, wanted: &Wanted, got: Option<Got>) -> Option<Record> {
        match (wanted, got) {
            (Wanted::Turn(key, _), Some(Got::Turn(message))) => Some(Record::Carried { key: key.clone(), message }),
            (Wanted::Lines(key, commit), Some(Got::Lines(lines))) => {
                let session = self.state.keys.get(key)?.session?;
                Some(Record::Lines { key: key.clone(), session, commit: *commit, lines })
            }
            (Wanted::Ended(key, commit), Some(Got::Lines(lines))) => {
                let session = self.state.moving.of(key)?.moving.session;
                Some(Record::Lines { key: key.clone(), session, commit: *commit, lines })
            }
            (Wanted::Row(id), Some(Got::Row(read))) => {
                let (place, row) = self.state.outbox.get(*id)?;
                Some(Record::Row { row: Box::new(row.refresh(read)), place: Some(place) })
            }
            (Wanted::Letter(id), got) => {
                let letter = self.state.letters.get(*id)?.letter.clone();
                let content = if let Some(Got::Letter(content)) = got { Some(content) } else { None };
                Some(self.letter_that_fits(letter, content))
            }
            (Wanted::Turn(..) | Wanted::Lines(..) | Wanted::Ended(..) | Wanted::Row(_), _) => None,
        }
    }

    /// With its content a letter may be a little longer than the record that the content comes from.
    fn letter_that_fits(&self, letter: DeadLetter, content: Option<Content>) -> Record {
        let mut payload = Vec::new();
        let record = Record::Letter { letter: Box::new(letter.clone()), content };
        record.put(&mut payload);
        if self.takes(payload.len()) { record } else { Record::Letter { letter: Box::new(letter), content: None } }
    }

    fn finish(&mut self, oldest: u64) -> bool {
        if !self.copy(Record::Checkpoint { oldest, floors: self.state.floors }) {
            return false;
        }
        self.replies.push(Reply::Retire(oldest));
        true
    }
}

impl Carry {
    fn is_done(&self) -> bool {
        self.keys.is_empty() && self.rows.is_empty() && self.letters.is_empty()
    }

    /// There was no room for it.
    fn again(&mut self, wanted: Wanted) {
        match wanted {
            Wanted::Turn(key, _) | Wanted::Lines(key, _) | Wanted::Ended(key, _) => {
                if self.keys.front() != Some(&key) {
                    self.keys.push_front(key);
                }
            }
            Wanted::Row(id) => self.rows.push_front(id),
            Wanted::Letter(id) => self.letters.push_front(id),
        }
    }
}

fn read(source: &Source, wanted: &Wanted) -> Result<Got, JournalError> {
    match wanted {
        Wanted::Turn(..) => source.accepted().map(Got::Turn),
        Wanted::Lines(_, commit) | Wanted::Ended(_, commit) => source.lines(*commit).map(Got::Lines),
        Wanted::Row(id) => source.row(*id).map(Got::Row),
        Wanted::Letter(id) => source.content(*id).map(Got::Letter),
    }
}
