//! What a key is called and what it may hold.
//!
//! A key has one canonical spelling, snake_case, inside the program. Files may use camelCase or snake_case;
//! people are shown camelCase.

/// One key of a section.
#[derive(Debug)]
pub struct Key {
    /// Canonical (snake_case) name.
    pub name: &'static str,
    /// What its value may be.
    pub kind: Kind,
}

/// The keys of one object of the file.
#[derive(Debug)]
pub struct Section {
    /// Keys that this version acts on.
    pub keys: &'static [Key],
    /// Keys that are legal but that this version does not act on, in canonical spelling.
    pub unused: &'static [&'static str],
}

impl Section {
    /// The key with this canonical name.
    pub fn key(&self, canonical: &str) -> Option<&'static Key> {
        self.keys.iter().find(|key| key.name == canonical)
    }

    /// Every legal name, canonical.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.keys.iter().map(|key| key.name).chain(self.unused.iter().copied())
    }
}

/// What a value may be. Ranges are inclusive.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    /// `true` or `false`.
    Flag,
    /// A whole number in a range.
    Whole(u64, u64),
    /// A number in a range.
    Number(f64, f64),
    /// Text, not empty.
    Text,
    /// Text; empty means not set.
    OptionalText,
    /// A key or token; empty means not set.
    Secret,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// A list of texts; a single text counts as a list of one.
    TextList,
    /// A list of tool names and groups; a single text counts as a list of one.
    ToolPatterns,
    /// An object with lists of texts and names of the user's own, which are never respelled.
    TextLists,
    /// An object with text values and names of the user's own, which are never respelled.
    TextMap,
    /// An object that is passed on as it is.
    FreeObject,
    /// A section.
    Section(&'static Section),
    /// An object whose names are the user's own and whose values are all sections of this shape.
    Named(&'static Section),
    /// A list of objects, all of this shape.
    Sections(&'static Section),
}

impl Kind {
    /// The section of a section, or of each of the user's own names. What is inside of a list has no name.
    pub fn section(&self) -> Option<&'static Section> {
        if let Self::Section(section) | Self::Named(section) = self { Some(section) } else { None }
    }
}

/// The canonical spelling of a name written in camelCase, kebab-case or snake_case.
pub fn canonical(written: &str) -> String {
    let mut out = String::with_capacity(written.len() + 4);
    let mut previous = '_';
    for letter in written.chars() {
        if letter.is_ascii_uppercase() {
            if previous.is_ascii_lowercase() || previous.is_ascii_digit() {
                out.push('_');
            }
            out.push(letter.to_ascii_lowercase());
        } else {
            out.push(if letter == '-' { '_' } else { letter });
        }
        previous = letter;
    }
    out
}

/// The camelCase spelling of a canonical name.
pub fn camel(canonical: &str) -> String {
    let mut out = String::with_capacity(canonical.len());
    let mut raise = false;
    for letter in canonical.chars() {
        if letter == '_' && !out.is_empty() {
            raise = true;
        } else if raise {
            out.push(letter.to_ascii_uppercase());
            raise = false;
        } else {
            out.push(letter);
        }
    }
    out
}

/// The legal name of `section` that `written` was probably meant to be, in camelCase.
pub fn nearest(section: &Section, written: &str) -> Option<String> {
    closest(&canonical(written), section.names()).map(camel)
}

/// The one of `names` that is close enough to what was written to be meant.
pub fn closest<'n>(wanted: &str, names: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    let allowed = (wanted.chars().count() / 3).clamp(1, 3);
    names
        .map(|name| (strsim::damerau_levenshtein(wanted, name), name))
        .filter(|(distance, _)| *distance <= allowed)
        .min()
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn both_spellings_meet_in_the_canonical_one() {
        for (written, expect) in [
            ("maxTokens", "max_tokens"),
            ("max_tokens", "max_tokens"),
            ("tokenTtlS", "token_ttl_s"),
            ("lm-studio", "lm_studio"),
            ("lmStudio", "lm_studio"),
            ("host", "host"),
            ("HTTPProxy", "httpproxy"),
            ("größe", "größe"),
            ("", ""),
        ] {
            assert_eq!(canonical(written), expect, "{written}");
        }
        assert_eq!(camel("token_ttl_s"), "tokenTtlS");
    }

    #[test]
    fn a_typo_gets_the_nearest_key() {
        let section = Section { keys: &[Key { name: "max_tokens", kind: Kind::Flag }], unused: &["bot_icon"] };
        for (written, expect) in [
            ("maxTokes", Some("maxTokens")),
            ("max_tokesn", Some("maxTokens")),
            ("botIkon", Some("botIcon")),
            ("flavour", None),
            ("", None),
        ] {
            assert_eq!(nearest(&section, written).as_deref(), expect, "{written}");
        }
    }

    proptest! {
        #[test]
        fn spelling_is_stable(name in "[a-z]{1,6}(_[a-z][a-z0-9]{1,5}){0,4}") {
            prop_assert_eq!(canonical(&name), name.clone());
            prop_assert_eq!(canonical(&camel(&name)), name);
        }

        #[test]
        fn canonical_is_idempotent(any in "\\PC{0,40}") {
            let once = canonical(&any);
            prop_assert_eq!(canonical(&once), once);
        }
    }
}
