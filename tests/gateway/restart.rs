//! `/restart`: the process is replaced in order, nothing that waits is lost, and who asked is told.

use std::time::Duration;

use serde_json::{Value, json};
use testkit::deadline::with_deadline;
use testkit::model::Model;

use crate::support::{Place, said};

fn restarting(seconds: u64) -> String {
    format!(
        "Restarting: running turns have up to {seconds} s to end, what has not ended by then goes on with the next start, and \
         waiting messages are kept."
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chat_restarts_the_gateway_and_hears_of_it() {
    let model = Model::start_on_thread();
    let place = Place::with_model(&model.url(), json!({"runtime": {"drainSeconds": 0}}));
    let mut gateway = place.start().await;
    let (pid, before) = (gateway.pid(), gateway.beacon());
    model.config(|config| config.delay = Duration::from_secs(3600));
    let mut socket = gateway.websocket("").await;
    socket.until("ready").await;
    socket.say("room", "running", "m1").await;
    socket.until("accepted").await;
    socket.say("room", "waiting", "m2").await;
    socket.until("accepted").await;
    socket.say("room", "/restart", "m3").await;
    assert_eq!(socket.until("accepted").await["turn_id"], Value::Null);
    let told = socket.until("message").await["text"].clone();
    assert_eq!(told, restarting(0));
    while socket.next().await.is_some() {}
    model.config(|config| config.delay = Duration::ZERO);
    let again = with_deadline("the gateway listens again", async {
        loop {
            match gateway.listening() {
                Some(beacon) if beacon.token != before.token => return beacon,
                _ => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    });
    assert_eq!(again.await.pid, pid, "it is the same process");
    let mut socket = gateway.websocket("").await;
    socket.until("ready").await;
    socket.send(json!({"type": "attach", "chat_id": "elsewhere"})).await;
    socket.send(json!({"type": "attach", "chat_id": "room"})).await;
    let told = socket.until("message").await;
    assert_eq!((&told["chat_id"], &told["text"]), (&json!("room"), &json!("The gateway has restarted.")));
    gateway.settle().await;
    gateway.terminate().await;
    let said = said(&place.transcript("websocket.room"));
    let texts: Vec<&str> = said.iter().map(|(_, text)| text.as_str()).collect();
    assert_eq!(texts, ["running", "echo:running", "waiting", "echo:waiting"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_somebody_else_starts_it_the_gateway_only_ends() {
    let place = Place::new(json!({"gateway": {"restartMode": "exit"}}));
    let gateway = place.start().await;
    let out = place.run(&["agent", "-m", "/restart"]);
    assert_eq!(String::from_utf8_lossy(&out.stdout).trim(), restarting(30));
    assert_eq!(gateway.ended().await, Some(0));
    let out = place.run(&["agent", "-m", "/restart"]);
    assert_eq!(out.status.code(), Some(6), "{out:?}");
}
