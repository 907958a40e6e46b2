//! `greenroom onboard`: a first configuration and workspace.

use super::print;
use crate::cli::Place;
use crate::exit::{Exit, ExitCode};

/// Writes what is missing and says what was there.
pub fn run(place: &Place) -> anyhow::Result<()> {
    let request = super::load_request(place);
    let paths =
        crate::config::locate_for_onboard(&request).map_err(|error| Exit::new(ExitCode::Config, error.to_string()))?;
    let report = crate::onboard::onboard(&paths).map_err(|error| Exit::new(ExitCode::Failed, error.to_string()))?;
    print(&report.to_string())?;
    print(
        "\nNext:\n  greenroom agent -m \"hello\"     (answers offline until a provider is configured)\n  greenroom gateway",
    )
}
