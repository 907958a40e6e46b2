//! How much memory the machine, or the control group of this process, has, and how much of it this process uses.
//!
//! **Source of formats:** `proc(5)` (`/proc/self/status`, `/proc/meminfo`, `/proc/self/cgroup`), and `memory.max` of the
//! kernel's control group v2 documentation: a number of bytes, or `max`.

use std::path::{Path, PathBuf};

/// Resident bytes of this process; `None` where the kernel does not say.
pub fn resident_bytes() -> Option<u64> {
    kib_of(&std::fs::read_to_string("/proc/self/status").ok()?, "VmRSS:")
}

/// The least of the machine's memory and the limits of the control groups that this process is in.
pub fn limit_bytes() -> Option<u64> {
    let machine = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| kib_of(&text, "MemTotal:"));
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok().map(|text| group_files(&text)).unwrap_or_default();
    let limit = |file: PathBuf| std::fs::read_to_string(file).ok()?.trim().parse().ok();
    groups.into_iter().filter_map(limit).chain(machine).min()
}

/// The bytes of a line like `MemTotal:       16384 kB`.
fn kib_of(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// The `memory.max` files of the process's group and all above it.
fn group_files(text: &str) -> Vec<PathBuf> {
    let Some(group) = text.lines().find_map(|line| line.strip_prefix("0::/")) else { return Vec::new() };
    let root = Path::new("/sys/fs/cgroup");
    Path::new(group).ancestors().map(|group| root.join(group).join("memory.max")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_texts_are_read() {
        assert_eq!(kib_of("MemTotal:       16384 kB\nMemFree: 1 kB\n", "MemTotal:"), Some(16 << 20));
        assert_eq!(kib_of("Name:\tx\nVmRSS:\t    37 kB\n", "VmRSS:"), Some(37 << 10));
        assert_eq!(kib_of("nothing", "VmRSS:"), None);
        let files = group_files("1:name=x:/y\n0::/system.slice/green.service\n");
        let expect = [
            "/sys/fs/cgroup/system.slice/green.service/memory.max",
            "/sys/fs/cgroup/system.slice/memory.max",
            "/sys/fs/cgroup/memory.max",
        ];
        assert_eq!(files, expect.map(PathBuf::from));
        assert!(group_files("4:memory:/old\n").is_empty());
    }

    #[test]
    fn this_process_uses_less_than_there_is() {
        let (used, limit) = (resident_bytes().unwrap(), limit_bytes().unwrap());
        assert!(used > 100_000 && used < limit, "{used} of {limit}");
    }
}
