//! Messages that the running turn takes up: between its tool calls (steer), or before its first round (collect).
//!
//! One commit has what becomes of calls that do not run any more, the lines of these messages, and the ends of their turns.
//! Before it they wait in their places, and a crash changes nothing of that; behind it nobody runs them again.
//!
//! Only messages that mean the same conversation are taken up: of the same door, with the same way back, that bring
//! nothing of their own, and are no commands. The first one that is not ends the row, but one that a sub-agent is sent to
//! do later, which is passed over. What is not at hand is read first.

use std::sync::Arc;
use std::time::Duration;

use domain::body::{HistorySource, TurnBody};
use domain::chat::{StopReason, Usage};
use domain::command::{self, Parsed};
use domain::ids::{Attempt, TurnId};
use domain::queue::QueueMode;
use domain::run::Saying;
use protocol::journal::{Accepted, InboxItem, LogPosition, TurnEnd};
use protocol::turn::{Finished, Lane, Route, TurnProgress, TurnResult};

use super::Machine;
use crate::turn::calls::synthetic;
use crate::turn::running::{Phase, Running};
use crate::turn::{Effect, Now, Record, Shown, Verdict};

/// Messages that are taken up at once between two tool calls.
const STEERED_AT_ONCE_MAX: usize = 3;
/// How often a turn takes up messages between its tool calls.
pub(in crate::turn) const STEERS_MAX: u32 = 5;
/// Messages that a turn takes up between its tool calls.
const STEERED_MAX: usize = STEERED_AT_ONCE_MAX * STEERS_MAX as usize;

/// What the model reads of a call that was not made because of a message.
const SKIPPED: &str = "Error: skipped: the person sent a new message meanwhile. Call it again if it is still needed.";

/// Whether a waiting message may be taken up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fellow {
    Yes,
    No,
    /// It has a turn of its own later, and holds up no other one.
    Aside,
    /// It has to be read.
    Unread(LogPosition),
}

// === impl Running ===

impl Running {
    /// The message that it answers, if that is one of a conversation to which others may be added.
    pub(super) fn open_to_others(&self) -> Option<&Accepted> {
        let accepted = self.accepted.as_deref()?;
        let open = self.command.is_none() && self.stop.is_none() && self.ending.is_none() && is_plain(&self.body);
        Some(accepted).filter(|_| open)
    }
}

// === impl Machine ===

impl Machine {
    /// Which messages the running turn would take up that come now, if it takes up any: none behind a command, or behind
    /// another one that ends the row.
    pub fn steers(&self) -> Option<Lane> {
        let turn = self.turn.as_deref().filter(|_| self.may_steer())?;
        let lane = turn.open_to_others().and_then(|accepted| Lane::of(&accepted.source, &accepted.route))?;
        let mut waiting = self.inbox.wanted().take(STEERED_MAX);
        waiting.all(|item| self.fellow(item) != Fellow::No).then_some(lane)
    }

    fn may_steer(&self) -> bool {
        self.queue().mode == QueueMode::Steer && self.may_take_up()
    }

    fn may_take_up(&self) -> bool {
        self.turn.as_deref().is_some_and(|turn| turn.steered < STEERS_MAX) && !self.is_leaving()
    }

    /// Whether a message may be taken up behind the running calls, so that no further ones begin. No event does that:
    /// it waits until all calls of the round have ended.
    pub(super) fn awaits_steering(&self) -> bool {
        let mut first = self.inbox.wanted().take(STEERED_AT_ONCE_MAX).filter(|_| self.may_steer());
        let said = first.find(|item| !item.event || self.fellow(item) == Fellow::No);
        said.is_some_and(|item| self.fellow(item) != Fellow::No)
    }

