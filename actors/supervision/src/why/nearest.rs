//! Names that somebody may have meant.

/// At most so many are offered.
const OFFERED_MAX: usize = 3;

/// The names most like `wanted`: those that begin with it first, then those that differ in few characters.
pub(super) fn of(wanted: &str, names: &[String]) -> Vec<String> {
    let close = (wanted.chars().count() / 3).max(1);
    let mut found: Vec<(usize, &String)> = names
        .iter()
        .filter_map(|name| {
            if name.starts_with(wanted) {
                return Some((0, name));
            }
            let distance = strsim::damerau_levenshtein(wanted, name);
            (distance <= close).then_some((distance, name))
        })
        .collect();
    found.sort();
    found.dedup();
    found.into_iter().take(OFFERED_MAX).map(|(_, name)| name.clone()).collect()
}
