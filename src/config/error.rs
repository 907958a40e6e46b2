//! What can be wrong with a configuration, in words that say where and what to do.
//!
//! **Invariant:** no text here repeats a value that may be a secret: none of a key or token, none of the environment, and
//! of a text in the file never more than its beginning.

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Why there is no configuration. The command ends with exit code 3.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// Neither a home directory nor a data directory is known.
    #[error("no home directory is known; set GREENROOM_HOME to the data directory")]
    NoHome,
    /// A path could not be made absolute.
    #[error("the path {path} cannot be used: {source}")]
    BadPath {
        /// The path as given.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Settings that cannot be used, all of them; or the one reason why the file cannot be read at all.
    #[error("{}", List(.0))]
    Invalid(Vec<Problem>),
}

/// Where a setting came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// The file, with line and column (in characters) where they are known.
    File {
        /// The file.
        file: PathBuf,
        /// Line and column, from 1.
        at: Option<(usize, usize)>,
    },
    /// An environment variable.
    Variable(String),
    /// An option of the command line.
    Option(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { file, at: Some((line, column)) } => write!(f, "{}:{line}:{column}", file.display()),
            Self::File { file, at: None } => write!(f, "{}", file.display()),
            Self::Variable(name) => write!(f, "environment variable {name}"),
            Self::Option(name) => write!(f, "option {name}"),
        }
    }
}

/// One setting that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Where it was set.
    pub origin: Origin,
    /// The key, as `api.port`; empty for the whole file.
    pub path: String,
    /// What is wrong: `must be a whole number from 1 to 65535, found the text "abc"`.
    pub what: String,
}

impl Problem {
    /// Of a file as a whole.
    pub(super) fn of_file(file: &Path, at: Option<(usize, usize)>, what: impl Into<String>) -> Self {
        Self { origin: Origin::File { file: file.into(), at }, path: String::new(), what: what.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() {
            write!(f, "{}: {}", self.origin, self.what)
        } else {
            write!(f, "{}: {} {}", self.origin, self.path, self.what)
        }
    }
}

struct List<'a>(&'a [Problem]);

impl fmt::Display for List<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [one] = self.0 {
            return one.fmt(f);
        }
        write!(f, "{} settings cannot be used:", self.0.len())?;
        for problem in self.0 {
            write!(f, "\n  {problem}")?;
        }
        Ok(())
    }
}

/// Something that is worth a line but stops nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Warning {
    /// A key that no version knows.
    Unknown {
        /// Where it is.
        origin: Origin,
        /// The key with its path.
        path: String,
        /// The key that was probably meant.
        nearest: Option<String>,
    },
    /// Legal keys that this version does not act on; they are kept.
    Unused {
        /// Where the first of them is.
        origin: Origin,
        /// The section; empty for the top level.
        section: String,
        /// Its keys.
        keys: Vec<String>,
    },
    /// A setting that works but probably not as meant.
    Doubtful {
        /// Where it was set.
        origin: Origin,
        /// The key.
        path: String,
        /// Why.
        what: Cow<'static, str>,
    },
}

impl Warning {
    /// Where it was set.
    pub fn origin(&self) -> &Origin {
        match self {
            Self::Unknown { origin, .. } | Self::Unused { origin, .. } | Self::Doubtful { origin, .. } => origin,
        }
    }

    /// The key, or the section of several.
    pub fn key(&self) -> &str {
        match self {
            Self::Unknown { path, .. } | Self::Doubtful { path, .. } => path,
            Self::Unused { section, .. } => section,
        }
    }

    /// The sentence, without the place.
    pub fn what(&self) -> String {
        match self {
            Self::Unknown { path, nearest: Some(nearest), .. } => {
                format!("unknown key {path} is ignored; did you mean {nearest}?")
            }
            Self::Unknown { path, nearest: None, .. } => format!("unknown key {path} is ignored"),
            Self::Unused { section, keys, .. } => {
                let place = if section.is_empty() { "the top level" } else { section };
                format!("not used by this version, in {place}: {}", keys.join(", "))
            }
            Self::Doubtful { path, what, .. } => format!("{path} {what}"),
        }
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.origin(), self.what())
    }
}
