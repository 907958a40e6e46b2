//! The account at the end: what the clients sent and were told, against what the transcripts and the tools' effects say.

use std::collections::{BTreeMap, HashMap};
use std::fmt::{Display, Formatter};

use serde_json::Value;

use super::ledger::{Counts, Entry, Ledger, Promise};
use super::message::{EFFECTS, answer};
use crate::support::Place;

/// What stands in a transcript about one message.
#[derive(Debug, Default)]
struct Stands {
    /// How often the message itself.
    asked: u32,
    /// Every end: the word and the text.
    ends: Vec<(String, String)>,
    /// For each file that a call wrote to: what the call's result is.
    calls: Vec<(String, Result<(), String>)>,
}

/// The counts of a whole run.
#[derive(Debug, Default)]
pub struct Account {
    pub sessions: usize,
    /// Messages of clients that come back.
    pub sent: u64,
    pub answered: u64,
    pub cancelled: u64,
    pub dead: u64,
    pub failed: u64,
    /// Messages of clients that do not.
    pub loose: u64,
    pub loose_known: u64,
    pub effects_asked: u64,
    pub effects: u64,
    pub unknown_outcomes: u64,
    counts: Counts,
}

impl Display for Account {
    fn fmt(&self, to: &mut Formatter<'_>) -> std::fmt::Result {
        let Self { sessions, sent, answered, cancelled, dead, failed, loose, loose_known, .. } = self;
        write!(
            to,
            "{sessions} sessions, accepted {sent} = answered {answered} + cancelled {cancelled} + dead {dead} "
        )?;
        write!(to, "+ failed {failed} + open 0; without key {loose}, of these kept {loose_known}; ")?;
        let Self { effects_asked, effects, unknown_outcomes, .. } = self;
        write!(to, "tool calls {effects_asked}, effects {effects}, of unknown outcome {unknown_outcomes}; ")?;
        let Counts { connections, resent, duplicates, replayed, restarted, .. } = self.counts;
        let Counts { untold, unread, stops, controls, hurried, cut, .. } = self.counts;
        write!(to, "connections {connections}, resent {resent}, duplicates {duplicates}, replayed {replayed}, ")?;
        write!(to, "turns restarted {restarted}, requests cut {cut}, left early {hurried}, ")?;
        write!(to, "stops {stops}, dropped untold {untold}, not read at once {unread}, control answers {controls}")
    }
}

/// Compares everything; what does not agree goes to the ledger as a violation.
pub fn settle(ledger: &Ledger, place: &Place) -> Account {
    let (sessions, counts) = ledger.close();
    let mut account = Account { sessions: sessions.len(), counts, ..Account::default() };
    for (stem, entries) in &sessions {
        let (order, mut stands) = read(place, stem);
        check_order(ledger, stem, entries, &order);
        for entry in entries {
            let stands = stands.remove(&entry.id).unwrap_or_default();
            check(ledger, entry, &stands, &mut account);
            check_effects(ledger, place, entry, &stands, &mut account);
        }
        if !stands.is_empty() {
            ledger.violation(format!("{stem} holds what nobody sent: {:?}", stands.keys().collect::<Vec<_>>()));
        }
    }
    account
}

fn text(content: &Value) -> String {
    let blocks = content.as_array().into_iter().flatten().filter_map(|block| block["text"].as_str());
    content.as_str().into_iter().chain(blocks).collect::<Vec<_>>().join("\n")
}

/// The ids of a transcript in its order, and what stands about each.
fn read(place: &Place, stem: &str) -> (Vec<String>, HashMap<String, Stands>) {
    let (mut order, mut stands) = (Vec::new(), HashMap::<String, Stands>::new());
    let file = place.path().join(format!("workspace/sessions/{stem}.jsonl"));
    if !file.exists() {
        return (order, stands);
    }
    let (mut ids, mut files) = (HashMap::new(), HashMap::new());
    for line in place.transcript(stem) {
        let message = &line["message"];
        let turn = message["turnId"].as_str().unwrap_or_default();
        if message["role"] == "user" {
            // Every text begins with its id, also where the gateway was given none.
            let said = text(&message["content"]);
            let id = said.split_whitespace().next().unwrap_or_default().to_owned();
            stands.entry(id.clone()).or_default().asked += 1;
            order.push(id.clone());
            ids.insert(turn.to_owned(), id);
        }
        let Some(stands) = ids.get(turn).and_then(|id| stands.get_mut(id)) else { continue };
        for call in message["content"].as_array().into_iter().flatten().filter(|block| block["type"] == "toolCall") {
            let command = call["arguments"]["command"].as_str().unwrap_or_default();
            if let Some((_, file)) = command.split_once(&format!("{EFFECTS}/")) {
                files.insert(call["id"].as_str().unwrap_or_default().to_owned(), file.to_owned());
            }
        }
        if let Some(file) = message["toolCallId"].as_str().and_then(|id| files.get(id)) {
            let said = text(&message["content"]);
            let worked = said.contains("Exit code: 0");
            stands.calls.push((file.clone(), if worked { Ok(()) } else { Err(said) }));
        }
        if let Some(end) = message["turnEnd"].as_str() {
            stands.ends.push((end.to_owned(), text(&message["content"])));
        }
    }
    (order, stands)
}

