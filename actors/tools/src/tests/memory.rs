//! The memory's files: what the gateway keeps there is closed to tools that write, and Dream overwrites nothing unseen.

use std::sync::Arc;

use domain::memory::OWN_FILES;
use domain::scope::{AccessMode, Scope};
use protocol::tools::ToolEnd;
use serde_json::json;
use testkit::deadline::run;

use super::Bench;

const MEMORY: &str = "memory/MEMORY.md";

async fn write(bench: &mut Bench, path: &str, content: &str) -> (ToolEnd, String) {
    bench.call("write_file", json!({"path": path, "content": content})).await
}

async fn refused(bench: &mut Bench, path: &str, why: &str) {
    let (end, text) = write(bench, path, "forged").await;
    assert_eq!((end, text.contains(why)), (ToolEnd::Error, true), "{path}: {text}");
}

#[test]
fn what_the_gateway_keeps_of_the_memory_is_read_and_not_written() {
    run("kept", async {
        let mut bench = Bench::new();
        for path in OWN_FILES {
            refused(&mut bench, path, "is written by the gateway alone").await;
            assert!(
                !bench.home.path("workspace").join(path).exists(),
                "{path} is none of theirs before it exists, too"
            );
            bench.home.write(&format!("workspace/{path}"), "ours\n");
            refused(&mut bench, path, "is written by the gateway alone").await;
            let (end, text) = bench.call("read_file", json!({"path": path})).await;
            assert_eq!((end, text.contains("ours")), (ToolEnd::Ok, true), "{path}: {text}");
        }
        refused(&mut bench, "skills/../memory/./history.jsonl", "does not exist").await;
        refused(&mut bench, "memory/../memory/history.jsonl", "is written by the gateway alone").await;
        for path in [MEMORY, "memory/HISTORY.md", "memory/notes/history.jsonl", "SOUL.md"] {
            assert_eq!(write(&mut bench, path, "mine").await.0, ToolEnd::Ok, "{path}");
        }
        let (end, text) = bench.exec("echo forged > memory/versions.jsonl").await;
        assert_eq!((end, text.contains("written by the gateway alone")), (ToolEnd::Error, true), "{text}");
    });
}

#[test]
fn it_is_closed_as_well_to_a_session_that_works_elsewhere() {
    run("kept from afar", async {
        let mut bench = Bench::new();
        bench.home.write("workspace/memory/history.jsonl", "ours\n");
        bench.home.write("site/index.html", "hello");
        let project_path = bench.home.path("site").canonicalize().unwrap();
        bench.scope = Some(Arc::new(Scope { project_path, access_mode: AccessMode::Full }));
        let history = bench.home.path("workspace/memory/history.jsonl");
        refused(&mut bench, &history.display().to_string(), "is written by the gateway alone").await;
        assert_eq!(write(&mut bench, "memory/history.jsonl", "its own").await.0, ToolEnd::Ok);
        assert_eq!(bench.home.read("workspace/memory/history.jsonl"), "ours\n");
    });
}

#[test]
fn dream_writes_over_nothing_that_it_has_not_seen() {
    run("dream", async {
        let mut bench = Bench::new();
        bench.home.write(&format!("workspace/{MEMORY}"), "old\n");
        let dream = |bench: &mut Bench| bench.be("dream:20261130-090000", "cron");
        dream(&mut bench);
        refused(&mut bench, MEMORY, "was not read yet").await;
        assert_eq!(bench.call("read_file", json!({"path": MEMORY})).await.0, ToolEnd::Ok);
        bench.be("cli:direct", "cli");
        assert_eq!(write(&mut bench, MEMORY, "old\nsaid meanwhile\n").await.0, ToolEnd::Ok);
        dream(&mut bench);
        refused(&mut bench, MEMORY, "somebody has changed it since").await;
        assert_eq!(bench.home.read(&format!("workspace/{MEMORY}")), "old\nsaid meanwhile\n");
        let (_, text) = bench.call("read_file", json!({"path": MEMORY})).await;
        assert!(text.contains("said meanwhile"), "{text}");
        for content in ["both\n", "both, and more\n"] {
            assert_eq!(write(&mut bench, MEMORY, content).await.0, ToolEnd::Ok, "its own is nothing unseen");
        }
        assert_eq!(write(&mut bench, "skills/new/SKILL.md", "how").await.0, ToolEnd::Ok, "there was nothing to see");
        bench.be("dream:20261130-110000", "cron");
        refused(&mut bench, MEMORY, "was not read yet").await;
    });
}
