//! The session's own queue: the turns that wait, in accept order.
//!
//! Hints reach a session in any order, more than once, and late. The inbox makes a set of them: ordered by [`Seq`],
//! one item per turn, nothing that has ended. It holds positions in the log, not messages.
//! **Invariant:** bounded by [`ITEMS_MAX`]. What does not fit is still in the journal; [`Inbox::missed`] says so, and
//! the session loads again when it has worked off the rest.

use std::collections::VecDeque;

use domain::ids::{Seq, TurnId};
use protocol::journal::InboxItem;
use supervision::planted::{Bug, planted};

/// How many turns may wait in memory. The journal refuses far earlier, unless it is configured above this.
pub const ITEMS_MAX: usize = 4096;

/// What became of a hint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offered {
    /// It waits now.
    Added,
    /// It waits or runs already.
    Known,
    /// Its turn has ended.
    Ended,
    /// No room; the journal still has it.
    Full,
}

/// The waiting turns of one session.
#[derive(Debug, Default)]
pub struct Inbox {
    waiting: VecDeque<InboxItem>,
    running: Option<(Seq, TurnId)>,
    ended: Seq,
    /// Ended out of order (cancelled while they waited): above `ended`, ascending.
    ended_ahead: Vec<Seq>,
    missed: bool,
}

// === impl Inbox ===

impl Inbox {
    /// Takes a hint.
    pub fn offer(&mut self, item: InboxItem) -> Offered {
        let (seq, turn) = (item.seq, item.turn);
        if seq <= self.ended || self.ended_ahead.binary_search(&seq).is_ok() {
            return Offered::Ended;
        }
        if self.running.is_some_and(|running| running.0 == seq || running.1 == turn) {
            return Offered::Known;
        }
        let at = self.waiting.partition_point(|other| other.seq < seq);
        if self.waiting.get(at).is_some_and(|other| other.seq == seq) || self.waits(turn) {
            return Offered::Known;
        }
        if self.waiting.len() >= ITEMS_MAX {
            self.missed = true;
            return Offered::Full;
        }
        self.waiting.insert(at, item);
        Offered::Added
    }

    /// Takes what the journal has at an activation, in order. What is before the first of it has ended.
    pub fn restore(&mut self, items: Vec<InboxItem>) {
        if let Some(first) = items.first() {
            self.end_through(Seq(first.seq.0.saturating_sub(1)));
        }
        for item in items {
            self.offer(item);
        }
    }

    /// Everything up to `seq` has ended.
    pub fn end_through(&mut self, seq: Seq) {
        self.ended = self.ended.max(seq);
        let ended = self.ended;
        self.waiting.retain(|item| item.seq > ended);
    }

    /// Takes out the first turn; it counts as running until [`end_running`](Self::end_running).
    ///
    /// # Panics
    /// When one is running already: turns of a session never overlap.
    pub fn begin(&mut self) -> Option<InboxItem> {
        assert!(self.running.is_none(), "a turn begins while another one runs");
        let newest = planted(Bug::NewestFirst);
        let item = if newest { self.waiting.pop_back() } else { self.waiting.pop_front() }?;
        self.running = Some((item.seq, item.turn));
        if self.waiting.is_empty() {
            // An idle session keeps no buffer.
            self.waiting = VecDeque::new();
        }
        Some(item)
    }

    /// The running turn has ended.
    pub fn end_running(&mut self) {
        if let Some((seq, _)) = self.running.take() {
            self.ended = self.ended.max(seq);
            let ended = self.ended;
            self.ended_ahead.retain(|ahead| *ahead > ended);
        }
    }

    /// Takes out a waiting turn that ends before its time.
    pub fn remove(&mut self, turn: TurnId) -> bool {
        let Some(at) = self.waiting.iter().position(|item| item.turn == turn) else {
            return false;
        };
        if let Some(item) = self.waiting.remove(at) {
            self.note_ahead(item.seq);
        }
        true
    }

    /// Takes out all waiting turns, in order.
    pub fn clear(&mut self) -> Vec<TurnId> {
        let gone = std::mem::take(&mut self.waiting);
        for item in &gone {
            self.note_ahead(item.seq);
        }
        gone.into_iter().map(|item| item.turn).collect()
    }

    /// Takes out all waiting turns but one, in order.
    pub fn clear_but(&mut self, kept: TurnId) -> Vec<TurnId> {
        let gone: Vec<TurnId> = self.waiting.iter().map(|item| item.turn).filter(|turn| *turn != kept).collect();
        for turn in &gone {
            self.remove(*turn);
        }
        gone
    }

    /// Whether this turn waits.
    pub fn waits(&self, turn: TurnId) -> bool {
        self.waiting.iter().any(|item| item.turn == turn)
    }

    /// The running turn.
    pub fn running(&self) -> Option<TurnId> {
        self.running.map(|(_, turn)| turn)
    }

