//! How much of its memory the process uses, and what follows from that.
//!
//! | bytes in use | level | what follows |
//! |---|---|---|
//! | below nine tenths of the limit | calm | – |
//! | from there on | high | idle sessions leave memory, with their conversations, the longest idle first |
//! | from the limit on | refusing | the same, and new messages are refused while any turn is open |
//!
//! A level ends a little below where it began.

use std::sync::atomic::{AtomicU8, Ordering};

/// A level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Enough memory.
    Calm,
    /// Sessions leave.
    High,
    /// Messages are refused.
    Refusing,
}

/// The level after `used` bytes were seen against `limit`. Pure.
pub fn next(level: Level, used: u64, limit: u64) -> Level {
    let tenths = |tenths: u64| limit / 10 * tenths;
    let (high, refusing) = match level {
        Level::Calm => (tenths(9), limit),
        Level::High => (tenths(8), limit),
        Level::Refusing => (tenths(8), tenths(9)),
    };
    match used {
        used if used >= refusing => Level::Refusing,
        used if used >= high => Level::High,
        _ => Level::Calm,
    }
}

/// The level of this process, as everybody reads it. Calm at first.
#[derive(Debug, Default)]
pub struct Pressure(AtomicU8);

impl Pressure {
    /// Takes over a level; returns the one before.
    pub fn set(&self, level: Level) -> Level {
        let value = match level {
            Level::Calm => 0,
            Level::High => 1,
            Level::Refusing => 2,
        };
        named(self.0.swap(value, Ordering::Relaxed))
    }

    /// The level.
    pub fn level(&self) -> Level {
        named(self.0.load(Ordering::Relaxed))
    }
}

fn named(value: u8) -> Level {
    match value {
        0 => Level::Calm,
        1 => Level::High,
        _ => Level::Refusing,
    }
}

#[cfg(test)]
mod tests {
    use super::Level::{Calm, High, Refusing};
    use super::*;

    #[test]
    fn levels_begin_at_their_bounds_and_end_a_little_below() {
        let mut level = Calm;
        for (used, expect) in [
            (0, Calm),
            (899, Calm),
            (900, High),
            (850, High),
            (1000, Refusing),
            (900, Refusing),
            (899, High),
            (999, High),
            (2000, Refusing),
            (799, Calm),
            (850, Calm),
        ] {
            level = next(level, used, 1000);
            assert_eq!(level, expect, "{used}");
        }
        let pressure = Pressure::default();
        assert_eq!((pressure.set(Refusing), pressure.set(High), pressure.level()), (Calm, Refusing, High));
    }
}
