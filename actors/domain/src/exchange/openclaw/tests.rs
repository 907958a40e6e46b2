use serde_json::{Value, json};

use super::*;
use crate::ids::SessionKey;
use crate::transcript::{EntryKind, Pen, read_lines};

fn key(text: &str) -> SessionKey {
    SessionKey::new(text).unwrap()
}

const FILE: &str = concat!(
    r#"{"type":"session","version":3,"id":"s1","timestamp":"2026-03-01T10:00:00.000Z","cwd":"/home/user"}"#,
    "\n",
    r#"{"type":"message","id":"a","parentId":null,"timestamp":"2026-03-01T10:00:01.000Z","message":{"role":"user","content":"one"}}"#,
    "\n",
);

#[test]
fn a_transcript_stays_as_it_is_between_its_header_and_what_the_store_says() {
    let entry = json!({"sessionId": "s1", "updatedAt": 5, "label": " Ada ", "channel": "telegram"});
    let source = Source { bytes: FILE.as_bytes(), key: &key("agent:main:main"), id: "s1", entry: entry.as_object() };
    let made = transcribe(&source);
    assert_eq!(made, transcribe(&source));
    let text = String::from_utf8(made.bytes.clone()).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], FILE.lines().next().unwrap().replace('}', r#","sessionKey":"agent:main:main"}"#));
    assert_eq!(lines[1], FILE.lines().nth(1).unwrap());
    assert!(lines[2].contains(r#""type":"session_info""#) && lines[2].contains(r#""parentId":"a""#));
    assert!(lines[3].contains(r#""customType":"openclaw.session""#) && lines[3].contains(r#""channel":"telegram""#));
    let out = export(&made.bytes, &id_of(&made.bytes, &key("agent:main:main")));
    assert_eq!(out.id, "s1");
    assert_ne!(own_id(&key("a")), own_id(&key("b")));
    let odd = FILE.replace(r#""s1""#, r#""../s1""#);
    assert_eq!(id_of(odd.as_bytes(), &key("a")), own_id(&key("a")));
    assert!(out.bytes.starts_with(FILE.as_bytes()));
    assert_eq!((out.messages, &out.entry["channel"], &out.entry["label"]), (1, &json!("telegram"), &json!(" Ada ")));
    assert_eq!(out.entry["updatedAt"], 1_772_359_201_000_u64);
}

#[test]
fn a_transcript_without_header_gets_one_and_a_reset_becomes_a_compaction() {
    let body = FILE.lines().nth(1).unwrap();
    let key = key("agent:main:main");
    let mut made = transcribe(&Source { bytes: body.as_bytes(), key: &key, id: "s9", entry: None });
    assert_eq!(made.remarks.len(), 1);
    let transcript = read_lines(&made.bytes);
    assert_eq!(transcript.header.as_ref().unwrap().id, "s9");
    let mut id = || crate::ids::EntryId(1);
    let reset = Pen::new(transcript.tree(), &mut id, 0).reset("new", None).unwrap().line;
    made.bytes.extend_from_slice(reset.as_bytes());
    let out = read_lines(&export(&made.bytes, &id_of(&made.bytes, &key)).bytes);
    let last = &out.entries().last().unwrap();
    let EntryKind::Compaction { first_kept, .. } = &last.kind else { panic!("{last:?}") };
    assert_eq!(first_kept.as_deref(), Some(&*last.id));
}

#[test]
fn keys_and_agents() {
    for (ours, agent, theirs) in [
        ("agent:main:main", "main", "agent:main:main"),
        ("agent:work:telegram:group:-1", "work", "agent:work:telegram:group:-1"),
        ("hook:1", "main", "hook:1"),
        ("global", "main", "global"),
        ("websocket:Ann", "main", "agent:main:websocket:ann"),
        ("agent:../x:main", "main", "agent:main:agent:../x:main"),
    ] {
        assert_eq!(place_of(&key(ours)), (agent.to_owned(), theirs.to_owned()), "{ours}");
    }
}

#[test]
fn the_store_names_files_and_leaves_out_what_cannot_be() {
    let store = json!({
        "agent:main:main": {"sessionId": "s1", "sessionFile": "/old/place/agents/main/sessions/2026_s1.jsonl", "updatedAt": 1},
        "Agent:Main:main": {"sessionId": "s2", "updatedAt": 2},
        "agent:main:telegram:group:1:topic:7": {"sessionId": "s3"},
        "agent:main:x": {"sessionId": "../../etc/passwd"},
        "": {}, "agent:main:y": 3,
    });
    let store = Store::read(store.to_string().as_bytes()).unwrap();
    let names: Vec<_> = store.entries.iter().map(StoreEntry::file_names).collect();
    assert_eq!(names, [vec!["s2.jsonl"], vec!["s3-topic-7.jsonl", "s3.jsonl"], vec![]]);
    assert_eq!(store.remarks.len(), 3);
    for (text, line) in [("[]", 1), ("", 1), ("{\n\"a\": nope}", 2)] {
        assert_eq!(Store::read(text.as_bytes()).unwrap_err().line, Some(line), "{text}");
    }
    for (name, kind) in [
        ("sessions.json", FileKind::Store),
        ("a.jsonl", FileKind::Transcript),
        ("a-topic-7.jsonl", FileKind::Transcript),
        ("a.jsonl.reset.2026-03-10T04-00-00.000Z", FileKind::Archive),
        ("a.jsonl.deleted.2026-03-10T04-00-00.000Z", FileKind::Archive),
        ("a.checkpoint.3333.jsonl", FileKind::Archive),
        ("a.trajectory.jsonl", FileKind::Archive),
        ("a.jsonl.lock", FileKind::Passing("a lock")),
    ] {
        assert_eq!(file_kind(name), kind, "{name}");
    }
}

#[test]
fn configuration_is_taken_over_where_it_has_a_place_and_named_where_not() {
    let theirs = json!({
        "agents": {"defaults": {"model": {"primary": "anthropic/claude", "fallbacks": ["x"]}}},
        "env": {"vars": {"OPENAI_API_KEY": "k1"}, "OPENAI_API_KEY": "k2"},
        "models": {"providers": {"mine": {"apiKey": "k3", "baseUrl": "http://h", "models": [1]}}},
        "channels": {"telegram": {"botToken": "t", "dmPolicy": "open"}},
        "session": {"dmScope": "main"},
    });
    let mapped = map_config(&theirs);
    assert_eq!(
        mapped.config,
        json!({
            "agents": {"defaults": {"model": "anthropic/claude"}},
            "providers": {"openai": {"apiKey": "k1"}, "mine": {"apiKey": "k3", "apiBase": "http://h"}},
            "channels": {"telegram": {"token": "t"}},
        })
    );
    let left = ["agents.defaults.model.fallbacks", "models.providers.mine.models", "channels.telegram.dmPolicy"];
    assert_eq!(mapped.left, left.into_iter().chain(["session.dmScope"]).collect::<Vec<_>>());
    assert!(mapped.taken.contains(&("channels.telegram.botToken".into(), "channels.telegram.token".into())));
}

#[test]
fn jobs_keep_their_originals() {
    let theirs = json!({"version": 1, "jobs": [
        {"id": "j1", "name": "water", "schedule": {"kind": "cron", "expr": "0 7 * * *", "tz": "Europe/Berlin"},
         "payload": {"kind": "agentTurn", "message": "water"}, "delivery": {"channel": "telegram", "to": "1"}, "x": 1},
        {"id": "j2", "schedule": {"kind": "at", "at": "2026-03-01T10:00:00Z"}, "payload": {"kind": "systemEvent", "text": "now"}},
        {"id": "j3", "schedule": {"kind": "moon"}},
        {"id": "j4", "schedule": {"kind": "cron", "expr": "30 0 9 * * 1"}},
    ]});
    let (ours, remarks) = map_jobs(&theirs);
    let jobs = ours["jobs"].as_array().unwrap();
    assert_eq!(jobs[0]["schedule"], json!({"kind": "cron", "expr": "0 7 * * *", "tz": "Europe/Berlin"}));
    assert_eq!((&jobs[0]["payload"]["to"], &jobs[0]["payload"]["deliver"]), (&json!("1"), &Value::Bool(true)));
    assert_eq!(
        (&jobs[1]["schedule"]["atMs"], &jobs[1]["payload"]["message"]),
        (&json!(1_772_359_200_000_u64), &json!("now"))
    );
    assert_eq!((&jobs[2]["enabled"], remarks.len()), (&Value::Bool(false), 1));
    assert_eq!(jobs[3]["schedule"]["expr"], "0 9 * * 1 30");
    assert!(jobs.iter().zip(theirs["jobs"].as_array().unwrap()).all(|(ours, theirs)| ours["openclaw"] == *theirs));
}
