//! The full text of crashes, which the log itself does not hold: `logs/crash/<hash>.txt`, mode 0600.

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::panic::Caught;
use crate::ports::{Disk, Open, Ports};

/// Kinds of crash that one process writes down; of a kind only the first crash is written.
pub const CRASH_FILES_MAX: usize = 256;

pub(crate) struct CrashFiles {
    dir: PathBuf,
    written: Mutex<HashSet<String>>,
}

impl CrashFiles {
    pub fn new(dir: PathBuf) -> Self {
        Self { dir, written: Mutex::default() }
    }

    /// Writes the text off the arbiter: resolving a backtrace takes long.
    pub fn keep(&self, ports: &Ports, hash: &str, caught: Caught) {
        {
            let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
            if written.len() >= CRASH_FILES_MAX || !written.insert(hash.to_owned()) {
                return;
            }
        }
        let path = self.dir.join(format!("{hash}.txt"));
        let (disk, dir) = (ports.disk.clone(), self.dir.clone());
        ports.offload.run(Box::new(move || {
            if let Err(error) = write(&*disk, &dir, &path, &caught) {
                tracing::warn!(target: "supervision", %error, "crash file cannot be written");
            }
        }));
    }
}

fn write(disk: &dyn Disk, dir: &Path, path: &Path, caught: &Caught) -> io::Result<()> {
    disk.create_dir_all(dir)?;
    let mut text = format!("{}\nat {}\n\n", caught.full, caught.at);
    if let Some(backtrace) = &caught.backtrace {
        text.push_str(&backtrace.to_string());
    }
    let file = disk.open(path, Open::Create)?;
    file.set_length(0)?;
    file.write_at(text.as_bytes(), 0)
}
