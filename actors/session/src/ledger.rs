//! Turns records into transcript lines: gives each its id, its parent and its time.

use std::sync::Arc;

use domain::body::TurnBody;
use domain::goal::{GOAL, Status};
use domain::ids::{EntryId, Epoch, SessionId, SessionKey};
use domain::queue;
use domain::reset::Times;
use domain::run::RUN;
use domain::scope::Scope;
use domain::tally::Tally;
use domain::time::later;
use domain::transcript::{
    Addition, AssistantEntry, Entry, EntryKind, Head, HeaderFields, Note, ToolResultEntry, UserEntry, UserMark,
    assistant_line, custom_line, header_line, reset_line, tool_result_line, user_line,
};
use protocol::journal::{Accepted, Commit, Line};
use serde::Serialize;
use supervision::ports::Ids;

use crate::reading::Reading;
use crate::turn::{Batch, Record};

/// Where the next line goes.
#[derive(Debug, Clone)]
pub struct Ledger {
    /// The transcript.
    pub session: SessionId,
    /// Ownership.
    pub epoch: Epoch,
    /// Number of the next commit.
    pub next_commit: u64,
    parent: Option<Arc<str>>,
    last_ms: u64,
    has_header: bool,
    times: Times,
    tally: Arc<Tally>,
    /// For the header.
    follows: Option<Box<Follows>>,
}

/// The transcript that a new one follows. Few follow any: the others have one word less for it.
#[derive(Debug, Clone)]
struct Follows(Arc<str>);

/// Whose lines they are, and when.
#[derive(Debug, Clone, Copy)]
pub struct Setting<'a> {
    /// Session.
    pub key: &'a SessionKey,
    /// The workspace, for the header.
    pub cwd: &'a str,
    /// The message that is being answered.
    pub said: Option<(&'a Accepted, &'a TurnBody)>,
    /// Whether what it says, and what is said to it, is never shown to the model: it is a command, or was dropped.
    pub hidden: bool,
    /// Milliseconds since 1970.
    pub wall_ms: u64,
}

// === impl Ledger ===

impl Ledger {
    /// Behind what was read.
    pub fn new(session: SessionId, epoch: Epoch, next_commit: u64, read: &Reading) -> Self {
        let mut ledger = Self {
            session,
            epoch,
            next_commit,
            parent: None,
            last_ms: 0,
            has_header: false,
            times: Times::default(),
            follows: None,
            tally: Arc::default(),
        };
        ledger.follow(read);
        ledger
    }

    /// Goes on behind what was read.
    pub fn follow(&mut self, read: &Reading) {
        self.parent = read.tree.append_parent().map(Arc::from);
        self.last_ms = self.last_ms.max(read.last_ms());
        self.has_header = read.header.is_some();
        self.times = read.times;
        self.tally = Arc::new(read.tally.clone());
    }

    /// Since when the conversation is what it is.
    pub fn times(&self) -> Times {
        self.times
    }

    /// Where the conversation works, if not in the workspace.
    pub fn scope(&self) -> Option<&Arc<Scope>> {
        self.tally.scope.as_ref()
    }

    /// What the session was set to, and how far it is.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Names the transcript that this one follows, in case it begins with the next line.
    #[must_use]
    pub fn following(mut self, file: Option<Arc<str>>) -> Self {
        self.follows = file.map(|file| Box::new(Follows(file)));
        self
    }

    /// Time of the last line.
    pub fn last_ms(&self) -> u64 {
        self.last_ms
    }

