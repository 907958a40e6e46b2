use std::path::Path;
use std::sync::Condvar;

use domain::ids::SessionKey;

use super::writer::Lines;
use super::*;
use crate::log_read::{Events, Filter};
use crate::memory::{PowerCutDisk, TestClock, memory_ports};
use crate::ports::Stat;
use crate::ports::{Disk, DiskFile, Open};

fn event(n: u32) -> Event {
    let mut event =
        Event::new(EventName::Restarted, ActorPath(format!("/registry/0/session/api:{n}").into()), Kind::Session);
    event.session = Some(SessionKey::new(&format!("api:{n}")).unwrap());
    event
}

fn options(file_bytes: u64, files: u32) -> LogOptions {
    LogOptions { file_bytes, files, ..LogOptions::new("/logs".into()) }
}

fn read(disk: &Arc<PowerCutDisk>, filter: &Filter) -> Vec<Event> {
    let events = Events::open(disk.clone(), Path::new("/logs")).unwrap();
    events.map(Result::unwrap).filter(|event| filter.wants(event)).collect()
}

#[test]
fn events_are_read_back_in_order_with_ids_and_times() {
    let (disk, clock) = (PowerCutDisk::new(), TestClock::new());
    let log = LogWriter::start(options(1 << 20, 2), &memory_ports(disk.clone(), clock.clone(), 1)).unwrap();
    let ids: Vec<String> = (0..10)
        .map(|n| {
            clock.advance(std::time::Duration::from_micros(1));
            log.record(event(n))
        })
        .collect();
    log.flush();
    let events = read(&disk, &Filter::default());
    assert_eq!(events.iter().map(|event| event.id.clone()).collect::<Vec<_>>(), ids);
    assert_eq!(events[0].ts, "2026-01-01T00:00:00.000001Z");

    let some = |filter: Filter| read(&disk, &filter).len();
    assert_eq!(some(Filter { path: Some("/registry/*/api:3".into()), ..Filter::default() }), 1);
    assert_eq!(some(Filter { events: vec![EventName::GaveUp], ..Filter::default() }), 0);
    assert_eq!(some(Filter { session: SessionKey::new("api:3").ok(), ..Filter::default() }), 1);
    assert_eq!(some(Filter { since: Some("2026-01-01T00:00:00.000004".into()), ..Filter::default() }), 7);
    assert_eq!(some(Filter { until: Some("2026-01-01T00:00:00.000004".into()), ..Filter::default() }), 3);
    log.close();
    assert!(!log.record(event(0)).is_empty(), "after the close events still have ids");
}

#[test]
fn files_rotate_and_their_number_is_bounded() {
    let disk = PowerCutDisk::new();
    let log = LogWriter::start(options(2_000, 3), &memory_ports(disk.clone(), TestClock::new(), 1)).unwrap();
    for n in 0..100 {
        log.record(event(n));
        log.flush();
    }
    let files = disk.list(Path::new("/logs")).unwrap();
    assert_eq!(files.len(), 3);
    assert!(files.iter().all(|file| disk.stat(file).unwrap().length <= 2_000));
    let events = read(&disk, &Filter::default());
    let first = 100 - events.len();
    assert!(first > 0);
    for (n, event) in events.iter().enumerate() {
        assert_eq!(event.session, SessionKey::new(&format!("api:{}", first + n)).ok());
    }
}

#[test]
fn a_torn_last_line_is_left_out_and_does_not_spoil_the_next() {
    let disk = PowerCutDisk::new();
    let ports = memory_ports(disk.clone(), TestClock::new(), 1);
    disk.create_dir_all(Path::new("/logs")).unwrap();
    disk.open(Path::new("/logs/supervision.jsonl"), Open::Create).unwrap().write_at(b"{\"event\":\"resta", 0).unwrap();
    let log = LogWriter::start(options(1 << 20, 2), &ports).unwrap();
    log.record(event(1));
    log.flush();
    let mut events = Events::open(disk.clone(), Path::new("/logs")).unwrap();
    assert_eq!(events.by_ref().map(Result::unwrap).count(), 1);
    assert_eq!(events.unreadable(), 1);
}

