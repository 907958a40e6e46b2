//! The list of all sessions, in memory: what a list shows of each, without a look at its file.
//!
//! Rows come from the heads and tails of the files when the process starts, while it serves. From the moment it is
//! loaded a session keeps its own row up to date, so a row that a session made is never replaced by an older reading.
//!
//! **Invariant:** a session that has a transcript or an open message is listed, once everything was read. A file that
//! somebody else puts into the directory meanwhile is listed when its session is used, or at the next start; one that
//! somebody removes stays listed until then.

use std::collections::{BTreeMap, HashSet};
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use domain::chat::plain_text;
use domain::compaction::behind_boundary;
use domain::ids::{SessionId, SessionKey};
use domain::text::ellipsis;
use domain::transcript::{Entry, Header, Kind, Transcript, UserEntry, read_lines};
use protocol::journal::Line;
use protocol::transcripts::{Page, Summary};
use tokio::sync::watch;

use crate::reading::Reading;

/// Sessions that are listed; about 300 bytes each. What is beyond works as ever, and is missing in lists.
pub const LISTED_MAX: usize = 1_000_000;
/// Characters of a preview.
pub const PREVIEW_CHARS_MAX: usize = 80;

/// How lines that name a session begin.
const NAME_LINE: &str = r#"{"type":"session_info""#;

