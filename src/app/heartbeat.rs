//! The heartbeat, as this process beats.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use cron::{ARBITER, Heartbeat, HeartbeatDeps, HeartbeatRules};

use super::ends::Ends;
use super::ground::Ground;
use super::start::Keepers;
use super::{Purpose, parts, sessions};
use crate::config::Loaded;

/// The channel of those who watch.
const WEBSOCKET: &str = "websocket";

/// Begins, in a gateway with a model that has words for it; sessions can be started by now.
pub(super) fn start(
    loaded: &Loaded,
    purpose: Purpose,
    ground: &Ground,
    keepers: &Keepers,
    ends: &Arc<Ends>,
    model: &parts::Model,
) {
    let config = &loaded.config;
    let rules = &config.gateway.heartbeat;
    if purpose != Purpose::Gateway {
        return;
    }
    Heartbeat::count_from_zero(&ground.metrics);
    let is_real = !matches!(model.settings.backend, provider::Backend::Offline);
    if !rules.enabled || !is_real {
        return;
    }
    let told: BTreeSet<Arc<str>> = keepers.channels.keys().cloned().collect();
    let mut enabled = told.clone();
    if config.channels.websocket.enabled {
        enabled.insert(WEBSOCKET.into());
    }
    let preset = parts::preset(loaded, model);
    let (permits, calls) = keepers.children.model(ARBITER);
    let deps = HeartbeatDeps {
        ports: ground.ports.clone(),
        metrics: ground.metrics.clone(),
        log: ground.log.clone(),
        journal: keepers.journal.clone(),
        ends: ends.clone(),
        sessions: keepers.registry.clone(),
        transcripts: keepers.transcripts.clone(),
        workspace: loaded.paths.workspace.clone(),
        enabled,
        told,
        permits,
        model: calls,
        rules: HeartbeatRules {
            every: Duration::from_secs(rules.interval_s),
            // What cannot be used was refused with the configuration.
            hours: rules.active_hours.read().ok().flatten(),
            zone: sessions::zone(config),
            keep: rules.keep_recent_messages,
            model: preset.model,
            max_tokens: preset.max_tokens,
        },
    };
    Heartbeat::start(&ground.kernel, &*ground.placement, parts::restart_policy(config), deps);
}
