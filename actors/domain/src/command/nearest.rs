//! Which name somebody may have meant: the similarity of Ratcliff and Obershelp, as Python's `difflib` has it.

/// How similar a name has to be.
const CUTOFF: f64 = 0.6;

/// Characters above which a word is compared with nothing: no name is nearly that long.
const WORD_CHARS_MAX: usize = 64;

/// The name that is most similar to `word`, the first of several, if one is similar at all.
pub(super) fn nearest(word: &str, names: impl Iterator<Item = &'static str>) -> Option<&'static str> {
    if word.chars().count() > WORD_CHARS_MAX {
        return None;
    }
    let mut best: Option<(f64, &'static str)> = None;
    for name in names {
        let ratio = ratio(name, word);
        if ratio >= CUTOFF && best.is_none_or(|(least, _)| ratio > least) {
            best = Some((ratio, name));
        }
    }
    best.map(|(_, name)| name)
}

/// How similar two words are, from 0 to 1: twice the characters of their matching pieces, by those of both. The pieces
/// are the longest common one, and those left and right of it in turn. Takes the product of both lengths.
pub fn ratio(a: &str, b: &str) -> f64 {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let total = a.len() + b.len();
    if total == 0 {
        return 1.0;
    }
    let (mut matching, mut left) = (0, vec![(a.as_slice(), b.as_slice())]);
    while let Some((a, b)) = left.pop() {
        let (at_a, at_b, length) = longest(a, b);
        if length == 0 {
            continue;
        }
        matching += length;
        let (before_a, from_a) = a.split_at(at_a);
        let (before_b, from_b) = b.split_at(at_b);
        left.push((before_a, before_b));
        left.push((from_a.split_at(length).1, from_b.split_at(length).1));
    }
    (2 * matching) as f64 / total as f64
}

/// The longest common piece, the first of several: where in `a`, where in `b`, and its length.
fn longest(a: &[char], b: &[char]) -> (usize, usize, usize) {
    let mut best = (0, 0, 0);
    // The lengths of the common pieces that end with the letter before, by their place in `b`, from 1.
    let mut before = vec![0; b.len() + 1];
    for (at_a, one) in a.iter().enumerate() {
        let mut now = vec![0; b.len() + 1];
        for ((at_b, other), (last, next)) in b.iter().enumerate().zip(before.iter().zip(now.iter_mut().skip(1))) {
            if one != other {
                continue;
            }
            *next = last + 1;
            if *next > best.2 {
                best = (at_a + 1 - *next, at_b + 1 - *next, *next);
            }
        }
        before = now;
    }
    best
}
