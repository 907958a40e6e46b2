//! A disk that is full: nothing is acknowledged that could not be kept, everybody is told, and it goes on by itself.

use std::io::Write;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::deadline::with_deadline;

use crate::support::{Gateway, Place, Socket, said};

/// Room for the log's four live segments, its next one and two spares, of 32 MiB each, and for transcripts.
const DISK_MIB: u64 = 288;
const SEGMENT_BYTES: u64 = 32 << 20;
/// Chats that are written to in turn.
const CHATS: usize = 40;
/// Of each message.
const PADDING_BYTES: usize = 40 * 1024;
/// Set in the process that has a user and mount namespace of its own.
const INSIDE: &str = "GREENROOM_TEST_OWN_NAMESPACE";

/// A small file system of its own; unmounted when dropped.
struct SmallDisk {
    directory: TempDir,
}

impl SmallDisk {
    fn mount() -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={DISK_MIB}m,mode=0700"), "greenroom-test"])
            .arg(directory.path())
            .output();
        mount.is_ok_and(|mount| mount.status.success()).then_some(Self { directory })
    }

    fn ballast(&self) -> std::path::PathBuf {
        self.directory.path().join("ballast")
    }

    /// Takes all space that is left.
    fn fill(&self) {
        let mut file = std::fs::File::create(self.ballast()).unwrap();
        for size in [1 << 20, 4096, 1] {
            while file.write_all(&vec![0; size]).is_ok() {}
        }
    }

    /// Gives it back.
    fn relieve(&self) {
        std::fs::remove_file(self.ballast()).unwrap();
    }
}

impl SmallDisk {
    /// As a system does that found damage, and as an administrator does afterwards.
    fn remount(&self, how: &str) {
        let mount = Command::new("mount").args(["-o", &format!("remount,{how}")]).arg(self.directory.path()).status();
        assert!(mount.unwrap().success(), "remount {how}");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: a process that was just killed may still be leaving.
        let unmounted = Command::new("umount").arg("-l").arg(self.directory.path()).status();
        if !unmounted.is_ok_and(|status| status.success()) {
            eprintln!("{} is still mounted", self.directory.path().display());
        }
    }
}

/// A small disk; where mounting is not allowed the test `name` is run again in a namespace where it is, and this
/// returns `None`.
fn small_disk(name: &str) -> Option<SmallDisk> {
    if let Some(disk) = SmallDisk::mount() {
        return Some(disk);
    }
    assert!(std::env::var_os(INSIDE).is_none(), "a tmpfs cannot be mounted even in a namespace of its own");
    let again = Command::new("unshare")
        .arg("-rm")
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(INSIDE, "1")
        .status();
    if Command::new("unshare").args(["-rm", "true"]).status().is_ok_and(|status| status.success()) {
        assert!(again.unwrap().success(), "{name} failed in its own namespace");
    } else {
        eprintln!("NOT TESTED: {name} needs the right to mount a tmpfs, as root or in a user namespace");
        assert!(super::may_do_less(), "a full run needs the right to mount");
    }
    None
}

/// What the sender of messages knows.
#[derive(Default)]
struct Sender {
    sent: usize,
    accepted: Vec<usize>,
    refused: Vec<usize>,
}

impl Sender {
    fn chat(number: usize) -> String {
        format!("c{}", number % CHATS)
    }

    /// Sends one message, or sends it again, and hears what becomes of it.
    async fn say(&mut self, socket: &mut Socket, number: usize) -> Value {
        let text = format!("m{number} [[say=re m{number}]]{}", " .".repeat(PADDING_BYTES / 2));
        let id = format!("m{number}");
        socket.say(&Self::chat(number), &text, &id).await;
        let verdict = async {
            loop {
                let event = socket.next().await.expect("the connection stays open");
                if event["message_id"] == id.as_str() {
                    return event;
                }
            }
        };
        let verdict = with_deadline("a verdict", verdict).await;
        if verdict["event"] == "accepted" {
            self.accepted.push(number);
        }
        verdict
    }

    /// Sends until one is refused; says how.
    async fn say_until_refused(&mut self, socket: &mut Socket) -> Value {
        loop {
            let number = self.sent;
            self.sent += 1;
            let verdict = self.say(socket, number).await;
            if verdict["event"] == "error" {
                self.refused.push(number);
                return verdict;
            }
        }
    }

    /// Sends what was refused once more; all of it is accepted now.
    async fn say_again(&mut self, socket: &mut Socket) {
        for number in std::mem::take(&mut self.refused) {
            let verdict = self.say(socket, number).await;
            assert_eq!(verdict["event"], "accepted", "{verdict}");
        }
    }

