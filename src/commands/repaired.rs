//! What a repair of the journal leaves in the supervision log: one event for all, and one for each session and turn of
//! which something is known to be lost.

use std::collections::{BTreeMap, BTreeSet};

use domain::ids::{SessionKey, TurnId};
use journal::{DamagedPlace, RepairReport};
use protocol::supervision::{ActorPath, Event, EventName, Kind, SupervisionLog};

/// Events about single sessions and turns; of more only the number is told.
const LOSSES_MAX: usize = 1_000;
/// Places and numbers that are named one by one.
const NAMED_MAX: usize = 10;
/// What every event of a loss says.
const HELD: &str = "the damage held records of it; what of them stands elsewhere is not lost";

/// Tells `log` of a repair that was done.
pub fn record(report: &RepairReport, log: &dyn SupervisionLog) {
    let losses = losses(report);
    let cause = log.record(whole(report, losses.len()));
    for mut event in losses.into_iter().take(LOSSES_MAX) {
        event.cause = Some(cause.clone());
        log.record(event);
    }
}

fn event() -> Event {
    Event::new(EventName::JournalRepaired, ActorPath("/journal".into()), Kind::Journal)
}

fn whole(report: &RepairReport, losses: usize) -> Event {
    let place =
        |place: &DamagedPlace| format!("{} bytes {} to {} ({})", place.file.display(), place.from, place.to, place.why);
    let places = named(report.damage.iter().map(place));
    let aside = report.aside.as_ref().map(|aside| format!("; the damaged segments are in {}", aside.display()));
    let more = losses.checked_sub(LOSSES_MAX).filter(|more| *more > 0);
    let more = more.map(|more| format!("; {more} more sessions and turns have losses than are told here"));
    let mut event = event();
    event.reason = Some(format!("{places}{}{}", aside.unwrap_or_default(), more.unwrap_or_default()));
    event.verdict = Some(format!("{} records and {} open turns are kept", report.records, report.open_turns));
    event.lost = "what only the damaged bytes held".to_owned();
    event
}

/// One event for each session, then one for each turn of it.
fn losses(report: &RepairReport) -> Vec<Event> {
    let mut records: BTreeMap<&SessionKey, BTreeSet<&str>> = BTreeMap::new();
    let mut turns: BTreeMap<&SessionKey, BTreeMap<TurnId, BTreeSet<&str>>> = BTreeMap::new();
    for hint in report.damage.iter().flat_map(|place| &place.hints) {
        let Some(key) = &hint.key else { continue };
        if hint.turns.is_empty() {
            records.entry(key).or_default().insert(hint.record);
        }
        for turn in &hint.turns {
            turns.entry(key).or_default().entry(*turn).or_default().insert(hint.record);
        }
    }
    let keys: BTreeSet<&SessionKey> =
        report.lost.keys().chain(records.keys().copied()).chain(turns.keys().copied()).collect();
    let mut events = Vec::new();
    for key in keys {
        let mut parts = Vec::new();
        if let Some(loss) = report.lost.get(key) {
            let lists =
                [("messages", &loss.messages, ""), ("commits", &loss.commits, ", whose lines the transcript may have")];
            for (what, numbers, note) in lists.into_iter().filter(|(_, numbers, _)| !numbers.is_empty()) {
                parts.push(format!("{what} with the numbers {}{note}", named(numbers.iter().map(u64::to_string))));
            }
        }
        if let Some(records) = records.get(key) {
            parts.push(format!("records: {}", named(records.iter().map(|record| (*record).to_owned()))));
        }
        if !parts.is_empty() {
            events.push(loss(key, None, parts.join("; ")));
        }
        for (turn, records) in turns.get(key).into_iter().flatten() {
            let records = named(records.iter().map(|record| (*record).to_owned()));
            events.push(loss(key, Some(*turn), format!("records of the turn: {records}")));
        }
    }
    events
}

fn loss(key: &SessionKey, turn: Option<TurnId>, lost: String) -> Event {
    let mut event = event();
    (event.session, event.turn) = (Some(key.clone()), turn);
    event.reason = Some(HELD.to_owned());
    event.lost = lost;
    event
}

/// The first few, and how many more there are.
fn named(all: impl ExactSizeIterator<Item = String>) -> String {
    let more = all.len().saturating_sub(NAMED_MAX);
    let text = all.take(NAMED_MAX).collect::<Vec<_>>().join(", ");
    if more > 0 { format!("{text} and {more} more") } else { text }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use journal::{Hint, KeyLoss};
    use supervision::log::MemoryLog;
    use uuid::Uuid;

    use super::*;

    fn key(n: u32) -> SessionKey {
        SessionKey::new(&format!("api:{n}")).unwrap()
    }

    #[test]
    fn every_known_loss_is_told_to_its_session_and_turn() {
        let turn = TurnId(Uuid::from_u128(7));
        let hint = |record, key: Option<SessionKey>, turns: &[TurnId]| Hint { record, key, turns: turns.to_vec() };
        let hints = vec![
            hint("accepted", Some(key(1)), &[turn]),
            hint("commit", Some(key(1)), &[turn]),
            hint("epoch", Some(key(2)), &[]),
            hint("left", None, &[]),
        ];
        let place = DamagedPlace { file: "/j/1.log".into(), from: 10, to: 20, why: "checksum".to_owned(), hints };
        let loss = KeyLoss { messages: (1..=12).collect(), commits: BTreeSet::from([4]) };
        let report = RepairReport {
            damage: vec![place],
            lost: [(key(1), loss)].into(),
            records: 5,
            aside: Some("/j/aside".into()),
            repaired: true,
            ..RepairReport::default()
        };
        let log = MemoryLog::new();
        record(&report, &*log);
        let events = log.events();
        let all = events[0].clone();
        assert_eq!(all.event, EventName::JournalRepaired);
        let reason = "/j/1.log bytes 10 to 20 (checksum); the damaged segments are in /j/aside";
        assert_eq!((all.session, all.reason.as_deref()), (None, Some(reason)));
        assert!(events[1..].iter().all(|event| event.cause.as_ref() == Some(&all.id)));
        let told: Vec<_> =
            events[1..].iter().map(|event| (event.session.clone().unwrap(), event.turn, event.lost.clone())).collect();
        let numbers = "messages with the numbers 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 2 more; commits with the numbers 4, whose \
                       lines the transcript may have";
        assert_eq!(
            told,
            [
                (key(1), None, numbers.to_owned()),
                (key(1), Some(turn), "records of the turn: accepted, commit".to_owned()),
                (key(2), None, "records: epoch".to_owned()),
            ]
        );
    }

    #[test]
    fn of_very_many_losses_the_number_is_told() {
        let lost = (0..1_500).map(|n| (key(n), KeyLoss { messages: BTreeSet::from([1]), ..KeyLoss::default() }));
        let report = RepairReport { lost: lost.collect(), repaired: true, ..RepairReport::default() };
        let log = MemoryLog::new();
        record(&report, &*log);
        let events = log.events();
        assert_eq!(events.len(), 1 + LOSSES_MAX);
        assert!(events[0].reason.as_ref().unwrap().contains("500 more sessions and turns"), "{:?}", events[0].reason);
    }
}
