//! What is kept in memory of one session key. A passivated, idle key is a few numbers. **Invariant:** pure.

use std::sync::Arc;

use domain::event;
use domain::ids::{Attempt, Epoch, MessageId, Seq, SessionId, SessionKey, ToolCallId, TurnId};
use protocol::journal::{Accepted, CutTurn, INLINE_BODY_BYTES_MAX, InboxItem, LeftBy, LogPosition, Started, ViewMark};
use protocol::turn::{PushRoute, Route};

use crate::ids::{Known, RecentSet};
use crate::record::{EndedId, Floors, KeyRecord};

/// An open turn.
#[derive(Debug)]
pub struct OpenTurn {
    /// Turn.
    pub turn: TurnId,
    /// Place in the accept order.
    pub seq: Seq,
    /// Where the message lies now.
    pub at: LogPosition,
    /// The position that others were told; resolved to `at` by [`crate::state::State::resolve`].
    pub handed: LogPosition,
    /// Hash of source and message id.
    pub id: u128,
    /// Hash of the body.
    pub body_hash: u64,
    /// When it was accepted.
    pub accepted_ms: u64,
    /// Length of the body.
    pub bytes: u32,
    /// Whether it is an event.
    pub event: bool,
    /// The message, when it is small.
    pub body: OpenBody,
}

/// The message of an open turn, or what is needed of it.
#[derive(Debug)]
pub enum OpenBody {
    /// All of it.
    Inline(Arc<Accepted>),
    /// It is read from the log when its turn starts; a dead letter needs its id.
    InLog {
        /// The sender's id.
        message_id: MessageId,
        /// Where its reply is pushed.
        push: Option<Arc<PushRoute>>,
    },
}

impl OpenTurn {
    /// The turn of an accepted message.
    pub fn new(message: Arc<Accepted>, id: u128, at: LogPosition) -> Self {
        Self {
            turn: message.turn,
            seq: message.seq,
            at,
            handed: at,
            event: event::is_source(message.source.as_str()),
            id,
            body_hash: message.body_hash,
            accepted_ms: message.accepted_ms,
            bytes: u32::try_from(message.body.len()).unwrap_or(u32::MAX),
            body: if message.body.len() <= INLINE_BODY_BYTES_MAX {
                OpenBody::Inline(message)
            } else {
                let push = match &message.route {
                    Route::Push(route) => Some(Arc::new(route.clone())),
                    Route::Live | Route::Reply => None,
                };
                OpenBody::InLog { message_id: message.message_id.clone(), push }
            },
        }
    }

    /// As sessions get it.
    pub fn item(&self) -> InboxItem {
        let (inline, push) = match &self.body {
            OpenBody::Inline(message) => (Some(message.clone()), None),
            OpenBody::InLog { push, .. } => (None, push.clone()),
        };
        InboxItem { turn: self.turn, seq: self.seq, at: self.handed, inline, push, event: self.event }
    }

    /// The sender's id.
    pub fn message_id(&self) -> &MessageId {
        match &self.body {
            OpenBody::Inline(message) => &message.message_id,
            OpenBody::InLog { message_id, .. } => message_id,
        }
    }
}

/// Where the lines of one commit lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinesAt {
    /// The commit.
    pub commit: u64,
    /// The record.
    pub at: LogPosition,
    /// Payload bytes of the record.
    pub bytes: u32,
}

/// What is known of the turn that is first.
#[derive(Debug, Default)]
pub struct Marks {
    /// Its last durable start, when it is not the implied one.
    pub started: Option<Started>,
    /// How it was left, when that is known.
    pub left: Option<LeftBy>,
    /// Its tool calls without a result line.
    pub tools: Vec<ToolCallId>,
}

/// How far a file was written, not yet known to be on the device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// Which transcript.
    pub session: SessionId,
    /// Commits up to this one.
    pub commit: u64,
    /// The file.
    pub mark: ViewMark,
}

/// One key.
#[derive(Debug)]
pub struct KeyState {
    /// Transcript.
    pub session: Option<SessionId>,
    /// Last epoch given out.
    pub epoch: Epoch,
    /// Next place in the accept order.
    pub next_seq: Seq,
    /// Next commit number.
    pub next_commit: u64,
    /// Commits up to this one are in the synced view.
    pub view_commit: u64,
    /// The synced view.
    pub view: ViewMark,
    /// The record from which on the log holds everything about this key that is not a message or a line.
    pub base: LogPosition,
    /// Open turns in order.
    pub open: Vec<OpenTurn>,
    /// Bytes of their bodies.
    pub open_bytes: u64,
    /// Commits with lines after the view, in order.
    pub lines: Vec<LinesAt>,
    /// Ids of turns that ended after the view, oldest first.
    pub ended: Vec<EndedId>,
    /// A sync failed since its file was last written from the journal: nobody knows what of it reached the device, and no
    /// later sync tells.
    pub distrusted: bool,
    /// About the first open turn.
    pub marks: Option<Box<Marks>>,
    /// Quarantine: end in ms since 1970, times in a row, reason.
    pub quarantine: Option<Box<(u64, u32, Arc<str>)>>,
    /// What the session said of its file.
    pub written: Option<Box<Written>>,
    /// Recent ids of the transcript, once they were read.
    pub recent: Option<Box<RecentSet>>,
    /// The transcript's ids are being read: what was not in the file then must stay in `ended` until they are here.
    pub finding: bool,
    /// An incarnation holds it.
    pub loaded: bool,
    /// Its transcript was closed and nothing came since.
    pub closed: bool,
    /// The bound of its incarnation, if that has one of its own: turns behind the first open one.
    pub queue_cap: Option<u32>,
}

