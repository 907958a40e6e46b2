//! How records change one key. **Invariant:** pure.

use domain::ids::{SessionId, TurnId};
use domain::transcript::TurnClose;
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
        if ended.commit <= self.view_commit || (self.closed && ended.commit != EndedId::CLOSED) {
            return;
        }
        if self.ended.len() == RECENT_IDS_MAX {
            self.ended.remove(0);
        }
        grow(&mut self.ended);
        self.ended.push(ended);
    }

    /// The transcript ends, and its file is put away: the ids of its last turns stay known. The bytes of lines that are
    /// not needed any more.
    pub(super) fn close(&mut self, number: u64) -> u64 {
        for ended in &mut self.ended {
            ended.commit = EndedId::CLOSED;
        }
        self.change_session(None, number)
    }

    pub(super) fn change_session(&mut self, to: Option<SessionId>, number: u64) -> u64 {
        self.session = to;
        self.view = ViewMark::default();
        self.view_commit = number.saturating_sub(1);
        self.written = None;
        self.ended.retain(|ended| ended.commit == EndedId::CLOSED);
        shrink(&mut self.ended);
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

/// A line of a transcript, as far as its message is looked at.
#[derive(serde::Deserialize)]
struct Entry<M> {
    message: M,
}

/// How many turns a commit's lines end with a failure.
pub(super) fn failures(commit: &Commit) -> u64 {
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Message {
        turn_end: TurnClose,
    }
    if commit.ended.is_empty() {
        return 0;
    }
    let fails = |text: &str| {
        // Most answers hold no such words; those that do may only quote them.
        text.contains("\"turnEnd\":\"failed\"")
            && serde_json::from_str::<Entry<Message>>(text)
                .is_ok_and(|entry| entry.message.turn_end == TurnClose::Failed)
    };
    commit.lines.iter().filter(|line| fails(&line.text)).count() as u64
}

/// The tool call whose result a line is.
fn result_of(line: &str) -> Option<String> {
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Message {
        tool_call_id: String,
    }
    if !line.contains("\"toolCallId\"") {
        return None;
    }
    serde_json::from_str::<Entry<Message>>(line).ok().map(|entry| entry.message.tool_call_id)
}

#[cfg(test)]
mod tests {
    use domain::ids::{Epoch, SessionKey};
    use protocol::journal::{Line, TurnEnd};
    use uuid::Uuid;

    use super::*;

    #[test]
    fn failures_are_read_from_the_line_that_ends_a_turn() {
        let ends =
            |end: &str| format!(r#"{{"id":"a","message":{{"role":"assistant","content":[],"turnEnd":"{end}"}}}}"#);
        let quoted = r#"{"message":{"content":[{"arguments":{"turnEnd":"failed"}}],"turnEnd":"done"}}"#.to_owned();
        for (lines, count) in [
            (vec![ends("failed")], 1),
            (vec![ends("done")], 0),
            (vec![ends("dead"), ends("cancelled")], 0),
            (vec![quoted, "{\"turnEnd\":\"failed\"".to_owned()], 0),
            (vec![], 0),
        ] {
            let line = |text: &String| Line { id: "a".into(), text: text.as_str().into() };
            let mut commit = Commit {
                key: SessionKey::new("api:1").unwrap(),
                session: SessionId(Uuid::nil()),
                epoch: Epoch(1),
                number: 1,
                lines: lines.iter().map(line).collect(),
                tools_started: Vec::new(),
                ended: vec![(TurnId(Uuid::nil()), TurnEnd::Done)],
                out: Vec::new(),
                started: None,
                interrupted: false,
                closes: None,
            };
            assert_eq!(failures(&commit), count, "{lines:?}");
            commit.ended.clear();
            assert_eq!(failures(&commit), 0, "nothing ends");
        }
    }
}
