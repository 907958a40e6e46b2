//! The outside world, as traits: disk, clock, ids and blocking work.
//! Actor crates do IO only through these, so a simulation can stand in for all of it and cut the power at any write.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

/// The four ports together, as every actor gets them. Cheap to clone.
#[derive(Clone)]
pub struct Ports {
    /// Files.
    pub disk: Arc<dyn Disk>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Fresh ids.
    pub ids: Arc<dyn Ids>,
    /// The bounded blocking pool.
    pub offload: Arc<dyn Offload>,
}

/// How a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Open {
    /// Existing, for reading.
    Read,
    /// Existing, for reading and writing.
    Write,
    /// For reading and writing, made (mode 0600) when missing.
    Create,
    /// For reading and writing, made (mode 0600); an existing one is an error.
    CreateNew,
}

/// What is known of a path without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// Length in bytes.
    pub length: u64,
    /// Whether it is a directory.
    pub directory: bool,
    /// Device, inode, modification and change time in nanoseconds: equal stamps mean an untouched file.
    pub stamp: (u64, u64, i128, i128),
}

/// Whether an error means that the disk cannot be written now, which may pass: there is no space, or it is read-only.
pub fn is_space(error: &io::Error) -> bool {
    use io::ErrorKind::{QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | ReadOnlyFilesystem)
}

/// A file system. All calls block: never call them on an arbiter, use [`Offload`].
/// Nothing is durable before `sync_data` (contents) or `sync_dir` (names) returned.
pub trait Disk: Send + Sync + 'static {
    /// Opens one file.
    fn open(&self, path: &Path, how: Open) -> io::Result<Box<dyn DiskFile>>;
    /// Makes a directory and its parents, mode 0700; an existing one is fine.
    fn create_dir_all(&self, path: &Path) -> io::Result<()>;
    /// Names directly below `path`, sorted.
    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>>;
    /// Length, kind and identity; `NotFound` when there is none.
    fn stat(&self, path: &Path) -> io::Result<Stat>;
    /// Moves a file over another name, atomically.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Moves a file to a name that nobody has, atomically; `AlreadyExists` when somebody has it, whoever came first.
    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes one file.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Makes creations, renames and removals below `path` durable.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
    /// Makes everything on the file system that holds `path` durable.
    fn sync_fs(&self, path: &Path) -> io::Result<()>;
    /// Bytes that may still be written to the file system that holds `path`.
    fn free_bytes(&self, path: &Path) -> io::Result<u64>;

    /// Opens one file; no part of `below` may be a link, so that whoever may write below `root` can make it neither show nor
    /// change what lies elsewhere.
    fn open_inside(&self, root: &Path, below: &Path, how: Open) -> io::Result<Box<dyn DiskFile>> {
        self.open(&root.join(below), how)
    }

    /// Takes the lock that other programs know of this file too (`flock`), which is made when missing; `None` while somebody
    /// has it. It is let go when it is dropped. A disk that no other program sees has nobody to keep out.
    fn try_lock(&self, _path: &Path) -> io::Result<Option<Box<dyn Send>>> {
        Ok(Some(Box::new(())))
    }

    /// The whole file.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let file = self.open(path, Open::Read)?;
        let length = usize::try_from(file.opened().length).map_err(io::Error::other)?;
        let mut bytes = vec![0; length];
        let got = file.read_at(&mut bytes, 0)?;
        bytes.truncate(got);
        Ok(bytes)
    }
}

/// An open file.
pub trait DiskFile: Send + Sync {
    /// Fills as much of `into` as the file has from `offset`; the number of bytes read is short only at the end.
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Writes all of `bytes` at `offset`, growing the file when needed.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Cuts or extends (with zeros) the file.
    fn set_length(&self, length: u64) -> io::Result<()>;
    /// How it was when it was opened.
    fn opened(&self) -> Stat;
    /// How it is now.
    fn stat(&self) -> io::Result<Stat>;
    /// Returns when the contents are on the device.
    fn sync_data(&self) -> io::Result<()>;

    /// Current length in bytes.
    fn length(&self) -> io::Result<u64> {
        Ok(self.stat()?.length)
    }
}

/// Time. Pure code gets it as an argument.
pub trait Clock: Send + Sync + 'static {
    /// Since an arbitrary point; never goes backwards.
    fn mono(&self) -> Duration;
    /// Microseconds since 1970 UTC; may jump.
    fn wall_us(&self) -> u64;

    /// Milliseconds since 1970 UTC.
    fn wall_ms(&self) -> u64 {
        self.wall_us() / 1000
    }
}

/// Randomness and ids; seeded in simulation.
pub trait Ids: Send + Sync + 'static {
    /// A time-ordered id.
    fn uuid_v7(&self) -> Uuid;
    /// 64 random bits.
    fn random(&self) -> u64;
}

/// The bounded pool for work that blocks.
pub trait Offload: Send + Sync + 'static {
    /// Runs `job` elsewhere (in simulation: here, at once). A panic in it is caught and logged.
    fn run(&self, job: Box<dyn FnOnce() + Send>);
}

/// Runs `job` on the blocking pool. The receiver fails only when the job panicked or the pool is gone.
pub fn offload<T: Send + 'static>(
    pool: &dyn Offload,
    job: impl FnOnce() -> T + Send + 'static,
) -> tokio::sync::oneshot::Receiver<T> {
    let (tx, rx) = tokio::sync::oneshot::channel();
    pool.run(Box::new(move || {
        // The asker may be gone; then nobody needs the answer.
        let _ = tx.send(job());
    }));
    rx
}
