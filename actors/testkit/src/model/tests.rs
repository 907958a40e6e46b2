use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::*;
use crate::deadline::with_deadline;

/// Sends one request and reads until the server closes.
async fn ask(model: &Model, text: &str, stream: bool) -> String {
    let body = serde_json::json!({"model": "m", "stream": stream, "stream_options": {"include_usage": true},
        "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": text}]})
    .to_string();
    let length = body.len();
    let head = format!(
        "POST /v1/chat/completions?a=b HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\
         authorization: Bearer key\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    );
    let mut socket = TcpStream::connect(model.address).await.unwrap();
    socket.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    with_deadline(text, socket.read_to_end(&mut answer)).await.unwrap();
    String::from_utf8(answer).unwrap()
}

#[tokio::test]
async fn it_streams_what_the_script_asks_for() {
    let model = Model::start().await;
    let answer = ask(&model, "hi [[tokens=2;usage=7,8,9]][[reasoning=hm]]", true).await;
    for part in
        [r#""content":"echo:hi""#, r#""content":" t1""#, r#""reasoning_content":"hm""#, "\"cached_tokens\":9", "[DONE]"]
    {
        assert!(answer.contains(part), "{part} is missing in {answer}");
    }
    let calls = ask(&model, r#"[[tool=a {"x":1}]][[tool=b]]"#, true).await;
    assert!(calls.contains(r#""name":"a""#) && calls.contains(r#""name":"b""#) && calls.contains("tool_calls"));
    let whole = ask(&model, "[[say=plain]]", false).await;
    assert!(whole.contains(r#""content":"plain""#));
    let stats = model.stats();
    assert_eq!((stats.requests, stats.streamed, stats.ok, stats.concurrent), (3, 2, 3, 0));
    assert_eq!(model.requests().len(), 3);
    assert_eq!(model.calls()[0].uri.query(), Some("a=b"));
}

#[tokio::test]
async fn it_fails_as_asked() {
    let model = Model::start().await;
    let refused = ask(&model, "[[error=429;retry_after=7;times=1]]", true).await;
    assert!(refused.starts_with("HTTP/1.1 429") && refused.contains("retry-after: 7"), "{refused}");
    assert!(ask(&model, "[[error=429;retry_after=7;times=1]]", true).await.starts_with("HTTP/1.1 200"));
    model.config(|config| config.error = Some(PlannedError::times(503, 1)));
    assert!(ask(&model, "x", true).await.starts_with("HTTP/1.1 503"));
    assert!(ask(&model, "x", true).await.starts_with("HTTP/1.1 200"));
    assert!(ask(&model, "[[error=context]]", true).await.contains("context_length_exceeded"));
    let cut = ask(&model, "[[drop=2;tokens=5]]", true).await;
    assert!(cut.contains(" t1") && !cut.contains(" t2") && !cut.ends_with("0\r\n\r\n"), "{cut}");
    let truncated = ask(&model, "[[truncate]]", true).await;
    assert!(!truncated.contains("[DONE]") && !truncated.contains("\"stop\""), "{truncated}");
    assert!(ask(&model, "[[garbage]]", true).await.contains("\"cont\n"));
    model.config(|config| config.api_key = Some("other".to_owned()));
    assert!(ask(&model, "x", true).await.starts_with("HTTP/1.1 401"));
    let stats = model.stats();
    assert_eq!((stats.errors, stats.dropped), (4, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_sees_order_overlap_and_clients_that_leave() {
    let model = Model::start_on_thread();
    ask(&model, "[[seq=k:2]]", true).await;
    ask(&model, "[[seq=k:1]]", true).await;
    let both = tokio::join!(ask(&model, "[[seq=l:1;delay=200]]", true), ask(&model, "[[seq=l:1;delay=200]]", true));
    assert!(both.0.contains("[DONE]") && both.1.contains("[DONE]"));
    let stats = model.stats();
    assert_eq!((stats.seq_seen, stats.seq_out_of_order, stats.seq_overlap, stats.max_concurrent), (4, 1, 1, 2));
    let left = tokio::time::timeout(Duration::from_millis(100), ask(&model, "[[hang]]", true)).await;
    assert!(left.is_err());
    with_deadline("the server notices", async {
        while model.stats().client_gone == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}
