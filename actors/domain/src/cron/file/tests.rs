use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::cron::job::{HISTORY_MAX, Missed, RunRecord};

macro_rules! fixture {
    ($name:literal) => {
        include_bytes!(concat!("../../../../../tests/fixtures/nanobot/cron/", $name)).as_slice()
    };
}

fn value(file: &File) -> Value {
    serde_json::from_slice(&file.encode()).unwrap()
}

#[test]
fn a_file_of_nanobot_is_written_as_it_was() {
    for (name, bytes) in [
        ("three-kinds", fixture!("three-kinds/jobs.json")),
        ("missed", fixture!("missed/jobs.json")),
        ("twenty-runs", fixture!("twenty-runs/jobs.json")),
        ("actions", fixture!("actions/jobs.json")),
    ] {
        let mut expect: Value = serde_json::from_slice(bytes).unwrap();
        for job in expect["jobs"].as_array_mut().unwrap() {
            for run in job["state"]["runHistory"].as_array_mut().unwrap() {
                // The newer version writes it always.
                run.as_object_mut().unwrap().entry("runId").or_insert(Value::Null);
            }
        }
        let file = File::decode(bytes).unwrap();
        let pretty = serde_json::to_string_pretty(&expect).unwrap();
        assert_eq!(String::from_utf8(file.encode()).unwrap(), pretty, "{name}");
    }
}

#[test]
fn snake_case_is_read() {
    let file = File::decode(fixture!("snake-case/jobs.json")).unwrap();
    assert_eq!(
        value(&file)["jobs"][0],
        json!({
            "id": "dd000001", "name": "snake", "enabled": true,
            "schedule": {"kind": "every", "atMs": null, "everyMs": 90000, "expr": null, "tz": null},
            "payload": {
                "kind": "agent_turn", "message": "m", "deliver": false, "channel": null, "to": null, "channelMeta": {},
                "sessionKey": "cli:direct", "originChannel": "cli", "originChatId": "direct", "originMetadata": {},
            },
            "state": {
                "nextRunAtMs": 5, "lastRunAtMs": 4, "lastStatus": "ok", "lastError": null,
                "runHistory": [{"runAtMs": 4, "status": "ok", "durationMs": 2, "error": null, "runId": null}],
            },
            "createdAtMs": 1, "updatedAtMs": 2, "deleteAfterRun": true,
        })
    );
}

#[test]
fn jobs_of_old_files_are_bound_to_a_session_or_switched_off() {
    let mut file = File::decode(fixture!("legacy-payload/jobs.json")).unwrap();
    let jobs = value(&file)["jobs"].clone();
    let payload = |channel: Value, key: Value, chat: Value, meta: Value| {
        json!({
            "kind": "agent_turn", "message": "Look after the compost heap", "deliver": false, "channel": null, "to": null,
            "channelMeta": {}, "sessionKey": key, "originChannel": channel, "originChatId": chat, "originMetadata": meta,
        })
    };
    assert_eq!(
        jobs[0]["payload"],
        payload(json!("telegram"), json!("telegram:70011"), json!("70011"), json!({"thread": 4}))
    );
    assert_eq!(file.jobs[0].payload.origin("thread").as_deref(), Some("4"));
    assert_eq!(jobs[1]["payload"], payload(json!("cli"), Value::Null, json!("direct"), json!({})));
    assert_eq!(jobs[2]["payload"], payload(Value::Null, Value::Null, Value::Null, json!({})));
    let enabled: Vec<_> = file.jobs.iter().map(|job| (job.enabled, job.state.last_error.as_deref())).collect();
    assert_eq!(
        enabled,
        [
            (true, None),
            (false, Some("legacy cron payload is missing channel/to; recreate it from a chat session")),
            (
                false,
                Some("agent cron payload is missing bound session delivery context; recreate it from a chat session")
            ),
        ]
    );
    let off: Vec<_> = std::mem::take(&mut file.switched_off).into_iter().map(|(id, _)| id.to_string()).collect();
    assert_eq!(off, ["cc000002", "cc000003"], "people are told of them");
    assert_eq!(File::decode(&file.encode()).unwrap(), file, "a second reading changes nothing");
}

