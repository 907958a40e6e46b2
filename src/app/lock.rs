//! One process per data directory and per workspace. The lock is the kernel's; the text inside only names the holder.

use std::fmt;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use supervision::ports::is_space;

use super::Purpose;

/// Who holds a directory.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
pub struct Holder {
    /// Process id.
    pub pid: u32,
    /// Host name.
    pub host: String,
    /// When it took the lock, RFC 3339.
    pub started: String,
    /// Version of the program.
    pub version: String,
    /// Whether it is a gateway, not a command that ends by itself.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub gateway: bool,
}

/// Why a directory could not be taken.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Somebody else has it.
    #[error("{} is in use by {holder}", path.display())]
    InUse {
        /// The directory.
        path: PathBuf,
        /// Who, in words.
        holder: String,
    },
    /// The lock file cannot be made.
    #[error("lock file {} cannot be used: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

/// A held directory; dropping it lets go.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

impl Lock {
    /// Takes `file` (made with mode 0600 when missing) for the directory that it stands for.
    pub fn take(file: &Path, directory: &Path, purpose: Purpose) -> Result<Self, LockError> {
        let io = |source| LockError::Io { path: file.to_owned(), source };
        if let Some(parent) = file.parent() {
            std::fs::create_dir_all(parent).map_err(io)?;
        }
        let (mut open, writable) = open(file).map_err(io)?;
        match open.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(LockError::InUse { path: directory.to_owned(), holder: describe(&mut open) });
            }
            Err(TryLockError::Error(source)) => return Err(io(source)),
        }
        if !writable {
            tracing::warn!("the lock is taken without a name in it: the disk is read-only");
            return Ok(Self { _file: open });
        }
        let text = serde_json::to_string(&myself(purpose)).expect("a holder always serialises");
        match write_name(&mut open, &text) {
            // The lock holds without its name, and a gateway must come up on a full disk.
            Err(error) if is_space(&error) => tracing::warn!(%error, "the lock is taken without a name in it"),
            written => written.map_err(io)?,
        }
        Ok(Self { _file: open })
    }

    /// Like [`take`](Self::take), but waits up to `patience` for another holder to end.
    pub async fn take_patiently(
        file: &Path,
        directory: &Path,
        purpose: Purpose,
        patience: Duration,
    ) -> Result<Self, LockError> {
        let step = Duration::from_millis(50);
        let mut left = patience;
        loop {
            match Self::take(file, directory, purpose) {
                Err(LockError::InUse { .. }) if left >= step => {
                    tokio::time::sleep(step).await;
                    left -= step;
                }
                other => return other,
            }
        }
    }

    /// Who holds `file`, if anybody does.
    pub fn holder(file: &Path) -> Option<String> {
        held(file).map(|mut open| describe(&mut open))
    }

    /// The gateway that holds `file`, if one does and could write its name into it.
    pub fn gateway(file: &Path) -> Option<Holder> {
        held(file).and_then(|mut open| read_name(&mut open)).filter(|who| who.gateway)
    }
}

/// The file, when somebody holds it.
fn held(file: &Path) -> Option<File> {
    let open = File::open(file).ok()?;
    matches!(open.try_lock_shared(), Err(TryLockError::WouldBlock)).then_some(open)
}

/// The file, made when missing, and whether it can be written: where nothing can be, one that is there already locks
/// just as well.
fn open(file: &Path) -> std::io::Result<(File, bool)> {
    let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(file);
    match opened {
        Err(error) if is_space(&error) => Ok((File::open(file).map_err(|_| error)?, false)),
        opened => Ok((opened?, true)),
    }
}

/// Over the name of the last holder first: what it took of the disk is there also when nothing more is.
fn write_name(file: &mut File, text: &str) -> std::io::Result<()> {
    file.rewind()?;
    file.write_all(text.as_bytes())?;
    file.set_len(text.len() as u64)
}

fn describe(file: &mut File) -> String {
    // A holder that has not yet written its name is still a holder.
    read_name(file).map_or_else(|| "another process".to_owned(), |who| who.to_string())
}

fn read_name(file: &mut File) -> Option<Holder> {
    let mut text = String::new();
    file.read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

impl fmt::Display for Holder {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pid, host, started, version, gateway: _ } = self;
        write!(out, "process {pid} on {host} (greenroom {version}, since {started})")
    }
}

fn myself(purpose: Purpose) -> Holder {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    Holder {
        pid: std::process::id(),
        host,
        started: jiff::Timestamp::now().to_string(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        gateway: purpose == Purpose::Gateway,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_taker_is_told_who_holds_it() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("run/lock");
        let first = Lock::take(&file, directory.path(), Purpose::Gateway).unwrap();
        let error = Lock::take(&file, directory.path(), Purpose::Gateway).unwrap_err().to_string();
        assert!(error.contains(&format!("process {} on ", std::process::id())), "{error}");
        assert!(Lock::holder(&file).is_some());
        assert_eq!(Lock::gateway(&file).unwrap().pid, std::process::id());
        drop(first);
        assert_eq!(Lock::holder(&file), None);
        let _command = Lock::take(&file, directory.path(), Purpose::OneShot).unwrap();
        assert_eq!((Lock::gateway(&file), Lock::holder(&file).is_some()), (None, true));
    }

    /// A lock file as a holder of long ago left it, with a process id that somebody else has by now.
    fn left_behind(file: &Path) -> String {
        let pid = std::process::id();
        let text = format!(r#"{{"pid":{pid},"host":"h","started":"2001-01-01T00:00:00Z","version":"0"}}"#);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, &text).unwrap();
        text
    }

    #[test]
    fn a_lock_that_nobody_holds_is_taken_whatever_stands_in_it() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("run/lock");
        left_behind(&file);
        assert_eq!((Lock::holder(&file), Lock::gateway(&file)), (None, None), "whoever that was has ended");
        drop(Lock::take(&file, directory.path(), Purpose::OneShot).unwrap());
        for text in ["", "{", "\0\0\0", "not a name of anybody, and longer than the one that comes"] {
            std::fs::write(&file, text).unwrap();
            let lock = Lock::take(&file, directory.path(), Purpose::OneShot).unwrap();
            let holder: Holder = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
            assert_eq!(holder.pid, std::process::id());
            drop(lock);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_live_holder_is_waited_for_and_named_and_never_driven_out_however_old_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("run/lock");
        let text = left_behind(&file);
        let held = File::open(&file).unwrap();
        held.try_lock().unwrap();
        let patience = Duration::from_secs(30);
        let taking = || Lock::take_patiently(&file, directory.path(), Purpose::OneShot, patience);
        assert!(tokio::time::timeout(Duration::from_secs(29), taking()).await.is_err(), "it waits as long as it may");
        let refused = tokio::time::timeout(Duration::from_secs(31), taking()).await.unwrap().unwrap_err();
        let said = refused.to_string();
        assert!(said.contains("is in use by process") && said.contains("since 2001-01-01"), "{said}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), text, "the holder's lock is left as it is");
        // One that ends while it is waited for is followed at once.
        let ending = async move {
            tokio::time::sleep(Duration::from_secs(5)).await;
            drop(held);
        };
        let (taken, ()) = tokio::join!(taking(), ending);
        assert!(taken.is_ok());
    }
}
