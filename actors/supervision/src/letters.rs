//! The events of turns of which something was given up, the turn itself or a delivery, kept beside the log and outside
//! its rotation.
//!
//! `<logs>/letters/<turn id>.jsonl` holds the lines of the supervision log that name the turn, oldest first, as they
//! were each time that something of it was given up; at most [`LETTER_BYTES_MAX`] bytes, the newest ones. The newest [`LETTERS_MAX`] files stay.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use domain::ids::TurnId;

use crate::log::file_number;
use crate::ports::{Disk, Open};

/// Bytes of one file.
pub const LETTER_BYTES_MAX: usize = 256 << 10;
/// Files that are kept: as many as there may be dead letters.
pub const LETTERS_MAX: usize = 10_000;

fn directory(logs: &Path) -> PathBuf {
    logs.join("letters")
}

fn path(logs: &Path, turn: TurnId) -> PathBuf {
    directory(logs).join(format!("{turn}.jsonl"))
}

/// The files of the log, oldest first.
fn log_files(disk: &dyn Disk, logs: &Path) -> io::Result<Vec<PathBuf>> {
    let number = |path: PathBuf| Some((file_number(path.file_name()?.to_str()?)?, path));
    let mut files: Vec<_> = disk.list(logs)?.into_iter().filter_map(number).collect();
    files.sort_by_key(|(number, _)| std::cmp::Reverse(*number));
    Ok(files.into_iter().map(|(_, path)| path).collect())
}

/// Copies what the log in `logs` says of `turns`. Reads the whole log once: for few turns at a time. Blocks.
pub fn keep(disk: &dyn Disk, logs: &Path, turns: &[TurnId]) -> io::Result<()> {
    // What was kept before may have left the log since then.
    let mut found = BTreeMap::new();
    for turn in turns {
        found.insert(*turn, read(disk, logs, *turn)?);
    }
    for file in log_files(disk, logs)? {
        let bytes = match disk.read(&file) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        for line in bytes.split(|byte| *byte == b'\n') {
            let Ok(line) = std::str::from_utf8(line) else { continue };
            for (turn, lines) in &mut found {
                let names_it = line.contains(&format!("\"turn\":\"{turn}\""));
                if names_it && !lines.iter().any(|kept| kept == line) {
                    lines.push(line.to_owned());
                }
            }
        }
    }
    disk.create_dir_all(&directory(logs))?;
    for (turn, lines) in found {
        let text: String = lines.into_iter().map(|line| line + "\n").collect();
        let file = disk.open(&path(logs, turn), Open::Create)?;
        file.set_length(0)?;
        file.write_at(newest(text.as_bytes()), 0)?;
    }
    let kept = disk.list(&directory(logs))?;
    // Names begin with the time: the first are the oldest.
    let surplus = kept.len().saturating_sub(LETTERS_MAX);
    kept.iter().take(surplus).try_for_each(|old| disk.remove(old))
}

/// The last whole lines that are not too many.
fn newest(lines: &[u8]) -> &[u8] {
    let Some(from) = lines.len().checked_sub(LETTER_BYTES_MAX) else { return lines };
    let rest = lines.get(from..).unwrap_or_default();
    let begin = rest.iter().position(|byte| *byte == b'\n').map_or(rest.len(), |end| end + 1);
    rest.get(begin..).unwrap_or_default()
}

/// The lines that were kept of a turn, oldest first; none when it has no file. Blocks.
pub fn read(disk: &dyn Disk, logs: &Path, turn: TurnId) -> io::Result<Vec<String>> {
    match disk.read(&path(logs, turn)) {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).lines().map(str::to_owned).collect()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use protocol::supervision::{ActorPath, Event, EventName, Kind, SupervisionLog};
    use uuid::Uuid;

    use super::*;
    use crate::log::{LogOptions, LogWriter};
    use crate::memory::{PowerCutDisk, TestClock, memory_ports};

    fn event(name: EventName, turn: u128) -> Event {
        let mut event = Event::new(name, ActorPath("/registry/0/session/a".into()), Kind::Session);
        event.turn = Some(TurnId(Uuid::from_u128(turn)));
        event.reason = Some("x".repeat(200));
        event
    }

    #[test]
    fn the_events_of_a_dead_turn_outlive_the_rotation() {
        let disk = PowerCutDisk::new();
        let ports = memory_ports(disk.clone(), TestClock::new(), 1);
        let options = LogOptions { file_bytes: 2000, files: 3, ..LogOptions::new("/logs".into()) };
        let log = LogWriter::start(options, &ports).unwrap();
        for name in [EventName::Restarted, EventName::Restarted, EventName::DeadLettered] {
            log.record(event(EventName::Restarted, 2));
            log.record(event(name, 1));
        }
        log.flush();
        for _ in 0..100 {
            log.record(event(EventName::Restarted, 3));
            log.flush();
        }
        log.close();
        let kept = |turn| read(&*disk, Path::new("/logs"), TurnId(Uuid::from_u128(turn))).unwrap();
        let names: Vec<_> = kept(1).iter().map(|line| serde_json::from_str::<Event>(line).unwrap().event).collect();
        assert_eq!(names, [EventName::Restarted, EventName::Restarted, EventName::DeadLettered]);
        assert!(kept(2).is_empty());
    }

    #[test]
    fn each_delivery_that_is_given_up_adds_its_events_to_those_of_the_turn() {
        let disk = PowerCutDisk::new();
        let ports = memory_ports(disk.clone(), TestClock::new(), 1);
        let options = LogOptions { file_bytes: 2000, files: 3, ..LogOptions::new("/logs".into()) };
        let log = LogWriter::start(options, &ports).unwrap();
        let told = [EventName::DeliveryRepeated, EventName::Undeliverable];
        for _ in 0..2 {
            for name in told {
                log.record(event(name, 1));
            }
            // The log forgets the first one before the second is given up.
            for _ in 0..100 {
                log.record(event(EventName::Restarted, 3));
                log.flush();
            }
        }
        log.close();
        let lines = read(&*disk, Path::new("/logs"), TurnId(Uuid::from_u128(1))).unwrap();
        let names: Vec<_> = lines.iter().map(|line| serde_json::from_str::<Event>(line).unwrap().event).collect();
        assert_eq!(names, [told, told].concat());
    }

    #[test]
    fn a_file_is_bounded_and_keeps_the_newest_lines() {
        let lines = b"0123456789\n".repeat(LETTER_BYTES_MAX / 10);
        let kept = newest(&lines);
        assert!(kept.len() <= LETTER_BYTES_MAX && kept.len() > LETTER_BYTES_MAX - 12);
        assert!(kept.starts_with(b"0123456789\n") && kept.ends_with(b"9\n"));
    }
}
