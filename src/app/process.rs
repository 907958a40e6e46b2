//! What the operating system says of this process.
//!
//! Source: `proc(5)`, the files `/proc/self/stat` and `/proc/self/status`, and the entries of `/proc/self/fd`. Where there
//! is no such file system the gauges stay at 0.

use std::sync::atomic::Ordering;
use std::time::Duration;

use protocol::metrics::{ProcessMetrics, gauge};

use super::limits::file_limit;

/// Ticks of the kernel's clock per second, as `/proc` shows times on Linux: fixed for all programs.
const TICKS_PER_SECOND: f64 = 100.0;

/// One reading.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Reading {
    resident_bytes: u64,
    virtual_bytes: u64,
    threads: u64,
    cpu_seconds: f64,
    /// Seconds after the machine began.
    started_seconds: f64,
}

/// Brings the gauges up to date; `now` is the wall clock since 1970.
pub fn show(metrics: &ProcessMetrics, now: Duration) {
    metrics.max_fds.set(gauge(file_limit()));
    if let Ok(files) = std::fs::read_dir("/proc/self/fd") {
        // One of them is the directory that is being read.
        metrics.open_fds.set(gauge(files.count().saturating_sub(1)));
    }
    let read = |name| std::fs::read_to_string(name).unwrap_or_default();
    let Some(reading) = parse(&read("/proc/self/stat"), &read("/proc/self/status")) else { return };
    metrics.resident_memory_bytes.set(gauge(reading.resident_bytes));
    metrics.virtual_memory_bytes.set(gauge(reading.virtual_bytes));
    metrics.threads.set(gauge(reading.threads));
    let shown = f64::from_bits(metrics.cpu_seconds.inner().load(Ordering::Relaxed));
    metrics.cpu_seconds.inc_by((reading.cpu_seconds - shown).max(0.0));
    let up = read("/proc/uptime").split_whitespace().next().and_then(|up| up.parse::<f64>().ok());
    if let Some(up) = up.filter(|_| metrics.start_time_seconds.get() == 0.0) {
        metrics.start_time_seconds.set(now.as_secs_f64() - (up - reading.started_seconds));
    }
}

/// Reads `stat` and `status`. The name of the program, in parentheses, may hold anything, so fields count from its end.
fn parse(stat: &str, status: &str) -> Option<Reading> {
    let (_, after_name) = stat.rsplit_once(')')?;
    // The first is field 3, the state.
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    let field = |number: usize| fields.get(number - 3)?.parse::<f64>().ok();
    let bytes = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib * 1024)
    };
    Some(Reading {
        resident_bytes: bytes("VmRSS:")?,
        virtual_bytes: bytes("VmSize:")?,
        threads: fields.get(17)?.parse().ok()?,
        cpu_seconds: (field(14)? + field(15)?) / TICKS_PER_SECOND,
        started_seconds: field(22)? / TICKS_PER_SECOND,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reading_survives_any_name_of_the_program() {
        let rest = "S 1 2 2 0 -1 4194560 9 0 0 0 150 50 0 0 20 0 7 0 12345 0 0 0";
        let status = "Name:\tx\nVmSize:\t   2048 kB\nVmRSS:\t    1024 kB\n";
        let expect = Reading {
            resident_bytes: 1 << 20,
            virtual_bytes: 2 << 20,
            threads: 7,
            cpu_seconds: 2.0,
            started_seconds: 123.45,
        };
        for name in ["greenroom", "a b", "x) R 1 (y", ""] {
            assert_eq!(parse(&format!("42 ({name}) {rest}"), status), Some(expect), "{name}");
        }
        for (stat, status) in [("", status), ("42 (x) S 1", status), (&*format!("42 (x) {rest}"), "")] {
            assert_eq!(parse(stat, status), None, "{stat:?} {status:?}");
        }
    }

    #[test]
    fn this_process_shows_what_it_is() {
        let metrics = ProcessMetrics::default();
        show(&metrics, Duration::from_secs(2_000_000_000));
        assert!(metrics.resident_memory_bytes.get() > 1 << 20);
        assert!(metrics.threads.get() >= 1);
        assert!(metrics.open_fds.get() >= 3, "{}", metrics.open_fds.get());
        assert!(metrics.max_fds.get() >= metrics.open_fds.get());
        let age = 2_000_000_000.0 - metrics.start_time_seconds.get();
        // The system counts hundredths of a second, so a process may be of no age yet.
        assert!((0.0..3_600.0).contains(&age), "{age}");
    }
}
