//! What the operating system allows this process.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the soft limit of open files to the hard one: each connection and each busy transcript needs one.
pub fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, "file limit cannot be raised");
    }
}
