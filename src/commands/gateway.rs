//! `greenroom gateway`: serves the doors until a signal, a failed disk or an order to drain ends it.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::pin::pin;
use std::process::Command;
use std::time::Duration;

use anyhow::Context;
use futures::future::{Either, select};
use protocol::supervision::{ActorPath, Event, EventName, Kind, SupervisionLog};
use supervision::log::{LogOptions, LogWriter};
use supervision::real::real_ports;
use tokio_util::sync::CancellationToken;

use crate::app::lock::Lock;
use crate::app::{App, Options, Purpose};
use crate::cli::Place;
use crate::config::{Loaded, Paths, RestartMode};
use crate::exit::{Exit, ExitCode};

/// The most files of the log that a configuration may ask for.
const LOG_FILES_MAX: u32 = 1000;

/// Reads the configuration; that one was refused is told in the supervision log too.
fn load(place: &Place) -> anyhow::Result<Loaded> {
    super::load(place).inspect_err(|refused| {
        let Ok(found) = super::survey(place) else { return };
        if let Err(error) = record_refusal(found.paths, refused) {
            tracing::warn!(%error, "the supervision log does not know that the configuration was refused");
        }
    })
}

/// Where no gateway ever ran there is no log; where one runs, the log is that one's.
fn record_refusal(paths: Paths, refused: &anyhow::Error) -> std::io::Result<()> {
    if !paths.logs.is_dir() {
        return Ok(());
    }
    let Ok(_lock) = Lock::take(&paths.run.join("lock"), &paths.data, Purpose::AtRest) else { return Ok(()) };
    // How much is to be kept is not known now, so nothing is removed.
    let options = LogOptions { files: LOG_FILES_MAX, age: Duration::MAX, ..LogOptions::new(paths.logs) };
    let log = LogWriter::start(options, &real_ports(1)?)?;
    let mut event = Event::new(EventName::ConfigRejected, ActorPath("/".into()), Kind::Process);
    event.reason = Some(refused.to_string());
    event.verdict = Some("not started".to_owned());
    event.cause = log.before().map(|before| before.id.clone());
    log.record(event);
    log.close();
    Ok(())
}

/// Serves until stopped. A signal that comes while it starts stops it as soon as it can do so in order: then no door is
/// opened.
pub async fn run(place: &Place) -> anyhow::Result<()> {
    // Asked now: when a new version has taken its place, the system names it as removed.
    let program = std::env::current_exe();
    let Signals { stop, terminated } = signals()?;
    let loaded = load(place)?;
    let files = crate::app::limits::raise_file_limit();
    tracing::info!(files, "file limit");
    let mode = loaded.config.gateway.restart_mode;
    let mut app = App::start(Options::gateway(loaded)).await?;
    let ended = tokio::select! {
        biased;
        () = stop.cancelled() => Ended::Stopped,
        ended = serve(&mut app) => ended?,
    };
    stop.cancel();
    super::print("stopping: running turns may end, waiting ones are kept; Ctrl-C again stops at once")?;
    app.stop().await;
    match ended {
        Ended::Restart if !terminated.is_cancelled() => start_again(mode, program),
        Ended::Restart | Ended::Stopped => Ok(()),
    }
}

/// Why the doors were closed.
enum Ended {
    /// To stay closed.
    Stopped,
    /// To be opened again.
    Restart,
}

/// Runs the program again with the arguments of this process, in its place or beside it.
fn start_again(mode: RestartMode, program: std::io::Result<PathBuf>) -> anyhow::Result<()> {
    let again = || -> std::io::Result<Command> {
        let mut command = Command::new(program?);
        command.args(std::env::args_os().skip(1));
        Ok(command)
    };
    let failed = "the gateway has stopped, and cannot be started again";
    match mode {
        RestartMode::Auto | RestartMode::Exec => Err(again().context(failed)?.exec()).context(failed),
        RestartMode::Spawn => again().and_then(|mut command| command.spawn()).map(drop).context(failed),
        RestartMode::Exit => Ok(()),
    }
}

/// Opens the doors; returns when somebody asked that they be closed.
async fn serve(app: &mut App) -> anyhow::Result<Ended> {
    for line in app.serve().await? {
        super::print(&line)?;
    }
    tokio::select! {
        biased;
        why = app.failed() => Err(Exit::new(ExitCode::Disk, format!("the journal's disk failed: {why}")).into()),
        () = app.drained() => Ok(Ended::Stopped),
        () = app.restart_asked() => Ok(Ended::Restart),
    }
}

struct Signals {
    /// Cancelled when SIGINT or SIGTERM arrives. From then on, whoever cancelled it, SIGINT ends the process.
    stop: CancellationToken,
    /// Cancelled when SIGTERM arrives, also later.
    terminated: CancellationToken,
}

fn signals() -> anyhow::Result<Signals> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let (asked, ended) = (CancellationToken::new(), CancellationToken::new());
    let (stop, terminated) = (asked.clone(), ended.clone());
    // On a thread of its own: a start blocks the one that it runs on.
    tokio::spawn(async move {
        tokio::select! {
            biased;
            _ = interrupt.recv() => {}
            _ = terminate.recv() => terminated.cancel(),
            () = stop.cancelled() => {}
        }
        stop.cancel();
        while let Either::Right(_) = select(pin!(interrupt.recv()), pin!(terminate.recv())).await {
            terminated.cancel();
        }
        eprintln!("greenroom: stopped at once");
        std::process::exit(ExitCode::Interrupted as i32);
    });
    Ok(Signals { stop: asked, terminated: ended })
}
