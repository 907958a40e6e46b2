//! Bugs that are planted on purpose, so that the simulation can show that it finds them; and what a simulation needs to
//! let an actor panic in the middle of its work.
//!
//! Each bug is one `if planted(Bug::…)` at the one place that it belongs to. A program that is built without the feature
//! `planted-bugs` has none of them: the question is answered `false` at compile time. With the feature, nothing is
//! planted until a test says so, for its own thread.

use protocol::supervision::Kind;

/// A bug that can be planted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    /// The journal answers before its batch is on the device.
    AckBeforeSync,
    /// The journal never syncs what it writes.
    NoFsync,
    /// The name of a new segment of the journal is not made durable.
    NoDirSync,
    /// A batch of the journal is taken though its checksum is wrong.
    NoChecksum,
    /// Transcripts count as durable without a sync.
    UnsyncedView,
    /// What a transcript file lacks is not written into it when its session wakes.
    NoViewRepair,
    /// A message that was sent again is taken as a new one.
    NoDedupe,
    /// An accepted message is not handed to its session when that is live.
    LostPoke,
    /// A session leaves memory though mail is on its way to it.
    NaivePassivation,
    /// The newest waiting turn of a session goes first.
    NewestFirst,
    /// A tool call whose outcome is unknown is run again.
    ToolRerun,
    /// The answer of a turn that was cut is written twice.
    DoubleReply,
    /// What a turn has crashed is forgotten with the process.
    ForgottenCrashes,
    /// A session is said to have ended before that is durable.
    EarlyDelete,
    /// That the file of an ended transcript was moved is not written down.
    ForgottenMove,
    /// A moment of a job has another message each time that it is handed over.
    FreshMoment,
}

impl Bug {
    /// All of them.
    pub const ALL: [Self; 16] = [
        Self::AckBeforeSync,
        Self::NoFsync,
        Self::NoDirSync,
        Self::NoChecksum,
        Self::UnsyncedView,
        Self::NoViewRepair,
        Self::NoDedupe,
        Self::LostPoke,
        Self::NaivePassivation,
        Self::NewestFirst,
        Self::ToolRerun,
        Self::DoubleReply,
        Self::ForgottenCrashes,
        Self::EarlyDelete,
        Self::ForgottenMove,
        Self::FreshMoment,
    ];
}

#[cfg(feature = "planted-bugs")]
mod of_thread {
    use std::cell::Cell;

    use super::{Bug, Kind};

    thread_local! {
        static PLANTED: Cell<Option<Bug>> = const { Cell::new(None) };
        static ACTING: Cell<Option<Kind>> = const { Cell::new(None) };
    }

    /// Whether `bug` is planted on this thread.
    #[inline]
    pub fn planted(bug: Bug) -> bool {
        PLANTED.get() == Some(bug)
    }

    /// Plants `bug` (or none) on this thread, in place of the one before, until the guard is dropped.
    #[must_use = "the bug is there as long as the guard"]
    pub fn plant(bug: Option<Bug>) -> Plant {
        Plant(PLANTED.replace(bug))
    }

    /// Puts back what was planted before when it is dropped.
    #[derive(Debug)]
    pub struct Plant(Option<Bug>);

    impl Drop for Plant {
        fn drop(&mut self) {
            PLANTED.set(self.0);
        }
    }

    /// What sort of actor is at work on this thread: a panic now is caught by its supervisor.
    pub fn acting() -> Option<Kind> {
        ACTING.get()
    }

    pub(crate) fn act(kind: Kind) -> Act {
        Act(ACTING.replace(Some(kind)))
    }

    pub(crate) struct Act(Option<Kind>);

    impl Drop for Act {
        fn drop(&mut self) {
            ACTING.set(self.0);
        }
    }
}

#[cfg(feature = "planted-bugs")]
pub(crate) use of_thread::act;
#[cfg(feature = "planted-bugs")]
pub use of_thread::{Plant, acting, plant, planted};

/// Whether `bug` is planted: never, in a program without the feature `planted-bugs`.
#[cfg(not(feature = "planted-bugs"))]
#[inline]
pub const fn planted(_: Bug) -> bool {
    false
}

#[cfg(not(feature = "planted-bugs"))]
pub(crate) struct Act;

#[cfg(not(feature = "planted-bugs"))]
#[inline]
pub(crate) const fn act(_: Kind) -> Act {
    Act
}

#[cfg(all(test, feature = "planted-bugs"))]
mod tests {
    use super::*;

    #[test]
    fn a_bug_is_there_for_its_thread_until_its_guard_goes() {
        assert!(Bug::ALL.into_iter().all(|bug| !planted(bug)));
        let outer = plant(Some(Bug::NoFsync));
        {
            let _inner = plant(Some(Bug::LostPoke));
            assert!(planted(Bug::LostPoke) && !planted(Bug::NoFsync));
        }
        assert!(planted(Bug::NoFsync));
        assert!(std::thread::spawn(|| !planted(Bug::NoFsync)).join().unwrap());
        drop(outer);
        assert!(!planted(Bug::NoFsync));
    }
}
