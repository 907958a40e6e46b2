//! Compares the end of a transcript file with the lines that the journal says belong there.
//!
//! | found, after the lines that agree | decision |
//! |---|---|
//! | nothing | write the missing lines |
//! | a start of our next bytes, some of them zeros, or nothing but zeros | truncate there, write on |
//! | complete lines of somebody else | keep them; ours follow, then a leaf row that points at ours |
//! | a complete record of somebody else that lacks only its line end | the same, its line is ended first |
//! | anything else | move it aside, truncate there, write on |
//!
//! A line of ours that stands behind foreign ones is recognised, so a repair that was cut short is simply continued.
//! **Invariant:** no complete line of anybody is lost, and none of ours is altered.

use std::sync::Arc;

use protocol::journal::Line;
use serde::Deserialize;
use serde::de::IgnoredAny;

/// What to do with the end of a file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Repair {
    /// Bytes of it that stay.
    pub keep: usize,
    /// How many of our lines stand within them; the others are written behind.
    pub have: usize,
    /// What is cut off: nothing, ours, or something that is moved aside first.
    pub cut: Cut,
    /// Complete lines of somebody else among the bytes that stay.
    pub foreign: usize,
    /// Whether the last line that stays lacks its end, which is to be written first.
    pub unended: bool,
    /// Whether foreign lines stand before lines of ours that are still to be written.
    pub needs_leaf: bool,
}

/// What is cut off the end of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Cut {
    /// Nothing.
    #[default]
    Nothing,
    /// Pieces of our own lines, which are written again.
    Torn,
    /// Bytes that nobody knows.
    Damaged,
}

/// Decides over `tail`, the bytes of a file from the place on where `ours` begin.
pub fn decide(tail: &[u8], ours: &[Line]) -> Repair {
    let mut repair = Repair::default();
    loop {
        let rest = tail.get(repair.keep..).unwrap_or(&[]);
        let missing = ours.get(repair.have..).unwrap_or(&[]);
        if rest.is_empty() {
            break;
        }
        if let Some(next) = missing.first()
            && starts_with_line(rest, &next.text)
        {
            repair.keep += next.text.len() + 1;
            repair.have += 1;
            continue;
        }
        if is_torn(rest, missing) {
            repair.cut = Cut::Torn;
            break;
        }
        match rest.iter().position(|byte| *byte == b'\n') {
            Some(end) if is_record(rest.get(..end).unwrap_or(&[])) => {
                repair.keep += end + 1;
                repair.foreign += 1;
            }
            None if is_record(rest) => {
                repair.keep += rest.len();
                repair.foreign += 1;
                repair.unended = true;
            }
            Some(_) | None => {
                repair.cut = Cut::Damaged;
                break;
            }
        }
    }
    repair.needs_leaf = repair.foreign > 0 && repair.have < ours.len();
    repair
}

/// The text of lines, as a file has it.
pub fn text_of(lines: &[Line]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(lines.iter().map(|line| line.text.len() + 1).sum());
    for line in lines {
        bytes.extend_from_slice(line.text.as_bytes());
        bytes.push(b'\n');
    }
    bytes
}

fn starts_with_line(rest: &[u8], text: &Arc<str>) -> bool {
    rest.strip_prefix(text.as_bytes()).is_some_and(|behind| behind.first() == Some(&b'\n'))
}

/// Whether `rest` is what an interrupted write of `missing` leaves: each byte ours or zero, and only zeros beyond.
fn is_torn(rest: &[u8], missing: &[Line]) -> bool {
    let mut expected = missing.iter().flat_map(|line| line.text.as_bytes().iter().chain(b"\n"));
    rest.iter().all(|byte| {
        let ours = expected.next();
        *byte == 0 || Some(byte) == ours
    })
}

