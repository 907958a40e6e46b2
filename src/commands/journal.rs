//! `greenroom journal check`: reads every record and says what is there. Changes nothing.

use journal::CheckReport;
use supervision::real::RealDisk;

use super::{print, print_json};
use crate::cli::Journal;
use crate::config::Loaded;
use crate::exit::{Exit, ExitCode};

/// Runs the subcommand.
pub fn run(loaded: &Loaded, what: Journal) -> anyhow::Result<()> {
    let Journal::Check(output) = what;
    if !loaded.paths.journal.exists() {
        return print("no journal yet");
    }
    let report = journal::check(&loaded.paths.journal, &RealDisk)
        .map_err(|error| Exit::new(ExitCode::Disk, error.to_string()))?;
    if output.json {
        print_json(&serde_json::to_value(&report)?)?;
    } else {
        print(&in_words(&report))?;
    }
    let Some(damage) = report.damage else { return Ok(()) };
    let place = format!("{} at byte {}", damage.file.display(), damage.offset);
    Err(Exit::new(ExitCode::Disk, format!("acknowledged data is damaged: {place}: {}", damage.why)).into())
}

fn in_words(report: &CheckReport) -> String {
    let mut lines: Vec<String> = report
        .segments
        .iter()
        .map(|segment| {
            let torn = match segment.torn_bytes {
                0 => String::new(),
                bytes => format!(", {bytes} bytes of an unfinished batch (never acknowledged)"),
            };
            let (file, batches) = (segment.file.display(), segment.batches);
            format!("{file}  format {}, {}, {batches} batches{torn}", segment.format, segment.durability)
        })
        .collect();
    for gap in &report.gaps {
        lines.push(format!("{}  a gap at byte {}: {}", gap.file.display(), gap.offset, gap.why));
    }
    lines.push(format!(
        "{} segments ({} unused), {} records, {} sessions, {} open turns, {} dead letters",
        report.segments.len(),
        report.unused,
        report.records,
        report.keys,
        report.open_turns,
        report.dead_letters
    ));
    lines.join("\n")
}
