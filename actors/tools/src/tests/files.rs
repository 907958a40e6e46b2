//! The file tools, and the fence around them.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::sync::Arc;

use protocol::tools::ToolEnd;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::{Value, json};
use testkit::deadline::run;
use testkit::workspace::TempWorkspace;

use super::Bench;
use crate::paths::Reach;
use crate::place::{Fence, PathError};

async fn refused(bench: &mut Bench, tool: &str, arguments: Value, wanted: &str) {
    let (end, text) = bench.call(tool, arguments.clone()).await;
    assert_eq!(end, ToolEnd::Error, "{tool} {arguments}: {text}");
    assert!(text.contains(wanted), "{tool} {arguments}: {text}");
    assert!(!text.contains("private\n"), "{text}");
}

fn fence(home: &TempWorkspace, reach: Reach) -> Fence {
    let (workspace, sessions) = (home.workspace(), home.path("workspace/sessions"));
    Fence {
        workspace,
        readable: Vec::new(),
        attachments: Vec::new(),
        sessions,
        forbidden: vec![home.path("journal")],
        reach,
        only: None,
        kept: Vec::new(),
        seen: Arc::default(),
    }
}

#[test]
fn lines_are_numbered_and_the_footer_says_how_to_go_on() {
    run("read", async {
        let mut bench = Bench::new();
        let many: String = (1..=3000).map(|n| format!("line {n}\n")).collect();
        for (name, text) in [
            ("a.txt", "one\r\ntwo\r\n\r\nfour"),
            ("empty", ""),
            ("newline", "\n"),
            ("many", &many),
            ("wide", &"é".repeat(200_000)),
        ] {
            bench.home.write(&format!("workspace/{name}"), text);
        }
        let cases = [
            (json!({"path": "a.txt"}), "1| one\n2| two\n3| \n4| four\n\n(End of file, 4 lines)"),
            (json!({"path": "a.txt", "offset": 2, "limit": 1}), "2| two\n\n(Lines 2 to 2 of 4; go on with offset=3)"),
            (json!({"path": "empty"}), "(`empty` is empty)"),
            (json!({"path": "newline"}), "1| \n\n(End of file, 1 line)"),
        ];
        for (arguments, wanted) in cases {
            assert_eq!(bench.call("read_file", arguments).await, (ToolEnd::Ok, wanted.to_owned()));
        }
        let (_, text) = bench.call("read_file", json!({"path": "many", "limit": 1500})).await;
        let next = text.rsplit_once("offset=").unwrap().1.trim_end_matches(')').parse::<u64>().unwrap();
        let (_, text) = bench.call("read_file", json!({"path": "many", "offset": next, "limit": 1})).await;
        assert!(text.starts_with(&format!("{next}| line {next}\n")), "{text}");
        let (_, text) = bench.call("read_file", json!({"path": "wide"})).await;
        assert!(text.contains("é ... (line cut)") && text.chars().count() <= 16_000, "{}", text.chars().count());
        refused(
            &mut bench,
            "read_file",
            json!({"path": "a.txt", "offset": 9}),
            "beyond the end of `a.txt`, which has 4",
        )
        .await;
    });
}

#[test]
fn what_is_no_text_file_is_refused() {
    run("no text", async {
        let mut bench = Bench::new();
        bench.home.write("workspace/bin", [b'a', 0, b'b']);
        bench.home.write("workspace/latin", [b'a', 0xE9, b'b']);
        let large = std::fs::File::create(bench.home.path("workspace/large")).unwrap();
        large.set_len(101 * 1024 * 1024).unwrap();
        mknodat(CWD, bench.home.path("workspace/pipe"), FileType::Fifo, Mode::RWXU, 0).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(bench.home.path("workspace/socket")).unwrap();
        for (path, wanted) in [
            ("bin", "binary"),
            ("large", "at most 104857600 can be read"),
            ("pipe", "`pipe` is not a regular file"),
            ("socket", "`socket` is not a regular file"),
            (".", "`.` is a directory"),
            ("nothing", "`nothing` does not exist"),
            ("bin/x", "is not a directory"),
            ("a\u{0}b", "NUL"),
        ] {
            refused(&mut bench, "read_file", json!({"path": path}), wanted).await;
        }
        let (_, text) = bench.call("read_file", json!({"path": "latin"})).await;
        assert!(text.starts_with("1| a\u{FFFD}b\n"), "{text}");
    });
}

