//! The files of the workspace that the system prompt shows, as they were last seen.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use domain::prompt::{BOOTSTRAP_FILES, BootstrapFile};
use supervision::ports::{Disk, Stat};

/// Bytes of one file that are read.
const FILE_BYTES_MAX: u64 = 256 * 1024;

/// Those that could be read, by their paths in the workspace.
#[derive(Debug, Clone, Default)]
pub struct Files(BTreeMap<String, Seen>);

#[derive(Debug, Clone)]
struct Seen {
    stat: Stat,
    text: Arc<str>,
}

// === impl Files ===

impl Files {
    /// Looks at all of them; what is `known` and was not touched is not read again.
    pub fn look(disk: &dyn Disk, workspace: &Path, known: &Self) -> Self {
        let mut seen = BTreeMap::new();
        for name in BOOTSTRAP_FILES {
            if let Some(file) = look_at(disk, workspace, name, known.0.get(name)) {
                seen.insert(name.to_owned(), file);
            }
        }
        Self(seen)
    }

    /// Whether they show the same.
    pub fn says_the_same(&self, other: &Self) -> bool {
        let texts = |files: &Self| files.0.iter().map(|(path, seen)| (path.clone(), Arc::clone(&seen.text))).collect();
        let (one, two): (Vec<_>, Vec<_>) = (texts(self), texts(other));
        one == two
    }

    /// Those of [`BOOTSTRAP_FILES`].
    pub fn bootstrap(&self) -> Vec<BootstrapFile> {
        let file = |name: &'static str| Some(BootstrapFile { name, content: Arc::clone(&self.0.get(name)?.text) });
        BOOTSTRAP_FILES.into_iter().filter_map(file).collect()
    }
}

/// A file that cannot be read is left out, as one that does not exist, and so is what a link leads to: it would show the
/// model what its tools may not read. A pipe, which would never answer, is none.
fn look_at(disk: &dyn Disk, workspace: &Path, name: &str, known: Option<&Seen>) -> Option<Seen> {
    let file = disk.open_inside(workspace, Path::new(name)).ok()?;
    let stat = file.opened();
    if let Some(known) = known.filter(|known| known.stat == stat) {
        return Some(known.clone());
    }
    if stat.length > FILE_BYTES_MAX {
        return None;
    }
    let bytes = read(&*file, 0, stat.length).ok()?;
    Some(Seen { stat, text: String::from_utf8_lossy(&bytes).into() })
}

/// What the file has of these bytes.
fn read(file: &dyn supervision::ports::DiskFile, from: u64, length: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(length).map_err(io::Error::other)?];
    let got = file.read_at(&mut bytes, from)?;
    bytes.truncate(got);
    Ok(bytes)
}
