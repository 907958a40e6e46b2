//! The gateway port.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use channel::Secret;
use channel::doors::PhaseWord;
use channel::gateway::{Addresses, GatewayConfig, serve};
use domain::ids::{SessionKey, TurnId};
use protocol::edit::EditError;
use protocol::journal::{BusyReason, Enqueued, Shelf};
use protocol::session::TurnRecord;
use protocol::supervision::{ActorPath, Event, EventName, Kind, SupervisionLog};
use protocol::transcripts::{BroughtIn, Check, EndedPage, Page, Summary, TranscriptReader, Tree};
use serde_json::{Value, json};
use supervision::ports::Open;
use testkit::deadline::with_deadline;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::client::{Reply, get, post, receive, send};
use crate::world::{WAITING, World, text_of};

pub struct Files(pub watch::Sender<bool>);

impl TranscriptReader for Files {
    fn page(&self, after: Option<&SessionKey>, limit: usize) -> Page {
        let summary = |key| Summary {
            key: SessionKey::new(key).unwrap(),
            session: None,
            updated_ms: 1,
            entries: Some(2),
            bytes: 3,
            name: None,
            preview: None,
        };
        let all = ["api:a/x", "api:b", "cli:direct"].map(summary);
        let mut behind = all.into_iter().filter(|one| after.is_none_or(|after| one.key > *after));
        let items: Vec<Summary> = behind.by_ref().take(limit).collect();
        let next = behind.next().and(items.last()).map(|last| last.key.clone());
        Page { items, next }
    }
    fn all_known(&self) -> watch::Receiver<bool> {
        self.0.subscribe()
    }
    fn is_there(&self, key: &SessionKey) -> io::Result<bool> {
        Ok(self.read(key)?.is_some())
    }
    fn read(&self, key: &SessionKey) -> io::Result<Option<Vec<String>>> {
        Ok((key.as_str() == "api:a/x").then(|| vec!["{\"a\":1}".to_owned(), "damaged".to_owned()]))
    }
    fn tree(&self, _: &SessionKey) -> io::Result<Option<Tree>> {
        Ok(None)
    }
    fn check(&self, _: &SessionKey) -> io::Result<Option<Check>> {
        Ok(None)
    }
    fn ended(&self, _: Shelf, _: Option<&str>, _: usize) -> std::io::Result<EndedPage> {
        Ok(EndedPage::default())
    }
    fn delete_archived(&self, _: &SessionKey, _: u64) -> std::io::Result<Option<String>> {
        Ok(None)
    }
    fn put_away(&self) -> std::io::Result<Vec<domain::retention::PutAway>> {
        Ok(Vec::new())
    }
    fn remove_put_away(&self, _: &str) -> std::io::Result<()> {
        Ok(())
    }
    fn bring_in(
        &self,
        _: &std::path::Path,
        _: Option<&SessionKey>,
        _: &dyn Fn(&SessionKey) -> Result<(), EditError>,
    ) -> Result<BroughtIn, EditError> {
        Err(EditError::NoSession)
    }
    fn read_archived(&self, _: &SessionKey) -> std::io::Result<Option<Vec<String>>> {
        Ok(None)
    }
    fn turn(&self, _: &SessionKey, _: TurnId) -> io::Result<Option<TurnRecord>> {
        unreachable!("the door reads no turn out of these")
    }
}

/// Events 1 to 5 of `api:a/x`, the last two of one turn.
fn write_log(world: &World) {
    let event = |n: u32| {
        let mut event =
            Event::new(EventName::Started, ActorPath::session(0, &SessionKey::new("api:a/x").unwrap()), Kind::Session);
        event.id = n.to_string();
        event.ts = format!("2026-11-29T20:00:0{n}.000000Z");
        event.session = SessionKey::new("api:a/x").ok();
        event.turn = (n > 3).then(|| LOGGED.parse().unwrap());
        format!("{}\n", serde_json::to_string(&event).unwrap())
    };
    let disk = &world.doors.ports.disk;
    disk.create_dir_all(std::path::Path::new("/logs")).unwrap();
    let file = disk.open(std::path::Path::new("/logs/supervision.jsonl"), Open::Create).unwrap();
    file.write_at((1..=5).map(event).collect::<String>().as_bytes(), 0).unwrap();
}

/// A turn that only the log knows.
const LOGGED: &str = "01890a5d-ac96-774b-bcce-b302099a8057";

pub const TOKEN: &str = "authorization: Bearer t\r\n";

