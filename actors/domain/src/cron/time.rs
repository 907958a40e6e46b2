//! A single time, as people and models write it.

use jiff::civil::{Date, DateTime};
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{Timestamp, Zoned};

/// A text that is no time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no time; expected is 2026-12-24T18:30, 2026-12-24 for its beginning, or one with an offset as in 2026-12-24T18:30+01:00"
)]
pub struct BadTime(String);

/// Reads an ISO 8601 time in milliseconds since 1970. Without an offset it is a time of `zone`, by the rules of
/// [`cron`](super): the first of two, and the moment of the change when it is skipped. A date is its beginning.
pub fn parse(text: &str, zone: &TimeZone) -> Result<u64, BadTime> {
    let text = text.trim();
    let bad = || BadTime(text.chars().take(64).collect());
    let exact = text.parse::<Timestamp>().ok().or_else(|| text.parse::<Zoned>().ok().map(|zoned| zoned.timestamp()));
    let at = match exact {
        Some(at) => at,
        None => {
            let civil = text.parse::<DateTime>().or_else(|_| text.parse::<Date>().map(|date| date.at(0, 0, 0, 0)));
            first(civil.map_err(|_| bad())?, zone).ok_or_else(bad)?
        }
    };
    u64::try_from(at.as_millisecond()).map_err(|_| bad())
}

fn first(civil: DateTime, zone: &TimeZone) -> Option<Timestamp> {
    let wall = zone.to_ambiguous_zoned(civil);
    let skipped = matches!(wall.offset(), AmbiguousOffset::Gap { .. });
    let before = wall.earlier().ok()?.timestamp();
    if skipped { zone.following(before).next().map(|change| change.timestamp()) } else { Some(before) }
}
