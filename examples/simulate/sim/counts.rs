//! What is counted over a run.

use serde::Serialize;

/// Declares the counts and how those of two runs are added, so that none is forgotten.
macro_rules! counts {
    ($($(#[doc = $doc:literal])* $name:ident,)*) => {
        /// What was counted over a run.
        #[derive(Debug, Clone, Copy, Default, Serialize)]
        pub struct Counts {
            $($(#[doc = $doc])* pub $name: u64,)*
        }

        impl Counts {
            /// Adds those of another run.
            pub fn add(&mut self, other: &Self) {
                $(self.$name += other.$name;)*
            }
        }
    };
}

counts! {
    /// Events, each followed by the checks.
    events,
    /// Crashes of actors.
    crashes,
    /// Processes that ended with the power.
    power_cuts,
    /// Messages that were acknowledged.
    accepted,
    /// Turns that were answered.
    done,
    /// Turns whose model failed.
    errors,
    /// Turns that were given up.
    dead,
    /// Turns that others took up.
    joined,
    /// Turns that were cancelled.
    cancelled,
    /// Times that a message was sent.
    sends,
    /// Sends that were found to be repeats.
    duplicates,
    /// Sends that were found to misuse an id.
    conflicts,
    /// Sends that were refused for now.
    refusals,
    /// Turns that were begun again.
    recovered,
    /// Effects of tools.
    effects,
    /// Messages that a push channel took.
    receipts,
    /// Those of them that it had before.
    repeats,
    /// Messages that it will never have.
    undeliverable,
    /// Edits that were answered.
    edits,
    /// Copies of sessions that were answered.
    forks,
    /// Sessions that were deleted or archived.
    closes,
    /// Sessions that were taken back.
    restores,
    /// Times that rules of a queue were set.
    queues_set,
    /// Runs of sub-agents that were begun.
    runs,
    /// Those of them that were reported.
    reports,
    /// Messages that other programs handed in and that were told.
    handed_in,
    /// Moments of jobs that were used.
    jobs_run,
    /// Sessions that were held back.
    quarantines,
    /// Sessions that left memory for being idle.
    passivations,
    /// Processes.
    processes,
    /// Processes that were killed.
    kills,
    /// Processes that gave up as their disk failed.
    disk_failures,
    /// Processes that were stopped in order.
    orderly_stops,
}
