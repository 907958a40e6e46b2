//! A conversation for people.

use std::collections::HashSet;

use domain::event::{EVENT, Event};
use domain::ids::SessionKey;
use domain::text::counted;
use domain::transcript::read_lines;
use jiff::Timestamp;
use serde::Deserialize as _;
use serde_json::Value;

/// What was said in the conversation as it stands, and where it was summed up or begun anew. The branches that were left
/// are only counted. Times are shown as in `zone`.
pub fn conversation(key: &SessionKey, entries: &[Value], zone: &str) -> Vec<String> {
    let line = |entry: &Value| entry.as_str().map_or_else(|| entry.to_string(), str::to_owned);
    let text = entries.iter().map(line).collect::<Vec<_>>().join("\n");
    let transcript = read_lines(text.as_bytes());
    let path: HashSet<&str> = transcript.path_to_leaf().into_iter().map(|entry| &*entry.id).collect();
    // Of old versions they have no ids, and simply follow one another.
    let is_on_path = |entry: &&Value| entry["id"].as_str().is_none_or(|id| path.contains(id));
    let (shown, left): (Vec<&Value>, Vec<&Value>) = entries.iter().partition(is_on_path);
    let mut texts: Vec<String> = shown.into_iter().filter_map(|line| readable(line, zone)).collect();
    let left = left.into_iter().filter_map(|line| readable(line, zone)).count();
    if left > 0 {
        let left = counted(left, "message");
        texts.push(format!("({left} in branches that were left; `greenroom sessions tree {key}` shows them)"));
    }
    texts
}

/// A turn that has not ended, for people.
pub fn waiting(turn: &Value, zone: &str) -> String {
    let at = turn["accepted_ms"].as_i64().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    let at = at.and_then(|at| moment(at, zone));
    let place = match (turn["state"].as_str(), turn["position"].as_u64()) {
        (Some("running"), _) => "running".to_owned(),
        (_, Some(0) | None) => "queued, next".to_owned(),
        (_, Some(1)) => "queued, 1 turn before it".to_owned(),
        (_, Some(position)) => format!("queued, {position} turns before it"),
    };
    let id = turn["turn_id"].as_str().unwrap_or_default();
    format!("{}  turn {id}  {place}", at.unwrap_or_default())
}

fn moment(at: Timestamp, zone: &str) -> Option<String> {
    Some(at.in_tz(zone).ok()?.strftime("%Y-%m-%d %H:%M:%S").to_string())
}

