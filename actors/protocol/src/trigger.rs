//! Local triggers, as sessions and commands see them.
//!
//! | call | from | answer |
//! |---|---|---|
//! | [`TriggerBook::create`] | a session that was told `/trigger NAME` | the trigger, durable; blocks |
//! | [`TriggerBook::list`] | doors, sessions | all of them; blocks |

use std::io;

use domain::trigger::{Target, Trigger, TriggerId};

/// The triggers of a workspace.
pub trait TriggerBook: Send + Sync + 'static {
    /// Makes one. The same seed makes the same one again: whoever asks twice gets one.
    fn create(&self, seed: &[u8], name: &str, target: &Target) -> io::Result<Trigger>;
    /// All of them, in the order in which they were made.
    fn list(&self) -> io::Result<Vec<Trigger>>;
    /// Removes one; whether it was there.
    fn remove(&self, id: &TriggerId) -> io::Result<bool>;
}
