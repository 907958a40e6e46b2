use std::sync::{Arc, Mutex};

use domain::chat::Content;
use proptest::prelude::*;
use supervision::memory::{Fault, PowerCutDisk};
use supervision::ports::DiskFile;

use super::*;
use crate::media::{Keeper, Upload, keep};

const A: &str = "000102030405060708090a0b0c0d0e0f";
const B: &str = "ffffffffffffffffffffffffffffffff";
/// Everything that a disk in memory has was written long ago.
const NOW_MS: u64 = 30 * 24 * 3_600_000;

fn contents(digits: &str) -> Contents {
    Contents::of_digits(digits.as_bytes()).unwrap()
}

fn places() -> Places {
    Places { media: "/m".into(), journal: "/j".into(), sessions: "/s".into() }
}

fn put(disk: &dyn Disk, path: &str, text: &str) {
    disk.create_dir_all(Path::new(path).parent().unwrap()).unwrap();
    let file = disk.open(Path::new(path), Open::Create).unwrap();
    file.write_at(text.as_bytes(), 0).unwrap();
}

fn is_there(disk: &dyn Disk, path: &str) -> bool {
    disk.stat(Path::new(path)).is_ok()
}

fn chosen(disk: &dyn Disk) -> Looked {
    let mut looked = look(disk, &places().media, NOW_MS, None).unwrap();
    without_named(disk, &places(), &mut looked, &|| false).unwrap();
    looked
}

fn sweep(disk: &dyn Disk) -> Sum {
    remove(disk, &Attached::default(), chosen(disk))
}

#[test]
fn only_what_was_written_seven_days_ago_is_old() {
    let day_ms = 24 * 3_600_000;
    let (at_ms, ms) = (100 * day_ms, 1_000_000);
    for (now_ms, old) in
        [(0, false), (at_ms, false), (at_ms + 7 * day_ms - 1, false), (at_ms + 7 * day_ms, true), (u64::MAX, true)]
    {
        let stamp = (1, 1, i128::from(at_ms) * ms, i128::from(now_ms) * ms);
        assert_eq!(is_old(&Stat { length: 1, directory: false, stamp }, now_ms), old, "{now_ms}");
    }
}

#[test]
fn what_any_file_of_the_journal_or_of_sessions_names_stays() {
    let file = format!("/m/websocket/websocket.a/{A}.csv");
    let named = format!("…[Attachment: {file}]…");
    for place in [
        "/j/0000000000000001.seg",
        "/s/websocket.a.jsonl",
        // A fork names the files of the session that it was made of, which may be gone.
        "/s/api.fork.jsonl",
        "/s/websocket.a.jsonl.deleted.2026-11-29T20-53-29.123Z",
        "/s/archive/websocket.a.jsonl.archived.2026-11-29T20-53-29.123Z",
        "/s/archive/api.req.7.jsonl",
        "/s/websocket.a.jsonl.damaged-1795985609123",
        "/s/archive/nanobot/a.jsonl",
    ] {
        let disk = PowerCutDisk::default();
        put(&disk, &file, "one");
        put(&disk, place, &named);
        assert_eq!(sweep(&disk), Sum::default(), "{place}");
        assert!(is_there(&disk, &file), "{place}");
        disk.remove(Path::new(place)).unwrap();
        assert_eq!(sweep(&disk), Sum { files: 1, bytes: 3 }, "{place}");
        assert!(!is_there(&disk, &file), "{place}");
    }
}

#[test]
fn only_attachments_and_what_was_left_of_writing_one_are_removed() {
    let disk = PowerCutDisk::default();
    let stay = [
        format!("/m/telegram/websocket.a/{A}.csv"),
        format!("/m/websocket/{A}.csv"),
        "/m/websocket/websocket.a/bed.jpg".to_owned(),
        format!("/m/websocket/websocket.a/more/{A}.csv"),
        format!("/m/api/api.1/{}.csv", A.get(1..).unwrap()),
    ];
    let go = [
        format!("/m/websocket/websocket.a/{A}.csv"),
        format!("/m/api/api.1/{A}.csv"),
        format!("/m/api/api.1/{B}.img"),
        "/m/api/api.1/.0123456789abcdef.tmp".to_owned(),
    ];
    stay.iter().chain(&go).for_each(|path| put(&disk, path, "one"));
    put(&disk, "/s/api.1.jsonl", &format!("{}0 {}", A.get(1..).unwrap(), B.get(1..).unwrap()));
    let left = || stay.iter().filter(|path| is_there(&disk, path)).count();
    let young = look(&disk, Path::new("/m"), 1, None).unwrap();
    assert_eq!((young.sum(), young.all), (Sum::default(), (6, 18)));
    assert_eq!(sweep(&disk), Sum { files: 4, bytes: 12 });
    assert!(left() == stay.len() && !go.iter().any(|path| is_there(&disk, path)));
    assert_eq!(sweep(&disk), Sum::default());
}

