//! Events in words that are the same in each run of a seed.

use std::fmt::Write;

use protocol::supervision::Event;
use protocol::turn::{TurnEvent, TurnProgress};

use super::books::Books;

/// What a supervision event says, as far as it is the same in each run of a seed.
pub fn tell(event: &Event, books: &Books) -> String {
    let mut line = format!("{} {:?}", event.path, event.event);
    // Writing to a string cannot fail.
    if let Some(epoch) = event.epoch {
        let _ = write!(line, " epoch={}", epoch.0);
    }
    if let Some(turn) = event.turn {
        let _ = write!(line, " turn={}", books.name(turn));
    }
    if let Some(attempt) = event.attempt {
        let _ = write!(line, " attempt={attempt}");
    }
    if let Some(reason) = &event.reason {
        let _ = write!(line, " ({reason})");
    }
    if let Some(panic) = &event.panic {
        let _ = write!(line, " panic={:?}", panic.text);
    }
    if event.lost != "nothing" {
        let _ = write!(line, " LOST {}", event.lost);
    }
    line
}

/// What a turn shows, in a few words.
pub fn tell_turn(event: &TurnEvent, books: &Books) -> String {
    let what = match &event.what {
        TurnProgress::Started => "started".to_owned(),
        TurnProgress::Delta(_) => "delta".to_owned(),
        TurnProgress::Reasoning(_) => "reasoning".to_owned(),
        TurnProgress::StreamEnd { more, .. } => format!("stream end more={more}"),
        TurnProgress::ToolStarted { name, .. } => format!("tool {name} started"),
        TurnProgress::ToolEnded { name, is_error, .. } => format!("tool {name} ended error={is_error}"),
        TurnProgress::Notice(_) => "notice".to_owned(),
        TurnProgress::Goal(goal) => format!("goal {}", goal.status.word()),
        TurnProgress::Finished(finished) => format!("finished {:?}", finished.result),
    };
    format!("{} {} attempt={} seq={} {what}", event.key, books.name(event.turn), event.attempt, event.seq)
}
