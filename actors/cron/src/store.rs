//! The files: `cron/jobs.json` and `cron/action.jsonl` of a workspace, under the lock `cron.lock`. All functions block.
//!
//! A damaged `jobs.json` is set aside as `jobs.json.corrupt-<seconds>`, never overwritten, and by the gateway alone. No part of the way is followed
//! where it is a link, since tools may write in the workspace.

use std::io;
use std::path::{Path, PathBuf};

use domain::cron::file::{self, Action, BYTES_MAX, File, JOBS_MAX};
use supervision::ports::{Disk, DiskFile, Open, Ports, Stat};

use crate::inside;

const DIRECTORY: &str = "cron";
const JOBS: &str = "cron/jobs.json";
const NEW: &str = "cron/jobs.json.new";
const ACTIONS: &str = "cron/action.jsonl";
const LOCK: &str = "cron.lock";

/// The jobs of one workspace.
#[derive(Debug, Clone)]
pub struct Store {
    workspace: PathBuf,
}

/// The files as they were when they were read or written last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Seen {
    jobs: Option<Stat>,
    actions: Option<Stat>,
}

/// What a look at the files gave.
#[derive(Debug, Clone, PartialEq)]
pub enum Read {
    /// They are as they were.
    Unchanged,
    /// Another process has the lock.
    Locked,
    /// The jobs, and what others want done.
    Files(Box<Found>),
    /// The file is damaged.
    Damaged(String),
}

/// What becomes of a damaged file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnDamage {
    /// It gets another name.
    SetAside,
    /// It stays as it is.
    Leave,
}

/// What the files say.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// None when there is no file.
    pub file: Option<File>,
    /// What others want done, in order.
    pub actions: Vec<Action>,
    /// Where no file is: the one that was set aside last.
    pub aside: Option<String>,
    /// Lines of `action.jsonl` that say nothing usable.
    pub bad: usize,
    /// How the files are.
    pub seen: Seen,
}

/// What became of a save.
#[derive(Debug, Clone, PartialEq)]
pub enum Saved {
    /// It is on the device, and `action.jsonl` is empty.
    Done(Seen),
    /// The files are not as they were: nothing was written.
    Changed,
    /// Another process has the lock.
    Locked,
}

// === impl Store ===

impl Store {
    /// That of a workspace.
    pub fn new(workspace: PathBuf) -> Self {
        Self { workspace }
    }

