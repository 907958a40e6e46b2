//! When a session begins anew by itself: at an hour of the day, or after it was idle.
//!
//! Looked at when a message arrives, never by a timer. The message that comes too late for the old conversation is the
//! first one of the new.
//!
//! | | counted from | over when |
//! |---|---|---|
//! | `daily` | the session's start: its file's, or its last reset | the hour strikes |
//! | `idle` | the last message of a person | the minutes have passed |
//!
//! Of two, the earlier one is the reason. A rule for the channel takes the place of everything else, one for the kind of
//! session (`direct`, `group`, `thread`) that of the general one. Turns that nobody asked for just now (cron, heartbeat,
//! hooks, ends of commands) neither begin a session anew nor keep it from being idle.
//!
//! **Source:** `openclaw` 2026.6.11 (rules) and 2026.9.6 (off by default; a `reset` entry in the same session).

use std::collections::BTreeMap;

use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};

use crate::event;
use crate::ids::SessionKey;
use crate::keys::{Key, MAIN_KEY, SessionKind};
use crate::transcript::{Entry, EntryKind};

/// A source of turns that no person asked for just now, besides events.
const AUTOMATION: &str = "exec";

/// When a session begins anew; with neither, never.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rule {
    /// At this hour of the day, 0 to 23.
    pub daily_hour: Option<i8>,
    /// After this many minutes without a message.
    pub idle_minutes: Option<u32>,
}

/// The rules of all sessions.
#[derive(Debug, Clone, PartialEq)]
pub struct Rules {
    /// For what has no other.
    pub general: Rule,
    /// For conversations with one person, those of the owner among them.
    pub direct: Option<Rule>,
    /// For groups and rooms.
    pub group: Option<Rule>,
    /// For threads.
    pub thread: Option<Rule>,
    /// By channel, as in session keys.
    pub channels: BTreeMap<String, Rule>,
    /// Where the hour strikes.
    pub zone: TimeZone,
}

/// Why a session begins anew: `reason` of the entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The hour struck.
    Daily,
    /// It was idle.
    Idle,
    /// Somebody asked for it.
    Asked,
}

/// Since when a session is what it is; 0 when that is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Times {
    /// When it began, or began anew.
    pub started_ms: u64,
    /// When a person last said something.
    pub interacted_ms: u64,
}

// === impl Reason ===

impl Reason {
    /// As the transcript has it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Daily => "daily",
            Self::Idle => "idle",
            Self::Asked => "new",
        }
    }
}

// === impl Times ===

impl Times {
    /// Takes in an entry, in file order.
    pub fn see(&mut self, entry: &Entry) {
        match &entry.kind {
            EntryKind::Reset { .. } => {
                *self = Self { started_ms: entry.timestamp_ms, interacted_ms: entry.timestamp_ms };
            }
            EntryKind::User(user) => {
                let source = user.mark.as_ref().and_then(|mark| mark.idempotency_key.split_once(':'));
                if source.is_none_or(|(source, _)| !is_automation(source)) {
                    self.interacted_ms = self.interacted_ms.max(entry.timestamp_ms);
                }
            }
            EntryKind::Assistant(_)
            | EntryKind::ToolResult(_)
            | EntryKind::Shown(_)
            | EntryKind::Compaction { .. }
            | EntryKind::BranchSummary(_)
            | EntryKind::Silent(_)
            | EntryKind::Leaf { .. }
            | EntryKind::Opaque => {}
        }
    }
}

// === impl Rules ===

impl Rules {
    /// Whether a turn of `source` that begins now in the session `key` begins it anew.
    pub fn due(&self, key: &SessionKey, source: &str, times: Times, now_ms: u64) -> Option<Reason> {
        if is_automation(source) || times.started_ms == 0 {
            return None;
        }
        let rule = self.rule(&Key::from(key));
        let daily = rule.daily_hour.and_then(|hour| self.strikes_after(times.started_ms, hour));
        let idle = rule.idle_minutes.map(|minutes| {
            let last = times.interacted_ms.max(times.started_ms);
            last.saturating_add(u64::from(minutes) * 60_000)
        });
        let over = [(daily, Reason::Daily), (idle, Reason::Idle)];
        let over = over.into_iter().filter_map(|(at, reason)| Some((at.filter(|at| *at <= now_ms)?, reason)));
        over.min_by_key(|(at, _)| *at).map(|(_, reason)| reason)
    }

