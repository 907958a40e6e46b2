//! `/subagents` in chat, and what sub-agents are told.

use serde_json::{Value, json};
use testkit::model::Model;

use crate::subagents::{children, events, sends, through, until};
use crate::support::{Gateway, Place, Socket, said};

/// Whoever chats.
struct Chat {
    socket: Socket,
    calls: u64,
}

impl Chat {
    async fn open(gateway: &Gateway) -> Self {
        let mut socket = gateway.websocket("").await;
        socket.until("ready").await;
        Self { socket, calls: 0 }
    }

    /// What a control command is answered with.
    async fn control(&mut self, chat: &str, text: &str) -> String {
        self.calls += 1;
        self.socket.say(chat, text, &format!("c{}", self.calls)).await;
        loop {
            let message = self.socket.until("message").await;
            if message["control"] == true {
                return message["text"].as_str().unwrap().to_owned();
            }
        }
    }

    async fn ends(&mut self, chat: &str, text: &str) {
        self.calls += 1;
        self.socket.say(chat, text, &format!("c{}", self.calls)).await;
        self.socket.until("turn_end").await;
    }
}

fn texts(lines: &[Value], role: &str) -> Vec<String> {
    said(lines).into_iter().filter(|(of, _)| of == role).map(|(_, text)| text).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chat_sees_tells_and_stops_its_sub_agents_while_the_only_place_is_taken() {
    let model = Model::start_on_thread();
    let place = Place::with_model(&model.url(), json!({"runtime": {"maxRunningTurns": 1}}));
    let gateway = place.start().await;
    let mut chat = Chat::open(&gateway).await;
    assert_eq!(chat.control("a", "/subagents").await, "This session has sent no sub-agents.");
    let task = format!("{} [[hang]]", "count the toads ".repeat(40));
    chat.ends("a", &sends(&[&task], json!({"label": "toads"}))).await;
    let list = chat.control("a", "/subagents list").await;
    assert!(list.contains("  toads: running, begun 0 s ago"), "{list}");
    let id = list.split(' ').next().unwrap();
    assert_eq!(chat.control("b", "/subagents").await, "This session has sent no sub-agents.", "another session");
    let other = chat.control("b", &format!("/subagents cancel {id}")).await;
    assert!(other.starts_with(&format!("There is no sub-agent {id} of this session")), "{other}");
    assert!(chat.control("a", "/subagents info toads").await.contains(&format!("agent:main:subagent:{id}")));
    assert_eq!(chat.control("a", &format!("/subagents send {id} [[say=3 newts]]")).await, "toads takes it up next.");
    let log = chat.control("a", "/subagents log toads").await;
    assert_eq!(log, "It has said nothing yet.");
    assert_eq!(chat.control("a", "/subagents cancel all").await, "Stops: toads.");
    through(&gateway, 4).await;
    assert_eq!(chat.control("a", "/subagents cancel toads").await, "Nothing of that is running.");
    let steer = chat.control("a", "/subagents steer toads left").await;
    assert!(steer.starts_with("toads was not told: it has ended"), "{steer}");
    let [stem] = &children(&place)[..] else { panic!("one was sent") };
    assert_eq!(texts(&place.transcript(stem), "user").len(), 2, "what is stopped stands in its transcript");
    let lines = place.transcript("websocket.a");
    assert!(!texts(&lines, "user").iter().any(|text| text.contains("/subagents")), "no command is kept");
    assert!(!model.requests().iter().any(|request| request.to_string().contains("/subagents ")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_sent_waits_and_is_answered_and_what_steers_is_seen_at_the_next_step() {
    let model = Model::start_on_thread();
    let place = Place::with_model(&model.url(), json!({}));
    let gateway = place.start().await;
    let mut chat = Chat::open(&gateway).await;
    let task = r#"count [[delay=700]] [[tool=exec {"command": "sleep 2"}]] [[say=5 toads]]"#;
    chat.ends("a", &sends(&[task], json!({"label": "toads"}))).await;
    assert_eq!(chat.control("a", "/subagents send toads [[say=3 newts]]").await, "toads takes it up next.");
    assert_eq!(chat.control("a", "/subagents steer toads look left").await, "toads sees it at its next step.");
    until("both reports", async || {
        gateway.delivered().await;
        events(&place.transcript("websocket.a")).len() == 2
    })
    .await;
    let [stem] = &children(&place)[..] else { panic!("one was sent") };
    let lines = place.transcript(stem);
    let told: Vec<_> = said(&lines).into_iter().filter(|(role, _)| role != "toolResult").collect();
    let at = |text: &str| told.iter().position(|(_, said)| said.contains(text)).unwrap();
    assert!(at("look left") < at("3 newts"), "{told:?}");
    let turns: Vec<_> = lines.iter().filter(|line| line["message"]["role"] == "user").collect();
    assert_eq!(turns.len(), 3);
    let reports = events(&place.transcript("websocket.a"));
    assert!(reports.iter().all(|(run, status, _)| *run == reports[0].0 && status == "done"), "{reports:?}");
    assert!(reports[1].2.contains("Result:\n3 newts"), "{reports:?}");
    let runs = lines.iter().filter(|line| line["customType"] == "greenroom.run");
    assert_eq!(runs.count(), 1);
}
