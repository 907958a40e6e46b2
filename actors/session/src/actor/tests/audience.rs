//! Who watches the turns of the stage.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use domain::ids::{Attempt, SessionKey, TurnId};
use protocol::turn::{TurnEvent, TurnEvents, TurnProgress};
use tokio::sync::mpsc;

/// Passes turn events to the test, and panics when it is shown a delta that says so, or, once armed, the end of a tool
/// call or of a turn.
pub struct Audience {
    pub to: mpsc::UnboundedSender<TurnEvent>,
    pub armed: Arc<AtomicBool>,
    running: Mutex<Vec<(TurnId, Attempt)>>,
}

pub const BOMB: &str = "bomb";

impl Audience {
    pub fn new(to: mpsc::UnboundedSender<TurnEvent>, armed: Arc<AtomicBool>) -> Self {
        Self { to, armed, running: Mutex::default() }
    }
}

impl TurnEvents for Audience {
    fn unfinished(&self, _: &SessionKey) -> Vec<(TurnId, Attempt)> {
        self.running.lock().unwrap().clone()
    }

    fn emit(&self, event: TurnEvent) {
        if let TurnProgress::Delta(text) = &event.what {
            assert_ne!(text, BOMB, "the bomb went off");
        }
        let finished = matches!(event.what, TurnProgress::Finished(_));
        let ends = finished || matches!(event.what, TurnProgress::ToolEnded { .. });
        assert!(!(ends && self.armed.swap(false, Ordering::SeqCst)), "the bomb went off");
        let mut running = self.running.lock().unwrap();
        running.retain(|(turn, _)| *turn != event.turn);
        if !finished {
            running.push((event.turn, event.attempt));
        }
        drop(running);
        let _ = self.to.send(event);
    }
}
