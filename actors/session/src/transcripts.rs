//! Reads the transcript files of sessions without waking them: for the journal's dedupe, for lists, for people.
//! Everything here blocks.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use domain::chat::plain_text;
use domain::ids::SessionKey;
use domain::stem::{key_of, stem};
use domain::text::ellipsis;
use domain::transcript::{Transcript, read_lines, recent_ids};
use protocol::journal::{RECENT_IDS_MAX, RecentId, RecentIds};
use serde::Serialize;
use supervision::ports::{Disk, Open, Ports};

/// The first read of a file's end; each further one is four times as long.
const TAIL_BYTES: u64 = 256 * 1024;
/// How much of a file's beginning is read for a preview.
const HEAD_BYTES: usize = 8 * 1024;
/// How much of a file's end is read for a summary.
const SUMMARY_TAIL_BYTES: u64 = 4 * 1024;
/// Characters of a preview.
const PREVIEW_CHARS_MAX: usize = 80;
/// Files with up to this many bytes have their entries counted one by one.
const COUNT_BYTES_MAX: u64 = (HEAD_BYTES as u64) * 8;

/// The transcripts of a workspace.
#[derive(Clone)]
pub struct Transcripts {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
}

/// One session, as a list shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Session.
    pub key: SessionKey,
    /// Session id, as the file's header has it.
    pub session: Option<String>,
    /// The start of the first message, if there is one.
    pub preview: Option<String>,
    /// Number of lines after the header; `None` for a file that is too long to count for a list.
    pub entries: Option<u64>,
    /// Length of the file.
    pub bytes: u64,
    /// Time of the last entry, ms since 1970.
    pub updated_ms: u64,
}

// === impl Transcripts ===

impl Transcripts {
    /// Those in `dir`.
    pub fn new(ports: Ports, dir: PathBuf) -> Self {
        Self { disk: ports.disk, dir }
    }