    /// One more in each chat: a session that had nothing to do at a start has its file made complete when it wakes.
    async fn say_everywhere(&mut self, socket: &mut Socket) {
        for _ in 0..CHATS {
            let number = self.sent;
            self.sent += 1;
            assert_eq!(self.say(socket, number).await["event"], "accepted");
        }
    }

    /// Every accepted message stands answered once, in the order of acceptance; none that was refused stands.
    fn check(&self, place: &Place) {
        for chat in 0..CHATS {
            let mine = self.accepted.iter().filter(|number| Self::chat(**number) == format!("c{chat}"));
            let expected: Vec<(String, String)> = mine
                .flat_map(|number| {
                    [("user".to_owned(), format!("m{number}")), ("assistant".to_owned(), format!("re m{number}"))]
                })
                .collect();
            let stands: Vec<(String, String)> = said(&place.transcript(&format!("websocket.c{chat}")))
                .into_iter()
                .map(|(role, text)| {
                    let short = text.split(" [[").next().unwrap_or_default().to_owned();
                    (role, short)
                })
                .collect();
            let stands: Vec<_> = stands
                .into_iter()
                .map(|(role, text)| match text.find("re m") {
                    Some(at) if role == "assistant" => (role, text.get(at..).unwrap_or_default().to_owned()),
                    _ => (role, text),
                })
                .collect();
            assert_eq!(stands, expected, "chat c{chat}");
        }
    }
}

fn refuses(verdict: &Value) {
    assert_eq!((&verdict["event"], &verdict["reason"]), (&json!("error"), &json!("busy")), "{verdict}");
    assert!(verdict["retry_after_ms"].as_u64().is_some_and(|ms| ms > 0), "{verdict}");
    assert!(verdict["detail"].as_str().unwrap().contains("journal"), "{verdict}");
}

