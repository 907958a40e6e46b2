//! The shard: one small actor per arbiter that sweeps its sessions once a second.

use std::sync::Weak;
use std::time::Duration;

use actix::{Actor, AsyncContext, Context, Supervised};

use crate::registry::Registry;

/// Time between two sweeps.
pub const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// The actor.
pub struct Shard {
    /// Whose.
    pub registry: Weak<Registry>,
    /// Which.
    pub index: usize,
}

impl Actor for Shard {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        let mut due = None;
        ctx.run_interval(SWEEP_EVERY, move |this, _| {
            // Gone only when everything is being dropped.
            if let Some(registry) = this.registry.upgrade() {
                let now = registry.kernel.ports().clock.mono();
                if let Some(due) = due.replace(now + SWEEP_EVERY) {
                    registry.late(this.index, now.saturating_sub(due));
                }
                registry.sweep(this.index);
            }
        });
    }
}

impl Supervised for Shard {}
