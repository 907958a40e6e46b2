//! Acknowledged data is damaged: the gateway refuses to start and names the command that mends it.

use serde_json::{Value, json};

use crate::support::{Gateway, Place, said};

async fn say(gateway: &Gateway, user: &str, text: &str) {
    let body = json!({"user": user, "messages": [{"role": "user", "content": text}]});
    let (status, body) = gateway.chat(body, None).await;
    assert_eq!(status, 200, "{body}");
}

fn stderr(place: &Place, arguments: &[&str], code: i32) -> String {
    let out = place.run(arguments);
    let text = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(code), "{arguments:?}: {text}");
    text
}

fn stdout(place: &Place, arguments: &[&str]) -> String {
    let out = place.run(arguments);
    assert!(out.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap()
}

/// Whoever asks what became of a session is told, also of one of which nothing is lost.
fn tells_of_the_repair(place: &Place) {
    let events: Vec<Value> = stdout(place, &["logs", "--event", "journal_repaired", "--json"])
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let about: Vec<&str> = events.iter().map(|event| event["session"].as_str().unwrap_or("all")).collect();
    assert!(about[0] == "all" && about[1..].iter().all(|key| *key == "api:user:ann") && about.len() > 1, "{about:?}");
    assert!(events[0]["reason"].as_str().unwrap().contains("0000000000000001.seg bytes "), "{}", events[0]);
    let lost = events[1]["turn"].as_str().or_else(|| events[2]["turn"].as_str()).unwrap().to_owned();
    for (subject, loses) in [("api:user:ann", true), (&*lost, true), ("api:user:bob", false)] {
        let story = stdout(place, &["logs", "--why", subject]);
        assert!(story.contains("The journal was repaired after damage: "), "{story}");
        assert_eq!(story.contains("records of the turn: accepted"), loses, "{story}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_journal_is_repaired_and_everything_else_is_there() {
    let place = Place::new(json!({}));
    let gateway = place.start().await;
    for user in ["ann", "bob"] {
        say(&gateway, user, "one").await;
        say(&gateway, user, "two").await;
    }
    assert!(stderr(&place, &["journal", "repair", "--yes"], 4).contains("in use"));
    assert_eq!(gateway.terminate().await, Some(0));
    let journal = place.path().join("journal");
    let segment = journal.join("0000000000000001.seg");
    let mut bytes = std::fs::read(&segment).unwrap();
    bytes[4096 + 60] ^= 0x55;
    std::fs::write(&segment, &bytes).unwrap();

    let refused = stderr(&place, &["gateway"], 74);
    assert!(
        refused.contains("acknowledged data is damaged") && refused.contains("greenroom journal repair"),
        "{refused}"
    );
    assert!(stderr(&place, &["journal", "check"], 74).contains("greenroom journal repair"));
    let plan = stdout(&place, &["journal", "repair"]);
    assert!(plan.contains("lost  accepted  api:user:ann") && plan.contains("nothing was changed"), "{plan}");
    stderr(&place, &["gateway"], 74);
    let done: Value = serde_json::from_str(&stdout(&place, &["journal", "repair", "--yes", "--json"])).unwrap();
    assert_eq!((&done["repaired"], &done["keys"]), (&json!(true), &json!(2)), "{done}");
    let aside = std::path::Path::new(done["aside"].as_str().unwrap()).join("0000000000000001.seg");
    assert_eq!(std::fs::read(aside).unwrap(), bytes);
    assert_eq!(stdout(&place, &["journal", "repair"]).trim(), "nothing is damaged");

    tells_of_the_repair(&place);

    let gateway = place.start().await;
    say(&gateway, "ann", "three").await;
    assert_eq!(gateway.terminate().await, Some(0));
    let texts = |user: &str| {
        let lines = said(&place.transcript(&format!("api.user.{user}")));
        lines.into_iter().filter(|(role, _)| role == "user").map(|(_, text)| text).collect::<Vec<_>>()
    };
    assert_eq!(
        (texts("ann"), texts("bob")),
        (vec!["one".into(), "two".into(), "three".into()], vec!["one".to_owned(), "two".into()])
    );
    let shown = stdout(&place, &["journal", "show", "--session", "api:user:bob"]);
    assert!(shown.contains("  key  ") && !shown.contains("two"), "{shown}");
}
