//! `greenroom journal`: reads every record and says what is there; goes on after damage.

use domain::text::counted;
use journal::{CheckReport, DamageReport, DamagedPlace, OpenError, RepairReport, ShowFilter, Shown};
use supervision::log::{LogOf, LogWriter};
use supervision::ports::Ports;
use supervision::real::{RealDisk, real_ports};

use super::{print, print_json, repaired};
use crate::app::lock::Lock;
use crate::app::{Purpose, parts};
use crate::cli::{Journal, Output};
use crate::config::Loaded;
use crate::exit::{Exit, ExitCode, error_body};

/// Runs the subcommand.
pub fn run(loaded: &Loaded, what: Journal) -> anyhow::Result<()> {
    if !loaded.paths.journal.exists() {
        return nothing_yet(what);
    }
    match what {
        Journal::Check(output) => check(loaded, output),
        Journal::Show { session, turn, from, content, output } => {
            show(loaded, &ShowFilter { session, turn, from, content }, output)
        }
        Journal::Repair { yes, output } => repair(loaded, yes, output),
    }
}

/// Of a journal that is not there: no records, and nothing is damaged.
fn nothing_yet(what: Journal) -> anyhow::Result<()> {
    match what {
        Journal::Check(Output { json: true }) => print_json(&serde_json::to_value(CheckReport::default())?),
        Journal::Repair { output: Output { json: true }, .. } => {
            print_json(&serde_json::to_value(RepairReport::default())?)
        }
        Journal::Show { output: Output { json: true }, .. } => Ok(()),
        Journal::Check(_) | Journal::Repair { .. } | Journal::Show { .. } => print("no journal yet"),
    }
}

fn disk(error: &OpenError) -> Exit {
    Exit::new(ExitCode::Disk, error.to_string())
}

fn check(loaded: &Loaded, output: Output) -> anyhow::Result<()> {
    let report = journal::check(&loaded.paths.journal, &RealDisk).map_err(|error| disk(&error))?;
    let damage = report.damage.as_ref().map(damage_in_words);
    let exit = damage.map(|damage| Exit::new(ExitCode::Disk, damage).printed());
    if output.json {
        let mut body = serde_json::to_value(&report)?;
        if let Some(exit) = &exit {
            body["error"] = error_body(exit.code.word(), &exit.message)["error"].take();
        }
        print_json(&body)?;
    } else {
        print(&in_words(&report))?;
    }
    exit.map_or(Ok(()), |exit| Err(exit.into()))
}

/// What is damaged and what to run.
pub(super) fn damage_in_words(damage: &DamageReport) -> String {
    let place = format!("{} at byte {}", damage.file.display(), damage.offset);
    format!("acknowledged data is damaged: {place}: {}; `greenroom journal repair` shows what can be kept", damage.why)
}

fn in_words(report: &CheckReport) -> String {
    let mut lines: Vec<String> = report
        .segments
        .iter()
        .map(|segment| {
            let torn = match segment.torn_bytes {
                0 => String::new(),
                bytes => format!(", {} of an unfinished batch (never acknowledged)", counted(bytes, "byte")),
            };
            let batches = if segment.batches == 1 { "batch" } else { "batches" };
            let (file, count) = (segment.file.display(), segment.batches);
            format!("{file}  format {}, {}, {count} {batches}{torn}", segment.format, segment.durability)
        })
        .collect();
    for gap in &report.gaps {
        lines.push(format!("{}  a gap at byte {}: {}", gap.file.display(), gap.offset, gap.why));
    }
    lines.push(format!(
        "{} ({} unused), {}, {}, {}, {}",
        counted(report.segments.len(), "segment"),
        report.unused,
        counted(report.records, "record"),
        counted(report.keys, "session"),
        counted(report.open_turns, "open turn"),
        counted(report.dead_letters, "dead letter")
    ));
    lines.join("\n")
}

/// How printing ends: the reader of the log and standard output fail in their own ways.
enum Stop {
    Log(OpenError),
    Out(anyhow::Error),
}

impl From<OpenError> for Stop {
    fn from(error: OpenError) -> Self {
        Self::Log(error)
    }
}

