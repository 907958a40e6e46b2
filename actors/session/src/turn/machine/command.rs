//! Turns that are commands: they wait for their turn like any message, call no model, and end with one commit that has
//! what they change, the command, and what its sender is told. A cut one is followed again: it changed nothing yet.
//!
//! `/new` is done here, the others outside: [`Effect::Command`] is answered with [`Input::Commanded`](crate::turn::Input).
//! `/new` with a text behind it is a message, with which the conversation begins anew, `/goal` with one a message with
//! which the work on a goal begins, `/goal resume` one with which it goes on, and `/reset soft` with one a message before which everything is read anew. A message
//! whose answer came with it ends like a command, but it and its answer are part of the conversation.

use std::sync::Arc;

use domain::attachment;
use domain::body::TurnBody;
use domain::chat::{Content, plain_text};
use domain::command::{self, Command, GoalAsk, Parsed};
use domain::reset::Reason;

use super::Machine;
use crate::turn::running::{Phase, Running};
use crate::turn::{Commanded, Effect, Now};

/// What the model is told in place of `/goal resume`.
const RESUMES: &str = "Go on with the goal.";
const BEGINS_ANEW: &str = "A new conversation begins. The model no longer sees what was said before.";

// === impl Running ===

impl Running {
    /// Looks whether the body is a command, and makes it what remains to be answered.
    pub fn take_command(&mut self) {
        let (anew, rest) = match command::of_body(&self.body) {
            Parsed::Turn(Command::New { rest: Some(rest) }) => (true, Some(rest)),
            Parsed::Turn(Command::Goal(GoalAsk::Set(objective))) => {
                // One that was cancelled while it waited changes nothing.
                if self.stop.is_none() {
                    self.pursuit.set(&objective);
                }
                (false, Some(objective))
            }
            Parsed::Turn(Command::Refresh { rest: Some(rest) }) => {
                self.refresh = true;
                (false, Some(rest))
            }
            Parsed::Turn(command) => {
                self.refresh = matches!(command, Command::Refresh { .. });
                let anew = matches!(command, Command::New { .. });
                self.command = Some(command);
                (anew, None)
            }
            // What a door answers is no turn, unless an earlier version took it for a message.
            Parsed::Text | Parsed::Control(_) | Parsed::Refused(_) => return,
        };
        if let Some(rest) = rest {
            self.body = instead(&self.body, rest);
        }
        if anew && self.stop.is_none() {
            self.anew = Some(Reason::Asked);
        }
    }
}

// === impl Machine ===

impl Machine {
    /// Whether the running turn is a command.
    pub fn answers_command(&self) -> bool {
        self.turn.as_deref().is_some_and(|turn| turn.command.is_some())
    }

    /// Goes on with the work itself: what a command asks for, or else a round with the model.
    pub(super) fn proceed(&mut self, out: &mut Vec<Effect>) {
        let Some(turn) = self.turn.as_deref_mut() else { return };
        match &turn.command {
            None => match turn.body.says.clone() {
                None => self.ask_permit(out),
                Some(text) => {
                    let batch = turn.told(text.to_string(), &self.rules);
                    self.save(batch, out);
                }
            },
            Some(Command::New { .. }) => {
                let batch = turn.told(BEGINS_ANEW.to_owned(), &self.rules);
                self.save(batch, out);
            }
            Some(command) => {
                turn.phase = Phase::Commanding;
                out.push(Effect::Command(command.clone()));
            }
        }
    }

    pub(super) fn commanded(&mut self, commanded: Commanded, now: Now, out: &mut Vec<Effect>) {
        let Some(turn) = self.turn.as_deref_mut().filter(|turn| turn.phase == Phase::Commanding) else {
            out.push(Effect::Stale);
            return;
        };
        turn.progress = now.mono;
        if let Some(objective) = commanded.resumes {
            turn.command = None;
            turn.body = instead(&turn.body, RESUMES.to_owned());
            // What was cut has set it already.
            if !turn.user_written {
                turn.pursuit.set(&objective);
            }
            self.ask_permit(out);
            return;
        }
        let mut batch = turn.told(commanded.text, &self.rules);
        batch.edit = commanded.drawn;
        self.save(batch, out);
    }
}

/// The body with `text` in place of what it says, and behind it the files that came with it.
fn instead(body: &TurnBody, text: String) -> TurnBody {
    let said = plain_text(&body.content);
    let text = match attachment::split(&said) {
        (_, "") => text,
        (_, files) => format!("{text}\n{files}"),
    };
    let others = body.content.iter().filter(|piece| !matches!(piece, Content::Text { .. })).cloned();
    let content: Arc<[Content]> = others.chain([Content::text(text)]).collect();
    TurnBody { content, ..body.clone() }
}
