//! The real program under faults of the real world, with many clients at once and everything counted.
//!
//! `GREENROOM_BIN` names another build than the one of the tests, `GREENROOM_CHAOS_ROUNDS` the number of kills,
//! `GREENROOM_CHAOS_SEED` repeats the choices of an earlier run (clients and processes still race as they like). With
//! a number of rounds given, a fault that cannot be made on this machine fails its test instead of being left out.

mod account;
mod api_client;
mod crowd;
mod dice;
mod disk;
mod frames;
mod kills;
mod ledger;
mod message;
mod poster;
mod pushes;
mod receiver;
mod seen;
mod stalled;
mod steady;
mod vitals;
mod websocket_client;

/// Whether a fault that cannot be made on this machine may be left out: not when a full run was asked for.
fn may_do_less() -> bool {
    std::env::var_os("GREENROOM_CHAOS_ROUNDS").is_none()
}
