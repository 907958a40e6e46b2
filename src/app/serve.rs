//! Opens the doors and closes them.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use channel::Doors;
use channel::doors::DoorsParts;
use protocol::journal::Journal;
use protocol::supervision::{ActorPath, Event, EventName, Kind};
use supervision::ports::is_space;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::beacon::Beacon;
use super::{App, hooks, parts};
use crate::exit::{Exit, ExitCode};

/// How soon the sessions are listed again when their directory could not be read.
const LIST_RETRY: Duration = Duration::from_secs(1);

/// Doors that serve.
pub struct Open {
    shutdown: CancellationToken,
    drain: CancellationToken,
    serving: Vec<JoinHandle<()>>,
}

impl Open {
    /// Closes the connections.
    pub async fn close(self, run: &Path) {
        self.shutdown.cancel();
        for door in self.serving {
            if door.await.is_err() {
                tracing::error!("a door failed while it closed");
            }
        }
        Beacon::blank(run);
    }
}

/// One for each door that is served.
struct Listeners {
    gateway: TcpListener,
    api: TcpListener,
    websocket: Option<TcpListener>,
    webhook: Option<TcpListener>,
}

async fn listen(key: &str, host: &str, port: u16) -> Result<TcpListener, Exit> {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    TcpListener::bind((host, port)).await.map_err(|error| {
        let in_use = error.kind() == std::io::ErrorKind::AddrInUse;
        let code = if in_use { ExitCode::PortInUse } else { ExitCode::Failed };
        Exit::new(code, format!("{key}: cannot listen on {host}:{port}: {error}"))
    })
}

impl App {
    /// Opens the doors; returns a line for each, to be shown to the user.
    pub async fn serve(&mut self) -> anyhow::Result<Vec<String>> {
        let config = &self.loaded.config;
        let gateway = listen("gateway.port", &config.gateway.host, config.gateway.port).await?;
        let api = listen("api.port", &config.api.host, config.api.port).await?;
        let websocket = match config.channels.websocket.enabled {
            true => {
                let door = &config.channels.websocket;
                Some(listen("channels.websocket.port", &door.host, door.port).await?)
            }
            false => None,
        };
        let webhook = match config.channels.webhook.enabled {
            true => {
                let door = &config.channels.webhook;
                Some(listen("channels.webhook.port", &door.host, door.port).await?)
            }
            false => None,
        };
        let token = match &config.admin.token {
            Some(token) => token.expose().to_owned(),
            None => format!("{:032x}{:032x}", self.ports.ids.random(), self.ports.ids.random()),
        };
        let beacon = Beacon {
            pid: std::process::id(),
            admin_url: format!("http://{}", gateway.local_addr()?),
            token,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            websocket_url: match &websocket {
                Some(door) => Some(format!("ws://{}{}", door.local_addr()?, config.channels.websocket.path)),
                None => None,
            },
            api_url: Some(format!("http://{}/v1", api.local_addr()?)),
            webhook_url: match &webhook {
                Some(door) => Some(format!("http://{}/webhook", door.local_addr()?)),
                None => None,
            },
        };
        let mut open = self.open(Listeners { gateway, api, websocket, webhook }, &beacon);
        let run = &self.loaded.paths.run;
        match beacon.write(run) {
            Err(error) if is_space(&error) => {
                tracing::warn!(%error, "other commands cannot find this gateway until there is space");
                let writing = beacon.clone().write_when_possible(run.clone(), open.shutdown.clone());
                open.serving.push(tokio::spawn(writing));
            }
            written => written.with_context(|| format!("{} cannot be written", run.display()))?,
        }
        self.doors = Some(open);
        let mut event = Event::new(EventName::GatewayStarted, ActorPath("/".into()), Kind::Process);
        event.cause = self.log.latest(EventName::ProcessStarted);
        self.log.record(event);
        Ok(lines(&beacon, &self.model))
    }

