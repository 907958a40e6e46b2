//! `cron/jobs.json` of OpenClaw → `cron/jobs.json` of ours, which has nanobot's form.

use serde_json::{Map, Value, json};

use crate::exchange::Remark;
use crate::time::parse_iso_ms;

/// Maps all jobs. Each keeps its original in a field `openclaw`. A job that cannot run is kept, switched off.
pub fn map_jobs(theirs: &Value) -> (Value, Vec<Remark>) {
    let mut remarks = Vec::new();
    let list = theirs.get("jobs").or(Some(theirs)).and_then(Value::as_array);
    if list.is_none() {
        remarks.push(Remark::of("there is no list of jobs in it"));
    }
    let mut jobs = Vec::new();
    for (at, job) in list.into_iter().flatten().enumerate() {
        let schedule = schedule(job.get("schedule"));
        if schedule.is_none() {
            remarks.push(Remark::of(format!("job {} has no schedule that is known; it is kept, switched off", at + 1)));
        }
        jobs.push(one(job, at, schedule));
    }
    (json!({"version": 1, "jobs": jobs}), remarks)
}

fn one(job: &Value, at: usize, schedule: Option<Value>) -> Value {
    let text =
        |of: Option<&Value>, name: &str| of.and_then(|of| of.get(name)).and_then(Value::as_str).map(str::to_owned);
    let number = |name: &str| job.get(name).and_then(Value::as_u64);
    let (payload, delivery) = (job.get("payload"), job.get("delivery"));
    let said = text(payload, "message").or_else(|| text(payload, "text")).unwrap_or_default();
    let channel = text(delivery, "channel").or_else(|| text(payload, "channel"));
    let to = text(delivery, "to").or_else(|| text(payload, "to"));
    let flag = |name: &str| job.get(name).and_then(Value::as_bool);
    let mut state = Map::new();
    for name in ["nextRunAtMs", "lastRunAtMs", "lastStatus", "lastError"] {
        state.extend(job.get("state").and_then(|state| state.get(name)).map(|value| (name.to_owned(), value.clone())));
    }
    json!({
        "id": text(Some(job), "id").unwrap_or_else(|| format!("openclaw-{}", at + 1)),
        "name": text(Some(job), "name").unwrap_or_default(),
        "enabled": flag("enabled").unwrap_or(true) && schedule.is_some(),
        "schedule": schedule.unwrap_or_else(|| json!({"kind": "at", "atMs": 0})),
        "payload": {
            "kind": "agent_turn", "message": said, "deliver": delivery.is_some() || to.is_some(),
            "channel": channel, "to": to, "sessionKey": text(Some(job), "sessionKey"),
        },
        "state": state,
        "createdAtMs": number("createdAtMs").unwrap_or(0),
        "updatedAtMs": number("updatedAtMs").unwrap_or(0),
        "deleteAfterRun": flag("deleteAfterRun").unwrap_or(false),
        "openclaw": job,
    })
}

fn schedule(theirs: Option<&Value>) -> Option<Value> {
    let theirs = theirs?;
    let field = |name: &str| theirs.get(name);
    match field("kind")?.as_str()? {
        "at" => {
            let at = field("atMs").and_then(Value::as_u64);
            let at = at.or_else(|| parse_iso_ms(field("at")?.as_str()?))?;
            Some(json!({"kind": "at", "atMs": at}))
        }
        "every" => Some(json!({"kind": "every", "everyMs": field("everyMs")?.as_u64()?})),
        "cron" => Some(json!({"kind": "cron", "expr": seconds_last(field("expr")?.as_str()?), "tz": field("tz")})),
        _ => None,
    }
}

/// Of six fields, seconds stand first there, and last here.
fn seconds_last(expr: &str) -> String {
    match expr.split_ascii_whitespace().collect::<Vec<_>>().as_slice() {
        [second, rest @ ..] if rest.len() == 5 => format!("{} {second}", rest.join(" ")),
        _ => expr.to_owned(),
    }
}