/// Of two messages the one that was sent first stands first; unless its sender went on without having heard of it.
fn check_order(ledger: &Ledger, stem: &str, entries: &[Entry], order: &[String]) {
    let heard_of = entries.iter().enumerate().filter(|(_, entry)| entry.turn.is_some());
    let places: BTreeMap<&str, usize> = heard_of.map(|(place, entry)| (entry.id.as_str(), place)).collect();
    let mut last = None;
    for id in order {
        let place = places.get(id.as_str()).copied();
        if place.is_some() && place < last {
            ledger.violation(format!("{stem}: {id} stands behind one that was sent later"));
        }
        last = place.or(last);
    }
}

fn check(ledger: &Ledger, entry: &Entry, stands: &Stands, account: &mut Account) {
    let id = &entry.id;
    if stands.asked > 1 || stands.ends.len() != stands.asked as usize {
        ledger.violation(format!("{id} stands {} times, with the ends {:?}", stands.asked, stands.ends));
    }
    let stood = stands.ends.first();
    if let Some((word, text)) = stood
        && word == "done"
        && !text.starts_with(&answer(id))
    {
        ledger.violation(format!("{id} was answered with {text:?}"));
    }
    if let (Some((told, told_text)), Some((word, text))) = (&entry.end, stood) {
        let differs = told == "done" && told_text != text;
        if told != word || differs {
            ledger.violation(format!("{id} stands as {:?}; its sender was told {:?}", stood, entry.end));
        }
    }
    match entry.promise {
        Promise::Loose => {
            account.loose += 1;
            account.loose_known += u64::from(stands.asked);
            if entry.end.is_some() && stood.is_none() {
                ledger.violation(format!("{id} was answered and stands nowhere"));
            }
        }
        Promise::Kept => {
            account.sent += 1;
            let may_be_cancelled = entry.may_be_cancelled;
            match (entry.end.as_ref().map(|(word, _)| word.as_str()), stood.map(|(word, _)| word.as_str())) {
                (Some("done"), Some("done")) => account.answered += 1,
                // One that was dropped while it waited stands nowhere: its sender alone was told.
                (Some("cancelled"), Some("cancelled") | None) if may_be_cancelled => account.cancelled += 1,
                (Some("dead_lettered"), Some("dead")) => account.dead += 1,
                (Some("failed"), Some("failed")) => account.failed += 1,
                (told, stood) => ledger.violation(format!("{id} was told as {told:?} and stands as {stood:?}")),
            }
            if entry.turn.is_none() {
                ledger.violation(format!("{id} was never acknowledged"));
            }
        }
    }
}

fn check_effects(ledger: &Ledger, place: &Place, entry: &Entry, stands: &Stands, account: &mut Account) {
    for file in &entry.effects {
        account.effects_asked += 1;
        let path = place.path().join("workspace").join(EFFECTS).join(file);
        let bytes = std::fs::metadata(&path).map_or(0, |metadata| metadata.len());
        account.effects += bytes;
        let results: Vec<_> = stands.calls.iter().filter(|(called, _)| called == file).collect();
        let worked = results.iter().any(|(_, result)| result.is_ok());
        account.unknown_outcomes += results.iter().filter(|(_, result)| result.is_err()).count() as u64;
        if bytes > 1 || results.len() > 1 || (worked && bytes == 0) {
            ledger.violation(format!("the call that writes {file} took effect {bytes} times: {results:?}"));
        }
    }
}
