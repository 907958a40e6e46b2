//! The session's own queue: the turns that wait, in accept order.
//!
//! Hints reach a session in any order, more than once, and late. The inbox makes a set of them: ordered by [`Seq`],
//! one item per turn, nothing that has ended. It holds positions in the log, not messages.
//! **Invariant:** bounded by [`ITEMS_MAX`]. What does not fit is still in the journal; [`Inbox::missed`] says so, and
//! the session loads again when it has worked off the rest.

use std::collections::VecDeque;
use std::sync::Arc;

use domain::ids::{Seq, TurnId};
use domain::prompt::{CANCELLED_NOTICE, DROPPED_NOTICE, SPENT_NOTICE, TIMED_OUT_NOTICE};
use protocol::journal::{Accepted, InboxItem};
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

/// Why a turn ends as cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cancelled {
    /// Somebody stopped it.
    Stopped,
    /// Whoever asked for it went away.
    Left,
    /// Its session was deleted.
    Deleted,
    /// Too many waited.
    Dropped,
    /// A message came that is more urgent.
    Interrupted,
    /// The time of a sub-agent was over.
    TimedOut,
    /// The tokens of a sub-agent were used up.
    Spent,
}

impl Cancelled {
    /// As the journal has it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Stopped => "stopped",
            Self::Left => "left",
            Self::Deleted => "deleted",
            Self::Dropped => "dropped",
            Self::Interrupted => "interrupted_by_message",
            Self::TimedOut => "timed_out",
            Self::Spent => "over_budget",
        }
    }

    /// As the log has it.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Stopped => "it was stopped by hand",
            Self::Left => "whoever asked went away, or waits no longer",
            Self::Deleted => "its session was deleted",
            Self::Dropped => "too many messages were waiting",
            Self::Interrupted => "a new message came, and the queue's mode is interrupt",
            Self::TimedOut => "its time was over",
            Self::Spent => "it had used up its tokens",
        }
    }

    /// As its user is told.
    pub fn notice(self) -> &'static str {
        match self {
            Self::Stopped | Self::Left | Self::Deleted | Self::Interrupted => CANCELLED_NOTICE,
            Self::Dropped => DROPPED_NOTICE,
            Self::TimedOut => TIMED_OUT_NOTICE,
            Self::Spent => SPENT_NOTICE,
        }
    }
}

/// The waiting turns of one session.
#[derive(Debug, Default)]
pub struct Inbox {
    waiting: VecDeque<InboxItem>,
    running: Option<(Seq, TurnId)>,
    /// Up to here all have ended.
    ended: Seq,
    /// Up to here it is known of all which are open: others have ended.
    told: Seq,
    /// Of those that wait: cancelled. They end as such when they are first, so that their messages stand in the
    /// transcript, which is what knows them again.
    cancelled: Vec<(Seq, Cancelled)>,
    missed: bool,
}

// === impl Inbox ===

impl Inbox {
    /// Takes a hint.
    pub fn offer(&mut self, item: InboxItem) -> Offered {
        let (seq, turn) = (item.seq, item.turn);
        if seq <= self.ended {
            return Offered::Ended;
        }
        if self.running.is_some_and(|running| running.0 == seq || running.1 == turn) {
            return Offered::Known;
        }
        let at = self.waiting.partition_point(|other| other.seq < seq);
        if self.waiting.get(at).is_some_and(|other| other.seq == seq) || self.waits(turn) {
            return Offered::Known;
        }
        if seq <= self.told {
            return Offered::Ended;
        }
        if self.waiting.len() >= ITEMS_MAX {
            self.missed = true;
            return Offered::Full;
        }
        self.waiting.insert(at, item);
        Offered::Added
    }

