//! Wall-clock times as text, and the rule that a session's times never run backwards.

use std::time::Duration;

use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimeParser;

/// Latest time that is written: the end of the year 9999.
pub const EPOCH_MS_MAX: u64 = 253_402_300_799_999;

/// `2026-11-29T20:53:29.123Z`. Later times than [`EPOCH_MS_MAX`] are shown as that.
pub fn iso_ms(epoch_ms: u64) -> String {
    let mut out = String::with_capacity(24);
    push_iso_ms(&mut out, epoch_ms);
    out
}

/// Appends [`iso_ms`] to `out`.
pub fn push_iso_ms(out: &mut String, epoch_ms: u64) {
    let epoch_ms = epoch_ms.min(EPOCH_MS_MAX);
    let (days, ms) = (epoch_ms / 86_400_000, epoch_ms % 86_400_000);
    let (year, month, day) = civil(days);
    for (value, digits, after) in [
        (year, 4, '-'),
        (month, 2, '-'),
        (day, 2, 'T'),
        (ms / 3_600_000, 2, ':'),
        (ms / 60_000 % 60, 2, ':'),
        (ms / 1000 % 60, 2, '.'),
        (ms % 1000, 3, 'Z'),
    ] {
        push_digits(out, value, digits);
        out.push(after);
    }
}

/// Reads an ISO 8601 time with an offset. Times before 1970 count as 1970; fractions of a millisecond are dropped.
pub fn parse_iso_ms(text: &str) -> Option<u64> {
    let at: Timestamp = text.parse().ok()?;
    Some(u64::try_from(at.as_millisecond()).unwrap_or(0))
}

/// Reads a `Retry-After` header: seconds, or a date. `now_ms` is since 1970.
pub fn retry_after(value: &str, now_ms: u64) -> Option<Duration> {
    let value = value.trim();
    if let Ok(seconds) = value.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let date = DateTimeParser::new().parse_timestamp(value).ok()?;
    let wait = i128::from(date.as_millisecond()) - i128::from(now_ms);
    Some(Duration::from_millis(u64::try_from(wait).unwrap_or(0)))
}

/// The time to write now, given the last one that was written: a clock that was set back does not show.
pub fn later(last_ms: u64, now_ms: u64) -> u64 {
    last_ms.max(now_ms)
}

fn push_digits(out: &mut String, value: u64, digits: u32) {
    for place in (0..digits).rev() {
        let digit = value / 10_u64.pow(place) % 10;
        out.push(char::from(b'0' + u8::try_from(digit).unwrap_or(0)));
    }
}

/// Year, month and day of a count of days since 1970-01-01, by way of years that begin in March.
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn known_times() {
        assert_eq!(iso_ms(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(iso_ms(1_795_985_609_123), "2026-11-29T20:53:29.123Z");
        assert_eq!(iso_ms(951_782_400_000), "2000-02-29T00:00:00.000Z");
        assert_eq!(iso_ms(u64::MAX), "9999-12-31T23:59:59.999Z");
        assert_eq!(parse_iso_ms("2026-11-29T21:53:29.1239+01:00"), Some(1_795_985_609_123));
        assert_eq!(parse_iso_ms("1950-01-01T00:00:00Z"), Some(0));
        assert_eq!(parse_iso_ms("yesterday"), None);
        assert_eq!((later(5, 3), later(3, 5)), (5, 5));
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let now_ms = 784_111_777_000;
        for (value, wait_ms) in [
            ("7", Some(7_000)),
            (" 0.5 ", Some(500)),
            ("0", Some(0)),
            ("Sun, 06 Nov 1994 08:49:37 GMT", Some(0)),
            ("Sun, 06 Nov 1994 08:50:07 GMT", Some(30_000)),
            ("Sun, 06 Nov 1994 08:00:00 GMT", Some(0)),
            ("-3", None),
            ("NaN", None),
            ("soon", None),
            ("", None),
        ] {
            assert_eq!(retry_after(value, now_ms), wait_ms.map(Duration::from_millis), "{value}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(ms in 0..=EPOCH_MS_MAX) {
            let text = iso_ms(ms);
            prop_assert_eq!(text.len(), 24);
            prop_assert_eq!(parse_iso_ms(&text), Some(ms));
        }
    }
}
