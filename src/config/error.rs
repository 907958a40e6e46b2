//! What can be wrong with a configuration, in words that say where and what to do.
//!
//! **Invariant:** no text here repeats a value of the file or the environment; it may be a secret.

use std::fmt;
use std::io;
use std::path::PathBuf;

use super::providers::ProviderError;

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
    /// The workspace and the data directory are the same place.
    #[error("the workspace {0} is the data directory itself; tools would reach the configuration and the journal")]
    WorkspaceIsData(PathBuf),
    /// The file cannot be read.
    #[error("{file}: cannot be read: {source}")]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file is larger than any configuration.
    #[error("{file}: has {bytes} bytes; a configuration has at most {max}")]
    TooLarge {
        /// The file.
        file: PathBuf,
        /// Its size.
        bytes: u64,
        /// The limit.
        max: u64,
    },
    /// The file is not text.
    #[error("{file}: is not UTF-8 text (byte {offset})")]
    NotUtf8 {
        /// The file.
        file: PathBuf,
        /// First byte that does not fit, from 0.
        offset: usize,
    },
    /// The file holds nothing.
    #[error("{file}: is empty; the smallest configuration is {{}}, and `greenroom onboard` writes a first one")]
    Empty {
        /// The file.
        file: PathBuf,
    },
    /// The file is not JSON.
    #[error("{file}:{line}:{column}: invalid JSON: {what}")]
    Syntax {
        /// The file.
        file: PathBuf,
        /// Line, from 1.
        line: usize,
        /// Column in characters, from 1.
        column: usize,
        /// What is wrong.
        what: String,
    },
    /// Settings that cannot be used, all of them.
    #[error("{}", List(.0))]
    Invalid(Vec<Problem>),
    /// The provider that is asked for cannot be used.
    #[error("{file}: {source}")]
    Provider {
        /// The file to edit.
        file: PathBuf,
        /// Why.
        source: ProviderError,
    },
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
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { file, at: Some((line, column)) } => write!(f, "{}:{line}:{column}", file.display()),
            Self::File { file, at: None } => write!(f, "{}", file.display()),
            Self::Variable(name) => write!(f, "environment variable {name}"),
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
    /// What is wrong: `must be a whole number from 1 to 65535, found text`.
    pub what: String,
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
        /// The file or variable.
        origin: Origin,
        /// The section; empty for the top level.
        section: String,
        /// Its keys.
        keys: Vec<String>,
    },
    /// A setting that works but probably not as meant.
    Doubtful {
        /// The key.
        path: String,
        /// Why.
        what: &'static str,
    },
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { origin, path, nearest: Some(nearest) } => {
                write!(f, "{origin}: unknown key {path} is ignored; did you mean {nearest}?")
            }
            Self::Unknown { origin, path, nearest: None } => write!(f, "{origin}: unknown key {path} is ignored"),
            Self::Unused { origin, section, keys } => {
                let place = if section.is_empty() { "the top level" } else { section };
                write!(f, "{origin}: not used by this version, in {place}: {}", keys.join(", "))
            }
            Self::Doubtful { path, what } => write!(f, "{path} {what}"),
        }
    }
}
