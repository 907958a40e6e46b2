//! What is asked of the state. **Invariant:** pure.

use domain::ids::{Epoch, Seq, SessionId, SessionKey, TurnId};
use protocol::journal::{Commit, InboxItem, Loaded, LogPosition, OpenRow, OpenWork, TurnEnd, Unfinished};

use super::State;
use crate::key::{KeyState, LinesAt, OpenTurn};
use crate::record::Ending;

/// What a session is told on its activation, but for the lines, which lie in the log.
#[derive(Debug)]
pub struct LoadPlan {
    /// The answer without its lines.
    pub loaded: Loaded,
    /// Where the lines are.
    pub lines: Vec<LinesAt>,
    /// Where those are of the transcript that has to be moved.
    pub ended: Vec<LinesAt>,
}

impl State {
    /// What a commit's record says of the turns that it ends.
    pub fn endings(&self, commit: &Commit) -> Vec<Option<Ending>> {
        let key = self.keys.get(&commit.key);
        let find = |(turn, end): &(TurnId, TurnEnd)| {
            let open = key?.open.iter().find(|open| open.turn == *turn)?;
            let dead = matches!(end, TurnEnd::Dead { .. });
            let message_id = dead.then(|| open.message_id().clone());
            Some(Ending { id: open.id, body_hash: open.body_hash, message_id })
        };
        commit.ended.iter().map(find).collect()
    }

    /// The key of an open turn.
    pub fn find_turn(&self, turn: TurnId) -> Option<SessionKey> {
        let has = |key: &KeyState| key.open.iter().any(|open| open.turn == turn);
        self.keys.iter().find(|(_, key)| has(key)).map(|(name, _)| name.clone())
    }

    /// What is open of `key`.
    pub fn open_of(&self, key: &SessionKey) -> OpenWork {
        let state = self.keys.get(key);
        let turn = |open: &OpenTurn| protocol::journal::OpenTurn {
            turn: open.turn,
            seq: open.seq,
            message_id: open.message_id().clone(),
            accepted_ms: open.accepted_ms,
        };
        let rows = self.outbox.iter().filter(|row| row.key == *key);
        OpenWork {
            turns: state.into_iter().flat_map(|state| &state.open).map(turn).collect(),
            rows: rows.map(|row| OpenRow { id: row.id, channel: row.channel.clone() }).collect(),
        }
    }

    /// Where a message lies now whose position was handed out before.
    pub fn resolve(&self, handed: LogPosition) -> LogPosition {
        self.moved.get(&handed).copied().unwrap_or(handed)
    }

    /// When the oldest open turn was accepted.
    pub fn oldest_open_ms(&self) -> Option<u64> {
        self.ages.first_key_value().map(|(accepted_ms, _)| *accepted_ms)
    }

    /// The newest open turn of `key`, as the sink gets it.
    pub fn newest(&self, key: &SessionKey) -> Option<InboxItem> {
        self.keys.get(key)?.open.last().map(OpenTurn::item)
    }

    /// What the next incarnation of `key` is told; `fresh` is its transcript when it has none.
    pub fn plan_load(&self, key: &SessionKey, fresh: SessionId) -> LoadPlan {
        let unknown;
        let ended = self.moving.of(key);
        let key = match self.keys.get(key) {
            Some(key) => key,
            None => {
                unknown = KeyState::new(LogPosition(0), self.floors);
                &unknown
            }
        };
        let loaded = Loaded {
            epoch: Epoch(key.epoch.0 + 1),
            session: key.session.unwrap_or(fresh),
            next_commit: key.next_commit,
            view: key.view.clone(),
            lines: Vec::new(),
            inbox: key.open.iter().map(OpenTurn::item).collect(),
            through: Seq(key.next_seq.0.saturating_sub(1)),
            cut: key.cut(),
            moving: ended.map(|ended| ended.moving.clone()),
        };
        let ended = ended.map_or_else(Vec::new, |ended| ended.lines.clone());
        LoadPlan { loaded, lines: key.lines.clone(), ended }
    }

    /// Keys with open turns, oldest message first.
    pub fn unfinished(&self, now_ms: u64) -> Vec<Unfinished> {
        let mut found: Vec<_> = self.keys.iter().filter(|(_, key)| !key.open.is_empty()).collect();
        found.sort_by_key(|(name, key)| (key.open.first().map(|open| (open.accepted_ms, open.handed)), *name));
        found
            .into_iter()
            .map(|(name, key)| Unfinished {
                key: name.clone(),
                cut: key.cut().map(|cut| (cut.started, cut.left_by)),
                turns: u32::try_from(key.open.len()).unwrap_or(u32::MAX),
                quarantined_until_ms: key.quarantined_until(now_ms),
                quarantined_times: key.quarantine.as_ref().map_or(0, |quarantine| quarantine.1),
            })
            .collect()
    }
}
