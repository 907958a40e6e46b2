//! `cron`: jobs that are due at times.

use std::sync::Arc;

use domain::cron::scheduler::{Draft, JobView, Refusal};
use domain::cron::{Missed, Schedule, time};
use domain::event::EventKind;
use domain::ids::SessionKey;
use domain::keys::Key;
use domain::request::ToolSpec;
use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use protocol::cron::{Answer, Ask, Jobs};
use protocol::turn::{PushRoute, Route};
use serde_json::{Map, Value, json};

use crate::tool::{Call, Outcome, Tool};

/// Makes, lists and removes jobs.
pub struct Cron {
    jobs: Arc<dyn Jobs>,
}

// === impl Cron ===

impl Cron {
    /// Those that `jobs` keeps.
    pub fn new(jobs: Arc<dyn Jobs>) -> Self {
        Self { jobs }
    }
}

impl Tool for Cron {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "cron".to_owned(),
            description:
                "Schedules reminders and recurring work. `add` makes a job: when it is due, you are given its message \
                          in this conversation, and your answer goes to this chat. It needs `message` and one of `at` \
                          (once), `every_seconds` or `cron_expr`. `list` shows all jobs, `remove` ends one."
                    .to_owned(),
            parameters: json!({
                "type": "object",
                "properties": {
                    "action": {"type": "string", "enum": ["add", "list", "remove"]},
                    "name": {"type": "string", "description": "Short name for people (default: the beginning of the message)"},
                    "message": {"type": "string", "description": "What you are to be told when it is due: everything that is needed then"},
                    "at": {"type": "string", "description": format!("Once, at this ISO time; without an offset it is a time of {}", zone_name(self.jobs.zone()))},
                    "every_seconds": {"type": "integer", "minimum": 1, "description": "Again and again after so many seconds"},
                    "cron_expr": {"type": "string", "description": "At these times: minute hour day month weekday, as in `0 9 * * mon-fri`"},
                    "tz": {"type": "string", "description": "IANA time zone of cron_expr, as in Europe/Berlin"},
                    "missed": {"type": "string", "enum": ["skip", "once", "all"], "description": "What becomes of times that passed while the gateway was not running (default: once for `at`, else skip)"},
                    "isolated": {"type": "boolean", "description": "Work in a conversation of its own instead of this one (default false)"},
                    "job_id": {"type": "string", "description": "Which one to remove"}
                },
                "required": ["action"],
                "additionalProperties": false
            }),
            parallel: false,
            idempotent: false,
        }
    }

    fn call(&self, call: Call) -> BoxFuture<'static, Outcome> {
        let jobs = Arc::clone(&self.jobs);
        async move {
            let zone = jobs.zone().clone();
            let asked = match ask(&call, &zone) {
                Ok(asked) => asked,
                Err(problem) => return Outcome::error(format!("Error: {problem}")),
            };
            match jobs.ask(asked.clone()).await {
                Ok(Ok(answer)) => Outcome::text(told(&asked, &answer, &zone)),
                Ok(Err(refusal)) => Outcome::error(format!("Error: {}", of_refusal(&refusal))),
                Err(_) => Outcome::error("Error: jobs are followed only while the gateway runs, and it does not."),
            }
        }
        .boxed()
    }
}

/// What a call asks for, or what is wrong with it.
fn ask(call: &Call, zone: &TimeZone) -> Result<Ask, String> {
    match call.text("action") {
        Some("list") => Ok(Ask::List),
        Some("remove") => {
            let id = call.text("job_id").ok_or("remove needs job_id, as list shows it")?;
            Ok(Ask::Remove(id.to_owned()))
        }
        Some("add") => draft(call, zone).map(|draft| Ask::Add(Box::new(draft))),
        Some(_) | None => Err("action must be add, list or remove".to_owned()),
    }
}

fn draft(call: &Call, zone: &TimeZone) -> Result<Draft, String> {
    if call.source.door() == EventKind::Cron.source() {
        return Err("a scheduled job cannot schedule jobs".to_owned());
    }
    let (origin, metadata) = origin(&call.route, &call.key)
        .ok_or("there is no chat that a later answer could go to; jobs are made in a chat")?;
    Ok(Draft {
        name: call.text("name").map(str::to_owned),
        message: call.text("message").ok_or("add needs message")?.to_owned(),
        schedule: schedule(call, zone)?,
        key: Some(call.key.clone()).filter(|_| !call.flag("isolated")),
        origin: Some(origin),
        metadata,
        missed: call.text("missed").map(|word| match word {
            "once" => Missed::Once,
            "all" => Missed::All,
            _ => Missed::Skip,
        }),
        timeout_ms: None,
        keep: false,
    })
}

