//! Reads the supervision log back: over rotated files, with filters, and following the file that grows.

mod events;
mod query;
mod search;
#[cfg(test)]
mod tests;

pub use events::Events;
pub use query::{BadQuery, Filter, Query, glob_matches};
pub use search::{Page, Search};
