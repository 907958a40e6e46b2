//! What `top` shows: the busiest actors, counts by kind, and rates. The body of `GET /admin/v1/top`:
//!
//! ```json
//! {"at_ms":1796000000000,"version":"0.1.0","phase":"serving","not_ready":[],"uptime_ms":61000,
//!  "turns":{"accepted":9,"done":7,"dead":0,"cancelled":0,"open":2,"running":1},
//!  "rates":{"over_ms":10000,"accepted":0.9,"ended":0.7,"refused":0.0,"restarts":0.0},"oldest_ms":1500,
//!  "kinds":[{"kind":"session","actors":3,"mailbox":0,"inbox":1,"restarts":0}],"states":{"idle":2,"thinking":1},
//!  "items":[{"path":"/registry/0/session/api:7","kind":"session","state":"thinking","session":"api:7",
//!            "turn":"0193…","running_ms":1400,"inbox":1,"mailbox":0,"restarts":0,"since":1796000000000}],"next":null}
//! ```
//!
//! `items` are at most [`TopQuery::limit`]; counts are over all. A session's `inbox` are its waiting turns.

use std::collections::BTreeMap;

use domain::ids::{SessionKey, TurnId};
use serde::{Deserialize, Serialize};

use crate::supervision::{ActorPath, Kind};

/// The most items that may be asked for.
pub const TOP_ITEMS_MAX: usize = 500;

/// By what the items are ordered, the largest first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TopSort {
    /// How long the running turn has been running.
    #[default]
    Running,
    /// Waiting turns.
    Inbox,
    /// Messages in the mailbox.
    Mailbox,
    /// Restarts in place.
    Restarts,
}

impl TopSort {
    /// All of them, in the order in which a user is led through them.
    pub const ALL: [Self; 4] = [Self::Running, Self::Inbox, Self::Mailbox, Self::Restarts];

    /// The word of the query.
    pub fn word(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Inbox => "inbox",
            Self::Mailbox => "mailbox",
            Self::Restarts => "restarts",
        }
    }

    /// By what `row` is ordered.
    pub fn of(self, row: &TopRow) -> u64 {
        match self {
            // Who runs at all comes before who does not.
            Self::Running => row.running_ms.map_or(0, |ms| ms.saturating_add(1)),
            Self::Inbox => row.inbox,
            Self::Mailbox => row.mailbox,
            Self::Restarts => row.restarts,
        }
    }
}

/// Which items are wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopQuery {
    /// Only actors whose path matches this glob.
    pub path: Option<String>,
    /// Which first.
    pub sort: TopSort,
    /// How many.
    pub limit: usize,
}

/// One actor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopRow {
    /// Where it stands.
    pub path: ActorPath,
    /// What it is.
    pub kind: Kind,
    /// State word of that kind.
    pub state: String,
    /// For sessions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionKey>,
    /// Running turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<TurnId>,
    /// For how long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running_ms: Option<u64>,
    /// Waiting turns.
    pub inbox: u64,
    /// Messages in the mailbox.
    pub mailbox: u64,
    /// Restarts so far.
    pub restarts: u64,
    /// Since when, ms since 1970.
    pub since: u64,
}

/// The actors of one kind together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KindRow {
    /// Which.
    pub kind: Kind,
    /// How many.
    pub actors: u64,
    /// Messages in their mailboxes.
    pub mailbox: u64,
    /// Turns that wait for them.
    pub inbox: u64,
    /// Restarts of those that live.
    pub restarts: u64,
}

/// The sessions' part, from the registry.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionsTop {
    /// How many do what, by state word; those held back are `quarantined` or `suspect`.
    pub states: BTreeMap<&'static str, u64>,
    /// Mail under way.
    pub mailbox: u64,
    /// Waiting turns.
    pub inbox: u64,
    /// Restarts of those that live.
    pub restarts: u64,
    /// The wanted ones, in order.
    pub rows: Vec<TopRow>,
}

/// Turns since the process began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopTurns {
    /// Accepted, those that the process before had left included.
    pub accepted: u64,
    /// Ended as done.
    pub done: u64,
    /// Given up.
    pub dead: u64,
    /// Cancelled.
    pub cancelled: u64,
    /// Waiting or running.
    pub open: u64,
    /// Running.
    pub running: u64,
}

/// Per second, over the last seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct TopRates {
    /// Over how long; 0 when nothing can be said yet.
    pub over_ms: u64,
    /// Messages accepted.
    pub accepted: f64,
    /// Turns that ended.
    pub ended: f64,
    /// Messages refused.
    pub refused: f64,
    /// Actors restarted.
    pub restarts: f64,
}

/// The whole body.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Top {
    /// When it was taken, ms since 1970.
    pub at_ms: u64,
    /// Version of the program.
    pub version: String,
    /// `recovering`, `serving`, `draining`.
    pub phase: String,
    /// Why new work would not be taken.
    pub not_ready: Vec<String>,
    /// How long the gateway has been serving.
    pub uptime_ms: u64,
    /// Turns.
    pub turns: TopTurns,
    /// Rates.
    pub rates: TopRates,
    /// Age of the oldest open turn.
    pub oldest_ms: Option<u64>,
    /// By kind.
    pub kinds: Vec<KindRow>,
    /// Sessions by state.
    pub states: BTreeMap<String, u64>,
    /// The busiest actors.
    pub items: Vec<TopRow>,
    /// Always null: what is not shown is found with a filter.
    pub next: Option<String>,
}
