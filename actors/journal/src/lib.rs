//! The durable truth of one process: a write-ahead log with admission, order and dedupe.
