//! `<dir>/sessions/<workspace id>/<base64url of the key>.jsonl`, for the workspace `<dir>/workspace`.

use std::path::Path;

use domain::exchange::nanobot::{export as convert, name};
use jiff::tz::TimeZone;

use super::{File, Maker, Session};
use crate::commands::report::Report;
use crate::exit::{Exit, ExitCode};

/// Writes the sessions.
pub fn export(maker: Maker<'_>, sessions: &[Session]) -> anyhow::Result<Report> {
    let (zone, dir) = (TimeZone::system(), maker.dir.to_owned());
    let (workspace, marker) = (dir.join("workspace"), dir.join("workspace/.nanobot/workspace-id"));
    let id = match maker.there(&marker)? {
        Some(id) => checked(&String::from_utf8_lossy(&id), &marker)?,
        None => maker.ids.uuid_v7().simple().to_string(),
    };
    let namespace = dir.join("sessions").join(&id);
    let plain = |path: std::path::PathBuf, text: String| File { path, bytes: text.into_bytes(), session: None };
    let ids = vec![
        plain(marker, format!("{id}\n")),
        plain(namespace.join(".workspace"), format!("{}\n", workspace.display())),
    ];
    // An id that is there stands; only where there is none is it written.
    let last = ids.into_iter().filter(|file| !file.path.exists()).collect();
    let make = move |session: &Session, bytes: &[u8]| {
        let stem = name::stem(&session.key).ok_or("its key is too long for a file name of nanobot's")?;
        let made = convert(bytes, &session.key, &zone);
        let path = namespace.join(format!("{stem}.jsonl"));
        Ok(File { path, bytes: made.bytes, session: Some((session.key.clone(), made.remarks)) })
    };
    maker.write(sessions, make, last)
}

/// The id of a workspace: 32 lower-case hex digits.
fn checked(id: &str, path: &Path) -> anyhow::Result<String> {
    let id = id.trim();
    let legal = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    if id.len() == 32 && id.bytes().all(legal) {
        return Ok(id.to_owned());
    }
    Err(Exit::new(ExitCode::Failed, format!("{} holds no workspace id", path.display())).into())
}
