//! Who is alive, and who wants to know when that ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use actix::WeakRecipient;
use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use protocol::supervision::{ActorPath, Down, ExitReason, Kind, TreeNode};

use crate::tell::tell;

/// The vital signs of one spawned actor.
#[derive(Debug)]
pub(crate) struct Vitals {
    pub kind: Kind,
    pub since_ms: u64,
    pub restarts: AtomicU32,
    /// Its number among all actors that were born.
    pub birth: u64,
}

struct Watched {
    vitals: Arc<Vitals>,
    watchers: Vec<WeakRecipient<Down>>,
}

/// All live actors by path. A path can be held by two for a moment: one that ends and its successor.
#[derive(Default)]
pub(crate) struct Monitors {
    /// Apart from the others, as there may be very many.
    sessions: DashMap<ActorPath, Vec<Watched>>,
    others: DashMap<ActorPath, Vec<Watched>>,
    births: AtomicU64,
    /// Restarts of all actors since the process began.
    restarts: AtomicU64,
}

impl Monitors {
    pub fn born(&self, path: &ActorPath, kind: Kind, since_ms: u64) -> Arc<Vitals> {
        let birth = self.births.fetch_add(1, Ordering::Relaxed);
        let vitals = Arc::new(Vitals { kind, since_ms, restarts: AtomicU32::new(0), birth });
        let watched = Watched { vitals: Arc::clone(&vitals), watchers: Vec::new() };
        match self.map(kind).entry(path.clone()) {
            Entry::Occupied(mut all) => all.get_mut().push(watched),
            Entry::Vacant(vacant) => {
                vacant.insert(vec![watched]);
            }
        }
        vitals
    }

    /// Counts a restart.
    pub fn restarted(&self, vitals: &Vitals) {
        vitals.restarts.fetch_add(1, Ordering::Relaxed);
        self.restarts.fetch_add(1, Ordering::Relaxed);
    }

    pub fn restarts(&self) -> u64 {
        self.restarts.load(Ordering::Relaxed)
    }

    /// Restarts of the sessions that live.
    pub fn session_restarts(&self) -> u64 {
        let restarts = |one: &Watched| u64::from(one.vitals.restarts.load(Ordering::Relaxed));
        self.sessions.iter().map(|entry| entry.value().iter().map(restarts).sum::<u64>()).sum()
    }

    fn map(&self, kind: Kind) -> &DashMap<ActorPath, Vec<Watched>> {
        if kind == Kind::Session { &self.sessions } else { &self.others }
    }

    /// Watches the youngest actor at `path`; answers at once when there is none.
    pub fn watch(&self, path: &ActorPath, watcher: WeakRecipient<Down>) {
        for map in [&self.others, &self.sessions] {
            if let Some(mut all) = map.get_mut(path)
                && let Some(youngest) = all.last_mut()
            {
                youngest.watchers.push(watcher);
                return;
            }
        }
        let down =
            Down { path: path.clone(), incarnation: 0, reason: ExitReason::Noproc, crash: None, restarts: false };
        notify(&[watcher], &down);
    }

    /// Tells the watchers; forgets the actor when it does not come back.
    pub fn down(&self, vitals: &Vitals, down: &Down) {
        let map = self.map(vitals.kind);
        let watchers = if down.restarts {
            map.get(&down.path)
                .map(|all| all.iter().find(|one| one.vitals.birth == vitals.birth).map(|one| one.watchers.clone()))
        } else {
            map.get_mut(&down.path).map(|mut all| {
                let at = all.iter().position(|one| one.vitals.birth == vitals.birth);
                at.map(|at| all.remove(at).watchers)
            })
        };
        if !down.restarts {
            map.remove_if(&down.path, |_, all| all.is_empty());
        }
        notify(&watchers.flatten().unwrap_or_default(), down);
    }

    /// The path of a live actor. Looks at all of them.
    pub fn path_of(&self, birth: u64) -> Option<ActorPath> {
        let here = |all: &Vec<Watched>| all.iter().any(|one| one.vitals.birth == birth);
        let found = |map: &DashMap<ActorPath, Vec<Watched>>| {
            map.iter().find(|entry| here(entry.value())).map(|entry| entry.key().clone())
        };
        found(&self.others).or_else(|| found(&self.sessions))
    }

    /// The live actors but sessions, by path.
    pub fn tree(&self) -> Vec<TreeNode> {
        let mut nodes = Vec::new();
        for entry in &self.others {
            nodes.extend(entry.iter().map(|one| node(entry.key(), &one.vitals)));
        }
        nodes.sort_by(|a, b| a.path.cmp(&b.path));
        nodes
    }

    pub fn vitals(&self, path: &ActorPath) -> Option<(u32, u64)> {
        let youngest = |all: &Vec<Watched>| {
            all.last().map(|one| (one.vitals.restarts.load(Ordering::Relaxed), one.vitals.since_ms))
        };
        [&self.others, &self.sessions].into_iter().find_map(|map| map.get(path).and_then(|all| youngest(&all)))
    }
}

fn node(path: &ActorPath, vitals: &Vitals) -> TreeNode {
    let restarts = u64::from(vitals.restarts.load(Ordering::Relaxed));
    TreeNode {
        epoch: restarts + 1,
        restarts,
        since: vitals.since_ms,
        ..TreeNode::new(path.clone(), vitals.kind, "running")
    }
}

fn notify(watchers: &[WeakRecipient<Down>], down: &Down) {
    for watcher in watchers.iter().filter_map(WeakRecipient::upgrade) {
        // A watcher that has ended no longer wants to know.
        let _ = tell(&watcher, down.clone());
    }
}
