//! SIGKILL in the middle of running turns: nothing accepted is lost, doubled or reordered.

use std::collections::BTreeMap;

use serde_json::json;
use testkit::model::Model;

use crate::support::{Gateway, Place, said};

const ROUNDS: usize = 20;
const CHATS: usize = 500;

/// The texts of each chat that were acknowledged, in order.
type Accepted = BTreeMap<String, Vec<String>>;

/// Sends one message to each chat over a few connections and waits for each acknowledgement.
async fn accept_round(gateway: &Gateway, round: usize, accepted: &mut Accepted) {
    let chats: Vec<String> = (0..CHATS).map(|chat| format!("c{chat}")).collect();
    let connections = chats.chunks(CHATS / 10).map(|chats| async move {
        let mut socket = gateway.websocket("").await;
        socket.until("ready").await;
        for chat in chats {
            socket.say(chat, &format!("r{round} [[seq={chat}:{round}]]"), &format!("{chat}-{round}")).await;
        }
        for _ in chats {
            socket.until("accepted").await;
        }
    });
    futures::future::join_all(connections).await;
    for chat in chats {
        accepted.entry(chat).or_default().push(format!("r{round} [[seq=c:{round}]]"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_accepted_message_is_answered_once_and_in_order_over_twenty_kills() {
    let model = Model::start_on_thread();
    model.config(|config| config.delay = std::time::Duration::from_millis(500));
    // Far more deaths in a row than any limit that could condemn an innocent turn.
    let place = Place::with_model(&model.url(), json!({"supervision": {"processDeaths": 1000}}));
    let mut accepted = Accepted::new();
    for round in 0..ROUNDS {
        let gateway = place.start().await;
        accept_round(&gateway, round, &mut accepted).await;
        gateway.kill_nine();
    }
    model.config(|config| config.delay = std::time::Duration::from_millis(0));
    let gateway = place.start().await;
    gateway.settle().await;
    let status = gateway.admin("status").await;
    assert_eq!(status["journal"]["dead"], 0, "{status}");
    assert_eq!(gateway.terminate().await, Some(0));
    for (chat, texts) in &accepted {
        check_transcript(&place, chat, texts.len());
    }
    assert!(!place.events().iter().any(|event| event["event"] == "dead_lettered"));
}

fn check_transcript(place: &Place, chat: &str, rounds: usize) {
    let lines = place.transcript(&format!("websocket.{chat}"));
    let expected: Vec<(String, String)> = (0..rounds)
        .flat_map(|round| {
            let text = format!("r{round} [[seq={chat}:{round}]]");
            [("user".to_owned(), text), ("assistant".to_owned(), format!("echo:r{round} "))]
        })
        .collect();
    let found: Vec<(String, String)> =
        said(&lines).into_iter().map(|(role, text)| (role, text.trim_end_matches('\0').to_owned())).collect();
    let trim = |list: &[(String, String)]| -> Vec<(String, String)> {
        list.iter().map(|(role, text)| (role.clone(), text.trim().to_owned())).collect()
    };
    assert_eq!(trim(&found), trim(&expected), "{chat}");
}