#[test]
fn following_gives_each_event_once_also_over_a_rotation() {
    let disk = PowerCutDisk::new();
    let log = LogWriter::start(options(2_000, 3), &memory_ports(disk.clone(), TestClock::new(), 1)).unwrap();
    log.record(event(0));
    log.flush();
    let mut follow = Events::open(disk.clone(), Path::new("/logs")).unwrap();
    let mut seen = Vec::new();
    for n in 1..30 {
        log.record(event(n));
        log.flush();
        if n % 3 == 0 {
            seen.extend(follow.by_ref().map(Result::unwrap));
        }
    }
    seen.extend(follow.by_ref().map(Result::unwrap));
    let expect: Vec<_> = (0..30).map(|n| SessionKey::new(&format!("api:{n}")).ok()).collect();
    assert_eq!(seen.into_iter().map(|event| event.session).collect::<Vec<_>>(), expect);
}

/// A disk whose writes wait until the gate opens.
struct Stuck {
    disk: Arc<PowerCutDisk>,
    gate: Arc<(Mutex<bool>, Condvar)>,
}

struct StuckFile(Box<dyn DiskFile>, Arc<(Mutex<bool>, Condvar)>);

impl Disk for Stuck {
    fn open(&self, path: &Path, how: Open) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(StuckFile(self.disk.open(path, how)?, Arc::clone(&self.gate))))
    }
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.disk.create_dir_all(path)
    }
    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        self.disk.list(path)
    }
    fn stat(&self, path: &Path) -> io::Result<Stat> {
        self.disk.stat(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.rename(from, to)
    }
    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.rename_new(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.disk.remove(path)
    }
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.disk.sync_dir(path)
    }
    fn sync_fs(&self, path: &Path) -> io::Result<()> {
        self.disk.sync_fs(path)
    }
    fn free_bytes(&self, path: &Path) -> io::Result<u64> {
        self.disk.free_bytes(path)
    }
}

impl DiskFile for StuckFile {
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(into, offset)
    }
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let open = self.1.0.lock().unwrap();
        drop(self.1.1.wait_while(open, |open| !*open).unwrap());
        self.0.write_at(bytes, offset)
    }
    fn set_length(&self, length: u64) -> io::Result<()> {
        self.0.set_length(length)
    }
    fn opened(&self) -> Stat {
        self.0.opened()
    }
    fn stat(&self) -> io::Result<Stat> {
        self.0.stat()
    }
    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }
}

/// A log whose disk stood still while twice as many events came as its queue holds, and how many came.
fn overflowed() -> (Arc<PowerCutDisk>, Arc<LogWriter>, usize) {
    let (disk, gate) = (PowerCutDisk::new(), Arc::new((Mutex::new(false), Condvar::new())));
    let mut ports = memory_ports(disk.clone(), TestClock::new(), 1);
    ports.disk = Arc::new(Stuck { disk: disk.clone(), gate: Arc::clone(&gate) });
    let log = LogWriter::start(options(1 << 30, 2), &ports).unwrap();
    let sent = QUEUED_EVENTS_MAX * 2;
    for _ in 0..sent {
        log.record(event(0));
    }
    *gate.0.lock().unwrap() = true;
    gate.1.notify_all();
    (disk, log, sent)
}

#[test]
fn what_does_not_fit_the_queue_is_counted_in_the_log() {
    let (disk, log, sent) = overflowed();
    log.flush();
    log.record(event(1));
    log.flush();
    let events = read(&disk, &Filter::default());
    let lost: Vec<_> = events.iter().filter(|event| event.event == EventName::EventsLost).collect();
    assert_eq!(lost.len(), 1);
    let count: usize = lost[0].lost.strip_suffix(" events").unwrap().parse().unwrap();
    assert!(count > 0);
    assert_eq!(events.len() - 1 + count, sent + 1);
}

