//! The bounded buffer between the hub and one client's connection.
//!
//! Pieces of text that wait are merged; when the buffer is still over its limit the client counts as too slow and loses
//! its connection. Whoever fills it never waits.

use std::collections::{HashMap, VecDeque};
use std::mem;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use domain::ids::{Attempt, TurnId};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use protocol::metrics::gauge;
use protocol::turn::TurnProgress;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::ring::edit_bytes;
use super::{Shown, Sink};

/// What one connection may have waiting.
pub(crate) const OUTLET_BYTES_MAX: usize = 1024 * 1024;

/// What it may have waiting in addition for each chat that it follows: the turns of thousands of chats may end at once,
/// and a client that reads is not slow because of that.
pub(crate) const OUTLET_CHAT_BYTES: usize = 2048;

/// What an item costs besides its text.
const ITEM_BYTES: usize = 200;

/// Items of the greatest cost that may wait. An answer can be larger than everything that may wait, and comes whole twice
/// (as the end of its stream, as the end of its turn): each costs this part at most, as no client can take it faster than it
/// is sent. Pieces of text, which grow as they are merged, cost all that they have.
const LARGE_ITEMS_MAX: usize = 4;

/// One thing for the connection's writer.
#[derive(Debug)]
pub(crate) enum Out<N> {
    /// An event from the hub.
    Shown(Shown),
    /// Something of the connection's own.
    Note(N),
}

/// The buffer.
pub(crate) struct Outlet<N> {
    queue: Mutex<Queue<N>>,
    wake: Notify,
    slow: CancellationToken,
    closed: CancellationToken,
    bytes_max: AtomicUsize,
    outflow: Outflow,
}

/// What waits for the clients of a door, and who was too slow.
#[derive(Debug, Clone, Default)]
pub(crate) struct Outflow {
    pub(crate) bytes: Gauge,
    pub(crate) slow: Counter,
}

struct Queue<N> {
    items: VecDeque<Item<N>>,
    bytes: usize,
    /// The same, but for what large items have above the most that one costs.
    cost: usize,
}

struct Item<N> {
    out: Out<N>,
    bytes: usize,
}

impl<N> Outlet<N> {
    pub(crate) fn new(bytes_max: usize, outflow: Outflow) -> Arc<Self> {
        let queue = Mutex::new(Queue { items: VecDeque::new(), bytes: 0, cost: 0 });
        let (wake, slow, closed) = (Notify::new(), CancellationToken::new(), CancellationToken::new());
        Arc::new(Self { queue, wake, slow, closed, bytes_max: AtomicUsize::new(bytes_max), outflow })
    }

    /// Allows more to wait.
    pub(crate) fn grow(&self, bytes: usize) {
        self.bytes_max.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Adds something of the connection's own, of about `bytes` bytes.
    pub(crate) fn note(&self, note: N, bytes: usize) {
        self.push(Out::Note(note), bytes);
    }

    /// Resolves once the client has proven too slow.
    pub(crate) async fn too_slow(&self) {
        self.slow.cancelled().await;
    }

    /// Resolves once no event will come any more. What came before is still to be taken.
    pub(crate) async fn closed(&self) {
        self.closed.cancelled().await;
    }

    /// Waits until there is something, and takes all of it.
    pub(crate) async fn take(&self) -> VecDeque<Out<N>> {
        loop {
            let items = {
                let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
                self.outflow.bytes.dec_by(gauge(mem::take(&mut queue.bytes)));
                queue.cost = 0;
                mem::take(&mut queue.items)
            };
            if !items.is_empty() {
                return items.into_iter().map(|item| item.out).collect();
            }
            self.wake.notified().await;
        }
    }

    fn push(&self, item: Out<N>, text_bytes: usize) {
        if self.slow.is_cancelled() {
            return;
        }
        let bytes_max = self.bytes_max.load(Ordering::Relaxed);
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let before = queue.bytes;
        let cost_max = bytes_max / LARGE_ITEMS_MAX;
        queue.push(item, text_bytes, cost_max);
        if queue.cost > bytes_max {
            queue.merge(cost_max);
            if queue.cost > bytes_max {
                queue.items = VecDeque::new();
                (queue.bytes, queue.cost) = (0, 0);
                self.slow.cancel();
                self.outflow.slow.inc();
            }
        }
        self.outflow.bytes.inc_by(gauge(queue.bytes) - gauge(before));
        drop(queue);
        self.wake.notify_one();
    }
}

impl<N> Drop for Outlet<N> {
    fn drop(&mut self) {
        let left = self.queue.get_mut().unwrap_or_else(PoisonError::into_inner).bytes;
        self.outflow.bytes.dec_by(gauge(left));
    }
}

impl<N: Send + 'static> Sink for Outlet<N> {
    fn show(&self, shown: &Shown) {
        let bytes = shown_bytes(shown);
        self.push(Out::Shown(shown.clone()), bytes);
    }

