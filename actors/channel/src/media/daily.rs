//! The sweep, when the gateway begins to serve and once a day.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use domain::text::counted;
use protocol::supervision::{ActorPath, Event, EventName, Kind};
use supervision::ports::offload;
use tokio_util::sync::CancellationToken;

use super::sweep::{Places, Sum, look, remove, without_named};
use crate::doors::Doors;

/// How often the gateway looks. What is remembered of attached files counts on it, see [`super::attached`].
const EVERY: Duration = Duration::from_secs(24 * 3600);

/// Sweeps as long as the gateway serves.
pub async fn daily(doors: Doors, places: Places, shutdown: CancellationToken) {
    let sweeps = async {
        let mut after = None;
        loop {
            match sweep(&doors, &places, after.take(), &shutdown).await {
                Ok(next) => after = next,
                Err(error) => {
                    tracing::warn!(%error, "old attachments cannot be looked through; it is tried again tomorrow");
                }
            }
            tokio::time::sleep(EVERY).await;
        }
    };
    // A file is removed or is not; what reads stops by itself.
    shutdown.run_until_cancelled(sweeps).await;
}

/// One run over the directories behind `after`; behind which the next one goes on.
async fn sweep(
    doors: &Doors,
    places: &Places,
    after: Option<PathBuf>,
    shutdown: &CancellationToken,
) -> io::Result<Option<PathBuf>> {
    let (places, shutdown) = (places.clone(), shutdown.clone());
    let shared = doors.clone();
    let swept = offload(&*doors.ports.offload, move || {
        let (ports, attached) = (&shared.ports, shared.attached());
        attached.begin();
        let disk = &*ports.disk;
        let mut looked = look(disk, &places.media, ports.clock.wall_ms(), after.as_deref())?;
        without_named(disk, &places, &mut looked, &|| shutdown.is_cancelled())?;
        let next = looked.next.take();
        Ok((remove(disk, attached, looked), next))
    });
    let swept = swept.await.unwrap_or_else(|_| Err(io::Error::other("the blocking pool takes no more work")));
    let (removed, next) = swept?;
    if removed != Sum::default() {
        tell(doors, removed);
    }
    Ok(next)
}

fn tell(doors: &Doors, removed: Sum) {
    let work = &doors.metrics.work;
    work.attachments_removed.inc_by(removed.files as u64);
    work.attachments_removed_bytes.inc_by(removed.bytes);
    let mut event = Event::new(EventName::AttachmentsRemoved, ActorPath("/channels".into()), Kind::Channel);
    event.reason = Some(told(removed));
    doors.log.record(event);
}

fn told(removed: Sum) -> String {
    let files = counted(removed.files, "file");
    format!("{files}, {}, that no message names", counted(removed.bytes, "byte"))
}

/// What lies there, and what a sweep would remove of it: files and bytes each, of at most so many files as one run looks
/// at. For commands.
pub fn survey(disk: &dyn supervision::ports::Disk, places: &Places, now_ms: u64) -> io::Result<(Sum, Sum)> {
    let mut looked = look(disk, &places.media, now_ms, None::<&Path>)?;
    without_named(disk, places, &mut looked, &|| false)?;
    Ok((Sum { files: looked.all.0, bytes: looked.all.1 }, looked.sum()))
}
