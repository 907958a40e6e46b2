//! The one way to send a message to an actor.

use actix::{Message, Recipient, prelude::SendError};

/// The receiver has ended for good; the message is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the actor is gone")]
pub struct Gone;

/// Puts `message` into a mailbox. Never waits, and never refuses a live receiver: whoever needs a bound keeps it before
/// this call.
#[expect(clippy::disallowed_methods, reason = "this is the one place that sends")]
pub fn tell<M>(to: &Recipient<M>, message: M) -> Result<(), Gone>
where
    M: Message + Send + 'static,
    M::Result: Send,
{
    match to.try_send(message) {
        Ok(()) => Ok(()),
        Err(SendError::Closed(_)) => Err(Gone),
        Err(SendError::Full(message)) => {
            // Only mailboxes that the kernel did not make (probes of tests) have a capacity.
            to.do_send(message);
            Ok(())
        }
    }
}
