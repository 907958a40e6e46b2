//! When the heartbeat may beat.

use jiff::Timestamp;
use jiff::tz::TimeZone;

const DAY_MINUTES: u16 = 24 * 60;

/// A part of each day, from the first minute on and before the second one; it may begin before midnight and end after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ActiveHours {
    from: u16,
    to: u16,
}

/// No times of the day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be two different times of the day, from 00:00 to 24:00")]
pub struct BadHours;

// === impl ActiveHours ===

impl ActiveHours {
    /// Reads `08:30` and `24:00`.
    pub fn parse(from: &str, to: &str) -> Result<Self, BadHours> {
        let hours = Self { from: minute(from)?, to: minute(to)? };
        if hours.from == DAY_MINUTES || hours.from == hours.to { Err(BadHours) } else { Ok(hours) }
    }

    /// Whether that moment is in them, by the clocks of `zone`.
    pub fn contain(self, now_ms: u64, zone: &TimeZone) -> bool {
        let now = i64::try_from(now_ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok()).unwrap_or_default();
        let time = now.to_zoned(zone.clone()).time();
        let minute = u16::from(time.hour().unsigned_abs()) * 60 + u16::from(time.minute().unsigned_abs());
        let Self { from, to } = self;
        if from < to { (from..to).contains(&minute) } else { minute >= from || minute < to }
    }
}

fn minute(text: &str) -> Result<u16, BadHours> {
    let (hours, minutes) = text.trim().split_once(':').ok_or(BadHours)?;
    let number = |text: &str, digits| match text.len() <= digits && text.chars().all(|letter| letter.is_ascii_digit()) {
        true => text.parse::<u16>().map_err(|_| BadHours),
        false => Err(BadHours),
    };
    let (hours, minutes) = (number(hours, 2)?, number(minutes, 2)?);
    let minute = hours * 60 + minutes;
    if minutes > 59 || minute > DAY_MINUTES { Err(BadHours) } else { Ok(minute) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-03-28 00:00 UTC: one hour before that in Berlin it is 23:00, one day later clocks go ahead there.
    const DAY: u64 = 1_774_656_000_000;

    #[track_caller]
    fn check(from: &str, to: &str, zone: &str, at: &str, expect: bool) {
        let (hour, minute) = at.split_once(':').unwrap();
        let ms = DAY + (hour.parse::<u64>().unwrap() * 60 + minute.parse::<u64>().unwrap()) * 60_000;
        let hours = ActiveHours::parse(from, to).unwrap();
        assert_eq!(hours.contain(ms, &TimeZone::get(zone).unwrap()), expect, "{from}-{to} {zone} {at}");
    }

    #[test]
    fn hours_hold_by_the_clocks_of_the_zone_also_over_midnight() {
        for (from, to, zone, at, expect) in [
            ("08:00", "22:00", "UTC", "07:59", false),
            ("08:00", "22:00", "UTC", "08:00", true),
            ("08:00", "22:00", "UTC", "21:59", true),
            ("08:00", "22:00", "UTC", "22:00", false),
            ("8:00", "24:00", "UTC", "23:59", true),
            ("22:00", "06:30", "UTC", "21:59", false),
            ("22:00", "06:30", "UTC", "23:00", true),
            ("22:00", "06:30", "UTC", "00:00", true),
            ("22:00", "06:30", "UTC", "06:29", true),
            ("22:00", "06:30", "UTC", "06:30", false),
            ("08:00", "22:00", "Europe/Berlin", "07:00", true),
            ("08:00", "22:00", "Europe/Berlin", "21:00", false),
            // On the next day clocks are two hours ahead.
            ("08:00", "22:00", "Europe/Berlin", "30:00", true),
            ("08:00", "22:00", "America/New_York", "11:59", false),
        ] {
            check(from, to, zone, at, expect);
        }
    }

    #[test]
    fn what_is_no_time_is_told() {
        for (from, to) in [
            ("", "22:00"),
            ("8", "22:00"),
            ("08:60", "22:00"),
            ("24:00", "22:00"),
            ("08:00", "24:01"),
            ("08:00", "08:00"),
            ("-8:00", "22:00"),
            ("08:000", "22:00"),
            ("+8:00", "22:00"),
        ] {
            assert_eq!(ActiveHours::parse(from, to), Err(BadHours), "{from}-{to}");
        }
        assert!(ActiveHours::parse("00:00", "24:00").is_ok());
    }
}