pub async fn open() -> (Arc<World>, SocketAddr, CancellationToken) {
    open_with(Files(watch::Sender::new(true))).await
}

async fn open_with(files: Files) -> (Arc<World>, SocketAddr, CancellationToken) {
    let world = World::new();
    let (listener, address) = world.listen().await;
    let stop = CancellationToken::new();
    write_log(&world);
    let config = GatewayConfig {
        admin_token: Secret::new("t"),
        hosts: Vec::new(),
        version: "1.2.3".to_owned(),
        pid: 7,
        addresses: Addresses { admin: "http://127.0.0.1:1".to_owned(), ..Addresses::default() },
        connections_max: 64,
        drain: Duration::from_secs(5),
        transcripts: Arc::new(files),
        pruning: Default::default(),
        hooks: Default::default(),
        logs: "/logs".into(),
        stop: stop.clone(),
    };
    tokio::spawn(serve(listener, world.doors.clone(), config, world.shutdown.clone()));
    (world, address, stop)
}

pub async fn admin(to: SocketAddr, path: &str) -> Reply {
    get(to, &format!("/admin/v1/{path}"), TOKEN).await
}

#[tokio::test]
async fn health_ready_and_metrics_are_open() {
    let (world, address, _) = open().await;
    assert_eq!(get(address, "/health", "").await.body, r#"{"status":"ok"}"#);
    assert_eq!(get(address, "/ready", "").await.status, 200);
    for (word, reason) in [(PhaseWord::Recovering, "recovering"), (PhaseWord::Draining, "draining")] {
        world.phase.set(word);
        let reply = get(address, "/ready", "").await;
        assert_eq!((reply.status, &reply.json()["reasons"]), (503, &json!([reason])));
    }
    world.phase.set(PhaseWord::Serving);
    world.backend.writable.store(false, Ordering::Relaxed);
    let reply = get(address, "/ready", "").await;
    assert_eq!((reply.status, &reply.json()["reasons"]), (503, &json!(["journal_not_writable"])));
    assert_eq!(get(address, "/health", "").await.status, 200);
    let metrics = get(address, "/metrics", "").await.body;
    for line in ["greenroom_sessions{state=\"live\"} 5", "greenroom_journal_writable 0", "greenroom_inbox_messages 2"] {
        assert!(metrics.lines().any(|found| found == line), "{line} in\n{metrics}");
    }
    assert_eq!(get(address, "/else", "").await.status, 404);
}

#[tokio::test]
async fn the_administration_wants_its_token_and_a_host_of_this_machine() {
    let (_world, address, _) = open().await;
    for (headers, status) in [
        ("", 401),
        ("authorization: Bearer x\r\n", 401),
        ("host: evil.example\r\nauthorization: Bearer t\r\n", 403),
        ("host: 127.0.0.1:1\r\nauthorization: Bearer t\r\n", 200),
    ] {
        assert_eq!(get(address, "/admin/v1/status", headers).await.status, status, "{headers}");
    }
    assert_eq!(get(address, "/admin/v1/nothing", "").await.status, 401);
    assert_eq!(admin(address, "nothing").await.status, 404);
    assert_eq!(admin(address, "drain").await.status, 405);
}

#[tokio::test]
async fn state_is_shown() {
    let (_world, address, _) = open().await;
    let status = admin(address, "status").await.json();
    assert_eq!(
        (&status["version"], &status["phase"], &status["journal"]["open"]),
        (&"1.2.3".into(), &"serving".into(), &2.into())
    );
    assert_eq!(admin(address, "tree").await.json()["kind"], "registry");
    let page = admin(address, "sessions?limit=2").await.json();
    assert_eq!((&page["items"][0]["key"], &page["next"]), (&"api:a/x".into(), &"api:b".into()));
    let page = admin(address, "sessions?cursor=api%3Ab").await.json();
    assert_eq!((&page["items"][0]["key"], &page["next"]), (&"cli:direct".into(), &Value::Null));
    let states = admin(address, "sessions").await.json()["items"].clone();
    let states: Vec<&str> = states.as_array().unwrap().iter().map(|item| item["state"].as_str().unwrap()).collect();
    assert_eq!(states, ["asleep", "thinking", "asleep"]);
    assert_eq!(admin(address, "sessions?cursor=").await.status, 400);
    let session = admin(address, "sessions/api%3Aa%2Fx").await.json();
    assert_eq!((&session["entries"], &session["status"]["inbox"]), (&json!([{"a": 1}, "damaged"]), &3.into()));
    assert_eq!(admin(address, "sessions/asleep").await.status, 404);
    assert_eq!(admin(address, "sessions/%00").await.status, 400);
    assert_eq!(admin(address, "sessions?limit=x").await.status, 400);
    assert_eq!(admin(address, "deadletters").await.json(), json!({"items": [], "next": null}));
    let lines: Vec<Value> = admin(address, "logs?after=3&event=started")
        .await
        .body
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let ids: Vec<&str> = lines.iter().map(|line| line["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["4", "5"]);
    assert_eq!(admin(address, "logs?kind=planet").await.status, 400);
}

#[tokio::test]
async fn a_list_waits_until_all_sessions_are_known() {
    let known = watch::Sender::new(false);
    let (_world, address, _) = open_with(Files(known.clone())).await;
    let list = admin(address, "sessions");
    let read = async {
        with_deadline("somebody who waits", async {
            while known.receiver_count() == 0 {
                tokio::task::yield_now().await;
            }
        })
        .await;
        known.send_replace(true);
    };
    let (list, ()) = tokio::join!(list, read);
    assert_eq!((list.status, list.json()["items"].as_array().unwrap().len()), (200, 3));
}

#[tokio::test]
async fn orders_are_carried_out() {
    let (world, address, stop) = open().await;
    let order = async |path: &str, body: &[u8]| post(address, &format!("/admin/v1/{path}"), TOKEN, body).await;
    assert_eq!(order("sessions/c/stop?all=true", b"").await.json()["dropped"], 1);
    assert_eq!(order("sessions/asleep/stop", b"{}").await.json()["cancelled"], Value::Null);
    assert_eq!(order("sessions/api%3Aheld/release", b"").await.status, 200);
    assert_eq!(order("sessions/c/release", b"").await.status, 404);
    assert_eq!(order("backup", b"{\"dir\":\"/tmp/x\"}").await.json()["bytes"], 42);
    assert_eq!(order("backup", b"{\"dir\":\"x\"}").await.status, 400);
    assert_eq!(order("backup", b"").await.status, 400);
    assert_eq!(order("drain", b"").await.status, 200);
    stop.cancelled().await;
    assert_eq!(world.phase.get(), PhaseWord::Draining);
}

#[tokio::test]
async fn a_message_is_followed_to_its_end() {
    let (world, address, _) = open().await;
    let path = "/admin/v1/sessions/cli%3Adirect/messages";
    let socket = send(address, "POST", path, TOKEN, br#"{"content":"hi","message_id":"m1"}"#).await;
    let message = world.message().await;
    assert_eq!((message.key.as_str(), message.source.as_str()), ("cli:direct", "cli"));
    assert_eq!(text_of(&message), "hi");
    world.play(&message.key, message.turn).answer("Hello");
    let reply = receive(socket).await;
    let lines: Vec<Value> = reply.body.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let names: Vec<&str> = lines.iter().map(|line| line["event"].as_str().unwrap()).collect();
    assert_eq!(names, ["accepted", "started", "delta", "stream_end", "finished"]);
    assert_eq!((&lines[4]["result"], &lines[4]["text"]), (&"done".into(), &"Hello".into()));
    for (command, result, words) in
        [("/status", "done", "Thinking for 1.2 s"), ("/hlep", "failed", "Did you mean /help?")]
    {
        let reply = post(address, path, TOKEN, json!({"content": command}).to_string().as_bytes()).await;
        let lines: Vec<Value> = reply.body.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!((lines.len(), &lines[0]["event"], &lines[1]["event"]), (2, &"accepted".into(), &"finished".into()));
        assert_eq!((&lines[0]["control"], &lines[1]["turn_id"]), (&true.into(), &Value::Null));
        assert_eq!(lines[1]["result"], result);
        assert!(lines[1]["text"].as_str().unwrap().contains(words), "{}", reply.body);
    }
    for body in [&b"{"[..], b"{}", br#"{"content":" "}"#, br#"{"content":"a","message_id":""}"#] {
        assert_eq!(post(address, path, TOKEN, body).await.status, 400);
    }
    for path in [path, "/admin/v1/backup"] {
        let reply = post(address, path, TOKEN, &vec![b' '; (1 << 20) + 1]).await;
        assert_eq!((reply.status, &reply.json()["error"]["code"]), (413, &"request_too_large".into()));
    }
    world.refuse(Enqueued::Busy { retry_after_ms: 10, why: BusyReason::Process });
    let reply = post(address, path, TOKEN, br#"{"content":"hi"}"#).await;
    assert_eq!((reply.status, &reply.json()["error"]["retry_after_ms"]), (503, &10.into()));
}

#[tokio::test]
async fn open_doors_stand_in_the_tree_and_their_lives_in_the_log() {
    let (world, address, _) = open().await;
    let tree = admin(address, "tree").await.json();
    let children = tree["children"].as_array().unwrap();
    let door = children.iter().find(|node| node["path"] == "/channels/gateway").unwrap();
    assert_eq!((&door["kind"], &door["state"]), (&"channel".into(), &"serving".into()));
    assert!(door["connections"].as_u64() >= Some(1), "this very request: {door}");
    let started = world.log.named(EventName::Started).remove(0);
    assert_eq!((&*started.path.0, started.kind), ("/channels/gateway", Kind::Channel));
    world.shutdown.cancel();
    let exited = with_deadline("end of the door", async {
        loop {
            if let Some(exited) = world.log.named(EventName::Exited).pop() {
                break exited;
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!((exited.reason.as_deref(), exited.cause), (Some("shutdown"), Some(started.id)));
}

#[tokio::test]
async fn a_refusal_for_a_full_disk_names_the_event_that_tells_of_it() {
    let (world, address, _) = open().await;
    let read_only =
        world.log.record(Event::new(EventName::JournalReadOnly, ActorPath("/journal".into()), Kind::Journal));
    world.refuse(Enqueued::Busy { retry_after_ms: 10, why: BusyReason::Disk });
    let path = "/admin/v1/sessions/cli%3Adirect/messages";
    assert_eq!(post(address, path, TOKEN, br#"{"content":"hi"}"#).await.status, 503);
    let refused = world.log.named(EventName::Refused).remove(0);
    assert_eq!((refused.reason.as_deref(), refused.cause), (Some("disk"), Some(read_only)));
}

#[tokio::test]
async fn stories_are_told_of_what_is_known_and_names_offered_for_what_is_not() {
    let (_world, address, _) = open().await;
    let story = admin(address, "why/api%3Aa%2Fx").await.json();
    assert_eq!((&story["known"], story["sentences"].as_array().unwrap().len()), (&true.into(), 5), "{story}");
    assert!(story["now"].as_str().unwrap().starts_with("the session is thinking"), "{story}");
    let story = admin(address, &format!("why/{LOGGED}")).await.json();
    let last = story["sentences"].as_array().unwrap().last().unwrap();
    assert_eq!((&last["id"], &last["text"]), (&"5".into(), &"The session was started.".into()), "{story}");
    let story = admin(address, "why/api%3Aa%2Fy").await.json();
    assert_eq!(
        (&story["known"], &story["nearest"]),
        (&true.into(), &Value::Null),
        "the double has every session live: {story}"
    );
    let story = admin(address, "why/api%3Aasleep").await.json();
    assert_eq!(story["known"], false, "{story}");
    let story = admin(address, "why/01890a5d-ac96-774b-bcce-b302099a8058").await.json();
    assert_eq!((&story["known"], &story["nearest"]), (&false.into(), &json!([LOGGED])), "{story}");
    assert_eq!(admin(address, "why/%00").await.status, 400);
    let story = admin(address, &format!("why/{WAITING}")).await.json();
    assert!(story["now"].as_str().unwrap().starts_with("it waits; "), "{story}");
    assert!(story["runs_again"].as_str().unwrap().starts_with("this turn, "), "{story}");
}

#[tokio::test]
async fn top_shows_the_busiest_and_counts_all() {
    let (_world, address, _) = open().await;
    let top = admin(address, "top").await.json();
    assert_eq!(
        (&top["phase"], &top["turns"]["open"], &top["states"]["thinking"]),
        (&"serving".into(), &2.into(), &1.into())
    );
    assert_eq!(top["items"][0]["session"], "api:busy", "the running one comes first: {top}");
    let kinds: Vec<&str> = top["kinds"].as_array().unwrap().iter().map(|row| row["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["channel", "journal", "session"]);
    let top = admin(address, "top?path=/channels/*&sort=restarts").await.json();
    assert_eq!(top["items"].as_array().unwrap().len(), 1, "{top}");
    assert_eq!(admin(address, "top?limit=0").await.json()["items"], json!([]));
    assert_eq!(admin(address, "top?sort=size").await.status, 400);
    let tree = admin(address, "tree?path=/channels/*").await.json();
    assert_eq!(tree["children"].as_array().unwrap().len(), 1, "{tree}");
}
