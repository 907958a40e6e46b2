//! Which contents were attached lately, so that nothing of it is removed before its message names it.
//!
//! A message names its files only once it is accepted, and a file that is there already is used as it is, however old it
//! may be. So whoever keeps a file says so here first, and whoever removes one asks here, with nobody in between. What was
//! said is remembered for at least as long as lies between the beginnings of two sweeps.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use super::NAME_BYTES;

/// Digits of a file's name.
pub(super) const DIGITS: usize = 2 * NAME_BYTES;
/// Contents that are remembered between two sweeps, some 4 MiB; when there were more, nothing is removed.
const REMEMBERED_MAX: usize = 100_000;

/// What is in a file, by the hash that its name has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Contents(u128);

/// What was attached since the sweep before the last one began.
#[derive(Debug, Default)]
pub(crate) struct Attached(Mutex<Lately>);

#[derive(Debug, Default)]
struct Lately {
    now: Times,
    before: Times,
}

/// Between the beginnings of two sweeps.
#[derive(Debug, Default)]
struct Times {
    contents: BTreeSet<Contents>,
    /// Some are not remembered.
    overrun: bool,
}

// === impl Contents ===

impl Contents {
    /// Reads the lower-case digits of a name.
    pub(super) fn of_digits(digits: &[u8]) -> Option<Self> {
        if digits.len() != DIGITS {
            return None;
        }
        let value = digits.iter().try_fold(0_u128, |value, digit| Some(value << 4 | u128::from(nibble(*digit)?)));
        value.map(Self)
    }

    /// Tells each that stands somewhere in `bytes`. Pure.
    pub(super) fn each_in(bytes: &[u8], mut told: impl FnMut(Self)) {
        let (mut value, mut digits) = (0_u128, 0);
        for byte in bytes {
            match nibble(*byte) {
                Some(digit) => (value, digits) = (value << 4 | u128::from(digit), digits + 1),
                None => digits = 0,
            }
            if digits >= DIGITS {
                told(Self(value));
            }
        }
    }

    /// Of a file that was kept; `None` for any other.
    pub(super) fn of_file(path: &Path) -> Option<Self> {
        let (digits, _) = path.file_name()?.to_str()?.split_once('.')?;
        Self::of_digits(digits.as_bytes())
    }
}

/// The value of a lower-case digit.
fn nibble(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        0..b'0' | 58..b'a' | 103.. => None,
    }
}

// === impl Attached ===

impl Attached {
    /// Somebody attaches these contents: to be said before it is looked whether their file is there.
    pub(super) fn attach(&self, contents: Contents) {
        let mut lately = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lately.now.add(contents);
    }

    /// A sweep begins.
    pub(super) fn begin(&self) {
        let mut lately = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lately.before = std::mem::take(&mut lately.now);
    }

    /// Does `remove` while nobody can say that he attaches these contents, unless somebody did lately.
    pub(super) fn unless_attached<T>(&self, contents: Contents, remove: impl FnOnce() -> T) -> Option<T> {
        let lately = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let free = !lately.now.may_have(contents) && !lately.before.may_have(contents);
        free.then(remove)
    }
}

impl Times {
    fn add(&mut self, contents: Contents) {
        if self.contents.len() < REMEMBERED_MAX {
            self.contents.insert(contents);
        } else {
            self.overrun |= !self.contents.contains(&contents);
        }
    }

    fn may_have(&self, contents: Contents) -> bool {
        self.overrun || self.contents.contains(&contents)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_are_given_to_files_are_read() {
        let digits = "00ff".repeat(8);
        let some = Contents::of_digits(digits.as_bytes());
        assert!(some.is_some());
        for (name, expected) in [
            (format!("{digits}.png"), some),
            (format!("{digits}.tar.gz"), some),
            (digits.clone(), None),
            (format!("{digits}0.png"), None),
            (format!("{}.png", "00fF".repeat(8)), None),
            (format!("{}.png", "00f".repeat(8)), None),
            (".0123456789abcdef.tmp".to_owned(), None),
            ("bed.jpg".to_owned(), None),
        ] {
            assert_eq!(Contents::of_file(&Path::new("/m/websocket/a").join(&name)), expected, "{name}");
        }
    }

    #[test]
    fn what_was_attached_is_not_removed_until_the_second_sweep_begins() {
        let (attached, contents) = (Attached::default(), Contents(7));
        let removed = || attached.unless_attached(contents, || ()).is_some();
        assert!(removed());
        attached.attach(contents);
        assert!(!removed());
        attached.begin();
        assert!(!removed(), "its message may not be accepted yet");
        attached.begin();
        assert!(removed());
    }

    #[test]
    fn when_more_was_attached_than_is_remembered_nothing_is_removed() {
        let attached = Attached::default();
        let fill = |count: usize| (0..count as u128).for_each(|value| attached.attach(Contents(value)));
        let removed = || attached.unless_attached(Contents(u128::MAX), || ()).is_some();
        fill(REMEMBERED_MAX);
        fill(REMEMBERED_MAX);
        assert!(removed(), "all of them are remembered");
        fill(REMEMBERED_MAX + 1);
        assert!(!removed());
        attached.begin();
        assert!(!removed());
        attached.begin();
        assert!(removed());
    }
}
