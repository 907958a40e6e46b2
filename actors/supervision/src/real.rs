//! The ports as the operating system provides them.

pub mod memory;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fs::{DirBuilder, File, Metadata, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use protocol::metrics::{ByState, KernelMetrics, Metrics};
use rustix::fs::{CWD, Mode, OFlags, RenameFlags, openat, renameat_with};
use rustix::io::Errno;
use uuid::Uuid;

use crate::panic::catch;
use crate::ports::{Clock, Disk, DiskFile, Ids, Offload, Open, Ports, Stat};

const FILE_MODE: u32 = 0o600;
const DIR_MODE: u32 = 0o700;
/// A link in place of a file is an error, and a pipe does not make the opener wait.
const PLAIN_FILE: i32 = OFlags::NOFOLLOW.union(OFlags::NONBLOCK).bits().cast_signed();

/// All ports, with `blocking_threads` threads for work that blocks.
pub fn real_ports(blocking_threads: usize) -> io::Result<Ports> {
    counted_ports(blocking_threads, &Metrics::default())
}

/// Like [`real_ports`], with the jobs of the blocking pool counted.
pub fn counted_ports(blocking_threads: usize, metrics: &Metrics) -> io::Result<Ports> {
    Ok(Ports {
        disk: Arc::new(RealDisk),
        clock: Arc::new(RealClock::new()),
        ids: Arc::new(RealIds),
        offload: Arc::new(BlockingPool::new(blocking_threads, &metrics.kernel)?),
    })
}

/// Files of the operating system.
#[derive(Debug, Clone, Copy)]
pub struct RealDisk;

struct RealFile {
    file: File,
    opened: Stat,
}

fn stat_of(meta: &Metadata) -> Stat {
    let time = |secs: i64, nanos: i64| i128::from(secs) * 1_000_000_000 + i128::from(nanos);
    let (modified, changed) = (time(meta.mtime(), meta.mtime_nsec()), time(meta.ctime(), meta.ctime_nsec()));
    Stat { length: meta.len(), directory: meta.is_dir(), stamp: (meta.dev(), meta.ino(), modified, changed) }
}

fn not_plain(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}

/// Says of a link that it is one.
fn of_link(error: io::Error) -> io::Error {
    let links = error.raw_os_error() == Some(Errno::LOOP.raw_os_error());
    if links { not_plain("a symbolic link, not a regular file") } else { error }
}

/// An open file, unless it is a pipe, a directory or a device.
fn plain(file: File) -> io::Result<Box<dyn DiskFile>> {
    let meta = file.metadata()?;
    if !meta.is_file() {
        return Err(not_plain("not a regular file"));
    }
    Ok(Box::new(RealFile { opened: stat_of(&meta), file }))
}

impl Disk for RealDisk {
    fn open(&self, path: &Path, how: Open) -> io::Result<Box<dyn DiskFile>> {
        let mut options = OpenOptions::new();
        options.read(true).mode(FILE_MODE).custom_flags(PLAIN_FILE);
        match how {
            Open::Read => {}
            Open::Write => {
                options.write(true);
            }
            Open::Create => {
                options.write(true).create(true).truncate(false);
            }
            Open::CreateNew => {
                options.write(true).create_new(true);
            }
        }
        options.open(path).map_err(of_link).and_then(plain)
    }

    fn open_inside(&self, root: &Path, below: &Path, how: Open) -> io::Result<Box<dyn DiskFile>> {
        let directory = OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut at = openat(CWD, root, directory, Mode::empty())?;
        for part in below.parent().unwrap_or(Path::new("")).components() {
            let Component::Normal(name) = part else { return Err(not_plain("not a path below the directory")) };
            at = openat(&at, name, directory | OFlags::NOFOLLOW, Mode::empty())?;
        }
        let name = below.file_name().ok_or_else(|| not_plain("not the name of a file"))?;
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let flags = flags
            | match how {
                Open::Read => OFlags::RDONLY,
                Open::Write => OFlags::RDWR,
                Open::Create => OFlags::RDWR | OFlags::CREATE,
                Open::CreateNew => OFlags::RDWR | OFlags::CREATE | OFlags::EXCL,
            };
        let file =
            openat(&at, name, flags, Mode::from_raw_mode(FILE_MODE)).map_err(io::Error::from).map_err(of_link)?;
        plain(file.into())
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        let mut missing = Vec::new();
        let mut at = Some(path);
        while let Some(dir) = at.filter(|dir| !dir.as_os_str().is_empty() && !dir.is_dir()) {
            missing.push(dir);
            at = dir.parent();
        }
        for dir in missing.into_iter().rev() {
            match DirBuilder::new().mode(DIR_MODE).create(dir) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && dir.is_dir() => {}
                other => other?,
            }
            // A directory is as durable as its name.
            if let Some(parent) = dir.parent() {
                self.sync_dir(parent)?;
            }
        }
        Ok(())
    }

    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        let mut names = std::fs::read_dir(path)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
        names.sort();
        Ok(names)
    }

    fn stat(&self, path: &Path) -> io::Result<Stat> {
        Ok(stat_of(&std::fs::metadata(path)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()> {
        match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
            // Some file systems over a network cannot; between the two steps the file has both names.
            Err(Errno::INVAL | Errno::NOSYS) => {
                std::fs::hard_link(from, to)?;
                std::fs::remove_file(from)
            }
            renamed => Ok(renamed?),
        }
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        File::open(path)?.sync_all()
    }

    fn sync_fs(&self, path: &Path) -> io::Result<()> {
        let file = File::open(path)?;
        rustix::fs::syncfs(&file).map_err(io::Error::from)
    }

    fn try_lock(&self, path: &Path) -> io::Result<Option<Box<dyn Send>>> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(FILE_MODE).custom_flags(PLAIN_FILE);
        let file = options.open(path).map_err(of_link)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Box::new(file))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    fn free_bytes(&self, path: &Path) -> io::Result<u64> {
        let stat = rustix::fs::statvfs(path)?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }
}

