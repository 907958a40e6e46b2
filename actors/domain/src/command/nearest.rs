//! Which command somebody may have meant.

/// What people call commands elsewhere, and what these do here.
const SYNONYMS: &[(&str, &str)] = &[
    ("/cancel", "/stop"),
    ("/abort", "/stop"),
    ("/clear", "/new"),
    ("/agents", "/subagents"),
    ("/runs", "/subagents"),
];
/// Names that ask for nothing there is: those who leave a chat need no command for that.
const MEANT: &[&str] = &["/exit", "/quit"];
/// What cannot be taken back, or others feel too: suggested for a slip of one letter only.
const GRAVE: &[&str] = &["/restart", "/new", "/reset"];

/// Letters that may differ.
const SLIPS_MAX: usize = 2;
/// And the part of the longer word that they may be.
const SLIPS_PART: usize = 3;

/// The command that `word` (in lower case, with its `/`) was meant to be, the first of several, if any is like it.
pub(super) fn nearest(word: &str, names: impl Iterator<Item = &'static str>) -> Option<&'static str> {
    if let Some((_, name)) = SYNONYMS.iter().find(|(synonym, _)| *synonym == word) {
        return Some(name);
    }
    if MEANT.contains(&word) {
        return None;
    }
    let length = word.chars().count();
    let mut best: Option<(usize, &'static str)> = None;
    for name in names {
        // The `/` is no letter of either.
        let longer = name.chars().count().max(length).saturating_sub(1);
        let most = if GRAVE.contains(&name) { 1 } else { SLIPS_MAX }.min(longer / SLIPS_PART);
        // Words of very different lengths are not compared: that takes the product of both.
        if name.chars().count().abs_diff(length) > most {
            continue;
        }
        let slips = strsim::osa_distance(word, name);
        if slips <= most && best.is_none_or(|(least, _)| slips < least) {
            best = Some((slips, name));
        }
    }
    best.map(|(_, name)| name)
}