    fn closed(&self) {
        self.closed.cancel();
    }
}

impl<N> Item<N> {
    fn cost(&self, cost_max: usize) -> usize {
        match &self.out {
            Out::Shown(shown) if is_piece(shown) => self.bytes,
            Out::Shown(_) | Out::Note(_) => self.bytes.min(cost_max),
        }
    }
}

impl<N> Queue<N> {
    /// Adds an item, which costs `cost_max` at most if it comes whole.
    fn push(&mut self, out: Out<N>, text_bytes: usize, cost_max: usize) {
        if let (Some(Item { out: Out::Shown(last), bytes }), Out::Shown(next)) = (self.items.back_mut(), &out)
            && join(last, next)
        {
            self.cost += text_bytes;
            self.bytes += text_bytes;
            *bytes += text_bytes;
            return;
        }
        let bytes = text_bytes + ITEM_BYTES;
        let item = Item { out, bytes };
        self.bytes += bytes;
        self.cost += item.cost(cost_max);
        self.items.push_back(item);
    }

    /// Merges all deltas of one stream between two of its other events, also where events of other turns lie between.
    fn merge(&mut self, cost_max: usize) {
        let mut open: HashMap<(TurnId, Attempt), usize> = HashMap::new();
        let mut kept: VecDeque<Item<N>> = VecDeque::with_capacity(self.items.len() / 2);
        for item in mem::take(&mut self.items) {
            let Out::Shown(shown) = &item.out else {
                kept.push_back(item);
                continue;
            };
            let stream = (shown.event.turn, shown.event.attempt);
            let earlier = open.get(&stream).and_then(|index| kept.get_mut(*index));
            if let Some(Item { out: Out::Shown(earlier), bytes }) = earlier
                && join(earlier, shown)
            {
                *bytes += item.bytes - ITEM_BYTES;
                self.bytes -= ITEM_BYTES;
                continue;
            }
            open.insert(stream, kept.len());
            kept.push_back(item);
        }
        self.cost = kept.iter().map(|item| item.cost(cost_max)).sum();
        self.items = kept;
    }
}

/// Whether it is a piece of text, to which others are appended.
fn is_piece(shown: &Shown) -> bool {
    matches!(shown.event.what, TurnProgress::Delta(_) | TurnProgress::Reasoning(_))
}

/// Appends `next` to `last` when both are text of the same stream.
fn join(last: &mut Shown, next: &Shown) -> bool {
    let same = last.event.turn == next.event.turn
        && last.event.attempt == next.event.attempt
        && last.round == next.round
        && last.gap == next.gap
        && last.had == next.had
        && !next.restart;
    if !same {
        return false;
    }
    match (&mut last.event.what, &next.event.what) {
        (TurnProgress::Delta(text), TurnProgress::Delta(more))
        | (TurnProgress::Reasoning(text), TurnProgress::Reasoning(more)) => text.push_str(more),
        (
            TurnProgress::Started
            | TurnProgress::Delta(_)
            | TurnProgress::Reasoning(_)
            | TurnProgress::StreamEnd { .. }
            | TurnProgress::ToolStarted { .. }
            | TurnProgress::ToolEnded { .. }
            | TurnProgress::Notice(_)
            | TurnProgress::Goal(_)
            | TurnProgress::Finished(_),
            _,
        ) => return false,
    }
    last.event.seq = next.event.seq;
    true
}

