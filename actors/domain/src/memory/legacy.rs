//! The archive as nanobot kept it before: `memory/HISTORY.md`, paragraphs with or without a date in front.
//!
//! A new chunk begins behind an empty line, and with a line that begins with a date in brackets; the dated lines of
//! messages behind a `[RAW]` head belong to it.

/// A piece of it that becomes a line of the archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// The date in front, as `2026-02-01 10:00`.
    pub timestamp: Option<String>,
    /// What follows that.
    pub content: String,
}

/// The pieces, in their order.
pub fn chunks(text: &str) -> Vec<Chunk> {
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let mut pieces: Vec<Vec<&str>> = Vec::new();
    let mut blank = true;
    for line in text.lines() {
        let is_blank = line.trim().is_empty();
        match pieces.last_mut() {
            Some(piece) if !begins(line, piece, blank) => piece.push(line),
            Some(_) | None if is_blank => {}
            Some(_) | None => pieces.push(vec![line]),
        }
        blank = is_blank;
    }
    pieces.iter().map(|piece| chunk(piece.join("\n").trim())).collect()
}

/// Whether a line begins a new piece behind that one.
fn begins(line: &str, piece: &[&str], blank: bool) -> bool {
    if line.trim().is_empty() {
        return false;
    }
    let raw = piece.first().is_some_and(|head| dated(head).is_some_and(|(_, rest)| rest.starts_with("[RAW]")));
    match dated(line) {
        Some((_, rest)) => blank || !(raw && is_message(rest)),
        None => blank,
    }
}

/// What stands in the brackets of a date in front, and what follows.
fn dated(line: &str) -> Option<(&str, &str)> {
    let (date, rest) = line.strip_prefix('[')?.split_once(']')?;
    let day: Vec<char> = date.chars().take(10).collect();
    let form = "0000-00-00".chars();
    let fits = |(letter, form): (&char, char)| if form == '0' { letter.is_ascii_digit() } else { *letter == form };
    (day.len() == 10 && day.iter().zip(form).all(fits)).then_some((date, rest.trim_start()))
}

/// Whether that is `USER: …` or `ASSISTANT [tools: …]: …`.
fn is_message(rest: &str) -> bool {
    let word = rest.split([':', ' ']).next().unwrap_or_default();
    let is_role = |letter: char| letter.is_ascii_uppercase() || letter.is_ascii_digit() || letter == '_';
    let behind = rest.strip_prefix(word).unwrap_or_default().trim_start();
    word.starts_with(|letter: char| letter.is_ascii_uppercase())
        && word.chars().all(is_role)
        && (behind.starts_with(':') || (behind.starts_with("[tools:") && behind.contains("]:")))
}

fn chunk(text: &str) -> Chunk {
    let minutes = |date: &str| date.chars().nth(10) == Some(' ') && date.chars().count() == 16;
    match dated(text) {
        Some((date, rest)) if minutes(date) => {
            let content = if rest.is_empty() { text } else { rest };
            Chunk { timestamp: Some(date.to_owned()), content: content.to_owned() }
        }
        Some(_) | None => Chunk { timestamp: None, content: text.to_owned() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &[(&str, &str)]) {
        let found = chunks(text);
        let found: Vec<(&str, &str)> =
            found.iter().map(|chunk| (chunk.timestamp.as_deref().unwrap_or(""), &*chunk.content)).collect();
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn dates_and_empty_lines_part_it() {
        check("", &[]);
        check(" \n\n", &[]);
        check("one\ntwo\n\n\nthree\n", &[("", "one\ntwo"), ("", "three")]);
        check(
            "[2026-02-01 10:00] a\r\nb\r\n[2026-02-02 11:30] c",
            &[("2026-02-01 10:00", "a\nb"), ("2026-02-02 11:30", "c")],
        );
        check("[2026-02-01] only a day", &[("", "[2026-02-01] only a day")]);
        check("[2026-02-01 10:00]", &[("2026-02-01 10:00", "[2026-02-01 10:00]")]);
        check("[note] none\n[2026-0x-01 10:00] none either", &[("", "[note] none\n[2026-0x-01 10:00] none either")]);
    }

    #[test]
    fn messages_stay_with_their_head() {
        let raw = "[2026-02-03 12:00] [RAW] 2 messages\n[2026-02-03 12:00] USER: hello\n\
                   [2026-02-03 12:01] ASSISTANT [tools: exec]: hi\n[2026-02-03 12:02] Then this.";
        let first = "[RAW] 2 messages\n[2026-02-03 12:00] USER: hello\n[2026-02-03 12:01] ASSISTANT [tools: exec]: hi";
        check(raw, &[("2026-02-03 12:00", first), ("2026-02-03 12:02", "Then this.")]);
        check(
            "[2026-02-03 12:00] plain\n[2026-02-03 12:00] USER: hello",
            &[("2026-02-03 12:00", "plain"), ("2026-02-03 12:00", "USER: hello")],
        );
    }
}
