//! The files. All functions block.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use domain::ids::{SessionKey, TurnId};
use domain::text::ellipsis;
use domain::trigger::{AUDIT_CHARS_MAX, Delivery, File, Run, TRIGGERS_MAX, Target, Trigger, TriggerId, file_name};
use protocol::trigger::TriggerBook;
use serde_json::{Value, json};
use supervision::ports::Ports;

use crate::inside;

const ROOT: &str = "triggers";
const FILE: &str = "triggers.json";
const LOCK: &str = ".lock";
const INBOX: &str = "inbox";
const PROCESSING: &str = "processing";
const FAILED: &str = "failed";
const RUNS: &str = "runs";
/// What a record says while the turn runs.
const ACCEPTED: &str = "accepted";
/// The largest file that is read, in bytes.
const BYTES_MAX: u64 = 4 << 20;
/// Deliveries that wait at most.
const WAITING_MAX: usize = 1000;
/// What is over that is kept at most, of each kind; the oldest go first.
const KEPT_MAX: usize = 500;

/// The triggers of one workspace.
pub struct TriggerStore {
    workspace: PathBuf,
    ports: Ports,
    /// Held while `triggers.json` or a record in `runs` is changed.
    changing: Mutex<()>,
}

/// What was claimed.
#[derive(Debug, Default, PartialEq)]
pub struct Claimed {
    /// Each with its file's name, and the trigger that it is for.
    pub deliveries: Vec<(String, Delivery, Result<Trigger, String>)>,
    /// Files that are no delivery, and why; they are in `failed` now.
    pub bad: Vec<(String, String)>,
}

/// A delivery that the journal has.
#[derive(Debug, Clone, PartialEq)]
pub struct Told {
    /// Its file's name.
    pub name: String,
    /// For which trigger.
    pub trigger: TriggerId,
    /// The session that is told.
    pub key: SessionKey,
    /// The turn.
    pub turn: TurnId,
}

