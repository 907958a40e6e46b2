//! `greenroom cron`: jobs that are due at times. Through the gateway or, when none runs, in the file itself, under its lock.

use std::sync::Arc;

use cron::{Found, OnDamage, Read, Runs, Saved, Seen, Store};
use domain::cron::scheduler::{Draft, Effect, Input, JobView, Refusal};
use domain::cron::{JobId, Missed, Schedule, Scheduler, time};
use domain::text::one_line;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::{Map, Value, json};
use supervision::ports::Ports;
use supervision::real::real_ports;

use super::admin::{Admin, encode, hidden};
use super::{print, print_json};
use crate::app::cron::zones;
use crate::cli::{AddArgs, Cron, MissedWord, OneJob, Output};
use crate::config::Loaded;
use crate::exit::{Exit, ExitCode};

/// How often the lock of the files is tried.
const LOCK_TRIES: u32 = 50;
/// The wait between two tries.
const LOCK_WAIT: std::time::Duration = std::time::Duration::from_millis(100);

/// Runs the subcommand.
pub async fn run(loaded: Loaded, what: Cron) -> anyhow::Result<()> {
    match what {
        Cron::List(output) => list(&loaded, output).await,
        Cron::Add(arguments) => add(&loaded, *arguments).await,
        Cron::Remove(OneJob { id, output }) => {
            let body = change(&loaded, &id, "remove", |jobs, now_ms| jobs.remove(&id, now_ms)).await?;
            told(&body, output, "removed")
        }
        Cron::Enable(OneJob { id, output }) => {
            let body = change(&loaded, &id, "enable", |jobs, now_ms| jobs.enable(&id, true, now_ms)).await?;
            told(&body, output, "is followed")
        }
        Cron::Disable(OneJob { id, output }) => {
            let body = change(&loaded, &id, "disable", |jobs, now_ms| jobs.enable(&id, false, now_ms)).await?;
            told(&body, output, "is followed no more")
        }
        Cron::Run(OneJob { id, output }) => {
            let admin = Admin::require(&loaded.paths).await?;
            let body: Value = admin.post(&format!("cron/{}/run", encode(&id)), &json!({})).await?.json().await?;
            told(&body, output, "runs now")
        }
        Cron::History(OneJob { id, output }) => history(&loaded, &id, output).await,
    }
}

async fn list(loaded: &Loaded, output: Output) -> anyhow::Result<()> {
    let body = match Admin::find(&loaded.paths).await? {
        Some(admin) => admin.get("cron").await?,
        None => {
            let jobs = Here::open(loaded).await?;
            json!({"items": jobs.scheduler.list().map_err(refused)?, "next": null})
        }
    };
    if output.json {
        return print_json(&body);
    }
    let items = body["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    if items.is_empty() {
        return print("no jobs");
    }
    let zone = zones(&loaded.config).local;
    items.iter().try_for_each(|job| print(&line(job, &zone)))
}

fn line(job: &Value, zone: &TimeZone) -> String {
    let text = |name: &str| job[name].as_str().unwrap_or_default();
    let state = match (job["problem"].as_str(), job["enabled"].as_bool(), job["next_run_at_ms"].as_u64()) {
        _ if job["running"] == true => "running".to_owned(),
        (Some(problem), _, _) => format!("cannot be followed: {problem}"),
        (None, Some(false), _) => "off".to_owned(),
        (None, _, Some(at)) => moment(at, zone),
        (None, _, None) => "not due".to_owned(),
    };
    let system = if job["system"] == true { "  (system)" } else { "" };
    format!("{:8}  {state}  {}  {}{system}", text("id"), text("schedule"), one_line(text("name")))
}

pub(super) fn moment(ms: u64, zone: &TimeZone) -> String {
    let at = i64::try_from(ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok()).unwrap_or_default();
    at.to_zoned(zone.clone()).strftime("%Y-%m-%d %H:%M:%S").to_string()
}

