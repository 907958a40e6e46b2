//! A conversation at a terminal: lines that are typed while turns run, commands, what is shown of goals and tools.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde_json::json;
use testkit::model::Model;

use crate::support::{Place, said};

/// A program at a terminal.
struct Terminal {
    child: Child,
    keys: File,
    screen: Receiver<String>,
    shown: String,
}

impl Terminal {
    fn start(place: &Place, arguments: &[&str]) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
        let slave = || File::options().read(true).write(true).open(&name).unwrap();
        let mut command = place.command(arguments);
        command.stdin(Stdio::from(slave())).stdout(Stdio::from(slave())).stderr(Stdio::from(slave()));
        let child = command.env("TERM", "xterm").spawn().unwrap();
        drop(command);
        let keys = File::from(master);
        let (mut from, mut answers) = (keys.try_clone().unwrap(), keys.try_clone().unwrap());
        let (tx, screen) = channel();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            // Reading fails when the program has closed its side.
            while let Ok(count @ 1..) = from.read(&mut buffer) {
                let text = String::from_utf8_lossy(&buffer[..count]).into_owned();
                // A terminal says where its cursor is.
                for _ in text.matches("\u{1b}[6n") {
                    answers.write_all(b"\x1b[1;1R").unwrap();
                }
                if tx.send(text).is_err() {
                    break;
                }
            }
        });
        Self { child, keys, screen, shown: String::new() }
    }

    /// Waits until a text is shown, and forgets what was shown up to it.
    #[track_caller]
    fn until(&mut self, text: &str) -> String {
        loop {
            if let Some(at) = self.shown.find(text) {
                return self.shown.drain(..at + text.len()).collect();
            }
            match self.screen.recv_timeout(Duration::from_secs(60)) {
                Ok(more) => self.shown.push_str(&more),
                Err(_) => panic!("{text:?} is not shown, but {:?}", self.shown),
            }
        }
    }

    fn type_line(&mut self, line: &str) {
        self.keys.write_all(format!("{line}\r").as_bytes()).unwrap();
    }

    /// Leaves; the exit code.
    fn leave(&mut self) -> Option<i32> {
        self.type_line("/quit");
        self.child.wait().unwrap().code()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // It has ended, unless the test failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const PROMPT: &str = "you";
/// Streams for a minute: the test stops it.
const LONG: &str = "one [[tokens=600;itd=100]]";
/// Stands in its answer.
const STREAMS: &str = " t2";

fn lines_typed_while_a_turn_runs_are_followed(place: &Place) {
    let mut terminal = Terminal::start(place, &["agent", "-s", "cli:typed"]);
    terminal.until(PROMPT);
    terminal.type_line(LONG);
    terminal.until(STREAMS);
    terminal.type_line("/status");
    let status = terminal.until("1 turn running.");
    assert!(status.contains("Thinking for ") && status.contains("Model: "), "{status}");
    terminal.type_line("second typed");
    terminal.until("[the running turn is shown this at its next step]");
    terminal.type_line("/stop");
    terminal.until("Stopped the running turn. 1 waiting.");
    terminal.until("second typed");
    terminal.until(PROMPT);
    assert_eq!(terminal.leave(), Some(0));
}

fn both_were_kept(place: &Place) {
    let said = said(&place.transcript("cli.typed"));
    let asked: Vec<_> = said.iter().filter(|(role, _)| role == "user").map(|(_, text)| &**text).collect();
    assert_eq!(asked, [LONG, "second typed"], "{said:?}");
}

#[test]
fn lines_typed_while_a_turn_runs_are_followed_without_a_gateway() {
    let place = Place::empty();
    lines_typed_while_a_turn_runs_are_followed(&place);
    both_were_kept(&place);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lines_typed_while_a_turn_runs_are_followed_by_the_gateway() {
    let place = Place::new(json!({}));
    let gateway = place.start().await;
    tokio::task::block_in_place(|| lines_typed_while_a_turn_runs_are_followed(&place));
    gateway.terminate().await;
    both_were_kept(&place);
}

#[test]
fn a_message_typed_while_tools_run_is_taken_up_by_the_turn() {
    let model = Model::start_on_thread();
    let place = Place::with_model(&model.url(), json!({"tools": {"exec": {"sandbox": "off"}}}));
    let mut terminal = Terminal::start(&place, &["agent"]);
    terminal.until(PROMPT);
    let fifo = place.path().join("workspace/gate");
    std::fs::create_dir_all(place.path().join("workspace")).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    terminal.type_line(r#"look [[tool=exec {"command":"cat gate"}]]"#);
    terminal.until("[$ cat gate]");
    terminal.type_line("and hurry");
    terminal.until("[the running turn is shown this at its next step]");
    std::fs::write(&fifo, "open").unwrap();
    terminal.until(PROMPT);
    assert_eq!(terminal.leave(), Some(0));
    let requests = model.requests();
    assert_eq!(requests.len(), 2, "one turn: {requests:?}");
    assert!(requests[1]["messages"].to_string().contains("and hurry"), "{}", requests[1]);
}

#[test]
fn what_is_typed_in_queue_mode_waits_for_its_turn_and_ctrl_c_ends_only_the_running_one() {
    let place = Place::new(json!({"queue": {"mode": "followup"}}));
    let mut terminal = Terminal::start(&place, &["agent"]);
    terminal.until(PROMPT);
    terminal.type_line(LONG);
    terminal.until(STREAMS);
    terminal.type_line("/queue");
    terminal.until("Queue: followup,");
    terminal.type_line("later");
    terminal.until("[queued, 1 before it]");
    let pid = terminal.child.id().to_string();
    assert!(std::process::Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    terminal.until("Stopped the running turn. 1 waiting.");
    terminal.until("later");
    terminal.until(PROMPT);
    assert_eq!(terminal.leave(), Some(0));
}

#[test]
fn the_answers_of_a_goal_stand_on_their_own_lines_and_once() {
    let model = Model::start_on_thread();
    let place = Place::with_model(&model.url(), json!({}));
    let out = place.run(&["agent", "-m", "/goal build it"]);
    let shown = String::from_utf8(out.stdout).unwrap();
    let answers = shown.lines().filter(|line| line.starts_with("echo:")).count();
    assert_eq!(answers, model.requests().len(), "a line for each answer, none twice: {shown}");
}