    /// Makes a commit of a batch, and the entries that its lines stand for.
    pub fn enter(&mut self, batch: Batch, setting: &Setting<'_>, ids: &dyn Ids) -> (Commit, Vec<Entry>) {
        let mut lines = Vec::with_capacity(batch.records.len() + 1);
        let mut entries = Vec::with_capacity(batch.records.len());
        if !self.has_header && (batch.edit.is_some() || !batch.records.is_empty()) {
            self.has_header = true;
            self.last_ms = later(self.last_ms, setting.wall_ms);
            self.times.started_ms = self.last_ms;
            let header = HeaderFields {
                session: self.session,
                key: setting.key,
                timestamp_ms: self.last_ms,
                cwd: setting.cwd,
                parent_session: self.follows.as_deref().map(|follows| &*follows.0),
            };
            lines.push(Line { id: "".into(), text: header_line(&header).into() });
        }
        if let Some(drawn) = batch.edit {
            for Addition { line, entry } in drawn.additions {
                self.last_ms = later(self.last_ms, entry.timestamp_ms);
                self.times.see(&entry);
                Arc::make_mut(&mut self.tally).see(&entry);
                lines.push(Line { id: entry.id, text: line.into() });
            }
            self.parent = drawn.append_parent;
        }
        for record in batch.records {
            let record = match (record, &self.tally.goal) {
                (Record::PauseGoal, Some(goal)) if goal.is_active() => Record::Goal(goal.ended(Status::Paused, None)),
                (record, _) => record,
            };
            let reason = if let Record::Reset(reason) = record { reason.word() } else { "" };
            let Some(kind) = kind_of(record, &batch.turn, setting) else { continue };
            let head = self.head(setting.wall_ms, ids);
            let text = match &kind {
                EntryKind::User(user) => user_line(&head, user),
                EntryKind::Assistant(assistant) => assistant_line(&head, assistant),
                EntryKind::ToolResult(result) => tool_result_line(&head, result),
                EntryKind::Reset { first_kept } => reset_line(&head, reason, first_kept.as_deref()),
                EntryKind::Silent(Note::Custom { kind, data }) => custom_line(&head, kind, data.as_deref()),
                EntryKind::Shown(_)
                | EntryKind::Compaction { .. }
                | EntryKind::BranchSummary(_)
                | EntryKind::Silent(_)
                | EntryKind::Leaf { .. }
                | EntryKind::Opaque => continue,
            };
            lines.push(Line { id: head.id.clone(), text: text.into() });
            let entry = Entry::new(head, kind);
            self.times.see(&entry);
            Arc::make_mut(&mut self.tally).see(&entry);
            entries.push(entry);
        }
        let number = self.next_commit;
        self.next_commit += 1;
        let commit = Commit {
            key: setting.key.clone(),
            session: self.session,
            epoch: self.epoch,
            number,
            lines,
            tools_started: batch.tools_started,
            ended: batch.ended,
            out: batch.out,
            started: batch.started,
            interrupted: batch.interrupted,
            closes: batch.closes,
        };
        (commit, entries)
    }

    fn head(&mut self, wall_ms: u64, ids: &dyn Ids) -> Head {
        let id: Arc<str> = EntryId(ids.random()).to_string().into();
        self.last_ms = later(self.last_ms, wall_ms);
        let parent = self.parent.replace(Arc::clone(&id));
        Head { id, parent, timestamp_ms: self.last_ms }
    }
}

/// Ties the entry of a message to it.
pub fn mark_of(accepted: &Accepted) -> UserMark {
    UserMark {
        turn: accepted.turn,
        idempotency_key: format!("{}:{}", accepted.source, accepted.message_id).into(),
        body_hash: accepted.body_hash,
        accepted_ms: accepted.accepted_ms,
        into: None,
        command: false,
    }
}

fn kind_of(record: Record, turn: &Option<domain::ids::TurnId>, setting: &Setting<'_>) -> Option<EntryKind> {
    Some(match record {
        Record::Reset(_) => EntryKind::Reset { first_kept: None },
        Record::Goal(goal) => note(GOAL, &goal),
        // There is none that is worked on.
        Record::PauseGoal => return None,
        Record::Run(run) => note(RUN, &run),
        Record::User => {
            let (accepted, body) = setting.said?;
            let mark = UserMark { command: setting.hidden, ..mark_of(accepted) };
            EntryKind::User(UserEntry {
                content: Arc::clone(&body.content),
                mark: Some(mark),
                event: body.event.clone(),
            })
        }
        Record::Said(accepted) => {
            let body = TurnBody::decode(&accepted.body).ok()?;
            let mark = UserMark { into: *turn, ..mark_of(&accepted) };
            EntryKind::User(UserEntry { content: body.content, mark: Some(mark), event: body.event })
        }
        Record::Queue(set) => note(queue::NOTE, &set),
        Record::Assistant(message, end) => EntryKind::Assistant(Box::new(AssistantEntry {
            message: Arc::from(message),
            turn: *turn,
            end,
            transcript_only: setting.hidden,
        })),
        Record::Tool(result) => EntryKind::ToolResult(ToolResultEntry { result: Arc::new(result), turn: *turn }),
    })
}