    /// Takes what the journal has at an activation, in order. Whatever else is up to `through` has ended.
    pub fn restore(&mut self, items: Vec<InboxItem>, through: Seq) {
        self.waiting.retain(|item| item.seq > through);
        let told = std::mem::take(&mut self.told);
        for item in items {
            self.offer(item);
        }
        self.told = told.max(through);
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
            let waiting = &self.waiting;
            self.cancelled.retain(|(seq, _)| waiting.iter().any(|item| item.seq == *seq));
        }
    }

    /// Cancels a waiting turn; false if it does not wait. The first reason stays.
    pub fn cancel(&mut self, turn: TurnId, why: Cancelled) -> bool {
        let Some(item) = self.waiting.iter().find(|item| item.turn == turn) else { return false };
        if self.why_cancelled(item.seq).is_none() {
            self.cancelled.push((item.seq, why));
        }
        true
    }

    /// Cancels all waiting turns, because somebody stopped them. The answer is how many had not been cancelled before.
    pub fn cancel_all(&mut self) -> usize {
        let before = self.cancelled();
        let why = |item: &InboxItem| (item.seq, self.why_cancelled(item.seq).unwrap_or(Cancelled::Stopped));
        self.cancelled = self.waiting.iter().map(why).collect();
        self.waiting.len() - before
    }

    /// Those that wait and were not cancelled, in order.
    pub fn wanted(&self) -> impl Iterator<Item = &InboxItem> {
        self.waiting.iter().filter(|item| self.why_cancelled(item.seq).is_none())
    }

    /// Cancels the oldest until no more than `cap` are wanted, but no events, nor the first open turn, which has begun; which.
    pub fn drop_oldest(&mut self, cap: usize) -> Vec<InboxItem> {
        let begun = usize::from(self.running.is_none());
        let wanted = |item: &&InboxItem| self.why_cancelled(item.seq).is_none();
        let waiting: Vec<&InboxItem> = self.waiting.iter().skip(begun).filter(wanted).collect();
        let surplus = waiting.len().saturating_sub(cap);
        let dropped: Vec<_> = waiting.into_iter().filter(|item| !item.event).take(surplus).cloned().collect();
        self.cancelled.extend(dropped.iter().map(|item| (item.seq, Cancelled::Dropped)));
        dropped
    }

    /// Takes out turns that end as another one took them up. Hints of them that come late are of turns that have ended.
    pub fn join(&mut self, turns: &[TurnId]) -> Vec<InboxItem> {
        let mut joined = Vec::with_capacity(turns.len());
        self.waiting.retain(|item| {
            let joins = turns.contains(&item.turn);
            if joins {
                joined.push(item.clone());
            }
            !joins
        });
        self.told = joined.last().map_or(self.told, |last| self.told.max(last.seq));
        joined
    }

    /// Puts back what [`join`](Self::join) took out.
    pub fn unjoin(&mut self, items: Vec<InboxItem>) {
        for item in items {
            let at = self.waiting.partition_point(|other| other.seq < item.seq);
            self.waiting.insert(at, item);
        }
    }

    /// Keeps the message of a turn that waits; whether it does.
    pub fn supply(&mut self, accepted: &Arc<Accepted>) -> bool {
        let item = self.waiting.iter_mut().find(|item| item.turn == accepted.turn);
        item.is_some_and(|item| {
            item.inline = Some(Arc::clone(accepted));
            true
        })
    }

    /// Place of the last one.
    pub fn last(&self) -> Option<Seq> {
        self.waiting.back().map(|item| item.seq)
    }

    fn why_cancelled(&self, seq: Seq) -> Option<Cancelled> {
        self.cancelled.iter().find(|(its, _)| *its == seq).map(|(_, why)| *why)
    }

    /// Takes out all that wait: they have ended.
    pub fn take_all(&mut self) -> Vec<InboxItem> {
        let all: Vec<_> = std::mem::take(&mut self.waiting).into();
        if let Some(last) = all.last() {
            self.ended = self.ended.max(last.seq);
            self.cancelled = Vec::new();
        }
        all
    }

    /// How many of those that wait were cancelled.
    pub fn cancelled(&self) -> usize {
        self.waiting.iter().filter(|item| self.why_cancelled(item.seq).is_some()).count()
    }

    /// Why the turn that is next was cancelled, if it was.
    pub fn next_cancelled(&self) -> Option<Cancelled> {
        self.why_cancelled(self.waiting.front()?.seq)
    }

    /// What is kept of it when the session loads again: which turns were cancelled.
    pub fn into_early(self) -> Self {
        Self { cancelled: self.cancelled, ..Self::default() }
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
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;
    use protocol::journal::LogPosition;
    use uuid::Uuid;

    use super::*;

    fn item(seq: u64) -> InboxItem {
        InboxItem { turn: turn(seq), seq: Seq(seq), at: LogPosition(seq), inline: None, push: None, event: false }
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
    fn a_cancelled_turn_keeps_its_place_and_stays_cancelled_over_a_load() {
        let mut inbox = Inbox::default();
        for seq in 1..=3 {
            inbox.offer(item(seq));
        }
        inbox.begin();
        assert!(inbox.cancel(turn(2), Cancelled::Left) && inbox.cancel(turn(2), Cancelled::Stopped));
        assert!(!inbox.cancel(turn(1), Cancelled::Left), "it runs");
        assert_eq!((inbox.len(), inbox.cancelled()), (2, 1));
        assert_eq!(inbox.next_cancelled(), Some(Cancelled::Left));
        let mut inbox = inbox.into_early();
        inbox.restore((2..=3).map(item).collect(), Seq(3));
        assert_eq!(inbox.next_cancelled(), Some(Cancelled::Left));
        assert_eq!(inbox.begin().unwrap().seq, Seq(2));
        inbox.end_running();
        assert_eq!(inbox.next_cancelled(), None);
        assert_eq!(inbox.cancel_all(), 1);
        assert_eq!(inbox.next_cancelled(), Some(Cancelled::Stopped));
    }

    #[test]
    fn a_late_hint_of_what_the_load_did_not_have_is_ended() {
        let mut inbox = Inbox::default();
        for seq in [2, 4, 6] {
            inbox.offer(item(seq));
        }
        // 1 runs again, and 2 and 4 ended in the meantime: they joined it before the load, 3 waits and 6 came behind it.
        inbox.restore(vec![item(1), item(3)], Seq(5));
        for (seq, expected) in [
            (1, Offered::Known),
            (2, Offered::Ended),
            (3, Offered::Known),
            (4, Offered::Ended),
            (5, Offered::Ended),
            (6, Offered::Known),
            (7, Offered::Added),
        ] {
            assert_eq!(inbox.offer(item(seq)), expected, "{seq}");
        }
        let begun = std::iter::from_fn(|| {
            let item = inbox.begin()?;
            inbox.end_running();
            Some(item.seq.0)
        });
        assert_eq!(begun.collect::<Vec<_>>(), [1, 3, 6, 7]);
    }

    #[test]
    fn too_many_are_dropped_but_no_events() {
        let mut inbox = Inbox::default();
        for seq in 1..=6 {
            inbox.offer(InboxItem { event: seq % 2 == 0, ..item(seq) });
        }
        inbox.drop_oldest(2);
        assert_eq!(inbox.wanted().map(|item| item.seq.0).collect::<Vec<_>>(), [1, 2, 4, 6], "1 counts as begun");
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
        Cancel(u64),
        CancelAll,
        /// The running turn takes up so many.
        Join(usize, bool),
        Drop(usize),
        /// Of the places up to the first, the journal has those open whose bit is set in the second.
        Restore(u64, u16),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            4 => (1..12u64).prop_map(Step::Offer),
            2 => Just(Step::Begin),
            2 => Just(Step::End),
            1 => (1..12u64).prop_map(Step::Cancel),
            1 => Just(Step::CancelAll),
            2 => (0..3usize, any::<bool>()).prop_map(|(count, durable)| Step::Join(count, durable)),
            1 => (0..4usize).prop_map(Step::Drop),
            1 => (0..12u64, any::<u16>()).prop_map(|(through, open)| Step::Restore(through, open)),
        ];
        proptest::collection::vec(step, 0..60)
    }

    proptest! {
        #[test]
        fn it_behaves_as_a_set_with_a_memory(steps in steps()) {
            let mut inbox = Inbox::default();
            let mut waiting = BTreeMap::new();
            let mut running = None;
            let mut high = 0;
            let mut ended = BTreeSet::new();
            for step in steps {
                match step {
                    Step::Offer(seq) => {
                        let expected = if seq <= high || ended.contains(&seq) {
                            Offered::Ended
                        } else if running == Some(seq) || waiting.contains_key(&seq) {
                            Offered::Known
                        } else {
                            waiting.insert(seq, false);
                            Offered::Added
                        };
                        prop_assert_eq!(inbox.offer(item(seq)), expected);
                    }
                    Step::Begin if running.is_none() => {
                        running = waiting.pop_first().map(|(seq, _)| seq);
                        prop_assert_eq!(inbox.begin().map(|item| item.seq.0), running);
                    }
                    Step::Begin => {}
                    Step::End => {
                        if let Some(seq) = running.take() {
                            high = high.max(seq);
                        }
                        inbox.end_running();
                    }
                    Step::Cancel(seq) => {
                        let there = waiting.get_mut(&seq).map(|cancelled| *cancelled = true).is_some();
                        prop_assert_eq!(inbox.cancel(turn(seq), Cancelled::Stopped), there);
                    }
                    Step::CancelAll => {
                        let fresh = waiting.values().filter(|cancelled| !**cancelled).count();
                        waiting.values_mut().for_each(|cancelled| *cancelled = true);
                        prop_assert_eq!(inbox.cancel_all(), fresh);
                    }
                    Step::Join(count, durable) if running.is_some() => {
                        let turns: Vec<_> = inbox.wanted().take(count).map(|item| item.turn).collect();
                        let joined = inbox.join(&turns);
                        prop_assert_eq!(joined.iter().map(|item| item.turn).collect::<Vec<_>>(), turns);
                        let last = joined.last().map_or(0, |last| last.seq.0);
                        if durable {
                            joined.iter().for_each(|item| assert_eq!(waiting.remove(&item.seq.0), Some(false)));
                        } else {
                            inbox.unjoin(joined);
                        }
                        ended.extend((1..=last).filter(|seq| Some(*seq) != running && !waiting.contains_key(seq)));
                    }
                    Step::Join(..) => {}
                    Step::Drop(cap) => {
                        let begun = usize::from(running.is_none());
                        let mut wanted: Vec<_> = waiting.iter_mut().skip(begun).filter(|(_, gone)| !**gone).collect();
                        let surplus = wanted.len().saturating_sub(cap);
                        wanted.iter_mut().take(surplus).for_each(|(_, gone)| **gone = true);
                        inbox.drop_oldest(cap);
                    }
                    Step::Restore(through, open) if running.is_none() => {
                        let mut items = Vec::new();
                        for seq in 1..=through {
                            if seq > high && !ended.contains(&seq) && open & (1 << seq) != 0 {
                                items.push(item(seq));
                                waiting.entry(seq).or_insert(false);
                            } else {
                                ended.insert(seq);
                                waiting.remove(&seq);
                            }
                        }
                        inbox.restore(items, Seq(through));
                    }
                    Step::Restore(..) => {}
                }
                prop_assert_eq!(inbox.next_cancelled().is_some(), waiting.first_key_value().is_some_and(|(_, cancelled)| *cancelled));
                prop_assert_eq!(inbox.cancelled(), waiting.values().filter(|cancelled| **cancelled).count());
                prop_assert_eq!(inbox.len(), waiting.len());
            }
        }
    }
}
