//! A file system in memory whose power can be cut.
//!
//! Every file has its contents as programs see them, the contents that the device has, and the writes between the two.
//! `sync_data` moves a file's writes to the device, `sync_dir` the names of a directory, `sync_fs` everything.
//! [`PowerCutDisk::cut`] gives the disk that a machine finds after its power failed: of the writes that were not synced,
//! each may be there, be missing, or be torn at any byte or sector, in any order; names survive as a prefix of what was
//! done in their directory. Directories themselves are durable at once, as the real disk syncs them when it makes them.

mod file;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;

use self::file::MemoryFile;
use super::SeededIds;
use crate::ports::{Disk, DiskFile, Ids, Open, Stat};

/// Unit in which a device writes.
pub const SECTOR_BYTES: usize = 512;

/// A disk in memory. The power-cut disk is one too: a test that never cuts has a plain one.
pub type MemoryDisk = PowerCutDisk;

/// A call that is made to fail once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The next write or extension fails with EIO.
    WriteEio,
    /// The next write or extension fails with ENOSPC.
    WriteEnospc,
    /// The next `sync_data`, `sync_dir` or `sync_fs` fails with EIO. Contents that it should have synced never will be;
    /// names, which a file system changes in order or not at all, stay unsure until the next sync.
    SyncEio,
    /// The next creation or rename fails with ENOSPC.
    NameEnospc,
    /// The next read fails with EIO.
    ReadEio,
}

#[derive(Debug, Clone)]
enum Write {
    Bytes { offset: usize, bytes: Vec<u8> },
    Length(usize),
}

#[derive(Debug, Default, Clone)]
struct Inode {
    seen: Vec<u8>,
    device: Vec<u8>,
    pending: Vec<Write>,
    changed: u64,
}

#[derive(Debug, Clone)]
enum NameChange {
    Link(PathBuf, u64),
    Move(PathBuf, PathBuf, u64),
    Unlink(PathBuf),
}

impl NameChange {
    fn directory(&self) -> &Path {
        let (Self::Link(path, _) | Self::Move(_, path, _) | Self::Unlink(path)) = self;
        parent(path)
    }

    /// Whether it changes `directory`.
    fn touches(&self, directory: &Path) -> bool {
        let left = if let Self::Move(from, ..) = self { Some(parent(from)) } else { None };
        self.directory() == directory || left == Some(directory)
    }

    fn apply(&self, names: &mut BTreeMap<PathBuf, u64>) {
        match self {
            Self::Link(path, inode) => {
                names.insert(path.clone(), *inode);
            }
            Self::Move(from, to, inode) => {
                if names.get(from) == Some(inode) {
                    names.remove(from);
                }
                names.insert(to.clone(), *inode);
            }
            Self::Unlink(path) => {
                names.remove(path);
            }
        }
    }
}

#[derive(Debug, Default)]
struct State {
    inodes: BTreeMap<u64, Inode>,
    names: BTreeMap<PathBuf, u64>,
    device_names: BTreeMap<PathBuf, u64>,
    pending_names: Vec<NameChange>,
    directories: Vec<PathBuf>,
    next_inode: u64,
    operations: u64,
    off_at: Option<u64>,
    off: bool,
    full: bool,
    read_only: bool,
    faults: Vec<Fault>,
}

/// A disk in memory with a power switch, see the module. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct PowerCutDisk(Arc<Mutex<State>>);

impl PowerCutDisk {
    /// An empty disk.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many changes and syncs were asked for so far.
    pub fn operations(&self) -> u64 {
        self.state().operations
    }

    /// The power fails in the middle of change or sync number `n` (counted like [`operations`](Self::operations), the
    /// first is 1): it is begun but not finished, it fails, and so does everything after it.
    pub fn power_off_at(&self, n: u64) {
        self.state().off_at = Some(n);
    }

    /// Whether the power has failed.
    pub fn is_off(&self) -> bool {
        self.state().off
    }

