//! Results that are too long for the model, kept whole in files of the workspace.
//!
//! `<workspace>/.greenroom/tool-results/<stem of the session key>/<turn>.<attempt>.<round>.<call>.txt` holds the text of
//! one result; the model is shown where it lies and how it begins, and reads on with the tools that it has. Ids of
//! calls repeat, so the name says which round of which attempt of which turn made the call.
//!
//! A file is on the device before the result is reported: what a transcript refers to survives a power cut. It goes
//! after [`AGE_MAX`]; of the sessions with files the [`BUCKETS_MAX`] latest keep theirs, and every session that got one
//! within the last [`SPARED`]. No link is followed, neither to write nor to remove. All functions block.

use std::ffi::CString;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use domain::ids::{SessionKey, ToolCallId};
use domain::policy::{Access, Policy};
use domain::stem::{stem, stem_of};
use domain::text::first_chars;
use protocol::tools::PERSISTED;
use protocol::turn::Stamp;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::place::{Fence, PRIVATE_MODE, PathError};
use crate::write_file;

/// Below the workspace.
const PLACE: [&str; 2] = [".greenroom", "tool-results"];
/// Of a file.
const FILE_MODE: u32 = 0o600;
/// What the model sees of the text at most, in characters.
const PREVIEW_CHARS: usize = 1200;
/// After this a file goes.
const AGE_MAX: Duration = Duration::from_secs(7 * 24 * 3600);
/// Sessions that have files.
const BUCKETS_MAX: usize = 32;
/// A session whose latest file is younger keeps its files, however many sessions have some.
const SPARED: Duration = Duration::from_secs(3600);
/// The time between two looks at what may go.
const SWEEP_EVERY: Duration = Duration::from_secs(3600);
/// The tool that shows the files, and so never makes one.
const READER: &str = "read_file";

/// Where long results go. One for all arbiters.
pub(crate) struct Offload {
    fence: Arc<Fence>,
    /// Milliseconds since 1970 of the next look at what may go.
    due_ms: AtomicU64,
}

/// A result and who asked for it.
pub(crate) struct Long {
    pub(crate) key: SessionKey,
    pub(crate) stamp: Stamp,
    pub(crate) call: ToolCallId,
    /// The whole text.
    pub(crate) text: String,
    /// For a name that nobody has.
    pub(crate) nonce: u64,
}

/// Why a result is cut instead.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotKept {
    #[error(transparent)]
    Path(#[from] PathError),
    #[error("{0}")]
    Io(#[from] std::io::Error),
    #[error("a reference is longer than what a result may have")]
    NoRoom,
}

// === impl Offload ===

impl Offload {
    /// Keeps files in the fence's workspace.
    pub(crate) fn new(fence: Arc<Fence>) -> Self {
        Self { fence, due_ms: AtomicU64::new(0) }
    }

    /// Whether long results of that tool are kept for a session of that policy: it must be able to read them.
    pub(crate) fn serves(tool: &str, policy: &Policy) -> bool {
        tool != READER && policy.workspace != Access::None && policy.permits(READER).is_ok()
    }

    /// Writes the text; what the model is shown of it has at most `chars_max` characters.
    pub(crate) fn keep(&self, long: &Long, chars_max: usize) -> Result<String, NotKept> {
        let Stamp { turn, attempt, round, .. } = long.stamp;
        let name = format!("{turn}.{attempt}.{round}.{}.txt", stem_of(&long.call.0));
        let target = self.fence.own(&[PLACE[0], PLACE[1], &stem(&long.key), &name])?;
        let shown = reference(&target.shown, &long.text, chars_max).ok_or(NotKept::NoRoom)?;
        let (parent, name) = target.open_parent(PRIVATE_MODE)?;
        write_file::replace(&parent, name, long.text.as_bytes(), FILE_MODE, long.nonce)?;
        rustix::fs::fsync(&parent).map_err(std::io::Error::from)?;
        Ok(shown)
    }

    /// Whether it is time to [`Self::sweep`]; says so to one of those who ask.
    pub(crate) fn due(&self, now_ms: u64) -> bool {
        let next = now_ms.saturating_add(millis(SWEEP_EVERY));
        let due = |due: u64| (due <= now_ms).then_some(next);
        self.due_ms.fetch_update(Ordering::Relaxed, Ordering::Relaxed, due).is_ok()
    }

    /// Removes what is too old or too much.
    pub(crate) fn sweep(&self, now_ms: u64) -> Result<(), PathError> {
        let place = self.fence.own(&PLACE)?;
        let place = match place.open_dir() {
            Ok(place) => place,
            Err(PathError::Missing(_)) => return Ok(()),
            Err(error) => return Err(error),
        };
        let mut buckets = entries(&place, FileType::Directory, now_ms).unwrap_or_default();
        buckets.sort();
        for (at, (age, name)) in buckets.into_iter().enumerate() {
            let surplus = at >= BUCKETS_MAX && age > SPARED;
            // What cannot be removed now is tried again in an hour.
            let _ = clear(&place, &name, now_ms, if surplus { Duration::ZERO } else { AGE_MAX });
            if surplus || age > AGE_MAX {
                let _ = rustix::fs::unlinkat(&place, &name, AtFlags::REMOVEDIR);
            }
        }
        Ok(())
    }
}

/// What the model is shown instead of a text, if that fits.
fn reference(path: &str, text: &str, chars_max: usize) -> Option<String> {
    let size = text.chars().count();
    let head = format!("{PERSISTED}\npath: {path}\nsize: {size} characters\npreview:\n");
    let room = chars_max.checked_sub(head.chars().count())?;
    Some(format!("{head}{}", first_chars(text, room.min(PREVIEW_CHARS))))
}

/// Removes the files of a bucket that are at least that old.
fn clear(place: impl std::os::fd::AsFd, name: &CString, now_ms: u64, age_min: Duration) -> rustix::io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let bucket = rustix::fs::openat(place, name, flags, Mode::empty())?;
    for (age, file) in entries(&bucket, FileType::RegularFile, now_ms)? {
        if age >= age_min {
            match rustix::fs::unlinkat(&bucket, &file, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(errno) => return Err(errno),
            }
        }
    }
    Ok(())
}

/// Age and name of what of that kind lies in a directory.
fn entries(
    directory: impl std::os::fd::AsFd,
    kind: FileType,
    now_ms: u64,
) -> rustix::io::Result<Vec<(Duration, CString)>> {
    let mut found = Vec::new();
    for entry in Dir::read_from(&directory)? {
        let name = entry?.file_name().to_owned();
        let own = matches!(name.as_bytes(), b"." | b"..");
        // It may have gone in between.
        let Ok(stat) = rustix::fs::statat(&directory, &name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
        if !own && FileType::from_raw_mode(stat.st_mode) == kind {
            let changed_ms = u64::try_from(stat.st_mtime).unwrap_or(0).saturating_mul(1000);
            found.push((Duration::from_millis(now_ms.saturating_sub(changed_ms)), name));
        }
    }
    Ok(found)
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_reference_fits_and_begins_like_the_text(text in "\\PC{0,3000}", chars_max in 0_usize..3000) {
            match reference(".greenroom/tool-results/a/b.txt", &text, chars_max) {
                Some(shown) => {
                    prop_assert!(shown.chars().count() <= chars_max);
                    let (_, preview) = shown.split_once("preview:\n").unwrap();
                    prop_assert!(text.starts_with(preview) && preview.chars().count() <= PREVIEW_CHARS);
                }
                None => prop_assert!(chars_max < 120),
            }
        }
    }
}
