//! The transcript files of sessions, without waking them: for the journal's dedupe, for lists, for people. Whatever
//! looks at a file blocks; lists come from the [`Index`].

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use domain::ids::{SessionKey, TurnId};
use domain::retention::PutAway;
use domain::stem::{key_of, stem};
use domain::transcript::read_lines;
use protocol::edit::EditError;
use protocol::journal::{Line, Moving, RecentId, RecentIds, Shelf, ViewMark};
use protocol::session::TurnRecord;
use protocol::transcripts::{BroughtIn, Check, EndedPage, Page, TranscriptReader, Tree};
use supervision::ports::{Disk, Ids, Offload, Open, Ports, offload};
use tokio::sync::watch;

use crate::context::record;
use crate::file;
use crate::index::{Index, Row, behind, first_preview, name as title_of};
use crate::look;
use crate::reading;

/// How much of a file's beginning is read for its row.
const HEAD_BYTES: usize = 8 * 1024;
/// How much of a file's end is read for its row.
const SUMMARY_TAIL_BYTES: u64 = 4 * 1024;
/// Files with up to this many bytes have their entries counted one by one.
const COUNT_BYTES_MAX: u64 = (HEAD_BYTES as u64) * 8;
/// Files that one job on the blocking pool looks at: others want it too.
const FILES_PER_JOB: usize = 128;

/// The transcripts of a workspace.
pub struct Transcripts {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) ids: Arc<dyn Ids>,
    pub(crate) dir: PathBuf,
    index: Index,
    pub(crate) shelf: crate::shelf::Known,
}

// === impl Transcripts ===

impl Transcripts {
    /// Those in `dir`. None is listed before [`discover`](Self::discover), or before its session is used.
    pub fn new(ports: Ports, dir: PathBuf) -> Self {
        Self { disk: ports.disk, ids: ports.ids, dir, index: Index::default(), shelf: Default::default() }
    }

    /// The list of them.
    pub fn index(&self) -> &Index {
        &self.index
    }

    /// Lists all of them. Reads the beginning and the end of each file, a few at a time. A file that cannot be read is
    /// left out.
    pub async fn discover(self: Arc<Self>, pool: Arc<dyn Offload>) -> io::Result<()> {
        let me = Arc::clone(&self);
        let names = offload(&*pool, move || me.names()).await;
        for some in names.unwrap_or_else(|_| Err(io::Error::other("reading the names panicked")))?.chunks(FILES_PER_JOB)
        {
            if self.list(some, &*pool).await {
                continue;
            }
            // One of them makes the reader panic; the others are none the worse for it.
            for path in some {
                if !self.list(std::slice::from_ref(path), &*pool).await {
                    tracing::error!(path = %path.display(), "a transcript cannot be read, and is not listed");
                }
            }
        }
        self.index.complete();
        Ok(())
    }

    /// Lists some of them; false when the job panicked.
    async fn list(self: &Arc<Self>, some: &[PathBuf], pool: &dyn Offload) -> bool {
        let (me, some) = (Arc::clone(self), some.to_vec());
        let read = move || {
            for (key, row) in some.iter().filter_map(|path| me.row_of(path)) {
                me.index.found(key, row);
            }
        };
        offload(pool, read).await.is_ok()
    }