/// Why a delivery was not handed in.
#[derive(Debug, thiserror::Error)]
pub enum NotQueued {
    /// There is no such trigger.
    #[error("there is no trigger {0}; `/trigger NAME` in a chat makes one")]
    Unknown(TriggerId),
    /// It is switched off.
    #[error("the trigger {0} is disabled")]
    Disabled(TriggerId),
    /// The message cannot be taken.
    #[error("{0}")]
    Bad(#[from] domain::trigger::BadDelivery),
    /// Too many wait.
    #[error("{WAITING_MAX} deliveries wait already; is a gateway running?")]
    Full,
    /// The files cannot be used.
    #[error("the triggers of this workspace cannot be used: {0}")]
    Io(#[from] io::Error),
}

// === impl TriggerStore ===

impl TriggerStore {
    /// That of a workspace.
    pub fn new(workspace: PathBuf, ports: Ports) -> Self {
        Self { workspace, ports, changing: Mutex::default() }
    }

    fn below(name: &[&str]) -> PathBuf {
        [&[ROOT], name].concat().iter().collect()
    }

    fn read(&self, name: &[&str]) -> io::Result<Option<Vec<u8>>> {
        inside::read(&*self.ports.disk, &self.workspace, &Self::below(name), BYTES_MAX)
    }

    fn write(&self, directory: &[&str], name: &str, bytes: &[u8]) -> io::Result<()> {
        inside::write(&*self.ports.disk, &self.workspace, &Self::below(directory), name, bytes)
    }

    /// The names of the deliveries in a directory, oldest first.
    fn names(&self, directory: &str) -> io::Result<Vec<String>> {
        inside::names(&*self.ports.disk, &self.workspace.join(Self::below(&[directory])))
    }

    fn root(&self) -> io::Result<PathBuf> {
        let root = self.workspace.join(ROOT);
        self.ports.disk.create_dir_all(&root)?;
        Ok(root)
    }

    fn file(&self) -> io::Result<File> {
        let Some(bytes) = self.read(&[FILE])? else { return Ok(File::default()) };
        match File::decode(&bytes) {
            Ok(file) => Ok(file),
            Err(why) => {
                let kept = format!("{FILE}.corrupt-{}", self.ports.clock.wall_ms() / 1000);
                let place = self.workspace.join(ROOT);
                self.ports.disk.rename_new(&place.join(FILE), &place.join(&kept))?;
                Err(io::Error::other(format!("{ROOT}/{FILE} is damaged ({why}); it is kept as {ROOT}/{kept}")))
            }
        }
    }

    fn change<T>(&self, change: impl FnOnce(&mut File, u64) -> T) -> io::Result<T> {
        let _one_at_a_time = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let lock = self.ports.disk.try_lock(&self.root()?.join(LOCK))?;
        let _lock = lock.ok_or_else(|| io::Error::other("another process is changing the triggers; try again"))?;
        let mut file = self.file()?;
        let before = file.clone();
        let done = change(&mut file, self.ports.clock.wall_ms());
        if file != before {
            self.write(&[], FILE, &file.encode())?;
        }
        Ok(done)
    }

    /// Takes its deliveries from now on, or none any more; none when there is no such trigger.
    pub fn enable(&self, id: &TriggerId, enabled: bool) -> io::Result<Option<Trigger>> {
        self.change(|file, now_ms| {
            let trigger = file.find_mut(id)?;
            if trigger.enabled != enabled {
                (trigger.enabled, trigger.updated_at_ms) = (enabled, now_ms);
            }
            Some(trigger.clone())
        })
    }

    /// Hands a message in for a trigger: it is on the device then. The file's name.
    pub fn put(&self, id: &TriggerId, message: String) -> Result<String, NotQueued> {
        let file = self.file()?;
        let trigger = file.find(id).ok_or_else(|| NotQueued::Unknown(id.clone()))?;
        if !trigger.enabled {
            return Err(NotQueued::Disabled(id.clone()));
        }
        let (clock, ids) = (&self.ports.clock, &self.ports.ids);
        let delivery = Delivery::new(id.clone(), message, clock.wall_ms(), ids.random())?;
        if self.names(INBOX)?.len() >= WAITING_MAX {
            return Err(NotQueued::Full);
        }
        let name = file_name(&delivery);
        self.write(&[INBOX], &name, &delivery.encode())?;
        Ok(name)
    }

    /// Takes up to `limit` deliveries: first those that somebody took and left, which are not among `known`, then new ones.
    pub fn claim(&self, limit: usize, known: &BTreeSet<String>) -> io::Result<Claimed> {
        let stale = self.names(PROCESSING)?.into_iter().filter(|name| !known.contains(name));
        let stale = stale.map(|name| (name, PROCESSING));
        let fresh = self.names(INBOX)?.into_iter().map(|name| (name, INBOX));
        let names: Vec<_> = stale.chain(fresh).take(limit).collect();
        let mut claimed = Claimed::default();
        if names.is_empty() {
            return Ok(claimed);
        }
        let file = self.file()?;
        for (name, from) in names {
            let read = match self.read(&[from, &name]) {
                Ok(None) => continue,
                Ok(Some(bytes)) => delivery(&name, &bytes),
                // What is no file that could be read keeps nobody from the others; what fails otherwise is tried again.
                Err(error) if inside::is_unfit(&error) => Err(error.to_string()),
                Err(error) => return Err(error),
            };
            match read {
                Ok(delivery) => {
                    self.move_to(PROCESSING, from, &name, &name)?;
                    let trigger = usable(&file, &delivery.trigger_id);
                    claimed.deliveries.push((name, delivery, trigger));
                }
                Err(why) => {
                    self.move_to(FAILED, from, &name, &format!("{name}.bad"))?;
                    claimed.bad.push((name, why));
                }
            }
        }
        self.ports.disk.sync_dir(&self.workspace.join(ROOT))?;
        Ok(claimed)
    }

    fn move_to(&self, to: &str, from: &str, name: &str, new: &str) -> io::Result<()> {
        let place = |directory: &str| self.workspace.join(Self::below(&[directory]));
        if to == from {
            return Ok(());
        }
        self.ports.disk.create_dir_all(&place(to))?;
        self.ports.disk.rename(&place(from).join(name), &place(to).join(new))?;
        self.ports.disk.sync_dir(&place(to))
    }

    /// The journal has it: the claim ends, and is written down.
    pub fn taken(&self, name: &str, delivery: &Delivery, trigger: &Trigger, turn: &str) -> io::Result<()> {
        self.audit(name, delivery, Some(trigger), json!({"status": ACCEPTED, "turn_id": turn}))?;
        self.unclaim(name)
    }

    /// Those that the journal has, and of which nothing else was written down.
    pub fn open(&self) -> io::Result<Vec<Told>> {
        let mut open = Vec::new();
        for name in self.names(RUNS)? {
            // One that says nothing usable has nobody to wait for its end.
            let Some(bytes) = self.read(&[RUNS, &name])? else { continue };
            let Ok(record) = serde_json::from_slice::<Value>(&bytes) else { continue };
            let text = |key: &str| record.get(key).and_then(Value::as_str);
            let trigger = text("trigger_id").and_then(|id| TriggerId::new(id).ok());
            let key = text("session_key").and_then(|key| SessionKey::new(key).ok());
            let turn = text("turn_id").and_then(|turn| turn.parse().ok());
            if let (Some(ACCEPTED), Some(trigger), Some(key), Some(turn)) = (text("status"), trigger, key, turn) {
                open.push(Told { name, trigger, key, turn });
            }
        }
        Ok(open)
    }

    /// It was refused and is tried again: how often that was, is written down.
    pub fn keep(&self, name: &str, delivery: &Delivery) -> io::Result<()> {
        self.write(&[PROCESSING], name, &delivery.encode())
    }

    /// It is given up.
    pub fn fail(&self, name: &str, delivery: &Delivery, trigger: Option<&Trigger>, why: &str) -> io::Result<()> {
        self.write(&[FAILED], name, &delivery.encode())?;
        self.audit(name, delivery, trigger, json!({"status": "error", "error": why}))?;
        self.unclaim(name)?;
        self.ran(&delivery.trigger_id, Some(why))?;
        self.prune(FAILED)
    }

    /// Its turn has ended.
    pub fn ended(&self, told: &Told, end: Result<&str, &str>) -> io::Result<()> {
        let (status, key, text) = match end {
            Ok(response) => ("ok", "response", response),
            Err(why) => ("error", "error", why),
        };
        self.record(&told.name, json!({"status": status, key: ellipsis(text, AUDIT_CHARS_MAX)}), true)?;
        self.ran(&told.trigger, end.err())?;
        self.prune(RUNS)
    }

    fn ran(&self, id: &TriggerId, error: Option<&str>) -> io::Result<()> {
        use domain::trigger::Status;
        self.change(|file, now_ms| {
            let status = if error.is_none() { Status::Ok } else { Status::Error };
            let error = error.map(|error| ellipsis(error, AUDIT_CHARS_MAX).into_owned());
            if let Some(trigger) = file.find_mut(id) {
                trigger.ran(Run { run_at_ms: now_ms, status, error });
            }
        })
    }

    /// Writes down what a delivery is. How it ended stays, should that have been written down before.
    fn audit(&self, name: &str, delivery: &Delivery, trigger: Option<&Trigger>, more: Value) -> io::Result<()> {
        let mut record = json!({
            "kind": "local_trigger",
            "trigger_id": delivery.trigger_id,
            "delivery_id": delivery.id,
            "content": ellipsis(&delivery.content, AUDIT_CHARS_MAX),
            "created_at_ms": delivery.created_at_ms,
            "attempts": delivery.attempts,
            "trigger_name": trigger.map(|trigger| &trigger.name),
            "session_key": trigger.map(|trigger| &trigger.session_key),
        });
        if let (Some(record), Value::Object(more)) = (record.as_object_mut(), more) {
            record.extend(more);
        }
        self.record(name, record, false)
    }

    fn record(&self, name: &str, fields: Value, over: bool) -> io::Result<()> {
        let fields = fields.as_object().cloned().unwrap_or_default();
        let _one_at_a_time = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        inside::merge(&*self.ports.disk, &self.workspace, &Self::below(&[RUNS]), name, fields, over)
    }

    fn unclaim(&self, name: &str) -> io::Result<()> {
        let place = self.workspace.join(Self::below(&[PROCESSING]));
        match self.ports.disk.remove(&place.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => self.ports.disk.sync_dir(&place),
        }
    }

    fn prune(&self, directory: &str) -> io::Result<()> {
        inside::prune(&*self.ports.disk, &self.workspace.join(Self::below(&[directory])), KEPT_MAX)
    }
}

fn delivery(name: &str, bytes: &[u8]) -> Result<Delivery, String> {
    let delivery = Delivery::decode(bytes).map_err(|error| error.to_string())?;
    match Delivery::message_id(name) {
        Some(_) => Ok(delivery),
        None => Err("its name cannot be the id of a message".to_owned()),
    }
}

fn usable(file: &File, id: &TriggerId) -> Result<Trigger, String> {
    match file.find(id) {
        Some(trigger) if trigger.enabled => Ok(trigger.clone()),
        Some(_) => Err("the trigger is disabled".to_owned()),
        None => Err("there is no such trigger".to_owned()),
    }
}

impl TriggerBook for TriggerStore {
    fn create(&self, seed: &[u8], name: &str, target: &Target) -> io::Result<Trigger> {
        let id = TriggerId::of_seed(seed);
        let made = self.change(|file, now_ms| match file.find(&id) {
            Some(trigger) => Some(trigger.clone()),
            None if file.triggers.len() >= TRIGGERS_MAX => None,
            None => {
                let trigger = Trigger::new(id.clone(), name, target, now_ms);
                file.triggers.push(trigger.clone());
                Some(trigger)
            }
        })?;
        made.ok_or_else(|| io::Error::other(format!("there are {TRIGGERS_MAX} triggers already")))
    }

    fn list(&self) -> io::Result<Vec<Trigger>> {
        Ok(self.file()?.triggers)
    }

    fn remove(&self, id: &TriggerId) -> io::Result<bool> {
        self.change(|file, _| {
            let before = file.triggers.len();
            file.triggers.retain(|trigger| trigger.id != *id);
            file.triggers.len() < before
        })
    }
}

#[cfg(test)]
mod tests;
