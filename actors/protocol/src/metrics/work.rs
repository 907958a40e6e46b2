//! What turns and doors count beyond the turns themselves: tools, model calls, connections, buffers, caches, bounds.

use std::sync::Arc;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use super::{ByDoor, ByResult, ByState};

/// `tool`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ByTool {
    /// A name of the catalogue, or `unknown`: what a model makes up is no label.
    pub tool: Arc<str>,
}

/// `tool`, `result`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ByToolResult {
    /// A name of the catalogue, or `unknown`.
    pub tool: Arc<str>,
    /// `ok`, `error`, `timed_out`, `cancelled`, `panicked`.
    pub result: &'static str,
}

/// `provider`, `state`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ByProviderState {
    /// Provider name as configured.
    pub provider: String,
    /// `taken`, `waiting`.
    pub state: &'static str,
}

/// `provider`, `reason`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ByProviderReason {
    /// Provider name as configured.
    pub provider: String,
    /// The failure class.
    pub reason: &'static str,
}

/// `provider`, `direction`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ByProviderDirection {
    /// Provider name as configured.
    pub provider: String,
    /// `input`, `output`.
    pub direction: &'static str,
}

/// `cache`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ByCache {
    /// `context`: conversations of live sessions. `hub`: what running turns said so far.
    pub cache: &'static str,
}

/// `bound`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ByBound {
    /// Which; see [`BOUNDS`].
    pub bound: &'static str,
}

/// The bounds that are shown, so that a rule can ask how near one is.
pub const BOUNDS: [&str; 18] = [
    "connections_admin",
    "connections_api",
    "connections_webhook",
    "connections_ws",
    "context_bytes",
    "crash_histories",
    "frame_bytes",
    "hub_bytes",
    "inbox_messages",
    "journal_bytes",
    "listed_sessions",
    "live_sessions",
    "log_queue_events",
    "outbox_messages",
    "provider_permits",
    "queued_bytes",
    "subagent_runs",
    "watched_turns",
];

/// What work beyond the turns themselves is counted.
#[derive(Debug, Clone)]
pub struct WorkMetrics {
    /// Tool calls that ended.
    pub tool_calls: Family<ByToolResult, Counter>,
    /// Tool results too long for the model that were kept in files.
    pub tool_results_kept: Counter,
    /// Duration of tool calls.
    pub tool_seconds: Family<ByTool, Histogram>,
    /// Tool calls running now.
    pub tool_calls_running: Gauge,
    /// Places among the running model calls.
    pub provider_permits: Family<ByProviderState, Gauge>,
    /// Model calls that failed and were tried again.
    pub provider_retries: Family<ByProviderReason, Counter>,
    /// Tokens, as the provider counts them.
    pub provider_tokens: Family<ByProviderDirection, Counter>,
    /// Calls that wait in the journal (`queue`: for its thread, `space`: for room in the log, `ids`: for message ids of a
    /// transcript).
    pub journal_calls: Family<ByState, Gauge>,
    /// Sessions whose order and message ids the journal has in memory.
    pub journal_keys: Gauge,
    /// Writes of transcript files that failed and are tried again.
    pub view_retries: Counter,
    /// Sessions that loaded again by themselves.
    pub session_reloads: Counter,
    /// Parts of conversations that were summarised (`text`, `nothing`), or archived as they are (`raw`).
    pub summaries: Family<ByResult, Counter>,
    /// Silent conversations that were to be summarised (`done`, `nothing`: it was not needed, `overtaken`: somebody spoke,
    /// `unreachable`, `failed`).
    pub idle_compactions: Family<ByResult, Counter>,
    /// Those that are worked on; at most one for each session.
    pub summaries_running: Gauge,
    /// Dreams (`done`, `failed`, `refused`, and `nothing` where there was nothing to work in).
    pub dreams: Family<ByResult, Counter>,
    /// Bytes of `memory/MEMORY.md`.
    pub memory_file_bytes: Gauge,
    /// 1 while that is more than it should be.
    pub memory_file_large: Gauge,
    /// Lines that the disk did not take for the archive of conversations.
    pub archive_failures: Counter,
    /// Open connections.
    pub connections: Family<ByDoor, Gauge>,
    /// Bytes that wait for clients to read them.
    pub send_buffer_bytes: Family<ByDoor, Gauge>,
    /// Clients that were cut because they read too slowly.
    pub slow_clients: Family<ByDoor, Counter>,
    /// Attachments that nothing named and that were removed.
    pub attachments_removed: Counter,
    /// Their bytes.
    pub attachments_removed_bytes: Counter,
    /// Bytes of requests and frames under way.
    pub frame_bytes: Gauge,
    /// Sessions that somebody watches or that have a remembered turn.
    pub hub_sessions: Gauge,
    /// Runs of sub-agents that are open.
    pub subagent_runs: Gauge,
    /// Turns whose end another actor waits for.
    pub watched_turns: Gauge,
    /// Bytes in caches.
    pub cache_bytes: Family<ByCache, Gauge>,
    /// Spans of turns (`ended`, `exported`, `failed`); those that are neither wait, or found the exporter's queue full.
    pub spans: Family<ByState, Counter>,
    /// The bounds that are in force.
    pub limit: Family<ByBound, Gauge>,
}