    /// Takes up what waits, if it is the time for that; whether the turn goes on with it.
    pub(super) fn take_up(&mut self, out: &mut Vec<Effect>) -> bool {
        let Some(turn) = self.turn.as_deref() else { return false };
        let collects = self.queue().mode == QueueMode::Collect && !self.is_leaving();
        let collects = collects && turn.round == 0 && !turn.user_written;
        let most = if collects {
            usize::MAX
        } else if turn.boundary && self.may_take_up() {
            STEERED_AT_ONCE_MAX
        } else {
            return false;
        };
        // In all other modes, only events are taken up.
        let said = collects || self.may_steer();
        let (mut found, mut unread, mut skips) = (Vec::new(), None, false);
        for item in self.inbox.wanted() {
            match self.fellow(item) {
                _ if found.len() >= most || (!said && !item.event) => break,
                Fellow::Aside => {}
                Fellow::Yes => {
                    skips |= !item.event;
                    found.push(item.turn);
                }
                Fellow::No => break,
                Fellow::Unread(at) => {
                    unread = Some(at);
                    break;
                }
            }
        }
        if let Some(at) = unread {
            self.read_for(at, out);
            return true;
        }
        if found.is_empty() || (!skips && turn.calls.open().next().is_some()) {
            return false;
        }
        let Some(turn) = self.turn.as_deref_mut() else { return false };
        if !turn.user_written && !std::mem::replace(&mut turn.anew_known, true) {
            turn.phase = Phase::Steering;
            out.push(Effect::AskAnew);
        } else {
            self.join(&found, out);
        }
        true
    }

    fn read_for(&mut self, at: LogPosition, out: &mut Vec<Effect>) {
        if let Some(turn) = self.turn.as_deref_mut() {
            turn.phase = Phase::Steering;
        }
        self.read_body(at, out);
    }

    /// Has a waiting message read, once.
    pub(super) fn read_body(&mut self, at: LogPosition, out: &mut Vec<Effect>) {
        let Some(turn) = self.turn.as_deref_mut() else { return };
        if turn.reading.replace(at) != Some(at) {
            out.push(Effect::ReadBody(at));
        }
    }

    fn join(&mut self, found: &[TurnId], out: &mut Vec<Effect>) {
        let joined = self.inbox.join(found);
        let Some(turn) = self.turn.as_deref_mut() else { return };
        let into = turn.id();
        let mut batch = turn.batch();
        batch.records.extend(turn.calls.abandon().iter().map(|call| Record::Tool(synthetic(call, SKIPPED))));
        for item in &joined {
            batch.records.extend(item.inline.clone().map(Record::Said));
            batch.ended.push((item.turn, TurnEnd::Joined { into }));
        }
        turn.steered += u32::from(turn.boundary);
        turn.boundary = false;
        self.save(batch, out);
        if let Some(pending) = self.commits.back_mut() {
            pending.joined = joined;
        }
    }

    /// Tells of the ends of turns that `into` took up.
    pub(super) fn show_joined(&mut self, joined: &[InboxItem], into: Option<TurnId>, now: Now, out: &mut Vec<Effect>) {
        for item in joined {
            let body = item.inline.as_ref().filter(|_| item.event).and_then(|said| TurnBody::decode(&said.body).ok());
            if let (Some(turn), Some(event)) = (self.turn.as_deref_mut(), body.and_then(|body| body.event)) {
                out.push(Effect::Emit(turn.show(TurnProgress::Notice(event.to_string().into()))));
            }
            let accepted_ms = item.inline.as_ref().map_or(now.wall_ms, |accepted| accepted.accepted_ms);
            let latency_ms = now.wall_ms.saturating_sub(accepted_ms);
            let finished = Finished {
                result: TurnResult::Joined,
                into,
                text: String::new(),
                stop: StopReason::Stop,
                model: Arc::clone(&self.rules.model),
                usage: Usage::default(),
                latency_ms,
                standing: None,
            };
            let (turn, attempt) = (item.turn, Attempt::FIRST);
            let what = TurnProgress::Finished(Arc::new(finished));
            out.push(Effect::Emit(Shown { turn, attempt, seq: 1, what }));
            let (result, route) = (TurnResult::Joined, if item.push_route().is_some() { "push" } else { "live" });
            out.push(Effect::Ended(Verdict { turn, attempt, result, reason: None, route, latency_ms }));
        }
    }

