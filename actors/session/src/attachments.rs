//! The attachments that a fork takes along: a session can read only those that lie in directories of its own, so those that
//! lines name in the directories of the session that they come from are copied, and the lines name the copies.
//!
//! A file is called `<32 hex digits>.<ending>`, as doors name what they keep. Whatever else a line says stays where it is.
//! Everything here blocks.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use domain::ids::SessionKey;
use domain::stem::stem;
use supervision::ports::{Disk, DiskFile, Open, Ports};

/// Digits of a file's name.
const DIGITS: usize = 32;
/// Letters of its ending, at most.
const ENDING_MAX: usize = 8;
/// Bytes that are copied at a time.
const PIECE_BYTES: usize = 256 << 10;

/// Carries attachments from one session to another.
pub struct Carrier<'a> {
    ports: &'a Ports,
    places: Vec<Place>,
    missing: usize,
}

/// The two directories of one door.
struct Place {
    from: PathBuf,
    to: PathBuf,
    /// As they stand in JSON, with the `/` behind.
    written: [String; 2],
    /// The names of files that were looked at.
    seen: BTreeSet<String>,
    copied: bool,
}

// === impl Carrier ===

impl<'a> Carrier<'a> {
    /// From directories of `from` to those of `to`, in each of `doors`.
    pub fn new(ports: &'a Ports, doors: &[PathBuf], from: &SessionKey, to: &SessionKey) -> Self {
        let places = doors.iter().map(|door| {
            let [from, to] = [from, to].map(|key| door.join(stem(key)));
            let written = [&from, &to].map(|directory| written(directory));
            Place { from, to, written, seen: BTreeSet::new(), copied: false }
        });
        Self { ports, places: places.collect(), missing: 0 }
    }

    /// The line as the other session has it. The files that it names are copied; one that cannot be read is counted.
    pub fn take(&mut self, mut line: String) -> io::Result<String> {
        for place in &mut self.places {
            let [from, to] = &place.written;
            if !line.contains(from) {
                continue;
            }
            for name in names(&line, from) {
                if place.seen.contains(&name) {
                    continue;
                }
                if copy(self.ports, &place.from.join(&name), &place.to.join(&name))? {
                    place.copied = true;
                } else {
                    self.missing += 1;
                }
                place.seen.insert(name);
            }
            line = line.replace(from, to);
        }
        Ok(line)
    }

    /// Returns when all copies are on the device: how many files there are none of.
    pub fn finish(self) -> io::Result<usize> {
        for place in self.places.iter().filter(|place| place.copied) {
            // The directory itself, and those above it, which may be as new.
            place.to.ancestors().take(4).try_for_each(|directory| self.ports.disk.sync_dir(directory))?;
        }
        Ok(self.missing)
    }
}

/// The directory as it stands inside a JSON string.
fn written(directory: &Path) -> String {
    let text = serde_json::Value::from(format!("{}/", directory.to_string_lossy())).to_string();
    text.trim_matches('"').to_owned()
}

/// The names of files that stand behind `place` in `line`. Pure.
fn names(line: &str, place: &str) -> Vec<String> {
    let name = |rest: &str| {
        let word = rest.split(|letter: char| !matches!(letter, 'a'..='z' | '0'..='9' | '.')).next()?;
        let mut parts = word.split('.');
        let (digits, ending) = (parts.next()?, parts.next()?);
        let is_hash = digits.len() == DIGITS && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        (is_hash && (1..=ENDING_MAX).contains(&ending.len())).then(|| format!("{digits}.{ending}"))
    };
    line.split(place).skip(1).filter_map(name).collect()
}

/// Copies a file, whatever has its name there: a copy is young, so that nothing that tidies up takes it before a line names
/// it. Whether `from` can be read.
fn copy(ports: &Ports, from: &Path, to: &Path) -> io::Result<bool> {
    let disk = &*ports.disk;
    let bytes = match disk.open(from, Open::Read) {
        Ok(file) => file,
        Err(error) => return Ok(unread(from, &error)),
    };
    let directory = to.parent().unwrap_or(Path::new("/"));
    disk.create_dir_all(directory)?;
    // Named as what doors are writing, which is removed when it is old.
    let half = directory.join(format!(".{:016x}.tmp", ports.ids.random()));
    let copied = fill(disk, &half, &*bytes).and_then(|read| match read {
        Ok(()) => disk.rename(&half, to).map(|()| true),
        Err(error) => disk.remove(&half).map(|()| unread(from, &error)),
    });
    if copied.is_err() {
        // Whoever tidies up finds it by its name should this fail too.
        let _ = disk.remove(&half);
    }
    copied
}

/// The outer result is that of writing, the inner one that of reading.
fn fill(disk: &dyn Disk, path: &Path, bytes: &dyn DiskFile) -> io::Result<io::Result<()>> {
    let file = disk.open(path, Open::CreateNew)?;
    let (mut at, mut piece) = (0, vec![0; PIECE_BYTES]);
    loop {
        let got = match bytes.read_at(&mut piece, at) {
            Ok(got) => got,
            Err(error) => return Ok(Err(error)),
        };
        file.write_at(piece.get(..got).unwrap_or_default(), at)?;
        at += got as u64;
        if got < PIECE_BYTES {
            return file.sync_data().map(Ok);
        }
    }
}

