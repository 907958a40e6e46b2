//! Which processes of a call are still there.
//!
//! A process belongs to a call when it is in the call's process group, or carries its marker in its environment or
//! command line: that also finds those that left the group, and the init process of a sandbox. Zombies do not count.

use std::path::Path;

use rustix::process::Pid;

/// All of them. Blocks.
pub(super) fn find(group: Pid, marker: &str) -> Vec<Pid> {
    let Ok(all) = std::fs::read_dir("/proc") else {
        return match rustix::process::test_kill_process_group(group) {
            Ok(()) => vec![group],
            Err(_) => Vec::new(),
        };
    };
    let group_number = group.as_raw_nonzero().get();
    let ids = all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    ids.filter(|id| belongs(*id, group_number, marker)).filter_map(Pid::from_raw).collect()
}

fn belongs(id: i32, group: i32, marker: &str) -> bool {
    let place = Path::new("/proc").join(id.to_string());
    // A process that ends meanwhile is no survivor.
    let Some((state, its_group)) = std::fs::read_to_string(place.join("stat")).ok().as_deref().and_then(state) else {
        return false;
    };
    if matches!(state, 'Z' | 'X') {
        return false;
    }
    let carries = |file: &str| {
        let bytes = std::fs::read(place.join(file)).unwrap_or_default();
        bytes.windows(marker.len()).any(|part| part == marker.as_bytes())
    };
    its_group == group || carries("environ") || carries("cmdline")
}

/// State and process group from the text of `/proc/<id>/stat`: `4711 (name) S 1 4711 ...`; the name may hold anything.
fn state(stat: &str) -> Option<(char, i32)> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    let group = fields.nth(1)?.parse().ok()?;
    Some((state, group))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_forge_the_fields() {
        assert_eq!(state("12 (sh) S 1 34 34 0 -1"), Some(('S', 34)));
        assert_eq!(state("12 (a) Z 9 9 9 (b) R 1 35 34 0 -1"), Some(('R', 35)));
        assert_eq!(state("12"), None);
        assert_eq!(state("12 (sh) S"), None);
    }
}
