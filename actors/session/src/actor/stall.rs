//! What does not get on: turns, loads, file writes. And the place that each turn needs.

use std::time::Duration;

use actix::{ActorContext, AsyncContext, Context as Ctx};
use domain::ids::{Attempt, TurnId};
use protocol::supervision::{EventName, ExitReason};
use protocol::turn::Pulse;

use super::{Life, Session};
use crate::places::Place;
use crate::turn::{Input, Waits};

/// How many loads in a row may take too long before the session is held back.
const STUCK_LOADS_MAX: u8 = 3;

// === impl Session ===

impl Session {
    pub(super) fn enter(&mut self, ctx: &mut Ctx<Self>) {
        let place = self.shared.places(self.lease.key()).enter(|| ctx.address().downgrade().recipient());
        if let Some(place) = place {
            self.placed(place, ctx);
        }
    }

    /// A place that nobody waits for any more is given back.
    pub(super) fn placed(&mut self, place: Place, ctx: &mut Ctx<Self>) {
        if let Life::Live(live) = &mut self.state
            && live.machine.awaits_place()
        {
            live.place = Some(place);
            self.step(Input::Placed, ctx);
        }
    }

    /// What the tools of the running turn beat.
    pub(super) fn pulse(&mut self) -> Pulse {
        let Life::Live(live) = &mut self.state else { return Pulse::default() };
        live.work.as_mut().map(|work| work.pulse.get_or_insert_default().clone()).unwrap_or_default()
    }

    /// The last sign of life of what an overdue turn waits for.
    pub(super) fn heard(&self) -> Duration {
        let now = self.now();
        let Life::Live(live) = &self.state else { return Duration::ZERO };
        match live.machine.overdue(now) {
            // As long as others are granted it, or get on with it, the queue moves.
            Some(Waits::Permit) => self.neighbours.moves.last(),
            Some(Waits::Tools) => {
                live.work.as_ref().and_then(|work| work.pulse.as_ref()).map_or(Duration::ZERO, Pulse::last)
            }
            // It is known, told everywhere and no fault of the turn's that the journal cannot write for now.
            Some(Waits::Message | Waits::Journal) if self.journal_waits() => now.mono,
            // It waits for a place like any turn, and then for the model.
            Some(Waits::Summary | Waits::Command) => self
                .compaction
                .as_ref()
                .map_or(Duration::ZERO, |compaction| compaction.pulse.last().max(self.neighbours.moves.last())),
            Some(Waits::Message | Waits::Model | Waits::Journal) | None => Duration::ZERO,
        }
    }

    fn journal_waits(&self) -> bool {
        !self.shared.journal.status().writable
    }

    fn limit(&self) -> String {
        format!("{} s", self.shared.config.stall.as_secs())
    }

    pub(super) fn stuck(&self, turn: TurnId, attempt: Attempt, waits: Waits) {
        let mut event = self.event(EventName::TurnStuck, Some(turn));
        event.attempt = Some(attempt);
        event.message_id = self.message_id();
        let mut reason = format!("no progress for {}; it waited for {}", self.limit(), waits.word());
        if let Life::Live(live) = &self.state
            && waits == Waits::Tools
        {
            reason.push_str(&format!(": {}", live.machine.open_tools()));
        }
        event.reason = Some(reason);
        let cancelled = matches!(waits, Waits::Permit | Waits::Model | Waits::Tools | Waits::Command | Waits::Summary);
        event.verdict = Some(if cancelled { "cancelled" } else { "loaded again" }.to_owned());
        self.shared.log.record(event);
    }

    pub(super) fn file_stuck(&mut self) {
        let now = self.now();
        if let Life::Live(live) = &mut self.state {
            live.view.stuck(now.mono);
        }
        let mut event = self.event(EventName::TurnStuck, None);
        event.reason = Some(format!("the transcript file was not written for {}", self.limit()));
        event.verdict = Some("turns go on without the file".to_owned());
        self.shared.log.record(event);
    }

    /// Looks whether the load takes too long; then it begins anew, and at last the session is held back.
    pub(super) fn watch_load(&mut self, ctx: &mut Ctx<Self>) {
        let (now, waits) = (self.now(), self.shared.config.stall);
        let Life::Loading(loading) = &self.state else { return };
        if now.mono.saturating_sub(loading.since) < waits || self.journal_waits() {
            self.join_sweep(ctx);
            return;
        }
        self.stuck_loads += 1;
        let again = self.stuck_loads < STUCK_LOADS_MAX;
        let mut event = self.event(EventName::TurnStuck, None);
        event.reason = Some(format!("not loaded within {}", self.limit()));
        event.verdict = Some(if again { "loaded again" } else { "held back" }.to_owned());
        self.shared.log.record(event);
        if again {
            self.forget();
            self.begin_load(ctx);
        } else {
            self.crash.exit_reason(ExitReason::Panicked);
            self.state = Life::Gone;
            ctx.stop();
        }
    }
}