#[test]
fn what_cannot_be_read_may_name_everything() {
    let disk = PowerCutDisk::default();
    put(&disk, &format!("/m/api/api.1/{A}.csv"), "one");
    put(&disk, "/s/api.1.jsonl", "nothing");
    let failed = |stop: Stop<'_>| {
        let mut looked = look(&disk, Path::new("/m"), NOW_MS, None).unwrap();
        without_named(&disk, &places(), &mut looked, stop).unwrap_err().kind()
    };
    assert_eq!(failed(&|| true), io::ErrorKind::Interrupted);
    disk.fail_next(Fault::ReadEio);
    failed(&|| false);
}

type Deed = Box<dyn FnOnce(&PowerCutDisk) + Send>;

/// Does something before the n-th file is opened: what others do in the meantime.
struct Meanwhile(Arc<PowerCutDisk>, Mutex<Option<(usize, Deed)>>);

impl Disk for Meanwhile {
    fn open(&self, path: &Path, how: Open) -> io::Result<Box<dyn DiskFile>> {
        let mut waits = self.1.lock().unwrap();
        match waits.take() {
            Some((0, deed)) => deed(&self.0),
            Some((opened, deed)) => *waits = Some((opened - 1, deed)),
            None => {}
        }
        self.0.open(path, how)
    }
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.0.create_dir_all(path)
    }
    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        self.0.list(path)
    }
    fn stat(&self, path: &Path) -> io::Result<Stat> {
        self.0.stat(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.rename(from, to)
    }
    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.rename_new(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.0.remove(path)
    }
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.0.sync_dir(path)
    }
    fn sync_fs(&self, path: &Path) -> io::Result<()> {
        self.0.sync_fs(path)
    }
    fn free_bytes(&self, path: &Path) -> io::Result<u64> {
        self.0.free_bytes(path)
    }
}

/// What a sweep chooses when `deed` is done at each of the moments at which it opens a file.
fn chosen_meanwhile(prepare: impl Fn(&PowerCutDisk), deed: impl FnOnce(&PowerCutDisk) + Send + Clone + 'static) {
    let mut moment = 0;
    loop {
        let disk = PowerCutDisk::new();
        prepare(&disk);
        let disk = Meanwhile(disk, Mutex::new(Some((moment, Box::new(deed.clone())))));
        let looked = chosen(&disk);
        if disk.1.lock().unwrap().is_some() {
            assert!(moment > 1, "it was done at some moments");
            return;
        }
        assert_eq!(looked.sum(), Sum::default(), "done before the file {moment} was opened");
        moment += 1;
    }
}

#[test]
fn a_transcript_that_is_moved_while_it_is_read_is_read_where_it_is() {
    let named = format!("[Attachment: /m/websocket/websocket.a/{A}.csv]");
    let prepare = |disk: &PowerCutDisk| {
        put(disk, &format!("/m/websocket/websocket.a/{A}.csv"), "one");
        put(disk, "/j/0000000000000001.seg", "");
        put(disk, "/s/websocket.a.jsonl", "the session after it");
        put(disk, "/s/archive/websocket.a.jsonl.archived.2026-11-29T20-53-29.123Z", &named);
        put(disk, "/s/websocket.b.jsonl", "another");
    };
    // The session is archived, and the one before it taken back: it lies where that was, which may have been read.
    let swap = |disk: &PowerCutDisk| {
        let (live, archive) = (Path::new("/s/websocket.a.jsonl"), Path::new("/s/archive"));
        disk.rename(live, &archive.join("websocket.a.jsonl.archived.2026-11-29T21-00-00.000Z")).unwrap();
        disk.rename(&archive.join("websocket.a.jsonl.archived.2026-11-29T20-53-29.123Z"), live).unwrap();
    };
    chosen_meanwhile(prepare, swap);
}

