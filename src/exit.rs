//! Exit codes, and the error that carries one out of a command.

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

/// An error with its exit code.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Exit {
    /// The code.
    pub code: ExitCode,
    /// What the user reads.
    pub message: String,
}

impl Exit {
    /// An error that ends the program with `code`.
    pub fn new(code: ExitCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
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