    fn rule(&self, key: &Key) -> Rule {
        let of_channel = key.channel().and_then(|channel| self.channels.get(channel));
        let of_kind = match key.kind(MAIN_KEY) {
            SessionKind::Thread => self.thread,
            SessionKind::Group => self.group,
            SessionKind::Main
            | SessionKind::Direct
            | SessionKind::Cron
            | SessionKind::Dream
            | SessionKind::Hook
            | SessionKind::Subagent
            | SessionKind::Heartbeat
            | SessionKind::Api
            | SessionKind::WebSocket
            | SessionKind::Cli
            | SessionKind::Unknown => self.direct,
        };
        of_channel.copied().or(of_kind).unwrap_or(self.general)
    }

    /// When `hour` strikes for the first time after `ms`.
    fn strikes_after(&self, ms: u64, hour: i8) -> Option<u64> {
        let begun = Timestamp::from_millisecond(i64::try_from(ms).ok()?).ok()?.to_zoned(self.zone.clone());
        let strikes = |date: jiff::civil::Date| date.at(hour, 0, 0, 0).to_zoned(self.zone.clone()).ok();
        let today = strikes(begun.date())?;
        let next = if today > begun { today } else { strikes(begun.date().checked_add(1.day()).ok()?)? };
        u64::try_from(next.timestamp().as_millisecond()).ok()
    }
}

impl Default for Rules {
    fn default() -> Self {
        let general = Rule::default();
        Self { general, direct: None, group: None, thread: None, channels: BTreeMap::new(), zone: TimeZone::UTC }
    }
}

