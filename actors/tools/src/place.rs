//! From the path a model wrote to an open file: resolve, judge, then open exactly what was judged.
//!
//! The target is resolved first, links included, and judged by [`Policy`]. It is then opened by walking down from the
//! root directory handle by handle, following no link: a component that was replaced by a link in between fails to
//! open instead of leading elsewhere. Each directory on the way is also compared with the private ones by identity, so
//! that another name for the same directory (a bind mount, another spelling on a file system that ignores case) does
//! not help. All functions block.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use domain::ids::SessionKey;
use domain::memory;
use domain::policy::{self, Access};
use domain::scope::{AccessMode, Scope};
use domain::stem::stem;
use protocol::tools::OUTSIDE_WORKSPACE;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::paths::{Denied, Policy, Reach};
use crate::seen::Seen;
use crate::tool::Call;

/// Of the gateway's own directories.
pub(crate) const PRIVATE_MODE: u32 = 0o700;

/// The roots as configured; resolved anew for each use, as directories come and go.
#[derive(Debug, Clone)]
pub(crate) struct Fence {
    /// Where relative paths begin, and what is open.
    pub(crate) workspace: PathBuf,
    /// Other directories that are open, for reading.
    pub(crate) readable: Vec<PathBuf>,
    /// Directories in which each session has one of its own, open to it for reading.
    pub(crate) attachments: Vec<PathBuf>,
    /// Transcripts, mostly inside the workspace.
    pub(crate) sessions: PathBuf,
    pub(crate) forbidden: Vec<PathBuf>,
    pub(crate) reach: Reach,
    /// All that is open for writing, if not everything that is open.
    pub(crate) only: Option<&'static [&'static str]>,
    /// Files that are closed for writing: those that the gateway keeps in the workspace. Whoever only reads needs none.
    pub(crate) kept: Vec<PathBuf>,
    /// What Dream has read.
    pub(crate) seen: Arc<Seen>,
}

/// A judged path.
#[derive(Debug)]
pub(crate) struct Target {
    /// How it is called in messages: relative to the workspace when inside it.
    pub(crate) shown: String,
    /// Resolved.
    pub(crate) path: PathBuf,
    root: PathBuf,
    below: Vec<OsString>,
    private: Vec<Identity>,
    policy: Policy,
}

/// Device and inode.
type Identity = (u64, u64);

/// Why a path cannot be used; the text is for the model.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PathError {
    #[error("the path is empty")]
    Empty,
    #[error("the path contains a NUL character")]
    Nul,
    #[error("`{0}` {OUTSIDE_WORKSPACE}; give a path inside it, relative to its root")]
    Outside(String),
    #[error("`{0}` is kept by the gateway for itself and not open to tools")]
    Private(String),
    #[error("`{0}` belongs to the kernel and is not open to tools")]
    Kernel(String),
    #[error("`{0}` does not exist")]
    Missing(String),
    #[error("`{0}` is not a directory, or lies below something that is none")]
    NotDirectory(String),
    #[error("the files of the workspace are not open to this session")]
    Closed,
    #[error("this session may read the workspace but not change it")]
    ReadOnly,
    #[error("this session may change only these: {}", .0.join(", "))]
    Elsewhere(&'static [&'static str]),
    #[error("`{0}` is written by the gateway alone; it can be read")]
    Kept(String),
    #[error("`{0}` was not read yet, or somebody has changed it since; read it, then write it with what it says now")]
    Unread(String),
    #[error("`{0}` is a directory")]
    IsDirectory(String),
    #[error("`{0}` is not a regular file (a device, socket or pipe)")]
    Special(String),
    #[error("`{0}` is a link that leads nowhere, or changed while it was being opened")]
    Unsteady(String),
    #[error("the workspace is not usable: {0}")]
    Workspace(io::Error),
    #[error("`{shown}`: {source}")]
    Io { shown: String, source: io::Error },
}

// === impl Fence ===

