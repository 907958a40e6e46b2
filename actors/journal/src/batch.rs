//! A batch: what one sync makes durable, all or nothing.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | magic `GRJB` |
//! | 4 | 4 | payload length |
//! | 8 | 8 | segment number |
//! | 16 | 8 | batch number, consecutive over the whole log |
//! | 24 | 4 | number of records |
//! | 28 | 4 | CRC-32C over the 28 bytes before and the payload |
//! | 32 | … | records: `length u32, type u8, payload` each |
//!
//! Batches begin at multiples of 8 bytes. The segment number keeps old batches in recycled space from being taken.
//! **Invariant:** pure.

use supervision::planted::{Bug, planted};

use crate::wire::{Malformed, Reader};

/// Bytes before the records.
pub const HEADER_BYTES: usize = 32;
/// Batches begin at multiples of this.
pub const ALIGN: u64 = 8;
/// Bytes before a record's payload.
pub const RECORD_HEADER_BYTES: usize = 5;

const MAGIC: [u8; 4] = *b"GRJB";

/// A batch that was read and whose checksum holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Batch<'a> {
    /// Its number.
    pub number: u64,
    /// How many records.
    pub count: u32,
    /// The records.
    pub payload: &'a [u8],
}

/// Rounds up to the place of the next batch.
pub fn aligned(offset: u64) -> u64 {
    offset.next_multiple_of(ALIGN)
}

/// Fills in the header of `bytes`, whose first [`HEADER_BYTES`] are reserved, and pads the end.
pub fn seal(bytes: &mut Vec<u8>, segment: u64, number: u64, count: u32) {
    let payload = u32::try_from(bytes.len() - HEADER_BYTES).expect("a batch is bounded far below 4 GiB");
    bytes[0..4].copy_from_slice(&MAGIC);
    bytes[4..8].copy_from_slice(&payload.to_le_bytes());
    bytes[8..16].copy_from_slice(&segment.to_le_bytes());
    bytes[16..24].copy_from_slice(&number.to_le_bytes());
    bytes[24..28].copy_from_slice(&count.to_le_bytes());
    let crc = crc32c::crc32c_append(crc32c::crc32c(&bytes[..28]), &bytes[HEADER_BYTES..]);
    bytes[28..32].copy_from_slice(&crc.to_le_bytes());
    bytes.resize(bytes.len().next_multiple_of(ALIGN as usize), 0);
}

/// Whether a batch may begin at the front of `bytes`; quick, for searching.
pub fn may_begin(bytes: &[u8]) -> bool {
    bytes.starts_with(&MAGIC)
}

/// Reads the batch at the front of `bytes`; `None` when there is no whole and sound one of this segment.
pub fn open(bytes: &[u8], segment: u64) -> Option<Batch<'_>> {
    let header = bytes.first_chunk::<HEADER_BYTES>()?;
    let mut reader = Reader::new(header);
    let magic: [u8; 4] = reader.array().ok()?;
    let length = u32::from_le_bytes(reader.array().ok()?) as usize;
    let from = reader.fixed().ok()?;
    let number = reader.fixed().ok()?;
    let count = u32::from_le_bytes(reader.array().ok()?);
    let crc = u32::from_le_bytes(reader.array().ok()?);
    if magic != MAGIC || from != segment {
        return None;
    }
    let payload = bytes.get(HEADER_BYTES..HEADER_BYTES.checked_add(length)?)?;
    let sound = crc32c::crc32c_append(crc32c::crc32c(&header[..28]), payload) == crc;
    (sound || planted(Bug::NoChecksum)).then_some(Batch { number, count, payload })
}

/// Length of `batch` with header and padding.
pub fn space(batch: &Batch<'_>) -> u64 {
    aligned((HEADER_BYTES + batch.payload.len()) as u64)
}

/// One record inside a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawRecord<'a> {
    /// Offset of its header from the front of the batch.
    pub offset: u32,
    /// Type byte.
    pub kind: u8,
    /// Payload.
    pub payload: &'a [u8],
}

/// The records of a batch, in order. A sound checksum over records that do not add up is a bug of the writer,
/// reported as `Malformed`.
pub fn records<'a>(batch: &Batch<'a>) -> Result<Vec<RawRecord<'a>>, Malformed> {
    let mut reader = Reader::new(batch.payload);
    let mut found = Vec::with_capacity((batch.count as usize).min(batch.payload.len()));
    for _ in 0..batch.count {
        let offset = HEADER_BYTES + batch.payload.len() - reader.len();
        let length = u32::from_le_bytes(reader.array()?) as usize;
        let kind = reader.byte()?;
        let payload = reader.take(length)?;
        found.push(RawRecord { offset: u32::try_from(offset).map_err(|_| Malformed::Range)?, kind, payload });
    }
    reader.end()?;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sealed(payloads: &[(u8, Vec<u8>)], segment: u64, number: u64) -> Vec<u8> {
        let mut bytes = vec![0; HEADER_BYTES];
        for (kind, payload) in payloads {
            bytes.extend_from_slice(&(payload.len() as u32).to_le_bytes());
            bytes.push(*kind);
            bytes.extend_from_slice(payload);
        }
        seal(&mut bytes, segment, number, payloads.len() as u32);
        bytes
    }

    proptest! {
        #[test]
        fn comes_back_as_written(
            payloads in prop::collection::vec((any::<u8>(), prop::collection::vec(any::<u8>(), 0..40)), 0..8),
            segment: u64,
            number: u64,
        ) {
            let bytes = sealed(&payloads, segment, number);
            let batch = open(&bytes, segment).unwrap();
            prop_assert_eq!(space(&batch), bytes.len() as u64);
            prop_assert_eq!(batch.number, number);
            let back: Vec<_> = records(&batch).unwrap().iter().map(|raw| (raw.kind, raw.payload.to_vec())).collect();
            prop_assert_eq!(back, payloads);
            prop_assert!(open(&bytes, segment.wrapping_add(1)).is_none());
        }

        #[test]
        fn a_changed_byte_is_noticed(at in 0usize..80, flip in 1u8..) {
            let mut bytes = sealed(&[(1, vec![7; 43])], 3, 9);
            prop_assert_eq!(bytes.len(), 80);
            bytes[at] ^= flip;
            prop_assert!(open(&bytes, 3).is_none());
        }

        #[test]
        fn arbitrary_bytes_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..200), count: u32) {
            prop_assert!(open(&bytes, 1).is_none());
            let _ = records(&Batch { number: 1, count, payload: &bytes });
        }
    }
}
