//! The section `agents.defaults.dream`.

use domain::cron::{BadSchedule, Schedule, Timing, Zones};
use jiff::tz::TimeZone;
use serde::Deserialize;

use super::key::{Key, Kind, Section};

const HOUR_MS: u64 = 60 * 60 * 1000;

section! {
    /// `agents.defaults.dream`: how what was said is worked into the memory.
    Dream {
        /// Whether it is.
        enabled: bool = true, Kind::Flag;
        /// Hours between two times.
        interval_h: u32 = 2, Kind::Whole(1, 8760);
        /// When, as a cron pattern, in place of that.
        cron: Option<String> = None, Kind::OptionalText;
        /// The entry of `model_presets` that does it. Not set: the model that sessions use.
        model_override: Option<String> = None, Kind::OptionalText;
        /// Bytes that `memory/MEMORY.md` may have before it is to be shortened: each request has all of it.
        memory_bytes_max: u64 = 32 * 1024, Kind::Whole(1024, 256 * 1024);
    }
    unused []
}

impl Dream {
    /// When it is done; times of patterns are of that zone.
    pub fn timing(&self, zone: TimeZone) -> Result<Timing, BadSchedule> {
        let schedule = match &self.cron {
            Some(pattern) => Schedule::cron(pattern, None),
            None => Schedule::every(u64::from(self.interval_h) * HOUR_MS),
        };
        schedule.timing(&Zones { local: zone, named: |_| None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_counts_from_the_last_time_and_a_pattern_goes_by_the_clock() {
        let next = |dream: Dream| dream.timing(TimeZone::UTC).map(|timing| timing.next_after(HOUR_MS / 2));
        assert_eq!(next(Dream::default()), Ok(Some(2 * HOUR_MS + HOUR_MS / 2)));
        assert_eq!(next(Dream { cron: Some("0 3 * * *".into()), ..Dream::default() }), Ok(Some(3 * HOUR_MS)));
        assert!(next(Dream { cron: Some("never".into()), ..Dream::default() }).is_err());
    }
}