    /// Whether the running turn may take this message up.
    pub(super) fn fellow(&self, item: &InboxItem) -> Fellow {
        let Some(turn) = self.turn.as_deref() else { return Fellow::No };
        let (Some(host), unread) = (turn.open_to_others(), turn.unread) else { return Fellow::No };
        if item.event {
            return event_fellow(item, host, (turn.body.run.is_some(), unread));
        }
        if matches!(host.route, Route::Reply) {
            return Fellow::No;
        }
        let Some(accepted) = item.inline.as_deref() else {
            let same = match &host.route {
                Route::Push(route) => item.push.as_deref() == Some(route),
                Route::Live | Route::Reply => item.push.is_none(),
            };
            return if same && unread != Some(item.at) { Fellow::Unread(item.at) } else { Fellow::No };
        };
        let same = accepted.source == host.source && accepted.route == host.route && accepted.retry_of.is_none();
        let plain = || TurnBody::decode(&accepted.body).is_ok_and(|body| is_plain(&body) && is_text(&body));
        if same && plain() { Fellow::Yes } else { Fellow::No }
    }

    // --- messages that were read ---

    /// A message was read: that of the turn that begins, or one that waits.
    pub(super) fn read(&mut self, accepted: Arc<Accepted>, now: Now, out: &mut Vec<Effect>) {
        let begins = |turn: &Running| turn.phase == Phase::Loading && turn.id() == accepted.turn;
        if self.turn.as_deref().is_some_and(begins) {
            self.begin(accepted, now, out);
        } else if self.inbox.supply(&accepted) {
            self.looked(now, out);
        } else {
            out.push(Effect::Stale);
        }
    }

    /// One cannot be read: as long as it waits it is nobody's fellow.
    pub(super) fn unreadable_at(&mut self, at: LogPosition, now: Now, out: &mut Vec<Effect>) {
        let begins = |turn: &Running| turn.phase == Phase::Loading && turn.item.at == at;
        if self.turn.as_deref().is_some_and(begins) {
            self.unreadable(now, out);
        } else if let Some(turn) = self.turn.as_deref_mut().filter(|turn| turn.reading == Some(at)) {
            turn.unread = Some(at);
            self.looked(now, out);
        } else {
            out.push(Effect::Stale);
        }
    }

    fn looked(&mut self, now: Now, out: &mut Vec<Effect>) {
        if let Some(turn) = self.turn.as_deref_mut() {
            turn.reading = None;
        }
        self.anew_known(now, out);
        self.interrupt(now, out);
    }

    /// Goes on with taking up what waits.
    pub(super) fn anew_known(&mut self, now: Now, out: &mut Vec<Effect>) {
        if let Some(turn) = self.turn.as_deref_mut().filter(|turn| turn.phase == Phase::Steering) {
            turn.progress = now.mono;
            self.go_on(now, out);
        }
    }

    /// How long a turn that collects messages has still to wait for more of them. Only those that came while another one
    /// ran are collected.
    pub(super) fn collects_for(&self, now: Now) -> Duration {
        let due = self.heard.saturating_add(self.queue().debounce);
        let collects = self.queue().mode == QueueMode::Collect && self.cut.is_none() && !self.is_leaving();
        if collects && !self.prompt { due.saturating_sub(now.mono) } else { Duration::ZERO }
    }
}

/// Whether a turn may take up an event: one whose answer goes the same way, or is only kept. What a sub-agent is told is
/// answered with what it was sent to do.
fn event_fellow(item: &InboxItem, host: &Accepted, (is_run, unread): (bool, Option<LogPosition>)) -> Fellow {
    let same = match item.push_route() {
        Some(route) => host.route == Route::Push(route.clone()),
        None => true,
    };
    match item.inline.as_deref() {
        _ if !same && !is_run => Fellow::No,
        None if unread == Some(item.at) => Fellow::No,
        None => Fellow::Unread(item.at),
        Some(accepted) if accepted.retry_of.is_some() => Fellow::No,
        // What comes from outside may do less than the turn.
        Some(accepted) if accepted.source.is_hook() && accepted.source != host.source => Fellow::No,
        Some(accepted) => match TurnBody::decode(&accepted.body) {
            Ok(TurnBody { saying: Some(Saying::Send), .. }) => Fellow::Aside,
            Ok(body) if is_plain(&body) && (same || body.saying.is_some()) => Fellow::Yes,
            Ok(_) | Err(_) => Fellow::No,
        },
    }
}

/// Whether a message is nothing but something said in its session.
fn is_plain(body: &TurnBody) -> bool {
    body.history == HistorySource::Session && !body.ephemeral && body.context.is_empty() && body.says.is_none()
}

fn is_text(body: &TurnBody) -> bool {
    matches!(command::of_body(body), Parsed::Text)
}
