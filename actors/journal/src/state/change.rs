//! How records change one key. **Invariant:** pure.

use domain::ids::{SessionId, TurnId};
use protocol::journal::{Commit, LeftBy, RECENT_IDS_MAX, ViewMark};

use crate::ids::Known;
use crate::key::{KeyState, Marks, OpenTurn};
use crate::record::EndedId;

impl KeyState {
    pub(super) fn take_open(&mut self, turn: TurnId) -> Option<OpenTurn> {
        let place = self.open.iter().position(|open| open.turn == turn)?;
        let open = self.open.remove(place);
        self.open_bytes -= u64::from(open.bytes);
        if place == 0 {
            self.marks = None;
        }
        if self.open.is_empty() {
            shrink(&mut self.open);
        }
        Some(open)
    }

    pub(super) fn remember_ended(&mut self, ended: EndedId) {
        if let Some(recent) = &mut self.recent {
            recent.add(ended.id, Known { turn: ended.turn, body_hash: ended.body_hash });
        }
        if self.closed || ended.commit <= self.view_commit {
            return;
        }
        if self.ended.len() == RECENT_IDS_MAX {
            self.ended.remove(0);
        }
        grow(&mut self.ended);
        self.ended.push(ended);
    }

    pub(super) fn change_session(&mut self, to: Option<SessionId>, number: u64) -> u64 {
        self.session = to;
        self.view = ViewMark::default();
        self.view_commit = number.saturating_sub(1);
        self.written = None;
        self.ended = Vec::new();
        std::mem::take(&mut self.lines).iter().map(|lines| u64::from(lines.bytes)).sum()
    }

    /// Notes what a commit says of the first open turn.
    pub(super) fn mark(&mut self, commit: &Commit) {
        let says_something = commit.started.is_some() || !commit.tools_started.is_empty() || commit.interrupted;
        if self.open.is_empty() && !commit.ended.is_empty() {
            self.marks = None;
            return;
        }
        // While a log is read whose older segments are gone, the turn may come later than what is said of it: its message
        // is carried forward behind commits that were made meanwhile.
        if !(says_something || self.marks.is_some()) {
            return;
        }
        let marks: &mut Marks = self.marks.get_or_insert_default();
        if commit.started.is_some() {
            marks.started = commit.started;
            marks.left = None;
        }
        marks.tools.extend_from_slice(&commit.tools_started);
        if !marks.tools.is_empty() {
            for result in commit.lines.iter().filter_map(|line| result_of(&line.text)) {
                marks.tools.retain(|call| *call.0 != *result);
            }
        }
        if commit.interrupted {
            marks.left = Some(LeftBy::Interrupted);
        }
    }
}

/// Makes room for one more; most lists never get a second element, so the first takes no room for four.
pub(super) fn grow<T>(list: &mut Vec<T>) {
    if list.len() == list.capacity() {
        list.reserve_exact(list.len().max(1));
    }
}

/// Gives memory back once most of it is unused.
pub(super) fn shrink<T>(list: &mut Vec<T>) {
    if list.capacity() > 2 * list.len() {
        list.shrink_to_fit();
    }
}

/// The tool call whose result a line is.
fn result_of(line: &str) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Entry {
        message: Message,
    }
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Message {
        tool_call_id: String,
    }
    if !line.contains("\"toolCallId\"") {
        return None;
    }
    serde_json::from_str::<Entry>(line).ok().map(|entry| entry.message.tool_call_id)
}
