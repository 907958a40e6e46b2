//! Other programs that hand something in for a session, as triggers: what was handed in is told once, or lies among what was
//! given up.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cron::TriggerStore;
use domain::chat::plain_text;
use domain::event::EventKind;
use domain::ids::SessionKey;
use domain::transcript::{EntryKind, Transcript};
use domain::trigger::Target;
use protocol::trigger::TriggerBook;
use supervision::memory::{InlineOffload, PowerCutDisk, SeededIds};
use supervision::ports::{Disk, Ports};

use super::books::READ_TRIES;
use super::drive::{HOME, Running};
use super::outside::SimClock;
use super::process::Process;

/// How long everything that was handed in may take in the end: ten attempts, and their pauses.
const TRIES: u32 = 400;

/// The session that is told.
pub fn session() -> SessionKey {
    SessionKey::new("cron:told").expect("a short printable key")
}

/// What was handed in, and whether that is sure.
#[derive(Debug, Default)]
pub struct Handed(Vec<(usize, bool)>);

fn place(name: &str) -> PathBuf {
    Path::new(HOME).join("workspace/triggers").join(name)
}

/// The deliveries of a directory, as text.
fn deliveries(disk: &PowerCutDisk, name: &str) -> Vec<String> {
    let paths = disk.list(&place(name)).unwrap_or_default().into_iter();
    let whole = paths.filter(|path| !path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.')));
    whole.filter_map(|path| disk.read(&path).ok()).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).collect()
}

fn text(n: usize) -> String {
    format!("handed in {n}, [[tokens=2]]")
}

fn store(process: &Arc<Process>, n: usize) -> TriggerStore {
    let ids = SeededIds::new(process.world.seed ^ (n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let ports = Ports {
        disk: process.disk.clone(),
        clock: Arc::new(SimClock(process.clone())),
        ids: Arc::new(ids),
        offload: Arc::new(InlineOffload),
    };
    TriggerStore::new(Path::new(HOME).join("workspace"), ports)
}

// === impl Running ===

impl Running {
    /// Another program hands something in.
    pub fn hand_in(&self, n: usize) {
        let store = store(&self.process, n);
        let made = store.create(b"the one", "told", &Target::of_session(session()));
        let Ok(trigger) = made else { return };
        let put = store.put(&trigger.id, text(n));
        self.process.note(|books| {
            books.handed.0.push((n, put.is_ok()));
            format!("t{n} is handed in: {:?}", put.map(|_| ()).map_err(|error| error.to_string()))
        });
    }

    /// In the end nothing waits.
    pub async fn end_handing(&self) {
        let waits = |disk: &PowerCutDisk| ["inbox", "processing"].iter().any(|name| !deliveries(disk, name).is_empty());
        for _ in 0..TRIES {
            if !waits(&self.process.disk) || !self.process.is_alive() {
                return;
            }
            tokio::time::sleep(Duration::from_secs(10)).await;
        }
        self.process.note(|books| {
            books.wrong("what was handed in stays where it is");
            "deliveries stay".to_owned()
        });
    }
}

// === impl Handed ===

impl Handed {
    /// Checks the transcript of the session; how many were told.
    pub fn check(&self, disk: &PowerCutDisk, transcript: &Transcript, read_faults: u32) -> Result<u64, String> {
        let events = transcript.entries().iter().filter_map(|entry| match &entry.kind {
            EntryKind::User(user) => Some(user),
            _ => None,
        });
        let events: Vec<_> =
            events.filter(|user| user.event.as_ref().is_some_and(|event| event.kind == EventKind::Trigger)).collect();
        let failed = deliveries(disk, "failed");
        for (n, sure) in &self.0 {
            let told =
                events.iter().filter(|user| plain_text(&user.content).contains(&format!("handed in {n},"))).count();
            let given_up = failed.iter().any(|delivery| delivery.contains(&format!("handed in {n},")));
            let once = told == 1 || (told == 0 && (given_up || !sure || read_faults >= READ_TRIES));
            if !once {
                return Err(format!(
                    "what was handed in as t{n} was told {told} times, sure={sure} given_up={given_up}"
                ));
            }
        }
        Ok(events.len() as u64)
    }
}
