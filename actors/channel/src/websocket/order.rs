//! The order in which the frames of one chat take effect that came over one connection.
//!
//! Messages are handed to the journal in their order without waiting for each other's verdict. A control frame waits
//! until every message before it was admitted or refused, so a `/stop` finds the turn that was sent just before; it
//! never waits for a turn. What comes after a control frame that still waits comes after its effect, too.

use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

/// Where the next frame of a chat stands.
#[derive(Debug, Default)]
pub(crate) struct Order {
    /// Frames since the last control frame that have not taken effect.
    since: Option<TaskTracker>,
    /// What a message has to wait for: the last control frame, or a message that itself waits to be handed over.
    gate: Option<CancellationToken>,
}

/// The place of a message. It took its effect when this is dropped.
#[derive(Debug)]
pub(crate) struct MessagePlace {
    gate: Option<CancellationToken>,
    opens: Option<DropGuard>,
    _under_way: TaskTrackerToken,
}

/// The place of a control frame. It took its effect when this is dropped.
#[derive(Debug)]
pub(crate) struct ControlPlace {
    before: Option<TaskTracker>,
    _opens: DropGuard,
    _under_way: TaskTrackerToken,
}

impl Order {
    /// Takes the place of a message.
    pub(crate) fn message(&mut self) -> MessagePlace {
        let gate = self.gate.take().filter(|gate| !gate.is_cancelled());
        let opens = gate.is_some().then(|| self.shut());
        MessagePlace { gate, opens, _under_way: self.since.get_or_insert_default().token() }
    }

    /// Takes the place of a message that cannot be handed over at once: those after it wait for it.
    pub(crate) fn late_message(&mut self) -> MessagePlace {
        let gate = self.gate.take().filter(|gate| !gate.is_cancelled());
        let opens = Some(self.shut());
        MessagePlace { gate, opens, _under_way: self.since.get_or_insert_default().token() }
    }

    /// Takes the place of a control frame.
    pub(crate) fn control(&mut self) -> ControlPlace {
        let since = TaskTracker::new();
        let under_way = since.token();
        ControlPlace { before: self.since.replace(since), _opens: self.shut(), _under_way: under_way }
    }

    fn shut(&mut self) -> DropGuard {
        self.gate.insert(CancellationToken::new()).clone().drop_guard()
    }
}

impl MessagePlace {
    /// Whether it must not be handed over yet.
    pub(crate) fn waits(&self) -> bool {
        self.gate.is_some()
    }

    /// Waits until it may be handed over.
    pub(crate) async fn come(&self) {
        if let Some(gate) = &self.gate {
            gate.cancelled().await;
        }
    }

    /// It was handed over: the next one may be, too.
    pub(crate) fn handed_over(&mut self) {
        self.opens = None;
    }
}

impl ControlPlace {
    /// Waits until everything before it took effect.
    pub(crate) async fn come(&mut self) {
        if let Some(before) = self.before.take() {
            before.close();
            before.wait().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn messages_keep_their_order_behind_a_late_one() {
        let mut order = Order::default();
        let (mut late, after) = (order.late_message(), order.message());
        assert!(late.come().now_or_never().is_some(), "nothing is before it");
        assert!(after.waits() && after.come().now_or_never().is_none());
        late.handed_over();
        assert!(after.come().now_or_never().is_some());
    }

    #[test]
    fn control_waits_for_what_was_before_and_goes_before_what_comes_after() {
        let mut order = Order::default();
        assert!(order.control().come().now_or_never().is_some(), "nothing is before it");
        let (first, second) = (order.message(), order.message());
        assert!(!first.waits() && !second.waits(), "messages do not wait for each other");
        let (mut stop, mut after) = (order.control(), order.message());
        drop(second);
        {
            let mut come = std::pin::pin!(stop.come());
            assert!(come.as_mut().now_or_never().is_none(), "one is not admitted yet");
            drop(first);
            assert!(come.now_or_never().is_some());
        }
        assert!(after.waits() && after.come().now_or_never().is_none(), "the stop has not been heard yet");
        drop(stop);
        assert!(after.come().now_or_never().is_some());
        let mut next = order.message();
        assert!(next.come().now_or_never().is_none(), "the one before it comes first");
        after.handed_over();
        assert!(next.come().now_or_never().is_some());
        next.handed_over();
        assert!(!order.message().waits());
        let mut again = order.control();
        let mut come = std::pin::pin!(again.come());
        assert!(come.as_mut().now_or_never().is_none());
        drop((after, next));
        assert!(come.now_or_never().is_some());
    }
}
