//! Jobs that are due at times: when, what they say, and what becomes of them.
//!
//! A job is due at moments that its [`Schedule`] names ([`Timing`] finds them). At each one the text of the job is handed
//! to its session as a message that no person said. The [`Scheduler`] decides which moments are used, [`mod@file`] reads and
//! writes `cron/jobs.json`.
//!
//! # Clocks that are put forward and back
//!
//! * A pattern whose hour field begins with `*` means equal steps of time. It goes on through both: `0 * * * *` runs once
//!   per hour that passes, and nothing is made up for wall times that a clock put forward skips.
//! * A pattern that names hours means times of day. A time that comes twice when the clock is put back is used the first
//!   time only. Times that the clock skips when it is put forward are due at the moment at which it skips them, all of
//!   them together once: `30 2 * * *` in Berlin runs at 03:00 summer time on that day.
//! * A single time (`at`) without an offset is read by the same two rules.
//! * `every` counts time that passes and knows no zone.
//!
//! # Times that were missed
//!
//! What was due while no gateway ran, or while the clock jumped ahead, is missed: [`Missed`] says what becomes of it.
//! No moment is used twice: a clock that is put back waits until it is past the last one that was used.
//!
//! **Source:** `nanobot/cron` 0.3.5 (file, kinds, missed runs, histories of 20), `croniter` (fields of patterns).

pub mod file;
pub mod job;
pub mod pattern;
pub mod schedule;
pub mod scheduler;
pub mod time;

pub use job::{Job, JobId, Missed, Payload, RunRecord, RunStatus, State};
pub use schedule::{BadSchedule, Schedule, Timing, Zones};
pub use scheduler::Scheduler;
