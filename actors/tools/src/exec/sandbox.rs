//! The sandbox: whether there is one, and the command line that puts a command into it.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use domain::policy::Access;

use crate::paths::Policy;

/// Isolation that every sandboxed command gets: all namespaces its own, nobody's capabilities, no nested user
/// namespace, no terminal to push input into, no life after the gateway's.
const ISOLATION: [&str; 12] = [
    "--unshare-all",
    "--unshare-user",
    "--uid",
    "1000",
    "--gid",
    "1000",
    "--cap-drop",
    "ALL",
    "--disable-userns",
    "--new-session",
    "--die-with-parent",
    "--hostname",
];
const HOSTNAME: &str = "sandbox";

/// Read-only parts of the system, where they exist; links are made again as links.
const SYSTEM: [&str; 22] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/nix/store",
    "/etc/alternatives",
    "/etc/ca-certificates",
    "/etc/group",
    "/etc/inputrc",
    "/etc/java",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/localtime",
    "/etc/mime.types",
    "/etc/nsswitch.conf",
    "/etc/passwd",
    "/etc/pki",
    "/etc/ssl",
];

/// What names of other machines are looked up with.
const RESOLVER: [&str; 2] = ["/etc/resolv.conf", "/etc/hosts"];

/// Processes of one sandbox, threads included.
const PROCESSES_MAX: u32 = 4096;
/// Blocks of one file: 4 GiB in bash, 2 GiB in other shells.
const FILE_BLOCKS_MAX: u32 = 4 * 1024 * 1024;

/// What the configuration asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SandboxChoice {
    /// The best one there is; no command runs without.
    Auto,
    /// Bubblewrap.
    Bubblewrap,
    /// None: commands run with all rights of the gateway's user.
    Off,
}

/// What this machine offers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SandboxMode {
    /// Bubblewrap works.
    Bubblewrap {
        /// As it names itself, for example `bubblewrap 0.8.0`.
        version: String,
    },
    /// There is none.
    Unavailable {
        /// Why, for a person.
        reason: String,
    },
}

/// Tries the sandbox once per process and remembers the outcome. Blocks the first time.
pub fn probe_sandbox() -> SandboxMode {
    static MODE: OnceLock<SandboxMode> = OnceLock::new();
    MODE.get_or_init(probe).clone()
}

fn probe() -> SandboxMode {
    let version = match run("bwrap", &["--version".into()]) {
        Ok(version) => version.trim().to_owned(),
        Err(reason) => return SandboxMode::Unavailable { reason },
    };
    let mut arguments: Vec<OsString> = isolation();
    arguments.extend(system(|path| std::fs::read_link(path).ok(), Path::exists).into_iter().flat_map(|op| op.words));
    arguments
        .extend(["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--", "/bin/sh", "-c", ":"].map(Into::into));
    match run("bwrap", &arguments) {
        Ok(_) => SandboxMode::Bubblewrap { version },
        Err(reason) => SandboxMode::Unavailable { reason: format!("{version} does not work: {reason}") },
    }
}

fn run(program: &str, arguments: &[OsString]) -> Result<String, String> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let output = output.map_err(|error| {
        if error.kind() == std::io::ErrorKind::NotFound {
            format!("{program} is not installed")
        } else {
            format!("{program} cannot be started: {error}")
        }
    })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    Err(errors.lines().next().unwrap_or("it failed without a message").to_owned())
}

/// A script that lowers limits and becomes `$0 -c "$1"`.
pub(super) fn limits(sandboxed: bool) -> String {
    // Outside, the number of processes counts everything else that the user runs.
    let processes = if sandboxed { format!("ulimit -u {PROCESSES_MAX}; ") } else { String::new() };
    format!("{{ ulimit -c 0; ulimit -f {FILE_BLOCKS_MAX}; {processes}}} 2>/dev/null; exec \"$0\" -c \"$1\"")
}