#[test]
fn what_was_lost_is_told_at_the_close_at_the_latest() {
    let (disk, log, sent) = overflowed();
    log.close();
    let events = read(&disk, &Filter::default());
    let last = events.last().unwrap();
    assert_eq!(last.event, EventName::EventsLost);
    assert_eq!(last.lost, format!("{} events", sent - (events.len() - 1)));
}

fn lost_counts(events: &[Event]) -> Vec<&str> {
    events.iter().filter(|event| event.event == EventName::EventsLost).map(|event| &*event.lost).collect()
}

fn ids(events: &[Event]) -> Vec<&str> {
    events.iter().map(|event| &*event.id).collect()
}

#[test]
fn what_a_full_disk_refuses_is_written_with_its_time_when_there_is_space_again() {
    let (disk, clock) = (PowerCutDisk::new(), TestClock::new());
    let log = LogWriter::start(options(1 << 20, 2), &memory_ports(disk.clone(), clock.clone(), 1)).unwrap();
    let record = |n| {
        clock.advance(std::time::Duration::from_secs(1));
        let id = log.record(event(n));
        log.flush();
        id
    };
    let mut told = vec![record(0)];
    disk.set_full(true);
    told.extend((1..4).map(record));
    assert_eq!(log.backlog(), (3, 0));
    disk.set_full(false);
    told.extend((4..6).map(record));
    assert_eq!(log.backlog(), (0, 0));
    let mut found = Events::open(disk.clone(), Path::new("/logs")).unwrap();
    let events: Vec<Event> = found.by_ref().map(Result::unwrap).collect();
    assert_eq!(found.unreadable(), 0);
    assert_eq!(ids(&events), told);
    let times: Vec<&str> = events.iter().map(|event| event.ts.get(17..19).unwrap()).collect();
    assert_eq!(times, ["01", "02", "03", "04", "05", "06"]);
}

#[test]
fn what_waits_for_space_is_written_without_a_further_event() {
    let disk = PowerCutDisk::new();
    let log = LogWriter::start(options(1 << 20, 2), &memory_ports(disk.clone(), TestClock::new(), 1)).unwrap();
    disk.set_full(true);
    let id = log.record(event(0));
    log.flush();
    disk.set_full(false);
    // Flushing tries it as the thread does by itself every second.
    log.flush();
    assert_eq!(ids(&read(&disk, &Filter::default())), [id]);
}

#[test]
fn of_too_much_that_waits_for_space_what_concerns_all_is_kept_and_the_rest_counted() {
    let disk = PowerCutDisk::new();
    let log = LogWriter::start(options(1 << 30, 2), &memory_ports(disk.clone(), TestClock::new(), 1)).unwrap();
    disk.set_full(true);
    let journal = |name| log.record(Event::new(name, ActorPath("/journal".into()), Kind::Journal));
    let read_only = journal(EventName::JournalReadOnly);
    for n in 0..1_500 {
        log.record(event(n));
    }
    log.flush();
    assert_eq!(log.backlog(), (HELD_EVENTS_MAX as u64, 477));
    let writable = journal(EventName::JournalWritable);
    // Tried once more before there is space, so that the thread cannot come first or last.
    log.flush();
    assert_eq!(log.backlog(), (HELD_EVENTS_MAX as u64, 478));
    disk.set_full(false);
    log.flush();
    log.record(event(1_500));
    log.flush();
    let events = read(&disk, &Filter::default());
    assert_eq!((&events[0].id, &events[HELD_EVENTS_MAX - 1].id), (&read_only, &writable));
    assert_eq!(events[1].session.as_ref().unwrap().as_str(), "api:478", "the oldest were given up");
    assert_eq!(lost_counts(&events), ["478 events"]);
}

