//! Which paths tools may touch. Pure: works on resolved paths, without `..` and without links.
//!
//! Paths are compared by component: `/ws-evil` is not inside `/ws`. Of all the roots that contain a path, open or
//! private, the innermost decides.

use std::path::{Path, PathBuf};

/// Kernel file systems: reading them shows environments and memory, writing them changes the machine.
const KERNEL: [&str; 3] = ["/dev", "/proc", "/sys"];

/// How far file tools reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Inside the workspace only.
    Workspace,
    /// Everything that is not private to the gateway.
    Anywhere,
}

/// Why a path is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Denied {
    /// It is not inside the workspace.
    Outside,
    /// The gateway keeps it for itself.
    Private,
    /// It belongs to the kernel.
    Kernel,
}

/// The rules, all paths resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// Open to tools.
    pub workspace: PathBuf,
    /// Other directories that are, for reading.
    pub readable: Vec<PathBuf>,
    /// Private to the gateway.
    pub private: Vec<PathBuf>,
    /// Whether anything outside the workspace is open.
    pub reach: Reach,
}

// === impl Policy ===

impl Policy {
    /// Whether `path` may be touched.
    pub fn judge(&self, path: &Path) -> Result<(), Denied> {
        let depth = |root: &Path| root.components().count();
        let open = [&self.workspace].into_iter().chain(&self.readable);
        let open = open.filter(|root| path.starts_with(root)).map(|root| depth(root)).max();
        let private = self.private.iter().filter(|root| path.starts_with(root)).map(|root| depth(root)).max();
        if private.is_some_and(|private| open.is_none_or(|open| private >= open)) {
            return Err(Denied::Private);
        }
        if open.is_some() {
            return Ok(());
        }
        match self.reach {
            Reach::Workspace => Err(Denied::Outside),
            Reach::Anywhere if KERNEL.iter().any(|root| path.starts_with(root)) => Err(Denied::Kernel),
            Reach::Anywhere => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(reach: Reach) -> Policy {
        let private = ["/home/g", "/home/g/ws/sessions", "/etc/g.json"].map(PathBuf::from).to_vec();
        Policy { workspace: "/home/g/ws".into(), readable: Vec::new(), private, reach }
    }

    #[test]
    fn the_innermost_root_decides() {
        use Denied::{Kernel, Outside, Private};
        let cases = [
            ("/home/g/ws", Ok(()), Ok(())),
            ("/home/g/ws/a/b.txt", Ok(()), Ok(())),
            ("/home/g/ws/sessions", Err(Private), Err(Private)),
            ("/home/g/ws/sessions/a.jsonl", Err(Private), Err(Private)),
            ("/home/g/ws/sessions-old/a.jsonl", Ok(()), Ok(())),
            ("/home/g/journal/1", Err(Private), Err(Private)),
            ("/home/g/ws-evil/a", Err(Private), Err(Private)),
            ("/home/g", Err(Private), Err(Private)),
            ("/etc/g.json", Err(Private), Err(Private)),
            ("/etc/passwd", Err(Outside), Ok(())),
            ("/home/ws-evil", Err(Outside), Ok(())),
            ("/", Err(Outside), Ok(())),
            ("/proc/self/environ", Err(Outside), Err(Kernel)),
            ("/dev/zero", Err(Outside), Err(Kernel)),
        ];
        for (path, restricted, open) in cases {
            assert_eq!(policy(Reach::Workspace).judge(Path::new(path)), restricted, "{path}");
            assert_eq!(policy(Reach::Anywhere).judge(Path::new(path)), open, "{path}");
        }
    }

    #[test]
    fn a_sibling_with_the_same_beginning_is_outside() {
        let policy = Policy { workspace: "/ws".into(), readable: Vec::new(), private: vec![], reach: Reach::Workspace };
        assert_eq!(policy.judge(Path::new("/ws/x")), Ok(()));
        assert_eq!(policy.judge(Path::new("/ws-evil/x")), Err(Denied::Outside));
        assert_eq!(policy.judge(Path::new("/wsx")), Err(Denied::Outside));
    }

    #[test]
    fn a_workspace_that_is_itself_private_is_closed() {
        let policy = Policy {
            workspace: "/ws".into(),
            readable: Vec::new(),
            private: vec!["/ws".into()],
            reach: Reach::Workspace,
        };
        assert_eq!(policy.judge(Path::new("/ws/x")), Err(Denied::Private));
    }
}
