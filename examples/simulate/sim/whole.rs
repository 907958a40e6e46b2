//! What is true of all sessions together.

use protocol::journal::JournalStatus;

use super::books::Books;

impl Books {
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
