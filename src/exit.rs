//! Exit codes, and the error that carries one out of a command.

use std::borrow::Cow;

use serde_json::{Value, json};

/// How a command ends. The numbers are a promise to scripts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum ExitCode {
    /// It worked.
    Ok = 0,
    /// It did not.
    Failed = 1,
    /// The command line was wrong.
    Usage = 2,
    /// The configuration is wrong.
    Config = 3,
    /// Another process uses the directory.
    DirectoryInUse = 4,
    /// Another process uses the port.
    PortInUse = 5,
    /// No gateway runs here.
    NoGateway = 6,
    /// The gateway is too busy.
    Refused = 7,
    /// A disk failed or is full.
    Disk = 74,
    /// Stopped from the keyboard.
    Interrupted = 130,
}

impl ExitCode {
    /// For an error of the admin API: its HTTP status, and its word.
    pub fn of_answer(status: u16, word: &str) -> Self {
        match (word, status) {
            ("disk", _) => Self::Disk,
            (_, 429 | 503) => Self::Refused,
            (_, _) => Self::Failed,
        }
    }

    /// The word for programs, as in the admin API's errors.
    pub fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Failed => "failed",
            Self::Usage => "usage",
            Self::Config => "config",
            Self::DirectoryInUse => "directory_in_use",
            Self::PortInUse => "port_in_use",
            Self::NoGateway => "no_gateway",
            Self::Refused => "busy",
            Self::Disk => "disk",
            Self::Interrupted => "interrupted",
        }
    }
}

/// An error with its exit code.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Exit {
    /// The code.
    pub code: ExitCode,
    /// What the user reads.
    pub message: String,
    json: Json,
}

/// What `--json` prints of an error.
#[derive(Debug)]
enum Json {
    /// The error's message, under this word.
    Word(Cow<'static, str>),
    /// What the admin API said.
    Body(Value),
    /// Nothing: it stands in what the command printed.
    Printed,
}

impl Exit {
    /// An error that ends the program with `code`.
    pub fn new(code: ExitCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), json: Json::Word(code.word().into()) }
    }

    /// With the admin API's word for it.
    #[must_use]
    pub fn named(mut self, word: &'static str) -> Self {
        self.json = Json::Word(word.into());
        self
    }

    /// With what the admin API said, `{"error": {...}}`.
    #[must_use]
    pub fn with_body(mut self, body: Value) -> Self {
        self.json = Json::Body(body);
        self
    }

    /// Of a command that has printed the error as part of its report.
    #[must_use]
    pub fn printed(mut self) -> Self {
        self.json = Json::Printed;
        self
    }

    /// What `--json` prints of this error; `None` when that was done.
    pub fn body_of(error: &anyhow::Error) -> Option<Value> {
        let exit = error.chain().find_map(|cause| cause.downcast_ref::<Self>());
        match exit.map(|exit| &exit.json) {
            Some(Json::Printed) => None,
            Some(Json::Body(body)) => Some(body.clone()),
            Some(Json::Word(word)) => Some(error_body(word, &format!("{error:#}"))),
            None => Some(error_body(Self::code_of(error).word(), &format!("{error:#}"))),
        }
    }

    /// The code to end with: of the [`Exit`] in the chain, else by the kind of IO error, else 1.
    pub fn code_of(error: &anyhow::Error) -> ExitCode {
        for cause in error.chain() {
            if let Some(exit) = cause.downcast_ref::<Self>() {
                return exit.code;
            }
            if let Some(io) = cause.downcast_ref::<std::io::Error>() {
                return if supervision::ports::is_space(io) { ExitCode::Disk } else { ExitCode::Failed };
            }
        }
        ExitCode::Failed
    }
}

/// An error as the admin API writes it.
pub fn error_body(code: &str, message: &str) -> Value {
    json!({"error": {"code": code, "message": message}})
}

impl From<crate::config::ConfigError> for Exit {
    fn from(error: crate::config::ConfigError) -> Self {
        Self::new(ExitCode::Config, error.to_string())
    }
}

impl From<crate::app::lock::LockError> for Exit {
    fn from(error: crate::app::lock::LockError) -> Self {
        use crate::app::lock::LockError;
        let code = match error {
            LockError::InUse { .. } => ExitCode::DirectoryInUse,
            LockError::Io { .. } => ExitCode::Disk,
        };
        Self::new(code, error.to_string())
    }
}