#[test]
fn nothing_private_or_outside_can_be_touched() {
    run("fence", async {
        let mut bench = Bench::new();
        let workspace = bench.home.workspace();
        bench.home.write("workspace-evil/a", "private");
        bench.home.write("workspace/dir/a", "fine");
        symlink(bench.home.path("journal"), workspace.join("to-journal")).unwrap();
        symlink("sessions/a.jsonl", workspace.join("to-session")).unwrap();
        symlink("/etc", workspace.join("to-etc")).unwrap();
        symlink("nowhere", workspace.join("dangling")).unwrap();
        symlink("loop", workspace.join("loop")).unwrap();
        symlink("dir", workspace.join("to-dir")).unwrap();
        let home = bench.home.home().display().to_string();
        let outside = "is outside the workspace";
        let private = "is kept by the gateway for itself";
        for (path, wanted) in [
            ("../config.json".to_owned(), private),
            ("dir/../../journal/1".to_owned(), private),
            (format!("{home}/journal/1"), private),
            (format!("{home}/workspace/sessions/a.jsonl"), private),
            ("sessions/a.jsonl".to_owned(), private),
            ("./dir/../sessions/new.jsonl".to_owned(), private),
            ("to-journal/1".to_owned(), private),
            ("to-session".to_owned(), private),
            ("../workspace-evil/a".to_owned(), outside),
            (format!("{home}/workspace-evil/a"), outside),
            ("to-etc/passwd".to_owned(), outside),
            ("/etc/passwd".to_owned(), outside),
            ("/proc/self/environ".to_owned(), outside),
            ("missing/../../journal/1".to_owned(), "does not exist"),
            ("loop".to_owned(), "a link that leads nowhere"),
        ] {
            refused(&mut bench, "read_file", json!({"path": path}), wanted).await;
            refused(&mut bench, "write_file", json!({"path": path, "content": "x"}), wanted).await;
        }
        for (path, wanted) in [("sessions", private), ("to-journal", private), ("..", outside), ("/", outside)] {
            refused(&mut bench, "list_dir", json!({"path": path}), wanted).await;
        }
        refused(&mut bench, "write_file", json!({"path": "dangling", "content": "x"}), "leads nowhere").await;
        assert_eq!(bench.call("read_file", json!({"path": "to-dir/a"})).await.1, "1| fine\n\n(End of file, 1 line)");
        assert_eq!(bench.home.read("journal/1"), "private");
        assert_eq!(bench.home.read("workspace-evil/a"), "private");
    });
}

#[test]
fn a_link_that_appears_after_the_check_is_not_followed() {
    let home = TempWorkspace::new();
    home.write("journal/1", "private");
    home.write("workspace/dir/1", "fine");
    let fence = fence(&home, Reach::Workspace);
    let target = fence.locate("dir/1").unwrap();
    let new = fence.locate("dir/2").unwrap();
    std::fs::rename(home.path("workspace/dir"), home.path("workspace/old")).unwrap();
    symlink(home.path("journal"), home.path("workspace/dir")).unwrap();
    assert!(matches!(target.open_file(), Err(PathError::NotDirectory(_) | PathError::Unsteady(_))));
    assert!(matches!(new.open_parent(0o755), Err(PathError::NotDirectory(_) | PathError::Unsteady(_))));

    std::fs::remove_file(home.path("workspace/dir")).unwrap();
    std::fs::rename(home.path("journal"), home.path("workspace/dir")).unwrap();
    symlink(home.path("workspace/dir"), home.path("journal")).unwrap();
    let moved = fence.locate("dir/1");
    assert!(matches!(moved, Err(PathError::Private(_))), "{moved:?}");
}