#[test]
fn a_log_that_cannot_be_written_at_the_start_begins_when_it_can() {
    let disk = PowerCutDisk::new();
    let ports = memory_ports(disk.clone(), TestClock::new(), 1);
    let start = || LogWriter::start(options(1 << 20, 2), &ports).unwrap();
    let log = start();
    let last = log.record(event(0));
    log.close();
    disk.set_read_only(true);
    let log = start();
    assert_eq!(log.before().unwrap().id, last);
    let record = |n| {
        log.record(event(n));
        log.flush();
    };
    (1..4).for_each(record);
    disk.set_read_only(false);
    (4..6).for_each(record);
    let events = read(&disk, &Filter::default());
    assert!(lost_counts(&events).is_empty());
    let keys: Vec<_> = events.iter().filter_map(|event| event.session.as_ref()).map(SessionKey::as_str).collect();
    assert_eq!(keys, ["api:0", "api:1", "api:2", "api:3", "api:4", "api:5"]);
}

#[test]
fn a_rotation_without_space_keeps_the_older_files() {
    let disk = PowerCutDisk::new();
    let log = LogWriter::start(options(2_000, 3), &memory_ports(disk.clone(), TestClock::new(), 1)).unwrap();
    let record = |n| {
        log.record(event(n));
        log.flush();
    };
    (0..15).for_each(record);
    let before = read(&disk, &Filter::default()).len();
    disk.set_full(true);
    (15..30).for_each(record);
    assert_eq!(read(&disk, &Filter::default()).len(), before);
    disk.set_full(false);
    record(30);
    let events = read(&disk, &Filter::default());
    assert!(lost_counts(&events).is_empty());
    assert!(events.len() > 16 + before / 2, "{} of {before}", events.len());
}

#[test]
fn a_command_begins_the_file_with_its_first_event_and_passes_for_no_process() {
    let disk = PowerCutDisk::new();
    let ports = memory_ports(disk.clone(), TestClock::new(), 1);
    let command = || {
        let options = LogOptions { writer: LogOf::Command, ..options(1 << 20, 2) };
        LogWriter::start(options, &ports).unwrap()
    };
    command().close();
    assert!(disk.list(Path::new("/logs")).is_err(), "nothing was written");
    let process = LogWriter::start(options(1 << 20, 2), &ports).unwrap();
    let last = process.record(Event::new(EventName::ProcessStopped, ActorPath("/".into()), Kind::Process));
    process.close();
    let log = command();
    // More than is looked at first.
    let told: Vec<String> = (0..600).map(|n| log.record(event(n))).collect();
    log.close();
    assert!(told.iter().all(|id| id.starts_with(COMMAND_BOOT)));
    let next = LogWriter::start(options(1 << 20, 2), &ports).unwrap();
    assert_eq!(next.before().unwrap().id, last);
}

/// A file that takes only so many more bytes, as on a disk that becomes full.
struct Short(Box<dyn DiskFile>, Arc<Mutex<usize>>);

impl DiskFile for Short {
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(into, offset)
    }
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let room = *self.1.lock().unwrap();
        self.0.write_at(&bytes[..room.min(bytes.len())], offset)?;
        if room < bytes.len() { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }
    fn set_length(&self, length: u64) -> io::Result<()> {
        self.0.set_length(length)
    }
    fn opened(&self) -> Stat {
        self.0.opened()
    }
    fn stat(&self) -> io::Result<Stat> {
        self.0.stat()
    }
    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }
}

