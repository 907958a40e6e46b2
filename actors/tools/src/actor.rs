//! The tool front end of an arbiter: one task per call, nothing else.

use std::sync::Arc;

use actix::{Actor, Context, Handler, Supervised};
use protocol::supervision::{ActorPath, SupervisionLog};
use protocol::tools::RunTool;
use supervision::ports::Ports;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::catalog::Catalog;
use crate::run::{self, Deps};

/// Runs tool calls on its arbiter. Has no state of its own: a restart changes nothing, calls go on.
pub struct Tools {
    deps: Arc<Deps>,
    /// Ends all calls when the actor ends.
    _stop: DropGuard,
}

// === impl Tools ===

impl Tools {
    /// The front end at `path`, for the actor's own arbiter.
    pub fn new(catalog: Arc<Catalog>, ports: Ports, log: Arc<dyn SupervisionLog>, path: ActorPath) -> Self {
        let stop = CancellationToken::new();
        Self { deps: Arc::new(Deps { catalog, ports, log, path, stop: stop.clone() }), _stop: stop.drop_guard() }
    }
}

impl Actor for Tools {
    type Context = Context<Self>;
}

impl Supervised for Tools {}

impl Handler<RunTool> for Tools {
    type Result = ();

    fn handle(&mut self, message: RunTool, _: &mut Self::Context) {
        tokio::task::spawn_local(run::call(self.deps.clone(), message));
    }
}
