//! Test doubles and test manners; only ever a dev-dependency.
//!
//! A test runs under a deadline that names what it waited for ([`deadline`]), talks to the actor under test through
//! probes in place of its neighbors ([`probe`]), to a scripted model server in place of a provider ([`model`], or
//! [`raw`] for answers no server should give), to a journal that answers only what a double does ([`journal`]) and to a
//! receiver of webhooks ([`receiver`]), and in a directory of its own ([`workspace`]).

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod deadline;
pub mod journal;
pub mod model;
pub mod port;
pub mod probe;
pub mod raw;
pub mod receiver;
pub mod workspace;
