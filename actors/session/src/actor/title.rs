//! The name of a session: asked of the model once, behind the first answer, unless somebody gave it one before. Turns
//! go on meanwhile, of whatever session, and take the place of this call where there is none for them; then the model is
//! asked again behind the next answer. The name is given between two turns, so one that a person gives comes before it or
//! takes its place.

use std::time::Duration;

use actix::{AsyncContext, Context as Ctx};
use domain::budget::text_tokens;
use domain::chat::{AssistantMessage, Content, Message, StopReason};
use domain::history::unforged;
use domain::ids::{Attempt, TurnId};
use domain::keys::SessionKind;
use domain::request::{ChatRequest, ToolChoice};
use domain::text::{ellipsis, one_line};
use protocol::edit::{Edit, Patience};
use protocol::provider::{AskPermit, Complete, Event, Permit, Urgency};
use protocol::turn::Stamp;
use tokio::sync::oneshot;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::live::Exit;
use super::{Life, Session};
use crate::shared::tell_front;

/// Characters of a name.
const CHARS_MAX: usize = 60;
/// Characters that the model is shown of message and answer each.
const SHOWN_CHARS_MAX: usize = 500;
/// How long the model may take for it; after that the session is named by the first words that were said.
const TAKES_MAX: Duration = Duration::from_secs(30);
/// Of the answer.
const TOKENS_MAX: u32 = 40;
const TEMPERATURE: f32 = 0.2;
/// No round of a turn has this number.
const ROUND: u32 = u32::MAX;

const SYSTEM: &str = "You name conversations.";
const ASKED: &str = "Name the conversation that begins as follows, in at most six words of its language. Answer with the \
                     name alone.";

/// A name that is asked for, or waits for the time between two turns.
pub(super) struct Title {
    stamp: Stamp,
    request: Option<ChatRequest>,
    /// What is taken where the model gives none.
    first_words: String,
    name: Option<String>,
    /// Ends the call: with the session, by hand, or for a turn that has no place.
    cancel: CancellationToken,
    _gone: DropGuard,
}

// === impl Title ===

impl Title {
    /// Whether an event is about it.
    pub fn is(&self, stamp: Stamp) -> bool {
        self.stamp == stamp
    }

    /// Whether its call was ended before there was a name.
    fn is_given_up(&self) -> bool {
        self.name.is_none() && self.cancel.is_cancelled()
    }
}

// === impl Session ===

impl Session {
    /// A turn was answered: perhaps the session wants a name.
    pub(super) fn want_title(&mut self, turn: TurnId, attempt: Attempt, ctx: &mut Ctx<Self>) {
        let kind = self.shared.config.policies.kind_of(self.lease.key());
        let named = match kind {
            SessionKind::Main | SessionKind::Direct | SessionKind::WebSocket | SessionKind::Cli => false,
            SessionKind::Group
            | SessionKind::Thread
            | SessionKind::Cron
            | SessionKind::Dream
            | SessionKind::Hook
            | SessionKind::Subagent
            | SessionKind::Heartbeat
            | SessionKind::Api
            | SessionKind::Unknown => true,
        };
        let Life::Live(live) = &mut self.state else { return };
        let tally = live.ledger.tally();
        if named || !self.shared.config.titles || tally.named || tally.messages < 2 || live.exit != Exit::No {
            return;
        }
        if self.title.take_if(|title| title.is_given_up()).is_none() && self.title.is_some() {
            self.give_title(ctx);
            return;
        }
        let Some((said, answered)) = live.context.as_ref().and_then(|context| context.first_words()) else { return };
        let stamp = Stamp { epoch: live.ledger.epoch, turn, attempt, round: ROUND };
        let model = self.shared.settings(kind, tally).preset.model;
        let (request, cancel) = (Some(request(model, &said, &answered)), CancellationToken::new());
        let (first_words, name) = (ellipsis(one_line(&said).trim(), CHARS_MAX).into_owned(), None);
        let gone = cancel.clone().drop_guard();
        self.title = Some(Box::new(Title { stamp, request, first_words, name, cancel: cancel.clone(), _gone: gone }));
        let (key, urgency, reply_to) = (self.lease.key().clone(), Urgency::Spare, ctx.address().recipient());
        let ask = AskPermit { stamp, key, urgency, cancel, reply_to };
        if tell_front(&self.neighbours.permits, &self.shared.mail.provider, ask).is_err() {
            self.title = None;
        }
    }

