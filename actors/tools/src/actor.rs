//! The tool front end of an arbiter: one task per call, nothing else.

use std::sync::Arc;

use actix::{Actor, Context, Handler, Supervised};
use prometheus_client::metrics::gauge::Gauge;
use protocol::metrics::ByKind;
use protocol::supervision::{ActorPath, Kind};
use protocol::tools::RunTool;
use supervision::Kernel;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::catalog::Catalog;
use crate::run::{self, Deps};

/// Runs tool calls on its arbiter. Has no state of its own: a restart changes nothing, calls go on.
pub struct Tools {
    deps: Arc<Deps>,
    /// Messages in the mailboxes of the front ends; sessions count them up.
    mailbox: Gauge,
    /// Ends all calls when the actor ends.
    _stop: DropGuard,
}

// === impl Tools ===

impl Tools {
    /// The front end at `path`, for the actor's own arbiter.
    pub fn new(catalog: Arc<Catalog>, kernel: Kernel, path: ActorPath) -> Self {
        let stop = CancellationToken::new();
        let labels = ByKind { kind: Kind::Tools.word() };
        let mailbox = kernel.metrics().mailbox_messages.get_or_create_owned(&labels);
        let deps = Deps { catalog, kernel, path, stop: stop.clone() };
        Self { deps: Arc::new(deps), mailbox, _stop: stop.drop_guard() }
    }

    /// Removes results that were kept long enough, at start and at the first call of an hour. Only calls make new ones,
    /// and a timer of its own would keep an actor that nobody knows any more.
    fn sweep(&self) {
        let ports = self.deps.kernel.ports();
        let (offload, now_ms) = (self.deps.catalog.offload.clone(), ports.clock.wall_ms());
        if offload.due(now_ms) {
            ports.offload.run(Box::new(move || {
                if let Err(error) = offload.sweep(now_ms) {
                    tracing::warn!(%error, "tool results that were kept long enough stay");
                }
            }));
        }
    }
}

impl Actor for Tools {
    type Context = Context<Self>;

    fn started(&mut self, _: &mut Self::Context) {
        self.sweep();
    }
}

impl Supervised for Tools {}

impl Handler<RunTool> for Tools {
    type Result = ();

    fn handle(&mut self, message: RunTool, _: &mut Self::Context) {
        self.mailbox.dec();
        self.sweep();
        tokio::task::spawn_local(run::call(self.deps.clone(), message));
    }
}
