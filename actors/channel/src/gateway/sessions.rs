//! `GET sessions`: the list of conversations, from memory.
//!
//! ```json
//! {"items":[{"key":"api:7","session":"0193…","preview":"hello","entries":2,"bytes":812,"updated_ms":1,"state":"asleep"}],"next":null}
//! ```
//!
//! In the order of the keys; `next` is the cursor of the following page. `state` is `asleep` for a session that is not
//! in memory. `entries` is missing for a long transcript that nobody has opened since the start.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::Response;
use domain::ids::SessionKey;
use protocol::session::State as SessionState;
use protocol::transcripts::{Page, Summary, TranscriptReader};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::admin::{error, json_of};
use super::serve::Gateway;
use crate::http;

/// Items of one page.
const PAGE_MAX: usize = 1000;
/// How long a list waits for the sessions to be read after a start.
const KNOWN_WAIT: Duration = Duration::from_secs(10);
/// When to ask again after that.
const RETRY_MS: u64 = 1000;

#[derive(Debug, Deserialize)]
pub(super) struct Asked {
    cursor: Option<String>,
    limit: Option<usize>,
}

/// The body of the answer.
#[derive(Serialize)]
pub struct Listed<'a> {
    items: Vec<Item<'a>>,
    next: &'a Option<SessionKey>,
}

#[derive(Serialize)]
struct Item<'a> {
    #[serde(flatten)]
    summary: &'a Summary,
    state: &'static str,
}

/// A page as the answer has it; `state` knows what each session does.
pub fn listed(page: &Page, state: impl Fn(&SessionKey) -> Option<SessionState>) -> Listed<'_> {
    let state = |key| state(key).map_or("asleep", SessionState::word);
    let items = page.items.iter().map(|summary| Item { summary, state: state(&summary.key) }).collect();
    Listed { items, next: &page.next }
}

/// Waits until every session is listed; false when that takes too long.
pub(super) async fn all_known(transcripts: &dyn TranscriptReader) -> bool {
    let mut known = transcripts.all_known();
    let waited = tokio::time::timeout(KNOWN_WAIT, known.wait_for(|known| *known)).await;
    waited.is_ok_and(|known| known.is_ok())
}

pub(super) async fn list(
    State(gateway): State<Arc<Gateway>>,
    asked: Result<Query<Asked>, QueryRejection>,
) -> Response<Body> {
    let Ok(Query(Asked { cursor, limit })) = asked else {
        return error(400, "bad_query", "the query is cursor=<key>&limit=<number>");
    };
    let after = match cursor.as_deref().map(SessionKey::new).transpose() {
        Ok(after) => after,
        Err(why) => return error(400, "bad_query", &format!("cursor: {why}")),
    };
    let transcripts = &gateway.config.transcripts;
    if !all_known(&**transcripts).await {
        let message = "the sessions are still being read from the disk";
        let body = json!({"error": {"code": "recovering", "message": message, "retry_after_ms": RETRY_MS}});
        return http::json(503, body.to_string());
    }
    let page = transcripts.page(after.as_ref(), limit.unwrap_or(PAGE_MAX).clamp(1, PAGE_MAX));
    json_of(&listed(&page, |key| gateway.doors.sessions.state(key)))
}
