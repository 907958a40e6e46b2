//! A session that works in a project.

use std::sync::Arc;

use domain::scope::{AccessMode, Scope};
use protocol::tools::ToolEnd;
use serde_json::json;
use testkit::deadline::run;

use super::Bench;
use crate::{SandboxChoice, SandboxMode, probe_sandbox};

/// Beside the workspace, with a file in each.
fn scoped(access_mode: AccessMode, sandbox: SandboxChoice) -> Bench {
    let mut bench = Bench::with(sandbox, vec![]);
    bench.home.write("site/index.html", "hello");
    bench.home.write("elsewhere/a", "other");
    bench.home.write("workspace/skills/x/SKILL.md", "skill");
    let project_path = bench.home.path("site").canonicalize().unwrap();
    bench.scope = Some(Arc::new(Scope { project_path, access_mode }));
    bench
}

async fn calls(bench: &mut Bench, cases: &[(&str, &str, ToolEnd)]) {
    let home = bench.home.home().canonicalize().unwrap();
    for (tool, path, wanted) in cases {
        let path = path.replace('~', &home.display().to_string());
        let mut arguments = json!({"path": path});
        if *tool == "write_file" {
            arguments["content"] = "new".into();
        }
        let (end, text) = bench.call(tool, arguments).await;
        assert_eq!(end, *wanted, "{tool} {path}: {text}");
    }
}

#[test]
fn a_restricted_project_is_changed_and_the_workspace_read() {
    run("restricted", async {
        let mut bench = scoped(AccessMode::Restricted, SandboxChoice::Off);
        let cases = [
            ("read_file", "index.html", ToolEnd::Ok),
            ("write_file", "src/new.html", ToolEnd::Ok),
            ("read_file", "~/workspace/skills/x/SKILL.md", ToolEnd::Ok),
            ("list_dir", "~/workspace", ToolEnd::Ok),
            ("write_file", "~/workspace/skills/x/SKILL.md", ToolEnd::Error),
            ("read_file", "~/elsewhere/a", ToolEnd::Error),
            ("read_file", "../elsewhere/a", ToolEnd::Error),
            ("read_file", "~/workspace/sessions/a.jsonl", ToolEnd::Error),
            ("read_file", "~/journal/1", ToolEnd::Error),
        ];
        calls(&mut bench, &cases).await;
        assert_eq!(bench.home.read("site/src/new.html"), "new");
        let (end, text) = bench.exec("cat index.html; cat ../elsewhere/a").await;
        assert!(!text.contains("other"), "its commands are in a sandbox, or do not run: {text}");
        if let SandboxMode::Unavailable { .. } = probe_sandbox() {
            assert_eq!((end, text.contains("only in a sandbox")), (ToolEnd::Error, true), "{text}");
        }
        bench.be("telegram:7", "telegram");
        let (end, text) = bench.call("read_file", json!({"path": "index.html"})).await;
        assert_eq!(end, ToolEnd::Error, "a stranger has no files, and no project: {text}");
    });
}

#[test]
fn full_access_opens_what_is_not_the_gateways_own() {
    run("full", async {
        let mut bench = scoped(AccessMode::Full, SandboxChoice::Off);
        let cases = [
            ("read_file", "index.html", ToolEnd::Ok),
            ("read_file", "../elsewhere/a", ToolEnd::Ok),
            ("write_file", "~/elsewhere/b", ToolEnd::Ok),
            ("write_file", "~/workspace/note", ToolEnd::Ok),
            ("read_file", "~/journal/1", ToolEnd::Error),
            ("write_file", "~/workspace/sessions/b.jsonl", ToolEnd::Error),
        ];
        calls(&mut bench, &cases).await;
    });
}

#[test]
#[allow(clippy::print_stderr, reason = "a test that did not run must be seen")]
fn a_sandboxed_command_changes_the_project_and_only_reads_the_workspace() {
    if let SandboxMode::Unavailable { reason } = probe_sandbox() {
        return eprintln!("SKIPPED: no sandbox here: {reason}");
    }
    for sandbox in [SandboxChoice::Auto, SandboxChoice::Off] {
        sandboxed_project(sandbox);
    }
}

fn sandboxed_project(sandbox: SandboxChoice) {
    run("sandboxed project", async {
        let mut bench = scoped(AccessMode::Restricted, sandbox);
        let home = bench.home.home().canonicalize().unwrap().display().to_string();
        let (_, text) = bench.exec(&format!("pwd; echo new > b; cat {home}/workspace/skills/x/SKILL.md")).await;
        assert_eq!(text, format!("{home}/site\nskill\nExit code: 0"));
        assert_eq!(bench.home.read("site/b"), "new\n");
        for command in
            ["echo x > ~/workspace/skills/x/SKILL.md", "cat ~/elsewhere/a", "cat ~/workspace/sessions/a.jsonl"]
        {
            let (_, text) = bench.exec(&command.replace('~', &home)).await;
            assert!(!text.ends_with("Exit code: 0"), "{command}: {text}");
        }
    });
}
