//! `greenroom journal check`: reads every record and says what is there. Changes nothing.

use supervision::real::RealDisk;

use super::{print, print_json};
use crate::cli::Journal;
use crate::config::Loaded;
use crate::exit::{Exit, ExitCode};

/// Runs the subcommand.
pub fn run(loaded: &Loaded, what: Journal) -> anyhow::Result<()> {
    let Journal::Check(output) = what;
    let report = journal::check(&loaded.paths.journal, &RealDisk)
        .map_err(|error| Exit::new(ExitCode::Disk, error.to_string()))?;
    if output.json {
        print_json(&serde_json::to_value(&report)?)?;
    } else {
        print(&report.to_string())?;
    }
    match report.damage {
        None => Ok(()),
        Some(damage) => Err(Exit::new(ExitCode::Disk, format!("acknowledged data is damaged: {damage}")).into()),
    }
}