#[test]
fn a_file_that_cannot_be_used_says_where() {
    let job =
        |change: &str| format!(r#"{{"jobs": [{{"id": "a", "name": "n", "schedule": {{"kind": "at"}}}}, {change}]}}"#);
    for (text, expect) in [
        (String::from_utf8(fixture!("corrupt/jobs.json").to_vec()).unwrap(), "EOF while parsing"),
        (String::from_utf8(fixture!("wrong-shape/jobs.json").to_vec()).unwrap(), "jobs[0]: missing field `name`"),
        ("[]".to_owned(), "an object is expected"),
        ("{}".to_owned(), "`jobs` is missing, or no list"),
        (r#"{"jobs": {}}"#.to_owned(), "`jobs` is missing, or no list"),
        (r#"{"version": "x", "jobs": []}"#.to_owned(), "version: invalid type: string"),
        (job("5"), "jobs[1]: invalid type: integer"),
        (
            job(r#"{"id": "b", "name": "n", "schedule": {"kind": "at", "at_ms": "x"}}"#),
            "jobs[1].schedule.atMs: invalid type",
        ),
        (job(r#"{"id": "b", "name": "n", "schedule": {}}"#), "jobs[1].schedule: missing field `kind`"),
        (job(r#"{"id": "a", "name": "n", "schedule": {"kind": "at"}}"#), "jobs[1]: the id a is used twice"),
        (
            job(r#"{"id": "b", "name": "n", "schedule": {"kind": "at"}, "state": {"runHistory": [{"status": "ok"}]}}"#),
            "jobs[1].state.runHistory[0]: missing field `runAtMs`",
        ),
    ] {
        let error = File::decode(text.as_bytes()).unwrap_err().to_string();
        assert!(error.starts_with(expect), "{error} for {text}");
    }
}

#[test]
fn what_is_not_known_is_kept() {
    let text = json!({
        "version": 1, "by": "hand",
        "jobs": [{
            "id": "x", "name": "n", "enabled": false, "color": {"a": [1]},
            "schedule": {"kind": "moon", "phase": "full"},
            "payload": {"kind": "agent_turn", "message": "m", "session_key": "cli:direct", "x": 1, "originMetadata": {"thread_ts": "5"}},
            "state": {"mood": "good", "runHistory": [{"runAtMs": 1, "status": "ok", "cost": 5}]},
            "missed": "all", "timeoutMs": 5,
        }],
    });
    let file = File::decode(text.to_string().as_bytes()).unwrap();
    let written = value(&file);
    let job = &written["jobs"][0];
    assert_eq!(written["by"], "hand");
    assert_eq!((&job["color"], &job["schedule"]["phase"]), (&json!({"a": [1]}), &json!("full")));
    assert_eq!((&job["payload"]["x"], &job["state"]["mood"]), (&json!(1), &json!("good")));
    assert_eq!(job["payload"]["originMetadata"], json!({"thread_ts": "5"}));
    assert_eq!(job["state"]["runHistory"][0]["cost"], 5);
    assert_eq!((file.jobs[0].missed(), file.jobs[0].timeout_ms()), (Missed::All, 5));
}

#[test]
fn actions_of_others_are_read_and_the_rest_counted() {
    let (found, bad) = actions(fixture!("actions/action.jsonl"));
    let told: Vec<_> = found
        .iter()
        .map(|action| match action {
            Action::Put(job) => format!("put {} {:?}", job.id, job.schedule.every_ms),
            Action::Remove(id) => format!("remove {id}"),
        })
        .collect();
    assert_eq!((told, bad), (vec!["remove ee000002".to_owned(), "put ee000003 Some(5000)".to_owned()], 2));
    assert_eq!(actions(b""), (vec![], 0));
}

#[test]
fn the_history_is_bounded() {
    let mut job = File::decode(fixture!("twenty-runs/jobs.json")).unwrap().jobs.remove(0);
    let run = RunRecord {
        run_at_ms: 7,
        status: RunStatus::Error,
        duration_ms: 1,
        error: Some("no".to_owned()),
        run_id: None,
        extra: Map::new(),
    };
    job.record(run.clone());
    assert_eq!((job.state.run_history.len(), job.state.run_history.last()), (HISTORY_MAX, Some(&run)));
    assert_eq!((job.state.last_run_at_ms, job.state.last_status), (Some(7), Some(RunStatus::Error)));
    job.record(RunRecord { status: RunStatus::Skipped, run_at_ms: 9, ..run });
    assert_eq!((job.state.last_run_at_ms, job.state.last_status), (Some(7), Some(RunStatus::Skipped)));
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(
        id in "[a-z0-9]{1,8}",
        name in ".{0,20}",
        message in ".{0,40}",
        enabled: bool,
        at in prop::option::of(any::<i64>()),
        key in prop::option::of("[a-z]{1,4}:[a-z]{1,4}"),
        next in prop::option::of(any::<u64>()),
        keep: bool,
    ) {
        let text = json!({"jobs": [{
            "id": id, "name": name, "enabled": enabled, "delete_after_run": keep,
            "schedule": {"kind": "at", "at_ms": at},
            "payload": {"message": message, "session_key": key},
            "state": {"next_run_at_ms": next},
        }]});
        let mut file = File::decode(text.to_string().as_bytes()).unwrap();
        prop_assert_eq!(std::mem::take(&mut file.switched_off).len() == 1, enabled && key.is_none());
        prop_assert_eq!(&File::decode(&file.encode()).unwrap(), &file);
        prop_assert_eq!(&file.jobs[0].payload.message, &message);
    }

    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = File::decode(&bytes);
        let _ = actions(&bytes);
    }
}
