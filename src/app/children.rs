//! Starts sessions for the registry, with the neighbours of their arbiter: a provider and a tool front end on each.

use std::sync::{Arc, OnceLock};

use actix::Recipient;
use memory::{Archive, DreamDeps, Dreamer, Memory};
use protocol::memory::AskDream;
use protocol::provider::{AskPermit, Complete};
use protocol::session::Address;
use protocol::supervision::{ActorPath, Kind};
use protocol::tools::RunTool;
use registry::{SessionFactory, SessionStart};
use session::{Neighbours, Session, Shared};
use supervision::{Child, Kernel, Placement, RestartPolicy};

/// The factory.
pub struct Children {
    kernel: Kernel,
    placement: Arc<dyn Placement>,
    policy: RestartPolicy,
    ready: OnceLock<Ready>,
}

struct Ready {
    shared: Arc<Shared>,
    neighbours: Vec<Arc<Neighbours>>,
}

/// Those of one arbiter.
struct FrontEnds {
    permits: Recipient<AskPermit>,
    model: Recipient<Complete>,
    tools: Recipient<RunTool>,
}

impl Children {
    /// A factory that can start sessions once [`attach`](Self::attach) was called.
    pub fn new(kernel: Kernel, placement: Arc<dyn Placement>, policy: RestartPolicy) -> Arc<Self> {
        Arc::new(Self { kernel, placement, policy, ready: OnceLock::new() })
    }

    /// Starts the front ends on each arbiter, and the memory.
    pub fn attach(
        &self,
        shared: Arc<Shared>,
        provider: &Arc<provider::Shared>,
        catalog: &Arc<tools::Catalog>,
        (archive, dream): (Arc<Archive>, DreamDeps),
    ) {
        let fronts: Vec<FrontEnds> =
            (0..self.placement.arbiters()).map(|arbiter| self.start_front_ends(arbiter, provider, catalog)).collect();
        let front = &fronts[memory::ARBITER];
        let deps = memory::Deps {
            ports: dream.ports.clone(),
            metrics: dream.metrics.clone(),
            archive: archive.clone(),
            neighbours: memory::Neighbours { permits: front.permits.clone(), model: front.model.clone() },
        };
        let memory = Memory::start(&self.kernel, &*self.placement, self.policy, deps);
        let dream = Dreamer::start(&self.kernel, &*self.placement, self.policy, dream, archive);
        let neighbours = fronts.into_iter().map(|FrontEnds { permits, model, tools }| {
            let (moves, memory, dream) = (provider.moves(), memory.clone().recipient(), dream.clone().recipient());
            Arc::new(Neighbours { permits, model, moves, tools, memory, dream })
        });
        let ready = Ready { shared, neighbours: neighbours.collect() };
        assert!(self.ready.set(ready).is_ok(), "the front ends are started once");
    }

    fn start_front_ends(
        &self,
        arbiter: usize,
        provider: &Arc<provider::Shared>,
        catalog: &Arc<tools::Catalog>,
    ) -> FrontEnds {
        let child = |name: &str, kind| {
            let mut child = Child::new(format!("/{name}/{arbiter}"), kind);
            child.policy = self.policy;
            child
        };
        let front = provider.clone();
        let model = self.kernel.spawn(child("provider", Kind::Provider), &*self.placement, arbiter, move |_| {
            provider::Provider::new(front)
        });
        let (catalog, kernel) = (catalog.clone(), self.kernel.clone());
        let path = ActorPath(format!("/tools/{arbiter}").into());
        let tools = self.kernel.spawn(child("tools", Kind::Tools), &*self.placement, arbiter, move |_| {
            tools::Tools::new(catalog, kernel, path)
        });
        FrontEnds { permits: model.clone().recipient(), model: model.recipient(), tools: tools.recipient() }
    }
}

impl Children {
    /// Who grants the right to call the model, and who calls it, on that arbiter.
    pub fn model(&self, arbiter: usize) -> (Recipient<AskPermit>, Recipient<Complete>) {
        let ready = self.ready.get().expect("the front ends are asked for when they are started");
        let front = &ready.neighbours[arbiter];
        (front.permits.clone(), front.model.clone())
    }
}

impl Children {
    /// Who dreams.
    pub fn dream(&self) -> Recipient<AskDream> {
        let ready = self.ready.get().expect("it is asked for when it is started");
        ready.neighbours[0].dream.clone()
    }
}

impl SessionFactory for Children {
    fn start(&self, start: SessionStart) -> Address {
        let ready = self.ready.get().expect("sessions start after the front ends");
        let (shared, neighbours) = (ready.shared.clone(), Arc::clone(&ready.neighbours[start.shard]));
        let child = Child {
            path: start.path.clone(),
            kind: Kind::Session,
            session: Some(start.key),
            lease: Some(start.lease.clone()),
            policy: self.policy,
            crash: start.crash.clone(),
            on_down: Some(start.on_down),
        };
        let address = self.kernel.spawn(child, &*self.placement, start.shard, move |_| {
            Session::new(shared, neighbours, start.path, start.lease, start.crash)
        });
        address.recipient()
    }
}
