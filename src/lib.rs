//! Greenroom.

pub mod config;
pub mod onboard;
