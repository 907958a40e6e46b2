//! Commands in bubblewrap. Skipped, visibly, where the machine cannot isolate.

use std::sync::Arc;

use domain::chat::Arguments;
use protocol::tools::ToolEnd;
use serde_json::json;
use testkit::deadline::run;
use testkit::workspace::TempWorkspace;

use super::commands::{is_running, pipe, unique};
use super::{Bench, config};
use crate::{Catalog, SandboxChoice, SandboxMode, probe_sandbox};

#[allow(clippy::print_stderr, reason = "a test that did not run must be seen")]
fn sandboxed(name: &str, test: impl AsyncFnOnce(Bench)) {
    match probe_sandbox() {
        SandboxMode::Bubblewrap { .. } => run(name, async { test(Bench::with(SandboxChoice::Auto, vec![])).await }),
        SandboxMode::Unavailable { reason } => eprintln!("SKIPPED {name}: no sandbox here: {reason}"),
    }
}

#[test]
fn a_command_sees_the_workspace_and_nothing_private() {
    sandboxed("mounts", async |mut bench| {
        bench.home.write("workspace/a", "mine\n");
        bench.home.write("other", "private");
        let home = bench.home.home().display().to_string();
        let (end, text) = bench.exec("cat a; echo new > b; ls; pwd").await;
        assert_eq!(text, format!("mine\na\nb\nsessions\n{home}/workspace\nExit code: 0"), "{end:?}");
        assert_eq!(bench.home.read("workspace/b"), "new\n");
        let (_, text) = bench.exec(&format!("ls -A sessions {home} /tmp /root /home /run /boot 2>&1; true")).await;
        assert!(!text.contains("jsonl") && !text.contains("journal") && !text.contains("other"), "{text}");
        for command in [
            format!("cat {home}/journal/1"),
            format!("cat {home}/config.json"),
            "cat sessions/a.jsonl".to_owned(),
            "echo x > sessions/b.jsonl".to_owned(),
            "echo x > /usr/x".to_owned(),
            "echo x > /etc/x".to_owned(),
            "ln sessions/a.jsonl c".to_owned(),
            "mv sessions moved".to_owned(),
            "umount sessions".to_owned(),
            "unshare -U true".to_owned(),
            "unshare -m true".to_owned(),
            "mount -t tmpfs none /mnt".to_owned(),
            "exec 3<>/dev/tcp/127.0.0.1/22".to_owned(),
        ] {
            let (_, text) = bench.exec(&command).await;
            assert!(!text.ends_with("Exit code: 0"), "{command}: {text}");
        }
        assert_eq!(bench.home.read("workspace/sessions/a.jsonl"), "private");
        assert!(!bench.home.path("workspace/sessions/b.jsonl").exists());
    });
}

#[test]
fn a_command_reads_what_was_attached_in_its_own_session_and_in_no_other() {
    sandboxed("attachments", async |mut bench| {
        let (own, other) = ("media/websocket/cli.direct/plan.txt", "media/websocket/websocket.b/plan.txt");
        bench.home.write(own, "my plan\n");
        bench.home.write(other, "another plan\n");
        let home = bench.home.home().display().to_string();
        let (_, text) = bench.exec(&format!("cat {home}/{own}; ls {home}/media/websocket")).await;
        assert_eq!(text, "my plan\ncli.direct\nExit code: 0");
        for command in [format!("cat {home}/{other}"), format!("echo x > {home}/{own}"), format!("rm {home}/{own}")] {
            let (_, text) = bench.exec(&command).await;
            assert!(!text.ends_with("Exit code: 0") && !text.contains("plan\n"), "{command}: {text}");
        }
        for (path, end) in [(own, ToolEnd::Ok), (other, ToolEnd::Error)] {
            let (found, text) = bench.call("read_file", json!({"path": format!("{home}/{path}")})).await;
            assert_eq!(found, end, "{path}: {text}");
        }
    });
}

#[test]
fn a_command_cannot_lock_the_gateway_out_of_the_workspace() {
    use std::os::unix::fs::PermissionsExt;
    sandboxed("chmod", async |mut bench| {
        let (end, text) = bench.exec("chmod 000 .").await;
        assert_eq!((end, text.as_str()), (ToolEnd::Ok, "Exit code: 0"));
        let mode = bench.home.path("workspace").metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
    });
}

