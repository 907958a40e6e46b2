//! One snapshot as text, and the words that text and view share.

use domain::text::counted;
use protocol::top::{Top, TopRow};

use crate::commands::words::span;

/// The snapshot, for output that is no terminal.
pub(super) fn once(top: &Top) -> String {
    let mut lines = head(top);
    lines.push(String::new());
    lines.push(format!("{:12} {:>8} {:>8} {:>8} {:>8}", "KIND", "ACTORS", "MAILBOX", "INBOX", "RESTARTS"));
    for row in &top.kinds {
        let (actors, mailbox, inbox) = (row.actors, row.mailbox, row.inbox);
        lines.push(format!("{:12} {actors:>8} {mailbox:>8} {inbox:>8} {:>8}", row.kind.word(), row.restarts));
    }
    lines.push(String::new());
    lines.push(format!("{:14} {:>9} {:>6} {:>8} {:>8}  ACTOR", "STATE", "RUNNING", "INBOX", "MAILBOX", "RESTARTS"));
    for row in &top.items {
        let (inbox, mailbox, restarts) = (row.inbox, row.mailbox, row.restarts);
        let running = running(row);
        lines.push(format!("{:14} {running:>9} {inbox:>6} {mailbox:>8} {restarts:>8}  {}", row.state, name(row)));
    }
    lines.join("\n")
}

/// State, turns and rates.
pub(super) fn head(top: &Top) -> Vec<String> {
    let why =
        if top.not_ready.is_empty() { String::new() } else { format!(", not ready: {}", top.not_ready.join(", ")) };
    let states: Vec<String> =
        top.states.iter().map(|(state, count)| format!("{count} {}", state.replace('_', " "))).collect();
    let states = if states.is_empty() { "none in memory".to_owned() } else { states.join(", ") };
    let turns = &top.turns;
    let oldest = top.oldest_ms.map_or_else(|| "none waits".to_owned(), |ms| format!("oldest for {}", span(ms)));
    let rates = &top.rates;
    let rate = |value: f64| format!("{value:.1}/s");
    let rates = match rates.over_ms {
        0 => "not yet known".to_owned(),
        _ => format!(
            "{} accepted, {} ended, {} refused, {} restarts",
            rate(rates.accepted),
            rate(rates.ended),
            rate(rates.refused),
            rate(rates.restarts)
        ),
    };
    vec![
        format!("gateway   {} for {}, version {}{why}", top.phase, span(top.uptime_ms), top.version),
        format!("sessions  {states}"),
        format!(
            "turns     {} open ({oldest}), {} running; {} accepted: {} done, {} cancelled, {}",
            turns.open,
            turns.running,
            turns.accepted,
            turns.done,
            turns.cancelled,
            counted(turns.dead, "dead letter")
        ),
        format!("rates     {rates}"),
    ]
}

/// The shortest name of an actor that tells it apart.
pub(super) fn name(row: &TopRow) -> &str {
    row.session.as_ref().map_or(&row.path.0, |key| key.as_str())
}

/// How long its turn has been running.
pub(super) fn running(row: &TopRow) -> String {
    row.running_ms.map(span).unwrap_or_default()
}