#[test]
fn a_name_that_wanders_from_the_journal_to_a_transcript_is_seen() {
    let file = format!("/m/websocket/websocket.a/{A}.csv");
    let named = format!("[Attachment: {file}]");
    let prepare = {
        let named = named.clone();
        move |disk: &PowerCutDisk| {
            put(disk, &file, "one");
            put(disk, "/j/0000000000000001.seg", &named);
            put(disk, "/j/0000000000000002.seg", "");
            put(disk, "/s/websocket.a.jsonl", "earlier");
        }
    };
    let ended = move |disk: &PowerCutDisk| {
        put(disk, "/s/websocket.a.jsonl", &named);
        disk.remove(Path::new("/j/0000000000000001.seg")).unwrap();
    };
    chosen_meanwhile(prepare, ended);
}

fn attach(disk: &dyn Disk, attached: &Attached) -> String {
    let keeper = Keeper { disk, attached, directory: Path::new("/m/websocket/websocket.a"), nonce: 1 };
    let upload = Upload { mime: "text/csv", ending: "csv", name: None, data: "b25lLHR3bwo=".to_owned() };
    let body = keep(&keeper, String::new(), vec![upload]).unwrap();
    let [Content::Text { text }] = &*body.content else { panic!("one text: {body:?}") };
    text.strip_prefix("[Attachment: ").unwrap().strip_suffix(']').unwrap().to_owned()
}

#[test]
fn a_file_that_is_attached_again_while_it_is_swept_is_there_when_its_message_is_accepted() {
    // Whenever it is attached: the sweep has begun, or has chosen it, or has removed it.
    for moment in 0..4 {
        let (disk, attached) = (PowerCutDisk::default(), Attached::default());
        let path = attach(&disk, &Attached::default());
        let again = |at: usize| {
            if at == moment {
                assert_eq!(attach(&disk, &attached), path);
            }
        };
        again(0);
        attached.begin();
        again(1);
        let looked = chosen(&disk);
        assert_eq!(looked.sum().files, 1, "no message that names it is accepted yet");
        again(2);
        let removed = remove(&disk, &attached, looked).files;
        again(3);
        assert_eq!(removed, usize::from(moment == 3));
        assert_eq!(disk.read(Path::new(&path)).unwrap(), b"one,two\n", "moment {moment}");
        // A day later its message is in the journal.
        put(&disk, "/j/0000000000000001.seg", &path);
        attached.begin();
        assert_eq!(remove(&disk, &attached, chosen(&disk)).files, 0, "moment {moment}");
    }
}

#[test]
fn a_file_that_is_another_one_than_was_chosen_stays() {
    let disk = PowerCutDisk::default();
    let path = format!("/m/api/api.1/{A}.csv");
    put(&disk, &path, "one");
    let looked = chosen(&disk);
    disk.remove(Path::new(&path)).unwrap();
    put(&disk, &path, "one");
    assert_eq!(remove(&disk, &Attached::default(), looked), Sum::default());
    assert!(is_there(&disk, &path));
}

proptest! {
    #[test]
    fn a_name_is_found_wherever_it_stands(
        before in 0..300_usize,
        behind in 0..100_usize,
        chunk_bytes in DIGITS + 1..150,
        filler in prop_oneof![Just('x'), Just('0'), Just('"'), Just('f')],
    ) {
        let (disk, filler) = (PowerCutDisk::default(), |count| filler.to_string().repeat(count));
        put(&disk, "/s/api.2.jsonl", &format!("{}{A}{}", filler(before), filler(behind)));
        let mut names = BTreeSet::from([contents(A), contents(B)]);
        let mut reading = Reading { disk: &disk, stop: &|| false, room: READ_BYTES_MAX, chunk_bytes };
        reading.strike_file(Path::new("/s/api.2.jsonl"), &mut names).unwrap();
        prop_assert!(!names.contains(&contents(A)));
    }

    #[test]
    fn what_is_read_of_bytes_is_what_stands_there(text in "([0-9a-f]{1,40}|[ -~]{0,4}|é){0,6}") {
        let mut told = Vec::new();
        Contents::each_in(text.as_bytes(), |contents| told.push(contents));
        let expected: Vec<_> = text.as_bytes().windows(DIGITS).filter_map(Contents::of_digits).collect();
        prop_assert_eq!(told, expected);
    }
}
