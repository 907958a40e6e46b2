//! Which old sessions and files have to go. Pure; who performs it looks again whether a session is busy.
//!
//! | reason | what goes |
//! |---|---|
//! | age | sessions and put-away files that are older than the limit |
//! | count | the oldest sessions above the limit, once there are clearly more: 25 or a tenth |
//! | disk | put-away files, oldest first, then sessions, until four fifths of the limit are in use |
//!
//! Sessions of jobs, hooks, sub-agents and the heartbeat go before those of people. Never pruned are busy sessions, the
//! main session, groups, threads, and keys of no known kind.
//!
//! **Source:** `openclaw` 2026.6.11, session maintenance.

use crate::ids::SessionKey;
use crate::keys::{Key, SessionKind};

/// The limits; none of those that are `None`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limits {
    /// Age in ms.
    pub prune_after_ms: Option<u64>,
    /// Number of sessions.
    pub max_entries: Option<usize>,
    /// Bytes of sessions and put-away files together.
    pub max_disk_bytes: Option<u64>,
}

/// A session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its key.
    pub key: SessionKey,
    /// Its last change, ms since 1970.
    pub updated_ms: u64,
    /// Length of its file.
    pub bytes: u64,
    /// Whether turns wait or run in it.
    pub busy: bool,
}

/// A file in the archive, or a tombstone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PutAway {
    /// Its name.
    pub file: String,
    /// Since when it has been there, ms since 1970.
    pub at_ms: u64,
    /// Its length.
    pub bytes: u64,
}

/// Why something goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// It is too old.
    Age,
    /// There are too many.
    Count,
    /// They take too much space.
    Disk,
}

/// What has to go, in order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    /// Put-away files, which are removed.
    pub files: Vec<(PutAway, Why)>,
    /// Sessions, which become tombstones; for want of space these are removed, too.
    pub sessions: Vec<(Entry, Why)>,
    /// Bytes of everything before.
    pub bytes: u64,
    /// Bytes that are free afterwards.
    pub freed_bytes: u64,
}

/// The order in which sessions go: those that nobody misses first. `None` for those that stay.
fn rank(entry: &Entry, main_key: &str) -> Option<u8> {
    if entry.busy {
        return None;
    }
    match Key::from(&entry.key).kind(main_key) {
        SessionKind::Main | SessionKind::Group | SessionKind::Thread | SessionKind::Unknown => None,
        SessionKind::Cron | SessionKind::Dream | SessionKind::Hook | SessionKind::Subagent | SessionKind::Heartbeat => {
            Some(0)
        }
        SessionKind::Direct | SessionKind::Api | SessionKind::WebSocket | SessionKind::Cli => Some(1),
    }
}

/// How many sessions above `max` there may be until it is worth the while.
fn slack(max: usize) -> usize {
    if max >= 50 { 25.max(max / 10) } else { 0 }
}

