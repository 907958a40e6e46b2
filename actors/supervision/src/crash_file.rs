//! The full text of crashes, which the log itself does not hold: `logs/crash/<hash>.txt`, mode 0600.

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use domain::text::ellipsis;

use crate::panic::Caught;
use crate::ports::{Disk, Open, Ports};

/// Files kept, over all processes, and kinds of crash that one process writes down. Over it the file that was written
/// first goes; of a kind only a process's first crash is written.
pub const CRASH_FILES_MAX: usize = 256;
/// Characters of a panic's text, and of its backtrace.
const TEXT_CHARS_MAX: usize = 64 * 1024;

pub(crate) struct CrashFiles {
    dir: PathBuf,
    written: Mutex<HashSet<String>>,
    /// Held while files are counted and written.
    writing: Arc<Mutex<()>>,
}

impl CrashFiles {
    pub fn new(dir: PathBuf) -> Self {
        Self { dir, written: Mutex::default(), writing: Arc::default() }
    }

    /// Writes the text off the arbiter: resolving a backtrace takes long.
    pub fn keep(&self, ports: &Ports, caught: Arc<Caught>) {
        let hash = caught.hash();
        {
            let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
            if written.len() >= CRASH_FILES_MAX || !written.insert(hash.clone()) {
                return;
            }
        }
        let path = self.dir.join(format!("{hash}.txt"));
        let (disk, dir, writing) = (ports.disk.clone(), self.dir.clone(), Arc::clone(&self.writing));
        ports.offload.run(Box::new(move || {
            let _alone = writing.lock().unwrap_or_else(PoisonError::into_inner);
            if let Err(error) = write(&*disk, &dir, &path, &caught) {
                tracing::warn!(target: "supervision", %error, "crash file cannot be written");
            }
        }));
    }
}

fn write(disk: &dyn Disk, dir: &Path, path: &Path, caught: &Caught) -> io::Result<()> {
    disk.create_dir_all(dir)?;
    make_room(disk, dir, path)?;
    let mut text = format!("{}\nat {}\n\n", ellipsis(&caught.full, TEXT_CHARS_MAX), caught.at);
    if let Some(backtrace) = &caught.backtrace {
        text.push_str(&ellipsis(&backtrace.to_string(), TEXT_CHARS_MAX));
    }
    let file = disk.open(path, Open::Create)?;
    file.set_length(0)?;
    file.write_at(text.as_bytes(), 0)
}

/// Removes the files that were written first, until one more may be there.
fn make_room(disk: &dyn Disk, dir: &Path, path: &Path) -> io::Result<()> {
    let mut files = Vec::new();
    for other in disk.list(dir)?.into_iter().filter(|other| other != path) {
        let (.., modified, _) = disk.stat(&other)?.stamp;
        files.push((modified, other));
    }
    files.sort();
    let surplus = (files.len() + 1).saturating_sub(CRASH_FILES_MAX);
    files.iter().take(surplus).try_for_each(|(_, oldest)| disk.remove(oldest))
}
