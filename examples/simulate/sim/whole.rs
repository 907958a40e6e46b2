//! What is true of all sessions together, and of tools.

use domain::ids::{SessionKey, TurnId};
use protocol::journal::JournalStatus;

use super::books::Books;

impl Books {
    /// A tool was called by `turn` of an incarnation.
    pub fn tool(&mut self, key: &SessionKey, epoch: u64) {
        let present = self.beings.get(key).and_then(|being| being.epoch);
        let wrong = || format!("a tool is run for incarnation {epoch} of {key}, not {present:?}");
        self.check(present == Some(epoch), wrong);
    }

    /// A tool that must not run twice had its effect.
    pub fn effect(&mut self, turn: TurnId, of: &str) {
        self.counts.effects += 1;
        let times = self.effects.entry((turn, of.to_owned())).or_default();
        *times += 1;
        let times = *times;
        self.check(times == 1, || format!("tool call {of} had its effect {times} times"));
    }

    /// Whatever the journal counts: accepted = done + dead + cancelled + open.
    pub fn check_totals(&mut self, status: &JournalStatus) {
        let JournalStatus { accepted, done, dead, cancelled, open, .. } = *status;
        let adds_up = accepted == done + dead + cancelled + open;
        self.check(adds_up, || {
            format!("{accepted} accepted are not {done} done, {dead} dead, {cancelled} cancelled, {open} open")
        });
    }

    /// Whether sessions live.
    pub fn any_lives(&self) -> bool {
        self.beings.values().any(|being| being.live > 0)
    }

    /// Nobody may live any more after an orderly stop.
    pub fn check_all_ended(&mut self) {
        let living: Vec<_> =
            self.beings.iter().filter(|(_, being)| being.live > 0).map(|(key, _)| key.clone()).collect();
        self.check(living.is_empty(), || format!("{living:?} live after the process was stopped in order"));
    }
}
