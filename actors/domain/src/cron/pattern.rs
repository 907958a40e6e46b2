//! Patterns of times of day: `minute hour day month weekday [second]`.
//!
//! Names of months and weekdays, lists, ranges, steps, `L` and `#` are known; Sunday is 0 and 7, also in a range, and a
//! range of weekdays may run over the end of the week. A sixth field is seconds, and stands last.

use std::borrow::Cow;

use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{Timestamp, Zoned};

/// The fields in order, each with a pattern that is legal in its place.
const FIELDS: [&str; 6] = ["minute", "hour", "day of the month", "month", "weekday", "second"];
const WEEKDAYS: [&str; 7] = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];
const MONTHS: [&str; 12] = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"];
/// Words for whole patterns.
const WORDS: [(&str, &str); 7] = [
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];
/// The longest pattern, in bytes.
const BYTES_MAX: usize = 256;

/// A pattern that can be followed.
#[derive(Debug, Clone)]
pub struct Pattern {
    cron: Cron,
    /// It names hours, so it means times of day.
    times_of_day: bool,
}

/// Why a text is no pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadPattern {
    /// Nothing.
    #[error("is empty")]
    Empty,
    /// Too much.
    #[error("has more than {BYTES_MAX} bytes")]
    TooLong,
    /// Too few or too many fields.
    #[error("has {0} fields; 5 are expected (minute, hour, day of the month, month, weekday) or 6 (and second)")]
    Fields(usize),
    /// One field.
    #[error("the {field} `{text}`: {why}")]
    Field {
        /// Which.
        field: &'static str,
        /// As written.
        text: String,
        /// What is wrong with it.
        why: String,
    },
    /// A word that is none.
    #[error("`{0}` is unknown; there are @hourly, @daily, @midnight, @weekly, @monthly, @yearly and @annually")]
    Word(String),
}

// === impl Pattern ===

impl Pattern {
    /// Reads a pattern.
    pub fn parse(text: &str) -> Result<Self, BadPattern> {
        let text = text.trim();
        if text.is_empty() {
            return Err(BadPattern::Empty);
        }
        if text.len() > BYTES_MAX {
            return Err(BadPattern::TooLong);
        }
        let text = if text.starts_with('@') { word(text)? } else { text };
        let fields: Vec<&str> = text.split_ascii_whitespace().collect();
        if !matches!(fields.len(), 5 | 6) {
            return Err(BadPattern::Fields(fields.len()));
        }
        let mut plain = Vec::new();
        for (at, field) in fields.iter().enumerate() {
            let bad = |why: String| BadPattern::Field { field: FIELDS[at], text: (*field).to_owned(), why };
            let numbers = numbers(at, field).map_err(|why| bad(why.to_owned()))?;
            // Alone among fields that are legal, so that an error is of this one.
            let alone: Vec<&str> = (0..5).map(|place| if place == at { &*numbers } else { "*" }).collect();
            let second = if at == 5 { &*numbers } else { "0" };
            read(second, &alone).map_err(bad)?;
            plain.push(numbers);
        }
        let second = plain.get(5).map_or("0", |second| &**second);
        let five: Vec<&str> = plain.iter().take(5).map(|field| &**field).collect();
        let cron =
            read(second, &five).map_err(|why| BadPattern::Field { field: "pattern", text: text.to_owned(), why })?;
        Ok(Self { cron, times_of_day: !five[1].starts_with('*') })
    }

    /// The first moment after `after` that it means in `zone`; none when there is none in the next years.
    pub fn next_after(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let mut next = self.matching_after(&after.to_zoned(zone.clone()))?;
        if !self.times_of_day {
            return Some(next.timestamp());
        }
        while comes_again(&next) {
            next = self.matching_after(&next)?;
        }
        let next = next.timestamp();
        let mut changes = zone.following(after).map(|change| change.timestamp()).take_while(|at| *at < next);
        Some(changes.find(|at| self.is_skipped_at(*at, zone)).unwrap_or(next))
    }

    /// A moment from which on about `count` of them come until `until_ms`, in milliseconds since 1970.
    pub fn earlier(&self, count: usize, until_ms: u64, zone: &TimeZone) -> Option<u64> {
        let mut at = Timestamp::from_millisecond(i64::try_from(until_ms).ok()?).ok()?.to_zoned(zone.clone());
        for step in 0..count {
            at = self.cron.find_previous_occurrence(&at, step == 0).ok()?;
        }
        let before = at.timestamp() - jiff::Span::new().milliseconds(1);
        u64::try_from(self.next_after(before, zone)?.as_millisecond()).ok()
    }

