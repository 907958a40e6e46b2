//! What a command leaves in the supervision log: what it did, and nothing of its own life. Whoever reads the log later
//! asks what became of a session, and a process that lived for one command is no part of that.

use std::sync::Arc;

use protocol::supervision::{Event, EventName, Kind, SupervisionLog};

/// Passes on what belongs into the log, and drops the rest.
pub struct CommandLog {
    to: Arc<dyn SupervisionLog>,
    belongs: fn(&Event) -> bool,
}

impl CommandLog {
    /// Of a command that runs turns: all but what tells of its process and its front ends.
    pub fn of_turns(to: Arc<dyn SupervisionLog>) -> Self {
        Self { to, belongs: of_turns }
    }

    /// Of a command that runs none: only what an operator changed with it.
    pub fn of_acts(to: Arc<dyn SupervisionLog>) -> Self {
        Self { to, belongs: is_act }
    }
}

fn of_turns(event: &Event) -> bool {
    let of_its_life = match event.kind {
        Kind::Process => true,
        Kind::Log
        | Kind::Journal
        | Kind::Registry
        | Kind::Session
        | Kind::Provider
        | Kind::Tools
        | Kind::ToolCall
        | Kind::Channel
        | Kind::Outbox
        | Kind::Memory
        | Kind::Cron
        | Kind::Subagent => {
            let is_plain = matches!(event.event, EventName::Started | EventName::Exited | EventName::Recovered);
            is_plain && event.session.is_none() && event.panic.is_none()
        }
    };
    !of_its_life
}

fn is_act(event: &Event) -> bool {
    matches!(
        event.event,
        EventName::Released
            | EventName::LetterRetried
            | EventName::LetterDropped
            | EventName::JournalRepaired
            | EventName::SessionDeleted
            | EventName::SessionArchived
            | EventName::SessionRestored
            | EventName::SessionEdited
            | EventName::SessionsPruned
    )
}

impl SupervisionLog for CommandLog {
    /// An event that is dropped has no id that could be named as a cause.
    fn record(&self, event: Event) -> String {
        if (self.belongs)(&event) { self.to.record(event) } else { String::new() }
    }

    fn latest(&self, name: EventName) -> Option<String> {
        self.to.latest(name)
    }
}

#[cfg(test)]
mod tests {
    use domain::ids::SessionKey;
    use protocol::supervision::{ActorPath, Panic};

    use super::*;

    #[test]
    fn a_command_tells_what_it_did_and_not_that_it_lived() {
        let about = |name, kind, session: bool, panics: bool| {
            let mut event = Event::new(name, ActorPath("/x".into()), kind);
            event.session = session.then(|| SessionKey::new("api:1").unwrap());
            event.panic = panics.then(|| Panic { text: "boom".to_owned(), at: "x.rs:1:1".to_owned() });
            event
        };
        for (name, kind, session, panics, turns, acts) in [
            (EventName::ProcessStarted, Kind::Process, false, false, false, false),
            (EventName::GatewayStopping, Kind::Process, false, false, false, false),
            (EventName::Recovered, Kind::Registry, false, false, false, false),
            (EventName::Started, Kind::Provider, false, false, false, false),
            (EventName::Exited, Kind::Tools, false, false, false, false),
            (EventName::Exited, Kind::Tools, false, true, true, false),
            (EventName::Activated, Kind::Session, true, false, true, false),
            (EventName::TurnFailed, Kind::Session, true, false, true, false),
            (EventName::Exited, Kind::Session, true, false, true, false),
            (EventName::Released, Kind::Session, true, false, true, true),
            (EventName::LetterDropped, Kind::Journal, true, false, true, true),
            (EventName::SessionDeleted, Kind::Session, true, false, true, true),
            (EventName::SessionArchived, Kind::Session, true, false, true, true),
            (EventName::SessionRestored, Kind::Session, true, false, true, true),
            (EventName::SessionEdited, Kind::Session, true, false, true, true),
            (EventName::SessionsPruned, Kind::Registry, false, false, true, true),
            (EventName::JournalRepaired, Kind::Journal, false, false, true, true),
        ] {
            let event = about(name, kind, session, panics);
            assert_eq!((of_turns(&event), is_act(&event)), (turns, acts), "{event:?}");
        }
    }
}