    fn names(&self) -> io::Result<Vec<PathBuf>> {
        match self.disk.list(&self.dir) {
            Ok(names) => Ok(names),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// The lines of a file that have something in them.
    pub(crate) fn lines_of(&self, path: &Path) -> io::Result<Option<Vec<String>>> {
        match self.disk.read(path) {
            Ok(bytes) => {
                let text = String::from_utf8_lossy(&bytes);
                Ok(Some(text.lines().filter(|line| !line.trim().is_empty()).map(str::to_owned).collect()))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Where the transcript of `key` lies.
    pub fn file_of(&self, key: &SessionKey) -> PathBuf {
        self.dir.join(format!("{}.jsonl", stem(key)))
    }

    /// Lists a session whose file was made just now.
    pub fn list_new(&self, key: &SessionKey) {
        if let Some((key, row)) = self.row_of(&self.file_of(key)) {
            self.index.found(key, row);
        }
    }

    /// The keys of all files by their names, also of those that cannot be read. Blocks.
    pub fn keys(&self) -> io::Result<Vec<SessionKey>> {
        // A long key is in the header only.
        let key = |path: &PathBuf| own_key(name_of(path)?).or_else(|| Some(self.row_of(path)?.0));
        Ok(self.names()?.iter().filter_map(key).collect())
    }

    fn row_of(&self, path: &Path) -> Option<(SessionKey, Row)> {
        self.row_of_stem(path, name_of(path)?)
    }

    /// The row of a transcript whose file is or was named after `name`.
    pub(crate) fn row_of_stem(&self, path: &Path, name: &str) -> Option<(SessionKey, Row)> {
        let file = self.disk.open(path, Open::Read).ok()?;
        let bytes = file.opened().length;
        let head_bytes = if bytes <= COUNT_BYTES_MAX { usize::try_from(bytes).ok()? } else { HEAD_BYTES };
        let mut head = vec![0; head_bytes];
        let got = file.read_at(&mut head, 0).ok()?;
        head.truncate(got);
        let whole = got as u64 == bytes;
        let start = read_lines(if whole { &head } else { up_to_line_end(&head) });
        // A copy under another name is no second file of the session that its header names.
        let said = start.header.as_ref()?.session_key.as_deref().and_then(|key| SessionKey::new(key).ok());
        let key = said.filter(|key| stem(key) == name).or_else(|| own_key(name))?;
        let (updated_ms, behind, renamed) = if whole {
            (start.last_ms(), behind(start.entries(), true), None)
        } else {
            let from = bytes.saturating_sub(SUMMARY_TAIL_BYTES);
            let mut tail = vec![0; usize::try_from(bytes - from).ok()?];
            let got = file.read_at(&mut tail, from).ok()?;
            tail.truncate(got);
            let end = read_lines(after_line_end(&tail));
            (end.last_ms().max(start.last_ms()), behind(end.entries(), false), title_of(&end))
        };
        let entries = whole.then(|| start.entries().len());
        let named = renamed.or_else(|| title_of(&start));
        let row = Row::of(start.header.as_ref(), named, first_preview(&start), entries, bytes, updated_ms);
        Some((key, row.with_behind(behind)))
    }
}

impl TranscriptReader for Transcripts {
    fn page(&self, after: Option<&SessionKey>, limit: usize) -> Page {
        self.index.page(after, limit)
    }

    fn all_known(&self) -> watch::Receiver<bool> {
        self.index.all_known()
    }

    fn is_there(&self, key: &SessionKey) -> io::Result<bool> {
        match self.disk.stat(&self.file_of(key)) {
            Ok(stat) => Ok(stat.length > 0),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn read(&self, key: &SessionKey) -> io::Result<Option<Vec<String>>> {
        // An empty file is no session.
        Ok(self.lines_of(&self.file_of(key))?.filter(|lines| !lines.is_empty()))
    }

    fn read_archived(&self, key: &SessionKey) -> io::Result<Option<Vec<String>>> {
        self.archived_file(key)?.map(|path| self.lines_of(&path)).transpose().map(Option::flatten)
    }

    fn put_away(&self) -> io::Result<Vec<PutAway>> {
        self.shelved()
    }

    fn remove_put_away(&self, file: &str) -> io::Result<()> {
        self.remove_shelved(file)
    }

    fn bring_in(
        &self,
        file: &Path,
        key: Option<&SessionKey>,
        may: &dyn Fn(&SessionKey) -> Result<(), EditError>,
    ) -> Result<BroughtIn, EditError> {
        self.bring(file, key, may)
    }

    fn ended(&self, shelf: Shelf, after: Option<&str>, limit: usize) -> io::Result<EndedPage> {
        self.ended_page(shelf, after, limit)
    }

    fn delete_archived(&self, key: &SessionKey, now_ms: u64) -> io::Result<Option<String>> {
        self.entomb_archived(key, now_ms)
    }

    fn tree(&self, key: &SessionKey) -> io::Result<Option<Tree>> {
        look::tree(&*self.disk, key, &self.file_of(key))
    }

    fn check(&self, key: &SessionKey) -> io::Result<Option<Check>> {
        look::check(&*self.disk, key, &self.file_of(key))
    }

    fn turn(&self, key: &SessionKey, turn: TurnId) -> io::Result<Option<TurnRecord>> {
        let (_, source) = file::peek(&*self.disk, &self.file_of(key), 0, &[])?;
        match record(&reading::read_turn(&source, turn)?, turn) {
            None => self.closed_turn(key, turn),
            known => Ok(known),
        }
    }
}

impl RecentIds for Transcripts {
    fn move_away(&self, moving: &Moving) -> io::Result<()> {
        self.shelve(moving).map(drop)
    }

    fn complete(&self, key: &SessionKey, from: &ViewMark, lines: &[Line]) -> io::Result<Option<ViewMark>> {
        let length = file::complete(&*self.disk, &self.file_of(key), from.length, lines)?;
        let last_entry = lines.last().map(|line| Arc::clone(&line.id)).or_else(|| from.last_entry.clone());
        Ok(length.map(|length| ViewMark { length, last_entry }))
    }

    fn recent(&self, key: &SessionKey) -> io::Result<Vec<RecentId>> {
        self.recent_ids(key)
    }
}

/// What a file that may be a transcript is named after.
fn name_of(path: &Path) -> Option<&str> {
    path.file_name()?.to_str()?.strip_suffix(".jsonl")
}

/// The key that such a name says. What was set aside has more behind `.jsonl`, also where that ends in the same way again
/// (`….jsonl.corrupt-….jsonl` of OpenClaw): there the header has to say it, too.
fn own_key(name: &str) -> Option<SessionKey> {
    key_of(name).filter(|_| !name.contains(".jsonl."))
}

fn up_to_line_end(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    bytes.get(..end).unwrap_or(bytes)
}

fn after_line_end(bytes: &[u8]) -> &[u8] {
    let start = bytes.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |at| at + 1);
    bytes.get(start..).unwrap_or(&[])
}

impl std::fmt::Debug for Transcripts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Transcripts").field("dir", &self.dir).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use domain::chat::Content;
    use domain::ids::{SessionId, TurnId};
    use domain::transcript::{Head, HeaderFields, UserEntry, UserMark, header_line, user_line};
    use futures::FutureExt;
    use protocol::journal::RECENT_IDS_MAX;
    use supervision::memory::{InlineOffload, PowerCutDisk, TestClock, memory_ports};
    use supervision::ports::{DiskFile, Stat};
    use uuid::Uuid;

    use super::*;
    use crate::index::PREVIEW_CHARS_MAX;

    fn key(name: &str) -> SessionKey {
        SessionKey::new(name).unwrap()
    }

    fn write(disk: &dyn Disk, key: &SessionKey, messages: u64, text: &str) {
        let header = HeaderFields {
            session: SessionId(Uuid::from_u128(5)),
            key,
            timestamp_ms: 1,
            cwd: "/w",
            parent_session: None,
        };
        let mut out = header_line(&header) + "\n";
        for number in 1..=messages {
            let head = Head { id: number.to_string().into(), parent: None, timestamp_ms: number * 10 };
            let mark = UserMark {
                turn: TurnId(Uuid::from_u128(u128::from(number))),
                idempotency_key: format!("ws:{number}").into(),
                body_hash: number,
                accepted_ms: 0,
                into: None,
                command: false,
            };
            out +=
                &user_line(&head, &UserEntry { content: [Content::text(text)].into(), mark: Some(mark), event: None });
            out.push('\n');
        }
        disk.create_dir_all(Path::new("/s")).unwrap();
        let path = PathBuf::from(format!("/s/{}.jsonl", stem(key)));
        disk.open(&path, Open::Create).unwrap().write_at(out.as_bytes(), 0).unwrap();
    }

    fn transcripts(disk: Arc<dyn Disk>) -> Arc<Transcripts> {
        let ports = memory_ports(PowerCutDisk::new(), TestClock::new(), 1);
        Arc::new(Transcripts::new(Ports { disk, ..ports }, PathBuf::from("/s")))
    }

    fn discovered(disk: Arc<dyn Disk>) -> Arc<Transcripts> {
        let transcripts = transcripts(disk);
        let discover = Arc::clone(&transcripts).discover(Arc::new(InlineOffload));
        discover.now_or_never().expect("all of it is done in place").unwrap();
        transcripts
    }

    /// Counts what is asked of a disk.
    struct CountingDisk(Arc<PowerCutDisk>, AtomicUsize);

    impl CountingDisk {
        fn asked(&self) -> usize {
            self.1.load(Ordering::Relaxed)
        }

        fn ask(&self) -> &PowerCutDisk {
            self.1.fetch_add(1, Ordering::Relaxed);
            &self.0
        }
    }

    impl Disk for CountingDisk {
        fn open(&self, path: &Path, how: Open) -> io::Result<Box<dyn DiskFile>> {
            assert!(!path.ends_with("bomb.jsonl"), "this one panics");
            self.ask().open(path, how)
        }
        fn create_dir_all(&self, path: &Path) -> io::Result<()> {
            self.ask().create_dir_all(path)
        }
        fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
            self.ask().list(path)
        }
        fn stat(&self, path: &Path) -> io::Result<Stat> {
            self.ask().stat(path)
        }
        fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
            self.ask().rename(from, to)
        }
        fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()> {
            self.ask().rename_new(from, to)
        }
        fn remove(&self, path: &Path) -> io::Result<()> {
            self.ask().remove(path)
        }
        fn sync_dir(&self, path: &Path) -> io::Result<()> {
            self.ask().sync_dir(path)
        }
        fn sync_fs(&self, path: &Path) -> io::Result<()> {
            self.ask().sync_fs(path)
        }
        fn free_bytes(&self, path: &Path) -> io::Result<u64> {
            self.ask().free_bytes(path)
        }
    }

    #[test]
    fn each_file_is_looked_at_once_and_lists_look_at_none() {
        const SESSIONS: usize = 1000;
        let files = PowerCutDisk::new();
        for n in 0..SESSIONS {
            write(&*files, &key(&format!("api:{n}")), 2, "hello");
        }
        let disk = Arc::new(CountingDisk(files, AtomicUsize::new(0)));
        let transcripts = discovered(disk.clone());
        assert_eq!(disk.asked(), SESSIONS + 1, "one look at the directory, one at each file");
        assert!(*transcripts.all_known().borrow());
        let (mut listed, mut after) = (0, None);
        loop {
            let page = transcripts.page(after.as_ref(), 100);
            listed += page.items.len();
            match page.next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        assert_eq!((listed, disk.asked()), (SESSIONS, SESSIONS + 1));
    }

    #[test]
    fn lists_read_only_both_ends_of_long_files() {
        let disk = PowerCutDisk::new();
        write(&*disk, &key("api:small"), 2, "\n  hello there  \nmore");
        write(&*disk, &key("ws:long chat"), 3000, &"x".repeat(200));
        disk.open(Path::new("/s/junk.jsonl"), Open::Create).unwrap().write_at(b"\xff\n", 0).unwrap();
        disk.open(Path::new("/s/other.txt"), Open::Create).unwrap();
        let list = discovered(disk).page(None, 10).items;
        assert_eq!(list.len(), 2);
        assert_eq!((list[1].key.as_str(), list[1].entries, list[1].updated_ms), ("ws:long chat", None, 30_000));
        assert_eq!(list[1].preview.as_ref().unwrap().chars().count(), PREVIEW_CHARS_MAX);
        assert_eq!(
            (list[0].entries, list[0].updated_ms, list[0].preview.as_deref()),
            (Some(2), 20, Some("hello there"))
        );
    }

    #[test]
    fn what_was_put_away_or_set_aside_is_no_session_after_the_list_is_made_anew() {
        let disk = PowerCutDisk::new();
        let long = key(&format!("api:{}", "l".repeat(400)));
        let odd = key("api:a:jsonl:b");
        for key in [&key("api:live"), &key("api:moved"), &long, &odd] {
            write(&*disk, key, 1, "hello");
        }
        let live = disk.read(Path::new("/s/api.live.jsonl")).unwrap();
        disk.create_dir_all(Path::new("/s/archive/nanobot")).unwrap();
        for name in [
            "api.gone.jsonl.deleted.2026-11-29T20-53-29.123Z",
            "api.gone.jsonl.archived.2026-11-29T20-53-29.123Z",
            "api.gone.jsonl.reset.2026-11-29T20-53-29.123Z",
            "api.gone.jsonl.deleted.2026-11-29T20-53-29.123Z.zst",
            "api.gone.jsonl.bak-77-1795985609123",
            "api.gone.jsonl.lock",
            "api.gone.jsonl.damaged-1795985609123",
            "api.gone.jsonl.corrupt-2026-11-29T20-53-29-123Z-0a1b2c3d.jsonl",
            ".api.gone.jsonl.new",
            "api.gone.JSONL",
            "Api.gone.jsonl",
            "archive/api.gone.jsonl",
            "archive/api.gone.jsonl.archived.2026-11-29T20-53-29.123Z",
            "archive/nanobot/api.gone.jsonl",
        ] {
            disk.open(&Path::new("/s").join(name), Open::Create).unwrap().write_at(&live, 0).unwrap();
        }
        // A copy is a session of its own, not a second file of the first.
        disk.rename(Path::new("/s/api.moved.jsonl"), Path::new("/s/api.copy.jsonl")).unwrap();
        let transcripts = discovered(disk);
        let listed: Vec<SessionKey> = transcripts.page(None, 100).items.into_iter().map(|one| one.key).collect();
        let expected = [odd, key("api:copy"), key("api:live"), long];
        assert_eq!(listed, expected);
        let mut named = transcripts.keys().unwrap();
        named.sort();
        assert_eq!(named, expected, "a check looks at the same");
    }

    #[test]
    fn a_file_that_makes_the_reader_panic_is_the_only_one_that_is_missing() {
        let files = PowerCutDisk::new();
        for name in ["a", "bomb", "z"] {
            write(&*files, &key(name), 1, "hello");
        }
        let transcripts = discovered(Arc::new(CountingDisk(files, AtomicUsize::new(0))));
        let names: Vec<String> =
            transcripts.page(None, 10).items.iter().map(|one| one.key.as_str().to_owned()).collect();
        assert_eq!(names, ["a", "z"]);
        assert!(*transcripts.all_known().borrow());
    }

    #[test]
    fn recent_ids_come_from_the_end() {
        let disk = PowerCutDisk::new();
        write(&*disk, &key("a"), 3000, &"x".repeat(500));
        write(&*disk, &key("b"), 3, "hi");
        let transcripts = transcripts(disk);
        let recent = transcripts.recent(&key("a")).unwrap();
        assert_eq!(recent.len(), RECENT_IDS_MAX);
        assert_eq!(recent.last().unwrap().idempotency_key, "ws:3000");
        assert_eq!(recent[0].body_hash, 2001);
        assert_eq!(transcripts.recent(&key("b")).unwrap().len(), 3);
        assert!(transcripts.recent(&key("none")).unwrap().is_empty());
        assert!(transcripts.read(&key("none")).unwrap().is_none());
        assert_eq!(transcripts.read(&key("b")).unwrap().unwrap().len(), 4);
    }
}