impl Fence {
    /// What of it is open to a session that needs that much of the workspace.
    pub(crate) fn within(self: &Arc<Self>, call: &Call, need: Access) -> Result<Arc<Self>, PathError> {
        match call.policy.workspace {
            Access::None => Err(PathError::Closed),
            Access::Read if need == Access::Write => Err(PathError::ReadOnly),
            Access::Read | Access::Write => {
                let fence = self.of(&call.key).scoped(call.scope.as_deref(), &call.policy).confined(&call.policy);
                Ok(if need == Access::Write { self.for_writing(&fence, call) } else { fence })
            }
        }
    }

    /// What of `fence` is open to a session that writes; `self` is around the workspace, whatever the session's project is.
    fn for_writing(&self, fence: &Self, call: &Call) -> Arc<Self> {
        let readable = if fence.reach == Reach::Anywhere { fence.readable.clone() } else { Vec::new() };
        let kept = memory::OWN_FILES.iter().map(|path| self.workspace.join(path)).collect();
        Arc::new(Self { readable, kept, only: call.policy.writes, ..fence.clone() })
    }

    /// With what belongs to that session and to no other.
    pub(crate) fn of(self: &Arc<Self>, key: &SessionKey) -> Arc<Self> {
        if self.attachments.is_empty() {
            return Arc::clone(self);
        }
        let stem = stem(key);
        let own = self.attachments.iter().map(|place| place.join(&stem));
        let readable = self.readable.iter().cloned().chain(own).collect();
        Arc::new(Self { readable, ..Self::clone(self) })
    }

    /// Around the session's project, if it has one and may change what is in the workspace.
    pub(crate) fn scoped(self: &Arc<Self>, scope: Option<&Scope>, policy: &policy::Policy) -> Arc<Self> {
        let Some(scope) = scope.filter(|_| policy.workspace == Access::Write) else { return Arc::clone(self) };
        let reach = match scope.access_mode {
            AccessMode::Restricted => Reach::Workspace,
            AccessMode::Full => Reach::Anywhere,
        };
        let workspace = scope.project_path.clone();
        let readable = self.readable.iter().chain([&self.workspace]).cloned().collect();
        Arc::new(Self { workspace, readable, reach, ..Self::clone(self) })
    }

    /// The same, unless the session is kept off the machine: then no more than the workspace.
    pub(crate) fn confined(self: &Arc<Self>, policy: &policy::Policy) -> Arc<Self> {
        if !policy.confines() || self.reach == Reach::Workspace {
            return Arc::clone(self);
        }
        Arc::new(Self { reach: Reach::Workspace, ..Self::clone(self) })
    }

    /// The rules as of now.
    pub(crate) fn policy(&self) -> Result<Policy, PathError> {
        let workspace = self.workspace.canonicalize().map_err(PathError::Workspace)?;
        let private = self.forbidden.iter().chain([&self.sessions]);
        let private = private.filter_map(|path| resolve(path).ok()).collect();
        let readable = self.readable.iter().filter_map(|path| path.canonicalize().ok()).collect();
        Ok(Policy { workspace, readable, private, reach: self.reach })
    }

    /// Makes the directory of transcripts when it is missing: only what exists can be hidden from a command, which
    /// could else put transcripts of its own there.
    pub(crate) fn keep_sessions(&self) -> Result<(), PathError> {
        let made = std::fs::DirBuilder::new().recursive(true).mode(PRIVATE_MODE).create(&self.sessions);
        made.map_err(PathError::Workspace)
    }

    /// Undoes a command's `chmod` of the workspace itself, without which neither tools nor sessions could work on.
    /// Only its owner can; where that is somebody else, no command could change it either.
    pub(crate) fn keep_open(&self) {
        let Ok(found) = std::fs::metadata(&self.workspace) else { return };
        let mode = found.permissions().mode();
        if mode & PRIVATE_MODE != PRIVATE_MODE {
            let open = std::fs::Permissions::from_mode(mode | PRIVATE_MODE);
            if let Err(error) = std::fs::set_permissions(&self.workspace, open) {
                tracing::warn!(%error, "the workspace was closed by a command and cannot be opened again");
            }
        }
    }

