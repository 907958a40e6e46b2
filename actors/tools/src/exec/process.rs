//! One command, from its start to the end of its last process.

use std::ffi::OsString;
use std::future::Future;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::pin::pin;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::FusedFuture;
use rustix::process::{Pid, Signal, WaitOptions};
use supervision::ports::{Offload, offload};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;
use tokio_util::sync::CancellationToken;

use super::output::Capture;
use super::survivors;

/// Between TERM and KILL.
const TERM_GRACE: Duration = Duration::from_secs(2);
/// How long killed processes may take to be gone before the wait is given up (they hang in the kernel).
const KILL_WAIT_MAX: Duration = Duration::from_secs(10);
/// Between the first two looks at what is left; doubled each time.
const LOOK_FIRST: Duration = Duration::from_millis(2);
/// Between any two looks, at most.
const LOOK_MAX: Duration = Duration::from_millis(50);
/// How long the pipes are read after everybody known is gone.
const DRAIN_MAX: Duration = Duration::from_secs(1);
/// Of one read.
const CHUNK_BYTES: usize = 16 * 1024;

/// What to start.
pub(super) struct Invocation {
    /// Program and arguments.
    pub(super) command: Vec<OsString>,
    /// All of the environment.
    pub(super) environment: Vec<(OsString, OsString)>,
    pub(super) cwd: PathBuf,
    /// In the environment of all its processes.
    pub(super) marker: String,
    pub(super) timeout: Duration,
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    Exited { code: i32 },
    Killed { signal: i32 },
    TimedOut,
    Cancelled,
}

/// Runs it; `printed` is called for each piece of output. When this returns, none of its processes is left.
///
/// Must be polled on a thread that outlives the command: a sandbox dies with the thread that started it.
pub(super) async fn run(
    invocation: Invocation,
    cancel: CancellationToken,
    pool: Arc<dyn Offload>,
    printed: impl Fn(),
) -> io::Result<(Ended, Capture, Capture)> {
    let Invocation { command, environment, cwd, marker, timeout } = invocation;
    let (program, arguments) = command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let mut child = Command::new(program)
        .args(arguments)
        .env_clear()
        .envs(environment)
        .current_dir(cwd)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()?;
    let leader = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    let leader = leader.ok_or_else(|| io::Error::other("the command has no process id"))?;
    let mut group = Group { leader, marker, pool, gone: false };
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let (mut stdout, mut stderr) = (Capture::default(), Capture::default());
    let ended = {
        let reading = async { futures::join!(read(out, &mut stdout, &printed), read(err, &mut stderr, &printed)) }
            .map(|_| ())
            .fuse();
        let mut reading = pin!(reading);
        let limits = async {
            tokio::select! {
                biased;
                () = cancel.cancelled() => Ok(Ended::Cancelled),
                status = child.wait() => status.map(ended),
                () = tokio::time::sleep(timeout) => Ok(Ended::TimedOut),
            }
        };
        let ended = alongside(limits, reading.as_mut()).await;
        alongside(group.end(), reading.as_mut()).await;
        // Reaps the leader; it is gone or a zombie by now, so this does not wait.
        let reaped = tokio::time::timeout(DRAIN_MAX, child.wait()).await;
        if !reading.is_terminated() {
            // Nobody known holds the pipes any more; what they still contain comes at once.
            let _ = tokio::time::timeout(DRAIN_MAX, reading).await;
        }
        drop(reaped);
        ended?
    };
    Ok((ended, stdout, stderr))
}

fn ended(status: ExitStatus) -> Ended {
    match (status.code(), status.signal()) {
        (Some(code), _) => Ended::Exited { code },
        (None, signal) => Ended::Killed { signal: signal.unwrap_or_default() },
    }
}

/// Reads to the end, or as far as the pipe gives.
async fn read(from: Option<impl AsyncRead + Unpin>, into: &mut Capture, printed: impl Fn()) {
    let Some(mut from) = from else { return };
    let mut chunk = vec![0; CHUNK_BYTES];
    while let Ok(count @ 1..) = from.read(&mut chunk).await {
        printed();
        into.push(chunk.get(..count).unwrap_or_default());
    }
}

/// Awaits `work` while the pipes are being emptied, so that a full pipe never holds up the command.
async fn alongside<T>(
    work: impl Future<Output = T>,
    mut reading: std::pin::Pin<&mut (impl FusedFuture<Output = ()> + ?Sized)>,
) -> T {
    let mut work = pin!(work);
    loop {
        tokio::select! {
            biased;
            result = &mut work => return result,
            () = reading.as_mut(), if !reading.is_terminated() => {}
        }
    }
}

/// The processes of one call; killed when this is dropped before its end.
struct Group {
    leader: Pid,
    marker: String,
    pool: Arc<dyn Offload>,
    gone: bool,
}

// === impl Group ===

impl Group {
    /// Ends all of them: politely, then not.
    async fn end(&mut self) {
        let polite = tokio::time::timeout(TERM_GRACE, self.signal(Signal::TERM)).await;
        if polite.is_err() && tokio::time::timeout(KILL_WAIT_MAX, self.signal(Signal::KILL)).await.is_err() {
            tracing::error!(leader = self.leader.as_raw_nonzero().get(), "processes of a command cannot be killed");
        }
        self.gone = true;
    }

    /// Signals all that are left, also those that appear meanwhile, and waits for the end of the last one.
    async fn signal(&self, signal: Signal) {
        let mut known: Vec<Pid> = Vec::new();
        let mut pause = LOOK_FIRST;
        loop {
            let left = self.left().await;
            if left.is_empty() {
                return;
            }
            for id in left.into_iter().filter(|id| !known.contains(id)).collect::<Vec<_>>() {
                // An error means that it has ended already.
                let _ = rustix::process::kill_process(id, signal);
                known.push(id);
            }
            tokio::time::sleep(pause).await;
            pause = LOOK_MAX.min(pause * 2);
        }
    }

    /// Who is left; zombies that fell to us (where the gateway is process 1) are reaped on the way.
    async fn left(&self) -> Vec<Pid> {
        let (leader, marker) = (self.leader, self.marker.clone());
        let found = offload(&*self.pool, move || survivors::find(leader, &marker)).await.unwrap_or_default();
        if std::process::id() == 1 {
            while let Ok(Some((id, _))) = rustix::process::waitpgid(leader, WaitOptions::NOHANG) {
                tracing::trace!(id = id.as_raw_nonzero().get(), "reaped a process of a command");
            }
        }
        found
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if !self.gone {
            // It may have ended by itself.
            let _ = rustix::process::kill_process_group(self.leader, Signal::KILL);
        }
    }
}