impl KeyState {
    /// A key that was never heard of.
    pub fn new(base: LogPosition, floors: Floors) -> Self {
        Self {
            session: None,
            epoch: floors.epoch,
            next_seq: Seq(floors.seq.0 + 1),
            next_commit: 1,
            view_commit: 0,
            view: ViewMark::default(),
            base,
            open: Vec::new(),
            open_bytes: 0,
            lines: Vec::new(),
            ended: Vec::new(),
            marks: None,
            quarantine: None,
            distrusted: false,
            written: None,
            recent: None,
            finding: false,
            loaded: false,
            closed: false,
            queue_cap: None,
        }
    }

    /// Finds a message id among everything that is in memory.
    pub fn find(&self, id: u128) -> Option<(Known, bool)> {
        if let Some(open) = self.open.iter().find(|open| open.id == id) {
            return Some((Known { turn: open.turn, body_hash: open.body_hash }, true));
        }
        if let Some(ended) = self.ended.iter().rev().find(|ended| ended.id == id) {
            return Some((Known { turn: ended.turn, body_hash: ended.body_hash }, false));
        }
        self.recent.as_ref().and_then(|recent| recent.find(id)).map(|known| (known, false))
    }

    /// The quarantine that holds at `now_ms`, by its end.
    pub fn quarantined_until(&self, now_ms: u64) -> Option<u64> {
        self.quarantine.as_ref().map(|quarantine| quarantine.0).filter(|until_ms| *until_ms > now_ms)
    }

    /// The last durable start of the first open turn.
    pub fn started(&self) -> Option<Started> {
        let first = self.open.first()?;
        let marked = self.marks.as_ref().and_then(|marks| marks.started);
        Some(marked.filter(|started| started.turn == first.turn).unwrap_or(Started {
            turn: first.turn,
            attempt: Attempt::FIRST,
            crashes: 0,
            deaths: 0,
            alone: false,
        }))
    }

    /// The turn that had begun when the last incarnation ended, as the next one learns it.
    pub fn cut(&self) -> Option<CutTurn> {
        let started = self.started()?;
        let marks = self.marks.as_deref();
        let left_by = match marks.and_then(|marks| marks.left) {
            Some(left) => left,
            // Its incarnation did not release it.
            None if self.loaded => LeftBy::Crash,
            None => return None,
        };
        let blamed = marks.is_some_and(|marks| marks.left == Some(LeftBy::Crash));
        let tools_started = marks.map(|marks| marks.tools.clone()).unwrap_or_default();
        Some(CutTurn { started, left_by, blamed, tools_started })
    }

    /// Whether it has an open turn, or something is known of one whose message follows later in the log.
    pub fn begun_or_marked(&self) -> bool {
        !self.open.is_empty() || self.marks.is_some()
    }

    /// Whether nothing would be lost but numbers if it left memory.
    pub fn idle(&self) -> bool {
        self.rests() && self.ended.is_empty()
    }

    /// Whether it may leave memory once there are too many: nothing would be lost but numbers, and ids of transcripts that
    /// were closed.
    pub fn rests(&self) -> bool {
        !self.loaded
            && self.open.is_empty()
            && self.lines.is_empty()
            && self.ended.iter().all(|ended| ended.commit == EndedId::CLOSED)
            && self.written.is_none()
            && self.quarantine.is_none()
    }

    /// Whether something of it would go with the log below `cutoff`.
    pub fn needs_carry(&self, cutoff: LogPosition) -> bool {
        self.base < cutoff
            || self.open.iter().any(|open| open.at < cutoff)
            || self.lines.iter().any(|lines| lines.at < cutoff)
    }

    /// As a snapshot keeps it.
    pub fn record(&self, key: &SessionKey) -> KeyRecord {
        let marks = self.marks.as_deref();
        KeyRecord {
            key: key.clone(),
            session: self.session,
            epoch: self.epoch,
            next_seq: self.next_seq,
            next_commit: self.next_commit,
            view_commit: self.view_commit,
            view: self.view.clone(),
            started: marks.and_then(|marks| marks.started),
            left: marks.and_then(|marks| marks.left),
            tools: marks.map(|marks| marks.tools.clone()).unwrap_or_default(),
            quarantine: self.quarantine.as_deref().cloned(),
            ended: self.ended.clone(),
            closed: self.closed,
        }
    }

    /// Takes over what a snapshot kept; the answer is how many bytes of lines it does not need any more.
    pub fn replace(&mut self, from: KeyRecord) -> u64 {
        let same = self.session == from.session;
        let needed = |lines: &LinesAt| same && lines.commit > from.view_commit;
        let freed = self.lines.iter().filter(|lines| !needed(lines)).map(|lines| u64::from(lines.bytes)).sum();
        self.lines.retain(needed);
        self.session = from.session;
        self.epoch = from.epoch;
        self.next_seq = from.next_seq;
        self.next_commit = from.next_commit;
        self.view_commit = from.view_commit;
        self.view = from.view;
        self.quarantine = from.quarantine.map(Box::new);
        self.ended = from.ended;
        self.closed = from.closed;
        self.marks = if from.started.is_none() && from.left.is_none() && from.tools.is_empty() {
            None
        } else {
            Some(Box::new(Marks { started: from.started, left: from.left, tools: from.tools }))
        };
        freed
    }
}
