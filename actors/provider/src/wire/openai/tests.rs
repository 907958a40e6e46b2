//! Each deviation that servers are known for, over a real connection.

use domain::chat::{Arguments, StopReason, Usage};
use futures::{StreamExt, stream};
use protocol::provider::FailureKind;
use serde_json::json;
use testkit::deadline::{run, run_paused};
use testkit::model::{Model, PlannedError};
use testkit::raw::{Afterwards, RawServer};

use super::service::read_error;
use super::*;
use crate::retry::{ErrorAnswer, classify};

fn caller(base: &str) -> Caller {
    let server = Server {
        name: "test".to_owned(),
        base: base.to_owned(),
        key: Some("secret-1".to_owned().into()),
        extra_headers: vec![("x-extra".to_owned(), "7".to_owned())],
        extra_query: vec![("v".to_owned(), "a b".to_owned())],
        ..Server::default()
    };
    Caller {
        endpoint: Arc::new(Endpoint::new(server).unwrap()),
        http: crate::http::http_client().unwrap(),
        limits: Limits::default(),
        clock: Arc::new(supervision::real::RealClock::new()),
    }
}

async fn ask(caller: &Caller, text: &str) -> (Result<Answer, CallError>, Vec<Delta>) {
    let body = json!({"model": "m", "stream": true, "stream_options": {"include_usage": true},
        "messages": [{"role": "user", "content": text}]});
    let mut deltas = Vec::new();
    let result = caller.attempt(&body, "made_", &mut |delta| deltas.push(delta)).await;
    (result, deltas)
}

async fn ask_raw(server: &RawServer) -> Result<Answer, CallError> {
    ask(&caller(&server.url()), "hi").await.0
}

async fn events(events: &str) -> Result<Answer, CallError> {
    ask_raw(&RawServer::event_stream(events, Afterwards::Close).await).await
}

fn chunk(delta: Value, finish: &str) -> String {
    format!("data: {}\n\n", json!({"choices": [{"delta": delta, "finish_reason": finish}]}))
}

