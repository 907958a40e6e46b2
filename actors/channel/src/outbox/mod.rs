//! Push delivery: sends what turns have said to chats that wait for no connection.
//!
//! A turn with a push route commits its reply together with its end, as rows of the journal's outbox. The deliverer
//! takes each row, writes `Sending`, sends it through its [`PushChannel`], and writes `Sent`. It holds no truth of its
//! own: after a crash it reads the open rows again, and what was being sent then is sent once more, marked as a repeat.
//!
//! | outcome of an attempt | what follows |
//! |---|---|
//! | [`Outcome::Delivered`] | `Sent`; the next row of the chat |
//! | [`Outcome::Refused`] | `Undeliverable`: a dead letter; the next row of the chat |
//! | [`Outcome::Failed`] | again after 1, 2, 4 … 300 s or when the receiver said; after 24 h `Undeliverable` |
//! | none: the channel is not enabled | it waits; after 24 h `Undeliverable`, unless a process has the channel before |
//!
//! **Invariant:** per chat, rows are sent one after the other in the order of their commits; an attempt that may repeat
//! an earlier one says so; a row is closed only by `Sent` or `Undeliverable`.
//!
//! | module | what |
//! |---|---|
//! | `machine`, `lane` | what is sent when; pure |
//! | `actor` | performs it |
//! | `inlet` | where the journal hands rows over |
//! | `board` | what waits, for metrics and `status` |

mod actor;
mod board;
mod inlet;
mod lane;
mod machine;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use domain::ids::{DeliveryId, SessionKey, TurnId};
use domain::text::TextLimit;
use futures::future::BoxFuture;
use protocol::journal::OutRow;
use protocol::turn::PushRoute;

pub use actor::{Deliverer, Outbox, Parts};
pub use board::{Board, Waiting};
pub use inlet::Inlet;
pub use machine::Rules;

/// A way out to people: takes one message at a time and says what became of it.
pub trait PushChannel: Send + Sync + 'static {
    /// Its name, as in [`PushRoute::channel`].
    fn name(&self) -> &str;
    /// Its longest message; longer replies come in parts.
    fn limit(&self) -> TextLimit;
    /// How long one attempt may take.
    fn patience(&self) -> Duration;
    /// Sends one message. Dropping the future gives the attempt up.
    fn send(&self, delivery: Delivery) -> BoxFuture<'static, Outcome>;
}

/// The channels of one process, by name.
pub type PushChannels = BTreeMap<Arc<str>, Arc<dyn PushChannel>>;

/// One message on its way out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// The same in each attempt: a receiver that keeps it takes the message once.
    pub id: DeliveryId,
    /// The turn that says it.
    pub turn: TurnId,
    /// The session.
    pub key: SessionKey,
    /// Where to.
    pub route: PushRoute,
    /// Of how many parts it is one; which one is [`DeliveryId::n`].
    pub parts: u32,
    /// What it says.
    pub text: Arc<str>,
    /// Whether an earlier attempt may have been delivered.
    pub repeat: bool,
}

/// What became of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The receiver has it.
    Delivered,
    /// The receiver will never take it.
    Refused {
        /// Why, in a few words and without contents or secrets.
        reason: Arc<str>,
    },
    /// It may work another time.
    Failed {
        /// Why, in a few words and without contents or secrets.
        reason: Arc<str>,
        /// When the receiver wants to be asked again.
        retry_after: Option<Duration>,
        /// Whether the receiver may have it all the same.
        taken: bool,
    },
}

impl Outcome {
    /// A failure of which the receiver has noticed nothing.
    pub fn failed(reason: impl Into<Arc<str>>) -> Self {
        Self::Failed { reason: reason.into(), retry_after: None, taken: false }
    }

    /// A failure after which nobody knows whether the receiver has it.
    pub fn unknown(reason: impl Into<Arc<str>>) -> Self {
        Self::Failed { reason: reason.into(), retry_after: None, taken: true }
    }

    /// The word that is counted.
    fn word(&self) -> &'static str {
        match self {
            Self::Delivered => "delivered",
            Self::Refused { .. } => "refused",
            Self::Failed { .. } => "failed",
        }
    }
}

/// One try to send a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Attempt {
    row: OutRow,
    repeat: bool,
    /// Whether it is the first repeat of this row in this process: the one that the log is told.
    first_repeat: bool,
}

impl Attempt {
    fn delivery(&self) -> Delivery {
        let OutRow { out, key, .. } = self.row.clone();
        Delivery {
            id: out.id,
            turn: out.turn,
            key,
            route: out.route,
            parts: out.parts,
            text: out.text,
            repeat: self.repeat,
        }
    }
}
