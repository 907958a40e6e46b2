//! Agent ids: `[a-z0-9][a-z0-9_-]{0,63}`.

use std::fmt;

/// Longest id, in characters, all of one byte.
const CHARS_MAX: usize = 64;

/// The name of an agent in session keys.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AgentId(String);

// === impl AgentId ===

impl AgentId {
    /// Makes an id of any text: lower case, other characters become `-`, and nothing becomes `main`.
    pub fn new(text: &str) -> Self {
        let legal = |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || letter == '-';
        let spelled: String = text.trim().chars().map(|letter| if legal(letter) { letter } else { '-' }).collect();
        let begun = spelled.trim_start_matches(['-', '_']);
        let id: String = begun.chars().take(CHARS_MAX).collect::<String>().to_ascii_lowercase();
        let id = id.trim_end_matches('-');
        Self(if id.is_empty() { "main".to_owned() } else { id.to_owned() })
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for AgentId {
    fn default() -> Self {
        Self::new("")
    }
}

impl fmt::Display for AgentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_text_makes_an_id() {
        let long = "a".repeat(80);
        for (text, id) in [
            ("main", "main"),
            (" Work ", "work"),
            ("My Agent!", "my-agent"),
            ("-x_y-", "x_y"),
            ("", "main"),
            ("***", "main"),
            ("über", "ber"),
            (long.as_str(), &"a".repeat(64)),
        ] {
            assert_eq!(AgentId::new(text).as_str(), id, "{text:?}");
            assert_eq!(AgentId::new(id).as_str(), id);
        }
    }
}