impl DiskFile for RealFile {
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut got = 0;
        while got < into.len() {
            match self.file.read_at(&mut into[got..], offset + got as u64) {
                Ok(0) => break,
                Ok(n) => got += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(got)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.file.set_len(length)
    }

    fn opened(&self) -> Stat {
        self.opened
    }

    fn stat(&self) -> io::Result<Stat> {
        Ok(stat_of(&self.file.metadata()?))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

/// The machine's clocks.
#[derive(Debug)]
pub struct RealClock(Instant);

impl RealClock {
    /// Counts from now.
    #[expect(clippy::disallowed_methods, reason = "this is the clock that everybody else asks")]
    pub fn new() -> Self {
        Self(Instant::now())
    }
}

impl Default for RealClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for RealClock {
    #[expect(clippy::disallowed_methods, reason = "this is the clock that everybody else asks")]
    fn mono(&self) -> Duration {
        Instant::now().duration_since(self.0)
    }

    #[expect(clippy::disallowed_methods, reason = "this is the clock that everybody else asks")]
    fn wall_us(&self) -> u64 {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
    }
}

/// Bytes that are asked of the system at a time.
const RANDOM_BYTES: usize = 512;

thread_local! {
    /// Random bytes that were not given out, each once.
    static RANDOM: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The machine's randomness.
#[derive(Debug, Clone, Copy)]
pub struct RealIds;

impl Ids for RealIds {
    fn uuid_v7(&self) -> Uuid {
        Uuid::now_v7()
    }

    fn random(&self) -> u64 {
        RANDOM.with_borrow_mut(|unused| {
            if let Some((rest, bytes)) = unused.split_last_chunk() {
                let (left, number) = (rest.len(), u64::from_ne_bytes(*bytes));
                unused.truncate(left);
                return number;
            }
            unused.resize(RANDOM_BYTES, 0);
            getrandom::fill(unused).expect("a system that runs this program has randomness");
            getrandom::u64().expect("a system that runs this program has randomness")
        })
    }
}

/// Jobs that may wait for a thread of the pool; one more is dropped, and logged.
/// Every actor has at most a handful under way, so this is far out of reach.
pub const OFFLOADED_JOBS_MAX: usize = 1 << 20;

type Job = Box<dyn FnOnce() + Send>;

struct Queue {
    jobs: Mutex<Jobs>,
    changed: Condvar,
    clock: RealClock,
    waiting: Gauge,
    running: Gauge,
    waited: Histogram,
    refused: Counter,
}

#[derive(Default)]
struct Jobs {
    /// Each with the time at which it came.
    waiting: VecDeque<(Duration, Job)>,
    closed: bool,
}

/// A fixed number of threads with one bounded queue. They end when the pool is dropped and the queue is empty.
pub struct BlockingPool(Arc<Queue>);

impl BlockingPool {
    /// Starts `threads` threads (at least one).
    pub fn new(threads: usize, metrics: &KernelMetrics) -> io::Result<Self> {
        let jobs = |state| metrics.pool_jobs.get_or_create_owned(&ByState { state });
        let queue = Arc::new(Queue {
            jobs: Mutex::default(),
            changed: Condvar::new(),
            clock: RealClock::new(),
            waiting: jobs("waiting"),
            running: jobs("running"),
            waited: metrics.pool_wait_seconds.clone(),
            refused: metrics.pool_refused.clone(),
        });
        let pool = Self(Arc::clone(&queue));
        for n in 0..threads.max(1) {
            let queue = Arc::clone(&queue);
            std::thread::Builder::new().name(format!("greenroom-io-{n}")).spawn(move || work(&queue))?;
        }
        Ok(pool)
    }
}

fn work(queue: &Queue) {
    loop {
        let mut state = queue.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        let (came, job) = loop {
            match state.waiting.pop_front() {
                Some(job) => break job,
                None if state.closed => return,
                None => state = queue.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        };
        drop(state);
        queue.waiting.dec();
        queue.running.inc();
        queue.waited.observe(queue.clock.mono().saturating_sub(came).as_secs_f64());
        run_caught(job);
        queue.running.dec();
    }
}

/// Runs a job; a panic in it is logged, and ends only the job.
pub(crate) fn run_caught(job: Job) {
    if let Err(caught) = catch(job) {
        let panic = caught.panic();
        tracing::error!(target: "supervision", text = panic.text, at = panic.at, "panic in a blocking job");
    }
}

impl Offload for BlockingPool {
    fn run(&self, job: Job) {
        let mut state = self.0.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        if state.waiting.len() >= OFFLOADED_JOBS_MAX {
            self.0.refused.inc();
            tracing::error!(target: "supervision", max = OFFLOADED_JOBS_MAX, "blocking job dropped: too many wait");
            return;
        }
        state.waiting.push_back((self.0.clock.mono(), job));
        // Before anybody can take it: the gauge never shows less than there is.
        self.0.waiting.inc();
        drop(state);
        self.0.changed.notify_one();
    }
}

impl Drop for BlockingPool {
    fn drop(&mut self) {
        self.0.jobs.lock().unwrap_or_else(PoisonError::into_inner).closed = true;
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests;
