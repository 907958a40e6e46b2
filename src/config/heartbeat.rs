//! The section `gateway.heartbeat`.
//!
//! **Source of names:** nanobot 0.3.5; `activeHours` is that of `openclaw` 2026.6.11.

use domain::heartbeat::{ActiveHours, BadHours};
use serde::Deserialize;

use super::key::{Key, Kind, Section};

section! {
    /// `gateway.heartbeat`.
    HeartbeatConfig {
        /// Whether it beats. Without active tasks in `HEARTBEAT.md` nothing is asked of the model.
        enabled: bool = true, Kind::Flag;
        /// Seconds between two beats.
        interval_s: u64 = 1800, Kind::Whole(1, 30 * 24 * 60 * 60);
        /// Messages of earlier beats that the model is still shown.
        keep_recent_messages: u32 = 8, Kind::Whole(1, 1000);
        /// When it may beat. Not set: always.
        active_hours: HoursConfig = HoursConfig::default(), Kind::Section(HoursConfig::SECTION);
    }
    unused []
}

section! {
    /// `gateway.heartbeat.activeHours`: times of the day in `agents.defaults.timezone`.
    HoursConfig {
        /// The first minute, as `08:00`.
        start: Option<String> = None, Kind::OptionalText;
        /// The end, as `22:00`; before the start it is that of the next day.
        end: Option<String> = None, Kind::OptionalText;
    }
    unused ["timezone"]
}

impl HoursConfig {
    /// Reads them; none when neither is set.
    pub fn read(&self) -> Result<Option<ActiveHours>, BadHours> {
        match (&self.start, &self.end) {
            (None, None) => Ok(None),
            (Some(start), Some(end)) => ActiveHours::parse(start, end).map(Some),
            (Some(_), None) | (None, Some(_)) => Err(BadHours),
        }
    }
}
