//! Results that are too long for the model.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use domain::ids::{Attempt, Epoch, SessionKey, ToolCallId, TurnId};
use domain::keys::SessionKind;
use domain::policy::{Access, Policies, Policy};
use futures::FutureExt;
use protocol::tools::ToolEnd;
use protocol::turn::Stamp;
use serde_json::json;
use testkit::deadline::run;
use testkit::workspace::TempWorkspace;

use super::calls::made;
use super::{Bench, config, texts};
use crate::offload::{Long, Offload};
use crate::paths::Reach;
use crate::place::Fence;
use crate::{Catalog, Outcome, SandboxChoice, SandboxMode, Tool, probe_sandbox};

const PLACE: &str = "workspace/.greenroom/tool-results";
const DAY: u64 = 24 * 3600;

/// A tool that gives so many characters, the last of them `z`.
fn gives(name: &'static str, chars: usize, end: ToolEnd) -> Arc<dyn Tool> {
    made(name, move |_| async move { Outcome::ended(end, "ä".repeat(chars - 1) + "z") }.boxed())
}

fn bench(sandbox: SandboxChoice) -> Bench {
    let tools = vec![
        gives("fits", 16_000, ToolEnd::Ok),
        gives("much", 16_001, ToolEnd::Ok),
        gives("fails", 16_001, ToolEnd::Error),
        gives("read_file", 16_001, ToolEnd::Ok),
        made("pieces", |_| async { Outcome::of(texts(&["a", &"b".repeat(16_000)])) }.boxed()),
    ];
    Bench::with(sandbox, tools)
}

/// The file that a result names, relative to the workspace, and what is shown of its text.
fn named(text: &str) -> (&str, &str) {
    let rest = text.strip_prefix("[tool output persisted]\npath: ").unwrap_or_else(|| panic!("no reference: {text}"));
    let (path, rest) = rest.split_once("\nsize: 16001 characters\npreview:\n").unwrap();
    (path, rest)
}

fn files(home: &TempWorkspace) -> Vec<PathBuf> {
    let below = |path: PathBuf| std::fs::read_dir(path).into_iter().flatten().map(|entry| entry.unwrap().path());
    below(home.path(PLACE)).flat_map(below).collect()
}

#[test]
fn a_result_beyond_the_bound_is_kept_and_shown_by_its_beginning() {
    run("kept", async {
        let mut bench = bench(SandboxChoice::Off);
        let (_, text) = bench.call("fits", json!({})).await;
        assert_eq!(text, "ä".repeat(15_999) + "z");
        assert!(files(&bench.home).is_empty());
        let (_, text) = bench.call("much", json!({})).await;
        let (path, preview) = named(&text);
        assert_eq!(preview, "ä".repeat(1200));
        assert_eq!(path, ".greenroom/tool-results/cli.direct/00000000-0000-0000-0000-000000000000.1.2.call-1.txt");
        assert_eq!(bench.home.read(&format!("workspace/{path}")), "ä".repeat(16_000) + "z");
        let (_, text) = bench.call("pieces", json!({})).await;
        assert!(text.contains("preview:\na\nbbbb"), "{text}");
        let (end, text) = bench.call("fails", json!({})).await;
        assert_eq!(end, ToolEnd::Error);
        let advice = "\n\n[Analyze the error above and try a different approach.]";
        assert_eq!(named(&text).1, "ä".repeat(1200) + advice);
    });
}

#[test]
fn what_shows_the_files_makes_none() {
    run("reader", async {
        let mut bench = bench(SandboxChoice::Off);
        let (_, text) = bench.call("read_file", json!({})).await;
        assert!(text.contains("1 characters left out") && files(&bench.home).is_empty(), "{text}");
    });
}

#[test]
fn a_result_that_cannot_be_kept_is_cut() {
    run("cut", async {
        // Something lies where the directory should be: a file, or a link that leads to what is private.
        for link in [false, true] {
            let mut bench = bench(SandboxChoice::Off);
            let place = bench.home.path("workspace/.greenroom");
            if link {
                std::os::unix::fs::symlink(bench.home.path("workspace/sessions"), place).unwrap();
            } else {
                File::create(place).unwrap();
            }
            let (end, text) = bench.call("much", json!({})).await;
            assert_eq!(end, ToolEnd::Ok);
            assert!(text.contains("1 characters left out") && text.ends_with('z'), "{text}");
            assert!(!bench.home.path("workspace/sessions/tool-results").exists());
        }
    });
}

#[test]
fn a_session_that_could_not_read_the_file_gets_both_ends() {
    run("closed", async {
        for (workspace, profile) in
            [(Access::None, domain::policy::Profile::Full), (Access::Write, domain::policy::Profile::Minimal)]
        {
            let home = TempWorkspace::new();
            let mut config = config(&home, SandboxChoice::Off);
            config.result_chars_max = 100;
            let mut own = Policy::default_of(SessionKind::Group);
            own.workspace = workspace;
            own.tools = vec![domain::policy::ToolRule::profile(profile)];
            config.policies = Arc::new(Policies::new("main", [(SessionKind::Group, own)]));
            let builder = Catalog::builder(config).with(gives("session_status", 1000, ToolEnd::Ok));
            let mut bench = Bench::over(home, Arc::new(builder.build()));
            bench.be("telegram:-100", "telegram:default");
            let (_, text) = bench.call("session_status", json!({})).await;
            assert!(text.contains("900 characters left out") && files(&bench.home).is_empty(), "{text}");
        }
    });
}

