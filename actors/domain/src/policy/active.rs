//! The tools that a session has now, kept while tools come and go.

use std::collections::BTreeSet;

/// Names of the tools that are known, and those of them that are active.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ActiveTools {
    known: BTreeSet<String>,
    active: BTreeSet<String>,
}

// === impl ActiveTools ===

impl ActiveTools {
    /// Takes in which tools there are and which are allowed: what was active stays so if it is allowed, what was not
    /// stays out, and what is new is active.
    pub fn update<'a>(&mut self, registered: impl IntoIterator<Item = &'a str>, allowed: impl Fn(&str) -> bool) {
        let registered: BTreeSet<String> = registered.into_iter().map(str::to_owned).collect();
        let before = |name: &String| self.active.contains(name) || !self.known.contains(name);
        self.active = registered.iter().filter(|name| before(name) && allowed(name)).cloned().collect();
        self.known = registered;
    }

    /// Whether the tool is active.
    pub fn has(&self, name: &str) -> bool {
        self.active.contains(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_active_and_is_allowed_stays_and_what_is_new_joins() {
        let mut tools = ActiveTools::default();
        for (registered, denied, active) in [
            (&["a", "b"][..], &[][..], &["a", "b"][..]),
            (&["a", "b"], &["b"], &["a"]),
            // Allowed again, but not active before.
            (&["a", "b", "c"], &[], &["a", "c"]),
            (&["a", "b", "c", "d"], &["d"], &["a", "c"]),
            (&["c"], &[], &["c"]),
            // Gone meanwhile, so they are new.
            (&["a", "b", "c"], &[], &["a", "b", "c"]),
            (&[], &[], &[]),
        ] {
            tools.update(registered.iter().copied(), |name| !denied.contains(&name));
            let found: Vec<&str> = ["a", "b", "c", "d"].into_iter().filter(|name| tools.has(name)).collect();
            assert_eq!(found, active, "{registered:?} without {denied:?}");
        }
    }
}
