//! `GET top` and `GET tree`: the actors as they are now. Both look at every live session once, on the blocking pool.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::Response;
use protocol::journal::JournalStatus;
use protocol::supervision::{ActorPath, Kind, TreeNode};
use protocol::top::{KindRow, SessionsTop, TOP_ITEMS_MAX, Top, TopQuery, TopRow, TopSort, TopTurns};
use serde::Deserialize;
use supervision::log_read::glob_matches;
use supervision::ports::offload;

use super::admin::{error, json_of};
use super::rates::{SAMPLE_EVERY, Sample};
use super::serve::Gateway;

/// Items when nobody says how many.
const ITEMS: usize = 100;

#[derive(Debug, Deserialize)]
pub(super) struct TreeQuery {
    path: Option<String>,
}

pub(super) async fn tree(
    State(gateway): State<Arc<Gateway>>,
    query: Result<Query<TreeQuery>, QueryRejection>,
) -> Response<Body> {
    let Ok(Query(TreeQuery { path })) = query else { return error(400, "bad_query", "the query is path=<glob>") };
    let pool = Arc::clone(&gateway.doors.ports.offload);
    let made = offload(&*pool, move || {
        let mut tree = gateway.doors.sessions.tree();
        tree.children.extend(others(&gateway));
        tree.children.sort_by(|a, b| a.path.cmp(&b.path));
        if let Some(glob) = path {
            prune(&mut tree, &glob);
        }
        tree
    });
    match made.await {
        Ok(tree) => json_of(&tree),
        Err(_) => error(500, "internal", "the tree cannot be made"),
    }
}

/// Keeps the nodes that match, and those above them. The root stays.
fn prune(node: &mut TreeNode, glob: &str) {
    node.children.retain_mut(|child| {
        let matches = glob_matches(glob, &child.path.0);
        if !matches {
            prune(child, glob);
        }
        matches || !child.children.is_empty()
    });
}

/// What is no actor of the kernel's, but has a place in the tree: the journal and the doors.
fn others(gateway: &Gateway) -> Vec<TreeNode> {
    let mut nodes = vec![journal_node(gateway.doors.journal.status())];
    nodes.extend(gateway.doors.opened().nodes());
    nodes
}

/// The journal is a thread and no actor; whoever looks for what is ill looks here.
fn journal_node(status: JournalStatus) -> TreeNode {
    let state = if status.writable { "running" } else { "read_only" };
    TreeNode { inbox: status.open, ..TreeNode::new(ActorPath("/journal".into()), Kind::Journal, state) }
}

#[derive(Debug, Deserialize)]
pub(super) struct TopParameters {
    path: Option<String>,
    #[serde(default)]
    sort: TopSort,
    limit: Option<usize>,
}

pub(super) async fn top(
    State(gateway): State<Arc<Gateway>>,
    query: Result<Query<TopParameters>, QueryRejection>,
) -> Response<Body> {
    let Ok(Query(TopParameters { path, sort, limit })) = query else {
        let usage = "the query is path=<glob>&sort=running|inbox|mailbox|restarts&limit=<number>";
        return error(400, "bad_query", usage);
    };
    let query = TopQuery { path, sort, limit: limit.unwrap_or(ITEMS).min(TOP_ITEMS_MAX) };
    let pool = Arc::clone(&gateway.doors.ports.offload);
    match offload(&*pool, move || snapshot(&gateway, &query)).await {
        Ok(top) => json_of(&top),
        Err(_) => error(500, "internal", "the snapshot cannot be made"),
    }
}

fn snapshot(gateway: &Gateway, query: &TopQuery) -> Top {
    let doors = &gateway.doors;
    let (status, now_ms) = (doors.journal.status(), doors.ports.clock.wall_ms());
    let sessions = doors.sessions.top(query);
    let mut nodes = doors.kernel.actors();
    nodes.extend(others(gateway));
    let kinds = kinds(&nodes, &sessions);
    let wanted = |node: &TreeNode| query.path.as_ref().is_none_or(|glob| glob_matches(glob, &node.path.0));
    let states = sessions.states.iter().map(|(state, count)| ((*state).to_owned(), *count)).collect();
    let mut items = sessions.rows;
    items.extend(nodes.into_iter().filter(wanted).map(row));
    items.sort_by_key(|row| Reverse(query.sort.of(row)));
    items.truncate(query.limit);
    let up = doors.ports.clock.mono().saturating_sub(gateway.begun);
    Top {
        at_ms: now_ms,
        version: gateway.config.version.clone(),
        phase: doors.phase.get().word().to_owned(),
        not_ready: gateway.reasons().into_iter().map(str::to_owned).collect(),
        uptime_ms: u64::try_from(up.as_millis()).unwrap_or(u64::MAX),
        turns: TopTurns {
            accepted: status.accepted,
            done: status.done,
            dead: status.dead,
            cancelled: status.cancelled,
            open: status.open,
            running: u64::try_from(doors.metrics.turns_running.get()).unwrap_or(0),
        },
        rates: gateway.rates.get(),
        oldest_ms: status.oldest_open_ms.map(|oldest| now_ms.saturating_sub(oldest)),
        kinds,
        states,
        items,
        next: None,
    }
}

fn row(node: TreeNode) -> TopRow {
    TopRow {
        path: node.path,
        kind: node.kind,
        state: node.state,
        session: node.session,
        turn: node.turn,
        running_ms: None,
        inbox: node.inbox,
        mailbox: node.mailbox,
        restarts: node.restarts,
        since: node.since,
    }
}

fn kinds(nodes: &[TreeNode], sessions: &SessionsTop) -> Vec<KindRow> {
    let mut kinds: BTreeMap<&str, KindRow> = BTreeMap::new();
    let empty = |kind| KindRow { kind, actors: 0, mailbox: 0, inbox: 0, restarts: 0 };
    for node in nodes {
        let row = kinds.entry(node.kind.word()).or_insert_with(|| empty(node.kind));
        row.actors += 1;
        row.mailbox += node.mailbox;
        row.inbox += node.inbox;
        row.restarts += node.restarts;
    }
    let row = kinds.entry(Kind::Session.word()).or_insert_with(|| empty(Kind::Session));
    row.actors += sessions.states.values().sum::<u64>();
    row.mailbox += sessions.mailbox;
    row.inbox += sessions.inbox;
    row.restarts += sessions.restarts;
    kinds.into_values().collect()
}

/// Takes a sample each second until the gateway stops.
pub(super) async fn sample(gateway: Arc<Gateway>) {
    loop {
        let doors = &gateway.doors;
        let status = doors.journal.status();
        gateway.rates.push(Sample {
            at: doors.ports.clock.mono(),
            accepted: status.accepted,
            ended: status.done + status.dead + status.cancelled,
            refused: doors.rejections(),
            restarts: doors.kernel.restarts(),
        });
        tokio::select! {
            biased;
            () = gateway.stopping.cancelled() => return,
            () = tokio::time::sleep(SAMPLE_EVERY) => {}
        }
    }
}
