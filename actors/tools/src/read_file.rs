//! `read_file`: numbered lines of a text file.

use std::io::{BufRead, BufReader};
use std::sync::Arc;

use domain::ids::SessionKey;
use domain::policy::Access;
use domain::request::ToolSpec;
use domain::text::{counted, first_chars};
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::json;

use crate::place::{Fence, PathError};
use crate::seen::Version;
use crate::tool::{Call, Outcome, Tool};

/// Larger files are refused.
const FILE_BYTES_MAX: u64 = 100 * 1024 * 1024;
/// Of the lines of one result.
const CHARS_MAX: usize = 128_000;
/// Room for the footer within the bound of any result.
const FOOTER_CHARS: usize = 200;
/// Lines per call, when the model names no number.
const LINES: u64 = 2000;
/// How much of the beginning is searched for NUL bytes, which text has none of.
const SNIFF_BYTES: usize = 8192;

/// Reads text files.
pub(crate) struct ReadFile {
    fence: Arc<Fence>,
    chars_max: usize,
}

#[derive(Debug, thiserror::Error)]
enum ReadError {
    #[error(transparent)]
    Path(#[from] PathError),
    #[error("`{shown}` has {bytes} bytes; at most {FILE_BYTES_MAX} can be read")]
    TooLarge { shown: String, bytes: u64 },
    #[error("`{0}` is a binary file; only text can be read")]
    Binary(String),
    #[error("line {offset} is beyond the end of `{shown}`, which has {lines} lines")]
    Beyond { shown: String, offset: u64, lines: u64 },
    #[error("`{shown}`: {source}")]
    Io { shown: String, source: std::io::Error },
}

// === impl ReadFile ===

impl ReadFile {
    /// Reads within `fence`; a result has at most `result_chars_max` characters.
    pub(crate) fn new(fence: Arc<Fence>, result_chars_max: usize) -> Self {
        Self { fence, chars_max: CHARS_MAX.min(result_chars_max.saturating_sub(FOOTER_CHARS)) }
    }
}

impl Tool for ReadFile {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "read_file".to_owned(),
            description: "Reads a text file of the workspace. Lines come numbered, as `<number>| <text>`; a footer \
                          says how to go on when not everything was shown."
                .to_owned(),
            parameters: json!({
                "type": "object",
                "properties": {
                    "path": {"type": "string", "description": "Path of the file, relative to the workspace"},
                    "offset": {"type": "integer", "minimum": 1, "description": "First line to show (default 1)"},
                    "limit": {"type": "integer", "minimum": 1, "description": "How many lines to show (default 2000)"}
                },
                "required": ["path"],
                "additionalProperties": false
            }),
            parallel: true,
            idempotent: true,
        }
    }

    fn call(&self, call: Call) -> BoxFuture<'static, Outcome> {
        let (fence, chars_max) = (self.fence.within(&call, Access::Read), self.chars_max);
        async move {
            let path = call.text("path").unwrap_or_default().to_owned();
            let window = Window {
                offset: call.number("offset").unwrap_or(1).max(1),
                limit: call.number("limit").unwrap_or(LINES),
                chars_max,
            };
            let careful = call.policy.writes.map(|_| call.key.clone());
            match call.blocking(move || read(&*fence?, &path, window, careful.as_ref())).await {
                Ok(text) => Outcome::text(text),
                Err(error) => Outcome::error(format!("Error: {error}")),
            }
        }
        .boxed()
    }
}

/// Which lines to show.
#[derive(Clone, Copy)]
struct Window {
    /// The first one, from 1.
    offset: u64,
    limit: u64,
    chars_max: usize,
}

fn read(fence: &Fence, path: &str, window: Window, careful: Option<&SessionKey>) -> Result<String, ReadError> {
    let target = fence.locate(path)?;
    let file = target.open_file()?;
    let shown = target.shown;
    let io = |source| ReadError::Io { shown: shown.clone(), source };
    let bytes = file.metadata().map_err(io)?.len();
    // As it is before it is read: what comes in between is seen as a change.
    let version = Version::of(&file).map_err(io)?;
    let place = target.path;
    if bytes > FILE_BYTES_MAX {
        return Err(ReadError::TooLarge { shown, bytes });
    }
    let mut reader = BufReader::with_capacity(64 * 1024, file);
    if reader.fill_buf().map_err(io)?.iter().take(SNIFF_BYTES).any(|byte| *byte == 0) {
        return Err(ReadError::Binary(shown));
    }
    let page = page(reader, window).map_err(io)?;
    if let Some(key) = careful {
        fence.seen.note(key, &place, version);
    }
    if page.total == 0 {
        return Ok(format!("(`{shown}` is empty)"));
    }
    if window.offset > page.total {
        return Err(ReadError::Beyond { shown, offset: window.offset, lines: page.total });
    }
    let Page { mut text, last, total, .. } = page;
    if last >= total {
        text.push_str(&format!("\n(End of file, {})", counted(total, "line")));
    } else {
        text.push_str(&format!("\n(Lines {} to {last} of {total}; go on with offset={})", window.offset, last + 1));
    }
    Ok(text)
}