    /// The next matching call fails.
    pub fn fail_next(&self, fault: Fault) {
        self.state().faults.push(fault);
    }

    /// Faults that have not struck yet never will.
    pub fn forget_faults(&self) {
        self.state().faults.clear();
    }

    /// While full, everything that needs space fails with ENOSPC.
    pub fn set_full(&self, full: bool) {
        self.state().full = full;
    }

    /// While read-only, nothing can be changed or opened for writing: EROFS.
    pub fn set_read_only(&self, read_only: bool) {
        self.state().read_only = read_only;
    }

    /// The disk as it is found after a power failure now. `seed` chooses what survives.
    pub fn cut(&self, seed: u64) -> Arc<Self> {
        let state = self.state();
        let dice = SeededIds::new(seed);
        let mut found = State {
            names: surviving_names(&state, &dice),
            directories: state.directories.clone(),
            next_inode: state.next_inode,
            ..State::default()
        };
        for inode in found.names.values() {
            if let Some(file) = state.inodes.get(inode) {
                let contents = surviving_contents(file, &dice);
                let file =
                    Inode { seen: contents.clone(), device: contents, pending: Vec::new(), changed: file.changed };
                found.inodes.insert(*inode, file);
            }
        }
        found.device_names.clone_from(&found.names);
        Arc::new(Self(Arc::new(Mutex::new(found))))
    }

    /// A copy as programs see it now: what a killed process leaves behind, power on.
    pub fn copy(&self) -> Arc<Self> {
        let state = self.state();
        let inodes = state.inodes.iter().map(|(number, inode)| {
            let seen = inode.seen.clone();
            (*number, Inode { device: seen.clone(), seen, pending: Vec::new(), changed: inode.changed })
        });
        let copy = State {
            inodes: inodes.collect(),
            names: state.names.clone(),
            device_names: state.names.clone(),
            directories: state.directories.clone(),
            next_inode: state.next_inode,
            ..State::default()
        };
        Arc::new(Self(Arc::new(Mutex::new(copy))))
    }
}

fn surviving_names(state: &State, dice: &SeededIds) -> BTreeMap<PathBuf, u64> {
    let mut names = state.device_names.clone();
    let mut kept: BTreeMap<&Path, u64> = BTreeMap::new();
    for change in &state.pending_names {
        *kept.entry(change.directory()).or_default() += 1;
    }
    for count in kept.values_mut() {
        *count = dice.random() % (*count + 1);
    }
    for change in &state.pending_names {
        if let Some(left) = kept.get_mut(change.directory()).filter(|left| **left > 0) {
            *left -= 1;
            change.apply(&mut names);
        }
    }
    names
}

fn surviving_contents(file: &Inode, dice: &SeededIds) -> Vec<u8> {
    let mut contents = file.device.clone();
    let mut order: Vec<&Write> = file.pending.iter().collect();
    if dice.random().is_multiple_of(2) {
        for at in (1..order.len()).rev() {
            let with = usize::try_from(dice.random() % (at as u64 + 1)).unwrap_or(at);
            order.swap(at, with);
        }
    }
    for write in order {
        match (dice.random() % 4, write) {
            (0, _) => {}
            (1, Write::Bytes { offset, bytes }) => {
                let cut = usize::try_from(dice.random() % (bytes.len() as u64 + 1)).unwrap_or(0);
                put(&mut contents, *offset, &bytes[..cut]);
            }
            (2, Write::Bytes { offset, bytes }) => {
                for (n, sector) in bytes.chunks(SECTOR_BYTES).enumerate() {
                    if dice.random().is_multiple_of(2) {
                        put(&mut contents, offset + n * SECTOR_BYTES, sector);
                    }
                }
            }
            (_, write) => apply(&mut contents, write),
        }
    }
    contents
}

fn put(contents: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    if bytes.is_empty() {
        return;
    }
    let end = offset + bytes.len();
    if contents.len() < end {
        contents.resize(end, 0);
    }
    contents[offset..end].copy_from_slice(bytes);
}

