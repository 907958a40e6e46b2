//! Sessions with their sub-agents: a stop or the end of a session is that of its children, too.

use std::sync::Arc;

use actix::Recipient;
use domain::ids::SessionKey;
use protocol::registry::{Sessions, Unreachable};
use protocol::session::{Mail, State};
use protocol::subagent::RunMail;
use protocol::supervision::TreeNode;
use protocol::top::{SessionsTop, TopQuery};
use protocol::turn::Lane;
use supervision::tell;

/// The registry, as doors see it.
pub struct Family {
    sessions: Arc<dyn Sessions>,
    keeper: Recipient<RunMail>,
}

// === impl Family ===

impl Family {
    /// Those sessions, and the keeper of their runs.
    pub fn new(sessions: Arc<dyn Sessions>, keeper: Recipient<RunMail>) -> Arc<Self> {
        Arc::new(Self { sessions, keeper })
    }

    fn cancel_children(&self, parent: &SessionKey, mail: &Mail) {
        let ends = match mail {
            Mail::Stop { .. } | Mail::Close { if_quiet: false, .. } => true,
            Mail::Close { if_quiet: true, .. }
            | Mail::Queued(_)
            | Mail::Queue { .. }
            | Mail::Status { .. }
            | Mail::CancelTurn { .. }
            | Mail::ReadTurn { .. }
            | Mail::Has { .. }
            | Mail::Standing { .. }
            | Mail::Run { .. }
            | Mail::Edit { .. }
            | Mail::Condense { .. }
            | Mail::Restore { .. }
            | Mail::Passivate
            | Mail::Drain
            | Mail::Interrupt => false,
        };
        if ends {
            // A keeper that is gone has nothing open: the process is stopping.
            let _ = tell(&self.keeper, RunMail::CancelChildren { parent: parent.clone() });
        }
    }
}

impl Sessions for Family {
    fn tell(&self, key: &SessionKey, mail: Mail) -> Result<(), Unreachable> {
        self.cancel_children(key, &mail);
        self.sessions.tell(key, mail)
    }

    fn tell_live(&self, key: &SessionKey, mail: Mail) -> Result<(), Mail> {
        self.cancel_children(key, &mail);
        self.sessions.tell_live(key, mail)
    }

    fn state(&self, key: &SessionKey) -> Option<State> {
        self.sessions.state(key)
    }

    fn steers(&self, key: &SessionKey) -> Option<Lane> {
        self.sessions.steers(key)
    }

    fn live(&self) -> usize {
        self.sessions.live()
    }

    fn tree(&self) -> TreeNode {
        self.sessions.tree()
    }

    fn top(&self, query: &TopQuery) -> SessionsTop {
        self.sessions.top(query)
    }

    fn release(&self, key: &SessionKey) -> bool {
        self.sessions.release(key)
    }
}
