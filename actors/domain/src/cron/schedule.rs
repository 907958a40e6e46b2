//! When a job is due.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::pattern::{BadPattern, Pattern};
use crate::time::EPOCH_MS_MAX;

/// The shortest `every` that can be asked for, in milliseconds.
pub const EVERY_MS_MIN: u64 = 1000;

/// As `jobs.json` has it: `kind` decides which of the others counts.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Schedule {
    /// `at`, `every` or `cron`.
    pub kind: String,
    /// Milliseconds since 1970.
    #[serde(default)]
    pub at_ms: Option<i64>,
    /// Milliseconds.
    #[serde(default)]
    pub every_ms: Option<i64>,
    /// A [`Pattern`].
    #[serde(default)]
    pub expr: Option<String>,
    /// Of a pattern: an IANA zone; without one, the configured zone.
    #[serde(default)]
    pub tz: Option<String>,
    /// What else the file says.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// How names of zones are understood.
#[derive(Debug, Clone)]
pub struct Zones {
    /// Where times without a zone are.
    pub local: TimeZone,
    /// The zone of a name.
    pub named: fn(&str) -> Option<TimeZone>,
}

/// A schedule that can be followed.
#[derive(Debug, Clone)]
pub enum Timing {
    /// Once.
    At(u64),
    /// At equal distances, in milliseconds.
    Every(u64),
    /// By a pattern, in a zone.
    Cron(Box<Pattern>, TimeZone),
}

/// Why a schedule cannot be followed. The text names the field.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadSchedule {
    /// Of `kind`.
    #[error("schedule.kind `{0}` is unknown; there are at, every and cron")]
    Kind(String),
    /// The field that the kind needs.
    #[error("schedule.{0} is missing")]
    Missing(&'static str),
    /// Of `atMs`.
    #[error("schedule.atMs is no time from 1970 to 9999")]
    At,
    /// Of `everyMs`.
    #[error("schedule.everyMs must be above 0")]
    Every,
    /// Of `expr`.
    #[error("schedule.expr: {0}")]
    Pattern(#[from] BadPattern),
    /// Of `tz`.
    #[error("schedule.tz `{0}` is not a known time zone; a name such as Europe/Berlin is expected")]
    Zone(String),
    /// Of `tz`, where it means nothing.
    #[error("schedule.tz can be given for patterns only")]
    ZoneOfOther,
}

// === impl Schedule ===

impl Schedule {
    /// Once.
    pub fn at(at_ms: u64) -> Self {
        Self { kind: "at".to_owned(), at_ms: i64::try_from(at_ms).ok(), ..Self::default() }
    }

    /// At equal distances.
    pub fn every(every_ms: u64) -> Self {
        Self { kind: "every".to_owned(), every_ms: i64::try_from(every_ms).ok(), ..Self::default() }
    }

    /// By a pattern.
    pub fn cron(expr: &str, tz: Option<&str>) -> Self {
        let (expr, tz) = (Some(expr.to_owned()), tz.map(str::to_owned));
        Self { kind: "cron".to_owned(), expr, tz, ..Self::default() }
    }

    /// Whether it has one moment only.
    pub fn is_once(&self) -> bool {
        self.kind == "at"
    }

    /// Makes it ready to be followed.
    pub fn timing(&self, zones: &Zones) -> Result<Timing, BadSchedule> {
        if self.kind != "cron" && self.tz.is_some() {
            return Err(BadSchedule::ZoneOfOther);
        }
        match self.kind.as_str() {
            "at" => {
                let at = self.at_ms.ok_or(BadSchedule::Missing("atMs"))?;
                let at = u64::try_from(at).ok().filter(|at| *at <= EPOCH_MS_MAX);
                at.map(Timing::At).ok_or(BadSchedule::At)
            }
            "every" => {
                let every = self.every_ms.ok_or(BadSchedule::Missing("everyMs"))?;
                let every = u64::try_from(every).ok().filter(|every| (1..=EPOCH_MS_MAX).contains(every));
                every.map(Timing::Every).ok_or(BadSchedule::Every)
            }
            "cron" => {
                let expr = self.expr.as_deref().ok_or(BadSchedule::Missing("expr"))?;
                let zone = match self.tz.as_deref().filter(|name| !name.is_empty()) {
                    None => zones.local.clone(),
                    Some(name) => {
                        (zones.named)(name).ok_or_else(|| BadSchedule::Zone(name.chars().take(64).collect()))?
                    }
                };
                Ok(Timing::Cron(Box::new(Pattern::parse(expr)?), zone))
            }
            other => Err(BadSchedule::Kind(other.chars().take(32).collect())),
        }
    }

    /// In words, for lists: `every 1 h`, `0 9 * * * (Europe/Berlin)`.
    pub fn told(&self, zone: &TimeZone) -> String {
        match self.kind.as_str() {
            "at" => {
                let at = self.at_ms.and_then(|at| Timestamp::from_millisecond(at).ok());
                let shown = at.map(|at| at.to_zoned(zone.clone()).strftime("%Y-%m-%d %H:%M:%S %Z").to_string());
                format!("at {}", shown.as_deref().unwrap_or("no time"))
            }
            "every" => format!(
                "every {}",
                self.every_ms.and_then(|ms| u64::try_from(ms).ok()).map_or_else(|| "?".to_owned(), distance)
            ),
            _ => {
                let tz = self.tz.as_ref().map(|tz| format!(" ({tz})")).unwrap_or_default();
                format!("{}{tz}", self.expr.as_deref().unwrap_or("?"))
            }
        }
    }
}

/// The largest unit that leaves no rest.
fn distance(ms: u64) -> String {
    let units = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s")];
    let unit = units.iter().find(|(length, _)| ms > 0 && ms.is_multiple_of(*length));
    unit.map_or_else(|| format!("{ms} ms"), |(length, word)| format!("{} {word}", ms / length))
}

// === impl Timing ===

impl Timing {
    /// The first moment after `after_ms`, both in milliseconds since 1970; none when there is none. An `every` counts from
    /// `after_ms`.
    pub fn next_after(&self, after_ms: u64) -> Option<u64> {
        let next = match self {
            Self::At(at) => (*at > after_ms).then_some(*at),
            Self::Every(every) => after_ms.checked_add(*every),
            Self::Cron(pattern, zone) => {
                let after = Timestamp::from_millisecond(i64::try_from(after_ms).ok()?).ok()?;
                let next = pattern.next_after(after, zone)?;
                u64::try_from(next.as_millisecond()).ok()
            }
        };
        next.filter(|next| *next <= EPOCH_MS_MAX)
    }
}

#[cfg(test)]
mod tests;