    /// Resolves and judges `text`, relative to the workspace.
    pub(crate) fn locate(&self, text: &str) -> Result<Target, PathError> {
        if text.is_empty() {
            return Err(PathError::Empty);
        }
        if text.contains('\0') {
            return Err(PathError::Nul);
        }
        let policy = self.policy()?;
        let path = match resolve(&policy.workspace.join(text)) {
            Ok(path) => path,
            Err(Unresolved::UpFromMissing) => return Err(PathError::Missing(text.to_owned())),
            Err(Unresolved::Io(error)) => return Err(named(text, error)),
        };
        if let Err(denied) = policy.judge(&path) {
            let shown = relative(&path, &policy.workspace).unwrap_or_else(|| text.to_owned());
            return Err(match denied {
                Denied::Outside => PathError::Outside(text.to_owned()),
                Denied::Private => PathError::Private(shown),
                Denied::Kernel => PathError::Kernel(text.to_owned()),
            });
        }
        if let Some(only) = self.only.filter(|only| !is_among(&path, &policy.workspace, only)) {
            return Err(PathError::Elsewhere(only));
        }
        if self.kept.iter().any(|kept| resolve(kept).is_ok_and(|kept| kept == path)) {
            return Err(PathError::Kept(relative(&path, &policy.workspace).unwrap_or_else(|| text.to_owned())));
        }
        Ok(Target::new(policy, path))
    }

    /// Whether Dream may write there too.
    pub(crate) fn is_dreamt(&self, path: &Path) -> bool {
        self.workspace.canonicalize().is_ok_and(|workspace| is_among(path, &workspace, &memory::FILES))
    }

    /// A place below the workspace that the gateway names itself. No link is followed on the way to it.
    pub(crate) fn own(&self, below: &[&str]) -> Result<Target, PathError> {
        let policy = self.policy()?;
        let path = policy.workspace.join(below.iter().collect::<PathBuf>());
        Ok(Target::new(policy, path))
    }
}

/// Whether a resolved path is one of those of the workspace, or below one that ends with `/`.
fn is_among(path: &Path, workspace: &Path, only: &[&str]) -> bool {
    let Ok(below) = path.strip_prefix(workspace) else { return false };
    only.iter().any(|one| match one.strip_suffix('/') {
        Some(directory) => below.starts_with(directory) && below != Path::new(directory),
        None => below == Path::new(one),
    })
}

// === impl Target ===

impl Target {
    /// Of a judged path.
    fn new(policy: Policy, path: PathBuf) -> Self {
        let inside = path.starts_with(&policy.workspace);
        let readable = policy.readable.iter().find(|root| path.starts_with(root)).filter(|_| !inside);
        let root = if inside { &policy.workspace } else { readable.map_or(Path::new("/"), |root| root) }.to_owned();
        let shown = relative(&path, &policy.workspace).unwrap_or_else(|| path.display().to_string());
        let below = path.strip_prefix(&root).map(|rest| rest.iter().map(OsString::from).collect()).unwrap_or_default();
        let private = policy.private.iter().filter_map(|path| identity(path)).collect();
        Self { shown, path, root, below, private, policy }
    }

    /// Opens the file for reading; directories, devices, pipes and sockets are refused.
    pub(crate) fn open_file(&self) -> Result<File, PathError> {
        let Some((name, dirs)) = self.below.split_last() else {
            return Err(PathError::IsDirectory(self.shown.clone()));
        };
        let parent = self.enter(dirs, Missing::Fail)?;
        // NONBLOCK: opening a pipe must not wait for its other end.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&parent, name, flags, Mode::empty()).map_err(|errno| self.error(errno))?;
        let file = File::from(file);
        let kind = file.metadata().map_err(|error| named(&self.shown, error))?.file_type();
        if kind.is_dir() {
            return Err(PathError::IsDirectory(self.shown.clone()));
        }
        if !kind.is_file() {
            return Err(PathError::Special(self.shown.clone()));
        }
        self.check(&file)?;
        Ok(file)
    }

    /// Opens the directory itself.
    pub(crate) fn open_dir(&self) -> Result<OwnedFd, PathError> {
        self.enter(&self.below, Missing::Fail)
    }

    /// Opens the directory that holds, or will hold, the target, made with that mode when it is missing; with the
    /// target's name in it.
    pub(crate) fn open_parent(&self, mode: u32) -> Result<(OwnedFd, &OsString), PathError> {
        let Some((name, dirs)) = self.below.split_last() else {
            return Err(PathError::IsDirectory(self.shown.clone()));
        };
        Ok((self.enter(dirs, Missing::Make { mode })?, name))
    }

