//! What sessions of each kind may do with the real tools.

use std::sync::Arc;

use domain::keys::SessionKind;
use domain::policy::{Access, Policies, Policy, Profile, SandboxLevel, ToolRule};
use protocol::tools::ToolEnd;
use serde_json::{Value, json};
use testkit::deadline::run;
use testkit::workspace::TempWorkspace;

use super::{Bench, config};
use crate::{Catalog, SandboxChoice, SandboxMode, probe_sandbox};

/// A session of each kind, and the door of its messages.
const SESSIONS: [(&str, &str); 13] = [
    ("agent:main:main", "cli"),
    ("cli:direct", "cli"),
    ("api:default", "api"),
    ("websocket:c", "ws"),
    ("agent:main:cron:job", "cron"),
    ("heartbeat", "heartbeat"),
    ("dream:20261130-090000", "cron"),
    ("telegram:5", "telegram:default"),
    ("telegram:-100", "telegram:default"),
    ("telegram:-100:topic:7", "telegram:default"),
    ("hook:1", "hook"),
    ("agent:main:subagent:1", "run"),
    ("nonsense", "ws"),
];

/// All tools open to sessions of that kind, with that much of the workspace.
fn open_to(kind: SessionKind, sandbox: SandboxLevel, workspace: Access) -> (SessionKind, Policy) {
    let tools = vec![ToolRule::profile(Profile::Full)];
    (kind, Policy { tools, sandbox, network: false, workspace, writes: None, model: None })
}

fn bench(sandbox: SandboxChoice, own: impl IntoIterator<Item = (SessionKind, Policy)>) -> Bench {
    let home = TempWorkspace::new();
    home.write("workspace/sessions/a.jsonl", "private");
    home.write("workspace/notes", "ours\n");
    home.write("outside", "theirs\n");
    let mut config = config(&home, sandbox);
    config.policies = Arc::new(Policies::new("main", own));
    Bench::over(home, Arc::new(Catalog::builder(config).build()))
}

async fn refused(bench: &mut Bench, tool: &str, arguments: Value, why: &str) {
    let (end, text) = bench.call(tool, arguments).await;
    assert_eq!(end, ToolEnd::Error, "{tool}: {text}");
    assert!(text.contains(why), "{tool}: {text}");
}

#[test]
fn a_group_is_refused_what_the_owner_in_the_terminal_may_do() {
    run("group", async {
        let mut bench = bench(SandboxChoice::Off, []);
        bench.be("telegram:-100", "telegram:default");
        for (tool, arguments) in [
            ("exec", json!({"command": "echo hi > made"})),
            ("write_file", json!({"path": "made", "content": "x"})),
            ("read_file", json!({"path": "notes"})),
            ("list_dir", json!({"path": "."})),
        ] {
            refused(&mut bench, tool, arguments, "is not open to this session: the tool profile `minimal` has it not")
                .await;
        }
        refused(&mut bench, "nothing", json!({}), "Tools: none").await;
        assert!(!bench.home.path("workspace/made").exists());
        bench.be("cli:direct", "cli");
        let (end, text) = bench.exec("echo hi > made; cat notes").await;
        assert_eq!((end, text.as_str()), (ToolEnd::Ok, "ours\nExit code: 0"));
        let (end, text) = bench.call("write_file", json!({"path": "made", "content": "x"})).await;
        assert_eq!((end, text.as_str()), (ToolEnd::Ok, "Rewrote `made` (1 byte)"));
        // The owner's session, but somebody else's message.
        bench.be("agent:main:main", "telegram:default");
        refused(&mut bench, "exec", json!({"command": "true"}), "not open to this session").await;
    });
}

#[test]
fn no_kind_of_session_reads_the_transcripts_of_others() {
    run("transcripts", async {
        // As open as it gets.
        let own = SessionKind::ALL.map(|kind| open_to(kind, SandboxLevel::AsConfigured, Access::Write));
        for own in [own.to_vec(), Vec::new()] {
            let mut bench = bench(SandboxChoice::Auto, own);
            for (key, source) in SESSIONS {
                bench.be(key, source);
                for (tool, arguments) in [
                    ("read_file", json!({"path": "sessions/a.jsonl"})),
                    ("write_file", json!({"path": "sessions/b.jsonl", "content": "x"})),
                    ("list_dir", json!({"path": "sessions"})),
                ] {
                    let (end, text) = bench.call(tool, arguments).await;
                    assert_eq!(end, ToolEnd::Error, "{key} {tool}: {text}");
                }
                let (_, text) = bench.exec("cat sessions/*; ls -A sessions").await;
                assert!(!text.contains("private") && !text.contains("jsonl\n"), "{key}: {text}");
            }
            assert!(!bench.home.path("workspace/sessions/b.jsonl").exists());
        }
    });
}

