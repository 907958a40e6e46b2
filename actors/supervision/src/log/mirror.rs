//! The same events through `tracing`, for whoever reads the process's own output.

use protocol::supervision::{Event, EventName};

pub(super) fn mirror(event: &Event) {
    let Event { id, path, lost, .. } = event;
    let name = event.event.word();
    let reason = event.reason.as_deref();
    let at = event.panic.as_ref().map(|panic| panic.at.as_str());
    let text = event.panic.as_ref().map(|panic| panic.text.as_str());
    let turn = event.turn.map(|turn| turn.to_string());
    let cause = event.cause.as_deref();
    match severity(event.event) {
        tracing::Level::ERROR => {
            tracing::error!(target: "supervision", event = name, %path, id, reason, text, at, turn, cause, lost, "supervision event");
        }
        tracing::Level::WARN => {
            tracing::warn!(target: "supervision", event = name, %path, id, reason, text, at, turn, cause, lost, "supervision event");
        }
        _ => {
            tracing::debug!(target: "supervision", event = name, %path, id, reason, text, at, turn, cause, lost, "supervision event");
        }
    }
}

/// Warnings are unexpected but lost nothing; errors need a person.
fn severity(name: EventName) -> tracing::Level {
    match name {
        EventName::GaveUp
        | EventName::Quarantined
        | EventName::DeadLettered
        | EventName::Undeliverable
        | EventName::LetterShed
        | EventName::Escalated
        | EventName::JournalReadOnly
        | EventName::JournalRepaired
        | EventName::ProviderOpened
        | EventName::ArbiterBlocked
        | EventName::MemoryHigh
        | EventName::CronDamaged
        | EventName::EventsLost => tracing::Level::ERROR,
        EventName::Restarted
        | EventName::TurnRecovered
        | EventName::TurnStuck
        | EventName::TurnFailed
        | EventName::DeliveryFailed
        | EventName::DeliveryRepeated
        | EventName::ViewRepaired
        | EventName::ViewDamaged
        | EventName::CronSkipped
        | EventName::CronFailed
        | EventName::CronUnsaved
        | EventName::ConfigRejected => tracing::Level::WARN,
        EventName::Started
        | EventName::Exited
        | EventName::Released
        | EventName::Activated
        | EventName::Passivated
        | EventName::Refused
        | EventName::TurnCancelled
        | EventName::LetterRetried
        | EventName::LetterDropped
        | EventName::Recovered
        | EventName::JournalWritable
        | EventName::SessionDeleted
        | EventName::SessionArchived
        | EventName::SessionRestored
        | EventName::SessionEdited
        | EventName::SessionsPruned
        | EventName::CronSaved
        | EventName::AttachmentsRemoved
        | EventName::ProcessStarted
        | EventName::ProcessStopped
        | EventName::GatewayStarted
        | EventName::Resumed
        | EventName::ProviderClosed
        | EventName::ArbiterFreed
        | EventName::MemoryCalm
        | EventName::GatewayStopped
        | EventName::GatewayStopping => tracing::Level::DEBUG,
    }
}
