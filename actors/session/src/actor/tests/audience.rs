//! Who watches the turns of the stage.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use protocol::turn::{TurnEvent, TurnEvents, TurnProgress};
use tokio::sync::mpsc;

/// Passes turn events to the test, and panics when it is shown a delta that says so, or,
/// once armed, the end of a tool call.
pub struct Audience(pub mpsc::UnboundedSender<TurnEvent>, pub Arc<AtomicBool>);

pub const BOMB: &str = "bomb";

impl TurnEvents for Audience {
    fn emit(&self, event: TurnEvent) {
        if let TurnProgress::Delta(text) = &event.what {
            assert_ne!(text, BOMB, "the bomb went off");
        }
        let ends = matches!(event.what, TurnProgress::ToolEnded { .. });
        assert!(!(ends && self.1.swap(false, Ordering::SeqCst)), "the bomb went off");
        let _ = self.0.send(event);
    }
}
