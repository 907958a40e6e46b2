//! A model server that the system stopped (SIGSTOP): it takes connections and says nothing.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::response::Response;
use axum::routing::post;
use serde_json::json;
use testkit::deadline::with_deadline;
use testkit::model::Model;

use crate::support::{Place, said};

const CHILD: &str = "GREENROOM_TEST_CHILD_MODEL";
/// Marks the messages that the stopped server is to answer.
const STUCK: &str = "stuck";
const CHATS: usize = 20;

/// Not a test of its own: a model server in a process that can be stopped.
#[test]
fn child_that_is_a_model() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let model = Model::start_on_thread();
    println!("\nmodel at {}", model.url());
    // Until the parent is gone.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

/// The process; killed when dropped.
struct Server {
    child: Child,
    url: String,
}

impl Server {
    fn start() -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "chaos::stalled::child_that_is_a_model", "--nocapture"])
            .env(CHILD, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut lines = lines.map_while(Result::ok);
        let url = lines.find_map(|line| line.strip_prefix("model at ").map(str::to_owned)).unwrap();
        Self { child, url }
    }

    fn signal(&self, name: &str) {
        let status = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status();
        assert!(status.unwrap().success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // SIGKILL reaches a stopped process too.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Routes {
    stopped: String,
    well: String,
    http: reqwest::Client,
}

/// One address for two servers, of which the message chooses one.
async fn balancer(stopped: &str, well: &str) -> String {
    let http = provider::http_client().unwrap();
    let routes = Arc::new(Routes { stopped: stopped.to_owned(), well: well.to_owned(), http });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let router = Router::new().route("/v1/chat/completions", post(forward)).with_state(routes);
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    url
}

async fn forward(State(routes): State<Arc<Routes>>, body: Bytes) -> Response {
    let asked: serde_json::Value = serde_json::from_slice(&body).unwrap();
    let last = asked["messages"].as_array().unwrap().iter().rfind(|message| message["role"] == "user");
    let url = if last.unwrap()["content"].to_string().contains(STUCK) { &routes.stopped } else { &routes.well };
    let request = routes.http.post(format!("{url}/chat/completions")).header("content-type", "application/json");
    let reply = request.body(body).send().await.unwrap();
    let kind = reply.headers()["content-type"].clone();
    let mut response = Response::new(Body::from_stream(reply.bytes_stream()));
    response.headers_mut().insert("content-type", kind);
    response
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn turns_of_a_stopped_model_server_are_given_up_and_nobody_else_waits_for_it() {
    let (server, well) = (Server::start(), Model::start_on_thread());
    let url = balancer(&server.url, &well.url()).await;
    let place = Place::with_model(&url, json!({"runtime": {"stallSeconds": 3}}));
    let gateway = place.start().await;
    let mut stuck = gateway.client().await;
    server.signal("STOP");
    for chat in 0..CHATS {
        stuck.say(&format!("stuck-{chat}"), STUCK, "m1").await;
        stuck.until("accepted").await;
    }
    // Others are answered, and so is control in a chat that hangs, while the stopped server says nothing.
    let body = json!({"user": "ann", "messages": [{"role": "user", "content": "hello"}]});
    let (status, answer) = gateway.chat(body, None).await;
    assert_eq!(status, 200, "{answer}");
    stuck.send(json!({"type": "message", "chat_id": "stuck-0", "content": "/status", "message_id": "c"})).await;
    let control = stuck.until("message").await;
    assert_eq!((&control["control"], &control["chat_id"]), (&json!(true), &json!("stuck-0")), "{control}");
    assert!(control["text"].as_str().unwrap().starts_with("Thinking"), "{control}");
    assert_eq!(gateway.get("/ready").await.0, 200);
    let ends = async {
        for _ in 0..CHATS {
            assert_eq!(stuck.until("turn_end").await["result"], "failed");
        }
    };
    with_deadline("the end of turns without progress", ends).await;
    server.signal("CONT");
    for chat in 0..CHATS {
        stuck.say(&format!("stuck-{chat}"), STUCK, "m2").await;
    }
    for _ in 0..CHATS {
        assert_eq!(stuck.until("turn_end").await["result"], "done");
    }
    assert_eq!(gateway.terminate().await, Some(0));
    for chat in 0..CHATS {
        let texts = said(&place.transcript(&format!("websocket.stuck-{chat}")));
        assert_eq!(texts.len(), 4, "{texts:?}");
        assert_eq!(texts[3].1, format!("echo:{STUCK}"));
    }
    let told = place.events().into_iter().filter(|event| event["event"] == "turn_stuck").count();
    assert_eq!(told, CHATS, "each stuck turn is an event");
    println!("chaos stopped model: {CHATS} turns given up, {CHATS} answered after it went on");
}
