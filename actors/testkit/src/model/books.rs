//! What the server counted and kept.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::http::{HeaderMap, Uri};
use bytes::Bytes;
use serde_json::Value;

/// How many requests are kept.
const CALLS_MAX: usize = 2_000;
/// How many bytes of their bodies are kept.
const CALL_BYTES_MAX: usize = 64 << 20;

/// A request as it came in.
#[derive(Debug, Clone)]
pub struct Call {
    /// Path and query.
    pub uri: Uri,
    /// Headers.
    pub headers: HeaderMap,
    /// The body; null when it was no JSON.
    pub body: Value,
}

/// Counters since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Connections accepted.
    pub connections: u64,
    /// Model requests.
    pub requests: u64,
    /// Of these, how many asked for a stream.
    pub streamed: u64,
    /// Being answered now.
    pub concurrent: u64,
    /// The most at once.
    pub max_concurrent: u64,
    /// Answered to the end.
    pub ok: u64,
    /// Answered with an error status.
    pub errors: u64,
    /// Cut as the script asked.
    pub dropped: u64,
    /// The client left before the end.
    pub client_gone: u64,
    /// Requests with a sequence number.
    pub seq_seen: u64,
    /// Of these, how many came after a higher number of the same key.
    pub seq_out_of_order: u64,
    /// Of these, how many came while another of the same key was being answered.
    pub seq_overlap: u64,
}

#[derive(Debug, Default)]
struct Sequence {
    last: i64,
    running: u32,
}

#[derive(Debug, Default)]
struct Kept {
    calls: VecDeque<(Uri, HeaderMap, Bytes)>,
    bytes: usize,
}

/// The books of one server.
#[derive(Debug, Default)]
pub(super) struct Books {
    connections: AtomicU64,
    requests: AtomicU64,
    streamed: AtomicU64,
    concurrent: AtomicU64,
    max_concurrent: AtomicU64,
    ends: [AtomicU64; 4],
    seq_seen: AtomicU64,
    seq_out_of_order: AtomicU64,
    seq_overlap: AtomicU64,
    sequences: Mutex<HashMap<String, Sequence>>,
    kept: Mutex<Kept>,
}

/// How an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Ok = 0,
    Error = 1,
    Dropped = 2,
    ClientGone = 3,
}

/// Lives as long as one answer does, and enters its end when dropped.
#[derive(Debug)]
pub(super) struct Ticket {
    books: Arc<Books>,
    /// Serial number, from 1.
    pub(super) number: u64,
    /// How it ends, should nothing more happen.
    pub(super) end: End,
    sequence: Option<String>,
}

/// A panicked test thread leaves plain counters behind, which are fine to read.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

// === impl Books ===

impl Books {
    /// Opens the books for one request.
    pub(super) fn open(self: &Arc<Self>) -> Ticket {
        let number = self.requests.fetch_add(1, Relaxed) + 1;
        let concurrent = self.concurrent.fetch_add(1, Relaxed) + 1;
        self.max_concurrent.fetch_max(concurrent, Relaxed);
        Ticket { books: self.clone(), number, end: End::ClientGone, sequence: None }
    }

    pub(super) fn saw_connection(&self) {
        self.connections.fetch_add(1, Relaxed);
    }

    pub(super) fn saw_stream(&self) {
        self.streamed.fetch_add(1, Relaxed);
    }

    pub(super) fn keep(&self, uri: Uri, headers: HeaderMap, body: Bytes) {
        let mut kept = locked(&self.kept);
        kept.bytes += body.len();
        kept.calls.push_back((uri, headers, body));
        while kept.calls.len() > CALLS_MAX || kept.bytes > CALL_BYTES_MAX {
            let oldest = kept.calls.pop_front().map_or(0, |(_, _, body)| body.len());
            kept.bytes -= oldest;
        }
    }

    pub(super) fn calls(&self) -> Vec<Call> {
        let calls: Vec<_> = locked(&self.kept).calls.iter().cloned().collect();
        let read = |(uri, headers, body): (Uri, HeaderMap, Bytes)| Call {
            uri,
            headers,
            body: serde_json::from_slice(&body).unwrap_or(Value::Null),
        };
        calls.into_iter().map(read).collect()
    }

    pub(super) fn stats(&self) -> Stats {
        let ended = |end: End| self.ends[end as usize].load(Relaxed);
        Stats {
            connections: self.connections.load(Relaxed),
            requests: self.requests.load(Relaxed),
            streamed: self.streamed.load(Relaxed),
            concurrent: self.concurrent.load(Relaxed),
            max_concurrent: self.max_concurrent.load(Relaxed),
            ok: ended(End::Ok),
            errors: ended(End::Error),
            dropped: ended(End::Dropped),
            client_gone: ended(End::ClientGone),
            seq_seen: self.seq_seen.load(Relaxed),
            seq_out_of_order: self.seq_out_of_order.load(Relaxed),
            seq_overlap: self.seq_overlap.load(Relaxed),
        }
    }
}

// === impl Ticket ===

impl Ticket {
    /// Enters this request as number `number` of `key`.
    pub(super) fn sequence(&mut self, key: String, number: i64) {
        let books = &self.books;
        books.seq_seen.fetch_add(1, Relaxed);
        let mut sequences = locked(&books.sequences);
        let sequence = sequences.entry(key.clone()).or_default();
        if number < sequence.last {
            books.seq_out_of_order.fetch_add(1, Relaxed);
        }
        if sequence.running > 0 {
            books.seq_overlap.fetch_add(1, Relaxed);
        }
        sequence.last = sequence.last.max(number);
        sequence.running += 1;
        drop(sequences);
        self.sequence = Some(key);
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if let Some(key) = &self.sequence
            && let Some(sequence) = locked(&self.books.sequences).get_mut(key)
        {
            sequence.running -= 1;
        }
        self.books.ends[self.end as usize].fetch_add(1, Relaxed);
        self.books.concurrent.fetch_sub(1, Relaxed);
    }
}
