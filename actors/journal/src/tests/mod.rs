//! The journal on a disk whose power can be cut.

mod behavior;
mod catch_up;
mod crash;
mod left;
mod machine;
mod moving;
mod outbox;
mod recycle;
mod repair;
mod space;
mod thread;
