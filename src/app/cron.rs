//! Jobs that are due at times, as this process follows them.

use std::sync::Arc;

use cron::{Cron, Deps, Desk};
use domain::cron::Zones;
use jiff::tz::TimeZone;
use protocol::cron::Jobs;

use super::ends::Ends;
use super::ground::Ground;
use super::start::Keepers;
use super::{Purpose, parts, sessions};
use crate::config::{Config, Loaded};

/// How the configuration means names of zones, and times without one.
pub fn zones(config: &Config) -> Zones {
    Zones { local: sessions::zone(config), named: |name| TimeZone::get(name).ok() }
}

/// Where jobs can be asked for, in a process that will follow them.
pub(super) fn desk(loaded: &Loaded, purpose: Purpose, ground: &Ground) -> Option<Arc<Desk>> {
    match purpose {
        Purpose::Gateway => Some(Arc::new(Desk::new(sessions::zone(&loaded.config), &ground.metrics))),
        // What embeds it has times of its own, and the others are gone when something is due.
        Purpose::Embedded | Purpose::OneShot | Purpose::AtRest => None,
    }
}

/// Begins to follow them; sessions can be started by now.
pub(super) fn start(
    loaded: &Loaded,
    ground: &Ground,
    keepers: &Keepers,
    ends: &Arc<Ends>,
    desk: &Arc<Desk>,
) -> Arc<dyn Jobs> {
    let deps = Deps {
        ports: ground.ports.clone(),
        metrics: ground.metrics.clone(),
        log: ground.log.clone(),
        journal: keepers.journal.clone(),
        sessions: keepers.registry.clone(),
        ends: ends.clone(),
        workspace: loaded.paths.workspace.clone(),
        zones: zones(&loaded.config),
        channels: keepers.channels.keys().cloned().collect(),
        desk: desk.clone(),
    };
    Cron::start(&ground.kernel, &*ground.placement, parts::restart_policy(&loaded.config), deps);
    desk.clone()
}
