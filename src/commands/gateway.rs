//! `greenroom gateway`: serves the doors until a signal, a failed disk or an order to drain ends it.

use std::time::Duration;

use protocol::supervision::{ActorPath, Event, EventName, Kind, SupervisionLog};
use supervision::log::{LogOptions, LogWriter};
use supervision::real::real_ports;

use crate::app::lock::Lock;
use crate::app::{App, Options, Purpose};
use crate::cli::Place;
use crate::config::{Loaded, Paths};
use crate::exit::{Exit, ExitCode};

/// The most files of the log that a configuration may ask for.
const LOG_FILES_MAX: u32 = 1000;

/// Reads the configuration; that one was refused is told in the supervision log too.
pub fn load(place: &Place) -> anyhow::Result<Loaded> {
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

/// Serves until stopped.
pub async fn run(loaded: Loaded) -> anyhow::Result<()> {
    let files = crate::app::limits::raise_file_limit();
    tracing::info!(files, "file limit");
    let mut app = App::start(Options::gateway(loaded)).await?;
    for line in app.serve().await? {
        super::print(&line)?;
    }
    let ended = tokio::select! {
        biased;
        () = stop_signal()? => Ok(()),
        why = app.failed() => Err(Exit::new(ExitCode::Disk, format!("the journal's disk failed: {why}"))),
        () = app.drained() => Ok(()),
    };
    match ended {
        Ok(()) => {
            super::print("stopping: running turns may end, waiting ones are kept; Ctrl-C again stops at once")?;
            tokio::select! {
                biased;
                _ = tokio::signal::ctrl_c() => Err(Exit::new(ExitCode::Interrupted, "stopped at once").into()),
                () = app.stop() => Ok(()),
            }
        }
        Err(exit) => Err(exit.into()),
    }
}

/// Returns when SIGINT or SIGTERM arrives.
fn stop_signal() -> anyhow::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    Ok(async move {
        tokio::select! {
            biased;
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}