#[test]
fn who_may_only_look_changes_nothing() {
    run("read only", async {
        let mut bench = bench(SandboxChoice::Off, []);
        bench.be("cron:job", "cron");
        let (end, text) = bench.call("read_file", json!({"path": "notes"})).await;
        assert_eq!(end, ToolEnd::Ok, "{text}");
        refused(&mut bench, "write_file", json!({"path": "notes", "content": "x"}), "may read the workspace but").await;
        let (_, text) = bench.exec("cat notes; echo x > notes; echo x > made; touch ../made").await;
        match probe_sandbox() {
            SandboxMode::Bubblewrap { .. } => {
                assert!(text.starts_with("ours\n") && text.contains("Read-only file system"), "{text}");
            }
            SandboxMode::Unavailable { .. } => assert!(text.contains("only in a sandbox"), "{text}"),
        }
        assert_eq!(bench.home.read("workspace/notes"), "ours\n");
        assert!(!bench.home.path("workspace/made").exists());
    });
}

#[test]
fn a_session_without_the_workspace_has_none_in_its_sandbox() {
    run("no workspace", async {
        let own = [open_to(SessionKind::Group, SandboxLevel::AsConfigured, Access::None)];
        let mut bench = bench(SandboxChoice::Off, own);
        bench.be("telegram:-100", "telegram:default");
        refused(&mut bench, "read_file", json!({"path": "notes"}), "not open to this session").await;
        let elsewhere = json!({"command": "true", "working_dir": "sub"});
        refused(&mut bench, "exec", elsewhere, "files of the workspace are not open").await;
        let workspace = bench.home.workspace().display().to_string();
        let (_, text) = bench.exec(&format!("pwd; cat {workspace}/notes; echo x > {workspace}/made")).await;
        match probe_sandbox() {
            SandboxMode::Bubblewrap { .. } => assert!(text.starts_with("/tmp\n") && !text.contains("ours"), "{text}"),
            SandboxMode::Unavailable { .. } => assert!(text.contains("only in a sandbox"), "{text}"),
        }
        assert!(!bench.home.path("workspace/made").exists());
    });
}

#[test]
fn a_confined_session_stays_in_the_workspace_where_the_owner_need_not() {
    run("reach", async {
        let home = TempWorkspace::new();
        home.write("workspace/notes", "ours\n");
        home.write("outside", "theirs\n");
        let mut config = config(&home, SandboxChoice::Off);
        config.restrict = false;
        let own = [open_to(SessionKind::Direct, SandboxLevel::Required, Access::Write)];
        config.policies = Arc::new(Policies::new("main", own));
        let mut bench = Bench::over(home, Arc::new(Catalog::builder(config).build()));
        let outside = bench.home.path("outside").display().to_string();
        let (end, _) = bench.call("read_file", json!({"path": outside})).await;
        assert_eq!(end, ToolEnd::Ok, "the owner");
        bench.be("telegram:5", "telegram:default");
        refused(&mut bench, "read_file", json!({"path": outside}), "outside the workspace").await;
        refused(&mut bench, "write_file", json!({"path": outside, "content": "x"}), "outside the workspace").await;
        let (end, _) = bench.call("write_file", json!({"path": "notes", "content": "x"})).await;
        assert_eq!(end, ToolEnd::Ok);
        assert_eq!(bench.home.read("outside"), "theirs\n");
    });
}

#[test]
fn dreams_change_the_memory_and_skills_and_nothing_else() {
    run("dreams", async {
        let mut bench = bench(SandboxChoice::Off, []);
        bench.be("dream:20261130-090000", "cron");
        for path in ["memory/MEMORY.md", "SOUL.md", "USER.md", "skills/new/SKILL.md"] {
            let (end, text) = bench.call("write_file", json!({"path": path, "content": "x"})).await;
            assert_eq!(end, ToolEnd::Ok, "{path}: {text}");
        }
        for path in [
            "notes",
            "AGENTS.md",
            "memory/history.jsonl",
            "memory/.dream_cursor",
            "skills",
            "skills/../notes",
            "skills-2/a",
        ] {
            refused(&mut bench, "write_file", json!({"path": path, "content": "x"}), "may change only these: skills/")
                .await;
        }
        refused(&mut bench, "write_file", json!({"path": "../outside", "content": "x"}), "outside").await;
        refused(&mut bench, "exec", json!({"command": "ls"}), "exec").await;
        let (end, text) = bench.call("read_file", json!({"path": "notes"})).await;
        assert_eq!(end, ToolEnd::Ok, "{text}");
    });
}
