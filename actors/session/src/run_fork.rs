//! The conversation with which a sub-agent begins: what its parent's was before the turn that asked for it. Blocks.
//!
//! All earlier turns are whole in the file before that turn begins, and nothing of that turn is copied. So it does not
//! matter how much of it the file has by now, and no call is left without its result.

use std::io;
use std::path::PathBuf;

use domain::run::RunSpec;
use domain::transcript::{Reader, Record, TreeIndex};
use protocol::edit::EditError;
use supervision::ports::{Open, Ports};

use crate::draw::{self, NewSession};
use crate::reading::Source;
use crate::transcripts::Transcripts;

// === impl Transcripts ===

impl Transcripts {
    /// Makes the session of `spec` a copy of its parent's conversation, unless it is there, or there is nothing to copy;
    /// with what its lines name below `attachments`.
    pub fn fork_for_run(&self, spec: &RunSpec, attachments: &[PathBuf], ports: &Ports) -> Result<(), EditError> {
        let key = spec.key().map_err(|bad| EditError::Io(bad.to_string()))?;
        let (from, to) = (self.file_of(&spec.parent), self.file_of(&key));
        let file = match self.disk.open(&from, Open::Read) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(draw::unreadable(&error)),
        };
        let keep = file.opened().length;
        let source = Source { file: Some(file), keep, rest: Vec::new() };
        let (mut reader, mut tree) = (Reader::default(), TreeIndex::default());
        let mut take = |Record { entry, parent, kind, place }: Record| {
            tree.insert(&entry, &parent, kind, place);
        };
        source.each_piece(|piece| reader.push(piece, &mut take)).map_err(|error| draw::unreadable(&error))?;
        let header = reader.finish(take).header;
        let first = tree.positions().find(|at| tree.turn(*at) == Some(spec.turn));
        let end = first.map_or_else(|| tree.leaf(), |first| tree.parent_id(first));
        let Some(end) = end else { return Ok(()) };
        let cwd = self.dir.parent().unwrap_or(&self.dir).to_string_lossy();
        let new = NewSession { key: &key, path: &to, from: &spec.parent, from_path: &from, cwd: &cwd, attachments };
        let version = header.map_or(3, |header| header.version);
        match draw::fork(&tree, version, &source, Some(end), &new, ports) {
            Ok(_) => {
                self.list_new(&key);
                Ok(())
            }
            // The same call asked for it before.
            Err(EditError::Exists(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use domain::chat::Content;
    use domain::ids::{SessionId, SessionKey, TurnId};
    use domain::transcript::{Head, HeaderFields, UserEntry, UserMark, header_line, read_lines, user_line};
    use supervision::memory::{PowerCutDisk, TestClock, memory_ports};
    use uuid::Uuid;

    use super::*;

    fn turn(number: u128) -> TurnId {
        TurnId(Uuid::from_u128(number))
    }

    fn spec(turn: TurnId) -> RunSpec {
        let spec = serde_json::json!({"run": Uuid::from_u128(7), "parent": "cli:direct", "turn": turn, "source": "cli",
                                      "label": "toads", "task": "count", "fork": true});
        serde_json::from_value(spec).unwrap()
    }

    /// The parent's transcript: a message of each of these turns.
    fn write(ports: &Ports, turns: &[u128]) {
        let key = SessionKey::new("cli:direct").unwrap();
        let session = SessionId(Uuid::from_u128(5));
        let header = HeaderFields { session, key: &key, timestamp_ms: 1, cwd: "/w", parent_session: None };
        let mut out = header_line(&header) + "\n";
        for (at, number) in turns.iter().enumerate() {
            let parent = at.checked_sub(1).map(|before| format!("e{}", turns[before]).into());
            let head = Head { id: format!("e{number}").into(), parent, timestamp_ms: 9 };
            let key = format!("ws:{number}").into();
            let mark = UserMark {
                turn: turn(*number),
                idempotency_key: key,
                body_hash: 1,
                accepted_ms: 0,
                into: None,
                command: false,
            };
            let content = [Content::text(format!("said {number}"))].into();
            out += &(user_line(&head, &UserEntry { content, mark: Some(mark), event: None }) + "\n");
        }
        ports.disk.create_dir_all(Path::new("/s")).unwrap();
        ports.disk.open(Path::new("/s/cli.direct.jsonl"), Open::Create).unwrap().write_at(out.as_bytes(), 0).unwrap();
    }

    fn texts(bytes: &[u8]) -> Vec<String> {
        let transcript = read_lines(bytes);
        let users = transcript.path_to_leaf().into_iter().filter_map(|entry| entry.user());
        users.map(|user| domain::chat::plain_text(&user.content)).collect()
    }

    #[test]
    fn all_before_the_turn_is_copied_once_whatever_the_file_has_of_it() {
        for turns in [&[1, 2][..], &[1, 2, 3][..], &[1, 2, 3, 4][..]] {
            let ports = memory_ports(PowerCutDisk::new(), TestClock::new(), 1);
            let transcripts = Transcripts::new(ports.clone(), PathBuf::from("/s"));
            write(&ports, turns);
            let spec = spec(turn(3));
            let path = transcripts.file_of(&spec.key().unwrap());
            transcripts.fork_for_run(&spec, &[], &ports).unwrap();
            let copy = ports.disk.read(&path).unwrap();
            assert_eq!(texts(&copy), ["said 1", "said 2"], "{turns:?}");
            write(&ports, &[1]);
            transcripts.fork_for_run(&spec, &[], &ports).unwrap();
            assert_eq!(ports.disk.read(&path).unwrap(), copy, "the same call makes no second copy");
        }
    }

    #[test]
    fn of_nothing_no_copy_is_made() {
        for turns in [None, Some(&[3, 4][..])] {
            let ports = memory_ports(PowerCutDisk::new(), TestClock::new(), 1);
            let transcripts = Transcripts::new(ports.clone(), PathBuf::from("/s"));
            turns.into_iter().for_each(|turns| write(&ports, turns));
            let spec = spec(turn(3));
            assert_eq!(transcripts.fork_for_run(&spec, &[], &ports), Ok(()));
            assert!(ports.disk.stat(&transcripts.file_of(&spec.key().unwrap())).is_err());
        }
    }
}
