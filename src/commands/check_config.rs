//! `greenroom config check`: everything that is wrong with the configuration and everything that is doubtful, each with
//! its place.

use domain::text::counted;
use serde_json::{Value, json};

use super::{print, print_json, survey};
use crate::cli::{Output, Place};
use crate::config::{FileState, Loaded, Origin};
use crate::exit::{Exit, ExitCode, error_body};

/// Lists both; what cannot be used ends with the exit code for configuration.
pub fn run(place: &Place, output: Output) -> anyhow::Result<()> {
    let found = survey(place)?;
    let exit = (!found.problems.is_empty()).then(|| {
        let errors = counted(found.problems.len(), "error");
        let message = format!("{}: {errors}; it cannot be used", found.paths.config.display());
        Exit::new(ExitCode::Config, message).printed()
    });
    if output.json {
        print_json(&body(&found, exit.as_ref()))?;
    } else {
        print(&in_words(&found))?;
    }
    exit.map_or(Ok(()), |exit| Err(exit.into()))
}

fn in_words(found: &Loaded) -> String {
    let state = match found.file {
        FileState::Used | FileState::Unusable => "",
        FileState::Absent | FileState::Missing => " (not there; built-in settings)",
    };
    let usable = if found.problems.is_empty() { "usable" } else { "not usable" };
    let (errors, warnings) = (counted(found.problems.len(), "error"), counted(found.warnings.len(), "warning"));
    let mut lines = vec![format!("{}{state}: {usable}, {errors}, {warnings}", found.paths.config.display())];
    lines.extend(found.problems.iter().map(|problem| format!("error: {problem}")));
    lines.extend(found.warnings.iter().map(|warning| format!("warning: {warning}")));
    lines.join("\n")
}

/// `{"file", "found", "usable", "errors": [...], "warnings": [...], "error"?}`. An item is
/// `{"file", "line"?, "column"?}` or `{"variable"}` or `{"option"}`, with `"key"` (empty: the whole file) and `"message"`.
fn body(found: &Loaded, exit: Option<&Exit>) -> Value {
    let errors = found.problems.iter().map(|problem| item(&problem.origin, &problem.path, &problem.what));
    let warnings = found.warnings.iter().map(|warning| item(warning.origin(), warning.key(), &warning.what()));
    let mut body = json!({
        "file": found.paths.config,
        "found": matches!(found.file, FileState::Used | FileState::Unusable),
        "usable": found.problems.is_empty(),
        "errors": errors.collect::<Vec<_>>(),
        "warnings": warnings.collect::<Vec<_>>(),
    });
    if let Some(exit) = exit {
        body["error"] = error_body(exit.code.word(), &exit.message)["error"].take();
    }
    body
}

fn item(origin: &Origin, key: &str, message: &str) -> Value {
    let mut item = match origin {
        Origin::File { file, at: Some((line, column)) } => json!({"file": file, "line": line, "column": column}),
        Origin::File { file, at: None } => json!({"file": file}),
        Origin::Variable(name) => json!({"variable": name}),
        Origin::Option(name) => json!({"option": name}),
    };
    item["key"] = key.into();
    item["message"] = message.into();
    item
}
