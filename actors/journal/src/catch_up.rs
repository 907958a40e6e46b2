//! After a start: brings the files up to the log of sessions that nobody wakes. Their files may have everything for
//! long, but nobody says so, and their lines would stay in the log until somebody talks to them: many kills in a row
//! would fill it. Files of ended transcripts are moved where they belong.
//!
//! ```text
//!  start ─▶ some keys with lines ─▶ pool: read the lines, complete the file ─▶ note it ─▶ the next some ... ─▶ checkpoint
//! ```
//!
//! **Invariant:** nobody else writes the file of a key in hand: its activation waits until the job is done.

use std::collections::{BTreeSet, VecDeque};

use domain::ids::{SessionId, SessionKey};
use protocol::journal::{JournalError, Loaded, ViewMark, ViewWritten};
use tokio::sync::oneshot::Sender;

use crate::call::Call;
use crate::engine::Engine;
use crate::key::KeyState;
use crate::pump::Post;
use crate::read::Source;
use crate::reply::read_lines;
use crate::state::State;

/// Keys of one job.
const KEYS_PER_JOB: usize = 64;
/// Bytes of records that one job reads; one key may have more.
const BYTES_PER_JOB: u64 = 4 << 20;

/// Where it is.
#[derive(Default)]
pub struct CatchUp {
    left: VecDeque<SessionKey>,
    /// Keys of files that have to be moved and that no session has asked for since the start.
    moving: BTreeSet<SessionKey>,
    in_hand: BTreeSet<SessionKey>,
    /// Keys whose files were not brought up to the log.
    unwritten: BTreeSet<SessionKey>,
    /// Who waits for the end of all of it.
    waiting: Vec<Sender<Vec<SessionKey>>>,
    /// Activations that wait for that.
    loads: Vec<(SessionKey, Sender<Result<Loaded, JournalError>>)>,
}

/// What a job did.
#[derive(Default)]
pub struct CaughtUp {
    written: Vec<ViewWritten>,
    moved: Vec<(SessionKey, SessionId)>,
}

/// The lines of one key, and where they belong.
struct Behind {
    key: SessionKey,
    session: SessionId,
    commit: u64,
    view: ViewMark,
    lines: Vec<(Source, u64)>,
}

/// It, told also when it panics.
struct Done {
    post: Post,
    caught_up: CaughtUp,
}

impl Drop for Done {
    fn drop(&mut self) {
        self.post.post(Call::CaughtUp(std::mem::take(&mut self.caught_up)));
    }
}

impl CatchUp {
    /// For a log that was just recovered.
    pub fn new(state: &State) -> Self {
        let behind = state.keys.iter().filter(|(_, key)| is_behind(key));
        let mut left: Vec<_> = behind.map(|(name, key)| (key.lines.first().map(|lines| lines.at), name)).collect();
        left.sort_unstable();
        let left = left.into_iter().map(|(_, name)| name.clone()).collect();
        let moving = state.moving.iter().map(|ended| ended.moving.key.clone()).collect();
        Self { left, moving, ..Self::default() }
    }

    /// Whether a turn of the engine would bring it forward.
    pub fn has_work(&self) -> bool {
        !(self.left.is_empty() && self.moving.is_empty()) && self.in_hand.is_empty()
    }

    /// Whether a job is under way.
    pub fn is_running(&self) -> bool {
        !self.in_hand.is_empty()
    }

    /// Keeps an activation for later if its key is in hand; else it comes back.
    pub fn keep(
        &mut self,
        key: SessionKey,
        reply: Sender<Result<Loaded, JournalError>>,
    ) -> Option<(SessionKey, Sender<Result<Loaded, JournalError>>)> {
        // Whoever loads it moves it.
        self.moving.remove(&key);
        if !self.in_hand.contains(&key) {
            return Some((key, reply));
        }
        self.loads.push((key, reply));
        None
    }

    /// Tells, once all is done, which keys' files were not brought up to the log.
    pub fn tell(&mut self, reply: Sender<Vec<SessionKey>>) {
        self.waiting.push(reply);
    }

    fn tell_all(&mut self) {
        for reply in self.waiting.drain(..) {
            // Whoever asked may be gone; then nobody needs the answer.
            let _ = reply.send(self.unwritten.iter().cloned().collect());
        }
    }

    /// The job under way ended after the journal did.
    pub fn give_up(&mut self) {
        *self = Self::default();
    }
}