#[test]
fn a_scripted_model_is_understood() {
    run("scripted model", async {
        let model = Model::start().await;
        let caller = caller(&model.url());
        let (answer, deltas) = ask(&caller, "hi [[tokens=3;usage=7,8,9]][[reasoning=hm]]").await;
        let text = |text: &str| Delta::Text(text.to_owned());
        assert_eq!(deltas, [Delta::Reasoning("hm".to_owned()), text("echo:hi"), text(" t1"), text(" t2")]);
        let usage = Usage { input_tokens: 7, output_tokens: 8, cached_tokens: 9 };
        let expected = Answer {
            text: "echo:hi t1 t2".to_owned(),
            reasoning: Some("hm".to_owned()),
            calls: Vec::new(),
            stop: StopReason::Stop,
            usage,
        };
        assert_eq!(answer, Ok(expected));
        let answer = ask(&caller, r#"[[tool=a {"x":[1,2]}]][[tool=b]][[badargs]]"#).await.0.unwrap();
        assert_eq!((answer.stop, answer.calls.len()), (StopReason::ToolUse, 2));
        assert!(matches!(&answer.calls[0].arguments, Arguments::Malformed { problem, .. } if problem.contains("JSON")));
        assert_eq!(ask(&caller, "[[empty]]").await.0.unwrap().text, "");
        assert_eq!(ask(&caller, "x [[garbage]]").await.0.unwrap().text, "echo:x");
        let call = model.calls().remove(0);
        assert_eq!(call.headers["authorization"], "Bearer secret-1");
        assert_eq!(call.headers["x-extra"], "7");
        assert_eq!(call.uri.query(), Some("v=a+b"));
    });
}

#[test]
fn a_scripted_model_that_may_call_nothing_answers_in_words() {
    run("tool choice", async {
        let model = Model::start().await;
        let body = json!({"stream": true, "tool_choice": "none",
            "messages": [{"role": "user", "content": "[[tool=a]][[say=ok]]"}]});
        let answer = caller(&model.url()).attempt(&body, "made_", &mut |_| ()).await.unwrap();
        assert_eq!((answer.text.as_str(), answer.calls.len()), ("ok", 0));
    });
}

#[test]
fn cut_and_truncated_streams_are_failures() {
    run("cuts", async {
        let model = Model::start().await;
        let caller = caller(&model.url());
        let (cut, deltas) = ask(&caller, "x [[drop=2;tokens=5]]").await;
        assert!(matches!(cut, Err(CallError::Cut(_))), "{cut:?}");
        assert_eq!(deltas.len(), 2);
        assert_eq!(ask(&caller, "x [[truncate;tokens=5]]").await.0, Err(CallError::Truncated));
        assert_eq!(events("").await, Err(CallError::Truncated));
        assert_eq!(events("data: [DONE]\n\n").await, Err(CallError::Truncated));
        drop(model);
        assert!(matches!(ask(&caller, "x").await.0, Err(CallError::Connect(_) | CallError::Cut(_))));
    });
}

#[test]
fn statuses_codes_and_waits_survive_every_form_of_error() {
    run("errors", async {
        let model = Model::start().await;
        let caller = caller(&model.url());
        model
            .config(|config| config.error = Some(PlannedError { retry_after_s: Some(7), ..PlannedError::always(429) }));
        let Err(CallError::Answered(limited)) = ask(&caller, "x").await.0 else { panic!("no error") };
        assert_eq!((limited.status, limited.retry_after), (429, Some(Duration::from_secs(7))));
        assert!(limited.codes.contains(&"rate_limit_exceeded".to_owned()));
        for (status, body, message, kind) in [
            (401, r#"{"error":{"message":"no","code":401}}"#, "no", FailureKind::Unauthorized),
            (400, r#"{"message":"no","code":7}"#, "no", FailureKind::Refused),
            (403, "<html><h1>no</h1></html>", "an HTML page", FailureKind::Unauthorized),
            (400, r#"{"error":"no"}"#, "no", FailureKind::Refused),
            (429, r#"{"detail":"no"}"#, "no", FailureKind::RateLimited),
            (422, r#"{"detail":[{"loc":["a"]}]}"#, r#"[{"loc":["a"]}]"#, FailureKind::Refused),
            (400, r#"[{"error":{"message":"no","status":"INVALID"}}]"#, "no", FailureKind::Refused),
            (500, "no", "no", FailureKind::Transient),
            (413, "", "", FailureKind::ContextTooLong),
            (308, "", "", FailureKind::Refused),
        ] {
            let server = RawServer::answer(status, "retry-after: 3\r\nlocation: /\r\n", body).await;
            let error = ask_raw(&server).await.unwrap_err();
            let CallError::Answered(answer) = &error else { panic!("{error}") };
            let wait = Some(Duration::from_secs(3));
            assert_eq!((answer.status, answer.message.as_str(), answer.retry_after), (status, message, wait));
            assert_eq!(classify(&error).kind, kind, "{status} {body}");
        }
    });
}

#[test]
fn a_good_answer_that_is_no_stream_is_refused() {
    run("content type", async {
        let json = "content-type: application/json; charset=utf-8\r\n";
        let whole = RawServer::answer(200, json, r#"{"choices":[{"message":{"content":"x"}}]}"#).await;
        assert_eq!(ask_raw(&whole).await, Err(CallError::ContentType("application/json".to_owned())));
        let error = RawServer::answer(200, json, r#"{"error":{"message":"no","code":"insufficient_quota"}}"#).await;
        assert_eq!(classify(&ask_raw(&error).await.unwrap_err()).kind, FailureKind::Billing);
        let page = RawServer::answer(200, "content-type: text/html\r\n", "<html>").await;
        assert_eq!(ask_raw(&page).await, Err(CallError::ContentType("text/html".to_owned())));
    });
}

#[test]
fn deviating_streams_are_understood() {
    run("deviations", async {
        let text = |answer: Result<Answer, CallError>| answer.unwrap().text;
        let (x, end) = (chunk(json!({"content": "x"}), ""), chunk(json!({}), "stop"));
        assert_eq!(text(events(&format!(": ping\n\n{x}: ping\n\n{end}")).await), "x", "no end mark, but a reason");
        assert_eq!(text(events(&format!("{x}data: [DONE]\n\n")).await), "x", "an end mark, but no reason");
        assert_eq!(text(events(&format!("{x}{end}").replace('\n', "\r\n")).await), "x", "CRLF");
        assert_eq!(text(events(&format!("{x}{end}").replace("data: ", "data:")).await), "x", "no space");
        assert_eq!(text(events(&format!("{x}{end}").replace("\n\n", "\n")).await), "x", "no blank lines");
        assert_eq!(text(events(&format!("{x}data: <oops>\n\n{end}")).await), "x", "a line that is no JSON");
        let failed =
            events(&format!("{x}data: {{\"error\":{{\"message\":\"no\",\"code\":429}}}}\n\n")).await.unwrap_err();
        assert_eq!(classify(&failed).kind, FailureKind::RateLimited);
    });
}

#[test]
fn the_end_mark_ends_an_answer_whose_connection_stays_open() {
    run("open after the end", async {
        let stream = format!("{}{}data: [DONE]\n\n", chunk(json!({"content": "x"}), ""), chunk(json!({}), "stop"));
        let server = RawServer::event_stream(&stream, Afterwards::KeepOpen).await;
        assert_eq!(ask_raw(&server).await.unwrap().text, "x");
    });
}

#[test]
fn silence_ends_a_call() {
    run_paused("silence", async {
        let speech = stream::iter([Ok::<_, std::io::Error>(bytes::Bytes::from_static(b"data: 1\n\n"))]);
        let idle = Duration::from_secs(90);
        let mut silent = Events::new(speech.chain(stream::pending()), idle);
        assert_eq!(silent.next().await, Ok(Said::Chunk(json!(1))));
        assert_eq!(silent.next().await, Err(CallError::Idle(idle)));
        // Comments are a sign of life.
        let pings = stream::unfold(0, |count| async move {
            tokio::time::sleep(Duration::from_secs(60)).await;
            let item = if count < 5 { ": ping\n\n" } else { "data: [DONE]\n\n" };
            Some((Ok::<_, std::io::Error>(bytes::Bytes::from_static(item.as_bytes())), count + 1))
        });
        assert_eq!(Events::new(Box::pin(pings), idle).next().await, Ok(Said::Done));
    });
}

#[test]
fn what_is_shown_is_the_answer_also_where_a_tag_does_not_come_to_an_end() {
    run("tags", async {
        let say = |text: &str| chunk(json!({"content": text}), "");
        let stream = [say("<thi"), say("nk>h</think>yes"), say("\n<tool"), say("_call>{}"), say("\n<thi")].concat();
        for allowed in [false, true] {
            let server =
                RawServer::event_stream(&(stream.clone() + &chunk(json!({}), "stop")), Afterwards::Close).await;
            let mut caller = caller(&server.url());
            let configured = Server { base: server.url(), text_calls: allowed, ..Server::default() };
            caller.endpoint = Arc::new(Endpoint::new(configured).unwrap());
            let (answer, deltas) = ask(&caller, "hi").await;
            let answer = answer.unwrap();
            let (mut text, mut reasoning) = (String::new(), String::new());
            for delta in deltas {
                match delta {
                    Delta::Text(piece) => text.push_str(&piece),
                    Delta::Reasoning(piece) => reasoning.push_str(&piece),
                }
            }
            assert_eq!((answer.text.as_str(), answer.reasoning.as_deref()), (&*text, Some(&*reasoning)));
            assert_eq!((&*text, &*reasoning), ("yes\n<tool_call>{}\n<thi", "h"));
        }
    });
}

#[test]
fn a_server_that_never_answers_is_left_after_the_limit() {
    run("hang", async {
        let model = Model::start().await;
        let mut caller = caller(&model.url());
        caller.limits.idle = Duration::from_millis(100);
        assert_eq!(ask(&caller, "[[hang]]").await.0, Err(CallError::Idle(caller.limits.idle)));
        caller.limits = Limits { idle: Duration::from_secs(60), total: Duration::from_millis(100) };
        assert_eq!(ask(&caller, "[[hang]]").await.0, Err(CallError::TooSlow(caller.limits.total)));
    });
}

#[test]
fn an_endless_line_is_not_read_for_ever() {
    run("endless line", async {
        let endless = stream::repeat_with(|| Ok::<_, std::io::Error>(bytes::Bytes::from_static(&[b'x'; 1 << 20])));
        let told = Events::new(endless, Duration::from_secs(9)).next().await;
        assert_eq!(told, Err(CallError::TooLarge("a very long line")));
    });
}

#[test]
fn an_answer_that_is_too_long_to_keep_is_refused_and_not_asked_for_again() {
    run("a very long answer", async {
        let mut stream = chunk(json!({"content": "x".repeat(1_000_000)}), "").repeat(20);
        stream.push_str(&chunk(json!({}), "stop"));
        let error = events(&stream).await.unwrap_err();
        assert_eq!(error.to_string(), "sent an answer of more than 2 MiB, which is more than is accepted");
        let verdict = classify(&error);
        assert_eq!((verdict.kind, verdict.again), (FailureKind::Refused, false));
    });
}

#[test]
fn connections_are_used_again() {
    run("reuse", async {
        let model = Model::start().await;
        let caller = caller(&model.url());
        for _ in 0..20 {
            ask(&caller, "x [[tokens=2;itd=1]]").await.0.unwrap();
        }
        assert!(model.stats().connections <= 2, "{:?}", model.stats());
    });
}

#[test]
fn servers_are_checked_when_they_are_configured() {
    let check = |change: &dyn Fn(&mut Server)| {
        let mut server = Server { name: "p".to_owned(), base: "http://x/v1/".to_owned(), ..Server::default() };
        change(&mut server);
        Endpoint::new(server).map(|endpoint| endpoint.url("/y"))
    };
    let name = || "p".to_owned();
    assert_eq!(check(&|_| ()), Ok("http://x/v1/y".to_owned()));
    assert_eq!(check(&|server| server.base = "ftp://x".to_owned()), Err(BadServer::Base { name: name() }));
    assert_eq!(check(&|server| server.base = "x".to_owned()), Err(BadServer::Base { name: name() }));
    assert_eq!(check(&|server| server.key = Some("a\nb".to_owned().into())), Err(BadServer::Key { name: name() }));
    let bad_header = |server: &mut Server| server.extra_headers.push(("a b".to_owned(), String::new()));
    assert_eq!(check(&bad_header), Err(BadServer::Header { name: name(), header: "a b".to_owned() }));
    let keyed =
        Server { key: Some("sk-very-secret".to_owned().into()), base: "http://x".to_owned(), ..Server::default() };
    assert!(!format!("{keyed:?}").contains("very"));
}

#[test]
fn any_error_body_is_read() {
    for body in [&b"\xff\xfe"[..], b"[]", b"[[[]]]", b"null", b"7", b"\"x\"", b"{\"error\":[]}", b"{\"error\":7}"] {
        let ErrorAnswer { status, .. } = read_error(500, body);
        assert_eq!(status, 500);
    }
}