/// The asked part of a file.
#[derive(Debug, PartialEq)]
struct Page {
    text: String,
    /// Number of the last line shown; below the window's offset when none was.
    last: u64,
    total: u64,
    full: bool,
}

// === impl Page ===

impl Page {
    /// Takes the next line, cut to what is left of the bound.
    fn take(&mut self, line: &[u8], cut: bool, chars: &mut usize, window: Window) {
        self.total += 1;
        let wanted = self.total >= window.offset && self.total - window.offset < window.limit;
        if !wanted || self.full {
            return;
        }
        let line = String::from_utf8_lossy(line.strip_suffix(b"\r").unwrap_or(line));
        let numbered = format!("{}| {line}", self.total);
        let length = numbered.chars().count();
        let left = window.chars_max.saturating_sub(*chars);
        let first = self.text.is_empty();
        if length < left && !cut {
            *chars += length + 1;
        } else {
            self.full = true;
            if !first {
                return;
            }
        }
        self.text.push_str(first_chars(&numbered, left));
        if self.full {
            self.text.push_str(" ... (line cut)");
        }
        self.text.push('\n');
        self.last = self.total;
    }
}

/// Reads to the end, to know how many lines there are, but keeps only the window.
fn page(mut from: impl BufRead, window: Window) -> std::io::Result<Page> {
    let line_bytes_max = window.chars_max.saturating_mul(4);
    let mut page = Page { text: String::new(), last: window.offset.saturating_sub(1), total: 0, full: false };
    let mut chars = 0;
    let mut line = Vec::new();
    let mut cut = false;
    let mut open = false;
    loop {
        let chunk = from.fill_buf()?;
        if chunk.is_empty() {
            break;
        }
        let end = chunk.iter().position(|byte| *byte == b'\n');
        let part = chunk.get(..end.unwrap_or(chunk.len())).unwrap_or_default();
        let room = line_bytes_max.saturating_sub(line.len());
        cut |= part.len() > room;
        line.extend(part.iter().take(room));
        open = end.is_none();
        let used = end.map_or(chunk.len(), |end| end + 1);
        from.consume(used);
        if end.is_some() {
            page.take(&line, cut, &mut chars, window);
            line.clear();
            cut = false;
        }
    }
    if open {
        page.take(&line, cut, &mut chars, window);
    }
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_line_that_does_not_fit_waits_for_the_next_page() {
        let window = Window { offset: 1, limit: 10, chars_max: 12 };
        let first = page(&b"one\ntwo\nthree"[..], window).unwrap();
        assert_eq!((first.text.as_str(), first.last, first.total), ("1| one\n", 1, 3));
        let second = page(&b"one\ntwo\nthree"[..], Window { offset: 2, ..window }).unwrap();
        assert_eq!((second.text.as_str(), second.last), ("2| two\n", 2));
        let cut = page(&b"a line that is too long"[..], window).unwrap();
        assert_eq!(cut.text, "1| a line th ... (line cut)\n");
    }

    proptest! {
        #[test]
        fn following_the_offsets_shows_every_line_once(
            lines in proptest::collection::vec("[a-zé]{0,12}", 1..40),
            chars_max in 20_usize..80,
            limit in 1_u64..9,
        ) {
            let text = lines.join("\r\n") + "\n";
            let mut shown = String::new();
            let mut offset = 1;
            while offset <= lines.len() as u64 {
                let page = page(text.as_bytes(), Window { offset, limit, chars_max }).unwrap();
                prop_assert_eq!(page.total, lines.len() as u64);
                prop_assert!(page.last >= offset && page.text.chars().count() <= chars_max);
                shown.push_str(&page.text);
                offset = page.last + 1;
            }
            let wanted: String = lines.iter().enumerate().map(|(n, line)| format!("{}| {line}\n", n + 1)).collect();
            prop_assert_eq!(shown, wanted);
        }

        #[test]
        fn any_bytes_are_read(bytes in proptest::collection::vec(any::<u8>(), 0..200), offset in 1_u64..9, chars_max in 0_usize..40) {
            page(&bytes[..], Window { offset, limit: 3, chars_max }).unwrap();
        }
    }
}
