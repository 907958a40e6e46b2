//! The state that the log describes. Every record changes it through [`State::apply`], while it is being written and
//! while it is being recovered, so both see the same. **Invariant:** pure; accepted = done + dead + cancelled + open.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use domain::ids::{Epoch, Seq, SessionId, SessionKey, TurnId};
use protocol::journal::{
    Accepted, Commit, DeadLetter, InboxItem, LeftBy, Line, Loaded, LogPosition, RECENT_IDS_MAX, RecentId, TurnEnd,
    Unfinished, ViewMark, ViewWritten,
};

use crate::ids::{Known, RecentSet, id_hash};
use crate::key::{KeyState, LinesAt, Marks, OpenTurn, Written};
use crate::record::{EndedId, Ending, Floors, Record};

/// Dead letters that are kept; the oldest leave.
pub const DEAD_LETTERS_MAX: usize = 10_000;

/// Sums over all keys.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Accepted.
    pub accepted: u64,
    /// Done.
    pub done: u64,
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
    /// Dead letters with their records, oldest first.
    pub letters: VecDeque<(LogPosition, DeadLetter)>,
    /// For new keys.
    pub floors: Floors,
    moved: HashMap<LogPosition, LogPosition>,
    ages: BTreeMap<u64, u32>,
}

/// What a session is told on its activation, but for the lines, which lie in the log.
#[derive(Debug)]
pub struct LoadPlan {
    /// The answer without its lines.
    pub loaded: Loaded,
    /// Where the lines are.
    pub lines: Vec<LinesAt>,
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
            Record::Accepted { key, message } => self.accept(&key, message, at),
            Record::Commit { commit, at_ms, endings } => self.commit(*commit, endings, at_ms, at, bytes),
            Record::Epoch { key, session, epoch } => {
                let key = self.entry(&key, at);
                key.session = Some(session);
                key.epoch = key.epoch.max(epoch);
                if let Some(marks) = &mut key.marks {
                    marks.left = None;
                }
            }
            Record::Quarantined(quarantine) => {
                let key = self.entry(&quarantine.key, at);
                if !key.open.is_empty() {
                    // A crash while loading is blamed on no message.
                    let left = if &*quarantine.reason == "load" { LeftBy::Interrupted } else { LeftBy::Crash };
                    key.marks.get_or_insert_default().left.get_or_insert(left);
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
                key.replace(*record);
                key.base = at;
            }
            Record::Carried { key, message } => self.carried(&key, message, at),
            Record::Lines { key, session, commit, lines } => {
                self.carried_lines(&key, session, LinesAt { commit, at, bytes }, &lines);
            }
            Record::Letter(letter) => self.carried_letter(at, letter),
            Record::Forgotten { key } => self.forget(&key),
            Record::Checkpoint { oldest: _, floors } => self.raise_floors(floors),
        }
    }

    fn raise_floors(&mut self, to: Floors) {
        self.floors.epoch = self.floors.epoch.max(to.epoch);
        self.floors.seq = self.floors.seq.max(to.seq);
    }

    fn forget(&mut self, key: &SessionKey) {
        // What begins after a closed transcript counts from one again.
        if let Some(gone) = self.keys.remove(key).filter(|gone| !gone.closed) {
            self.raise_floors(Floors { epoch: gone.epoch, seq: Seq(gone.next_seq.0.saturating_sub(1)) });
        }
    }

    fn accept(&mut self, key: &SessionKey, message: Arc<Accepted>, at: LogPosition) {
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

    fn carried(&mut self, key: &SessionKey, message: Arc<Accepted>, at: LogPosition) {
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
        let key = self.entry(key, lines.at);
        if key.session != Some(session) || lines.commit <= key.view_commit || texts.is_empty() {
            return;
        }
        let place = key.lines.partition_point(|other| other.commit < lines.commit);
        match key.lines.get_mut(place).filter(|other| other.commit == lines.commit) {
            Some(known) => *known = lines,
            None => {
                key.lines.insert(place, lines);
                self.totals.line_bytes += u64::from(lines.bytes);
            }
        }
    }

    fn carried_letter(&mut self, at: LogPosition, letter: DeadLetter) {
        match self.letters.iter_mut().find(|(_, known)| known.turn == letter.turn) {
            Some((place, _)) => *place = at,
            None => self.bury(at, letter),
        }
    }

    fn bury(&mut self, at: LogPosition, letter: DeadLetter) {
        if self.letters.len() == DEAD_LETTERS_MAX {
            self.letters.pop_front();
        }
        self.letters.push_back((at, letter));
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
        if commit.closes_session {
            freed += key.change_session(None, commit.number);
            key.closed = true;
        }
        self.totals.line_bytes = self.totals.line_bytes + added - freed;
        for ((turn, end), ending) in commit.ended.into_iter().zip(endings) {
            let reason = self.close_turn(&commit.key, turn, end, at);
            let Some(Ending { id, body_hash, message_id }) = ending else { continue };
            self.entry(&commit.key, at).remember_ended(EndedId { commit: commit.number, id, turn, body_hash });
            if let (Some(reason), Some(message_id)) = (reason, message_id) {
                self.bury(at, DeadLetter { turn, key: commit.key.clone(), message_id, reason, at_ms });
            }
        }
    }

    /// Takes a turn out of the open ones, and counts it if it was one. The reason, if it died.
    fn close_turn(&mut self, name: &SessionKey, turn: TurnId, end: TurnEnd, at: LogPosition) -> Option<Arc<str>> {
        let open = self.entry(name, at).take_open(turn);
        let count = u64::from(open.is_some());
        let reason = match end {
            TurnEnd::Done => {
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
        if let Some(open) = open {
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
        reason
    }

    /// What a commit's record says of the turns that it ends.
    pub fn endings(&self, commit: &Commit) -> Vec<Option<Ending>> {
        let key = self.keys.get(&commit.key);
        let find = |(turn, end): &(TurnId, TurnEnd)| {
            let open = key?.open.iter().find(|open| open.turn == *turn)?;
            let dead = matches!(end, TurnEnd::Dead { .. });
            let message_id = dead.then(|| open.message_id().clone());
            Some(Ending { id: open.id, body_hash: open.body_hash, message_id })
        };
        commit.ended.iter().map(find).collect()
    }

    /// Where a message lies now whose position was handed out before.
    pub fn resolve(&self, handed: LogPosition) -> LogPosition {
        self.moved.get(&handed).copied().unwrap_or(handed)
    }

    /// When the oldest open turn was accepted.
    pub fn oldest_open_ms(&self) -> Option<u64> {
        self.ages.first_key_value().map(|(accepted_ms, _)| *accepted_ms)
    }

    /// The newest open turn of `key`, as the sink gets it.
    pub fn newest(&self, key: &SessionKey) -> Option<InboxItem> {
        self.keys.get(key)?.open.last().map(OpenTurn::item)
    }

    /// What the next incarnation of `key` is told; `fresh` is its transcript when it has none.
    pub fn plan_load(&self, key: &SessionKey, fresh: SessionId) -> LoadPlan {
        let unknown;
        let key = match self.keys.get(key) {
            Some(key) => key,
            None => {
                unknown = KeyState::new(LogPosition(0), self.floors);
                &unknown
            }
        };
        let loaded = Loaded {
            epoch: Epoch(key.epoch.0 + 1),
            session: key.session.unwrap_or(fresh),
            next_commit: key.next_commit,
            view: key.view.clone(),
            lines: Vec::new(),
            inbox: key.open.iter().map(OpenTurn::item).collect(),
            cut: key.cut(),
        };
        LoadPlan { loaded, lines: key.lines.clone() }
    }

    /// An incarnation holds the key from now on. In memory only.
    pub fn hold(&mut self, key: &SessionKey) {
        if let Some(key) = self.keys.get_mut(key) {
            key.loaded = true;
        }
    }

    /// The incarnation let the key go; whether the key can be forgotten, because its transcript was closed.
    pub fn release(&mut self, name: &SessionKey, epoch: Epoch) -> bool {
        let Some(key) = self.keys.get_mut(name).filter(|key| key.epoch == epoch) else { return false };
        key.loaded = false;
        if key.open.is_empty() {
            key.recent = None;
        }
        key.closed && key.idle()
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
        if key.session != Some(written.session) || written.commit < key.view_commit {
            return false;
        }
        let note = Written { session: written.session, commit: written.commit, mark: written.mark };
        key.written.replace(Box::new(note)).is_none()
    }

    /// Keys with open turns, oldest message first.
    pub fn unfinished(&self, now_ms: u64) -> Vec<Unfinished> {
        let mut found: Vec<_> = self.keys.iter().filter(|(_, key)| !key.open.is_empty()).collect();
        found.sort_by_key(|(name, key)| (key.open.first().map(|open| (open.accepted_ms, open.handed)), *name));
        found
            .into_iter()
            .map(|(name, key)| Unfinished {
                key: name.clone(),
                cut: key.cut().map(|cut| (cut.started, cut.left_by)),
                turns: u32::try_from(key.open.len()).unwrap_or(u32::MAX),
                quarantined_until_ms: key.quarantined_until(now_ms),
            })
            .collect()
    }

    /// After the log was read: no incarnation of before is alive, and the process did not end in order unless a
    /// record says so.
    pub fn finish_recovery(&mut self) {
        for key in self.keys.values_mut().filter(|key| !key.open.is_empty()) {
            key.marks.get_or_insert_default().left.get_or_insert(LeftBy::Death);
        }
        self.totals = Totals {
            accepted: self.totals.open,
            open: self.totals.open,
            open_bytes: self.totals.open_bytes,
            line_bytes: self.totals.line_bytes,
            ..Totals::default()
        };
    }
}

/// Makes room for one more; most lists never get a second element, so the first takes no room for four.
fn grow<T>(list: &mut Vec<T>) {
    if list.len() == list.capacity() {
        list.reserve_exact(list.len().max(1));
    }
}

/// Gives memory back once most of it is unused.
fn shrink<T>(list: &mut Vec<T>) {
    if list.capacity() > 2 * list.len() {
        list.shrink_to_fit();
    }
}

impl KeyState {
    fn take_open(&mut self, turn: TurnId) -> Option<OpenTurn> {
        let place = self.open.iter().position(|open| open.turn == turn)?;
        let open = self.open.remove(place);
        self.open_bytes -= u64::from(open.bytes);
        if place == 0 {
            self.marks = None;
        }
        if self.open.is_empty() {
            shrink(&mut self.open);
        }
        Some(open)
    }

    fn remember_ended(&mut self, ended: EndedId) {
        if let Some(recent) = &mut self.recent {
            recent.add(ended.id, Known { turn: ended.turn, body_hash: ended.body_hash });
        }
        if self.closed || ended.commit <= self.view_commit {
            return;
        }
        if self.ended.len() == RECENT_IDS_MAX {
            self.ended.remove(0);
        }
        grow(&mut self.ended);
        self.ended.push(ended);
    }

    fn change_session(&mut self, to: Option<SessionId>, number: u64) -> u64 {
        self.session = to;
        self.view = ViewMark::default();
        self.view_commit = number.saturating_sub(1);
        self.written = None;
        self.ended = Vec::new();
        std::mem::take(&mut self.lines).iter().map(|lines| u64::from(lines.bytes)).sum()
    }

    /// Notes what a commit says of the first open turn.
    fn mark(&mut self, commit: &Commit) {
        let says_something = commit.started.is_some() || !commit.tools_started.is_empty() || commit.interrupted;
        if self.open.is_empty() || !(says_something || self.marks.is_some()) {
            return;
        }
        let marks: &mut Marks = self.marks.get_or_insert_default();
        if commit.started.is_some() {
            marks.started = commit.started;
            marks.left = None;
        }
        marks.tools.extend_from_slice(&commit.tools_started);
        if !marks.tools.is_empty() {
            for result in commit.lines.iter().filter_map(|line| result_of(&line.text)) {
                marks.tools.retain(|call| *call.0 != *result);
            }
        }
        if commit.interrupted {
            marks.left = Some(LeftBy::Interrupted);
        }
    }
}

/// The tool call whose result a line is.
fn result_of(line: &str) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Entry {
        message: Message,
    }
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Message {
        tool_call_id: String,
    }
    if !line.contains("\"toolCallId\"") {
        return None;
    }
    serde_json::from_str::<Entry>(line).ok().map(|entry| entry.message.tool_call_id)
}