/// What a sandbox is made for.
pub(super) struct Plan<'a> {
    pub(super) policy: &'a Policy,
    /// What the command sees of the workspace.
    pub(super) access: Access,
    /// Whether it reaches the network.
    pub(super) network: bool,
    pub(super) cwd: &'a Path,
    /// Environment variable that marks the call's processes, and its value.
    pub(super) marker: (&'a OsStr, &'a OsStr),
}

/// `command` inside a sandbox. Looks at the file system; blocks.
pub(super) fn wrap(plan: &Plan<'_>, command: Vec<OsString>) -> Result<Vec<OsString>, String> {
    let facts = Facts {
        link: |path: &Path| std::fs::read_link(path).ok(),
        kind: |path: &Path| match std::fs::metadata(path) {
            Ok(found) if found.is_dir() => Kind::Directory,
            Ok(_) => Kind::File,
            Err(_) => Kind::Missing,
        },
    };
    arguments(plan, command, &facts)
}

/// What the arguments depend on, as functions, so that they can be tested without a machine.
struct Facts<L, K> {
    link: L,
    kind: K,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Missing,
    File,
    Directory,
}

/// One mount and its place.
struct Op {
    at: PathBuf,
    words: Vec<OsString>,
}

// === impl Op ===

impl Op {
    /// Whether it shows something of the machine.
    fn shows(&self) -> bool {
        self.words.first().is_some_and(|word| word == "--bind" || word == "--ro-bind")
    }
}

fn arguments(
    plan: &Plan<'_>,
    command: Vec<OsString>,
    facts: &Facts<impl Fn(&Path) -> Option<PathBuf>, impl Fn(&Path) -> Kind>,
) -> Result<Vec<OsString>, String> {
    let workspace = &plan.policy.workspace;
    if workspace.parent().is_none() {
        return Err("commands cannot be isolated in a workspace that is the whole file system".to_owned());
    }
    let mut ops = system(&facts.link, |path| (facts.kind)(path) != Kind::Missing);
    ops.push(op("--proc", Path::new("/proc")));
    ops.push(op("--dev", Path::new("/dev")));
    ops.push(op("--tmpfs", Path::new("/tmp")));
    let bind = match plan.access {
        Access::None => None,
        Access::Read => Some("--ro-bind"),
        Access::Write => Some("--bind"),
    };
    ops.extend(bind.map(|bind| bound(bind, workspace)));
    if bind.is_some() {
        ops.extend(plan.policy.readable.iter().map(|readable| bound("--ro-bind", readable)));
    }
    if plan.network {
        ops.extend(RESOLVER.map(|path| bound("--ro-bind-try", Path::new(path))));
    }
    let visible: Vec<PathBuf> = ops.iter().filter(|op| op.shows()).map(|op| op.at.clone()).collect();
    let mut sealed: Vec<OsString> = vec!["--remount-ro".into(), "/".into()];
    // What lies elsewhere does not exist in the sandbox, not even as a name.
    for private in plan.policy.private.iter().filter(|path| visible.iter().any(|root| path.starts_with(root))) {
        match (facts.kind)(private) {
            Kind::Directory => {
                ops.push(op("--tmpfs", private));
                sealed.extend(["--remount-ro".into(), private.into()]);
            }
            Kind::File => {
                ops.push(Op {
                    at: private.clone(),
                    words: vec!["--ro-bind".into(), "/dev/null".into(), private.into()],
                });
            }
            Kind::Missing => {}
        }
    }
    // Outer ones first, so that each lies upon what it is inside of; of two for the same place the later one stays.
    ops.sort_by_key(|op| op.at.components().count());
    let mut all: Vec<OsString> = vec!["bwrap".into()];
    all.extend(isolation());
    all.extend(plan.network.then(|| "--share-net".into()));
    all.extend(ops.into_iter().flat_map(|op| op.words));
    all.extend(sealed);
    all.extend(["--setenv".into(), plan.marker.0.into(), plan.marker.1.into()]);
    all.extend(["--chdir".into(), plan.cwd.into(), "--".into()]);
    all.extend(command);
    Ok(all)
}

fn isolation() -> Vec<OsString> {
    ISOLATION.iter().map(Into::into).chain([HOSTNAME.into()]).collect()
}

