//! Words that several commands share.

use std::time::Duration;

/// A length of time in at most eight characters.
pub fn span(ms: u64) -> String {
    match ms {
        0..10_000 => format!("{}.{} s", ms / 1_000, ms % 1_000 / 100),
        10_000..600_000 => format!("{} s", ms / 1_000),
        600_000..36_000_000 => format!("{} min", ms / 60_000),
        36_000_000..864_000_000 => format!("{} h", ms / 3_600_000),
        _ => format!("{} d", ms / 86_400_000),
    }
}

/// A short time, as of one sync.
pub fn latency(time: Duration) -> String {
    let us = time.as_secs_f64() * 1e6;
    if us < 1_000.0 { format!("{us:.1} µs") } else { format!("{:.1} ms", us / 1_000.0) }
}

/// A number of bytes, as people read it.
pub fn size(bytes: u64) -> String {
    const MIB: u64 = 1024 * 1024;
    const GIB: u64 = 1024 * MIB;
    match bytes {
        0..MIB => format!("{} KiB", bytes / 1024),
        MIB..GIB => format!("{} MiB", bytes / MIB),
        _ => format!("{}.{} GiB", bytes / GIB, bytes % GIB * 10 / GIB),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_and_sizes_are_readable() {
        let spans = [0, 5_250, 61_000, 3_600_000, 90_000_000, 900_000_000].map(span);
        assert_eq!(spans, ["0.0 s", "5.2 s", "61 s", "60 min", "25 h", "10 d"]);
        let latencies = [0, 648, 250_000, 5_240_000].map(|ns| latency(Duration::from_nanos(ns)));
        assert_eq!(latencies, ["0.0 µs", "0.6 µs", "250.0 µs", "5.2 ms"]);
        let sizes = [0, 2048, 64 << 20, (3 << 30) + (512 << 20)].map(size);
        assert_eq!(sizes, ["0 KiB", "2 KiB", "64 MiB", "3.5 GiB"]);
    }
}
