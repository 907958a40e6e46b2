//! What a session is told when a job is due, and where its answer goes.

use std::collections::BTreeSet;
use std::sync::Arc;

use domain::body::TurnBody;
use domain::cron::Job;
use domain::cron::scheduler::Fire;
use domain::event::{Event, EventKind};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use protocol::turn::{PushRoute, Route};

/// Which account of a channel is meant when the job does not say so.
const ACCOUNT: &str = "default";

/// The message of a moment: the same whenever it is asked for, so that the journal knows it again.
pub fn body(fire: &Fire, zone: &TimeZone) -> TurnBody {
    let Job { id, name, payload, .. } = &fire.job;
    let at = i64::try_from(fire.due_ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok()).unwrap_or_default();
    let at = at.to_zoned(zone.clone());
    let text = format!(
        "A job that was scheduled earlier for this conversation is due ({}). Do now what it says, and answer with what the \
         person should be told; do not schedule it again.\n\n{}",
        at.strftime("%Y-%m-%d %H:%M %Z"),
        payload.message.trim()
    );
    let event = Event { kind: EventKind::Cron, id: id.as_str().into(), name: name.as_str().into(), status: None };
    TurnBody { event: Some(Arc::new(event)), ..TurnBody::text(text) }
}

/// Where the answer goes: to a chat of a channel that is told, or to whoever watches.
pub fn route(job: &Job, channels: &BTreeSet<Arc<str>>) -> Route {
    let payload = &job.payload;
    let (Some(channel), Some(chat)) = (&payload.origin_channel, &payload.origin_chat_id) else { return Route::Live };
    let Some(channel) = channels.get(channel.as_str()) else { return Route::Live };
    Route::Push(PushRoute {
        channel: Arc::clone(channel),
        account: payload.origin("account").as_deref().unwrap_or(ACCOUNT).into(),
        chat: chat.as_str().into(),
        thread: payload.origin("thread").map(Arc::from),
    })
}

#[cfg(test)]
mod tests {
    use domain::cron::file::File;
    use domain::ids::SessionKey;
    use serde_json::{Value, json};

    use super::*;

    fn job(payload: Value) -> Job {
        let file = json!({"jobs": [{"id": "a", "name": "tea", "schedule": {"kind": "at"}, "payload": payload}]});
        File::decode(file.to_string().as_bytes()).unwrap().jobs.remove(0)
    }

    #[test]
    fn a_reminder_says_what_is_due_and_is_no_persons_message() {
        let job = job(json!({"message": " make tea\n", "sessionKey": "websocket:1"}));
        let fire = Fire { job, key: SessionKey::new("websocket:1").unwrap(), due_ms: 1_774_684_800_000 };
        let berlin = TimeZone::get("Europe/Berlin").unwrap();
        let body = body(&fire, &berlin);
        let text = domain::chat::plain_text(&body.content);
        assert!(text.contains("is due (2026-03-28 09:00 CET)") && text.ends_with("\n\nmake tea"), "{text}");
        let event = body.event.unwrap();
        assert_eq!((event.kind, &*event.id, &*event.name), (EventKind::Cron, "a", "tea"));
    }

    #[test]
    fn an_answer_goes_to_the_chat_that_the_job_came_from() {
        let channels = ["webhook", "telegram"].into_iter().map(Arc::from).collect();
        let push = |channel: &str, account: &str, chat: &str, thread: Option<&str>| {
            let thread = thread.map(Arc::from);
            Route::Push(PushRoute { channel: channel.into(), account: account.into(), chat: chat.into(), thread })
        };
        for (payload, expect) in [
            (json!({"sessionKey": "cli:x"}), Route::Live),
            (json!({"sessionKey": "x", "originChannel": "websocket", "originChatId": "1"}), Route::Live),
            (json!({"sessionKey": "x", "originChannel": "irc", "originChatId": "1"}), Route::Live),
            (
                json!({"sessionKey": "x", "originChannel": "webhook", "originChatId": "7"}),
                push("webhook", "default", "7", None),
            ),
            (
                json!({"sessionKey": "x", "originChannel": "webhook", "originChatId": "7", "originMetadata": {"account": "b", "thread": "t"}}),
                push("webhook", "b", "7", Some("t")),
            ),
            (
                json!({"deliver": true, "channel": "telegram", "to": "70011", "channelMeta": {"thread": 4}}),
                push("telegram", "default", "70011", Some("4")),
            ),
        ] {
            assert_eq!(route(&job(payload.clone()), &channels), expect, "{payload}");
        }
    }
}
