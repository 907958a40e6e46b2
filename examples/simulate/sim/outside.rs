//! The outside world of one process: disk, clock, ids, pool, log. Each lets an actor panic, or the process die.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use channel::hub::{Shown, Sink};
use protocol::supervision::{Event, EventName, SupervisionLog};
use supervision::memory::SeededIds;
use supervision::panic::catch;
use supervision::planted::acting;
use supervision::ports::{Clock, Disk, DiskFile, Ids, Offload, Open, Ports, Stat};
use uuid::Uuid;

use super::dice::Stream;
use super::plan::{How, Manner};
use super::process::Process;
use super::telling::{tell, tell_turn};

/// How long the pool takes for what takes long, in milliseconds.
const SLOW_MS: u64 = 8_000;

/// The ports of a process.
pub fn ports(process: &Arc<Process>) -> Ports {
    let seed = super::dice::Dice::new(process.world.seed, Stream::Ids(process.number)).bits();
    Ports {
        disk: Arc::new(SimDisk(process.clone())),
        clock: Arc::new(SimClock(process.clone())),
        ids: Arc::new(SimIds(process.clone(), SeededIds::new(seed))),
        offload: Arc::new(SimPool(process.clone())),
    }
}

/// The clock of a process.
pub struct SimClock(pub Arc<Process>);

impl Clock for SimClock {
    fn mono(&self) -> Duration {
        self.0.touch();
        self.0.mono()
    }

    fn wall_us(&self) -> u64 {
        self.0.touch();
        self.0.wall_us()
    }
}

struct SimIds(Arc<Process>, SeededIds);

impl Ids for SimIds {
    fn uuid_v7(&self) -> Uuid {
        self.0.touch();
        self.1.uuid_v7()
    }

    fn random(&self) -> u64 {
        self.0.touch();
        self.1.random()
    }
}

/// Runs work at once, soon, later, or much later. Work of actors is never done inside of them.
struct SimPool(Arc<Process>);

impl Offload for SimPool {
    fn run(&self, job: Box<dyn FnOnce() + Send>) {
        let process = self.0.clone();
        if !process.is_alive() {
            return;
        }
        let rates = process.world.plan.rates;
        if acting().is_none() && process.pool.often(rates.at_once) {
            return work(&process, job);
        }
        let slow = process.goes_wrong(&process.pool, rates.slow);
        let delay_ms = process.pool.below(if slow { SLOW_MS } else { rates.delay_ms } + 1);
        tokio::task::spawn_local(async move {
            if delay_ms > 0 {
                tokio::time::sleep(Duration::from_millis(delay_ms)).await;
            }
            if process.is_alive() {
                work(&process, job);
            }
        });
    }
}

fn work(process: &Process, job: Box<dyn FnOnce() + Send>) {
    if let Err(caught) = catch(job) {
        process.note(|books| {
            books.wrong(format!("a piece of work panicked: {} at {}", caught.full, caught.at));
            "a piece of work panicked".to_owned()
        });
    }
}

struct SimDisk(Arc<Process>);

struct SimFile(Arc<Process>, Box<dyn DiskFile>);

/// Makes a change, unless the process dies at it.
fn change<T>(process: &Process, act: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    match process.change() {
        None => act(),
        Some(How::Power) => {
            process.disk.power_off_at(process.disk.operations() + 1);
            let done = act();
            process.die(How::Power);
            done
        }
        Some(How::Kill) => {
            process.die(How::Kill);
            act()
        }
    }
}

impl Disk for SimDisk {
    fn open(&self, path: &Path, how: Open) -> io::Result<Box<dyn DiskFile>> {
        let open = || self.0.disk.open(path, how);
        let file = match how {
            Open::Read | Open::Write => open(),
            Open::Create | Open::CreateNew => change(&self.0, open),
        };
        Ok(Box::new(SimFile(self.0.clone(), file?)))
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.0.disk.create_dir_all(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        self.0.disk.list(path)
    }

    fn stat(&self, path: &Path) -> io::Result<Stat> {
        self.0.disk.stat(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        change(&self.0, || self.0.disk.rename(from, to))
    }

    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()> {
        change(&self.0, || self.0.disk.rename_new(from, to))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        change(&self.0, || self.0.disk.remove(path))
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        change(&self.0, || self.0.disk.sync_dir(path))
    }

    fn sync_fs(&self, path: &Path) -> io::Result<()> {
        change(&self.0, || self.0.disk.sync_fs(path))
    }

    fn free_bytes(&self, path: &Path) -> io::Result<u64> {
        self.0.disk.free_bytes(path)
    }
}

impl DiskFile for SimFile {
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        self.1.read_at(into, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        change(&self.0, || self.1.write_at(bytes, offset))
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        change(&self.0, || self.1.set_length(length))
    }

    fn opened(&self) -> Stat {
        self.1.opened()
    }

    fn stat(&self) -> io::Result<Stat> {
        self.1.stat()
    }

    fn sync_data(&self) -> io::Result<()> {
        change(&self.0, || self.1.sync_data())?;
        self.0.synced();
        Ok(())
    }
}

/// The supervision log.
pub struct SimLog(pub Arc<Process>, AtomicU64);

impl SimLog {
    /// An empty one.
    pub fn new(process: Arc<Process>) -> Arc<Self> {
        Arc::new(Self(process, AtomicU64::new(0)))
    }
}

impl SupervisionLog for SimLog {
    fn record(&self, event: Event) -> String {
        let now_ms = self.0.now_ms();
        self.0.note(|books| {
            books.event(&event, now_ms);
            if let Err(wrong) = books.jobs.event(&event, self.0.wall_ms()) {
                books.wrong(wrong);
            }
            tell(&event, books)
        });
        self.0.touch();
        format!("{}-{}", self.0.number, self.1.fetch_add(1, Ordering::SeqCst))
    }

    fn latest(&self, _: EventName) -> Option<String> {
        None
    }
}

/// Sees whatever the sessions show. Some messages are the end of whoever shows something of them.
pub struct Screen(pub Arc<Process>);

impl Sink for Screen {
    fn show(&self, shown: &Shown) {
        let process = &self.0;
        let event = &shown.event;
        let mut manner = Manner::Plain;
        process.note(|books| {
            books.shown(event);
            if let Some(turn) = books.turns.get(&event.turn).filter(|turn| turn.end.is_none()) {
                manner = process.world.plan.messages[turn.message].manner;
            }
            tell_turn(event, books)
        });
        if acting().is_none() || std::thread::panicking() {
            return;
        }
        match manner {
            Manner::Plain => {}
            Manner::Poison => panic!("a poisonous message"),
            Manner::Killer => process.die(How::Kill),
        }
        process.touch();
        if process.goes_wrong(&process.clients, process.world.plan.rates.screen) {
            panic!("a screen fails");
        }
    }
}

/// Looks away: holds a watch as a client does.
pub struct Quiet;

impl Sink for Quiet {
    fn show(&self, _: &Shown) {}
}