fn unread(file: &Path, error: &io::Error) -> bool {
    tracing::warn!(file = %file.display(), %error, "an attachment cannot be read, so a fork is without it");
    false
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use supervision::memory::{PowerCutDisk, TestClock, memory_ports};

    use super::*;
    use crate::new_file::make_transcript;

    const DIGITS_OF_A: &str = "0123456789abcdef0123456789abcdef";

    fn key(key: &str) -> SessionKey {
        SessionKey::new(key).unwrap()
    }

    fn put(disk: &PowerCutDisk, path: &str, bytes: &[u8]) {
        let path = Path::new(path);
        disk.create_dir_all(path.parent().unwrap()).unwrap();
        let file = disk.open(path, Open::Create).unwrap();
        file.write_at(bytes, 0).unwrap();
        file.sync_data().unwrap();
        path.ancestors().skip(1).for_each(|directory| disk.sync_dir(directory).unwrap());
    }

    #[test]
    fn only_names_that_doors_give_are_names() {
        let place = "/m/websocket/a/";
        for (rest, expected) in [
            (format!("{DIGITS_OF_A}.csv]"), Some(format!("{DIGITS_OF_A}.csv"))),
            (format!("{DIGITS_OF_A}.csv. And more"), Some(format!("{DIGITS_OF_A}.csv"))),
            (format!("{DIGITS_OF_A}.\"csv"), None),
            (format!("../b/{DIGITS_OF_A}.csv"), None),
            (format!("{DIGITS_OF_A}0.csv"), None),
            (format!("{}.csv", DIGITS_OF_A.to_uppercase()), None),
            (format!("{DIGITS_OF_A}.{}", "x".repeat(ENDING_MAX + 1)), None),
            (String::new(), None),
        ] {
            let line = format!("see {place}{rest}");
            assert_eq!(names(&line, place), Vec::from_iter(expected), "{line}");
            assert_eq!(names(&format!("see /m/websocket/b/{rest}"), place), Vec::<String>::new());
        }
    }

    #[test]
    fn a_line_names_the_copy_and_only_what_lay_in_the_sessions_own_place_is_copied() {
        let disk = PowerCutDisk::new();
        let ports = memory_ports(disk.clone(), Arc::new(TestClock::default()), 1);
        let doors = ["/m \"q\"/websocket", "/m \"q\"/api"].map(PathBuf::from);
        let large = vec![7; PIECE_BYTES + 3];
        put(&disk, &format!("/m \"q\"/websocket/api.a/{DIGITS_OF_A}.csv"), &large);
        put(&disk, &format!("/m \"q\"/websocket/api.c/{DIGITS_OF_A}.png"), b"other");
        let said = |session: &str| {
            let file = format!("/m \"q\"/websocket/{session}/{DIGITS_OF_A}.csv");
            let gone = format!("/m \"q\"/api/{session}/{DIGITS_OF_A}.pdf");
            serde_json::json!({"text": format!("{file}, {file}, {gone}")}).to_string()
        };
        let other = format!("/m \"q\"/websocket/api.c/{DIGITS_OF_A}.png");
        let other = serde_json::json!({ "text": other }).to_string();
        let mut carrier = Carrier::new(&ports, &doors, &key("api:a"), &key("api:b"));
        assert_eq!(carrier.take(said("api.a")).unwrap(), said("api.b"));
        assert_eq!(carrier.take(other.clone()).unwrap(), other);
        assert_eq!(carrier.finish().unwrap(), 1);
        let own = Path::new("/m \"q\"/websocket/api.b");
        assert_eq!(disk.list(own).unwrap(), [own.join(format!("{DIGITS_OF_A}.csv"))]);
        assert_eq!(disk.read(&own.join(format!("{DIGITS_OF_A}.csv"))).unwrap(), large);
    }

    #[test]
    fn wherever_the_power_fails_a_transcript_that_is_there_has_its_files() {
        let (path, copy) = (Path::new("/s/api.b.jsonl"), format!("/m/api/api.b/{DIGITS_OF_A}.csv"));
        let fork = |disk: &Arc<PowerCutDisk>| {
            let ports = memory_ports(disk.clone(), Arc::new(TestClock::default()), 1);
            let mut carrier = Carrier::new(&ports, &["/m/api".into()], &key("api:a"), &key("api:b"));
            make_transcript(&**disk, &*ports.ids, path, |file| {
                let line = carrier.take(format!("/m/api/api.a/{DIGITS_OF_A}.csv"))?;
                file.write_at(line.as_bytes(), 0)?;
                carrier.finish()
            })
        };
        let made = || {
            let disk = PowerCutDisk::new();
            put(&disk, &format!("/m/api/api.a/{DIGITS_OF_A}.csv"), b"a,b");
            put(&disk, "/s/other", b"");
            disk
        };
        let whole = made();
        let before = whole.operations();
        assert_eq!(fork(&whole).unwrap(), 0);
        let mut there = 0;
        for at in 1..=whole.operations() - before + 1 {
            let disk = made();
            disk.power_off_at(before + at);
            // It fails where the power does.
            let _ = fork(&disk);
            let found = disk.cut(at);
            if found.stat(path).is_ok() {
                there += 1;
                assert_eq!(found.read(Path::new(&copy)).unwrap(), b"a,b", "cut at {at}");
            }
        }
        assert!(there > 0, "some cuts come behind the end");
    }
}
