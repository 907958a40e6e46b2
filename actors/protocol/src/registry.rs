//! The registry as the doors see it.
//!
//! | call | from | answer |
//! |---|---|---|
//! | [`Sessions::tell`] | doors | – ; wakes the session when it sleeps |
//! | [`Sessions::tell_live`] | doors | whether it is live; a sleeping one is left asleep, a quarantined one answers control |
//! | [`Sessions::state`], [`Sessions::steers`], [`Sessions::tree`], [`Sessions::top`], [`Sessions::live`] | doors | a snapshot |
//! | [`Sessions::release`] | doors | ends a quarantine |

use domain::ids::SessionKey;

use crate::session::{Mail, State};
use crate::supervision::TreeNode;
use crate::top::{SessionsTop, TopQuery};
use crate::turn::Lane;

/// Finds, starts and reaches sessions. All calls return at once and may come from any thread.
pub trait Sessions: Send + Sync + 'static {
    /// Hands mail to the session, which is started if it sleeps.
    fn tell(&self, key: &SessionKey, mail: Mail) -> Result<(), Unreachable>;
    /// Hands mail to the session only if it is live; gives it back otherwise. Control mail for a session that is not
    /// able to answer (it waits for its restart, or is quarantined) is answered at once, and a stop is remembered.
    fn tell_live(&self, key: &SessionKey, mail: Mail) -> Result<(), Mail>;
    /// What a session does; `None` when it is not in memory and waits for nothing.
    fn state(&self, key: &SessionKey) -> Option<State>;
    /// Which messages the running turn of a session takes up.
    fn steers(&self, key: &SessionKey) -> Option<Lane>;
    /// How many sessions are live.
    fn live(&self) -> usize;
    /// The live supervision tree.
    fn tree(&self) -> TreeNode;
    /// The busiest sessions; looks at every live one once.
    fn top(&self, query: &TopQuery) -> SessionsTop;
    /// Ends a quarantine now; false when there is none.
    fn release(&self, key: &SessionKey) -> bool;
}

/// Why a session could not be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unreachable {
    /// It crashed too often and waits.
    #[error("session is quarantined")]
    Quarantined,
    /// Too many sessions crash at present, so that none is started for a while.
    #[error("too many sessions crash at present")]
    Paused,
    /// The process is stopping.
    #[error("the gateway is stopping")]
    Stopping,
}
