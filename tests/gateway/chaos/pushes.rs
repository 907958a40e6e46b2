//! The account of what was pushed: what the receiver took, against what was said and what the supervision log tells.

use std::collections::{HashMap, HashSet};
use std::fmt::{Display, Formatter};

use super::ledger::{Entry, Ledger};
use super::receiver::Receipts;
use crate::support::Place;

/// The counts of a whole run.
#[derive(Debug, Default)]
pub struct Pushes {
    pub turns: u64,
    pub rows: u64,
    pub repeated: u64,
    pub receipts: u64,
    late: u64,
    refused: u64,
}

impl Display for Pushes {
    fn fmt(&self, to: &mut Formatter<'_>) -> std::fmt::Result {
        let Self { turns, rows, repeated, receipts, late, refused } = self;
        write!(to, "pushed turns {turns}, rows {rows}, received {receipts} times, of these rows more than once ")?;
        write!(to, "{repeated}, each marked; answered late {late}, refused {refused}")
    }
}

/// Compares everything; what does not agree goes to the ledger as a violation.
///
/// Every row of every answered turn was taken at least once, and in the order of its chat; one that was taken more than
/// once has its mark in the supervision log, and nothing came in between.
pub fn settle(ledger: &Ledger, place: &Place, receipts: &Receipts) -> Pushes {
    let (sessions, _) = ledger.close();
    let mut pushes = Pushes { late: receipts.late, refused: receipts.refused, ..Pushes::default() };
    for wrong in &receipts.wrong {
        ledger.violation(wrong.clone());
    }
    let mut asked = HashMap::new();
    let pushed = sessions.iter().filter_map(|(stem, entries)| Some((stem.strip_prefix("webhook.")?, entries)));
    for (chat, entries) in pushed {
        let mut expected = Vec::new();
        for entry in entries.iter().filter(|entry| !entry.id.starts_with("last-")) {
            expected.extend(rows(ledger, entry, receipts));
            asked.insert(entry.turn.clone().unwrap_or_default(), &entry.id);
            pushes.turns += 1;
        }
        let mut taken = receipts.chats.get(chat).cloned().unwrap_or_default();
        pushes.receipts += taken.len() as u64;
        pushes.rows += expected.len() as u64;
        taken.dedup();
        if taken != expected {
            ledger.violation(format!("chat {chat} got {taken:?} instead of {expected:?}"));
        }
    }
    for turn in receipts.turns.keys().filter(|turn| !asked.contains_key(*turn)) {
        ledger.violation(format!("turn {turn} was pushed and nobody asked for it"));
    }
    pushes.repeated = check_marks(ledger, place, receipts);
    pushes
}

/// The ids of an answered message's rows.
fn rows(ledger: &Ledger, entry: &Entry, receipts: &Receipts) -> Vec<String> {
    let Some(turn) = &entry.turn else { return Vec::new() };
    let pushed = receipts.turns.get(turn).cloned().unwrap_or_default();
    match (&entry.end, pushed.whole()) {
        (Some((_, told)), Some(whole)) if *told == whole => {}
        (told, whole) => ledger.violation(format!("{} was answered with {told:?}; pushed was {whole:?}", entry.id)),
    }
    (1..=pushed.parts).map(|part| format!("{turn}:{part}")).collect()
}

fn check_marks(ledger: &Ledger, place: &Place, receipts: &Receipts) -> u64 {
    let events = place.events();
    let marked: HashSet<&str> = events
        .iter()
        .filter(|event| event["event"] == "delivery_repeated")
        .filter_map(|event| event["delivery"].as_str())
        .collect();
    let mut repeated = 0;
    for (turn, pushed) in &receipts.turns {
        for (part, row) in pushed.rows.iter().filter(|(_, row)| row.repeats.len() > 1) {
            repeated += 1;
            if !marked.contains(format!("{turn}:{part}").as_str()) {
                ledger.violation(format!("row {turn}:{part} came as {:?} and the log has no mark", row.repeats));
            }
        }
    }
    repeated
}