impl Engine {
    /// Begins the next job, if there is one to begin.
    pub(crate) fn catch_up_some(&mut self) {
        if self.failed() || self.closed {
            self.catch_up.waiting.clear();
            return;
        }
        if !self.catch_up.has_work() {
            if !self.catch_up.is_running() {
                self.catch_up.tell_all();
            }
            return;
        }
        let (mut some, mut moving, mut bytes) = (Vec::new(), Vec::new(), 0);
        // They go first: a key may have lines of its next transcript.
        while moving.len() < KEYS_PER_JOB && bytes < BYTES_PER_JOB {
            let Some(key) = self.catch_up.moving.pop_first() else { break };
            let Some(ended) = self.state.moving.of(&key) else { continue };
            bytes += ended.lines.iter().map(|lines| u64::from(lines.bytes)).sum::<u64>();
            moving.push((ended.moving.clone(), self.sources(&ended.lines)));
        }
        while moving.is_empty() && some.len() < KEYS_PER_JOB && bytes < BYTES_PER_JOB {
            let Some(key) = self.catch_up.left.pop_front() else { break };
            // It could not be moved.
            if self.state.moving.of(&key).is_some() {
                continue;
            }
            let Some(behind) = self.behind(&key) else {
                if self.state.keys.get(&key).is_some_and(|key| is_behind(key)) {
                    self.catch_up.unwritten.insert(key);
                }
                continue;
            };
            bytes += self.state.keys.get(&behind.key).map_or(0, |state| line_bytes(state));
            some.push(behind);
        }
        if some.is_empty() && moving.is_empty() {
            return self.catch_up_some();
        }
        let keys = some.iter().map(|behind| &behind.key).chain(moving.iter().map(|(moving, _)| &moving.key));
        self.catch_up.in_hand = keys.cloned().collect();
        let (recent, post) = (self.around.recent.clone(), self.post.clone());
        self.around.ports.offload.run(Box::new(move || {
            let mut done = Done { post, caught_up: CaughtUp::default() };
            for (mut moving, sources) in moving {
                let lines = read_lines(sources).map_err(|error| error.to_string());
                let moved = lines.and_then(|lines| {
                    moving.lines = lines;
                    recent.move_away(&moving).map_err(|error| error.to_string())
                });
                match moved {
                    Ok(()) => done.caught_up.moved.push((moving.key, moving.session)),
                    Err(error) => tracing::warn!(%error, "the file of an ended session cannot be moved away"),
                }
            }
            for Behind { key, session, commit, view, lines } in some {
                let read: Result<Vec<_>, _> = lines.iter().map(|(source, commit)| source.lines(*commit)).collect();
                let completed = match read {
                    Ok(lines) => recent.complete(&key, &view, &lines.concat()).map_err(|error| error.to_string()),
                    Err(error) => Err(error.to_string()),
                };
                match completed {
                    Ok(Some(mark)) => done.caught_up.written.push(ViewWritten { key, session, commit, mark }),
                    // Somebody else wrote into it: its session sorts it out.
                    Ok(None) => {}
                    Err(error) => {
                        tracing::warn!(%error, "a transcript cannot be completed; its lines stay in the journal")
                    }
                }
            }
        }));
    }

    fn behind(&self, key: &SessionKey) -> Option<Behind> {
        let state = self.state.keys.get(key).filter(|state| is_behind(state))?;
        let (session, commit, view) = (state.session?, state.lines.last()?.commit, state.view.clone());
        Some(Behind { session, commit, view, lines: self.sources(&state.lines)?, key: key.clone() })
    }

    /// A job ended: these files have everything.
    pub(crate) fn caught_up(&mut self, CaughtUp { written, moved }: CaughtUp) {
        let in_hand = std::mem::take(&mut self.catch_up.in_hand);
        self.catch_up.unwritten.extend(in_hand);
        for (key, session) in moved {
            self.catch_up.unwritten.remove(&key);
            self.moved(key, session);
        }
        for written in written {
            let key = written.key.clone();
            self.catch_up.unwritten.remove(&key);
            if self.state.note_written(written) {
                self.checkpoint.noted.push(key);
            }
        }
        for (key, reply) in std::mem::take(&mut self.catch_up.loads) {
            self.load(key, reply);
        }
        self.checkpoint.due |= self.catch_up.left.is_empty();
    }
}

/// Whether the log has lines for it that its file may lack, and no session is there to write them.
fn is_behind(key: &KeyState) -> bool {
    !key.loaded && !key.distrusted && !key.lines.is_empty()
}

fn line_bytes(key: &KeyState) -> u64 {
    key.lines.iter().map(|lines| u64::from(lines.bytes)).sum()
}
