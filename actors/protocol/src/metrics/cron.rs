//! Counters of jobs that are due at times.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::ByResult;

/// What becomes of jobs.
#[derive(Debug, Clone, Default)]
pub struct CronMetrics {
    /// Jobs in the file.
    pub jobs: Gauge,
    /// Runs whose end is not known.
    pub running: Gauge,
    /// Moments that were handed over (`accepted`, `refused`) or not used (`skipped`), and ends of runs (`ok`, `error`).
    pub runs: Family<ByResult, Counter>,
    /// Attempts to save the file that failed.
    pub unsaved: Counter,
}

impl CronMetrics {
    pub(super) fn register(&self, to: &mut Registry) {
        to.register("cron_jobs", "Jobs in the file", self.jobs.clone());
        to.register("cron_running", "Runs of jobs whose end is not known", self.running.clone());
        to.register("cron_runs", "Moments that were due, and ends of runs", self.runs.clone());
        to.register("cron_unsaved", "Attempts to save the jobs that failed", self.unsaved.clone());
    }
}