/// Whether no person asked for the turn just now. A source may name more behind a colon.
fn is_automation(source: &str) -> bool {
    let word = source.split_once(':').map_or(source, |(word, _)| word);
    word == AUTOMATION || event::is_source(word)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::chat::Content;
    use crate::ids::TurnId;
    use crate::time::parse_iso_ms;
    use crate::transcript::{Head, UserEntry, UserMark};

    fn at(time: &str) -> u64 {
        parse_iso_ms(&format!("{time}:00Z")).unwrap()
    }

    fn due(rules: &Rules, key: &str, source: &str, times: (&str, &str), now: &str) -> Option<Reason> {
        let times = Times { started_ms: at(times.0), interacted_ms: at(times.1) };
        rules.due(&SessionKey::new(key).unwrap(), source, times, at(now))
    }

    #[test]
    fn the_hour_and_the_minutes_are_counted_from_their_own_times() {
        let daily = Rule { daily_hour: Some(4), idle_minutes: None };
        let idle = Rule { daily_hour: None, idle_minutes: Some(60) };
        let both = Rule { daily_hour: Some(4), idle_minutes: Some(60) };
        let day = "2026-03-10T";
        for (rule, started, spoken, now, expect) in [
            (Rule::default(), "01T00:00", "01T00:00", "10T12:00", None),
            (daily, "10T03:00", "10T03:30", "10T03:59", None),
            (daily, "10T03:00", "10T03:59", "10T04:00", Some(Reason::Daily)),
            // Spoken after the hour, but begun before it.
            (daily, "10T03:00", "10T09:00", "10T09:01", Some(Reason::Daily)),
            (daily, "10T04:00", "10T04:00", "10T23:00", None),
            (daily, "10T04:00", "10T04:00", "11T04:00", Some(Reason::Daily)),
            (idle, "10T03:00", "10T12:00", "10T12:59", None),
            (idle, "10T03:00", "10T12:00", "10T13:00", Some(Reason::Idle)),
            (both, "10T03:00", "10T02:30", "10T05:00", Some(Reason::Daily)),
            (both, "10T02:00", "10T02:30", "10T05:00", Some(Reason::Idle)),
            (both, "10T04:30", "10T05:00", "10T05:30", None),
        ] {
            let full = |text: &str| format!("2026-03-{text}");
            let rules = Rules { general: rule, ..Rules::default() };
            let found = due(&rules, "cli:direct", "cli", (&full(started), &full(spoken)), &full(now));
            assert_eq!(found, expect, "{day} {rule:?} {started} {spoken} {now}");
        }
    }

    #[test]
    fn the_hour_strikes_in_its_zone_also_when_clocks_change() {
        let zone = TimeZone::get("Europe/Berlin").unwrap();
        let rule = Rule { daily_hour: Some(2), idle_minutes: None };
        let rules = Rules { general: rule, zone, ..Rules::default() };
        for (started, now, expect) in [
            ("2026-01-10T00:30", "2026-01-10T00:59", None),
            ("2026-01-10T00:30", "2026-01-10T01:00", Some(Reason::Daily)),
            // On 29 March there is no 2 o'clock; it strikes at 3, which is 1 in UTC.
            ("2026-03-28T23:30", "2026-03-29T00:59", None),
            ("2026-03-28T23:30", "2026-03-29T01:00", Some(Reason::Daily)),
        ] {
            assert_eq!(due(&rules, "cli:direct", "cli", (started, started), now), expect, "{started} {now}");
        }
    }

    #[test]
    fn the_channel_wins_over_the_kind_and_the_kind_over_the_rest() {
        let idle = |minutes| Rule { daily_hour: None, idle_minutes: Some(minutes) };
        let rules = Rules {
            general: idle(1),
            direct: Some(idle(10)),
            group: Some(idle(20)),
            thread: Some(idle(30)),
            channels: [("discord".to_owned(), Rule::default()), ("slack".to_owned(), idle(5))].into(),
            ..Rules::default()
        };
        for (key, minutes) in [
            ("agent:main:main", Some(10)),
            ("telegram:5", Some(10)),
            ("telegram:-5", Some(20)),
            ("agent:main:telegram:group:5:topic:6", Some(30)),
            ("slack:C1:170.1", Some(5)),
            ("agent:main:discord:channel:5", None),
        ] {
            let found = [1, 5, 10, 20, 30].into_iter().find(|minutes| {
                let now = format!("2026-03-10T12:{minutes:02}");
                due(&rules, key, "telegram:a", ("2026-03-10T12:00", "2026-03-10T12:00"), &now).is_some()
            });
            assert_eq!(found, minutes, "{key}");
        }
    }

    #[test]
    fn automations_neither_begin_anew_nor_extend() {
        let rule = Rule { daily_hour: None, idle_minutes: Some(10) };
        let rules = Rules { general: rule, ..Rules::default() };
        let (start, late) = ("2026-03-10T12:00", "2026-03-10T13:00");
        for (source, expect) in [("cron", None), ("hook:x", None), ("ws", Some(Reason::Idle))] {
            assert_eq!(due(&rules, "cli:direct", source, (start, start), late), expect, "{source}");
        }
        let said = |source: &str, timestamp_ms| {
            let content = [Content::text("x")].into();
            let turn = TurnId(uuid::Uuid::nil());
            let mark = UserMark {
                turn,
                idempotency_key: format!("{source}:m:1").into(),
                body_hash: 0,
                accepted_ms: 0,
                into: None,
                command: false,
            };
            let head = Head { id: Arc::from("a"), parent: None, timestamp_ms };
            Entry::new(head, EntryKind::User(UserEntry { content, mark: Some(mark), event: None }))
        };
        let mut times = Times { started_ms: 5, interacted_ms: 0 };
        for (entry, expect) in [
            (said("ws", 10), (5, 10)),
            (said("cron", 20), (5, 10)),
            (Entry { kind: EntryKind::Reset { first_kept: None }, ..said("ws", 30) }, (30, 30)),
            (said("heartbeat", 40), (30, 30)),
            (said("api", 50), (30, 50)),
        ] {
            times.see(&entry);
            assert_eq!((times.started_ms, times.interacted_ms), expect, "{entry:?}");
        }
    }

    #[test]
    fn a_session_that_never_began_cannot_begin_anew() {
        let rule = Rule { daily_hour: Some(4), idle_minutes: Some(1) };
        let rules = Rules { general: rule, ..Rules::default() };
        let key = SessionKey::new("cli:direct").unwrap();
        assert_eq!(rules.due(&key, "cli", Times::default(), at("2026-03-10T12:00")), None);
    }
}