/// Polls `/ready` until it has this status; returns its body.
async fn ready(gateway: &Gateway, status: u16) -> String {
    with_deadline(&format!("/ready {status}"), async {
        loop {
            let (is, body) = gateway.get("/ready").await;
            if is == status {
                return body;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    })
    .await
}

/// While the disk is full: nothing new at any door, everybody is told, and what needs no disk works.
async fn check_full(gateway: &Gateway, socket: &mut Socket, sender: &mut Sender) {
    let not_ready: Value = serde_json::from_str(&ready(gateway, 503).await).unwrap();
    assert!(not_ready["reasons"].to_string().contains("journal_not_writable"), "{not_ready}");
    assert_eq!(not_ready["space"]["needed_bytes"], SEGMENT_BYTES, "{not_ready}");
    assert!(not_ready["space"]["free_bytes"].as_u64().is_some_and(|free| free < SEGMENT_BYTES), "{not_ready}");
    for _ in 0..5 {
        let number = sender.sent;
        sender.sent += 1;
        let verdict = sender.say(socket, number).await;
        refuses(&verdict);
        sender.refused.push(number);
    }
    let body = json!({"user": "ann", "messages": [{"role": "user", "content": "hello"}]});
    let (status, body) = gateway.chat(body, Some("full")).await;
    assert_eq!((status, body["error"]["code"].as_str()), (503, Some("disk")), "{body}");
    assert_eq!(gateway.get("/health").await.0, 200);
    assert!(body["error"]["message"].as_str().unwrap().contains("bytes are needed"), "{body}");
    let status = gateway.admin("status").await;
    assert_eq!(status["journal"]["writable"], false, "{status}");
    assert_eq!(status["journal"]["space"]["needed_bytes"], SEGMENT_BYTES, "{status}");
    assert!(status["not_ready"].to_string().contains("journal_not_writable"), "{status}");
    let metrics = gateway.get("/metrics").await.1;
    assert!(metrics.contains("greenroom_journal_writable 0"));
    socket.say("c0", "/status", "control").await;
    assert_eq!(with_deadline("control", socket.until("accepted")).await["control"], true);
}

fn place(disk: &Path) -> Place {
    let journal = json!({"segmentBytes": SEGMENT_BYTES, "maxBytes": 256 << 20});
    Place::new_in(
        disk,
        json!({"journal": journal, "agents": {"defaults": {"contextWindowTokens": 8_000, "maxTokens": 1000}}}),
    )
}

/// A gateway with a message in every chat.
async fn busy(place: &Place) -> (Gateway, Socket, Sender) {
    let gateway = place.start().await;
    let (mut socket, mut sender) = (gateway.client().await, Sender::default());
    for number in 0..CHATS {
        sender.sent += 1;
        assert_eq!(sender.say(&mut socket, number).await["event"], "accepted");
    }
    (gateway, socket, sender)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_stops_acknowledging_says_so_and_goes_on_when_there_is_space() {
    let name = "chaos::disk::a_full_disk_stops_acknowledging_says_so_and_goes_on_when_there_is_space";
    let Some(disk) = small_disk(name) else { return };
    let place = place(disk.directory.path());
    let (gateway, mut socket, mut sender) = busy(&place).await;
    let mut filled = 0;
    for _ in 0..2 {
        disk.fill();
        refuses(&sender.say_until_refused(&mut socket).await);
        check_full(&gateway, &mut socket, &mut sender).await;
        filled += 1;
        disk.relieve();
        ready(&gateway, 200).await;
        sender.say_again(&mut socket).await;
    }
    gateway.settle().await;
    let events = place.events();
    assert_eq!(gateway.terminate().await, Some(0));
    sender.check(&place);
    let named = |name: &str| events.iter().filter(|event| event["event"] == name).count();
    assert!(named("journal_writable") >= filled, "{events:?}");
    println!(
        "chaos disk: full {filled} times, {} messages accepted = answered {}, all that were refused came later",
        sender.accepted.len(),
        sender.accepted.len()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_starts_on_a_full_disk_and_answers_what_was_open_when_there_is_space() {
    let name = "chaos::disk::a_gateway_starts_on_a_full_disk_and_answers_what_was_open_when_there_is_space";
    let Some(disk) = small_disk(name) else { return };
    let place = place(disk.directory.path());
    let (gateway, mut socket, mut sender) = busy(&place).await;
    disk.fill();
    refuses(&sender.say_until_refused(&mut socket).await);
    gateway.kill_nine();
    let mut gateway = place.spawn();
    gateway.wait_until_listening().await;
    let mut socket = gateway.client().await;
    check_full(&gateway, &mut socket, &mut sender).await;
    disk.relieve();
    ready(&gateway, 200).await;
    sender.say_again(&mut socket).await;
    sender.say_everywhere(&mut socket).await;
    gateway.settle().await;
    assert_eq!(gateway.terminate().await, Some(0));
    // After an orderly stop the commands find it as well.
    disk.fill();
    let mut gateway = place.spawn();
    gateway.wait_until_listening().await;
    let status = String::from_utf8(place.run(&["status"]).stdout).unwrap();
    assert!(status.contains("gateway    serving"), "{status}");
    disk.relieve();
    assert_eq!(gateway.terminate().await, Some(0));
    sender.check(&place);
    println!("chaos disk: started full, {} messages accepted, all answered", sender.accepted.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_starts_on_a_read_only_disk_and_answers_what_was_open_when_it_can_be_written() {
    let name = "chaos::disk::a_gateway_starts_on_a_read_only_disk_and_answers_what_was_open_when_it_can_be_written";
    let Some(disk) = small_disk(name) else { return };
    let place = place(disk.directory.path());
    let (gateway, _socket, mut sender) = busy(&place).await;
    gateway.kill_nine();
    // Nothing tells where it listens as long as no file can be written, so that is chosen here.
    let port = testkit::port::free_port();
    let config = std::fs::read_to_string(place.path().join("config.json")).unwrap();
    let mut config: Value = serde_json::from_str(&config).unwrap();
    config["gateway"]["port"] = json!(port);
    place.write_config(&config.to_string());
    disk.remount("ro");
    let mut gateway = place.spawn();
    let url = format!("http://127.0.0.1:{port}");
    let get = async |path: &str| {
        let reply = provider::http_client().unwrap().get(format!("{url}{path}")).send().await.ok()?;
        Some((reply.status().as_u16(), reply.text().await.ok()?))
    };
    let not_ready = with_deadline("a gateway that is not ready", async {
        loop {
            assert!(gateway.listening().is_none(), "nothing can be written");
            match get("/ready").await {
                Some((503, body)) if body.contains("journal_not_writable") => return body,
                Some(_) | None => tokio::time::sleep(std::time::Duration::from_millis(20)).await,
            }
        }
    });
    not_ready.await;
    assert_eq!(get("/health").await.unwrap().0, 200);
    assert!(get("/metrics").await.unwrap().1.contains("greenroom_journal_writable 0"));
    disk.remount("rw");
    gateway.wait_until_listening().await;
    ready(&gateway, 200).await;
    let mut socket = gateway.client().await;
    sender.say_everywhere(&mut socket).await;
    gateway.settle().await;
    assert_eq!(gateway.terminate().await, Some(0));
    sender.check(&place);
    // What could not be logged at the time was logged later.
    let events = place.events();
    let names: Vec<&str> = events.iter().filter_map(|event| event["event"].as_str()).collect();
    let at = |name: &str| names.iter().position(|one| *one == name);
    assert!(at("journal_read_only").is_some() && at("journal_read_only") < at("journal_writable"), "{names:?}");
    assert_eq!(at("events_lost"), None, "{names:?}");
    println!("chaos disk: started read-only, {} messages accepted, all answered", sender.accepted.len());
}
