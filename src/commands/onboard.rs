//! `greenroom onboard`: a first configuration and workspace.

use super::{print, print_json};
use crate::cli::{Output, Place};
use crate::config::FileState;
use crate::exit::{Exit, ExitCode};

/// Writes what is missing and says what was there.
pub fn run(place: &Place, output: Output) -> anyhow::Result<()> {
    let found = super::survey(place)?;
    if found.file != FileState::Missing {
        found.require_workspace().map_err(Exit::from)?;
        super::warn_of_problems(&found);
    }
    let report =
        crate::onboard::onboard(&found.paths).map_err(|error| Exit::new(ExitCode::Failed, error.to_string()))?;
    if output.json {
        return print_json(&serde_json::to_value(&report)?);
    }
    print(&report.to_string())?;
    print(
        "\nNext:\n  greenroom agent -m \"hello\"     (answers offline until a provider is configured)\n  greenroom gateway",
    )
}