#[test]
fn a_command_in_the_sandbox_reads_what_was_kept() {
    if let SandboxMode::Unavailable { .. } = probe_sandbox() {
        return;
    }
    run("sandbox", async {
        let mut bench = bench(SandboxChoice::Auto);
        let (_, text) = bench.call("much", json!({})).await;
        let (_, shown) = bench.exec(&format!("tail -c 1 {}; echo; ls -A", named(&text).0)).await;
        assert!(shown.starts_with("z\n.greenroom\n"), "{shown}");
    });
}

fn offload(home: &TempWorkspace) -> Offload {
    let (workspace, sessions) = (home.workspace(), home.path("workspace/sessions"));
    Offload::new(Arc::new(Fence {
        workspace,
        readable: Vec::new(),
        attachments: Vec::new(),
        sessions,
        forbidden: vec![],
        reach: Reach::Anywhere,
        only: None,
        kept: Vec::new(),
        seen: Arc::default(),
    }))
}

fn keep(offload: &Offload, key: &str, place: (u128, u32, u32), call: &str) -> String {
    let stamp = Stamp {
        epoch: Epoch(1),
        turn: TurnId(uuid::Uuid::from_u128(place.0)),
        attempt: Attempt(place.1),
        round: place.2,
    };
    let (key, call) = (SessionKey::new(key).unwrap(), ToolCallId(call.into()));
    let long = Long { key, stamp, call, text: format!("{place:?}"), nonce: 7 };
    let shown = offload.keep(&long, 4000).unwrap();
    shown.lines().nth(1).unwrap().strip_prefix("path: ").unwrap().to_owned()
}

#[test]
fn an_id_that_comes_again_overwrites_nothing() {
    let home = TempWorkspace::new();
    let offload = offload(&home);
    let places = [(1, 1, 1), (1, 1, 2), (1, 2, 1), (2, 1, 1)];
    let paths = places.map(|place| keep(&offload, "cli:direct", place, "call_0"));
    for (place, path) in places.iter().zip(&paths) {
        assert_eq!(home.read(&format!("workspace/{path}")), format!("{place:?}"));
    }
    assert_eq!(files(&home).len(), 4);
}

#[test]
fn no_id_and_no_key_leads_elsewhere() {
    let home = TempWorkspace::new();
    let offload = offload(&home);
    for (key, call) in
        [("a:/../x", "../x"), ("a:b", "/etc/passwd"), ("a:b", "\u{0}"), ("a:b", ""), ("a:b", &"x".repeat(900))]
    {
        let path = keep(&offload, key, (1, 1, 1), call);
        let parts: Vec<_> = Path::new(&path).components().collect();
        assert_eq!(parts.len(), 4, "{path}");
        assert!(home.workspace().join(&path).is_file() && path.len() < 500, "{path}");
    }
    assert_eq!(files(&home).len(), 5);
}

/// Makes a file of a bucket look that old.
fn age(path: &Path, now: SystemTime, seconds: u64) {
    File::open(path).unwrap().set_modified(now - Duration::from_secs(seconds)).unwrap();
}

#[test]
fn files_go_after_a_week_and_so_do_those_of_too_many_sessions() {
    let home = TempWorkspace::new();
    let offload = offload(&home);
    let now_ms = supervision::real::real_ports(1).unwrap().clock.wall_ms();
    let now = SystemTime::UNIX_EPOCH + Duration::from_millis(now_ms);
    // No place yet.
    offload.sweep(now_ms).unwrap();
    // The older the higher the number; the last is beyond a week, the first 40 are of this hour.
    let ages: Vec<u64> = (0..40).map(|_| 60).chain((1..=5).map(|n| n * DAY)).chain([8 * DAY]).collect();
    for (at, seconds) in ages.iter().enumerate() {
        let path = home.workspace().join(keep(&offload, &format!("a:{at}"), (1, 1, 1), "c"));
        age(&path, now, *seconds);
        age(path.parent().unwrap(), now, *seconds);
    }
    offload.sweep(now_ms).unwrap();
    assert_eq!(files(&home).len(), 40, "those of this hour stay, all others are too many");
    // Few, of which one has an old file beside a new one, and one is old.
    for at in 0..38 {
        std::fs::remove_dir_all(home.path(&format!("{PLACE}/a.{at}"))).unwrap();
    }
    let old = home.workspace().join(keep(&offload, "a:38", (9, 1, 1), "old"));
    age(&old, now, 8 * DAY);
    age(&home.path(&format!("{PLACE}/a.39")), now, 8 * DAY);
    age(
        &files(&home).into_iter().find(|path| path.starts_with(home.path(&format!("{PLACE}/a.39")))).unwrap(),
        now,
        8 * DAY,
    );
    // What a link leads to is not ours.
    home.write("other/file", "theirs");
    age(&home.path("other/file"), now, 9 * DAY);
    std::os::unix::fs::symlink(home.path("other"), home.path(&format!("{PLACE}/link"))).unwrap();
    offload.sweep(now_ms).unwrap();
    assert_eq!(files(&home).len(), 2, "{:?}", files(&home));
    assert!(!old.exists() && home.path("other/file").exists() && !home.path(&format!("{PLACE}/a.39")).exists());
}

#[test]
fn one_of_all_arbiters_looks_once_an_hour() {
    let offload = offload(&TempWorkspace::new());
    let hour = 3_600_000;
    assert_eq!([5, 5, hour, 5 + hour, 5 + hour].map(|now| offload.due(now)), [true, false, false, true, false]);
}