#[test]
fn an_open_reach_still_ends_at_what_is_private() {
    let home = TempWorkspace::new();
    home.write("journal/1", "private");
    let elsewhere = TempWorkspace::new();
    elsewhere.write("a", "fine");
    let fence = fence(&home, Reach::Anywhere);
    let path = elsewhere.path("a").display().to_string();
    assert!(fence.locate(&path).unwrap().open_file().is_ok());
    assert!(matches!(fence.locate("../journal/1"), Err(PathError::Private(_))));
    assert!(matches!(fence.locate("/proc/self/environ"), Err(PathError::Kernel(_))));
}

#[test]
fn a_write_replaces_all_or_nothing() {
    run("write", async {
        let mut bench = Bench::new();
        let (end, text) = bench.call("write_file", json!({"path": "a/b/c.txt", "content": "hällo"})).await;
        assert_eq!((end, text.as_str()), (ToolEnd::Ok, "Wrote `a/b/c.txt` (6 bytes)"));
        assert_eq!(bench.home.read("workspace/a/b/c.txt"), "hällo");
        let path = bench.home.path("workspace/a/b/c.txt");
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o754)).unwrap();
        symlink("c.txt", bench.home.path("workspace/a/b/link")).unwrap();
        let (_, text) = bench.call("write_file", json!({"path": "a/b/link", "content": "new"})).await;
        assert_eq!(text, "Rewrote `a/b/c.txt` (3 bytes)");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o754);
        assert!(std::fs::symlink_metadata(bench.home.path("workspace/a/b/link")).unwrap().is_symlink());
        mknodat(CWD, bench.home.path("workspace/pipe"), FileType::Fifo, Mode::RWXU, 0).unwrap();
        for (path, wanted) in [
            ("a/b", "is a directory"),
            ("a/", "is a directory"),
            (".", "is a directory"),
            ("a/b/c.txt/d", "is not a directory"),
            ("pipe", "is not a regular file"),
            ("", "the path is empty"),
        ] {
            refused(&mut bench, "write_file", json!({"path": path, "content": "x"}), wanted).await;
        }
        let left: Vec<_> = std::fs::read_dir(bench.home.path("workspace/a/b")).unwrap().collect();
        assert_eq!(left.len(), 2, "{left:?}");
    });
}

#[test]
fn a_directory_is_listed_in_order_without_what_is_private() {
    run("list", async {
        let mut bench = Bench::new();
        for path in ["b/z", "b/a/deep", "a", "node_modules/x", ".git/x", "c-d"] {
            bench.home.write(&format!("workspace/{path}"), "");
        }
        symlink("b", bench.home.path("workspace/link")).unwrap();
        let cases = [
            (json!({"path": "."}), "a\nb/\nc-d\nlink@\n"),
            (json!({"path": ".", "recursive": true}), "a\nb/\nb/a/\nb/a/deep\nb/z\nc-d\nlink@\n"),
            (json!({"path": "b"}), "a/\nz\n"),
            (json!({"path": "link"}), "a/\nz\n"),
            (json!({"path": ".", "recursive": true, "max_entries": 2}), "a\nb/\n\n(The first 2 of 7 entries)"),
        ];
        for (arguments, wanted) in cases {
            assert_eq!(bench.call("list_dir", arguments).await, (ToolEnd::Ok, wanted.to_owned()));
        }
        std::fs::create_dir(bench.home.path("workspace/empty")).unwrap();
        assert_eq!(bench.call("list_dir", json!({"path": "empty"})).await.1, "(`empty` is empty)");
        refused(&mut bench, "list_dir", json!({"path": "a"}), "`a` is not a directory").await;
        refused(&mut bench, "list_dir", json!({"path": "nothing"}), "`nothing` does not exist").await;
    });
}

#[test]
fn a_missing_workspace_is_said() {
    run("no workspace", async {
        let mut bench = Bench::new();
        std::fs::remove_dir_all(bench.home.workspace()).unwrap();
        refused(&mut bench, "read_file", json!({"path": "a"}), "the workspace is not usable").await;
        refused(&mut bench, "exec", json!({"command": "true"}), "the workspace is not usable").await;
    });
}