fn note(kind: &str, data: &impl Serialize) -> EntryKind {
    let data = serde_json::to_string(data).ok().map(Arc::from);
    EntryKind::Silent(Note::Custom { kind: kind.into(), data })
}

#[cfg(test)]
mod tests {
    use domain::chat::Content;
    use domain::ids::{MessageId, Seq, Source, TurnId};
    use domain::transcript::read_lines;
    use protocol::turn::Route;
    use supervision::memory::SeededIds;
    use uuid::Uuid;

    use super::*;
    use crate::reading;
    use crate::repair::text_of;

    #[test]
    fn lines_are_chained_dated_and_headed_once() {
        let key = SessionKey::new("api:1").unwrap();
        let turn = TurnId(Uuid::from_u128(9));
        let accepted = Accepted {
            turn,
            seq: Seq(1),
            source: Source::new("ws").unwrap(),
            message_id: MessageId::new("m1").unwrap(),
            body_hash: 77,
            route: Route::Live,
            body: [].into(),
            accepted_ms: 0,
            retry_of: None,
        };
        let body = TurnBody { content: [Content::text("hi")].into(), ..TurnBody::text("") };
        let ids = SeededIds::new(1);
        let mut ledger = Ledger::new(SessionId(Uuid::nil()), Epoch(4), 12, &Reading::default());
        let mut file = Vec::new();
        for (number, wall_ms) in [(12, 1000), (13, 500), (14, 2000)] {
            let batch = Batch { turn: Some(turn), records: vec![Record::User], ..Batch::default() };
            let setting = Setting { key: &key, cwd: "/w", said: Some((&accepted, &body)), hidden: false, wall_ms };
            let (commit, entries) = ledger.enter(batch, &setting, &ids);
            assert_eq!((commit.number, commit.epoch, entries.len()), (number, Epoch(4), 1));
            file.extend(text_of(&commit.lines));
        }
        let transcript = read_lines(&file);
        assert_eq!(transcript.problems_total, 0);
        assert_eq!(transcript.header.as_ref().unwrap().session_key.as_deref(), Some("api:1"));
        let path = transcript.path_to_leaf();
        assert_eq!(path.iter().map(|entry| entry.timestamp_ms).collect::<Vec<_>>(), [1000, 1000, 2000]);
        assert!(path.iter().all(|entry| entry.turn() == Some(turn)));
        let EntryKind::User(user) = &path[0].kind else { panic!("a user entry was written") };
        assert_eq!(&*user.mark.as_ref().unwrap().idempotency_key, "ws:m1");

        // A file that lost its header gets one, behind what it has, and its lines go on where they stood.
        let first_line = file.iter().position(|byte| *byte == b'\n').unwrap();
        let mut headless = file.split_off(first_line + 1);
        let source = reading::Source { file: None, keep: 0, rest: headless.clone() };
        let read = reading::read(&source, 1000, None).unwrap();
        let mut ledger = Ledger::new(SessionId(Uuid::nil()), Epoch(5), 15, &read);
        let batch = Batch { turn: Some(turn), records: vec![Record::User], ..Batch::default() };
        let setting = Setting { key: &key, cwd: "/w", said: Some((&accepted, &body)), hidden: false, wall_ms: 3000 };
        let (commit, _) = ledger.enter(batch, &setting, &ids);
        headless.extend(text_of(&commit.lines));
        let transcript = read_lines(&headless);
        assert_eq!((commit.lines.len(), transcript.path_to_leaf().len()), (2, 4));
        assert!(transcript.header.is_some());
    }
}
