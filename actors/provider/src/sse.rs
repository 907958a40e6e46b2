//! Event streams, as servers really send them: pure and incremental, with limits.
//!
//! Lines end with CRLF, LF or CR; `data:` needs no space behind it; comments and other fields are skipped; an event
//! needs no blank line behind it if another one or the end of the stream follows. Only the data of events is kept.

/// Longest line, in bytes.
pub const LINE_BYTES_MAX: usize = 4 << 20;
/// Longest event, in bytes.
pub const EVENT_BYTES_MAX: usize = 8 << 20;

/// What was too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TooLong {
    /// A line.
    Line,
    /// The data of an event.
    Event,
}

/// Reads a stream piece by piece.
#[derive(Debug, Default)]
pub struct Parser {
    line: Vec<u8>,
    data: Option<String>,
    /// The last byte was a CR, so an LF now belongs to it.
    after_cr: bool,
}

impl Parser {
    /// Reads further bytes and appends the data of the events that they complete.
    pub fn push(&mut self, bytes: &[u8], events: &mut Vec<String>) -> Result<(), TooLong> {
        let mut rest = bytes;
        if std::mem::take(&mut self.after_cr) {
            rest = rest.strip_prefix(b"\n").unwrap_or(rest);
            self.after_cr = rest.is_empty() && bytes.is_empty();
        }
        while let Some(end) = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            let (head, tail) = rest.split_at(end);
            self.extend_line(head)?;
            self.end_line(events)?;
            let (ending, tail) = tail.split_at(1);
            rest = tail;
            if ending == b"\r" {
                self.after_cr = rest.is_empty();
                rest = rest.strip_prefix(b"\n").unwrap_or(rest);
            }
        }
        self.extend_line(rest)
    }

    /// The stream ended: what is left is an event too.
    pub fn finish(&mut self, events: &mut Vec<String>) -> Result<(), TooLong> {
        self.end_line(events)?;
        events.extend(self.data.take());
        Ok(())
    }

    fn extend_line(&mut self, bytes: &[u8]) -> Result<(), TooLong> {
        if self.line.len() + bytes.len() > LINE_BYTES_MAX {
            return Err(TooLong::Line);
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    fn end_line(&mut self, events: &mut Vec<String>) -> Result<(), TooLong> {
        let line = std::mem::take(&mut self.line);
        if line.is_empty() {
            events.extend(self.data.take());
            return Ok(());
        }
        let line = line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(&line);
        let Some(value) = line.strip_prefix(b"data") else { return Ok(()) };
        let value = match value.strip_prefix(b":") {
            Some(value) => value.strip_prefix(b" ").unwrap_or(value),
            None if value.is_empty() => value,
            None => return Ok(()),
        };
        let value = String::from_utf8_lossy(value);
        match self.data.take() {
            None => self.data = Some(value.into_owned()),
            Some(whole) if is_complete(&whole) => {
                events.push(whole);
                self.data = Some(value.into_owned());
            }
            Some(mut begun) => {
                begun.push('\n');
                begun.push_str(&value);
                self.data = Some(begun);
            }
        }
        match &self.data {
            Some(data) if data.len() > EVENT_BYTES_MAX => Err(TooLong::Event),
            Some(_) | None => Ok(()),
        }
    }
}

/// Whether data stands for itself, so that a further line begins another event.
fn is_complete(data: &str) -> bool {
    data.trim() == DONE || is_json(data)
}

/// The data of the event that ends a stream.
pub const DONE: &str = "[DONE]";

/// Whether data is one JSON value.
pub fn is_json(data: &str) -> bool {
    serde_json::from_str::<serde::de::IgnoredAny>(data).is_ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn events(pieces: &[&[u8]]) -> Vec<String> {
        let (mut parser, mut events) = (Parser::default(), Vec::new());
        for piece in pieces {
            parser.push(piece, &mut events).unwrap();
        }
        parser.finish(&mut events).unwrap();
        events
    }

    #[test]
    fn deviations_are_read() {
        for (stream, expected) in [
            ("data: {}\n\ndata: [DONE]\n\n", &["{}", "[DONE]"][..]),
            ("data: 1\r\n\r\ndata: 2\r\n\r\n", &["1", "2"]),
            ("data: 1\r\rdata: 2\r\r", &["1", "2"]),
            ("data:1\n\ndata:  2\n\n", &["1", " 2"]),
            (": comment\n\n:\n\ndata: 1\n\n: more\n\n", &["1"]),
            ("event: x\nid: 7\nretry: 1\ndata: 1\n\n", &["1"]),
            ("data: 1\ndata: 2\n", &["1", "2"]),
            ("data: {\ndata: }\n\n", &["{\n}"]),
            ("data: 1", &["1"]),
            ("\u{feff}data: 1\n\n", &["1"]),
            ("data\n\n", &[""]),
            ("database: 1\n\ndat: 2\n\n", &[]),
            ("\n\n\n", &[]),
        ] {
            assert_eq!(events(&[stream.as_bytes()]), expected, "{stream:?}");
        }
    }

    #[test]
    fn limits_hold() {
        let (mut parser, mut events) = (Parser::default(), Vec::new());
        let long = vec![b'x'; LINE_BYTES_MAX];
        assert_eq!(parser.push(&long, &mut events), Ok(()));
        assert_eq!(parser.push(b"x", &mut events), Err(TooLong::Line));
        let mut parser = Parser::default();
        let mut line = b"data: ".to_vec();
        line.extend(vec![b'x'; LINE_BYTES_MAX - 10]);
        line.push(b'\n');
        assert_eq!(parser.push(&line, &mut events), Ok(()));
        assert_eq!(parser.push(&line, &mut events), Ok(()));
        assert_eq!(parser.push(&line, &mut events), Err(TooLong::Event));
    }

    proptest! {
        #[test]
        fn where_the_pieces_are_cut_does_not_matter(
            stream in r"(data: ?[a-z{}1]{0,3}|: c|id: 1|\r\n|\n|\r|é){0,20}",
            cuts in proptest::collection::vec(0usize..200, 0..6),
        ) {
            let bytes = stream.as_bytes();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.sort_unstable();
            let (mut pieces, mut begin) = (Vec::new(), 0);
            for cut in cuts {
                pieces.push(&bytes[begin..cut]);
                begin = cut;
            }
            pieces.push(&bytes[begin..]);
            prop_assert_eq!(events(&pieces), events(&[bytes]));
        }

        #[test]
        fn any_bytes_are_read(bytes: Vec<u8>) {
            events(&[&bytes]);
        }
    }
}
