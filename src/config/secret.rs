//! A text that never shows itself.

use std::fmt;

use serde::Deserialize;

/// A key, token or header value. Prints as `…`; the text comes out through [`Secret::expose`] only.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// Wraps `text`.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself, for the one place that sends or compares it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

#[cfg(test)]
mod tests {
    use super::Secret;

    #[test]
    fn a_secret_prints_as_an_ellipsis() {
        let secret = Secret::new("sk-very-private");
        assert_eq!(format!("{secret} {secret:?} {:?}", Some(&secret)), "… … Some(…)");
        assert_eq!(secret.expose(), "sk-very-private");
    }
}
