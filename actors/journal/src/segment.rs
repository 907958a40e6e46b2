//! The head of a segment file: its first 4 KiB, written and synced before the segment is used.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | magic `GRJ1` |
//! | 4 | 2 | format, now 1 |
//! | 6 | 1 | durability it was written with: 0 full, 1 os |
//! | 8 | 8 | segment number |
//! | 16 | 8 | log position of the segment's first byte |
//! | 24 | 8 | length of the segment in bytes |
//! | 32 | 4 | CRC-32C over the 32 bytes before |
//!
//! The rest is zero. All integers are little endian. Every format keeps the magic, the format's number and the CRC where
//! they are: a number is believed only if the CRC holds, or damage would pass for a newer version. **Invariant:** pure.

use std::path::{Path, PathBuf};

use crate::wire::Reader;

/// Bytes before the first batch.
pub const HEADER_BYTES: u64 = 4096;
/// The format that this version writes, and the newest that it reads.
pub const FORMAT: u16 = 1;

const MAGIC: [u8; 4] = *b"GRJ1";
const CHECKED_BYTES: usize = 32;

/// When a record counts as durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// When the device has it.
    Full,
    /// When the operating system has it: survives the end of the process, not of the power.
    Os,
}

/// What the head of a segment says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentHeader {
    /// How it was written.
    pub durability: Durability,
    /// Its number, from 1.
    pub number: u64,
    /// Log position of its first byte.
    pub base: u64,
    /// Its length in bytes.
    pub length: u64,
}

/// What the first bytes of a file are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Head {
    /// A segment of ours.
    Segment(SegmentHeader),
    /// A segment that a newer version wrote.
    Newer(u16),
    /// Not, or not wholly, a segment's head.
    Unsound,
}

/// The 4 KiB of a head.
pub fn encode(header: &SegmentHeader) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER_BYTES as usize);
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&FORMAT.to_le_bytes());
    bytes.push(match header.durability {
        Durability::Full => 0,
        Durability::Os => 1,
    });
    bytes.push(0);
    bytes.extend_from_slice(&header.number.to_le_bytes());
    bytes.extend_from_slice(&header.base.to_le_bytes());
    bytes.extend_from_slice(&header.length.to_le_bytes());
    let crc = crc32c::crc32c(&bytes);
    bytes.extend_from_slice(&crc.to_le_bytes());
    bytes.resize(HEADER_BYTES as usize, 0);
    bytes
}

/// Reads a head.
pub fn decode(bytes: &[u8]) -> Head {
    read(bytes).unwrap_or(Head::Unsound)
}

fn read(bytes: &[u8]) -> Option<Head> {
    let checked = bytes.get(..CHECKED_BYTES)?;
    let mut reader = Reader::new(bytes);
    let magic: [u8; 4] = reader.array().ok()?;
    let format = u16::from_le_bytes(reader.array().ok()?);
    let durability = reader.byte().ok()?;
    reader.byte().ok()?;
    let (number, base, length) = (reader.fixed().ok()?, reader.fixed().ok()?, reader.fixed().ok()?);
    let crc = u32::from_le_bytes(reader.array().ok()?);
    if magic != MAGIC || crc != crc32c::crc32c(checked) {
        return None;
    }
    // A newer format may lay out the rest in another way, so only its number is believed.
    if format > FORMAT {
        return Some(Head::Newer(format));
    }
    if format == 0 || length < HEADER_BYTES {
        return None;
    }
    base.checked_add(length)?;
    let durability = match durability {
        0 => Durability::Full,
        1 => Durability::Os,
        _ => return None,
    };
    Some(Head::Segment(SegmentHeader { durability, number, base, length }))
}

/// File name of a segment.
pub fn path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{number:016x}.seg"))
}

/// File name of a segment that is being made.
pub fn new_path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{number:016x}.new"))
}

/// What a file name in the journal's directory stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Name {
    /// A segment.
    Segment(u64),
    /// One that was being made.
    New,
    /// Something else, left alone.
    Foreign,
}

/// Reads a file name.
pub fn name(path: &Path) -> Name {
    let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    let number = if stem.len() == 16 { u64::from_str_radix(stem, 16).ok() } else { None };
    match (number, path.extension().and_then(|extension| extension.to_str())) {
        (Some(number), Some("seg")) => Name::Segment(number),
        (Some(_), Some("new")) => Name::New,
        (_, _) => Name::Foreign,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn comes_back_as_written(number: u64, base in 0u64..1 << 60, length in HEADER_BYTES..1 << 40, os: bool) {
            let durability = if os { Durability::Os } else { Durability::Full };
            let header = SegmentHeader { durability, number, base, length };
            let bytes = encode(&header);
            prop_assert_eq!(bytes.len() as u64, HEADER_BYTES);
            prop_assert_eq!(decode(&bytes), Head::Segment(header));
        }

        #[test]
        fn arbitrary_bytes_are_unsound(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            prop_assert_eq!(decode(&bytes), Head::Unsound);
        }
    }

    #[test]
    fn a_newer_format_is_named_and_no_flipped_bit_looks_like_one() {
        let whole = encode(&SegmentHeader { durability: Durability::Full, number: 1, base: 0, length: 8192 });
        let mut newer = whole.clone();
        newer[4] = 2;
        let crc = crc32c::crc32c(&newer[..CHECKED_BYTES]);
        newer[CHECKED_BYTES..CHECKED_BYTES + 4].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(decode(&newer), Head::Newer(2));
        for bit in 0..(CHECKED_BYTES + 4) * 8 {
            let mut flipped = whole.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode(&flipped), Head::Unsound, "bit {bit}");
        }
    }

    #[test]
    fn names_are_read_back() {
        let dir = Path::new("/j");
        assert_eq!(name(&path(dir, 0xabc)), Name::Segment(0xabc));
        assert_eq!(name(&new_path(dir, 1)), Name::New);
        assert_eq!(name(Path::new("/j/lock")), Name::Foreign);
    }
}
