//! What was given up can be looked at, run again and dropped, with and without a gateway.

use std::sync::Arc;

use channel::hub::{Shown, Sink};
use domain::ids::SessionKey;
use greenroom::app::{App, Options};
use greenroom::config::{LoadRequest, load};
use protocol::turn::{TurnProgress, TurnResult};
use serde_json::{Value, json};
use testkit::deadline::with_deadline;

use crate::support::{Place, said};

const SECRET: &str = "the secret of the message";

/// Panics inside the session whenever it shows what the model says.
struct Bomb;

impl Sink for Bomb {
    fn show(&self, shown: &Shown) {
        assert!(!matches!(shown.event.what, TurnProgress::Delta(_)), "the bomb went off");
    }
}

/// Leaves one dead letter for each of `chats`.
fn give_up(place: &Place, chats: &[&str]) {
    let env = [("GREENROOM_HOME".to_owned(), place.path().display().to_string())].into();
    greenroom::run(async {
        let app = App::start(Options::embedded(load(&LoadRequest { config: None, workspace: None, env })?)).await?;
        for chat in chats {
            let key = SessionKey::new(&format!("cli:{chat}"))?;
            let _bomb = app.hub().attach_chat(&key, None, Arc::new(Bomb));
            let poisoned = with_deadline("dead letter", app.submit(&key, SECRET).await?.finished()).await?;
            assert_eq!(poisoned.result, TurnResult::DeadLettered);
        }
        app.stop().await;
        Ok(())
    })
    .unwrap();
}

fn output(place: &Place, arguments: &[&str]) -> String {
    let out = place.run(arguments);
    assert!(out.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap()
}

fn body(place: &Place, arguments: &[&str]) -> Value {
    let arguments = [arguments, &["--json"]].concat();
    serde_json::from_str(&output(place, &arguments)).unwrap()
}

fn ids(place: &Place) -> Vec<String> {
    let list = body(place, &["deadletters", "list"]);
    list["items"].as_array().unwrap().iter().map(|item| item["id"].as_str().unwrap().to_owned()).collect()
}

fn look(place: &Place, id: &str) {
    let shown = body(place, &["deadletters", "show", id]);
    assert_eq!((&shown["kind"], &shown["reason"]), (&json!("turn"), &json!("crashes")));
    assert_eq!(shown["route"], json!({"kind": "reply"}));
    let events: Vec<_> = shown["events"].as_array().unwrap().iter().map(|event| event["event"].clone()).collect();
    assert_eq!(events.iter().filter(|name| **name == "restarted").count(), 3, "{events:?}");
    assert!(events.contains(&json!("dead_lettered")), "{events:?}");
    assert!(!shown.to_string().contains(SECRET));
    assert!(!output(place, &["deadletters", "show", id]).contains(SECRET));
    assert!(output(place, &["deadletters", "show", id, "--content"]).contains(SECRET));
}

#[test]
fn without_a_gateway_they_are_shown_dropped_and_run_here() {
    let place = Place::empty();
    give_up(&place, &["again", "forget"]);
    let both = ids(&place);
    assert_eq!(both.len(), 2);
    look(&place, &both[0]);
    let before = place.events().len();
    assert_eq!(body(&place, &["deadletters", "drop", &both[1]]), json!({"id": both[1], "dropped": true}));
    let added = place.events().split_off(before);
    let [dropped] = added.as_slice() else { panic!("a command tells what it did, and only that: {added:?}") };
    assert_eq!((&dropped["event"], &dropped["turn"]), (&json!("letter_dropped"), &json!(both[1])));
    let answered = output(&place, &["deadletters", "retry", &both[0]]);
    assert!(answered.contains(SECRET), "the offline model repeats the message: {answered}");
    let added = place.events().split_off(before + 1);
    assert_eq!(added.iter().filter(|event| event["event"] == "letter_retried").count(), 1, "{added:?}");
    assert!(added.iter().all(|event| event["session"] == "cli:again"), "{added:?}");
    assert!(
        output(&place, &["logs", "--why", &both[0]]).contains("Its dead letter was opened again: it runs again as")
    );
    assert!(ids(&place).is_empty());
    let gone = place.run(&["deadletters", "retry", &both[0]]);
    assert_eq!(gone.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&gone.stderr).contains("there is no dead letter"));
    let roles: Vec<_> = said(&place.transcript("cli.again")).into_iter().map(|(role, _)| role).collect();
    assert_eq!(roles, ["user", "assistant", "assistant"], "one user entry, the notice, the answer");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_running_gateway_shows_and_runs_them() {
    let place = Place::empty();
    tokio::task::block_in_place(|| give_up(&place, &["again", "forget"]));
    place.write_config(
        &json!({"channels": {"websocket": {"port": 0}}, "api": {"port": 0}, "gateway": {"port": 0}}).to_string(),
    );
    let gateway = place.start().await;
    let both = ids(&place);
    look(&place, &both[0]);
    let retried = body(&place, &["deadletters", "retry", &both[0]]);
    assert_eq!((&retried["kind"], &retried["state"]), (&json!("turn"), &json!("running")));
    assert_eq!(body(&place, &["deadletters", "drop", &both[1]])["dropped"], true);
    assert_eq!(place.run(&["deadletters", "show", &both[1]]).status.code(), Some(1));
    assert_eq!(place.run(&["deadletters", "show", "x"]).status.code(), Some(2));
    assert!(output(&place, &["deadletters", "list"]).contains("no dead letters"));
    gateway.settle().await;
    gateway.terminate().await;
    let lines = said(&place.transcript("cli.again"));
    assert_eq!(lines.iter().filter(|(role, _)| role == "user").count(), 1, "{lines:?}");
    assert!(lines.last().unwrap().1.contains(SECRET), "{lines:?}");
}