/// Whether a line is a JSON object with a type, as every transcript record is.
pub fn is_record(line: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Record {
        r#type: String,
        #[serde(flatten)]
        _rest: std::collections::HashMap<String, IgnoredAny>,
    }
    serde_json::from_slice::<Record>(line).is_ok_and(|record| !record.r#type.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(id: &str) -> Line {
        let text = format!(r#"{{"type":"message","id":"{id}","message":{{"role":"user","content":"täxt of {id}"}}}}"#);
        Line { id: id.into(), text: text.into() }
    }

    fn ours() -> Vec<Line> {
        vec![line("a1"), line("b2"), line("c3")]
    }

    fn foreign() -> Vec<u8> {
        b"{\"id\":\"f\",\"type\":\"custom\",\"x\":[1,{}]}\n".to_vec()
    }

    /// What the file holds after the repair.
    fn repaired(tail: &[u8], ours: &[Line]) -> Vec<u8> {
        let repair = decide(tail, ours);
        let mut bytes = tail[..repair.keep].to_vec();
        bytes.extend(text_of(&ours[repair.have..]));
        bytes
    }

    #[test]
    fn a_file_cut_at_any_byte_is_completed() {
        let (ours, whole) = (ours(), text_of(&ours()));
        for length in 0..=whole.len() {
            let tail = &whole[..length];
            assert_eq!(repaired(tail, &ours), whole, "cut at {length}");
            let repair = decide(tail, &ours);
            assert!(repair.cut != Cut::Damaged && repair.foreign == 0 && !repair.needs_leaf);
        }
    }

    #[test]
    fn zeroed_pieces_are_written_again() {
        let (ours, whole) = (ours(), text_of(&ours()));
        for start in 0..whole.len() {
            let mut tail = whole.clone();
            let end = (start + 40).min(tail.len());
            tail[start..end].fill(0);
            assert_eq!(repaired(&tail, &ours), whole);
            assert_eq!(decide(&tail, &ours).cut, Cut::Torn);
            tail.truncate(end);
            assert_eq!(repaired(&tail, &ours), whole);
            tail.resize(whole.len() + 100, 0);
            assert_eq!(repaired(&tail, &ours), whole);
        }
    }

    #[test]
    fn foreign_lines_stay_and_ours_follow() {
        for before in 0..=3 {
            let (ours, foreign) = (ours(), foreign());
            let mut tail = text_of(&ours[..before]);
            tail.extend(&foreign);
            let repair = decide(&tail, &ours);
            assert_eq!((repair.keep, repair.have, repair.cut), (tail.len(), before, Cut::Nothing));
            assert_eq!((repair.foreign, repair.needs_leaf), (1, before < 3));
            // A repair that was cut at any byte comes to the same end.
            let whole = repaired(&tail, &ours);
            for length in tail.len()..whole.len() {
                assert_eq!(repaired(&whole[..length], &ours), whole, "cut at {length}");
            }
        }
    }

    #[test]
    fn other_bytes_are_moved_aside() {
        let ours = ours();
        for junk in [&b"\xff\xfe\x00garbage"[..], b"not json\n", b"{\"type\":\"mess", b"[1]\n", b"{\"a\":1}\n", b"\n"] {
            for before in 0..=3 {
                let mut tail = text_of(&ours[..before]);
                let keep = tail.len();
                tail.extend_from_slice(junk);
                if before < 3 && text_of(&ours[before..]).starts_with(junk) {
                    continue;
                }
                let repair = decide(&tail, &ours);
                assert_eq!((repair.keep, repair.have, repair.cut), (keep, before, Cut::Damaged), "{junk:?}");
                assert_eq!(repaired(&tail, &ours), text_of(&ours));
            }
        }
    }

    #[test]
    fn a_record_without_its_line_end_stays_and_is_ended() {
        let mut tail = foreign();
        tail.extend(b"{\"type\":\"custom\"}");
        let repair = decide(&tail, &ours());
        assert_eq!((repair.keep, repair.foreign, repair.cut), (tail.len(), 2, Cut::Nothing));
        assert!(repair.unended && repair.needs_leaf);
        tail.push(b'\n');
        assert!(!decide(&tail, &ours()).unended);
    }

    #[test]
    fn foreign_lines_before_junk_stay() {
        let mut tail = foreign();
        let keep = tail.len();
        tail.extend_from_slice(b"junk");
        let repair = decide(&tail, &ours());
        assert_eq!((repair.keep, repair.cut, repair.needs_leaf), (keep, Cut::Damaged, true));
    }
}