    /// All sessions, the latest first. Reads the beginning and the end of each file. A file that cannot be read is left out.
    pub fn list(&self) -> io::Result<Vec<Summary>> {
        let names = match self.disk.list(&self.dir) {
            Ok(names) => names,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error),
        };
        let mut list: Vec<Summary> = names.iter().filter_map(|path| self.summary(path)).collect();
        list.sort_by(|a, b| b.updated_ms.cmp(&a.updated_ms).then_with(|| a.key.cmp(&b.key)));
        Ok(list)
    }

    /// The lines of a session's transcript, without empty ones; `None` when it has none.
    pub fn read(&self, key: &SessionKey) -> io::Result<Option<Vec<String>>> {
        match self.disk.read(&self.file_of(key)) {
            Ok(bytes) => {
                let text = String::from_utf8_lossy(&bytes);
                Ok(Some(text.lines().filter(|line| !line.trim().is_empty()).map(str::to_owned).collect()))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn file_of(&self, key: &SessionKey) -> PathBuf {
        self.dir.join(format!("{}.jsonl", stem(key)))
    }

    fn summary(&self, path: &Path) -> Option<Summary> {
        let name = path.file_name()?.to_str()?.strip_suffix(".jsonl")?;
        let file = self.disk.open(path, Open::Read).ok()?;
        let bytes = file.length().ok()?;
        let head_bytes = if bytes <= COUNT_BYTES_MAX { usize::try_from(bytes).ok()? } else { HEAD_BYTES };
        let mut head = vec![0; head_bytes];
        let got = file.read_at(&mut head, 0).ok()?;
        head.truncate(got);
        let whole = got as u64 == bytes;
        let start = read_lines(if whole { &head } else { up_to_line_end(&head) });
        let header = start.header.as_ref()?;
        let key = match &header.session_key {
            Some(key) => SessionKey::new(key).ok()?,
            None => key_of(name)?,
        };
        let updated_ms = if whole {
            start.last_ms()
        } else {
            let from = bytes.saturating_sub(SUMMARY_TAIL_BYTES);
            let mut tail = vec![0; usize::try_from(bytes - from).ok()?];
            let got = file.read_at(&mut tail, from).ok()?;
            tail.truncate(got);
            read_lines(after_line_end(&tail)).last_ms().max(start.last_ms())
        };
        Some(Summary {
            key,
            session: (!header.id.is_empty()).then(|| header.id.clone()),
            preview: preview(&start),
            entries: whole.then_some(start.entries().len() as u64),
            bytes,
            updated_ms,
        })
    }
}

impl RecentIds for Transcripts {
    fn recent(&self, key: &SessionKey) -> io::Result<Vec<RecentId>> {
        let file = match self.disk.open(&self.file_of(key), Open::Read) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let length = file.length()?;
        let mut want = TAIL_BYTES;
        loop {
            let from = length.saturating_sub(want);
            let mut tail = vec![0; usize::try_from(length - from).map_err(io::Error::other)?];
            let got = file.read_at(&mut tail, from)?;
            tail.truncate(got);
            let recent = recent_ids(&tail, from == 0);
            if from == 0 || recent.len() >= RECENT_IDS_MAX {
                return Ok(recent
                    .into_iter()
                    .map(|message| RecentId {
                        idempotency_key: message.idempotency_key,
                        turn: message.turn,
                        body_hash: message.body_hash,
                    })
                    .collect());
            }
            want = want.saturating_mul(4);
        }
    }
}

fn preview(transcript: &Transcript) -> Option<String> {
    let first = plain_text(&transcript.entries().iter().find_map(|entry| entry.user())?.content);
    let line = first.lines().find(|line| !line.trim().is_empty())?;
    Some(ellipsis(line.trim(), PREVIEW_CHARS_MAX).into_owned())
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
    use domain::chat::Content;
    use domain::ids::{SessionId, TurnId};
    use domain::transcript::{Head, HeaderFields, UserEntry, UserMark, header_line, user_line};
    use supervision::memory::{PowerCutDisk, TestClock, memory_ports};
    use uuid::Uuid;

    use super::*;

    fn key(name: &str) -> SessionKey {
        SessionKey::new(name).unwrap()
    }

    fn write(disk: &dyn Disk, key: &SessionKey, messages: u64, text: &str) {
        let header = HeaderFields { session: SessionId(Uuid::from_u128(5)), key, timestamp_ms: 1, cwd: "/w" };
        let mut out = header_line(&header) + "\n";
        for number in 1..=messages {
            let head = Head { id: number.to_string().into(), parent: None, timestamp_ms: number * 10 };
            let mark = UserMark {
                turn: TurnId(Uuid::from_u128(u128::from(number))),
                idempotency_key: format!("ws:{number}").into(),
                body_hash: number,
            };
            out += &user_line(&head, &UserEntry { content: [Content::text(text)].into(), mark: Some(mark) });
            out.push('\n');
        }
        disk.create_dir_all(Path::new("/s")).unwrap();
        let path = PathBuf::from(format!("/s/{}.jsonl", stem(key)));
        disk.open(&path, Open::Create).unwrap().write_at(out.as_bytes(), 0).unwrap();
    }

    fn transcripts(disk: Arc<PowerCutDisk>) -> Transcripts {
        Transcripts::new(memory_ports(disk, TestClock::new(), 1), PathBuf::from("/s"))
    }

    #[test]
    fn lists_read_only_both_ends_of_long_files() {
        let disk = PowerCutDisk::new();
        write(&*disk, &key("api:small"), 2, "\n  hello there  \nmore");
        write(&*disk, &key("ws:long chat"), 3000, &"x".repeat(200));
        disk.open(Path::new("/s/junk.jsonl"), Open::Create).unwrap().write_at(b"\xff\n", 0).unwrap();
        disk.open(Path::new("/s/other.txt"), Open::Create).unwrap();
        let list = transcripts(disk).list().unwrap();
        assert_eq!(list.len(), 2);
        assert_eq!((list[0].key.as_str(), list[0].entries, list[0].updated_ms), ("ws:long chat", None, 30_000));
        assert_eq!(list[0].preview.as_ref().unwrap().chars().count(), PREVIEW_CHARS_MAX);
        assert_eq!(
            (list[1].entries, list[1].updated_ms, list[1].preview.as_deref()),
            (Some(2), 20, Some("hello there"))
        );
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
