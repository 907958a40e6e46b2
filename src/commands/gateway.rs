//! `greenroom gateway`: serves the doors until a signal, a failed disk or an order to drain ends it.

use std::time::Duration;

use protocol::supervision::{ActorPath, Event, EventName, Kind, SupervisionLog};
use supervision::log::{LogOptions, LogWriter};
use supervision::real::real_ports;
use tokio_util::sync::CancellationToken;

use crate::app::lock::Lock;
use crate::app::{App, Options, Purpose};
use crate::cli::Place;
use crate::config::{Loaded, Paths};
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
    let stop = stopped_by_signals()?;
    let loaded = load(place)?;
    let files = crate::app::limits::raise_file_limit();
    tracing::info!(files, "file limit");
    let mut app = App::start(Options::gateway(loaded)).await?;
    tokio::select! {
        biased;
        () = stop.cancelled() => {}
        ended = serve(&mut app) => ended?,
    }
    stop.cancel();
    super::print("stopping: running turns may end, waiting ones are kept; Ctrl-C again stops at once")?;
    app.stop().await;
    Ok(())
}

/// Opens the doors; returns when somebody asked that they be closed.
async fn serve(app: &mut App) -> anyhow::Result<()> {
    for line in app.serve().await? {
        super::print(&line)?;
    }
    tokio::select! {
        biased;
        why = app.failed() => Err(Exit::new(ExitCode::Disk, format!("the journal's disk failed: {why}")).into()),
        () = app.drained() => Ok(()),
    }
}

/// A token that is cancelled when SIGINT or SIGTERM arrives. From then on, whoever cancelled it, SIGINT ends the process.
fn stopped_by_signals() -> anyhow::Result<CancellationToken> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let asked = CancellationToken::new();
    let stop = asked.clone();
    // On a thread of its own: a start blocks the one that it runs on.
    tokio::spawn(async move {
        tokio::select! {
            biased;
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            () = stop.cancelled() => {}
        }
        stop.cancel();
        interrupt.recv().await;
        eprintln!("greenroom: stopped at once");
        std::process::exit(ExitCode::Interrupted as i32);
    });
    Ok(asked)
}
