//! The busiest sessions. Looks at every slot once and keeps a bounded number of them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use domain::ids::SessionKey;
use protocol::supervision::{ActorPath, Kind};
use protocol::top::{SessionsTop, TopQuery, TopRow, TopSort};
use supervision::lease::SlotView;
use supervision::log_read::glob_matches;

use crate::quarantine::Waiting;
use crate::registry::Registry;

/// What a heap keeps: the largest, and of equals the first by name.
type Ranked = Reverse<(u64, Reverse<SessionKey>)>;

impl Registry {
    pub(crate) fn busiest(&self, query: &TopQuery) -> SessionsTop {
        let mut top = SessionsTop { restarts: self.kernel.session_restarts(), ..SessionsTop::default() };
        let mut best: BinaryHeap<Ranked> = BinaryHeap::new();
        let mut kept: BTreeMap<SessionKey, TopRow> = BTreeMap::new();
        for (index, sector) in self.sectors.iter().enumerate() {
            let mut offer = |row: TopRow| {
                let Some(key) = row.session.clone() else { return };
                best.push(Reverse((query.sort.of(&row), Reverse(key.clone()))));
                kept.insert(key, row);
                if best.len() > query.limit
                    && let Some(Reverse((_, Reverse(least)))) = best.pop()
                {
                    kept.remove(&least);
                }
            };
            sector.slots.for_each(|slot| {
                *top.states.entry(slot.note.state.word()).or_default() += 1;
                top.mailbox += slot.depth as u64;
                top.inbox += u64::from(slot.note.inbox);
                if let Some(row) = self.row(index, slot, query) {
                    offer(row);
                }
            });
            for (key, waiting) in sector.waitlist.all() {
                let state = match waiting {
                    Waiting::Quarantined(_) => "quarantined",
                    Waiting::Suspect => "suspect",
                };
                *top.states.entry(state).or_default() += 1;
                let path = ActorPath::session(index, &key);
                if query.path.as_ref().is_none_or(|glob| glob_matches(glob, &path.0)) {
                    offer(row(path, key, state));
                }
            }
        }
        top.rows = kept.into_values().collect();
        top.rows.sort_by_key(|row| Reverse(query.sort.of(row)));
        if query.sort != TopSort::Restarts {
            for row in &mut top.rows {
                self.add_vitals(row);
            }
        }
        top
    }

    fn row(&self, index: usize, slot: SlotView, query: &TopQuery) -> Option<TopRow> {
        let path = ActorPath::session(index, &slot.key);
        if query.path.as_ref().is_some_and(|glob| !glob_matches(glob, &path.0)) {
            return None;
        }
        let running = slot.running.map(|running| u64::try_from(running.as_millis()).unwrap_or(u64::MAX));
        let mut row = TopRow {
            turn: slot.note.turn,
            running_ms: running,
            inbox: u64::from(slot.note.inbox),
            mailbox: slot.depth as u64,
            ..row(path, slot.key, slot.note.state.word())
        };
        if query.sort == TopSort::Restarts {
            self.add_vitals(&mut row);
        }
        Some(row)
    }

    fn add_vitals(&self, row: &mut TopRow) {
        let (restarts, since) = self.kernel.vitals(&row.path).unwrap_or_default();
        (row.restarts, row.since) = (u64::from(restarts), since);
    }
}

fn row(path: ActorPath, key: SessionKey, state: &str) -> TopRow {
    TopRow {
        path,
        kind: Kind::Session,
        state: state.to_owned(),
        session: Some(key),
        turn: None,
        running_ms: None,
        inbox: 0,
        mailbox: 0,
        restarts: 0,
        since: 0,
    }
}
