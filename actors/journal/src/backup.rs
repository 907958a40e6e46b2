//! A copy of the log while it is written: full segments never change, of the active one everything durable is copied.

use std::io;
use std::path::Path;
use std::sync::Arc;

use supervision::ports::{Disk, DiskFile, Open};

use crate::log::Log;
use crate::segment;

/// Copied at a time.
const COPY_BYTES: usize = 1 << 20;

/// What is to be copied of one segment.
pub struct Part {
    number: u64,
    file: Arc<dyn DiskFile>,
    length: u64,
    used: u64,
}

/// The log as it is now.
pub fn plan(log: &Log) -> Vec<Part> {
    let full = log.older.iter().map(|segment| (segment, segment.header.length));
    full.chain(std::iter::once((&log.active, log.offset)))
        .map(|(segment, used)| Part {
            number: segment.header.number,
            file: segment.file.clone(),
            length: segment.header.length,
            used,
        })
        .collect()
}

/// Copies it below `to`, synced; returns the bytes that hold something.
pub fn copy(disk: &dyn Disk, to: &Path, parts: Vec<Part>) -> io::Result<u64> {
    disk.create_dir_all(to)?;
    let mut copied = 0;
    let mut bytes = vec![0; COPY_BYTES];
    for part in parts {
        let file = disk.open(&segment::path(to, part.number), Open::CreateNew)?;
        let mut at = 0;
        while at < part.used {
            let count = usize::try_from(part.used - at).unwrap_or(COPY_BYTES).min(COPY_BYTES);
            let got = part.file.read_at(&mut bytes[..count], at)?;
            if got == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            file.write_at(&bytes[..got], at)?;
            at += got as u64;
        }
        file.set_length(part.length)?;
        file.sync_data()?;
        copied += part.used;
    }
    disk.sync_dir(to)?;
    Ok(copied)
}