    /// The first moment after `after` whose wall time has the form of the pattern.
    fn matching_after(&self, after: &Zoned) -> Option<Zoned> {
        self.cron.find_next_occurrence(after, false).ok()
    }

    /// Whether the clock skips a time of the pattern at a moment at which it changes.
    fn is_skipped_at(&self, change: Timestamp, zone: &TimeZone) -> bool {
        let before = zone.to_offset(change - jiff::Span::new().nanoseconds(1));
        let (from, to) = (before.to_datetime(change), zone.to_datetime(change));
        from < to && self.cron.find_next_occurrence(&from, true).is_ok_and(|time| time < to)
    }
}

/// Whether this wall time came before, as the clock was put back in between.
fn comes_again(at: &Zoned) -> bool {
    let wall = at.time_zone().to_ambiguous_zoned(at.datetime());
    match wall.offset() {
        AmbiguousOffset::Fold { after, .. } => at.offset() == after,
        AmbiguousOffset::Unambiguous { .. } | AmbiguousOffset::Gap { .. } => false,
    }
}

fn word(text: &str) -> Result<&'static str, BadPattern> {
    let known = WORDS.iter().find(|(name, _)| name.eq_ignore_ascii_case(text));
    known.map(|(_, pattern)| *pattern).ok_or_else(|| BadPattern::Word(text.chars().take(32).collect()))
}

fn read(second: &str, five: &[&str]) -> Result<Cron, String> {
    let parser = CronParser::builder().seconds(Seconds::Required).year(Year::Disallowed).sloppy_ranges(true).build();
    parser.parse(&format!("{second} {}", five.join(" "))).map_err(|error| {
        let said = error.to_string();
        said.split_once(": ").map_or(said.as_str(), |(_, why)| why).trim_end_matches('.').to_lowercase()
    })
}

/// A field with numbers in place of names.
fn numbers(at: usize, field: &str) -> Result<Cow<'_, str>, &'static str> {
    let (names, first): (&[&str], usize) = match at {
        3 => (&MONTHS, 1),
        4 => (&WEEKDAYS, 0),
        _ => (&[], 0),
    };
    if field.contains('@') || field.contains('+') {
        return Err("this sign has no meaning here");
    }
    if !field.bytes().any(|byte| byte.is_ascii_alphabetic()) && at != 4 {
        return Ok(Cow::Borrowed(field));
    }
    let parts = field.split(',').map(|part| {
        let (range, rest) = match part.find(['/', '#']) {
            Some(end) => part.split_at(end),
            None => (part, ""),
        };
        let ends: Vec<Cow<'_, str>> = range.split('-').map(|end| number(end, names, first)).collect();
        match ends.as_slice() {
            [from, to] if at == 4 && rest.is_empty() => week(from, to),
            ends => format!("{}{rest}", ends.join("-")),
        }
    });
    let plain = parts.collect::<Vec<_>>().join(",");
    let letters: &[u8] = match at {
        2 => b"LWlw",
        4 => b"Ll",
        _ => b"",
    };
    let unknown = plain.bytes().any(|byte| byte.is_ascii_alphabetic() && !letters.contains(&byte));
    if unknown {
        return Err(match at {
            3 => "a month is 1 to 12 or one of jan, feb, mar, apr, may, jun, jul, aug, sep, oct, nov, dec",
            4 => "a weekday is 0 to 7 or one of sun, mon, tue, wed, thu, fri, sat",
            _ => "a number is expected, or * , - / between numbers",
        });
    }
    Ok(Cow::Owned(plain))
}

/// A number in place of a name; `FRIL` is the last Friday.
fn number<'a>(text: &'a str, names: &[&str], first: usize) -> Cow<'a, str> {
    let upper = text.to_ascii_uppercase();
    let found =
        names.iter().position(|name| upper.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest == "L"));
    match found {
        Some(at) => Cow::Owned(format!("{}{}", at + first, if upper.len() > 3 { "L" } else { "" })),
        None => Cow::Borrowed(text),
    }
}

/// A range of weekdays, which may run over the end of the week.
fn week(from: &str, to: &str) -> String {
    match (from.parse::<u8>(), to.parse::<u8>()) {
        (Ok(from @ 0..=7), Ok(to @ 0..=7)) if from > to => format!("{from}-7,0-{to}"),
        _ => format!("{from}-{to}"),
    }
}
