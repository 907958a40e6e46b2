//! Points in time as a user writes them. Pure.

use jiff::{Span, Timestamp, civil};

pub(super) const WANTED: &str =
    "a time is expected, such as 2h (ago), 2026-11-29 or 2026-11-29T20:53:00Z, or a time without zone for local time";

/// A point in time, the start of a day or a local time in `zone`, or how long before `now`, in the log's own form.
pub(super) fn instant(text: &str, zone: &str, now: Timestamp) -> Option<String> {
    let exact = || text.parse::<Timestamp>().ok();
    let local = || text.parse::<civil::DateTime>().ok()?.in_tz(zone).ok().map(|at| at.timestamp());
    let ago = || now.checked_sub(text.trim_end_matches("ago").trim().parse::<Span>().ok()?.abs()).ok();
    let days = || {
        let days: i64 = text.strip_suffix('d')?.parse().ok()?;
        now.checked_sub(Span::new().try_hours(days.checked_mul(24)?).ok()?).ok()
    };
    exact().or_else(local).or_else(days).or_else(ago).map(|at| format!("{at:.6}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_exact_local_or_relative() {
        let now = "2026-11-29T12:00:00Z".parse().unwrap();
        for (given, expected) in [
            ("2026-11-29T21:53:29+01:00", Some("2026-11-29T20:53:29.000000Z")),
            ("2026-11-29", Some("2026-11-28T23:00:00.000000Z")),
            ("2026-11-29T21:53", Some("2026-11-29T20:53:00.000000Z")),
            ("2h", Some("2026-11-29T10:00:00.000000Z")),
            ("90s", Some("2026-11-29T11:58:30.000000Z")),
            ("1h 30m", Some("2026-11-29T10:30:00.000000Z")),
            ("15 minutes ago", Some("2026-11-29T11:45:00.000000Z")),
            ("3d", Some("2026-11-26T12:00:00.000000Z")),
            ("", None),
            ("yesterday", None),
            ("2026-13-01", None),
            ("99999999999d", None),
        ] {
            assert_eq!(instant(given, "Europe/Berlin", now).as_deref(), expected, "{given}");
        }
    }
}
