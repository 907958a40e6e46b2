//! When jobs are due, by other means than the product's: each time of day is looked up by itself. Pure.

use domain::cron::Schedule;
use jiff::civil::Weekday;
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{Timestamp, ToSpan};

const MINUTE_MS: u64 = 60_000;
const DAY_MS: u64 = 24 * 60 * MINUTE_MS;

/// Zones that put their clocks forward and back: by an hour in the north, by half an hour in the south.
pub const ZONES: [&str; 3] = ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe"];

/// A pattern, and the same in numbers.
#[derive(Debug, Clone, Copy)]
pub struct Times {
    /// As the product reads it.
    pub expr: &'static str,
    minutes: &'static [i8],
    /// None: each hour that passes.
    hours: Option<&'static [i8]>,
    /// Weekdays only.
    weekdays: bool,
}

/// Those that jobs have.
pub const TIMES: [Times; 6] = [
    Times { expr: "30 2 * * *", minutes: &[30], hours: Some(&[2]), weekdays: false },
    Times { expr: "15,45 1-2 * * *", minutes: &[15, 45], hours: Some(&[1, 2]), weekdays: false },
    Times { expr: "*/20 1-3 * * *", minutes: &[0, 20, 40], hours: Some(&[1, 2, 3]), weekdays: false },
    Times { expr: "5 9 * * mon-fri", minutes: &[5], hours: Some(&[9]), weekdays: true },
    Times { expr: "*/10 * * * *", minutes: &[0, 10, 20, 30, 40, 50], hours: None, weekdays: false },
    Times { expr: "7 * * * *", minutes: &[7], hours: None, weekdays: false },
];

/// When a job is due.
#[derive(Debug, Clone, Copy)]
pub enum Rule {
    /// Once, at this time in milliseconds since 1970.
    At(u64),
    /// At this distance in milliseconds.
    Every(u64),
    /// At times of a zone.
    Times(Times, &'static str),
}

// === impl Rule ===

impl Rule {
    /// For the product.
    pub fn schedule(&self) -> Schedule {
        match self {
            Self::At(at) => Schedule::at(*at),
            Self::Every(every) => Schedule::every(*every),
            Self::Times(times, zone) => Schedule::cron(times.expr, Some(zone)),
        }
    }

    /// The moments from `from` to `to`, both included; none of those whose moments depend on when they began.
    pub fn dues(&self, from: u64, to: u64) -> Vec<u64> {
        match self {
            Self::At(at) => Some(*at).filter(|at| (from..=to).contains(at)).into_iter().collect(),
            Self::Every(_) => Vec::new(),
            Self::Times(times, name) => TimeZone::get(name).map(|zone| times.dues(&zone, from, to)).unwrap_or_default(),
        }
    }

    /// Whether a moment is one of its own.
    pub fn has(&self, due: u64) -> bool {
        matches!(self, Self::Every(_)) || self.dues(due, due) == [due]
    }
}

impl Times {
    fn dues(&self, zone: &TimeZone, from: u64, to: u64) -> Vec<u64> {
        let Some(hours) = self.hours else {
            let first = from.div_ceil(MINUTE_MS);
            let minutes = (first..=to / MINUTE_MS).map(|minute| minute * MINUTE_MS);
            return minutes.filter(|at| self.minutes.contains(&civil(*at, zone).minute())).collect();
        };
        let mut dues = Vec::new();
        let (mut date, last) = (civil(from.saturating_sub(DAY_MS), zone).date(), civil(to + DAY_MS, zone).date());
        while date <= last {
            let off = self.weekdays && matches!(date.weekday(), Weekday::Saturday | Weekday::Sunday);
            let of_day = hours.iter().flat_map(|hour| self.minutes.iter().map(|minute| date.at(*hour, *minute, 0, 0)));
            dues.extend(of_day.filter(|_| !off).filter_map(|time| first(time, zone)));
            date = date.saturating_add(1.day());
        }
        dues.retain(|due| (from..=to).contains(due));
        dues.sort_unstable();
        dues.dedup();
        dues
    }
}

fn civil(at_ms: u64, zone: &TimeZone) -> jiff::civil::DateTime {
    let at = i64::try_from(at_ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok()).unwrap_or_default();
    at.to_zoned(zone.clone()).datetime()
}

/// The first of two equal times; of one that is skipped, the moment at which it is.
fn first(time: jiff::civil::DateTime, zone: &TimeZone) -> Option<u64> {
    let at = match zone.to_ambiguous_timestamp(time).offset() {
        AmbiguousOffset::Unambiguous { offset } | AmbiguousOffset::Fold { before: offset, .. } => {
            offset.to_timestamp(time).ok()?
        }
        // With the offset of before, the skipped time lies behind the change by as much as it lies in the gap.
        AmbiguousOffset::Gap { before, .. } => {
            let behind = before.to_timestamp(time).ok()?;
            zone.preceding(behind).next()?.timestamp()
        }
    };
    u64::try_from(at.as_millisecond()).ok()
}

/// The moments of a year at which a zone changes its clocks, in milliseconds since 1970.
pub fn changes(name: &str, year: i16) -> Vec<u64> {
    let Ok(zone) = TimeZone::get(name) else { return Vec::new() };
    let Ok(begin) = jiff::civil::date(year, 1, 1).to_zoned(TimeZone::UTC) else { return Vec::new() };
    let changes = zone.following(begin.timestamp()).map(|change| change.timestamp()).take(2);
    changes.filter_map(|at| u64::try_from(at.as_millisecond()).ok()).collect()
}