/// The runs of a job; of one that is gone, those that have files.
async fn history(loaded: &Loaded, id: &str, output: Output) -> anyhow::Result<()> {
    let job = match Admin::find(&loaded.paths).await? {
        Some(admin) => admin.get(&format!("cron/{}", encode(id))).await,
        None => Here::open(loaded).await?.scheduler.show(id).map(|job| json!(job)).map_err(refused),
    };
    let items = match job {
        Ok(job) => job["history"].clone(),
        Err(unknown) => match of_files(loaded, id).await? {
            kept if kept.is_empty() => return Err(unknown),
            kept => kept.into(),
        },
    };
    if output.json {
        return print_json(&json!({"items": items, "next": null}));
    }
    let zone = zones(&loaded.config).local;
    let runs = items.as_array().map(Vec::as_slice).unwrap_or_default();
    if runs.is_empty() {
        return print("no runs yet");
    }
    runs.iter().try_for_each(|run| {
        let at = moment(run["runAtMs"].as_u64().unwrap_or_default(), &zone);
        let text = |name: &str| run[name].as_str().unwrap_or_default();
        let times = run["times"].as_u64().map(|times| format!(" ({times} times)")).unwrap_or_default();
        let took = run["durationMs"].as_u64().unwrap_or_default();
        print(format!("{at}  {:7}  {took} ms  {}{times}", text("status"), one_line(text("error"))).trim_end())
    })
}

async fn of_files(loaded: &Loaded, id: &str) -> anyhow::Result<Vec<Value>> {
    let (runs, id) = (Runs::new(loaded.paths.workspace.clone(), real_ports(1)?), id.to_owned());
    let kept = tokio::task::spawn_blocking(move || runs.of(&id)).await??;
    let item = |run: Value| {
        let (queued, ended) = (run["queued_at_ms"].as_u64(), run["ended_at_ms"].as_u64());
        let took = queued.zip(ended).map(|(queued, ended)| ended.saturating_sub(queued));
        json!({"runAtMs": queued, "status": run["status"], "error": run["error"], "durationMs": took})
    };
    Ok(kept.into_iter().map(item).collect())
}

async fn add(loaded: &Loaded, arguments: AddArgs) -> anyhow::Result<()> {
    let output = arguments.output;
    let draft = draft(loaded, arguments)?;
    let body: Value = match Admin::find(&loaded.paths).await? {
        Some(admin) => admin.post("cron", &json!(draft)).await?.json().await?,
        None => {
            let mut jobs = Here::open(loaded).await?;
            let id = jobs.new_id()?;
            let (view, _) = jobs.scheduler.add(id, draft, jobs.now_ms()).map_err(refused)?;
            jobs.save().await?;
            json!(view)
        }
    };
    let zone = zones(&loaded.config).local;
    let next = body["next_run_at_ms"].as_u64().map(|at| format!("; next at {}", moment(at, &zone)));
    told(&body, output, &format!("made{}", next.unwrap_or_default()))
}

fn draft(loaded: &Loaded, arguments: AddArgs) -> anyhow::Result<Draft> {
    let AddArgs { message, at, every, cron, tz, name, session, to, missed, timeout, keep, output: _ } = arguments;
    let ms = |time: std::time::Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let zones = zones(&loaded.config);
    let schedule = match (at, every, cron) {
        (Some(at), _, _) => {
            let usage = |bad: time::BadTime| Exit::new(ExitCode::Usage, format!("--at: {bad}"));
            Schedule::at(time::parse(&at, &zones.local).map_err(usage)?)
        }
        (None, Some(every), _) => Schedule::every(ms(every)),
        (None, None, cron) => Schedule::cron(cron.as_deref().unwrap_or_default(), tz.as_deref()),
    };
    if let Some((channel, _)) = &to {
        let channels = &loaded.config.channels;
        let enabled = [("webhook", channels.webhook.enabled), ("websocket", channels.websocket.enabled)];
        if !enabled.contains(&(channel.as_str(), true)) {
            let text = format!("--to: the channel {:?} is not enabled, so nobody would be told", one_line(channel));
            return Err(Exit::new(ExitCode::Usage, text).into());
        }
    }
    schedule.timing(&zones).map_err(|bad| Exit::new(ExitCode::Usage, bad.to_string()))?;
    Ok(Draft {
        name,
        message,
        schedule,
        key: session,
        origin: to,
        metadata: Map::new(),
        missed: missed.map(|missed| match missed {
            MissedWord::Skip => Missed::Skip,
            MissedWord::Once => Missed::Once,
            MissedWord::All => Missed::All,
        }),
        timeout_ms: timeout.map(ms),
        keep,
    })
}

