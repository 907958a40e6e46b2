//! What the operating system says of this process; set when metrics are printed. The names are the ones that every
//! Prometheus client uses, without our prefix.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use std::sync::atomic::AtomicU64;

/// What the operating system says of this process.
#[derive(Debug, Clone, Default)]
pub struct ProcessMetrics {
    /// Bytes of memory in use.
    pub resident_memory_bytes: Gauge,
    /// Bytes of address space.
    pub virtual_memory_bytes: Gauge,
    /// Open files.
    pub open_fds: Gauge,
    /// How many files may be open.
    pub max_fds: Gauge,
    /// Threads.
    pub threads: Gauge,
    /// Time on a processor.
    pub cpu_seconds: Counter<f64, AtomicU64>,
    /// When it began, seconds since 1970.
    pub start_time_seconds: Gauge<f64, AtomicU64>,
}

impl ProcessMetrics {
    pub(super) fn register(&self, to: &mut Registry) {
        to.register("process_resident_memory_bytes", "Resident memory", self.resident_memory_bytes.clone());
        to.register("process_virtual_memory_bytes", "Address space", self.virtual_memory_bytes.clone());
        to.register("process_open_fds", "Open files", self.open_fds.clone());
        to.register("process_max_fds", "Limit of open files", self.max_fds.clone());
        to.register("process_threads", "Threads", self.threads.clone());
        to.register("process_cpu_seconds", "Time on a processor", self.cpu_seconds.clone());
        to.register("process_start_time_seconds", "When the process began", self.start_time_seconds.clone());
    }
}