fn schedule(call: &Call, zone: &TimeZone) -> Result<Schedule, String> {
    let schedule = match (call.text("at"), call.number("every_seconds"), call.text("cron_expr")) {
        (Some(at), None, None) => Schedule::at(time::parse(at, zone).map_err(|error| format!("at: {error}"))?),
        (None, Some(seconds), None) => Schedule::every(seconds.saturating_mul(1000)),
        (None, None, Some(expr)) => Schedule::cron(expr, None),
        (_, _, _) => return Err("add needs exactly one of at, every_seconds and cron_expr".to_owned()),
    };
    Ok(Schedule { tz: call.text("tz").map(str::to_owned), ..schedule })
}

/// The chat that a job's answers go to.
type Origin = ((String, String), Map<String, Value>);

/// The chat that this turn's answer goes to; none when only one request waits for it.
fn origin(route: &Route, key: &SessionKey) -> Option<Origin> {
    match route {
        Route::Reply => None,
        Route::Live => {
            let read = Key::from(key);
            let chat = read.channel().zip(read.chat()).map(|(channel, chat)| (channel.to_owned(), chat.to_owned()));
            // A session of many chats: whoever watches it.
            Some((chat.unwrap_or_else(|| ("session".to_owned(), key.as_str().to_owned())), Map::new()))
        }
        Route::Push(PushRoute { channel, account, chat, thread }) => {
            let thread = thread.as_ref().map(|thread| ("thread".to_owned(), json!(thread)));
            let metadata = std::iter::once(("account".to_owned(), json!(account))).chain(thread).collect();
            Some(((channel.to_string(), chat.to_string()), metadata))
        }
    }
}

fn told(asked: &Ask, answer: &Answer, zone: &TimeZone) -> String {
    let unsaved = answer.unsaved.as_ref().map(|why| format!(" It is kept in memory only for now: {why}."));
    let unsaved = unsaved.unwrap_or_default();
    let Some(first) = answer.jobs.first() else { return "There are no jobs.".to_owned() };
    match asked {
        Ask::Add(_) => format!("Made the job {}.{unsaved}", line(first, zone)),
        Ask::Remove(_) => format!("Removed the job \"{}\" ({}).{unsaved}", first.name, first.id),
        Ask::List | Ask::Show(_) | Ask::Enable { .. } | Ask::Run(_) => {
            answer.jobs.iter().map(|job| format!("- {}\n", line(job, zone))).collect()
        }
    }
}

fn line(job: &JobView, zone: &TimeZone) -> String {
    let next = match (&job.problem, job.enabled, job.next_run_at_ms) {
        (Some(problem), _, _) => format!("cannot be followed: {problem}"),
        (None, false, _) => "switched off".to_owned(),
        (None, true, Some(at)) => format!("next at {}", moment(at, zone)),
        (None, true, None) => "not due any more".to_owned(),
    };
    let system = if job.system { ", of the system" } else { "" };
    format!("\"{}\" ({}{system}): {}, {next}", job.name, job.id, job.schedule)
}

fn moment(ms: u64, zone: &TimeZone) -> String {
    let at = i64::try_from(ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok()).unwrap_or_default();
    at.to_zoned(zone.clone()).strftime("%Y-%m-%d %H:%M:%S %Z").to_string()
}

fn zone_name(zone: &TimeZone) -> &str {
    zone.iana_name().unwrap_or("the gateway")
}

/// In the words of the arguments.
fn of_refusal(refusal: &Refusal) -> String {
    let text = refusal.to_string();
    [
        ("schedule.expr", "cron_expr"),
        ("schedule.everyMs", "every_seconds"),
        ("schedule.atMs", "at"),
        ("schedule.tz", "tz"),
    ]
    .into_iter()
    .fold(text, |text, (field, argument)| text.replace(field, argument))
}