#[test]
fn of_a_write_that_breaks_off_the_whole_lines_stay() {
    let disk = PowerCutDisk::new();
    disk.create_dir_all(Path::new("/logs")).unwrap();
    let lines = || {
        let mut lines = Lines::default();
        (0..3).for_each(|n| lines.push(&event(n), 1));
        lines
    };
    let bytes = lines().bytes();
    let ends: Vec<usize> = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1).collect();
    let (first, second, end) = (ends[0], ends[1], ends[2]);
    for (room, kept, taken) in [(0, 0, 0), (1, 0, 0), (second - 1, first, 1), (second, second, 2), (end - 1, second, 2)]
    {
        let path = Path::new("/logs/supervision.jsonl");
        let inner = disk.open(path, Open::Create).unwrap();
        inner.set_length(0).unwrap();
        let space = Arc::new(Mutex::new(room));
        let mut file = LogFile {
            options: options(1 << 20, 2),
            disk: disk.clone(),
            clock: TestClock::new(),
            aged: std::time::Duration::ZERO,
            file: Some(Box::new(Short(inner, Arc::clone(&space)))),
            length: 0,
            torn: false,
        };
        let Err(failed) = file.append(&bytes) else { panic!("there was room for {room} only") };
        let mut left = lines();
        assert_eq!((failed.kept, left.take_through(failed.kept)), (kept, taken), "room for {room}");
        *space.lock().unwrap() = end;
        file.append(&left.bytes()).unwrap_or_else(|failed| panic!("{}", failed.error));
        let mut found = Events::open(disk.clone(), Path::new("/logs")).unwrap();
        assert_eq!(found.by_ref().map(Result::unwrap).count(), 3, "room for {room}");
        assert_eq!(found.unreadable(), 0, "room for {room}");
    }
}

#[test]
fn files_above_the_number_or_the_age_that_is_kept_are_removed() {
    let (disk, clock) = (PowerCutDisk::new(), TestClock::new());
    let ports = memory_ports(disk.clone(), clock.clone(), 1);
    let day = std::time::Duration::from_secs(24 * 60 * 60);
    let write = |files: u32, count: u32| {
        let log = LogWriter::start(LogOptions { age: 3 * day, ..options(2_000, files) }, &ports).unwrap();
        for n in 0..count {
            log.record(event(n));
            log.flush();
        }
        log.close();
        disk.list(Path::new("/logs")).unwrap().len()
    };
    assert_eq!(write(6, 100), 6);
    assert_eq!(write(4, 0), 4, "fewer are configured now");
    clock.advance(2 * day);
    assert_eq!(write(4, 6), 4);
    let old = |disk: &Arc<PowerCutDisk>| {
        read(disk, &Filter::default()).iter().filter(|event| event.ts.as_str() < "2026-01-02").count()
    };
    assert!(old(&disk) > 0);
    clock.advance(day + day / 2);
    let log = LogWriter::start(LogOptions { age: 3 * day, ..options(2_000, 4) }, &ports).unwrap();
    let left = read(&disk, &Filter::default());
    assert!(!left.is_empty() && left.len() < 12, "{} events are left", left.len());
    // Only the file that also holds younger events is kept.
    assert!(disk.list(Path::new("/logs")).unwrap().len() <= 2);
    // The same while it runs: looked at once an hour.
    clock.advance(3 * day);
    for n in 0..8 {
        log.record(event(n));
        log.flush();
    }
    clock.advance(3 * day + day / 2);
    log.record(event(8));
    log.flush();
    assert_eq!(disk.list(Path::new("/logs")).unwrap(), [Path::new("/logs/supervision.jsonl")]);
}

#[test]
fn a_process_sees_how_the_one_before_it_ended_and_names_what_concerns_all() {
    let ports = memory_ports(PowerCutDisk::new(), TestClock::new(), 1);
    let log = LogWriter::start(options(2_000, 3), &ports).unwrap();
    assert!(log.before().is_none());
    assert_eq!(log.latest(EventName::ProcessStarted), None);
    let process = |name| Event::new(name, ActorPath("/".into()), Kind::Process);
    let started = log.record(process(EventName::ProcessStarted));
    log.record(event(1));
    assert_eq!(log.latest(EventName::ProcessStarted), Some(started));
    assert_eq!(log.latest(EventName::Restarted), None, "only of those that concern the whole process");
    // Enough for a rotation right before the last event.
    for n in 0..20 {
        log.record(event(n));
    }
    let last = log.record(process(EventName::ProcessStopped));
    log.close();
    let next = LogWriter::start(options(2_000, 3), &ports).unwrap();
    let before = next.before().unwrap();
    assert_eq!((before.event, before.id.clone()), (EventName::ProcessStopped, last));
}
