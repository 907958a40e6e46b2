//! The actor kernel: the only code that spawns actors.

pub mod ports;
