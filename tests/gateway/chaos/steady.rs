//! Load that comes and goes: what the process took for it, it gives back.

use futures::future::join_all;
use serde_json::json;
use testkit::model::Model;

use super::vitals::{Vitals, mib, until};
use crate::support::{Gateway, PATIENCE, Place};

const ROUNDS: usize = 5;
const CONNECTIONS: usize = 40;
const CHATS_OF_EACH: usize = 5;
/// Memory may end this much over the first round's: an allocator gives back late, and counters are there for good.
const GROWTH_MAX: u64 = 24 << 20;

/// New sessions in each round: what stayed behind of one would add up.
async fn load(gateway: &Gateway, round: usize) {
    join_all((0..CONNECTIONS).map(|number| async move {
        let mut socket = gateway.client().await;
        for chat in 0..CHATS_OF_EACH {
            let padding = "word ".repeat(400);
            socket.say(&format!("r{round}-{number}-{chat}"), &format!("[[tokens=20]] {padding}"), "one").await;
            // Few run a command: it is looked for in every process of the machine when it ends.
            let tool = if chat == 0 { "exec {\"command\":\"true\"}" } else { "list_dir {\"path\":\".\"}" };
            socket.say(&format!("r{round}-{number}-{chat}"), &format!("[[tool={tool}]]"), "two").await;
        }
        let body = json!({"user": format!("r{round}-{number}"), "messages": [{"role": "user", "content": "hello"}]});
        assert_eq!(gateway.chat(body, None).await.0, 200);
        for _ in 0..2 * CHATS_OF_EACH {
            assert_eq!(socket.until("turn_end").await["result"], "done");
        }
    }))
    .await;
}

/// Waits until no session is in memory.
async fn rest(gateway: &Gateway) {
    let resting = tokio::time::timeout(PATIENCE, async {
        while gateway.admin("status").await["sessions_live"] != 0 {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    });
    assert!(resting.await.is_ok(), "sessions stay in memory: {}", gateway.admin("status").await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handles_memory_and_threads_return_to_what_they_were_when_load_ends() {
    let model = Model::start_on_thread();
    model.config(|config| config.record = false);
    let extra =
        json!({"runtime": {"idleSeconds": 1}, "queue": {"mode": "followup"}, "tools": {"exec": {"sandbox": "off"}}});
    let place = Place::with_model(&model.url(), extra);
    let gateway = place.start().await;
    // The first load makes what stays: pools, caches, connections to the model, the log's next segment.
    load(&gateway, 0).await;
    rest(&gateway).await;
    let first = Vitals::of(gateway.pid());
    for round in 1..ROUNDS {
        load(&gateway, round).await;
        rest(&gateway).await;
    }
    let few = first.files + 8;
    let back = |vitals: &Vitals| {
        let steady = vitals.files <= few && vitals.threads <= first.threads;
        steady && vitals.rss_bytes <= first.rss_bytes + GROWTH_MAX
    };
    let last = until(gateway.pid(), "the load left something behind", back).await;
    println!(
        "chaos steady: {} sessions, files {} -> {}, threads {} -> {}, memory {} -> {}",
        ROUNDS * CONNECTIONS * (CHATS_OF_EACH + 1),
        first.files,
        last.files,
        first.threads,
        last.threads,
        mib(first.rss_bytes),
        mib(last.rss_bytes),
    );
    assert_eq!(gateway.terminate().await, Some(0));
}
