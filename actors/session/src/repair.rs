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
//! What was brought along before our first line is the conversation that ours go on with: there they need no leaf row.
//!
//! A line of ours that stands behind foreign ones is recognised, and so is the leaf row, which follows from the line before
//! it: a repair that was cut short, even in the middle of the row, is simply continued.
//! **Invariant:** no complete line of anybody is lost, and none of ours is altered.

use std::sync::Arc;

use domain::body::body_hash;
use domain::ids::EntryId;
use domain::time::parse_iso_ms;
use domain::transcript::{Head, leaf_line};
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
    /// Whether lines of somebody else stand between ours, so that a leaf row is to be written behind them.
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

/// Decides over `tail`, the bytes of a file from the place on where `ours` begin. In a file that was `brought` along the
/// whole conversation before ours may stand there, too.
pub fn decide(tail: &[u8], ours: &[Line], brought: bool) -> Repair {
    let mut repair = Repair::default();
    // Whether somebody's lines stand between ours, and no leaf row behind them yet.
    let mut mixed = false;
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
        if mixed
            && let Some(leaf) = ours.get(..repair.have).and_then(<[Line]>::last).map(leaf_after)
            && rest.starts_with(leaf.as_bytes())
        {
            repair.keep += leaf.len();
            mixed = false;
            continue;
        }
        let leaf = ours.last().filter(|_| mixed).map(leaf_after);
        if is_torn(rest, missing, leaf.as_deref().unwrap_or_default()) {
            repair.cut = Cut::Torn;
            break;
        }
        let between = !missing.is_empty() && (repair.have > 0 || !brought);
        match rest.iter().position(|byte| *byte == b'\n') {
            Some(end) if is_record(rest.get(..end).unwrap_or(&[])) => {
                repair.keep += end + 1;
                repair.foreign += 1;
                mixed |= between;
            }
            None if is_record(rest) => {
                repair.keep += rest.len();
                repair.foreign += 1;
                repair.unended = true;
                mixed |= between;
            }
            Some(_) | None => {
                repair.cut = Cut::Damaged;
                break;
            }
        }
    }
    repair.needs_leaf = mixed;
    repair
}

/// The row, with its line end, that makes `last` the leaf again. Always the same for the same line.
pub fn leaf_after(last: &Line) -> String {
    #[derive(Deserialize)]
    struct Dated {
        timestamp: String,
    }
    let dated = serde_json::from_str::<Dated>(&last.text).ok();
    let timestamp_ms = dated.and_then(|dated| parse_iso_ms(&dated.timestamp)).unwrap_or(0);
    let id = EntryId(body_hash(format!("leaf {}", last.id).as_bytes())).to_string().into();
    let mut row = leaf_line(&Head { id, parent: Some(last.id.clone()), timestamp_ms }, Some(&last.id), None);
    row.push('\n');
    row
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

/// Whether `rest` is what an interrupted write of `missing` and the leaf row leaves: each byte ours or zero, and only zeros
/// beyond.
fn is_torn(rest: &[u8], missing: &[Line], leaf: &str) -> bool {
    let lines = missing.iter().flat_map(|line| line.text.as_bytes().iter().chain(b"\n"));
    let mut expected = lines.chain(leaf.as_bytes());
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
        let repair = decide(tail, ours, false);
        let mut bytes = tail[..repair.keep].to_vec();
        bytes.extend(text_of(&ours[repair.have..]));
        if repair.needs_leaf {
            bytes.extend(leaf_after(ours.last().unwrap()).as_bytes());
        }
        bytes
    }

    #[test]
    fn a_file_cut_at_any_byte_is_completed() {
        let (ours, whole) = (ours(), text_of(&ours()));
        for length in 0..=whole.len() {
            let tail = &whole[..length];
            assert_eq!(repaired(tail, &ours), whole, "cut at {length}");
            let repair = decide(tail, &ours, false);
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
            assert_eq!(decide(&tail, &ours, false).cut, Cut::Torn);
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
            let repair = decide(&tail, &ours, false);
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
    fn a_repair_that_is_torn_anywhere_is_continued_with_its_leaf_row() {
        for before in 0..=2 {
            let ours = ours();
            let mut tail = text_of(&ours[..before]);
            tail.extend(foreign());
            let start = tail.len();
            let whole = repaired(&tail, &ours);
            assert!(whole.ends_with(leaf_after(&ours[2]).as_bytes()));
            for zeroed in start..whole.len() {
                let mut torn = whole.clone();
                torn[zeroed..].iter_mut().take(60).for_each(|byte| *byte = 0);
                let repair = decide(&torn, &ours, false);
                assert_eq!((repair.cut, repair.foreign, repair.needs_leaf), (Cut::Torn, 1, true), "at {zeroed}");
                assert_eq!(repaired(&torn, &ours), whole, "at {zeroed}");
            }
            let repair = decide(&whole, &ours, false);
            assert_eq!((repair.keep, repair.foreign, repair.needs_leaf), (whole.len(), 1, false));
        }
    }

    #[test]
    fn a_conversation_that_was_brought_along_needs_no_leaf_row() {
        let ours = ours();
        let tail = [foreign(), text_of(&ours[..1])].concat();
        let repair = decide(&tail, &ours, true);
        assert_eq!((repair.foreign, repair.have, repair.needs_leaf), (1, 1, false));
        let repair = decide(&[tail, foreign()].concat(), &ours, true);
        assert_eq!((repair.foreign, repair.have, repair.needs_leaf), (2, 1, true));
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
                let repair = decide(&tail, &ours, false);
                assert_eq!((repair.keep, repair.have, repair.cut), (keep, before, Cut::Damaged), "{junk:?}");
                assert_eq!(repaired(&tail, &ours), text_of(&ours));
            }
        }
    }

    #[test]
    fn a_record_without_its_line_end_stays_and_is_ended() {
        let mut tail = foreign();
        tail.extend(b"{\"type\":\"custom\"}");
        let repair = decide(&tail, &ours(), false);
        assert_eq!((repair.keep, repair.foreign, repair.cut), (tail.len(), 2, Cut::Nothing));
        assert!(repair.unended && repair.needs_leaf);
        tail.push(b'\n');
        assert!(!decide(&tail, &ours(), false).unended);
    }

    #[test]
    fn foreign_lines_before_junk_stay() {
        let mut tail = foreign();
        let keep = tail.len();
        tail.extend_from_slice(b"junk");
        let repair = decide(&tail, &ours(), false);
        assert_eq!((repair.keep, repair.cut, repair.needs_leaf), (keep, Cut::Damaged, true));
    }
}