fn system(link: impl Fn(&Path) -> Option<PathBuf>, exists: impl Fn(&Path) -> bool) -> Vec<Op> {
    let mut ops = Vec::new();
    for place in SYSTEM.map(Path::new) {
        let words: Vec<OsString> = match link(place) {
            Some(to) => vec!["--symlink".into(), to.into(), place.into()],
            None if exists(place) => vec!["--ro-bind".into(), place.into(), place.into()],
            None => continue,
        };
        ops.push(Op { at: place.to_owned(), words });
    }
    ops
}

fn bound(word: &str, at: &Path) -> Op {
    Op { at: at.to_owned(), words: vec![word.into(), at.into(), at.into()] }
}

fn op(word: &str, at: &Path) -> Op {
    Op { at: at.to_owned(), words: vec![word.into(), at.into()] }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paths::Reach;

    fn made(workspace: &str, private: &[&str]) -> Result<String, String> {
        made_for(workspace, private, Access::Write, false)
    }

    fn made_for(workspace: &str, private: &[&str], access: Access, network: bool) -> Result<String, String> {
        let private = private.iter().map(PathBuf::from).collect();
        let policy = Policy { workspace: workspace.into(), readable: Vec::new(), private, reach: Reach::Workspace };
        let marker = (OsStr::new("CALL"), OsStr::new("7"));
        let plan = Plan { policy: &policy, access, network, cwd: Path::new(workspace), marker };
        let facts = Facts {
            link: |path: &Path| (path == Path::new("/bin")).then(|| PathBuf::from("usr/bin")),
            kind: |path: &Path| match path.to_str() {
                Some("/usr") => Kind::Directory,
                Some(path) if path.ends_with(".json") => Kind::File,
                Some(path) if path.starts_with("/home") && !path.ends_with("gone") => Kind::Directory,
                Some(_) | None => Kind::Missing,
            },
        };
        let words = arguments(&plan, vec!["sh".into()], &facts)?;
        let words: Vec<_> = words.iter().map(|word| word.to_str().unwrap()).collect();
        let text = words.join(" ");
        Ok(text.split_once(" --hostname sandbox ").unwrap().1.to_owned())
    }

    #[test]
    fn private_places_lie_upon_the_workspace_and_nothing_else_is_named() {
        let private = ["/home/g/ws/sessions", "/home/g/ws/keys.json", "/home/g/journal", "/home/g/ws/gone", "/home/g"];
        assert_eq!(
            made("/home/g/ws", &private).unwrap(),
            "--ro-bind /usr /usr --symlink usr/bin /bin --proc /proc --dev /dev --tmpfs /tmp \
             --bind /home/g/ws /home/g/ws --tmpfs /home/g/ws/sessions --ro-bind /dev/null /home/g/ws/keys.json \
             --remount-ro / --remount-ro /home/g/ws/sessions --setenv CALL 7 --chdir /home/g/ws -- sh"
        );
    }

    #[test]
    fn a_workspace_inside_something_private_lies_upon_it() {
        let text = made("/home", &["/home/u/.g"]).unwrap();
        assert!(text.contains("--bind /home /home --tmpfs /home/u/.g --remount-ro /"), "{text}");
    }

    #[test]
    fn a_session_sees_of_workspace_and_network_what_it_may() {
        let made = |access, network| made_for("/home/w", &["/home/w/sessions"], access, network).unwrap();
        let read = made(Access::Read, false);
        assert!(read.contains("--ro-bind /home/w /home/w --tmpfs /home/w/sessions"), "{read}");
        let none = made(Access::None, true);
        assert!(!none.contains("bind /home/w") && !none.contains("sessions"), "{none}");
        assert!(none.starts_with("--share-net "), "{none}");
        assert!(none.contains("--ro-bind-try /etc/resolv.conf /etc/resolv.conf"), "{none}");
        assert!(!read.contains("share-net") && !read.contains("resolv"), "{read}");
    }

    #[test]
    fn the_whole_file_system_is_no_workspace() {
        assert!(made("/", &[]).is_err());
    }
}
