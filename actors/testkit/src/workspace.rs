//! A directory of one's own, removed with its value.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// A fresh data directory with a `workspace` in it.
#[derive(Debug)]
pub struct TempWorkspace {
    root: TempDir,
}

impl TempWorkspace {
    /// Makes it.
    #[expect(clippy::new_without_default, reason = "it makes directories, which a default should not")]
    pub fn new() -> Self {
        let root =
            tempfile::Builder::new().prefix("greenroom-test-").tempdir().expect("the temp directory is writable");
        std::fs::create_dir(root.path().join("workspace")).expect("a fresh directory is writable");
        Self { root }
    }

    /// The data directory.
    pub fn home(&self) -> &Path {
        self.root.path()
    }

    /// The workspace in it.
    pub fn workspace(&self) -> PathBuf {
        self.root.path().join("workspace")
    }

    /// A path below the data directory.
    pub fn path(&self, relative: &str) -> PathBuf {
        self.root.path().join(relative)
    }

    /// Writes a file below the data directory, with its parents.
    pub fn write(&self, relative: &str, contents: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(relative);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).expect("the temp directory is writable");
        }
        std::fs::write(&path, contents).expect("the temp directory is writable");
        path
    }

    /// The text of a file below the data directory; empty when there is none.
    pub fn read(&self, relative: &str) -> String {
        std::fs::read_to_string(self.path(relative)).unwrap_or_default()
    }
}