/// Decides.
pub fn plan(limits: &Limits, main_key: &str, sessions: Vec<Entry>, mut files: Vec<PutAway>, now_ms: u64) -> Plan {
    let session_bytes: u64 = sessions.iter().map(|entry| entry.bytes).sum();
    let mut plan = Plan { bytes: session_bytes + files.iter().map(|file| file.bytes).sum::<u64>(), ..Plan::default() };
    let mut count = sessions.len();
    let ranked = sessions.into_iter().filter_map(|entry| Some((rank(&entry, main_key)?, entry)));
    let mut left: Vec<(u8, Entry)> = ranked.collect();
    left.sort_by(|(a_rank, a), (b_rank, b)| (a_rank, a.updated_ms, &a.key).cmp(&(b_rank, b.updated_ms, &b.key)));
    files.sort_by(|a, b| (a.at_ms, &a.file).cmp(&(b.at_ms, &b.file)));
    if let Some(limit) = limits.prune_after_ms {
        let old = |at_ms: u64| now_ms.saturating_sub(at_ms) > limit;
        for file in files.extract_if(.., |file| old(file.at_ms)) {
            plan.freed_bytes += file.bytes;
            plan.files.push((file, Why::Age));
        }
        let gone: Vec<_> = left.extract_if(.., |(_, entry)| old(entry.updated_ms)).collect();
        count -= gone.len();
        plan.sessions.extend(gone.into_iter().map(|(_, entry)| (entry, Why::Age)));
    }
    if let Some(max) = limits.max_entries.filter(|max| count > max + slack(*max)) {
        let gone = (count - max).min(left.len());
        plan.sessions.extend(left.drain(..gone).map(|(_, entry)| (entry, Why::Count)));
    }
    if let Some(max) = limits.max_disk_bytes.filter(|max| plan.bytes - plan.freed_bytes > *max) {
        let wanted = max / 5 * 4;
        for file in files {
            if plan.bytes - plan.freed_bytes <= wanted {
                break;
            }
            plan.freed_bytes += file.bytes;
            plan.files.push((file, Why::Disk));
        }
        for (_, entry) in left {
            if plan.bytes - plan.freed_bytes <= wanted {
                break;
            }
            plan.freed_bytes += entry.bytes;
            plan.sessions.push((entry, Why::Disk));
        }
    }
    plan
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(key: &str, updated_ms: u64, bytes: u64) -> Entry {
        Entry { key: SessionKey::new(key).unwrap(), updated_ms, bytes, busy: key.ends_with("busy") }
    }

    fn file(name: &str, at_ms: u64, bytes: u64) -> PutAway {
        PutAway { file: name.to_owned(), at_ms, bytes }
    }

    type Named = Vec<(String, Why)>;

    fn names(plan: &Plan) -> (Named, Named) {
        let sessions = plan.sessions.iter().map(|(entry, why)| (entry.key.to_string(), *why)).collect();
        (plan.files.iter().map(|(file, why)| (file.file.clone(), *why)).collect(), sessions)
    }

    fn wanted(list: &[(&str, Why)]) -> Named {
        list.iter().map(|(name, why)| ((*name).to_owned(), *why)).collect()
    }

    #[test]
    fn what_is_old_goes_and_what_is_never_pruned_stays() {
        let sessions = vec![
            entry("cli:old", 10, 1),
            entry("cli:new", 95, 1),
            entry("cli:busy", 10, 1),
            entry("agent:main:main", 10, 1),
            entry("agent:main:telegram:group:7", 10, 1),
            entry("agent:main:telegram:direct:7:thread:1", 10, 1),
            entry("agent:main:telegram:direct:7", 20, 1),
            entry("hook:1", 30, 1),
            entry("something else", 10, 1),
        ];
        let limits = Limits { prune_after_ms: Some(50), ..Limits::default() };
        let plan = plan(&limits, "main", sessions, vec![file("a", 49, 5), file("b", 50, 5)], 100);
        let old = [("hook:1", Why::Age), ("cli:old", Why::Age), ("agent:main:telegram:direct:7", Why::Age)];
        assert_eq!(names(&plan), (wanted(&[("a", Why::Age)]), wanted(&old)));
        assert_eq!((plan.bytes, plan.freed_bytes), (19, 5), "a tombstone takes the same space");
    }

    #[test]
    fn too_many_go_down_to_the_limit_the_oldest_first_and_those_of_jobs_before() {
        let sessions = |count: u64| {
            let mut all: Vec<_> = (0..count).map(|n| entry(&format!("api:{n}"), n, 1)).collect();
            all.push(entry("hook:1", 1000, 1));
            all
        };
        for (max, count, first) in [(2, 2, vec!["hook:1"]), (2, 4, vec!["hook:1", "api:0", "api:1"]), (50, 74, vec![])]
        {
            let limits = Limits { max_entries: Some(max), ..Limits::default() };
            let plan = plan(&limits, "main", sessions(count), Vec::new(), 0);
            let first: Vec<_> = first.iter().map(|name| (*name, Why::Count)).collect();
            assert_eq!(names(&plan).1, wanted(&first), "{max} of {count}");
        }
        let limits = Limits { max_entries: Some(50), ..Limits::default() };
        assert_eq!(plan(&limits, "main", sessions(75), Vec::new(), 0).sessions.len(), 26);
    }

    #[test]
    fn space_is_made_from_put_away_files_first_and_down_to_four_fifths() {
        let limits = Limits { max_disk_bytes: Some(100), ..Limits::default() };
        let files = || vec![file("b", 2, 10), file("a", 1, 10)];
        let sessions = || vec![entry("cli:b", 2, 45), entry("cli:a", 1, 40), entry("cli:busy", 0, 5)];
        let made = plan(&limits, "main", sessions(), files(), 9);
        let gone = (wanted(&[("a", Why::Disk), ("b", Why::Disk)]), wanted(&[("cli:a", Why::Disk)]));
        assert_eq!((names(&made), made.bytes, made.freed_bytes), (gone, 110, 60));
        let limits = Limits { max_disk_bytes: Some(110), ..Limits::default() };
        assert_eq!(plan(&limits, "main", sessions(), files(), 9).freed_bytes, 0, "it fits");
    }

    #[test]
    fn without_limits_everything_stays() {
        let sessions = vec![entry("cli:a", 0, u64::from(u32::MAX))];
        let plan = plan(&Limits::default(), "main", sessions, vec![file("a", 0, 1)], u64::MAX);
        assert!(plan.sessions.is_empty() && plan.files.is_empty());
    }
}
