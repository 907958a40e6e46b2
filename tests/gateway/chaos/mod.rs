//! The real program under faults of the real world, with many clients at once and everything counted.
//!
//! `GREENROOM_BIN` names another build than the one of the tests, `GREENROOM_CHAOS_ROUNDS` the number of kills,
//! `GREENROOM_CHAOS_SEED` repeats the choices of an earlier run (clients and processes still race as they like).

mod account;
mod api_client;
mod dice;
mod kills;
mod ledger;
mod message;
mod seen;
mod websocket_client;