    /// Whether an entry `name` of this directory may be shown.
    pub(crate) fn shows(&self, name: &Path) -> bool {
        self.policy.judge(&self.path.join(name)).is_ok()
    }

    /// Opens a directory below this one, following no link.
    pub(crate) fn open_below(&self, rest: &Path) -> Result<OwnedFd, PathError> {
        let mut names = self.below.clone();
        names.extend(rest.iter().map(OsString::from));
        self.enter(&names, Missing::Fail)
    }

    /// As [`PathError`], about this target.
    pub(crate) fn error(&self, errno: Errno) -> PathError {
        named(&self.shown, errno.into())
    }

    fn enter(&self, dirs: &[OsString], missing: Missing) -> Result<OwnedFd, PathError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut here = rustix::fs::open(&self.root, flags, Mode::empty()).map_err(|errno| self.error(errno))?;
        for name in dirs {
            let mut next = rustix::fs::openat(&here, name, flags, Mode::empty());
            if let (Err(Errno::NOENT), Missing::Make { mode }) = (&next, missing) {
                match rustix::fs::mkdirat(&here, name, Mode::from_raw_mode(mode)) {
                    Ok(()) => rustix::fs::fsync(&here).map_err(|errno| self.error(errno))?,
                    // Somebody else made it: fine.
                    Err(Errno::EXIST) => {}
                    Err(errno) => return Err(self.error(errno)),
                }
                next = rustix::fs::openat(&here, name, flags, Mode::empty());
            }
            here = next.map_err(|errno| self.error(errno))?;
            self.check(&here)?;
        }
        Ok(here)
    }

    /// Refuses what is private, under whatever name it was reached.
    fn check(&self, file: impl std::os::fd::AsFd) -> Result<(), PathError> {
        let stat = rustix::fs::fstat(file).map_err(|errno| self.error(errno))?;
        if self.private.contains(&(stat.st_dev, stat.st_ino)) {
            return Err(PathError::Private(self.shown.clone()));
        }
        Ok(())
    }
}

/// What to do about a missing directory.
#[derive(Clone, Copy)]
enum Missing {
    Fail,
    /// A power cut leaves it where it is.
    Make {
        mode: u32,
    },
}

enum Unresolved {
    /// `missing/..`: what it means depends on what is not there.
    UpFromMissing,
    Io(io::Error),
}

/// The path without links and `..`; its end may not exist yet.
fn resolve(path: &Path) -> Result<PathBuf, Unresolved> {
    for ancestor in path.ancestors() {
        match ancestor.canonicalize() {
            Ok(found) => {
                let rest = path.strip_prefix(ancestor).unwrap_or(Path::new(""));
                if rest.components().any(|part| !matches!(part, Component::Normal(_))) {
                    return Err(Unresolved::UpFromMissing);
                }
                // A join with nothing would add a slash, which turns a file into a directory.
                return Ok(if rest.as_os_str().is_empty() { found } else { found.join(rest) });
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(Unresolved::Io(error)),
        }
    }
    Err(Unresolved::Io(io::ErrorKind::NotFound.into()))
}

fn identity(path: &Path) -> Option<Identity> {
    rustix::fs::stat(path).ok().map(|stat| (stat.st_dev, stat.st_ino))
}

fn relative(path: &Path, workspace: &Path) -> Option<String> {
    let rest = path.strip_prefix(workspace).ok()?;
    Some(if rest.as_os_str().is_empty() { ".".to_owned() } else { rest.display().to_string() })
}

fn named(shown: &str, error: io::Error) -> PathError {
    let shown = shown.to_owned();
    match Errno::from_io_error(&error) {
        Some(Errno::NOENT) => PathError::Missing(shown),
        Some(Errno::NOTDIR) => PathError::NotDirectory(shown),
        Some(Errno::ISDIR) => PathError::IsDirectory(shown),
        Some(Errno::LOOP) => PathError::Unsteady(shown),
        Some(Errno::NXIO) => PathError::Special(shown),
        Some(_) | None => PathError::Io { shown, source: error },
    }
}
