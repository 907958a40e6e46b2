//! SIGKILL at each step of one turn, from the acceptance of its message to the delivery of its reply.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use testkit::model::Model;
use testkit::receiver::{Answer, Receiver};

use crate::support::{Gateway, PATIENCE, Place, said};

/// How far the turn is at the kill.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Accepted,
    ModelAsked,
    ToolCalled,
    ToolFinished,
    Answered,
    ReplySent,
}

const STEPS: [Step; 6] =
    [Step::Accepted, Step::ModelAsked, Step::ToolCalled, Step::ToolFinished, Step::Answered, Step::ReplySent];

struct World {
    model: Model,
    receiver: Receiver,
    place: Place,
}

async fn until(what: &str, is: impl Fn() -> bool) {
    let waiting = tokio::time::timeout(PATIENCE, async {
        while !is() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    assert!(waiting.await.is_ok(), "{what} does not come");
}

impl World {
    fn new() -> Self {
        let (model, receiver) = (Model::start_on_thread(), Receiver::start());
        let webhook = json!({"enabled": true, "port": 0, "url": receiver.url(), "allowFrom": "*"});
        let direct = json!({"profile": "full", "sandbox": "configured", "workspaceAccess": "rw"});
        let extra = json!({
            "channels": {"webhook": webhook}, "session": {"policies": {"direct": direct}},
            "tools": {"exec": {"sandbox": "off"}},
        });
        let place = Place::with_model(&model.url(), extra);
        Self { model, receiver, place }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.place.path().join("workspace").join(name)
    }

    /// How often the command of the turn began.
    fn ran(&self) -> usize {
        std::fs::read_to_string(self.file("ran")).unwrap_or_default().lines().count()
    }

    /// Sends the message, whose command waits for the file `go`, and returns once the turn is at `step`.
    async fn reach(&self, gateway: &Gateway, step: Step) {
        let model = |delay| self.model.config(|config| config.delay = delay);
        let never = Duration::from_secs(3600);
        model(if step <= Step::ModelAsked { never } else { Duration::ZERO });
        self.receiver.always((step == Step::Answered).then_some(Answer::Status(503)));
        self.receiver.plan((step == Step::ReplySent).then_some(Answer::Held));
        let command = json!({"command": "echo ran >> ran; while [ ! -e go ]; do sleep 0.02; done; echo found"});
        let body = json!({"chat_id": "7", "message_id": "m1", "text": format!("look [[tool=exec {command}]]")});
        let url = gateway.beacon().webhook_url.unwrap();
        let reply = provider::http_client().unwrap().post(url).json(&body).send().await.unwrap();
        assert_eq!(reply.status().as_u16(), 202);
        if step == Step::Accepted {
            return;
        }
        until("the first model call", || !self.model.requests().is_empty()).await;
        if step == Step::ModelAsked {
            return;
        }
        until("the tool call", || self.ran() == 1).await;
        if step == Step::ToolCalled {
            return;
        }
        if step == Step::ToolFinished {
            model(never);
        }
        std::fs::write(self.file("go"), "").unwrap();
        until("the second model call", || self.model.requests().len() == 2).await;
        if step == Step::ToolFinished {
            return;
        }
        until("the first attempt to deliver", || !self.receiver.requests().is_empty()).await;
    }

    /// One turn, each call with one result, one answer, one reply.
    fn check(&self, step: Step) {
        let lines = self.place.transcript("webhook.7");
        let roles: Vec<String> = said(&lines).into_iter().map(|(role, _)| role).collect();
        assert_eq!(roles, ["user", "assistant", "toolResult", "assistant"], "{step:?}");
        let messages: Vec<&Value> = lines.iter().map(|line| &line["message"]).collect();
        let calls = messages[1]["content"].as_array().unwrap().iter().filter(|block| block["type"] == "toolCall");
        let calls: Vec<&Value> = calls.map(|call| &call["id"]).collect();
        assert_eq!(calls, [&messages[2]["toolCallId"]], "{step:?}");
        assert_eq!(messages[3]["turnEnd"], "done", "{step:?}");
        let result = said(&lines)[2].1.clone();
        if step == Step::ToolCalled {
            assert!(result.contains("unknown"), "the model is told that nobody knows: {result}");
        } else {
            assert!(result.contains("found"), "{step:?}: {result}");
        }
        assert_eq!(self.ran(), 1, "{step:?}: a command is not run again");
        let requests = self.receiver.requests();
        let texts: Vec<&str> = requests
            .iter()
            .filter(|request| request.taken)
            .map(|request| request.body["text"].as_str().unwrap())
            .collect();
        let repeats: Vec<bool> = requests.iter().map(|request| request.body["repeat"] == true).collect();
        assert!(requests.iter().all(|request| request.id() == requests[0].id()), "{step:?}: one reply has one id");
        let times = if step == Step::ReplySent { 2 } else { 1 };
        assert_eq!(texts, vec!["echo:look results=1"; times], "{step:?}");
        // An attempt had begun: nobody knows what became of it.
        let begun = matches!(step, Step::Answered | Step::ReplySent);
        assert_eq!(repeats.contains(&true), begun, "{step:?}: what may come twice says so");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_at_any_step_of_a_turn_loses_nothing_doubles_nothing_and_leaves_no_call_open() {
    for step in STEPS {
        let world = World::new();
        let gateway = world.place.start().await;
        world.reach(&gateway, step).await;
        gateway.kill_nine();
        world.model.config(|config| config.delay = Duration::ZERO);
        world.receiver.always(None);
        std::fs::write(world.file("go"), "").unwrap();
        let gateway = world.place.start().await;
        gateway.delivered().await;
        assert_eq!(gateway.terminate().await, Some(0));
        world.check(step);
    }
}
