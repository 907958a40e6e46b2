//! Each call has one answer, whatever its tool does.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use domain::chat::{Arguments, plain_text};
use domain::request::ToolSpec;
use futures::FutureExt;
use futures::future::BoxFuture;
use protocol::supervision::{EventName, Kind};
use protocol::tools::ToolEnd;
use serde_json::{Map, Value, json};
use testkit::deadline::{run, run_paused, with_deadline};
use testkit::workspace::TempWorkspace;

use super::{Bench, config, spec, texts};
use crate::{Call, Catalog, Outcome, SandboxChoice, Tool};

/// A tool that does what its function does.
struct Made<F> {
    name: &'static str,
    run: F,
}

impl<F: Fn(Call) -> BoxFuture<'static, Outcome> + Send + Sync + 'static> Tool for Made<F> {
    fn spec(&self) -> ToolSpec {
        spec(self.name)
    }

    fn call(&self, call: Call) -> BoxFuture<'static, Outcome> {
        (self.run)(call)
    }

    fn deadline(&self, _: &Map<String, Value>) -> Duration {
        Duration::from_secs(5)
    }
}

pub(super) fn made<F>(name: &'static str, run: F) -> Arc<dyn Tool>
where
    F: Fn(Call) -> BoxFuture<'static, Outcome> + Send + Sync + 'static,
{
    Arc::new(Made { name, run })
}

fn bench(tools: Vec<Arc<dyn Tool>>) -> Bench {
    Bench::with(SandboxChoice::Off, tools)
}

#[test]
fn a_panic_anywhere_is_an_error_result_and_an_event() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("boom in drop");
        }
    }
    run("panics", async {
        let mut bench = bench(vec![
            made("at_once", |_| panic!("boom at once")),
            made("later", |_| {
                async {
                    tokio::task::yield_now().await;
                    panic!("boom later, quoting \"something a user wrote\"")
                }
                .boxed()
            }),
            made("blocking", |call| {
                async move { call.blocking(|| -> Outcome { panic!("boom blocking") }).await }.boxed()
            }),
            made("owned", |call| {
                async move {
                    let task = call.own(async { panic!("boom owned") });
                    match task.await {
                        Ok(()) => Outcome::text("never"),
                        Err(failed) => std::panic::resume_unwind(failed.into_panic()),
                    }
                }
                .boxed()
            }),
            made("in_drop", |_| {
                async {
                    let _bomb = Bomb;
                    std::future::pending::<()>().await;
                    Outcome::text("never")
                }
                .boxed()
            }),
        ]);
        for name in ["at_once", "later", "blocking", "owned"] {
            let (end, text) = bench.call(name, json!({})).await;
            assert_eq!(end, ToolEnd::Panicked, "{name}");
            assert!(text.starts_with("Error:") && !text.contains("boom"), "{text}");
        }
        bench.start("in_drop", Arguments::Object(Map::new()));
        bench.cancel.cancel();
        let (end, _) = bench.answer().await;
        // Cancelled before it began, or panicked when it was dropped: an answer in any case.
        assert!(matches!(end, ToolEnd::Panicked | ToolEnd::Cancelled));

        let events = bench.log.named(EventName::Exited);
        let texts: Vec<_> = events.iter().filter_map(|event| event.panic.as_ref()).collect();
        let wanted = ["boom at once", "boom later, quoting \"…\"", "boom blocking", "boom owned"];
        for (panic, wanted) in texts.iter().zip(wanted) {
            assert_eq!(panic.text, wanted);
            assert!(panic.at.contains("calls.rs"), "{}", panic.at);
        }
        assert!(texts.len() >= wanted.len());
        assert_eq!(events[0].kind, Kind::ToolCall);
        assert_eq!(&*events[0].path.0, "/tools/0/call/at_once");
        assert_eq!(events[0].session.as_ref().map(|key| key.as_str()), Some("cli:direct"));
        let file = bench.home.path(&format!("logs/crash/{}.txt", events[0].backtrace.as_ref().unwrap()));
        let text = with_deadline("crash file", async {
            loop {
                match std::fs::read_to_string(&file) {
                    // Its text is written at once.
                    Ok(text) if !text.is_empty() => break text,
                    Ok(_) | Err(_) => tokio::task::yield_now().await,
                }
            }
        })
        .await;
        assert!(text.starts_with("boom at once\nat "), "{text}");
    });
}

#[test]
fn a_slow_tool_is_given_up_at_its_deadline() {
    run_paused("deadline", async {
        let mut bench = bench(vec![made("slow", |_| std::future::pending().boxed())]);
        let (end, text) = bench.call("slow", json!({})).await;
        assert_eq!(end, ToolEnd::TimedOut);
        assert!(text.contains("within 5 s"), "{text}");
    });
}

#[test]
fn cancel_ends_a_call_after_what_it_owns() {
    run("cancel", async {
        let cleaned = Arc::new(AtomicU32::new(0));
        let (begun, mut has_begun) = tokio::sync::mpsc::unbounded_channel();
        let tool = {
            let cleaned = cleaned.clone();
            made("slow", move |call| {
                let (cleaned, begun) = (cleaned.clone(), begun.clone());
                async move {
                    let cancel = call.cancel.clone();
                    call.own(async move {
                        cancel.cancelled().await;
                        tokio::task::yield_now().await;
                        cleaned.fetch_add(1, Ordering::SeqCst);
                    });
                    begun.send(()).unwrap();
                    std::future::pending().await
                }
                .boxed()
            })
        };
        let mut bench = bench(vec![tool]);
        bench.start("slow", Arguments::Object(Map::new()));
        has_begun.recv().await.unwrap();
        bench.cancel.cancel();
        let (end, _) = bench.answer().await;
        assert_eq!((end, cleaned.load(Ordering::SeqCst)), (ToolEnd::Cancelled, 1));
    });
}

