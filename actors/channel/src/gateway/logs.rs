//! `GET logs` and `GET why/{subject}`: the supervision log, and the story that it tells.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::Response;
use futures::stream;
use supervision::log_read::{self, Search};
use supervision::why::{SENTENCES_DEFAULT, Subject, Window};

use super::admin::{blocking, error, failed, json_of, ndjson};
use super::serve::Gateway;
use super::why::{Sources, why};

/// Events that are read at once.
const PAGE: usize = 1000;
/// How often a followed log is looked at.
const POLL: Duration = Duration::from_millis(250);

/// The log's parameters are those of [`log_read::Query::parse`]; with `follow=true` it goes on as events come.
pub(super) async fn logs(
    State(gateway): State<Arc<Gateway>>,
    query: Result<Query<BTreeMap<String, String>>, QueryRejection>,
) -> Response<Body> {
    let Ok(Query(pairs)) = query else { return error(400, "bad_query", "the query cannot be read") };
    let follow = pairs.get("follow").is_some_and(|follow| follow == "true");
    let query = match log_read::Query::parse(pairs.iter().map(|(name, value)| (name.as_str(), value.as_str()))) {
        Ok(query) => query,
        Err(bad) => return error(400, "bad_query", &bad.to_string()),
    };
    let (disk, dir) = (gateway.doors.ports.disk.clone(), gateway.config.logs.clone());
    let search = match blocking(&gateway, move || Search::open(disk, &dir, query)).await {
        Ok(search) => search,
        Err(cause) => return failed("the log", &cause),
    };
    let lines = stream::unfold(Some((gateway, search)), move |place| async move {
        let (gateway, mut search) = place?;
        let mut last_look = false;
        loop {
            let read = move || search.page(PAGE).map(|page| (search, page));
            let page = match blocking(&gateway, read).await {
                Ok((back, page)) => {
                    search = back;
                    page
                }
                Err(cause) => return Some((Err(cause), None)),
            };
            if !page.events.is_empty() {
                let lines = page.events.iter().filter_map(|event| serde_json::to_string(event).ok());
                let text: String = lines.flat_map(|line| [line, "\n".to_owned()]).collect();
                return Some((Ok(text), Some((gateway, search))));
            }
            if page.at_end && !follow {
                return None;
            }
            if page.at_end && last_look {
                return None;
            }
            if page.at_end {
                tokio::select! {
                    biased;
                    // What was told of the stop is still shown.
                    () = gateway.stopping.cancelled() => last_look = true,
                    () = tokio::time::sleep(POLL) => {}
                }
            }
        }
    });
    ndjson(Body::from_stream(lines))
}

/// The story of a session or a turn, or the part of it between `since` and `until`; the last `tail` sentences.
pub(super) async fn story(
    State(gateway): State<Arc<Gateway>>,
    path: Result<Path<String>, PathRejection>,
    query: Result<Query<BTreeMap<String, String>>, QueryRejection>,
) -> Response<Body> {
    let Ok(Query(pairs)) = query else { return error(400, "bad_query", "the query cannot be read") };
    let asked = log_read::Query::parse(pairs.iter().map(|(name, value)| (name.as_str(), value.as_str())));
    let window = match asked {
        Ok(log_read::Query { filter, tail, .. }) => {
            Window { since: filter.since, until: filter.until, tail: tail.unwrap_or(SENTENCES_DEFAULT) }
        }
        Err(bad) => return error(400, "bad_query", &bad.to_string()),
    };
    let subject = path.map_err(|_| "the subject is not UTF-8".to_owned());
    let subject = match subject.and_then(|Path(text)| Subject::parse(&text).map_err(|why| why.to_string())) {
        Ok(subject) => subject,
        Err(why) => return error(400, "bad_subject", &why),
    };
    let sources = Sources {
        disk: gateway.doors.ports.disk.clone(),
        offload: gateway.doors.ports.offload.clone(),
        logs: gateway.config.logs.clone(),
        transcripts: gateway.config.transcripts.clone(),
    };
    match why(&sources, Some(&*gateway.doors.journal), Some(&gateway.doors), subject, &window).await {
        Ok(story) => json_of(&story),
        Err(cause) => failed("what happened", &cause),
    }
}