impl Default for WorkMetrics {
    fn default() -> Self {
        Self {
            tool_calls: Family::default(),
            tool_results_kept: Counter::default(),
            tool_seconds: Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.001, 4.0, 10))),
            tool_calls_running: Gauge::default(),
            provider_permits: Family::default(),
            provider_retries: Family::default(),
            provider_tokens: Family::default(),
            journal_calls: Family::default(),
            journal_keys: Gauge::default(),
            view_retries: Counter::default(),
            session_reloads: Counter::default(),
            summaries: Family::default(),
            idle_compactions: Family::default(),
            summaries_running: Gauge::default(),
            dreams: Family::default(),
            memory_file_bytes: Gauge::default(),
            memory_file_large: Gauge::default(),
            archive_failures: Counter::default(),
            connections: Family::default(),
            send_buffer_bytes: Family::default(),
            slow_clients: Family::default(),
            attachments_removed: Counter::default(),
            attachments_removed_bytes: Counter::default(),
            frame_bytes: Gauge::default(),
            hub_sessions: Gauge::default(),
            subagent_runs: Gauge::default(),
            watched_turns: Gauge::default(),
            cache_bytes: Family::default(),
            spans: Family::default(),
            limit: Family::default(),
        }
    }
}

impl WorkMetrics {
    pub(super) fn register(&self, to: &mut Registry) {
        to.register("tool_calls", "Tool calls that ended", self.tool_calls.clone());
        let kept = "Tool results too long for the model that were kept in files";
        to.register("tool_results_kept", kept, self.tool_results_kept.clone());
        to.register("tool_seconds", "Duration of tool calls", self.tool_seconds.clone());
        to.register("tool_calls_running", "Tool calls running now", self.tool_calls_running.clone());
        to.register("provider_permits", "Places among the running model calls", self.provider_permits.clone());
        to.register("provider_retries", "Model calls tried again", self.provider_retries.clone());
        to.register("provider_tokens", "Tokens as the provider counts them", self.provider_tokens.clone());
        to.register("journal_calls", "Calls that wait in the journal", self.journal_calls.clone());
        to.register("journal_keys", "Sessions that the journal has in memory", self.journal_keys.clone());
        to.register("view_retries", "Failed writes of transcript files", self.view_retries.clone());
        to.register("session_reloads", "Sessions that loaded again by themselves", self.session_reloads.clone());
        to.register("summaries", "Parts of conversations summarised or archived", self.summaries.clone());
        to.register(
            "idle_compactions",
            "Silent conversations that were to be summarised",
            self.idle_compactions.clone(),
        );
        to.register("summaries_running", "Summaries under way", self.summaries_running.clone());
        to.register("dreams", "Dreams that ended", self.dreams.clone());
        to.register("memory_file_bytes", "Bytes of memory/MEMORY.md", self.memory_file_bytes.clone());
        to.register("memory_file_large", "Whether that is too large", self.memory_file_large.clone());
        to.register("archive_failures", "Archive lines the disk refused", self.archive_failures.clone());
        to.register("connections", "Open connections", self.connections.clone());
        to.register("send_buffer_bytes", "Bytes that wait for clients", self.send_buffer_bytes.clone());
        to.register("slow_clients", "Clients cut for reading too slowly", self.slow_clients.clone());
        let removed = "Attachments removed because nothing named them";
        to.register("attachments_removed", removed, self.attachments_removed.clone());
        let bytes = "Bytes of attachments removed because nothing named them";
        to.register("attachments_removed_bytes", bytes, self.attachments_removed_bytes.clone());
        to.register("frame_bytes", "Bytes of requests and frames under way", self.frame_bytes.clone());
        to.register("hub_sessions", "Sessions watched or remembered by the hub", self.hub_sessions.clone());
        to.register("subagent_runs", "Runs of sub-agents that are open", self.subagent_runs.clone());
        to.register("watched_turns", "Turns whose end another actor waits for", self.watched_turns.clone());
        to.register("cache_bytes", "Bytes in caches", self.cache_bytes.clone());
        to.register("spans", "Spans of turns", self.spans.clone());
        to.register("limit", "Bounds in force", self.limit.clone());
    }
}

/// A gauge's value for a count.
pub fn gauge(count: impl TryInto<i64>) -> i64 {
    count.try_into().unwrap_or(i64::MAX)
}