/// Through the gateway, or here.
async fn change(
    loaded: &Loaded,
    id: &str,
    act: &str,
    here: impl FnOnce(&mut Scheduler, u64) -> Result<(JobView, Vec<Effect>), Refusal>,
) -> anyhow::Result<Value> {
    if let Some(admin) = Admin::find(&loaded.paths).await? {
        return Ok(admin.post(&format!("cron/{}/{act}", encode(id)), &json!({})).await?.json().await?);
    }
    let mut jobs = Here::open(loaded).await?;
    let now_ms = jobs.now_ms();
    let (view, _) = here(&mut jobs.scheduler, now_ms).map_err(refused)?;
    jobs.save().await?;
    Ok(json!(view))
}

fn told(body: &Value, output: Output, what: &str) -> anyhow::Result<()> {
    if output.json {
        return print_json(body);
    }
    let text = |name: &str| body[name].as_str().unwrap_or_default();
    print(&format!("{} ({}) {what}", text("id"), one_line(text("name"))))?;
    match body["unsaved"].as_str() {
        Some(why) => print(&format!("not in the file yet: {why}")),
        None => Ok(()),
    }
}

fn refused(refusal: Refusal) -> anyhow::Error {
    Exit::new(ExitCode::Failed, refusal.to_string()).named(refusal.word()).into()
}

/// The jobs in the file, while no gateway follows them. What is due meanwhile waits for one.
struct Here {
    store: Arc<Store>,
    ports: Ports,
    seen: Seen,
    scheduler: Scheduler,
}

impl Here {
    async fn open(loaded: &Loaded) -> anyhow::Result<Self> {
        if let Some(who) = hidden(&loaded.paths) {
            return Err(Exit::new(ExitCode::NoGateway, who).into());
        }
        let (store, ports) = (Arc::new(Store::new(loaded.paths.workspace.clone())), real_ports(1)?);
        let mut tries = 0;
        loop {
            let (files, world) = (store.clone(), ports.clone());
            let read = tokio::task::spawn_blocking(move || files.read(&world, None, OnDamage::Leave)).await?;
            match read? {
                Read::Files(found) => {
                    let Found { file, aside, actions, bad: _, seen } = *found;
                    if let Some(name) = aside {
                        tracing::warn!("there is no cron/jobs.json; the damaged one is kept as {name}");
                    }
                    let mut scheduler = Scheduler::new(zones(&loaded.config));
                    scheduler.step(Input::Read { file, actions }, ports.clock.wall_ms());
                    return Ok(Self { store, ports, seen, scheduler });
                }
                Read::Damaged(why) => return Err(Exit::new(ExitCode::Failed, why).into()),
                Read::Locked | Read::Unchanged if tries < LOCK_TRIES => {
                    tries += 1;
                    tokio::time::sleep(LOCK_WAIT).await;
                }
                Read::Locked | Read::Unchanged => return Err(locked()),
            }
        }
    }

    fn now_ms(&self) -> u64 {
        self.ports.clock.wall_ms()
    }

    fn new_id(&self) -> anyhow::Result<JobId> {
        Ok(JobId::new(&format!("{:08x}", self.ports.ids.random() & 0xffff_ffff))?)
    }

    async fn save(self) -> anyhow::Result<()> {
        let file = self.scheduler.file();
        let saved = tokio::task::spawn_blocking(move || self.store.save(&self.ports, &file, self.seen)).await?;
        match saved? {
            Saved::Done(_) => Ok(()),
            Saved::Changed => {
                let text = "cron/jobs.json was changed meanwhile; nothing was done, try again";
                Err(Exit::new(ExitCode::Failed, text).into())
            }
            Saved::Locked => Err(locked()),
        }
    }
}

fn locked() -> anyhow::Error {
    Exit::new(ExitCode::DirectoryInUse, "another process holds cron.lock in the workspace").into()
}
