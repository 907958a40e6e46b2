//! Greenroom.