#[test]
fn a_private_file_inside_the_workspace_cannot_be_read() {
    sandboxed("private file", async |_| {
        let home = TempWorkspace::new();
        home.write("workspace/keys.json", "private");
        let mut config = config(&home, SandboxChoice::Bubblewrap);
        // The data directory as a whole is private, the workspace in it is not.
        config.forbidden = vec![home.home().to_owned(), home.path("workspace/keys.json")];
        let mut bench = Bench::over(home, Arc::new(Catalog::builder(config).build()));
        let (_, text) = bench.exec("cat keys.json; echo x > keys.json; touch fine && echo ok; touch ../x /x").await;
        assert!(text.starts_with("ok\n") && text.contains("cat: keys.json"), "{text}");
        assert!(text.contains("touch: cannot touch '/x'"), "{text}");
        assert_eq!(bench.home.read("workspace/keys.json"), "private");
        assert!(bench.home.path("workspace/fine").exists() && !bench.home.path("x").exists());
    });
}

#[test]
fn a_command_has_no_rights_and_no_company() {
    sandboxed("rights", async |mut bench| {
        let (_, text) =
            bench.exec("id -u; id -g; grep -E '^(CapEff|CapPrm|CapBnd|NoNewPrivs)' /proc/self/status").await;
        let numbers: Vec<_> = text.split_ascii_whitespace().filter(|word| !word.ends_with(':')).collect();
        let none = "0000000000000000";
        assert_eq!(numbers, ["1000", "1000", none, none, none, "1", "Exit", "0"], "{text}");
        let (_, text) =
            bench.exec("ls -d /proc/[0-9]* | wc -l; cat /proc/net/dev | grep -c :; hostname; echo $HOME").await;
        let lines: Vec<_> = text.lines().collect();
        assert!(lines[0].trim().parse::<u32>().unwrap() <= 6, "{text}");
        assert_eq!(&lines[1..], ["1", "sandbox", "/tmp", "Exit code: 0"], "only the loopback: {text}");
        let (_, text) = bench.exec("env | cut -d= -f1 | sort | tr '\\n' ' '").await;
        assert_eq!(text, "GREENROOM_CALL HOME LANG PATH PWD SHLVL TERM _ \nExit code: 0");
    });
}

#[test]
fn output_and_exit_code_pass_through() {
    sandboxed("pass through", async |mut bench| {
        assert_eq!(bench.exec("echo out; echo err >&2; exit 3").await.1, "out\nSTDERR:\nerr\nExit code: 3");
        assert_eq!(bench.exec("cat; printf 'a\\377b'").await.1, "a\u{FFFD}b\nExit code: 0");
        let (_, text) = bench.call("exec", json!({"command": "ls", "working_dir": ".."})).await;
        assert!(text.contains("outside the workspace"), "{text}");
    });
}

#[test]
fn all_of_a_sandbox_ends() {
    sandboxed("end", async |mut bench| {
        let sleep = unique();
        let (_, text) = bench.exec(&format!("sleep {sleep} & setsid sleep {sleep} & echo begun")).await;
        assert_eq!(text, "begun\nExit code: 0");
        assert!(!is_running(&sleep));
        let command = format!("trap '' TERM; sleep {sleep} & setsid sleep {sleep}");
        let (end, text) = bench.call("exec", json!({"command": command, "timeout": 1})).await;
        assert_eq!(end, ToolEnd::TimedOut, "{text}");
        assert!(!is_running(&sleep));
    });
}

#[test]
fn cancel_ends_a_sandbox() {
    sandboxed("cancel", async |mut bench| {
        let sleep = unique();
        let (path, begun) = pipe(&bench).await;
        let command = format!("sleep {sleep} & echo begun > {}; sleep {sleep}", path.display());
        let arguments = json!({"command": command}).as_object().unwrap().clone();
        bench.start("exec", Arguments::Object(arguments));
        assert_eq!(begun.await, "begun\n");
        assert!(is_running(&sleep));
        bench.cancel.cancel();
        assert_eq!(bench.answer().await.0, ToolEnd::Cancelled);
        assert!(!is_running(&sleep));
    });
}

#[test]
fn a_command_cannot_make_the_transcripts_directory_its_own() {
    sandboxed("transcripts", async |mut bench| {
        std::fs::remove_dir_all(bench.home.path("workspace/sessions")).unwrap();
        let (_, text) = bench.exec("mkdir -p sessions; echo forged > sessions/a.jsonl").await;
        assert!(text.contains("Read-only file system"), "{text}");
        assert_eq!(std::fs::read_dir(bench.home.path("workspace/sessions")).unwrap().count(), 0);
    });
}