    fn seen(&self, disk: &dyn Disk) -> io::Result<Seen> {
        let stat = |path: &str| match disk.stat(&self.workspace.join(path)) {
            Ok(stat) => Ok(Some(stat)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        };
        Ok(Seen { jobs: stat(JOBS)?, actions: stat(ACTIONS)? })
    }

    /// Reads the files unless they are as they were.
    pub fn read(&self, ports: &Ports, before: Option<Seen>, damage: OnDamage) -> io::Result<Read> {
        let disk = &*ports.disk;
        let seen = self.seen(disk)?;
        if before == Some(seen) {
            return Ok(Read::Unchanged);
        }
        if seen == Seen::default() {
            let aside = self.aside(disk)?;
            return Ok(Read::Files(Box::new(Found { file: None, aside, actions: Vec::new(), bad: 0, seen })));
        }
        let Some(_lock) = disk.try_lock(&self.workspace.join(LOCK))? else { return Ok(Read::Locked) };
        let seen = self.seen(disk)?;
        let file = match self.whole(disk, JOBS)? {
            None => None,
            Some(bytes) => match File::decode(&bytes) {
                Ok(file) => Some(file),
                Err(bad) if damage == OnDamage::SetAside => {
                    return self.set_aside(ports, &bad.to_string()).map(Read::Damaged);
                }
                Err(bad) => {
                    let path = self.workspace.join(JOBS);
                    return Ok(Read::Damaged(format!("{} is damaged ({bad}); it is left as it is", path.display())));
                }
            },
        };
        let count = file.as_ref().map_or(0, |file| file.jobs.len());
        if count > JOBS_MAX {
            return Err(io::Error::other(format!("{JOBS} has {count} jobs; at most {JOBS_MAX} are followed")));
        }
        let aside = if file.is_none() { self.aside(disk)? } else { None };
        let (actions, bad) = file::actions(&self.whole(disk, ACTIONS)?.unwrap_or_default());
        Ok(Read::Files(Box::new(Found { file, aside, actions, bad, seen })))
    }

    fn whole(&self, disk: &dyn Disk, path: &str) -> io::Result<Option<Vec<u8>>> {
        inside::read(disk, &self.workspace, Path::new(path), BYTES_MAX)
    }

    fn aside(&self, disk: &dyn Disk) -> io::Result<Option<String>> {
        let paths = match disk.list(&self.workspace.join(DIRECTORY)) {
            Ok(paths) => paths,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut names = paths.iter().filter_map(|path| path.file_name()?.to_str());
        let last = names.rfind(|name| name.starts_with("jobs.json.corrupt-"));
        Ok(last.map(|name| format!("{DIRECTORY}/{name}")))
    }

    fn set_aside(&self, ports: &Ports, why: &str) -> io::Result<String> {
        let from = self.workspace.join(JOBS);
        let seconds = ports.clock.wall_ms() / 1000;
        for again in 0..1000 {
            let name = format!("{JOBS}.corrupt-{}", seconds + again);
            match ports.disk.rename_new(&from, &self.workspace.join(&name)) {
                Ok(()) => {
                    ports.disk.sync_dir(&self.workspace.join(DIRECTORY))?;
                    return Ok(format!("{} is damaged ({why}); it is kept as {name}", from.display()));
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::Error::other(format!("{} is damaged ({why}), and no name is free to keep it", from.display())))
    }

    /// Writes the jobs if the files are as they were, and empties `action.jsonl`, which they have in them.
    pub fn save(&self, ports: &Ports, file: &File, before: Seen) -> io::Result<Saved> {
        let disk = &*ports.disk;
        let directory = self.workspace.join(DIRECTORY);
        disk.create_dir_all(&directory)?;
        let Some(_lock) = disk.try_lock(&self.workspace.join(LOCK))? else { return Ok(Saved::Locked) };
        if self.seen(disk)? != before {
            return Ok(Saved::Changed);
        }
        let bytes = file.encode();
        if bytes.len() as u64 > BYTES_MAX {
            let length = bytes.len();
            return Err(io::Error::other(format!(
                "{JOBS} would have {length} bytes; at most {BYTES_MAX} are read again"
            )));
        }
        let new = disk.open_inside(&self.workspace, Path::new(NEW), Open::Create)?;
        write(&*new, &bytes)?;
        disk.rename(&self.workspace.join(NEW), &self.workspace.join(JOBS))?;
        disk.sync_dir(&directory)?;
        if before.actions.is_some_and(|actions| actions.length > 0) {
            let actions = disk.open_inside(&self.workspace, Path::new(ACTIONS), Open::Write)?;
            actions.set_length(0)?;
            actions.sync_data()?;
        }
        self.seen(disk).map(Saved::Done)
    }
}

fn write(file: &dyn DiskFile, bytes: &[u8]) -> io::Result<()> {
    file.set_length(0)?;
    file.write_at(bytes, 0)?;
    file.sync_data()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use supervision::memory::{Fault, PowerCutDisk, TestClock, memory_ports};

    use super::*;

    fn world() -> (Arc<PowerCutDisk>, Ports, Store) {
        let disk = PowerCutDisk::new();
        disk.create_dir_all(Path::new("/w/cron")).unwrap();
        let ports = memory_ports(Arc::clone(&disk), TestClock::new(), 1);
        (disk, ports, Store::new("/w".into()))
    }

    fn put(disk: &PowerCutDisk, path: &str, text: &str) {
        let file = disk.open(&Path::new("/w").join(path), Open::Create).unwrap();
        write(&*file, text.as_bytes()).unwrap();
    }

    fn text(disk: &PowerCutDisk, path: &str) -> String {
        String::from_utf8(disk.read(&Path::new("/w").join(path)).unwrap()).unwrap()
    }

    fn job(id: &str) -> String {
        format!(r#"{{"id":"{id}","name":"n","schedule":{{"kind":"at"}},"payload":{{"sessionKey":"cli:x"}}}}"#)
    }

    fn seen(read: Read) -> (Option<usize>, usize, usize, Seen) {
        match read {
            Read::Files(found) => (found.file.map(|file| file.jobs.len()), found.actions.len(), found.bad, found.seen),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_is_read_is_written_back_and_a_change_between_is_noticed() {
        let (disk, ports, store) = world();
        let (file, _, _, none) = seen(store.read(&ports, None, OnDamage::SetAside).unwrap());
        assert_eq!((file, store.read(&ports, Some(none), OnDamage::SetAside).unwrap()), (None, Read::Unchanged));
        put(&disk, "cron/jobs.json", &format!(r#"{{"jobs":[{}]}}"#, job("a")));
        put(&disk, "cron/action.jsonl", &format!("{{\"action\":\"add\",\"params\":{}}}\nbad\n", job("b")));
        let (jobs, actions, bad, before) = seen(store.read(&ports, Some(none), OnDamage::SetAside).unwrap());
        assert_eq!((jobs, actions, bad), (Some(1), 1, 1));
        assert_eq!(store.save(&ports, &File::default(), none).unwrap(), Saved::Changed);
        assert!(text(&disk, "cron/jobs.json").contains("\"a\""));
        let Saved::Done(after) = store.save(&ports, &File::default(), before).unwrap() else { panic!() };
        assert_eq!(text(&disk, "cron/jobs.json"), "{\n  \"version\": 1,\n  \"jobs\": []\n}");
        assert_eq!(text(&disk, "cron/action.jsonl"), "");
        assert_eq!(store.read(&ports, Some(after), OnDamage::SetAside).unwrap(), Read::Unchanged);
    }

    #[test]
    fn a_damaged_file_is_kept_under_another_name() {
        let (disk, ports, store) = world();
        for round in 0..2 {
            put(&disk, "cron/jobs.json", &format!("{{ damage {round}"));
            let Read::Damaged(why) = store.read(&ports, None, OnDamage::Leave).unwrap() else { panic!() };
            assert!(why.ends_with("; it is left as it is"), "{why}");
            assert_eq!(text(&disk, "cron/jobs.json"), format!("{{ damage {round}"));
            let Read::Damaged(why) = store.read(&ports, None, OnDamage::SetAside).unwrap() else { panic!() };
            assert!(why.starts_with("/w/cron/jobs.json is damaged (key must be a string"), "{why}");
            assert!(why.contains(&format!("cron/jobs.json.corrupt-{}", 1_767_225_600 + round)), "{why}");
            assert_eq!(
                text(&disk, &format!("cron/jobs.json.corrupt-{}", 1_767_225_600 + round)),
                format!("{{ damage {round}")
            );
        }
        let Read::Files(found) = store.read(&ports, None, OnDamage::SetAside).unwrap() else { panic!() };
        let last = format!("cron/jobs.json.corrupt-{}", 1_767_225_601);
        assert_eq!((found.file, found.aside), (None, Some(last)), "it is not forgotten");
    }

    #[test]
    fn a_file_that_is_too_large_is_neither_followed_nor_written() {
        let (disk, ports, store) = world();
        let jobs = |count: usize| (0..count).map(|n| job(&format!("{n}"))).collect::<Vec<_>>().join(",");
        put(&disk, "cron/jobs.json", &format!(r#"{{"jobs":[{}]}}"#, jobs(JOBS_MAX + 1)));
        let error = store.read(&ports, None, OnDamage::SetAside).unwrap_err();
        assert_eq!(error.to_string(), "cron/jobs.json has 10001 jobs; at most 10000 are followed");
        put(&disk, "cron/jobs.json", &format!(r#"{{"jobs":[{}]}}"#, jobs(JOBS_MAX)));
        let Read::Files(found) = store.read(&ports, None, OnDamage::SetAside).unwrap() else { panic!() };
        let mut file = found.file.unwrap();
        assert_eq!(file.jobs.len(), JOBS_MAX);
        for job in &mut file.jobs {
            job.payload.message = "x".repeat(2000);
        }
        let error = store.save(&ports, &file, found.seen).unwrap_err();
        assert!(error.to_string().ends_with("at most 16777216 are read again"), "{error}");
    }

    #[test]
    fn a_save_that_fails_or_is_cut_leaves_the_file_that_was_there() {
        let (disk, ports, store) = world();
        let text_of = |id: &str| format!(r#"{{"jobs":[{}]}}"#, job(id));
        put(&disk, "cron/jobs.json", &text_of("a"));
        disk.sync_fs(Path::new("/w")).unwrap();
        let (.., before) = seen(store.read(&ports, None, OnDamage::SetAside).unwrap());
        let new = File::decode(text_of("b").as_bytes()).unwrap();
        for fault in [Fault::WriteEnospc, Fault::SyncEio] {
            disk.fail_next(fault);
            assert!(store.save(&ports, &new, before).is_err());
            assert_eq!(text(&disk, "cron/jobs.json"), text_of("a"));
        }
        let Saved::Done(_) = store.save(&ports, &new, before).unwrap() else { panic!() };
        for seed in 0..20 {
            let cut = disk.cut(seed);
            let bytes = cut.read(Path::new("/w/cron/jobs.json")).unwrap();
            assert_eq!(File::decode(&bytes).unwrap(), new, "what was saved is on the device");
        }
    }

    #[test]
    fn another_process_is_not_disturbed() {
        let home = testkit::workspace::TempWorkspace::new();
        let ports = supervision::real::real_ports(1).unwrap();
        let workspace = home.home().join("workspace");
        ports.disk.create_dir_all(&workspace.join("cron")).unwrap();
        std::fs::write(workspace.join(JOBS), r#"{"jobs":[]}"#).unwrap();
        let store = Store::new(workspace.clone());
        let lock = ports.disk.try_lock(&workspace.join(LOCK)).unwrap();
        assert!(lock.is_some());
        assert_eq!(store.read(&ports, None, OnDamage::SetAside).unwrap(), Read::Locked);
        assert_eq!(store.save(&ports, &File::default(), Seen::default()).unwrap(), Saved::Locked);
        drop(lock);
        let (.., seen) = seen(store.read(&ports, None, OnDamage::SetAside).unwrap());
        assert!(matches!(store.save(&ports, &File::default(), seen).unwrap(), Saved::Done(_)));
    }
}
