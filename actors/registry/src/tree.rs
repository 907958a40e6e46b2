//! The live tree, as a snapshot.

use domain::ids::SessionKey;
use protocol::session::State;
use protocol::supervision::{ActorPath, Kind, TreeNode};
use supervision::lease::SlotView;

use crate::quarantine::Waiting;
use crate::registry::{Registry, shard_path};

/// Sessions shown per shard; those with work first.
pub const SHOWN_SESSIONS_MAX: usize = 1_000;

impl Registry {
    pub(crate) fn snapshot(&self) -> TreeNode {
        let mut children = self.kernel.actors();
        for (index, _) in self.sectors.iter().enumerate() {
            let path = shard_path(index);
            if let Some(shard) = children.iter_mut().find(|node| *node.path.0 == *path) {
                self.show_sessions(index, shard);
            }
        }
        let state = if self.is_stopping() { "stopping" } else { "running" };
        TreeNode { children, ..TreeNode::new(ActorPath("/".into()), Kind::Registry, state) }
    }

    fn show_sessions(&self, index: usize, shard: &mut TreeNode) {
        let sector = &self.sectors[index];
        let mut slots = Vec::new();
        sector.slots.for_each(|slot| slots.push(slot));
        shard.mailbox = slots.iter().map(|slot| slot.depth as u64).sum();
        shard.inbox = slots.iter().map(|slot| u64::from(slot.note.inbox)).sum();
        let waiting = sector.waitlist.all().into_iter().map(|(key, waiting)| held(index, key, &waiting));
        shard.children = waiting.take(SHOWN_SESSIONS_MAX).collect();
        if sector.pause().holds() {
            shard.state = "paused".to_owned();
        }
        let hidden = slots.len().saturating_sub(SHOWN_SESSIONS_MAX);
        if hidden > 0 {
            shard.state = format!("{} ({hidden} more sessions)", shard.state);
            slots.sort_by_key(|slot| slot.note.state == State::Idle);
            slots.truncate(SHOWN_SESSIONS_MAX);
        }
        slots.sort_by(|a, b| a.key.cmp(&b.key));
        shard.children.extend(slots.into_iter().map(|slot| self.live_session(index, slot)));
    }

    fn live_session(&self, index: usize, slot: SlotView) -> TreeNode {
        let path = ActorPath::session(index, &slot.key);
        let (restarts, since) = self.kernel.vitals(&path).unwrap_or_default();
        TreeNode {
            epoch: slot.incarnation,
            session: Some(slot.key),
            turn: slot.note.turn,
            mailbox: slot.depth as u64,
            inbox: u64::from(slot.note.inbox),
            restarts: u64::from(restarts),
            since,
            ..TreeNode::new(path, Kind::Session, slot.note.state.word())
        }
    }
}

fn held(index: usize, key: SessionKey, waiting: &Waiting) -> TreeNode {
    let state = match waiting {
        Waiting::Quarantined(_) => "quarantined",
        Waiting::Suspect => "suspect",
    };
    TreeNode { session: Some(key.clone()), ..TreeNode::new(ActorPath::session(index, &key), Kind::Session, state) }
}
