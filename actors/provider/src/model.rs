//! A model that the program brings itself, in place of a server.

use std::fmt;
use std::sync::Arc;

use domain::request::ChatRequest;
use futures::future::LocalBoxFuture;
use protocol::provider::Delta;

use crate::retry::CallError;
use crate::wire::openai::Answer;

/// Answers model calls inside the process. Its failures are classified, tried again and reported as a server's are.
pub trait Model: fmt::Debug + Send + Sync + 'static {
    /// Name of the provider, for messages, transcripts and metrics.
    fn name(&self) -> Arc<str>;

    /// Tries once. `show` gets every piece of the answer as it comes; calls without an id get one that begins with
    /// `id_prefix`. Dropped when the call is cancelled.
    fn attempt<'a>(
        &'a self,
        request: &'a ChatRequest,
        id_prefix: &'a str,
        show: &'a mut dyn FnMut(Delta),
    ) -> LocalBoxFuture<'a, Result<Answer, CallError>>;
}