/// An entry for people: who said what and when, which tools were called; what was put in place of what came before.
fn readable(line: &Value, zone: &str) -> Option<String> {
    let written = line["timestamp"].as_str().unwrap_or_default();
    let at = |at: Option<Timestamp>| at.and_then(|at| moment(at, zone)).unwrap_or_else(|| written.to_owned());
    let aside = |what: &str| {
        let summary = line["summary"].as_str().map(|summary| format!("\n  {}", summary.replace('\n', "\n  ")));
        Some(format!("{}  -- {what} --{}", at(written.parse().ok()), summary.unwrap_or_default()))
    };
    match line["type"].as_str()? {
        "reset" => return aside("begun anew"),
        "compaction" => return aside("what came before is summed up"),
        "branch_summary" => return aside("of a branch that was left"),
        _ => {}
    }
    let (message, who, said) = if line["customType"] == EVENT {
        let event = Event::deserialize(&line["details"]["event"]).ok()?;
        (line, format!("event: {event}"), line["details"]["acceptedMs"].as_i64())
    } else {
        let message = line.get("message")?;
        let role = message["role"].as_str()?;
        // A message is written with its answer, and was said before.
        (message, role.to_owned(), message["timestamp"].as_i64().filter(|_| role == "user"))
    };
    let said = said.and_then(|ms| Timestamp::from_millisecond(ms).ok());
    let time = at(said.or_else(|| written.parse().ok()));
    let mut text = format!("{time}  {who}");
    if let Some(said) = message["content"].as_str() {
        text.push_str(&format!("\n  {}", said.replace('\n', "\n  ")));
    }
    for block in message["content"].as_array().into_iter().flatten() {
        if let Some(said) = block["text"].as_str() {
            text.push_str(&format!("\n  {}", said.replace('\n', "\n  ")));
        }
        if block["type"] == "toolCall" {
            text.push_str(&format!("\n  [{} {}]", block["name"].as_str().unwrap_or("?"), block["arguments"]));
        }
    }
    if let Some(why) = message["errorMessage"].as_str() {
        text.push_str(&format!("\n  ({})", why.replace('\n', "\n  ")));
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const ZONE: &str = "Europe/Berlin";

    #[track_caller]
    fn check(line: &Value, expect: Option<&str>) {
        assert_eq!(readable(line, ZONE).as_deref(), expect);
    }

    #[test]
    fn entries_are_shown_with_their_texts_and_calls() {
        let user = json!({"type": "message", "timestamp": "T", "message": {"role": "user", "content": "a\nb"}});
        check(&user, Some("T  user\n  a\n  b"));
        let call = json!({"type": "message", "timestamp": "2026-07-01T10:00:00.000Z", "message": {"role": "assistant", "content": [
            {"type": "text", "text": "look"}, {"type": "toolCall", "name": "exec", "arguments": {"command": "ls"}}]}});
        check(&call, Some("2026-07-01 12:00:00  assistant\n  look\n  [exec {\"command\":\"ls\"}]"));
        check(&json!({"type": "session"}), None);
        let early =
            json!({"type": "message", "timestamp": "T", "message": {"role": "user", "content": "a", "timestamp": 5}});
        check(&early, Some("1970-01-01 01:00:00  user\n  a"));
    }

    #[test]
    fn what_no_person_said_is_shown_as_that() {
        let event = json!({"kind": "subagent", "id": "7", "name": "weather", "status": "done"});
        let mut line = json!({"type": "custom_message", "customType": EVENT, "content": [{"type": "text", "text": "rain"}],
            "display": true, "details": {"event": event, "acceptedMs": 5}, "timestamp": "T"});
        check(&line, Some("1970-01-01 01:00:00  event: sub-agent \"weather\": done\n  rain"));
        line["customType"] = json!("another's");
        check(&line, None);
    }

    #[test]
    fn a_conversation_is_what_it_stands_at() {
        let entry = |id: &str, parent: Option<&str>, kind: &str| {
            let message = json!({"role": "user", "content": id});
            json!({"type": kind, "id": id, "parentId": parent, "timestamp": "T", "message": message, "summary": "short"})
        };
        let entries = [
            json!({"type": "session", "version": 3, "id": "s", "timestamp": "", "cwd": ""}),
            entry("a", None, "message"),
            entry("b", Some("a"), "message"),
            entry("c", Some("a"), "branch_summary"),
            entry("d", Some("c"), "message"),
        ];
        let told = conversation(&SessionKey::new("api:7").unwrap(), &entries, ZONE);
        assert_eq!(
            told,
            [
                "T  user\n  a",
                "T  -- of a branch that was left --\n  short",
                "T  user\n  d",
                "(1 message in branches that were left; `greenroom sessions tree api:7` shows them)",
            ]
        );
    }

    #[test]
    fn turns_without_an_entry_are_shown_with_time_and_place() {
        for (state, position, place) in [
            ("running", 0, "running"),
            ("queued", 0, "queued, next"),
            ("queued", 1, "queued, 1 turn before it"),
            ("queued", 2, "queued, 2 turns before it"),
        ] {
            let turn = json!({"turn_id": "t", "state": state, "position": position, "accepted_ms": 1_000});
            assert_eq!(waiting(&turn, "Europe/Berlin"), format!("1970-01-01 01:00:01  turn t  {place}"));
        }
    }
}