fn apply(contents: &mut Vec<u8>, write: &Write) {
    match write {
        Write::Bytes { offset, bytes } => put(contents, *offset, bytes),
        Write::Length(length) => contents.resize(*length, 0),
    }
}

// === impl State ===

impl State {
    fn powered(&self) -> io::Result<()> {
        if self.off { Err(io::Error::other("the power is off")) } else { Ok(()) }
    }

    fn fault(&mut self, fault: Fault) -> bool {
        let at = self.faults.iter().position(|one| *one == fault);
        at.map(|at| self.faults.remove(at)).is_some()
    }

    /// Counts a change or sync; true when the power fails in the middle of it.
    fn operation(&mut self) -> io::Result<bool> {
        self.powered()?;
        self.operations += 1;
        self.off = self.off_at.is_some_and(|at| self.operations >= at);
        Ok(self.off)
    }

    fn inode(&mut self, number: u64) -> &mut Inode {
        self.inodes.entry(number).or_default()
    }

    fn number(&self, path: &Path) -> io::Result<u64> {
        self.names.get(path).copied().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn stat(&self, number: u64) -> Stat {
        let (length, changed) = self.inodes.get(&number).map_or((0, 0), |inode| (inode.seen.len(), inode.changed));
        let time = i128::from(changed);
        Stat { length: length as u64, directory: false, stamp: (1, number, time, time) }
    }

    fn changeable(&self) -> io::Result<()> {
        if self.read_only { Err(io::ErrorKind::ReadOnlyFilesystem.into()) } else { Ok(()) }
    }

    fn write(&mut self, number: u64, write: Write) -> io::Result<()> {
        self.changeable()?;
        let off = self.operation()?;
        if self.fault(Fault::WriteEio) {
            return Err(failed(Errno::IO));
        }
        let length = self.inode(number).seen.len();
        let grows = match &write {
            Write::Bytes { offset, bytes } => offset + bytes.len() > length,
            Write::Length(to) => *to > length,
        };
        if self.fault(Fault::WriteEnospc) || (self.full && grows) {
            return Err(failed(Errno::NOSPC));
        }
        let changed = self.operations;
        let inode = self.inode(number);
        apply(&mut inode.seen, &write);
        inode.pending.push(write);
        inode.changed = changed;
        if off { self.powered() } else { Ok(()) }
    }

    fn change_name(&mut self, change: NameChange) -> io::Result<()> {
        self.changeable()?;
        let off = self.operation()?;
        if self.fault(Fault::NameEnospc) || (self.full && matches!(change, NameChange::Link(..))) {
            return Err(failed(Errno::NOSPC));
        }
        change.apply(&mut self.names);
        self.pending_names.push(change);
        if off { self.powered() } else { Ok(()) }
    }

    fn sync(&mut self, what: impl FnOnce(&mut Self, bool)) -> io::Result<()> {
        if self.operation()? {
            return self.powered();
        }
        let fails = self.fault(Fault::SyncEio);
        what(self, !fails);
        if fails { Err(failed(Errno::IO)) } else { Ok(()) }
    }

    fn settle_file(&mut self, number: u64, succeeds: bool) {
        let inode = self.inode(number);
        // After a failed sync the system forgets that the pages are dirty: they never reach the device.
        for write in std::mem::take(&mut inode.pending) {
            if succeeds {
                apply(&mut inode.device, &write);
            }
        }
    }

    fn settle_names(&mut self, of: Option<&Path>, succeeds: bool) {
        // A move is done in both of its directories at once: what was done in them before goes with it.
        let pending = if succeeds { std::mem::take(&mut self.pending_names) } else { return };
        let mut directories: Vec<&Path> = of.into_iter().collect();
        let mut settled = vec![of.is_none(); pending.len()];
        for (change, settled) in pending.iter().zip(&mut settled).rev() {
            if directories.iter().any(|directory| change.touches(directory)) {
                *settled = true;
                directories.push(change.directory());
                if let NameChange::Move(from, ..) = change {
                    directories.push(parent(from));
                }
            }
        }
        for (change, settled) in pending.iter().zip(settled) {
            if settled {
                change.apply(&mut self.device_names);
            } else {
                self.pending_names.push(change.clone());
            }
        }
    }

    fn is_directory(&self, path: &Path) -> bool {
        path.as_os_str().is_empty() || path == Path::new("/") || self.directories.iter().any(|dir| dir == path)
    }
}

fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new(""))
}

