//! Local triggers, as this process follows them.

use std::sync::Arc;

use cron::{TriggerStore, Triggers, TriggersDeps};

use super::ends::Ends;
use super::ground::Ground;
use super::start::Keepers;
use super::{Purpose, parts};
use crate::config::Loaded;

/// The files of the workspace.
pub(super) fn store(loaded: &Loaded, ground: &Ground) -> Arc<TriggerStore> {
    Arc::new(TriggerStore::new(loaded.paths.workspace.clone(), ground.ports.clone()))
}

/// Begins to follow them, in a process that stays; sessions can be started by now.
pub(super) fn start(loaded: &Loaded, purpose: Purpose, ground: &Ground, keepers: &Keepers, ends: &Arc<Ends>) {
    match purpose {
        Purpose::Gateway => {}
        // What embeds it has ways of its own, and the others are gone when something is handed in.
        Purpose::Embedded | Purpose::OneShot | Purpose::AtRest => return,
    }
    let deps = TriggersDeps {
        ports: ground.ports.clone(),
        metrics: ground.metrics.clone(),
        log: ground.log.clone(),
        journal: keepers.journal.clone(),
        sessions: keepers.registry.clone(),
        ends: ends.clone(),
        store: keepers.triggers.clone(),
        channels: keepers.channels.keys().cloned().collect(),
    };
    Triggers::start(&ground.kernel, &*ground.placement, parts::restart_policy(&loaded.config), deps);
}
