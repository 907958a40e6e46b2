//! `<dir>/agents/<agent>/sessions/{sessions.json,<id>.jsonl}`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use domain::exchange::openclaw::{OWN_KEY, export as convert, id_of, own_id, place_of};
use domain::ids::SessionKey;
use serde_json::{Map, Value};

use super::{File, Maker, Session};
use crate::commands::report::Report;
use crate::exit::{Exit, ExitCode};

/// Writes the sessions; the stores come last, when all that they name is there.
pub fn export(maker: Maker<'_>, sessions: &[Session]) -> anyhow::Result<Report> {
    let ids = ids(&maker, sessions);
    let id = |session: &Session| ids.get(&session.key).map_or("", String::as_str);
    let dir = maker.dir.to_owned();
    let directory = |key: &SessionKey| dir.join("agents").join(place_of(key).0).join("sessions");
    let mut stores: BTreeMap<PathBuf, Map<String, Value>> = BTreeMap::new();
    for session in sessions {
        let path = directory(&session.key).join("sessions.json");
        if !stores.contains_key(&path) {
            stores.insert(path.clone(), store(&maker, &path)?);
        }
        // That it cannot be read is told when it is its turn.
        let Ok(bytes) = maker.disk.read(&session.path) else { continue };
        let mut entry = convert(&bytes, id(session)).entry;
        let Some(store) = stores.get_mut(&path) else { continue };
        let (_, key) = place_of(&session.key);
        if key != session.key.as_str() {
            entry.insert(OWN_KEY.to_owned(), session.key.as_str().into());
        }
        let entry = Value::Object(entry);
        match store.get(&key) {
            Some(there) if *there != entry => {
                let message = format!("{} has another {key}; nothing was written", path.display());
                return Err(Exit::new(ExitCode::Failed, message).into());
            }
            Some(_) | None => drop(store.insert(key, entry)),
        }
    }
    let text = |store: &Map<String, Value>| serde_json::to_vec_pretty(store);
    let stores = stores.iter().map(|(path, store)| Ok(File { path: path.clone(), bytes: text(store)?, session: None }));
    let stores = stores.collect::<Result<Vec<File>, serde_json::Error>>()?;
    let make = |session: &Session, bytes: &[u8]| {
        let made = convert(bytes, id(session));
        let path = directory(&session.key).join(format!("{}.jsonl", made.id));
        Ok(File { path, bytes: made.bytes, session: Some((session.key.clone(), Vec::new())) })
    };
    maker.write(sessions, make, stores)
}

/// The id of each session. Of several with one id, the first one that is no orphan keeps it.
fn ids(maker: &Maker<'_>, sessions: &[Session]) -> BTreeMap<SessionKey, String> {
    let (mut ids, mut taken) = (BTreeMap::new(), BTreeSet::new());
    let is_orphan = |session: &&Session| session.key.as_str().contains(":orphan:");
    let (last, first): (Vec<&Session>, Vec<&Session>) = sessions.iter().partition(is_orphan);
    for session in first.into_iter().chain(last) {
        let read = maker.disk.read(&session.path);
        let id = read.map_or_else(|_| own_id(&session.key), |bytes| id_of(&bytes, &session.key));
        let id = if taken.insert(id.clone()) { id } else { own_id(&session.key) };
        ids.insert(session.key.clone(), id);
    }
    ids
}

fn store(maker: &Maker<'_>, path: &Path) -> anyhow::Result<Map<String, Value>> {
    let Some(bytes) = maker.there(path)? else { return Ok(Map::new()) };
    serde_json::from_slice(&bytes).map_err(|error| {
        let message = format!("{} line {}: not a JSON object of sessions", path.display(), error.line());
        Exit::new(ExitCode::Failed, message).into()
    })
}