/// How lines begin that are messages, and those behind which a conversation begins.
const MESSAGE_LINE: &str = r#"{"type":"message""#;
const BOUNDARY_LINES: [&str; 2] = [r#"{"type":"compaction""#, r#"{"type":"reset""#];

/// Sessions of which [`Index::silent`] looks at the rows at a time.
const LOOKED_AT: usize = 10_000;

/// In place of a number of entries that nobody has counted.
const UNCOUNTED: u64 = u64::MAX;

/// What a list shows of one session. Its session changes it from its own thread.
#[derive(Debug)]
pub struct Row {
    session: Option<Arc<str>>,
    name: Mutex<Option<Arc<str>>>,
    preview: OnceLock<Arc<str>>,
    entries: AtomicU64,
    bytes: AtomicU64,
    updated_ms: AtomicU64,
    /// Messages behind the last boundary, or more.
    behind: AtomicU64,
    /// When it was updated last, as [`Index::silent`] named it.
    named_ms: AtomicU64,
}

/// Which conversations count as silent.
#[derive(Debug, Clone, Copy)]
pub struct Silence {
    /// Nothing was written since then, in milliseconds since 1970.
    pub since_ms: u64,
    /// But something was after then.
    pub after_ms: u64,
    /// They have more messages than that behind their last boundary.
    pub more_than: u64,
}

/// All rows.
#[derive(Debug)]
pub struct Index {
    rows: RwLock<Rows>,
    all_known: watch::Sender<bool>,
}

#[derive(Debug)]
struct Rows {
    by_key: BTreeMap<SessionKey, Arc<Row>>,
    /// Until all are known: sessions that ended meanwhile, whose files may have been seen before.
    ended: Option<HashSet<SessionKey>>,
}

/// The first words of what a person said, but not of a command.
pub fn preview(user: &UserEntry) -> Option<Arc<str>> {
    if !user.is_said() {
        return None;
    }
    let text = plain_text(&user.content);
    let line = text.lines().find(|line| !line.trim().is_empty())?;
    Some(Arc::from(ellipsis(line.trim(), PREVIEW_CHARS_MAX)))
}

/// The first words of the first message.
pub fn first_preview(transcript: &Transcript) -> Option<Arc<str>> {
    transcript.entries().iter().find_map(|entry| preview(entry.user()?))
}

/// How many messages stand behind the last boundary; more than there can be if none of these entries is one and others
/// come before them.
pub fn behind(entries: &[Entry], is_all: bool) -> u64 {
    let kinds = || entries.iter().rev().map(|entry| Kind::of(&entry.kind));
    if !is_all && !kinds().any(Kind::is_boundary) {
        return u64::MAX;
    }
    let said = |kind: &Kind| matches!(kind, Kind::User | Kind::Assistant | Kind::ToolResult);
    kinds().take_while(|kind| !kind.is_boundary()).filter(said).count() as u64
}

/// The session's name.
pub fn name(transcript: &Transcript) -> Option<Arc<str>> {
    transcript.tree().name().cloned()
}

// === impl Row ===

impl Row {
    /// Of a session that has no transcript yet.
    pub fn fresh(session: Option<SessionId>, now_ms: u64) -> Self {
        Self {
            session: session.map(|session| session.to_string().into()),
            name: Mutex::new(None),
            preview: OnceLock::new(),
            entries: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            updated_ms: AtomicU64::new(now_ms),
            behind: AtomicU64::new(0),
            named_ms: AtomicU64::new(0),
        }
    }

    /// Of a transcript in a file of `bytes` bytes. `entries` where they were counted.
    pub fn of(
        header: Option<&Header>,
        name: Option<Arc<str>>,
        preview: Option<Arc<str>>,
        entries: Option<usize>,
        bytes: u64,
        updated_ms: u64,
    ) -> Self {
        Self {
            session: header.map(|header| header.id.as_str()).filter(|id| !id.is_empty()).map(Arc::from),
            name: Mutex::new(name),
            preview: preview.map(OnceLock::from).unwrap_or_default(),
            entries: AtomicU64::new(entries.map_or(UNCOUNTED, |entries| entries as u64)),
            bytes: AtomicU64::new(bytes),
            updated_ms: AtomicU64::new(updated_ms),
            behind: AtomicU64::new(u64::MAX),
            named_ms: AtomicU64::new(0),
        }
    }

    /// With so many messages behind the last boundary; else there may be any number.
    pub fn with_behind(self, behind: u64) -> Self {
        Self { behind: AtomicU64::new(behind), ..self }
    }

    /// Of a transcript that was read from its begin to its end.
    pub fn read(read: &Reading) -> Self {
        let (name, preview) = (read.tree.name().cloned(), read.preview.clone());
        let row = Self::of(read.header.as_ref(), name, preview, Some(read.tree.len()), read.length, read.last_ms());
        row.with_behind(behind_boundary(&read.tree) as u64)
    }

    /// Its session made these lines durable, the last of them at `updated_ms`.
    pub fn grew(&self, lines: &[Line], updated_ms: u64) {
        let entries = lines.iter().filter(|line| !line.id.is_empty()).count() as u64;
        if self.entries.load(Ordering::Relaxed) != UNCOUNTED {
            self.entries.fetch_add(entries, Ordering::Relaxed);
        }
        self.updated_ms.fetch_max(updated_ms, Ordering::Relaxed);
        for line in lines {
            if BOUNDARY_LINES.iter().any(|begin| line.text.starts_with(begin)) {
                self.behind.store(0, Ordering::Relaxed);
            } else if line.text.starts_with(MESSAGE_LINE) {
                self.behind.store(self.behind.load(Ordering::Relaxed).saturating_add(1), Ordering::Relaxed);
            }
        }
        if let Some(said) = lines.iter().rev().find(|line| line.text.starts_with(NAME_LINE)) {
            *self.name.lock().unwrap_or_else(PoisonError::into_inner) = name(&read_lines(said.text.as_bytes()));
        }
        if self.preview.get().is_none()
            && let Some(said) = lines.iter().find(|line| line.text.contains("\"role\":\"user\""))
        {
            let said = read_lines(said.text.as_bytes());
            if let Some(line) = first_preview(&said) {
                self.preview.get_or_init(|| line);
            }
        }
    }

    /// Its file has this length now, and `foreign` lines in it were not there before.
    pub fn filed(&self, bytes: u64, foreign: usize) {
        self.bytes.store(bytes, Ordering::Relaxed);
        if foreign > 0 && self.entries.load(Ordering::Relaxed) != UNCOUNTED {
            self.entries.fetch_add(foreign as u64, Ordering::Relaxed);
        }
    }

    /// Whether it is silent, and was not named as such since it was updated last; it is named now.
    fn falls_silent(&self, silence: &Silence) -> bool {
        let updated_ms = self.updated_ms.load(Ordering::Relaxed);
        (silence.after_ms..=silence.since_ms).contains(&updated_ms)
            && self.behind.load(Ordering::Relaxed) > silence.more_than
            && self.named_ms.swap(updated_ms, Ordering::Relaxed) != updated_ms
    }

    /// As a list shows it.
    pub fn summary(&self, key: &SessionKey) -> Summary {
        let entries = self.entries.load(Ordering::Relaxed);
        Summary {
            key: key.clone(),
            session: self.session.clone(),
            name: self.name.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            preview: self.preview.get().cloned(),
            entries: (entries != UNCOUNTED).then_some(entries),
            bytes: self.bytes.load(Ordering::Relaxed),
            updated_ms: self.updated_ms.load(Ordering::Relaxed),
        }
    }
}

// === impl Index ===

impl Default for Index {
    fn default() -> Self {
        let rows = Rows { by_key: BTreeMap::new(), ended: Some(HashSet::new()) };
        Self { rows: RwLock::new(rows), all_known: watch::Sender::new(false) }
    }
}

impl Index {
    fn look(&self) -> RwLockReadGuard<'_, Rows> {
        self.rows.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self) -> RwLockWriteGuard<'_, Rows> {
        self.rows.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// A file was read: the session is listed, unless it was in memory meanwhile.
    pub fn found(&self, key: SessionKey, row: Row) {
        let mut rows = self.change();
        let known = rows.by_key.contains_key(&key) || rows.ended.as_ref().is_some_and(|ended| ended.contains(&key));
        if !known && rows.by_key.len() < LISTED_MAX {
            rows.by_key.insert(key, Arc::new(row));
        }
    }

    /// A session has a message, and may have no file yet.
    pub fn expect(&self, key: &SessionKey, now_ms: u64) {
        if !self.look().by_key.contains_key(key) {
            self.loaded(key, Row::fresh(None, now_ms));
        }
    }

    /// A session is in memory: its own row counts from now on.
    pub fn loaded(&self, key: &SessionKey, row: Row) -> Arc<Row> {
        let (row, mut rows) = (Arc::new(row), self.change());
        if let Some(ended) = &mut rows.ended {
            ended.remove(key);
        }
        if rows.by_key.len() < LISTED_MAX || rows.by_key.contains_key(key) {
            rows.by_key.insert(key.clone(), Arc::clone(&row));
        }
        row
    }

    /// The transcript of a session was closed and moved away.
    pub fn ended(&self, key: &SessionKey) {
        let mut rows = self.change();
        rows.by_key.remove(key);
        if let Some(ended) = &mut rows.ended {
            ended.insert(key.clone());
        }
    }

    /// Every file was read.
    pub fn complete(&self) {
        self.change().ended = None;
        self.all_known.send_replace(true);
    }

    /// Becomes true by [`complete`](Self::complete).
    pub fn all_known(&self) -> watch::Receiver<bool> {
        self.all_known.subscribe()
    }

    /// How many are listed.
    pub fn count(&self) -> usize {
        self.look().by_key.len()
    }

    /// Sessions that fell silent, by key, at most `most`. Each is named once for each silence.
    pub fn silent(&self, silence: &Silence, most: usize) -> Vec<SessionKey> {
        let mut found = Vec::new();
        let mut after: Option<SessionKey> = None;
        loop {
            let rows = self.look();
            let from = after.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
            let mut last = None;
            for (key, row) in rows.by_key.range::<SessionKey, _>((from, Bound::Unbounded)).take(LOOKED_AT) {
                if found.len() >= most {
                    return found;
                }
                if row.falls_silent(silence) {
                    found.push(key.clone());
                }
                last = Some(key.clone());
            }
            let Some(last) = last else { return found };
            after = Some(last);
        }
    }

    /// See [`protocol::transcripts::TranscriptReader::page`].
    pub fn page(&self, after: Option<&SessionKey>, limit: usize) -> Page {
        let rows = self.look();
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut behind = rows.by_key.range::<SessionKey, _>((from, Bound::Unbounded));
        let items: Vec<Summary> = behind.by_ref().take(limit).map(|(key, row)| row.summary(key)).collect();
        let next = behind.next().and(items.last()).map(|last| last.key.clone());
        Page { items, next }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> SessionKey {
        SessionKey::new(name).unwrap()
    }

    fn row(bytes: u64) -> Row {
        let row = Row::fresh(None, 1);
        row.filed(bytes, 0);
        row
    }

    fn listed(index: &Index) -> Vec<(String, u64)> {
        let page = index.page(None, usize::MAX);
        page.items.iter().map(|one| (one.key.as_str().to_owned(), one.bytes)).collect()
    }

    #[test]
    fn pages_follow_each_other_and_the_last_one_says_so() {
        let index = Index::default();
        for name in ["c", "a", "e", "b", "d"] {
            index.found(key(name), row(1));
        }
        let mut seen = Vec::new();
        let mut after = None;
        loop {
            let page = index.page(after.as_ref(), 2);
            seen.push(page.items.iter().map(|one| one.key.as_str().to_owned()).collect::<String>());
            match page.next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        assert_eq!(seen, ["ab", "cd", "e"]);
        assert_eq!(index.page(Some(&key("bb")), 1).items[0].key, key("c"), "a cursor need not be there");
        assert_eq!(index.page(Some(&key("e")), 1), Page::default());
        assert_eq!(index.page(None, 5).next, None, "a full page may be the last");
    }

    #[test]
    fn what_a_session_says_of_itself_counts_and_what_ended_does_not_come_back() {
        let index = Index::default();
        assert!(!*index.all_known().borrow());
        index.loaded(&key("live"), row(10));
        index.loaded(&key("ended"), row(10));
        index.ended(&key("ended"));
        index.loaded(&key("again"), row(10));
        index.ended(&key("again"));
        index.expect(&key("again"), 5);
        for name in ["live", "ended", "again", "old"] {
            index.found(key(name), row(20));
        }
        index.expect(&key("old"), 5);
        let expect = [("again", 0), ("live", 10), ("old", 20)].map(|(name, bytes)| (name.to_owned(), bytes));
        assert_eq!(listed(&index), expect);
        index.complete();
        assert!(*index.all_known().borrow());
        assert_eq!(index.count(), 3);
    }

    #[test]
    fn a_row_grows_with_its_session() {
        let user = r#"{"type":"message","id":"1","parentId":null,"timestamp":"2026-01-01T00:00:00.000Z","message":{"role":"user","content":"\n  hello\nyou"}}"#;
        let line = |id: &str, text: &str| Line { id: id.into(), text: text.into() };
        let row = Row::fresh(None, 7);
        row.grew(&[line("", "{}"), line("1", user)], 9);
        row.grew(&[line("2", &user.replace("hello", "later"))], 8);
        row.filed(100, 3);
        let shown = row.summary(&key("k"));
        let counts = (shown.entries, shown.bytes, shown.updated_ms);
        assert_eq!((counts, shown.preview.as_deref()), ((Some(5), 100, 9), Some("hello")));
        let named = |name: &str| {
            let text = format!(
                r#"{{"type":"session_info","id":"9","parentId":"1","timestamp":"2026-01-01T00:00:00.000Z","name":"{name}"}}"#
            );
            row.grew(&[line("9", &text)], 9);
            row.summary(&key("k")).name
        };
        assert_eq!((named("Taxes").as_deref(), named("")), (Some("Taxes"), None));
        let long = Row::of(None, None, None, None, 1 << 20, 3);
        long.grew(&[line("1", user)], 4);
        assert_eq!(long.summary(&key("k")).entries, None, "what was not counted stays so");
    }

    #[test]
    fn a_silence_is_named_once_and_only_where_much_was_said() {
        let silence = Silence { since_ms: 100, after_ms: 10, more_than: 2 };
        let index = Index::default();
        let file = |behind: u64, updated_ms: u64| Row::of(None, None, None, None, 1, updated_ms).with_behind(behind);
        for (name, behind, updated_ms) in [
            ("short", 2, 50),
            ("long", 3, 50),
            ("unknown", u64::MAX, 100),
            ("loud", 9, 101),
            ("old", 9, 9),
            ("other", 9, 10),
        ] {
            index.found(key(name), file(behind, updated_ms));
        }
        let named = |silence: &Silence, most| -> Vec<String> {
            index.silent(silence, most).iter().map(|key| key.as_str().to_owned()).collect()
        };
        assert_eq!(named(&silence, 2), ["long", "other"]);
        assert_eq!(named(&silence, 9), ["unknown"]);
        assert!(named(&silence, 9).is_empty());
        let row = index.loaded(&key("live"), Row::fresh(None, 1));
        let line = |text: &str| Line { id: "1".into(), text: text.into() };
        let said = line(r#"{"type":"message","id":"1"}"#);
        row.grew(&[said.clone(), said.clone(), said.clone()], 60);
        assert_eq!(named(&silence, 9), ["live"]);
        row.grew(&[line(r#"{"type":"compaction","id":"2"}"#), said.clone(), said.clone()], 70);
        assert!(named(&silence, 9).is_empty());
        row.grew(&[said], 80);
        assert_eq!(named(&silence, 9), ["live"]);
    }

    #[test]
    fn messages_behind_the_last_boundary_are_counted_where_it_is_seen() {
        let message = r#"{"type":"message","id":"1","parentId":null,"message":{"role":"user","content":"hello"}}"#;
        let boundary =
            r#"{"type":"compaction","id":"2","parentId":"1","summary":"s","firstKeptEntryId":"2","tokensBefore":1}"#;
        for (lines, is_all, expected) in [
            (&[message][..], true, 1),
            (&[message], false, u64::MAX),
            (&[message, boundary], false, 0),
            (&[message, boundary, message, message], false, 2),
        ] {
            let said = read_lines(lines.join("\n").as_bytes());
            assert_eq!(behind(said.entries(), is_all), expected, "{lines:?}");
        }
    }
}
