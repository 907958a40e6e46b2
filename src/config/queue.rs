//! The section `queue`.

use std::time::Duration;

use domain::queue::{QueueDrop, QueueMode, QueueRules};
use serde::Deserialize;

use super::key::{Key, Kind, Section};

section! {
    /// `queue`: see `domain::queue`.
    Queue {
        /// How waiting messages are taken up: by the running turn between its tool calls, each by a turn of its own, all by
        /// one turn, or at once, for which the running turn is cancelled.
        mode: QueueMode = QueueMode::Steer, Kind::Choice(&["steer", "followup", "collect", "interrupt"]);
        /// How many may wait in one session.
        cap: u32 = 20, Kind::Whole(1, 100_000);
        /// What happens when more would: the new one is refused, or the oldest is dropped, and with `summarize` the next
        /// turn is told what it was about.
        drop: QueueDrop = QueueDrop::Refuse, Kind::Choice(&["refuse", "old", "summarize"]);
        /// With `collect`: how long no new message has come when they are taken up.
        debounce_ms: u64 = 500, Kind::Whole(0, 600_000);
    }
    unused []
}

impl Queue {
    /// As sessions take it.
    pub fn rules(&self) -> QueueRules {
        let Self { mode, cap, drop, debounce_ms } = *self;
        QueueRules { mode, cap, drop, debounce: Duration::from_millis(debounce_ms) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_set_is_as_everywhere() {
        assert_eq!(Queue::default().rules(), QueueRules::default());
    }
}