fn shown_bytes(shown: &Shown) -> usize {
    match &shown.event.what {
        TurnProgress::Started => 0,
        TurnProgress::Delta(text) | TurnProgress::Reasoning(text) => text.len(),
        TurnProgress::StreamEnd { text, .. } => text.len(),
        TurnProgress::ToolStarted { name, arguments, .. } => name.len() + arguments.len(),
        TurnProgress::ToolEnded { name, result, edit, .. } => name.len() + result.len() + edit_bytes(edit),
        TurnProgress::Notice(text) => text.len(),
        TurnProgress::Goal(goal) => goal.objective.len(),
        TurnProgress::Finished(finished) => finished.text.len(),
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use domain::ids::SessionKey;
    use protocol::turn::TurnEvent;

    use super::*;

    fn shown(turn: u128, seq: u64, what: TurnProgress) -> Shown {
        let key = SessionKey::new("websocket:c").unwrap();
        let turn = TurnId(uuid::Uuid::from_u128(turn));
        let event = TurnEvent { key, turn, attempt: Attempt(1), seq, what };
        Shown { event, round: 1, gap: false, had: false, restart: false }
    }

    fn delta(turn: u128, seq: u64, text: &str) -> Shown {
        shown(turn, seq, TurnProgress::Delta(text.to_owned()))
    }

    fn taken(outlet: &Outlet<Infallible>) -> Vec<(u128, u64, String)> {
        let items = mem::take(&mut outlet.queue.lock().unwrap().items);
        let items = items.into_iter().map(|item| match item.out {
            Out::Shown(shown) => {
                let text = match shown.event.what {
                    TurnProgress::Delta(text) => text,
                    TurnProgress::Started
                    | TurnProgress::Reasoning(_)
                    | TurnProgress::StreamEnd { .. }
                    | TurnProgress::ToolStarted { .. }
                    | TurnProgress::ToolEnded { .. }
                    | TurnProgress::Notice(_)
                    | TurnProgress::Goal(_)
                    | TurnProgress::Finished(_) => "-".to_owned(),
                };
                (shown.event.turn.0.as_u128(), shown.event.seq, text)
            }
            Out::Note(never) => match never {},
        });
        items.collect()
    }

    #[test]
    fn neighboring_text_is_one_piece() {
        let outlet = Outlet::<Infallible>::new(OUTLET_BYTES_MAX, Outflow::default());
        for (turn, seq, text) in [(1, 1, "a"), (1, 2, "b"), (2, 1, "x"), (1, 3, "c")] {
            outlet.show(&delta(turn, seq, text));
        }
        let pieces = [(1, 2, "ab"), (2, 1, "x"), (1, 3, "c")];
        assert_eq!(taken(&outlet), pieces.map(|(turn, seq, text)| (turn, seq, text.to_owned())));
    }

    #[test]
    fn a_full_buffer_merges_across_turns_but_never_across_other_events() {
        let outlet = Outlet::<Infallible>::new(7 * ITEM_BYTES, Outflow::default());
        for seq in 1..=3 {
            outlet.show(&delta(1, seq, "a"));
            outlet.show(&delta(2, seq, "b"));
        }
        outlet.show(&shown(1, 4, TurnProgress::StreamEnd { text: "".into(), more: true, merge: false }));
        outlet.show(&delta(1, 5, "z"));
        let pieces = [(1, 3, "aaa"), (2, 3, "bbb"), (1, 4, "-"), (1, 5, "z")];
        assert_eq!(taken(&outlet), pieces.map(|(turn, seq, text)| (turn, seq, text.to_owned())));
        assert!(!outlet.slow.is_cancelled());
    }

    #[test]
    fn an_answer_that_is_larger_than_all_that_may_wait_passes_and_a_slow_client_still_is_one() {
        let outlet = Outlet::<Infallible>::new(1000, Outflow::default());
        let large = "x".repeat(2000);
        (0..2).for_each(|_| outlet.show(&delta(1, 1, &"x".repeat(100))));
        outlet.show(&shown(1, 2, TurnProgress::StreamEnd { text: large.as_str().into(), more: false, merge: false }));
        outlet.show(&shown(1, 3, TurnProgress::Notice(large.as_str().into())));
        assert!(!outlet.slow.is_cancelled());
        assert_eq!(outlet.outflow.bytes.get(), 200 + 2 * 2000 + 3 * i64::try_from(ITEM_BYTES).unwrap());
        assert_eq!(taken(&outlet).len(), 3);
        for seq in 4..=8 {
            outlet.show(&shown(1, seq, TurnProgress::Notice(large.as_str().into())));
        }
        assert!(outlet.slow.is_cancelled());
    }

    #[test]
    fn text_that_is_merged_costs_all_of_it() {
        let outlet = Outlet::<Infallible>::new(1000, Outflow::default());
        (0..20).for_each(|seq| outlet.show(&delta(1, seq, &"x".repeat(100))));
        assert!(outlet.slow.is_cancelled());
    }

    #[test]
    fn over_its_limit_a_client_is_too_slow_and_holds_nothing() {
        let outlet = Outlet::<Infallible>::new(1000, Outflow::default());
        for seq in 1..=20 {
            outlet.show(&shown(1, seq, TurnProgress::Notice("x".repeat(100).as_str().into())));
        }
        assert!(outlet.slow.is_cancelled());
        assert!(taken(&outlet).is_empty());
    }
}
