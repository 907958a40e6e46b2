//! One open file of the disk in memory.

use std::io;

use rustix::io::Errno;

use super::{Fault, PowerCutDisk, Write, failed};
use crate::ports::{DiskFile, Stat};

/// An open file of a disk in memory.
pub(super) struct MemoryFile {
    pub(super) disk: PowerCutDisk,
    pub(super) number: u64,
    pub(super) opened: Stat,
    pub(super) writable: bool,
}

impl MemoryFile {
    fn write(&self, write: Write) -> io::Result<()> {
        if !self.writable {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        self.disk.state().write(self.number, write)
    }
}

fn index(number: u64) -> io::Result<usize> {
    usize::try_from(number).map_err(io::Error::other)
}

impl DiskFile for MemoryFile {
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut state = self.disk.state();
        state.powered()?;
        if state.fault(Fault::ReadEio) {
            return Err(failed(Errno::IO));
        }
        let offset = index(offset)?;
        let seen = &state.inode(self.number).seen;
        let from = seen.get(offset..).unwrap_or_default();
        let length = from.len().min(into.len());
        into[..length].copy_from_slice(&from[..length]);
        Ok(length)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.write(Write::Bytes { offset: index(offset)?, bytes: bytes.to_vec() })
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.write(Write::Length(index(length)?))
    }

    fn opened(&self) -> Stat {
        self.opened
    }

    fn stat(&self) -> io::Result<Stat> {
        let state = self.disk.state();
        state.powered()?;
        Ok(state.stat(self.number))
    }

    fn sync_data(&self) -> io::Result<()> {
        let number = self.number;
        self.disk.state().sync(|state, succeeds| state.settle_file(number, succeeds))
    }
}
