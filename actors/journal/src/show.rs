//! `greenroom journal show`: the records of a log, one after the other. Writes nothing; damage is passed over.

use std::path::Path;

use domain::ids::{SessionKey, TurnId};
use serde_json::{Map, Value};
use supervision::ports::Disk;

use crate::describe::{Described, describe};
use crate::options::OpenError;
use crate::salvage::salvage;

/// Which records are wanted.
#[derive(Debug, Clone, Default)]
pub struct ShowFilter {
    /// Of this session.
    pub session: Option<SessionKey>,
    /// About this turn.
    pub turn: Option<TurnId>,
    /// At or after this log position.
    pub from: u64,
    /// With what was said.
    pub content: bool,
}

/// One record. In JSON the fields of `about` stand beside the others.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Shown {
    /// Log position.
    pub lsn: u64,
    /// Number of its batch.
    pub batch: u64,
    /// What sort of record.
    pub record: &'static str,
    /// Session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<SessionKey>,
    /// Turns that it is about.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub turns: Vec<TurnId>,
    /// The rest.
    #[serde(flatten)]
    pub about: Map<String, Value>,
}

/// Shows the wanted records of the log in `dir` to `show`, oldest first, until it fails. Blocks.
pub fn show<E: From<OpenError>>(
    dir: &Path,
    disk: &dyn Disk,
    filter: &ShowFilter,
    mut show: impl FnMut(Shown) -> Result<(), E>,
) -> Result<(), E> {
    let salvage = salvage(disk, dir)?;
    salvage.records(disk, &mut |place, record| {
        if place.at.0 < filter.from {
            return Ok(());
        }
        let Ok(record) = record else { return Ok(()) };
        let Described { kind, key, turns, about } = describe(&record, filter.content);
        let wanted = filter.session.as_ref().is_none_or(|session| key.as_ref() == Some(session))
            && filter.turn.is_none_or(|turn| turns.contains(&turn));
        if wanted {
            show(Shown { lsn: place.at.0, batch: place.batch, record: kind, key, turns, about })
        } else {
            Ok(())
        }
    })
}