    pub(super) fn title_event(&mut self, event: Event, ctx: &mut Ctx<Self>) {
        match event {
            Event::Permitted { permit, .. } => self.ask_title(permit, ctx),
            Event::Delta { .. } => {}
            Event::Completed { message, .. } => self.titled(name_of(&message), ctx),
            Event::Failed { .. } => self.titled(None, ctx),
        }
    }

    fn ask_title(&mut self, permit: Permit, ctx: &mut Ctx<Self>) {
        let Some(title) = self.title.as_mut().filter(|title| !title.is_given_up()) else { return };
        let Some(request) = title.request.take() else { return };
        let (stamp, cancel) = (title.stamp, title.cancel.clone());
        let complete = Complete { stamp, permit, request, cancel, reply_to: ctx.address().recipient() };
        if tell_front(&self.neighbours.model, &self.shared.mail.provider, complete).is_err() {
            self.title = None;
            return;
        }
        let life = self.life;
        ctx.run_later(TAKES_MAX, move |session, ctx| {
            let waits = |title: &Title| title.is(stamp) && title.name.is_none() && !title.is_given_up();
            if session.life == life && session.title.as_deref().is_some_and(waits) {
                session.cancel_title_call();
                session.titled(None, ctx);
                session.note();
            }
        });
    }

    /// Ends the call, if it is under way: somebody stopped what the session does, or it takes too long.
    pub(super) fn cancel_title_call(&self) {
        self.title.iter().for_each(|title| title.cancel.cancel());
    }

    fn titled(&mut self, name: Option<String>, ctx: &mut Ctx<Self>) {
        let Some(title) = &mut self.title else { return };
        title.name = Some(name.unwrap_or_else(|| title.first_words.clone()));
        self.give_title(ctx);
    }

    /// Names the session, if it has no name yet and no turn runs; else behind a later turn.
    fn give_title(&mut self, ctx: &mut Ctx<Self>) {
        let Life::Live(live) = &mut self.state else { return };
        if live.ledger.tally().named {
            self.title = None;
            return;
        }
        if live.edits.is_some() || live.machine.runs_turn() || live.exit != Exit::No {
            return;
        }
        let Some(name) = self.title.as_mut().and_then(|title| title.name.take()) else { return };
        self.title = None;
        if !name.is_empty() {
            // Nobody waits for the answer; what went wrong is tried again behind the next turn.
            self.edit(Edit::Rename { name }, Patience::Refuse, oneshot::channel().0, ctx);
        }
    }
}

fn request(model: std::sync::Arc<str>, said: &str, answered: &str) -> ChatRequest {
    let [said, answered] = [said, answered].map(|text| unforged(&ellipsis(text, SHOWN_CHARS_MAX)));
    let text = format!("{ASKED}\n\nPerson: {said}\n\nYou: {answered}");
    ChatRequest {
        model,
        system: SYSTEM.into(),
        system_tail: None,
        tokens: text_tokens(SYSTEM) + text_tokens(&text),
        messages: vec![Message::User([Content::text(text)].into())].into(),
        tools: [].into(),
        choice: ToolChoice::None,
        effort: None,
        max_tokens: TOKENS_MAX,
        temperature: TEMPERATURE,
    }
}

/// The name that the model gave, if it is one.
fn name_of(message: &AssistantMessage) -> Option<String> {
    let text = one_line(&message.text);
    let name = text.trim().trim_matches(['"', '\'', '“', '”', '`', '*', '#', ' ', '.']);
    let good = message.stop == StopReason::Stop && message.calls.is_empty() && !name.is_empty();
    good.then(|| ellipsis(name, CHARS_MAX).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_short_line() {
        let of = |text: &str, stop| name_of(&AssistantMessage { stop, ..AssistantMessage::new(text, "p", "m") });
        assert_eq!(of("\"Trip to Rome.\"\n", StopReason::Stop).as_deref(), Some("Trip to Rome"));
        assert_eq!(of("**A**\nB", StopReason::Stop).as_deref(), Some("A** B"));
        assert_eq!(of("...", StopReason::Stop), None);
        assert_eq!(of("Trip to", StopReason::Length), None);
        assert_eq!(of(&"é".repeat(99), StopReason::Stop).map(|name| name.chars().count()), Some(CHARS_MAX));
    }
}
