//! Files of ended transcripts that have to be moved, one per key at most: a key's next transcript begins after it.
//! Until then the log keeps the lines that the file may lack. **Invariant:** pure.

use std::collections::BTreeMap;

use domain::ids::{SessionId, SessionKey};
use protocol::journal::{LogPosition, Moving};

use crate::key::LinesAt;

/// All of them.
#[derive(Debug, Default)]
pub struct MovingFiles(BTreeMap<SessionKey, Ended>);

/// One of them.
#[derive(Debug)]
pub struct Ended {
    /// The file, without its lines.
    pub moving: Moving,
    /// Where the lines are, in order.
    pub lines: Vec<LinesAt>,
    /// The record that tells of it.
    at: LogPosition,
    /// Whether that is a copy: then its lines are copied behind it.
    copy: bool,
}

// === impl Ended ===

impl Ended {
    /// Whether something of it would go with the log below `cutoff`.
    pub fn is_below(&self, cutoff: LogPosition) -> bool {
        self.tells_below(cutoff) || self.lines_below(cutoff).next().is_some()
    }

    /// Whether only a record below `cutoff` tells of it.
    pub fn tells_below(&self, cutoff: LogPosition) -> bool {
        self.at < cutoff
    }

    /// Lines that lie below `cutoff`, or before the copy that tells whose they are.
    pub fn lines_below(&self, cutoff: LogPosition) -> impl Iterator<Item = &LinesAt> {
        self.lines.iter().filter(move |lines| lines.at < cutoff || (self.copy && lines.at < self.at))
    }

    fn bytes(&self) -> u64 {
        self.lines.iter().map(|lines| u64::from(lines.bytes)).sum()
    }
}

// === impl MovingFiles ===

impl MovingFiles {
    /// The commit at `at` wants one moved, which may lack these lines. How many bytes of lines are not needed any more.
    pub fn add(&mut self, moving: Moving, lines: Vec<LinesAt>, at: LogPosition) -> u64 {
        let before = self.0.insert(moving.key.clone(), Ended { moving, lines, at, copy: false });
        before.map_or(0, |before| before.bytes())
    }

    /// It was copied to `at`; its lines follow. How many bytes of lines are not needed any more.
    pub fn copied(&mut self, moving: Moving, at: LogPosition) -> u64 {
        if let Some(known) = self.0.get_mut(&moving.key).filter(|known| known.moving.session == moving.session) {
            known.at = at;
            known.copy = true;
            return 0;
        }
        let before = self.0.insert(moving.key.clone(), Ended { moving, lines: Vec::new(), at, copy: true });
        before.map_or(0, |before| before.bytes())
    }

    /// Lines were copied; `None` if they are not those of an ended transcript, else how many bytes are new.
    pub fn copied_lines(&mut self, key: &SessionKey, session: SessionId, lines: LinesAt) -> Option<u64> {
        let ended = self.0.get_mut(key).filter(|ended| ended.moving.session == session)?;
        let place = ended.lines.partition_point(|other| other.commit < lines.commit);
        match ended.lines.get_mut(place).filter(|other| other.commit == lines.commit) {
            Some(known) => {
                *known = lines;
                Some(0)
            }
            None => {
                ended.lines.insert(place, lines);
                Some(lines.bytes.into())
            }
        }
    }

    /// It was moved. How many bytes of lines are not needed any more.
    pub fn done(&mut self, key: &SessionKey, session: SessionId) -> u64 {
        if self.of(key).is_some_and(|ended| ended.moving.session == session) {
            return self.0.remove(key).map_or(0, |ended| ended.bytes());
        }
        0
    }

    /// That of a key.
    pub fn of(&self, key: &SessionKey) -> Option<&Ended> {
        self.0.get(key)
    }

    /// All of them, in the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = &Ended> {
        self.0.values()
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.0.len()
    }
}
