//! What Greenroom's actors say to each other, one file per receiver.
//!
//! Each file's head is the table of that receiver's messages: who sends, who answers, what is durable when the answer
//! arrives, which order is promised. Messages between an actor and itself stay in the actor's own crate.

pub mod cron;
pub mod edit;
pub mod journal;
pub mod memory;
pub mod metrics;
pub mod provider;
pub mod registry;
pub mod session;
pub mod subagent;
pub mod supervision;
pub mod tools;
pub mod top;
pub mod trace;
pub mod transcripts;
pub mod trigger;
pub mod turn;
