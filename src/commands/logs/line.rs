//! One event for people.

use protocol::supervision::{Event, LOST_NOTHING};

/// Local time, name, who, why, and what was lost.
pub(super) fn of(event: &Event, zone: &str) -> String {
    let mut text = format!("{}  {:18} {}", local(&event.ts, zone), event.event.word(), event.path);
    let mut add = |word: &str, value: Option<String>| {
        if let Some(value) = value {
            text.push_str(&format!("  {word} {value}"));
        }
    };
    add("turn", event.turn.map(|turn| turn.to_string()));
    add("attempt", event.attempt.map(|attempt| attempt.to_string()));
    add("message", event.message_id.as_ref().map(|id| id.as_str().to_owned()));
    add("because", event.reason.clone());
    add("panic", event.panic.as_ref().map(|panic| format!("{:?} at {}", panic.text, panic.at)));
    add("backoff", event.backoff_ms.map(|ms| format!("{ms} ms")));
    add("verdict", event.verdict.clone());
    add("inbox", event.inbox.map(|count| count.to_string()));
    add("lost", (event.lost != LOST_NOTHING).then(|| event.lost.clone()));
    text
}

/// A log time in `zone`.
pub(super) fn local(ts: &str, zone: &str) -> String {
    let time = ts.parse::<jiff::Timestamp>().ok().and_then(|at| at.in_tz(zone).ok());
    time.map_or_else(|| ts.to_owned(), |at| at.strftime("%Y-%m-%d %H:%M:%S%.3f").to_string())
}

#[cfg(test)]
mod tests {
    use protocol::supervision::{ActorPath, EventName, Kind, Panic};

    use super::*;

    #[test]
    fn a_line_tells_who_died_why_and_what_was_lost() {
        let mut event = Event::new(EventName::Restarted, ActorPath("/registry/0/session/a".into()), Kind::Session);
        event.ts = "2026-11-29T20:53:29.000001Z".to_owned();
        event.reason = Some("panicked".to_owned());
        event.panic = Some(Panic { text: "boom".to_owned(), at: "x.rs:1:2".to_owned() });
        assert_eq!(
            of(&event, "Europe/Berlin"),
            "2026-11-29 21:53:29.000  restarted          /registry/0/session/a  because panicked  panic \"boom\" at x.rs:1:2"
        );
        event.lost = "one line".to_owned();
        assert!(of(&event, "UTC").ends_with("lost one line"));
    }
}
