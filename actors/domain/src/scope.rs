//! Where the agent works for one conversation: a project of its own in place of the workspace.
//!
//! It is kept in the transcript as a `custom` entry of type [`SCOPE`]; the latest one counts, whatever branch it is in.
//!
//! **Source:** `workspace_scope` of nanobot 0.3.5: `{"project_path": "/srv/site", "access_mode": "restricted"}`.

use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::transcript::Entry;

/// The `customType` of its entries.
pub const SCOPE: &str = "greenroom.scope";

/// A project and what of the machine is open besides.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scope {
    /// The project's directory: absolute, without links.
    pub project_path: PathBuf,
    /// What is open.
    pub access_mode: AccessMode,
}

/// What is open to a conversation with a project.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AccessMode {
    /// The project; the workspace can be read.
    Restricted,
    /// All that is not private to the gateway.
    Full,
}

/// The scope that `entry` sets; `Some(None)` when it ends one. One that cannot be read sets none: without it less is open.
pub fn set_by(entry: &Entry) -> Option<Option<Arc<Scope>>> {
    let data = entry.custom(SCOPE)?;
    Some(data.and_then(|data| serde_json::from_str(data).ok()).map(Arc::new))
}

/// Whether `new` opens nothing that is closed under `old`.
pub fn is_less(new: Option<&Scope>, old: Option<&Scope>) -> bool {
    match (new, old) {
        (Some(new), Some(old)) => new.project_path == old.project_path && new.access_mode <= old.access_mode,
        (None, None) => true,
        (_, _) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::EntryId;
    use crate::transcript::{Pen, TreeIndex};

    #[test]
    fn less_is_the_same_project_with_no_more_open() {
        let scope = |path: &str, access_mode| Scope { project_path: path.into(), access_mode };
        let (all, some) = (scope("/a", AccessMode::Full), scope("/a", AccessMode::Restricted));
        let other = scope("/b", AccessMode::Restricted);
        for (new, old, less) in [
            (Some(&some), Some(&all), true),
            (Some(&all), Some(&all), true),
            (Some(&all), Some(&some), false),
            (Some(&other), Some(&all), false),
            (Some(&some), None, false),
            (None, Some(&some), false),
            (None, None, true),
        ] {
            assert_eq!(is_less(new, old), less, "{old:?} -> {new:?}");
        }
    }

    #[test]
    fn it_is_read_as_it_was_written_and_nothing_else_is_one() {
        let scope = Scope { project_path: "/srv/site".into(), access_mode: AccessMode::Full };
        let json = serde_json::to_value(&scope).unwrap();
        assert_eq!(json, serde_json::json!({"project_path": "/srv/site", "access_mode": "full"}));
        let tree = TreeIndex::default();
        let mut next = 0;
        let mut ids = || {
            next += 1;
            EntryId(next)
        };
        let mut pen = Pen::new(&tree, &mut ids, 0);
        assert_eq!(set_by(&pen.custom(SCOPE, Some(&json)).entry), Some(Some(Arc::new(scope))));
        assert_eq!(set_by(&pen.custom(SCOPE, None).entry), Some(None));
        assert_eq!(set_by(&pen.custom(SCOPE, Some(&serde_json::json!({"project_path": 7}))).entry), Some(None));
        assert_eq!(set_by(&pen.custom("other", Some(&json)).entry), None);
        assert_eq!(set_by(&pen.rename("greenroom.scope").entry), None);
    }
}