    fn open(&self, listeners: Listeners, beacon: &Beacon) -> Open {
        let Listeners { gateway, api, websocket, webhook } = listeners;
        let (shutdown, drain) = (CancellationToken::new(), CancellationToken::new());
        let config = &self.loaded.config;
        let doors = self.make_doors();
        let transcripts = self.transcripts.clone();
        let logs = self.loaded.paths.logs.clone();
        let hooks = hooks::hooks(config, |channel| self.channels.contains(channel));
        let gateway_config = parts::gateway(config, beacon, transcripts, hooks, logs, drain.clone());
        let mut serving = vec![
            tokio::spawn(self.list_sessions(shutdown.clone())),
            tokio::spawn(channel::gateway::serve(gateway, doors.clone(), gateway_config, shutdown.clone())),
            tokio::spawn(channel::openai_api::serve(
                api,
                doors.clone(),
                parts::api(config, &self.model),
                shutdown.clone(),
            )),
        ];
        let pruning = parts::pruning(config);
        let looking =
            channel::gateway::prune::daily(doors.clone(), self.transcripts.clone(), pruning, shutdown.clone());
        serving.push(tokio::spawn(looking));
        let places = parts::attachments(&self.loaded.paths);
        serving.push(tokio::spawn(channel::media::daily(doors.clone(), places, shutdown.clone())));
        if let Some(rules) = self.idle {
            let watch = session::IdleWatch {
                transcripts: self.transcripts.clone(),
                sessions: self.registry.clone(),
                clock: self.ports.clock.clone(),
                metrics: self.metrics.clone(),
                rules,
            };
            let shutdown = shutdown.clone();
            serving.push(tokio::spawn(async move {
                // What is half done then is done or dropped by its session.
                shutdown.run_until_cancelled(watch.run()).await;
            }));
        }
        if let Some(listener) = websocket {
            let door =
                channel::websocket::serve(listener, doors.clone(), parts::websocket(&self.loaded), shutdown.clone());
            serving.push(tokio::spawn(door));
        }
        if let Some(listener) = webhook {
            let door = channel::webhook::serve(listener, doors, parts::webhook(config), shutdown.clone());
            serving.push(tokio::spawn(door));
        }
        Open { shutdown, drain, serving }
    }

    /// What all doors share, also those of a process that serves none.
    pub fn make_doors(&self) -> Doors {
        let config = &self.loaded.config;
        Doors::new(DoorsParts {
            journal: self.journal.clone(),
            sessions: self.sessions.clone(),
            runs: Some(self.runs.clone()),
            transcripts: self.transcripts.clone(),
            hub: self.hub.clone(),
            ports: self.ports.clone(),
            metrics: self.metrics.clone(),
            log: self.log.clone(),
            kernel: self.kernel.clone(),
            phase: self.phase.clone(),
            outbox: self.board.clone(),
            jobs: self.jobs.clone(),
            memory: self.memory.clone(),
            restart: self.restart.clone(),
            media: self.loaded.paths.media.clone(),
            frame_bytes_in_flight: usize::try_from(config.runtime.frame_bytes_in_flight).unwrap_or(usize::MAX),
            show: {
                let gauges = self.gauges.clone();
                Arc::new(move || gauges.show())
            },
        })
    }

    /// Makes the list of sessions while the doors are open, and tries again as long as the directory cannot be read.
    fn list_sessions(&self, shutdown: CancellationToken) -> impl Future<Output = ()> + use<> {
        let (transcripts, pool) = (self.transcripts.clone(), self.ports.offload.clone());
        let (unfinished, now_ms) = (self.journal.unfinished(), self.ports.clock.wall_ms());
        let listing = async move {
            // A session that is held back may have no transcript yet.
            for one in unfinished.await.unwrap_or_default() {
                transcripts.index().expect(&one.key, now_ms);
            }
            while let Err(error) = Arc::clone(&transcripts).discover(pool.clone()).await {
                tracing::error!(%error, "the sessions cannot be listed; it is tried again");
                tokio::time::sleep(LIST_RETRY).await;
            }
        };
        async move {
            tokio::select! {
                biased;
                () = shutdown.cancelled() => {}
                () = listing => {}
            }
        }
    }

    /// Returns when somebody asked through the admin API that the gateway drain.
    pub fn drained(&self) -> impl Future<Output = ()> + use<> {
        let drain = self.doors.as_ref().map(|doors| doors.drain.clone());
        async move {
            match drain {
                Some(drain) => drain.cancelled().await,
                None => std::future::pending().await,
            }
        }
    }
}

fn lines(beacon: &Beacon, model: &str) -> Vec<String> {
    let mut lines = vec![format!("model      {model}")];
    let doors = [("websocket", &beacon.websocket_url), ("api", &beacon.api_url), ("webhook", &beacon.webhook_url)];
    lines.extend(doors.iter().filter_map(|(name, url)| url.as_ref().map(|url| format!("{name:10} {url}"))));
    lines.push(format!("gateway    {}", beacon.admin_url));
    lines
}
