//! Greenroom.
fn main() {}
