//! The journal on a disk whose power can be cut.

mod behavior;
mod crash;
mod left;
mod machine;
mod outbox;
mod recycle;
mod repair;
mod space;
mod thread;
