//! Choices that a seed repeats.

use std::hash::{BuildHasher, Hasher};

/// A stream of choices.
#[derive(Debug, Clone)]
pub struct Dice(u64);

impl Dice {
    /// The stream `number` of a seed; streams of one seed are independent.
    pub fn new(seed: u64, number: u64) -> Self {
        let mut dice = Self(seed ^ number.wrapping_mul(0xA24B_AED4_963E_E407));
        dice.next();
        dice
    }

    /// The output function of splitmix64.
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// From `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high - low + 1)
    }

    /// True in `percent` of 100 cases.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.next() % 100 < percent
    }
}

/// The seed that the environment asks for, else a fresh one.
pub fn seed() -> u64 {
    let asked = std::env::var("GREENROOM_CHAOS_SEED").ok();
    let fresh = || std::hash::RandomState::new().build_hasher().finish() % 1_000_000_000;
    asked.map_or_else(fresh, |seed| seed.parse().expect("GREENROOM_CHAOS_SEED is a number"))
}

/// How many rounds the environment asks for.
pub fn rounds(default: usize) -> usize {
    let asked = std::env::var("GREENROOM_CHAOS_ROUNDS").ok();
    asked.map_or(default, |rounds| rounds.parse().expect("GREENROOM_CHAOS_ROUNDS is a number"))
}
