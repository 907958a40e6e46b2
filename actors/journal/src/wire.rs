//! The bytes below the records: integers, texts and ids, written and read without a schema library.
//!
//! Integers are LEB128 varints, byte strings carry their length, ids and hashes are fixed-size little endian.
//! Reading never panics and never allocates more than the input holds. **Invariant:** pure.

use std::sync::Arc;

use uuid::Uuid;

/// Why bytes are not what was expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// They end early.
    #[error("ends early")]
    Short,
    /// An integer does not fit.
    #[error("has an integer out of range")]
    Range,
    /// A text is not UTF-8.
    #[error("has a text that is not UTF-8")]
    Text,
    /// An id has a shape that is not allowed.
    #[error("has a malformed id")]
    Id,
    /// A tag is not known.
    #[error("has an unknown tag")]
    Tag,
    /// Bytes are left over.
    #[error("has bytes left over")]
    Long,
}

/// Appends an integer.
pub fn put_int(to: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        to.push((value as u8 & 0x7f) | 0x80);
        value >>= 7;
    }
    to.push(value as u8);
}

/// Appends a byte string.
pub fn put_bytes(to: &mut Vec<u8>, bytes: &[u8]) {
    put_int(to, bytes.len() as u64);
    to.extend_from_slice(bytes);
}

/// Appends a text.
pub fn put_text(to: &mut Vec<u8>, text: &str) {
    put_bytes(to, text.as_bytes());
}

/// Appends an id.
pub fn put_uuid(to: &mut Vec<u8>, id: Uuid) {
    to.extend_from_slice(id.as_bytes());
}

/// Appends a flag.
pub fn put_flag(to: &mut Vec<u8>, flag: bool) {
    to.push(u8::from(flag));
}

/// Appends a value that may be missing.
pub fn put_option<T>(to: &mut Vec<u8>, value: Option<T>, put: impl FnOnce(&mut Vec<u8>, T)) {
    match value {
        Some(value) => {
            to.push(1);
            put(to, value);
        }
        None => to.push(0),
    }
}

/// Reads from the front of a byte string.
#[derive(Debug, Clone, Copy)]
pub struct Reader<'a> {
    left: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Begins at the front of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { left: bytes }
    }

    /// How many bytes are left.
    pub fn len(&self) -> usize {
        self.left.len()
    }

    /// Takes `count` bytes.
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (head, tail) = self.left.split_at_checked(count).ok_or(Malformed::Short)?;
        self.left = tail;
        Ok(head)
    }

    /// Takes an array.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (head, tail) = self.left.split_first_chunk::<N>().ok_or(Malformed::Short)?;
        self.left = tail;
        Ok(*head)
    }

    /// Takes one byte.
    pub fn byte(&mut self) -> Result<u8, Malformed> {
        self.array::<1>().map(|[byte]| byte)
    }

    /// Takes an integer.
    pub fn int(&mut self) -> Result<u64, Malformed> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return Err(Malformed::Range);
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Malformed::Range)
    }

    /// Takes an integer of 32 bits.
    pub fn small(&mut self) -> Result<u32, Malformed> {
        u32::try_from(self.int()?).map_err(|_| Malformed::Range)
    }

    /// Takes a fixed 64-bit value.
    pub fn fixed(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_le_bytes)
    }

    /// Takes a byte string.
    pub fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let count = usize::try_from(self.int()?).map_err(|_| Malformed::Range)?;
        self.take(count)
    }

    /// Takes a text.
    pub fn text(&mut self) -> Result<&'a str, Malformed> {
        std::str::from_utf8(self.bytes()?).map_err(|_| Malformed::Text)
    }

    /// Takes a text and keeps it.
    pub fn shared(&mut self) -> Result<Arc<str>, Malformed> {
        self.text().map(Arc::from)
    }

    /// Takes an id.
    pub fn uuid(&mut self) -> Result<Uuid, Malformed> {
        self.array().map(Uuid::from_bytes)
    }

    /// Takes a flag.
    pub fn flag(&mut self) -> Result<bool, Malformed> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed::Tag),
        }
    }

    /// Takes a value that may be missing.
    pub fn option<T>(&mut self, take: impl FnOnce(&mut Self) -> Result<T, Malformed>) -> Result<Option<T>, Malformed> {
        if self.flag()? { take(self).map(Some) } else { Ok(None) }
    }

    /// Takes a counted list. Each element has at least one byte, so a hostile count cannot make this allocate much.
    pub fn list<T>(&mut self, mut take: impl FnMut(&mut Self) -> Result<T, Malformed>) -> Result<Vec<T>, Malformed> {
        let count = usize::try_from(self.int()?).map_err(|_| Malformed::Range)?;
        if count > self.left.len() {
            return Err(Malformed::Short);
        }
        let mut list = Vec::with_capacity(count.min(1024));
        for _ in 0..count {
            list.push(take(self)?);
        }
        Ok(list)
    }

    /// Checks that nothing is left.
    pub fn end(self) -> Result<(), Malformed> {
        if self.left.is_empty() { Ok(()) } else { Err(Malformed::Long) }
    }
}
