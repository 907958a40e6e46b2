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
    chat.socket.say("z", "take it [[hang]]", "m1").await;
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
    chat.control("z", "/stop").await;
    through(&gateway, 6).await;
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_for_a_sub_agent_keeps_no_place_from_it_and_has_its_result_once() {
    let model = Model::start_on_thread();
    let place = Place::with_model(&model.url(), json!({"runtime": {"maxRunningTurns": 1}}));
    let gateway = place.start().await;
    let task = "count [[delay=1500]] [[say=5 toads]]";
    let asks = format!("{} [[tool=subagents {{\"action\": \"wait\"}}]]", sends(&[task], json!({})));
    let (gateway, said_it) = {
        let mut chat = Chat::open(&gateway).await;
        chat.socket.say("a", &asks, "m1").await;
        until("the child", async || !children(&place).is_empty()).await;
        gateway.kill_nine();
        (place.start().await, chat)
    };
    drop(said_it);
    gateway.delivered().await;
    let lines = place.transcript("websocket.a");
    let told = events(&lines);
    assert!(matches!(&told[..], [(_, status, text)] if status == "done" && text.contains("5 toads")), "{told:?}");
    let results = texts(&lines, "toolResult");
    let [begun, waited] = &results[..] else { panic!("{results:?}") };
    assert!(begun.starts_with("Sub-agent \"toads 0\" is at work"), "{begun}");
    assert!(waited.contains("\"toads 0\": done (run") && !waited.contains("5 toads"), "{waited}");
    assert_eq!(children(&place).len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_result_that_is_waited_for_outlives_a_kill_and_is_not_reported_as_well() {
    let model = Model::start_on_thread();
    let place = Place::with_model(&model.url(), json!({"runtime": {"maxRunningTurns": 1}}));
    let gateway = place.start().await;
    let asks = sends(&["count [[delay=1500]] [[say=5 toads]]"], json!({"wait": true}));
    let mut chat = Chat::open(&gateway).await;
    chat.socket.say("a", &asks, "m1").await;
    until("the child", async || !children(&place).is_empty()).await;
    gateway.kill_nine();
    let gateway = place.start().await;
    gateway.delivered().await;
    let lines = place.transcript("websocket.a");
    assert!(events(&lines).is_empty());
    let results = texts(&lines, "toolResult");
    assert!(matches!(&results[..], [one] if one.contains(": done.") && one.contains("5 toads")), "{results:?}");
    assert_eq!(children(&place).len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fork_knows_what_was_said_before_and_has_only_its_own_work_to_do() {
    let model = Model::start_on_thread();
    let place = Place::with_model(&model.url(), json!({}));
    let gateway = place.start().await;
    assert_eq!(gateway.say("cli:direct", "my toad is called Olga [[say=a fine name]]", "m1").await, "done");
    for (context, number) in [("fork", 2), ("none", 3)] {
        let asks = sends(&["count [[say=5 toads]]"], json!({"context": context}));
        assert_eq!(gateway.say("cli:direct", &asks, &format!("m{number}")).await, "done");
        gateway.delivered().await;
    }
    let of_children: Vec<Vec<Value>> = model
        .requests()
        .iter()
        .filter(|request| request["messages"][0]["content"].as_str().unwrap().contains("# You are a sub-agent"))
        .map(|request| request["messages"].as_array().unwrap().clone())
        .collect();
    let [fork, none] = &of_children[..] else { panic!("two were sent: {of_children:?}") };
    let roles: Vec<&str> = fork.iter().map(|message| message["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["system", "user", "assistant", "user"], "{fork:?}");
    assert!(fork[1].to_string().contains("Olga") && fork[2].to_string().contains("a fine name"));
    assert!(!fork[3].to_string().contains("tool=spawn") && none.len() == 2 && !none[1].to_string().contains("Olga"));
    let stems = children(&place);
    assert!(stems.iter().all(|stem| place.transcript(stem).iter().any(|line| line["customType"] == "greenroom.run")));
    assert_eq!(events(&place.transcript("cli.direct")).len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_ends_at_its_rounds_and_at_its_part_of_the_tokens_and_says_so() {
    let model = Model::start_on_thread();
    let place = Place::with_model(&model.url(), json!({"runtime": {"subagentTokens": 1_000_000}}));
    let gateway = place.start().await;
    let calls = r#"count [[tool=exec {"command": "true"}]] [[tool=exec {"command": "echo 1"}]] [[say=3 toads]]"#;
    let asks = sends(&[calls], json!({"iterations": 1, "label": "short"}));
    assert_eq!(gateway.say("cli:direct", &asks, "m1").await, "done");
    gateway.delivered().await;
    let asks = sends(&[calls], json!({"budget": 10, "label": "poor"}));
    assert_eq!(gateway.say("cli:direct", &asks, "m2").await, "done");
    let asks = sends(&["count"], json!({"budget": 1_000_001, "label": "rich"}));
    assert_eq!(gateway.say("cli:direct", &asks, "m3").await, "done");
    gateway.delivered().await;
    let lines = place.transcript("cli.direct");
    let told = events(&lines);
    let [(_, short, _), (_, poor, text)] = &told[..] else { panic!("{told:?}") };
    assert!(short == "done" && told[0].2.contains("It used up its 1 round: the result may be incomplete"), "{told:?}");
    assert!(poor == "over its budget" && text.contains("Its last steps:\n- exec: done"), "{told:?}");
    let refused = "of the 1000000 tokens that the sub-agents of one turn may use together, 1000000 are left";
    let results = texts(&lines, "toolResult");
    assert!(results.iter().any(|result| result.contains(refused)), "{results:?}");
    let mut given: Vec<Value> = Vec::new();
    for stem in children(&place) {
        let lines = place.transcript(&stem);
        let spec = lines.iter().find(|line| line["customType"] == "greenroom.run").unwrap();
        given.push(spec["data"]["budgetTokens"].clone());
    }
    given.sort_by_key(Value::as_u64);
    assert_eq!(given, [10, 200_000], "one of five that may come has a fifth");
}