fn failed(with: Errno) -> io::Error {
    io::Error::from_raw_os_error(with.raw_os_error())
}

// === impl PowerCutDisk ===

impl Disk for PowerCutDisk {
    fn open(&self, path: &Path, how: Open) -> io::Result<Box<dyn DiskFile>> {
        let mut state = self.state();
        state.powered()?;
        if how != Open::Read {
            state.changeable()?;
        }
        let known = state.number(path);
        let number = match (known, how) {
            (Ok(_), Open::CreateNew) => return Err(io::ErrorKind::AlreadyExists.into()),
            (Ok(number), Open::Read | Open::Write | Open::Create) => number,
            (Err(error), Open::Read | Open::Write) => return Err(error),
            (Err(_), Open::Create | Open::CreateNew) => {
                if !state.is_directory(parent(path)) {
                    return Err(io::ErrorKind::NotFound.into());
                }
                let number = state.next_inode;
                state.next_inode += 1;
                state.inode(number);
                state.change_name(NameChange::Link(path.to_owned(), number))?;
                number
            }
        };
        let opened = state.stat(number);
        Ok(Box::new(MemoryFile { disk: self.clone(), number, opened, writable: how != Open::Read }))
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.powered()?;
        let mut at = Some(path);
        while let Some(dir) = at.filter(|dir| !state.is_directory(dir)) {
            if state.names.contains_key(dir) {
                return Err(io::ErrorKind::NotADirectory.into());
            }
            state.directories.push(dir.to_owned());
            at = dir.parent();
        }
        Ok(())
    }

    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        let state = self.state();
        state.powered()?;
        if !state.is_directory(path) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let all = state.names.keys().chain(&state.directories);
        let mut below: Vec<PathBuf> = all.filter(|name| name.parent() == Some(path)).cloned().collect();
        below.sort();
        Ok(below)
    }

    fn stat(&self, path: &Path) -> io::Result<Stat> {
        let state = self.state();
        state.powered()?;
        if state.is_directory(path) {
            return Ok(Stat { length: 0, directory: true, stamp: (1, 0, 0, 0) });
        }
        Ok(state.stat(state.number(path)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state();
        let number = state.number(from)?;
        if !state.is_directory(parent(to)) {
            return Err(io::ErrorKind::NotFound.into());
        }
        state.change_name(NameChange::Move(from.to_owned(), to.to_owned(), number))
    }

    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()> {
        let taken = {
            let state = self.state();
            state.powered()?;
            state.names.contains_key(to) || state.is_directory(to)
        };
        if taken { Err(io::ErrorKind::AlreadyExists.into()) } else { self.rename(from, to) }
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.number(path)?;
        state.change_name(NameChange::Unlink(path.to_owned()))
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.state().sync(|state, succeeds| state.settle_names(Some(path), succeeds))
    }

    fn free_bytes(&self, _: &Path) -> io::Result<u64> {
        let state = self.state();
        state.powered()?;
        Ok(if state.full { 0 } else { u64::MAX })
    }

    fn sync_fs(&self, _: &Path) -> io::Result<()> {
        self.state().sync(|state, succeeds| {
            state.settle_names(None, succeeds);
            for number in state.inodes.keys().copied().collect::<Vec<_>>() {
                state.settle_file(number, succeeds);
            }
        })
    }
}