    /// Number of waiting turns.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether the journal has turns that did not fit in here.
    pub fn missed(&self) -> bool {
        self.missed
    }

    fn note_ahead(&mut self, seq: Seq) {
        let at = self.ended_ahead.partition_point(|other| *other < seq);
        self.ended_ahead.insert(at, seq);
        if self.running.is_none() && self.waiting.is_empty() {
            // Nothing earlier is left, so the whole range has ended.
            self.ended = self.ended_ahead.pop().unwrap_or(self.ended).max(self.ended);
            self.ended_ahead = Vec::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;
    use protocol::journal::LogPosition;
    use uuid::Uuid;

    use super::*;

    fn item(seq: u64) -> InboxItem {
        InboxItem { turn: turn(seq), seq: Seq(seq), at: LogPosition(seq), inline: None }
    }

    fn turn(seq: u64) -> TurnId {
        TurnId(Uuid::from_u128(u128::from(seq) + 1))
    }

    #[test]
    fn hints_are_sorted_deduplicated_and_late_ones_dropped() {
        let mut inbox = Inbox::default();
        assert_eq!(inbox.offer(item(2)), Offered::Added);
        assert_eq!(inbox.offer(item(1)), Offered::Added);
        assert_eq!(inbox.offer(item(2)), Offered::Known);
        assert_eq!(inbox.begin().unwrap().seq, Seq(1));
        assert_eq!(inbox.offer(item(1)), Offered::Known);
        inbox.end_running();
        assert_eq!(inbox.offer(item(1)), Offered::Ended);
        assert_eq!(inbox.begin().unwrap().seq, Seq(2));
    }

    #[test]
    fn a_turn_that_was_removed_early_does_not_come_back() {
        let mut inbox = Inbox::default();
        for seq in 1..=3 {
            inbox.offer(item(seq));
        }
        inbox.begin();
        assert!(inbox.remove(turn(2)));
        assert!(!inbox.remove(turn(2)));
        assert_eq!(inbox.offer(item(2)), Offered::Ended);
        inbox.end_running();
        assert_eq!(inbox.begin().unwrap().seq, Seq(3));
    }

    #[test]
    fn what_does_not_fit_is_told() {
        let mut inbox = Inbox::default();
        for seq in 0..ITEMS_MAX as u64 {
            assert_eq!(inbox.offer(item(seq + 1)), Offered::Added);
        }
        assert!(!inbox.missed());
        assert_eq!(inbox.offer(item(ITEMS_MAX as u64 + 1)), Offered::Full);
        assert!(inbox.missed());
    }

    #[derive(Debug, Clone)]
    enum Step {
        Offer(u64),
        Begin,
        End,
        Remove(u64),
        Clear,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            4 => (1..12u64).prop_map(Step::Offer),
            2 => Just(Step::Begin),
            2 => Just(Step::End),
            1 => (1..12u64).prop_map(Step::Remove),
            1 => Just(Step::Clear),
        ];
        proptest::collection::vec(step, 0..60)
    }

    proptest! {
        #[test]
        fn it_behaves_as_a_set_with_a_memory(steps in steps()) {
            let mut inbox = Inbox::default();
            let mut waiting = BTreeMap::new();
            let mut running = None;
            let mut over = BTreeSet::new();
            let mut high = 0;
            for step in steps {
                match step {
                    Step::Offer(seq) => {
                        let expected = if over.contains(&seq) || seq <= high {
                            Offered::Ended
                        } else if running == Some(seq) || waiting.contains_key(&seq) {
                            Offered::Known
                        } else {
                            waiting.insert(seq, ());
                            Offered::Added
                        };
                        prop_assert_eq!(inbox.offer(item(seq)), expected);
                    }
                    Step::Begin if running.is_none() => {
                        running = waiting.pop_first().map(|(seq, ())| seq);
                        prop_assert_eq!(inbox.begin().map(|item| item.seq.0), running);
                    }
                    Step::Begin => {}
                    Step::End => {
                        if let Some(seq) = running.take() {
                            high = high.max(seq);
                        }
                        inbox.end_running();
                    }
                    Step::Remove(seq) => {
                        let there = waiting.remove(&seq).is_some();
                        prop_assert_eq!(inbox.remove(turn(seq)), there);
                        if there {
                            over.insert(seq);
                            if running.is_none() && waiting.is_empty() {
                                high = high.max(seq).max(over.last().copied().unwrap_or(0));
                            }
                        }
                    }
                    Step::Clear => {
                        let seqs: Vec<u64> = std::mem::take(&mut waiting).into_keys().collect();
                        let turns: Vec<TurnId> = seqs.iter().map(|seq| turn(*seq)).collect();
                        prop_assert_eq!(inbox.clear(), turns);
                        over.extend(&seqs);
                        if running.is_none() && !seqs.is_empty() {
                            high = high.max(over.last().copied().unwrap_or(0));
                        }
                    }
                }
                prop_assert_eq!(inbox.len(), waiting.len());
            }
        }
    }
}