#[test]
fn the_end_of_the_front_end_ends_its_calls() {
    run("stop", async {
        let (begun, mut has_begun) = tokio::sync::mpsc::unbounded_channel();
        let tool = made("slow", move |_| {
            begun.send(()).unwrap();
            std::future::pending().boxed()
        });
        let bench = bench(vec![tool]);
        bench.start("slow", Arguments::Object(Map::new()));
        has_begun.recv().await.unwrap();
        let Bench { actor, mut answers, .. } = bench;
        drop(actor);
        assert_eq!(answers.next().await.end, ToolEnd::Cancelled);
    });
}

#[test]
fn a_cancelled_call_never_begins() {
    run("cancelled", async {
        let mut bench = bench(vec![made("never", |_| panic!("it began"))]);
        bench.cancel.cancel();
        let (end, _) = bench.call("never", json!({})).await;
        assert_eq!(end, ToolEnd::Cancelled);
    });
}

#[test]
fn many_calls_have_as_many_answers() {
    run("many", async {
        let tool = made("count", |call| {
            async move {
                call.blocking(|| ()).await;
                Outcome::text("done")
            }
            .boxed()
        });
        let mut bench = bench(vec![tool]);
        for _ in 0..200 {
            bench.start("count", Arguments::Object(Map::new()));
        }
        for _ in 0..200 {
            assert_eq!(bench.answers.next().await.end, ToolEnd::Ok);
        }
        assert!(bench.answers.try_next().is_none());
    });
}

#[test]
fn calls_that_cannot_run_are_explained() {
    run("bad calls", async {
        let mut bench = Bench::new();
        let all = "Tools: exec, list_dir, read_file, write_file";
        let cases = [
            ("readfile", format!("there is no tool \"readfile\"; did you mean \"read_file\"? {all}")),
            ("Read_File", format!("did you mean \"read_file\"? {all}")),
            ("zzz", format!("there is no tool \"zzz\". {all}")),
            ("", format!("the call names no tool. {all}")),
        ];
        for (name, wanted) in cases {
            let (end, text) = bench.call(name, json!({})).await;
            assert_eq!(end, ToolEnd::Error);
            assert!(text.contains(&wanted), "{text}");
        }
        let malformed = Arguments::Malformed { text: "{\"path".into(), problem: "it ends inside a string".into() };
        bench.start("read_file", malformed);
        let (end, text) = bench.answer().await;
        assert_eq!(end, ToolEnd::Error);
        assert!(text.contains("read_file are not a JSON object: it ends inside a string"), "{text}");
    });
}

#[test]
fn arguments_are_unwrapped_cast_and_checked() {
    run("arguments", async {
        let mut bench = Bench::new();
        bench.home.write("workspace/a.txt", "one\ntwo\nthree\n");
        let (_, text) =
            bench.call("read_file", json!({"arguments": {"path": "a.txt", "offset": "2", "limit": 1}})).await;
        assert!(text.starts_with("2| two\n"), "{text}");
        let (end, text) = bench.call("read_file", json!({"offset": 0, "extra": 1})).await;
        assert_eq!(end, ToolEnd::Error);
        for part in ["path", "offset", "extra"] {
            assert!(text.contains(part), "{text}");
        }
        let (_, text) = bench.call("exec", json!({"cmd": "pwd", "workdir": "."})).await;
        assert!(text.contains("workspace\nExit code: 0"), "{text}");
    });
}

#[test]
fn results_are_bounded_and_never_empty() {
    run("bounds", async {
        let mut bench = bench(vec![
            made("nothing", |_| async { Outcome::text("") }.boxed()),
            made("much", |_| async { Outcome::text("ä".repeat(50_000)) }.boxed()),
            made("pieces", |_| async { Outcome::of(texts(&["a", "b"])) }.boxed()),
        ]);
        assert_eq!(bench.call("nothing", json!({})).await.1, "(nothing completed with no output)");
        assert_eq!(bench.call("pieces", json!({})).await.1, "a\nb");
        let (_, text) = bench.call("much", json!({})).await;
        assert!(text.chars().count() <= 16_000 && text.starts_with("[tool output persisted]\n"), "{text}");
    });
}

#[test]
fn the_catalog_is_sorted_and_later_tools_replace_earlier_ones() {
    let home = TempWorkspace::new();
    let tool = |name, text: &'static str| made(name, move |_| async move { Outcome::text(text) }.boxed());
    let mut config = config(&home, SandboxChoice::Off);
    config.exec.enable = false;
    let catalog = Catalog::builder(config)
        .with(tool("mcp_a_b", ""))
        .with(tool("zebra", ""))
        .with(tool("read_file", "mine"))
        .with(tool("bad name", ""))
        .with(tool("", ""))
        .build();
    let names: Vec<_> = catalog.specs().iter().map(|spec| spec.name.clone()).collect();
    assert_eq!(names, ["list_dir", "read_file", "write_file", "zebra", "mcp_a_b"]);
    run("replaced", async move {
        let mut bench = Bench::over(home, Arc::new(catalog));
        assert_eq!(bench.call("read_file", json!({})).await.1, "mine");
        bench.start("exec", Arguments::Object(Map::new()));
        let answer = bench.answers.next().await;
        assert!(plain_text(&answer.result.content).contains("no tool \"exec\""));
    });
}
