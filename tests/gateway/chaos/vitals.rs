//! What a process takes from the system: file handles, threads, memory.

use std::time::Duration;

use crate::support::PATIENCE;

/// One look at a process (`/proc/<pid>`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Vitals {
    pub files: usize,
    pub threads: usize,
    pub rss_bytes: u64,
}

impl Vitals {
    pub fn of(pid: u32) -> Self {
        let files = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let number = |name: &str| -> u64 {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.split_whitespace().next().unwrap().parse().unwrap()
        };
        let threads = usize::try_from(number("Threads:")).unwrap();
        Self { files, threads, rss_bytes: number("VmRSS:") * 1024 }
    }
}

/// Looks until it is as it should be; panics with the last look when that does not come.
pub async fn until(pid: u32, what: &str, good: impl Fn(&Vitals) -> bool) -> Vitals {
    let mut last = Vitals::of(pid);
    let came = tokio::time::timeout(PATIENCE, async {
        while !good(&last) {
            tokio::time::sleep(Duration::from_millis(50)).await;
            last = Vitals::of(pid);
        }
    });
    assert!(came.await.is_ok(), "{what}: {last:?}");
    last
}

/// The most memory that a process has while `work` runs, in bytes.
pub async fn peak_rss<T>(pid: u32, work: impl Future<Output = T>) -> (T, u64) {
    let mut peak = Vitals::of(pid).rss_bytes;
    let mut work = std::pin::pin!(work);
    loop {
        tokio::select! {
            biased;
            done = &mut work => return (done, peak.max(Vitals::of(pid).rss_bytes)),
            () = tokio::time::sleep(Duration::from_millis(2)) => peak = peak.max(Vitals::of(pid).rss_bytes),
        }
    }
}

/// Bytes as people read them.
pub fn mib(bytes: u64) -> String {
    format!("{}.{} MiB", bytes >> 20, (bytes >> 10) % 1024 * 10 / 1024)
}
