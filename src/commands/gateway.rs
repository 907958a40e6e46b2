//! `greenroom gateway`: serves the doors until a signal, a failed disk or an order to drain ends it.

use crate::app::{App, Options};
use crate::config::Loaded;
use crate::exit::{Exit, ExitCode};

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
