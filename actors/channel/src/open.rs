//! The doors that are open: nodes of the tree, with births, deaths and crashes in the supervision log.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::metrics::gauge::Gauge;
use protocol::supervision::{ActorPath, Event, EventName, ExitReason, Kind, TreeNode};
use supervision::panic::{Caught, caught};
use tokio::sync::Semaphore;

use crate::doors::{Door, Doors};

/// All open doors of the process, in the order in which they opened.
#[derive(Debug, Default)]
pub(crate) struct OpenDoors(Mutex<Vec<Arc<Listener>>>);

#[derive(Debug)]
struct Listener {
    door: Door,
    since_ms: u64,
    closing: AtomicBool,
    connections_max: usize,
    /// One permit for each connection that may still come.
    places: Arc<Semaphore>,
}

impl Listener {
    fn node(&self) -> TreeNode {
        let state = if self.closing.load(Ordering::Relaxed) { "closing" } else { "serving" };
        let connections = self.connections_max.saturating_sub(self.places.available_permits());
        TreeNode {
            epoch: 1,
            since: self.since_ms,
            connections: Some(connections as u64),
            ..TreeNode::new(ActorPath(self.door.path().into()), Kind::Channel, state)
        }
    }
}

impl OpenDoors {
    /// The doors as nodes of the tree.
    pub(crate) fn nodes(&self) -> Vec<TreeNode> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().map(|door| door.node()).collect()
    }
}

/// An open door; closed when dropped.
pub(crate) struct OpenDoor {
    doors: Doors,
    listener: Arc<Listener>,
    started: String,
}

impl OpenDoor {
    pub(crate) fn new(doors: &Doors, door: Door, connections_max: usize) -> Self {
        let places = Arc::new(Semaphore::new(connections_max.min(Semaphore::MAX_PERMITS)));
        let (since_ms, closing) = (doors.ports.clock.wall_ms(), AtomicBool::new(false));
        let listener = Arc::new(Listener { door, since_ms, closing, connections_max, places });
        doors.opened().0.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&listener));
        let mut event = event(&listener, EventName::Started);
        event.cause = doors.log.latest(EventName::ProcessStarted);
        let started = doors.log.record(event);
        Self { doors: doors.clone(), listener, started }
    }

    /// Room for connections.
    pub(crate) fn places(&self) -> &Arc<Semaphore> {
        &self.listener.places
    }

    /// Where open connections are counted.
    pub(crate) fn connections(&self) -> Gauge {
        self.doors.connections(self.listener.door, self.listener.connections_max)
    }

    /// Says that no more connections are taken.
    pub(crate) fn close(&self) {
        self.listener.closing.store(true, Ordering::Relaxed);
    }

    /// Counts a connection for which there is no place.
    pub(crate) fn no_place(&self) {
        self.doors.rejected(self.listener.door, "busy");
    }

    /// A connection's work: a panic in it ends the connection alone, and is told.
    pub(crate) fn guard<F: Future<Output = ()>>(&self, work: F) -> impl Future<Output = ()> + use<F> {
        guard(self.doors.clone(), self.listener.door, work)
    }
}

/// See [`OpenDoor::guard`].
pub(crate) async fn guard(doors: Doors, door: Door, work: impl Future<Output = ()>) {
    if let Err(panic) = caught(work).await {
        crashed(&doors, door, panic);
    }
}

fn crashed(doors: &Doors, door: Door, panic: Caught) {
    let path = ActorPath(format!("{}/connection", door.path()).into());
    let mut event = Event::new(EventName::Exited, path, Kind::Channel);
    event.reason = Some(ExitReason::Panicked.word().to_owned());
    event.panic = Some(panic.panic());
    event.backtrace = Some(panic.hash());
    event.lost = "one connection; what was accepted through it is kept".to_owned();
    doors.kernel.keep_crash(Arc::new(panic));
    doors.log.record(event);
}

fn event(listener: &Listener, name: EventName) -> Event {
    Event::new(name, ActorPath(listener.door.path().into()), Kind::Channel)
}

impl Drop for OpenDoor {
    fn drop(&mut self) {
        let mut open = self.doors.opened().0.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|one| !Arc::ptr_eq(one, &self.listener));
        drop(open);
        let panicked = std::thread::panicking();
        let reason = if panicked { ExitReason::Panicked } else { ExitReason::Shutdown };
        let mut event = event(&self.listener, EventName::Exited);
        event.reason = Some(reason.word().to_owned());
        let stopping = self.doors.log.latest(EventName::GatewayStopping).filter(|_| !panicked);
        event.cause = Some(stopping.unwrap_or_else(|| std::mem::take(&mut self.started)));
        self.doors.log.record(event);
    }
}