fn show(loaded: &Loaded, filter: &ShowFilter, output: Output) -> anyhow::Result<()> {
    let line = |shown: Shown| {
        let text = if output.json { serde_json::to_string(&shown).map_err(Into::into) } else { Ok(in_a_line(&shown)) };
        text.and_then(|text| print(&text)).map_err(Stop::Out)
    };
    journal::show(&loaded.paths.journal, &RealDisk, filter, line).map_err(|stop| match stop {
        Stop::Log(error) => disk(&error).into(),
        Stop::Out(error) => error,
    })
}

fn in_a_line(shown: &Shown) -> String {
    let key = shown.key.as_ref().map(ToString::to_string).unwrap_or_default();
    let turns: Vec<_> = shown.turns.iter().map(ToString::to_string).collect();
    let about = shown.about.iter().map(|(name, value)| format!("{name}={value}"));
    let about = about.collect::<Vec<_>>().join(" ");
    format!("{:>12}  {:13}  {key}  {}  {about}", shown.lsn, shown.record, turns.join(",")).trim_end().to_owned()
}

fn repair(loaded: &Loaded, yes: bool, output: Output) -> anyhow::Result<()> {
    loaded.require_workspace().map_err(Exit::from)?;
    let paths = &loaded.paths;
    let _data = Lock::take(&paths.run.join("lock"), &paths.data, Purpose::AtRest).map_err(Exit::from)?;
    let _sessions = Lock::take(&paths.sessions.join(".lock"), &paths.workspace, Purpose::AtRest).map_err(Exit::from)?;
    let now = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ").to_string();
    let aside = yes.then(|| paths.journal.join(format!("damaged-{now}")));
    let ports = real_ports(1)?;
    let report = journal::repair(&parts::journal(loaded), &ports, aside.as_deref()).map_err(|error| disk(&error))?;
    if report.repaired {
        tell_log(loaded, &ports, &report);
    }
    if output.json {
        return print_json(&serde_json::to_value(&report)?);
    }
    print(&repair_in_words(&report))
}

/// Whoever asks later what became of a session finds it in the supervision log.
fn tell_log(loaded: &Loaded, ports: &Ports, report: &RepairReport) {
    match LogWriter::start(parts::log(loaded, LogOf::Command), ports) {
        Ok(log) => {
            repaired::record(report, &*log);
            log.close();
        }
        // The repair is done all the same, and its report is printed.
        Err(error) => eprintln!("greenroom: the supervision log is not told of the repair: {error}"),
    }
}

fn repair_in_words(report: &RepairReport) -> String {
    if report.damage.is_empty() {
        return "nothing is damaged".to_owned();
    }
    let mut lines: Vec<String> = report.damage.iter().map(place_in_words).collect();
    for hint in report.damage.iter().flat_map(|place| &place.hints) {
        let key = hint.key.as_ref().map(ToString::to_string).unwrap_or_default();
        let turns: Vec<_> = hint.turns.iter().map(ToString::to_string).collect();
        lines.push(format!("lost  {}  {key}  {}", hint.record, turns.join(",")).trim_end().to_owned());
    }
    for (key, loss) in &report.lost {
        for (what, numbers) in [("messages", &loss.messages), ("commits", &loss.commits)] {
            if !numbers.is_empty() {
                let numbers: Vec<_> = numbers.iter().map(ToString::to_string).collect();
                lines.push(format!("lost  {what}  {key}  numbers {}", numbers.join(",")));
            }
        }
    }
    let RepairReport { records, keys, open_turns, dead_letters, outbox, .. } = report;
    lines.push(format!(
        "kept  {}: {}, {}, {}, {} to deliver",
        counted(*records, "record"),
        counted(*keys, "session"),
        counted(*open_turns, "open turn"),
        counted(*dead_letters, "dead letter"),
        counted(*outbox, "row")
    ));
    lines.push(match &report.aside {
        Some(aside) => format!("repaired; the damaged segments are in {}", aside.display()),
        None => "nothing was changed; `greenroom journal repair --yes` does it".to_owned(),
    });
    lines.join("\n")
}

fn place_in_words(place: &DamagedPlace) -> String {
    format!("damaged  {}  bytes {} to {}: {}", place.file.display(), place.from, place.to, place.why)
}
