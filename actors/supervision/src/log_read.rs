//! Reads the supervision log back: over rotated files, with filters, and following the file that grows.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use domain::ids::{SessionKey, TurnId};
use protocol::supervision::{Event, EventName};

use crate::log::file_name;
use crate::ports::{Disk, Open};

/// Rotated files that are looked for.
const FILES_MAX: u32 = 1000;

/// Which events are wanted; an empty filter wants all.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// `*` stands for any text, `/` included; `?` for one character.
    pub path: Option<String>,
    /// Any of these; empty: all.
    pub events: Vec<EventName>,
    /// Of this session.
    pub session: Option<SessionKey>,
    /// Of this turn.
    pub turn: Option<TurnId>,
    /// Not before this time, in the log's own form (`2026-11-29T20:53:29.000001Z`; any prefix of it works).
    pub since: Option<String>,
    /// Before this time.
    pub until: Option<String>,
}

impl Filter {
    /// Whether `event` is wanted.
    pub fn wants(&self, event: &Event) -> bool {
        self.path.as_ref().is_none_or(|glob| glob_matches(glob, &event.path.0))
            && (self.events.is_empty() || self.events.contains(&event.event))
            && self.session.as_ref().is_none_or(|key| event.session.as_ref() == Some(key))
            && self.turn.is_none_or(|turn| event.turn == Some(turn))
            && self.since.as_ref().is_none_or(|since| *event.ts >= **since)
            && self.until.as_ref().is_none_or(|until| *event.ts < **until)
    }
}

/// `*` matches any text, `?` one character.
pub fn glob_matches(glob: &str, text: &str) -> bool {
    let (glob, text): (Vec<char>, Vec<char>) = (glob.chars().collect(), text.chars().collect());
    let (mut g, mut t) = (0, 0);
    let mut retry = None;
    while t < text.len() {
        if glob.get(g) == Some(&'*') {
            retry = Some((g, t));
            g += 1;
        } else if glob.get(g).is_some_and(|c| *c == '?' || *c == text[t]) {
            g += 1;
            t += 1;
        } else if let Some((star, from)) = retry {
            retry = Some((star, from + 1));
            g = star + 1;
            t = from + 1;
        } else {
            return false;
        }
    }
    glob[g..].iter().all(|c| *c == '*')
}

/// Reads events in the order in which they were written, oldest file first. One file is in memory at a time.
/// Lines that are no events (a torn last line) are left out and counted.
pub struct Events {
    disk: Arc<dyn Disk>,
    files: VecDeque<PathBuf>,
    lines: VecDeque<Event>,
    unreadable: u64,
}

impl Events {
    /// Opens the log in `dir`; no log at all is an empty one.
    pub fn open(disk: Arc<dyn Disk>, dir: &Path) -> io::Result<Self> {
        let mut files = VecDeque::new();
        for n in 0..FILES_MAX {
            let path = dir.join(file_name(n));
            match disk.stat(&path) {
                Ok(_) => files.push_front(path),
                Err(error) if error.kind() == io::ErrorKind::NotFound => break,
                Err(error) => return Err(error),
            }
        }
        Ok(Self { disk, files, lines: VecDeque::new(), unreadable: 0 })
    }

    /// Lines left out so far.
    pub fn unreadable(&self) -> u64 {
        self.unreadable
    }
}

impl Iterator for Events {
    type Item = io::Result<Event>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(event) = self.lines.pop_front() {
                return Some(Ok(event));
            }
            let path = self.files.pop_front()?;
            match self.disk.read(&path) {
                Ok(bytes) => {
                    let (events, unreadable) = parse(&bytes);
                    self.lines.extend(events);
                    self.unreadable += unreadable;
                }
                // Rotated away meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

fn parse(bytes: &[u8]) -> (Vec<Event>, u64) {
    let mut events = Vec::new();
    let mut unreadable = 0;
    for line in bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        match serde_json::from_slice(line) {
            Ok(event) => events.push(event),
            Err(_) => unreadable += 1,
        }
    }
    (events, unreadable)
}

/// Follows the log: each call gives the whole lines that were added since the one before.
pub struct Follow {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    /// Device and inode of the file that is being read.
    file: Option<(u64, u64)>,
    offset: u64,
}

impl Follow {
    /// Begins at the present end of the log.
    pub fn from_end(disk: Arc<dyn Disk>, dir: PathBuf) -> io::Result<Self> {
        let mut this = Self { disk, dir, file: None, offset: 0 };
        this.poll()?;
        Ok(this)
    }

    /// What is new.
    pub fn poll(&mut self) -> io::Result<Vec<Event>> {
        let mut events = Vec::new();
        let current = self.dir.join(file_name(0));
        let now = match self.disk.stat(&current) {
            Ok(stat) => (stat.stamp.0, stat.stamp.1),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(events),
            Err(error) => return Err(error),
        };
        if let Some(before) = self.file
            && before != now
        {
            // Rotated: what was read is the first rotated file now; its rest comes first.
            let rotated = self.dir.join(file_name(1));
            if self.disk.stat(&rotated).is_ok_and(|stat| (stat.stamp.0, stat.stamp.1) == before) {
                events.extend(self.rest(&rotated)?);
            }
            self.offset = 0;
        }
        self.file = Some(now);
        events.extend(self.rest(&current)?);
        Ok(events)
    }

    fn rest(&mut self, path: &Path) -> io::Result<Vec<Event>> {
        let file = self.disk.open(path, Open::Read)?;
        let fresh = file.length()?.saturating_sub(self.offset);
        let mut bytes = vec![0; usize::try_from(fresh).map_err(io::Error::other)?];
        let got = file.read_at(&mut bytes, self.offset)?;
        bytes.truncate(got);
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        bytes.truncate(whole);
        self.offset += whole as u64;
        Ok(parse(&bytes).0)
    }
}
