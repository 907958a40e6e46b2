//! Values and rules of Greenroom.
//!
//! **Invariant:** nothing here does IO, reads a clock, spawns or awaits; the same input gives the same output, byte for byte.

pub mod body;
pub mod chat;
pub mod ids;
pub mod request;
pub mod script;
