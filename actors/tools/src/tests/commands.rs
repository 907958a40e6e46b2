//! Commands and the end of all their processes, without a sandbox.

use std::path::PathBuf;

use domain::chat::Arguments;
use protocol::tools::ToolEnd;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::json;
use testkit::deadline::{run, with_deadline};

use super::Bench;

/// Whether any process has `word` in its command line.
pub(super) fn is_running(word: &str) -> bool {
    let all = std::fs::read_dir("/proc").unwrap();
    all.filter_map(|entry| std::fs::read(entry.ok()?.path().join("cmdline")).ok())
        .any(|line| line.windows(word.len()).any(|part| part == word.as_bytes()))
}

/// A number that no other sleep uses.
pub(super) fn unique() -> String {
    format!("9{}.{}", std::process::id(), uuid::Uuid::now_v7().as_u128() % 1_000_000_007)
}

/// Where a command can say that it has begun.
pub(super) async fn pipe(bench: &Bench) -> (PathBuf, impl Future<Output = String> + use<>) {
    let path = bench.home.path("workspace/pipe");
    mknodat(CWD, &path, FileType::Fifo, Mode::RWXU, 0).unwrap();
    let from = path.clone();
    let read = tokio::task::spawn_blocking(move || std::fs::read_to_string(from).unwrap());
    (path, async { with_deadline("the command to begin", read).await.unwrap() })
}

#[test]
fn output_errors_and_exit_code_are_shown() {
    run("exec", async {
        let mut bench = Bench::new();
        let cases = [
            ("echo out; echo err >&2; exit 3", "out\nSTDERR:\nerr\nExit code: 3"),
            ("true", "Exit code: 0"),
            ("printf no-newline", "no-newline\nExit code: 0"),
            ("kill -9 $$", "Exit code: 137 (killed by signal 9)"),
            ("cat; echo over", "over\nExit code: 0"),
            ("printf 'a\\377b'", "a\u{FFFD}b\nExit code: 0"),
            ("echo $((6 * 7)); [[ a == a ]] && echo \"it's bash\"", "42\nit's bash\nExit code: 0"),
            ("ulimit -c", "0\nExit code: 0"),
        ];
        for (command, wanted) in cases {
            assert_eq!(bench.exec(command).await, (ToolEnd::Ok, wanted.to_owned()), "{command}");
        }
        let (_, text) = bench.exec("no-such-command").await;
        assert!(text.starts_with("STDERR:\n") && text.ends_with("Exit code: 127"), "{text}");
    });
}

#[test]
fn the_environment_is_clean() {
    run("environment", async {
        let mut bench = Bench::new();
        let (_, text) = bench.exec("env | cut -d= -f1 | sort | tr '\\n' ' '").await;
        assert_eq!(text, "GREENROOM_CALL HOME LANG PATH PWD SHLVL TERM _ \nExit code: 0");
    });
}

#[test]
fn huge_output_is_bounded() {
    run("huge output", async {
        let mut bench = Bench::new();
        let (end, text) = bench.exec("echo begin; yes | head -c 50000000; echo end").await;
        assert_eq!(end, ToolEnd::Ok);
        assert!(text.starts_with("begin\ny\n") && text.ends_with("y\nend\nExit code: 0"));
        assert!(text.chars().count() < 10_200, "{}", text.chars().count());
    });
}

#[test]
fn a_timeout_ends_the_whole_tree() {
    run("timeout", async {
        let mut bench = Bench::new();
        let sleep = unique();
        let command =
            format!("echo begun; trap '' TERM; sleep {sleep} & (sleep {sleep} & sleep {sleep}) & sleep {sleep}");
        let (end, text) = bench.call("exec", json!({"command": command, "timeout": 1})).await;
        assert_eq!(end, ToolEnd::TimedOut);
        assert!(
            text.starts_with("begun\n") && text.contains("did not end within 1 s and was killed.\n\n[Analyze"),
            "{text}"
        );
        assert!(!is_running(&sleep));
    });
}

#[test]
fn nothing_stays_in_the_background() {
    run("background", async {
        let mut bench = Bench::new();
        let sleep = unique();
        let command = format!(
            "echo $$; sleep {sleep} & setsid sleep {sleep} & nohup sleep {sleep} >/dev/null 2>&1 & (setsid -f sleep {sleep} &)"
        );
        let (end, text) = bench.exec(&command).await;
        assert_eq!(end, ToolEnd::Ok, "{text}");
        assert!(!is_running(&sleep));
        let leader = text.lines().next().unwrap();
        assert!(!PathBuf::from("/proc").join(leader).exists(), "the shell {leader} is still there, if as a zombie");
    });
}

#[test]
fn cancel_ends_a_running_command() {
    run("cancel", async {
        let mut bench = Bench::new();
        let sleep = unique();
        let (path, begun) = pipe(&bench).await;
        let command = format!("sleep {sleep} & echo $$ > {}; sleep {sleep}", path.display());
        let arguments = json!({"command": command}).as_object().unwrap().clone();
        bench.start("exec", Arguments::Object(arguments));
        let leader = begun.await;
        assert!(is_running(&sleep));
        bench.cancel.cancel();
        assert_eq!(bench.answer().await.0, ToolEnd::Cancelled);
        assert!(!is_running(&sleep));
        assert!(!PathBuf::from("/proc").join(leader.trim()).exists());
    });
}

#[test]
fn it_runs_where_it_is_told_inside_the_workspace() {
    run("working_dir", async {
        let mut bench = Bench::new();
        bench.home.write("workspace/sub/a", "");
        let (_, text) = bench.call("exec", json!({"command": "ls", "working_dir": "sub"})).await;
        assert_eq!(text, "a\nExit code: 0");
        for (dir, wanted) in [
            ("..", "working_dir: `..` is outside"),
            ("sessions", "is kept by the gateway"),
            ("nothing", "`nothing` does not exist"),
            ("sub/a", "is not a directory"),
        ] {
            let (end, text) = bench.call("exec", json!({"command": "ls", "working_dir": dir})).await;
            assert_eq!(end, ToolEnd::Error);
            assert!(text.contains(wanted), "{text}");
        }
    });
}

#[test]
fn dangerous_commands_do_not_start() {
    run("guard", async {
        let mut bench = Bench::new();
        bench.home.write("workspace/keep", "kept");
        let (end, text) = bench.exec("rm -rf keep").await;
        assert_eq!(end, ToolEnd::Error);
        assert!(text.contains("refused: recursive or forced deletion"), "{text}");
        assert_eq!(bench.home.read("workspace/keep"), "kept");
        for command in ["a\u{0}b", "", " \n"] {
            assert_eq!(bench.exec(command).await.0, ToolEnd::Error);
        }
    });
}
