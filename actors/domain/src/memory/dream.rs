//! Dream: what is asked of the model that works the archive into the files, and where that stands.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::versions::Contents;
use super::{FILES, Line};
use crate::ids::{SessionKey, TurnId};
use crate::text::{ellipsis, first_chars};

/// What the model is told, unless the workspace has [`GUIDE_FILE`].
pub const GUIDE: &str = include_str!("dream.md");
/// Takes the place of [`GUIDE`].
pub const GUIDE_FILE: &str = "prompts/dream.md";
/// Lines that are worked in at once.
pub const LINES_AT_ONCE: usize = 20;
/// Its sessions that are kept.
pub const SESSIONS_KEPT: usize = 10;
/// Characters of a line that are shown.
const LINE_CHARS_MAX: usize = 1000;
/// Characters of a file that are shown.
const FILE_CHARS_MAX: usize = 8000;
/// The shortest fence around a file.
const FENCE_MIN: usize = 3;

/// Where Dream stands: `memory/.dream.json`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Standing {
    /// When it was last looked whether there is something to do, or the first start; ms since 1970.
    pub last_ms: u64,
    /// What is under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running: Option<Running>,
    /// Its sessions that are kept, oldest first.
    #[serde(default)]
    pub sessions: Vec<SessionKey>,
}

/// A Dream under way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Running {
    /// Its session.
    pub key: SessionKey,
    /// Its turn.
    pub turn: TurnId,
    /// The last line that it works in.
    pub upto: u64,
}

// === impl Standing ===

impl Standing {
    /// Takes a session that has ended; gives those that have to go.
    pub fn ended(&mut self, key: SessionKey) -> Vec<SessionKey> {
        self.running = None;
        self.sessions.retain(|known| *known != key);
        self.sessions.push(key);
        let over = self.sessions.len().saturating_sub(SESSIONS_KEPT);
        self.sessions.drain(..over).collect()
    }
}

/// What the model is asked. `too_large` is how many bytes `memory/MEMORY.md` may have, if it has more.
pub fn request(guide: &str, lines: &[Line], files: &Contents, too_large: Option<u64>) -> String {
    let mut text = format!("{}\n\n# What was said since\n", guide.trim());
    for line in lines {
        let of = line.session_key.as_deref().unwrap_or("unknown session");
        let said = ellipsis(line.content.trim(), LINE_CHARS_MAX).replace('\n', "\n  > ");
        // Writing to a string cannot fail.
        write!(text, "\n- [{}] {of}:\n  > {said}", line.timestamp).unwrap_or_default();
    }
    if lines.is_empty() {
        text.push_str("\nNothing.");
    }
    text.push_str("\n\n# The files as they are\n");
    for path in FILES {
        text.push_str(&shown(path, files.get(path).and_then(Option::as_deref)));
    }
    if let Some(max) = too_large {
        write!(
            text,
            "\n\n# To be shortened\n\n`memory/MEMORY.md` has more than {max} bytes, and is shown to the agent with each \
             message. Read all of it and write it anew with `write_file`, so that it stays below that: merge what belongs \
             together, and leave out what is of least use. What it says now is kept as an older version."
        )
        .unwrap_or_default();
    }
    text
}

/// A file behind its heading, in a fence that nothing in it ends.
fn shown(path: &str, text: Option<&str>) -> String {
    let Some(text) = text else { return format!("\n## {path}\n\nDoes not exist.\n") };
    let count = text.chars().count();
    let part = first_chars(text, FILE_CHARS_MAX);
    let more = if count > FILE_CHARS_MAX {
        format!(" Its first {FILE_CHARS_MAX} are shown; read it for the rest.")
    } else {
        String::new()
    };
    let run = part.split(|letter| letter != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(FENCE_MIN.max(run + 1));
    format!("\n## {path}\n\n{count} characters.{more}\n\n{fence}\n{}\n{fence}\n", part.trim_end_matches('\n'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(content: &str) -> Line {
        Line {
            cursor: 1,
            timestamp: "2026-11-30 14:19".to_owned(),
            content: content.to_owned(),
            session_key: Some("cli:direct".to_owned()),
            part: None,
        }
    }

    #[test]
    fn the_request_has_the_guide_the_lines_and_the_files() {
        let files = [("SOUL.md".to_owned(), Some("a ````\n".to_owned())), ("USER.md".to_owned(), None)].into();
        let text = request("Do it.\n", &[line("one\ntwo")], &files, None);
        assert_eq!(
            text,
            "Do it.\n\n# What was said since\n\n- [2026-11-30 14:19] cli:direct:\n  > one\n  > two\n\n# The files as they are\n\
             \n## SOUL.md\n\n7 characters.\n\n`````\na ````\n`````\n\n## USER.md\n\nDoes not exist.\n\
             \n## memory/MEMORY.md\n\nDoes not exist.\n"
        );
        assert!(request(GUIDE, &[], &files, Some(32)).contains("more than 32 bytes"));
    }

    #[test]
    fn nothing_makes_it_longer_than_its_bounds() {
        let long = "é".repeat(100_000);
        let lines = vec![line(&long); LINES_AT_ONCE];
        let files = FILES.map(|path| (path.to_owned(), Some(long.clone()))).into();
        let count = request(GUIDE, &lines, &files, Some(1)).chars().count();
        assert!(count < GUIDE.chars().count() + LINES_AT_ONCE * 1100 + 3 * 8200 + 1000, "{count}");
    }

    #[test]
    fn the_ten_newest_sessions_stay() {
        let key = |number: u32| SessionKey::new(&format!("dream:{number}")).unwrap();
        let mut standing = Standing::default();
        for number in 0..10 {
            assert_eq!(standing.ended(key(number)), []);
        }
        assert_eq!(standing.ended(key(9)), [], "told twice");
        assert_eq!(standing.ended(key(10)), [key(0)]);
        assert_eq!(standing.sessions.len(), SESSIONS_KEPT);
    }
}
