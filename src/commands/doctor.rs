//! `greenroom doctor`: what could be wrong with this machine, directory and configuration.

use std::fs::File;
use std::io::Write;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use domain::prompt::{BOOTSTRAP_CHARS_MAX, BOOTSTRAP_FILES, MEMORY_FILE};
use domain::text::counted;
use journal::CheckReport;
use serde::Serialize;
use serde_json::json;
use session::PROMPT_FILE_BYTES_MAX;
use supervision::real::RealDisk;
use tools::SandboxMode;

use super::words::{latency, size};
use super::{print, print_json, survey};
use crate::app::lock::Lock;
use crate::cli::{Output, Place};
use crate::config::{FileState, Loaded, Paths, Sandbox};
use crate::exit::{Exit, ExitCode, error_body};

/// Segments that the log keeps at least.
const SEGMENTS_MIN: u64 = 4;

/// How a check went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    Ok,
    Warning,
    Bad,
}

#[derive(Debug, Serialize)]
struct Check {
    name: &'static str,
    verdict: Verdict,
    detail: String,
}

fn check(name: &'static str, verdict: Verdict, detail: impl Into<String>) -> Check {
    Check { name, verdict, detail: detail.into() }
}

/// Checks everything; fails when something is bad.
pub fn run(place: &Place, output: Output) -> anyhow::Result<()> {
    let found = survey(place)?;
    let mut checks = vec![configuration(&found), provider(&found)];
    checks.extend(webhook(&found));
    checks.extend(directories(&found));
    checks.extend(prompt_files(&found));
    checks.extend([space(&found), journal(&found), attachments(&found.paths), locks(&found.paths)]);
    checks.extend([sandbox(&found), file_limit(), clock()]);
    let bad = checks.iter().filter(|check| check.verdict == Verdict::Bad).count();
    let exit = (bad > 0).then(|| {
        let are = if bad == 1 { "is" } else { "are" };
        Exit::new(ExitCode::Failed, format!("{bad} of {} {are} bad", counted(checks.len(), "check"))).printed()
    });
    if output.json {
        let mut body = json!({"checks": checks});
        if let Some(exit) = &exit {
            body["error"] = error_body(exit.code.word(), &exit.message)["error"].take();
        }
        print_json(&body)?;
    } else {
        for check in &checks {
            let mark = match check.verdict {
                Verdict::Ok => "ok     ",
                Verdict::Warning => "warning",
                Verdict::Bad => "BAD    ",
            };
            print(&format!("{mark}  {:14} {}", check.name, check.detail))?;
        }
    }
    exit.map_or(Ok(()), |exit| Err(exit.into()))
}

fn configuration(found: &Loaded) -> Check {
    let file = found.paths.config.display();
    if let Err(error) = found.require_valid() {
        return check("configuration", Verdict::Bad, error.to_string());
    }
    if found.file == FileState::Absent {
        let detail = format!(
            "{file} is not there: built-in settings are used; `greenroom onboard` writes a first configuration"
        );
        return check("configuration", Verdict::Warning, detail);
    }
    if found.warnings.is_empty() {
        return check("configuration", Verdict::Ok, file.to_string());
    }
    let warnings = counted(found.warnings.len(), "warning");
    check("configuration", Verdict::Warning, format!("{file}: {warnings}; see `greenroom config check`"))
}

fn provider(found: &Loaded) -> Check {
    use crate::config::ProviderChoice;
    match &found.provider {
        ProviderChoice::Offline { why } => {
            check("provider", Verdict::Warning, format!("the offline model answers: {why}"))
        }
        ProviderChoice::Remote(settings) => {
            check("provider", Verdict::Ok, format!("{}, model {}", settings.name, settings.model))
        }
    }
}

/// Where replies are sent, if they are. The whole address may hold a secret.
fn webhook(loaded: &Loaded) -> Option<Check> {
    let webhook = Some(&loaded.config.channels.webhook).filter(|webhook| webhook.enabled)?;
    let url = webhook.url.as_deref().and_then(|url| reqwest::Url::parse(url).ok())?;
    let host = url.host_str().unwrap_or_default();
    let local = host == "localhost" || host.trim_matches(['[', ']']).parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
    Some(if url.scheme() == "http" && !local {
        check("webhook", Verdict::Warning, format!("replies go to {host} in the clear; https:// would hide them"))
    } else if webhook.secret.is_none() {
        check(
            "webhook",
            Verdict::Warning,
            format!("replies go to {host} without a signature; see channels.webhook.secret"),
        )
    } else {
        check("webhook", Verdict::Ok, format!("replies go to {host}, signed"))
    })
}

fn directories(found: &Loaded) -> Vec<Check> {
    let data = ("data", &found.paths.data);
    let workspace = found.workspace_known.then_some(("workspace", &found.paths.workspace));
    std::iter::once(data)
        .chain(workspace)
        .flat_map(|(name, directory)| match existing(directory) {
            Some(existing) => vec![file_system(name, existing), sync_speed(name, existing)],
            None => vec![check(name, Verdict::Bad, format!("{} has no existing parent", directory.display()))],
        })
        .collect()
}

/// Files that the prompt shows only in part.
fn prompt_files(found: &Loaded) -> Vec<Check> {
    let workspace = found.workspace_known.then_some(&found.paths.workspace);
    let of = |workspace: &PathBuf| {
        let skills = std::fs::read_dir(workspace.join("skills")).into_iter().flatten().flatten();
        let mut skills: Vec<PathBuf> = skills.map(|directory| directory.path().join("SKILL.md")).collect();
        skills.sort();
        let own = BOOTSTRAP_FILES.into_iter().chain([MEMORY_FILE]).map(|name| workspace.join(name));
        let own = own.map(|file| (file, Some(BOOTSTRAP_CHARS_MAX)));
        own.chain(skills.into_iter().map(|file| (file, None))).collect::<Vec<_>>()
    };
    let in_part = |(file, chars_max): (PathBuf, _)| shown_in_part(&file, chars_max);
    let long = workspace.map(of).into_iter().flatten().filter_map(in_part);
    long.map(|detail| check("prompt", Verdict::Warning, detail)).collect()
}

/// What the prompt leaves out of a file, if it does; of one with so many characters at most, it shows the begin and the end.
fn shown_in_part(file: &Path, chars_max: Option<usize>) -> Option<String> {
    let shown = file.display();
    // A pipe would keep whoever reads it waiting.
    let bytes = file.metadata().ok().filter(std::fs::Metadata::is_file)?.len();
    if bytes > PROMPT_FILE_BYTES_MAX {
        let (all, read) = (size(bytes), size(PROMPT_FILE_BYTES_MAX));
        let chars = chars_max.map(|max| format!("{max} characters of ")).unwrap_or_default();
        return Some(format!("{shown} has {all}; the prompt is made of {chars}its first {read}"));
    }
    let bytes = chars_max.and_then(|_| std::fs::read(file).ok())?;
    let chars = String::from_utf8_lossy(&bytes).trim().chars().count();
    let max = chars_max.filter(|max| chars > *max)?;
    Some(format!("{shown} has {chars} characters; the prompt shows {max} of them, and leaves out the middle"))
}

/// The directory, or the first one above it that is there.
fn existing(directory: &Path) -> Option<&Path> {
    directory.ancestors().find(|ancestor| ancestor.is_dir())
}

/// Free space, against what the journal takes.
fn space(found: &Loaded) -> Check {
    let data = &found.paths.data;
    match existing(data).map(rustix::fs::statvfs) {
        Some(Ok(stat)) => {
            let free = stat.f_bavail.saturating_mul(stat.f_frsize);
            let (verdict, detail) = space_for(free, found.config.journal.segment_bytes);
            check("disk space", verdict, format!("{} {detail}", data.display()))
        }
        Some(Err(_)) | None => check("disk space", Verdict::Bad, format!("{} cannot be examined", data.display())),
    }
}

/// The log grows by whole segments; it keeps at least four of them.
fn space_for(free: u64, segment: u64) -> (Verdict, String) {
    let (has, needs) = (format!("has {} free", size(free)), size(segment));
    if free < segment {
        let detail = "new messages are refused as soon as it needs one";
        (Verdict::Bad, format!("{has}; the journal's next segment needs {needs}, {detail}"))
    } else if free < segment.saturating_mul(SEGMENTS_MIN) {
        let all = size(segment.saturating_mul(SEGMENTS_MIN));
        (Verdict::Warning, format!("{has}; the journal takes {needs} at a time and needs {all} at least to start with"))
    } else {
        (Verdict::Ok, format!("{has}; the journal takes {needs} at a time"))
    }
}

/// Reads the whole log and changes nothing.
fn journal(found: &Loaded) -> Check {
    let dir = &found.paths.journal;
    if !dir.exists() {
        return check("journal", Verdict::Ok, "not there yet; the first message makes it");
    }
    let read = || journal::check(dir, &RealDisk);
    let mut report = read();
    // What a running gateway writes in the meantime looks like damage; real damage stays where it is.
    if let (Ok(first), true) = (&report, Lock::holder(&found.paths.run.join("lock")).is_some())
        && let Some(damage) = first.damage.clone()
    {
        report = read().map(|again| CheckReport { damage: again.damage.filter(|still| *still == damage), ..again });
    }
    match report {
        Err(error) => check("journal", Verdict::Bad, format!("{}: {error}", dir.display())),
        Ok(CheckReport { damage: Some(damage), .. }) => {
            check("journal", Verdict::Bad, super::journal::damage_in_words(&damage))
        }
        Ok(report) => {
            let (segments, records) = (counted(report.segments.len(), "segment"), counted(report.records, "record"));
            check("journal", Verdict::Ok, format!("{segments}, {records}, nothing is damaged"))
        }
    }
}

/// What lies there, and how much of it is only in the way; changes nothing.
fn attachments(paths: &Paths) -> Check {
    let now_ms = u64::try_from(jiff::Timestamp::now().as_millisecond()).unwrap_or(0);
    let places = crate::app::parts::attachments(paths);
    match channel::media::survey(&RealDisk, &places, now_ms) {
        Err(error) => check("attachments", Verdict::Bad, format!("{}: {error}", places.media.display())),
        Ok((all, unnamed)) => {
            let (verdict, detail) = attachments_in_words(all, unnamed);
            check("attachments", verdict, detail)
        }
    }
}

fn attachments_in_words(all: channel::media::Sum, unnamed: channel::media::Sum) -> (Verdict, String) {
    let (kept, old) = (counted(all.files, "file"), counted(unnamed.files, "file"));
    let kept = format!("{kept}, {}", size(all.bytes));
    match unnamed.files {
        0 => (Verdict::Ok, kept),
        _ => {
            let old = format!("{old} of these, {}, that no message names", size(unnamed.bytes));
            (Verdict::Ok, format!("{kept}; a gateway removes {old}, when it starts and daily"))
        }
    }
}

/// Known file system types by their magic number (`man 2 statfs`).
fn file_system(name: &'static str, directory: &Path) -> Check {
    let Ok(stat) = rustix::fs::statfs(directory) else {
        return check(name, Verdict::Bad, format!("{} cannot be examined", directory.display()));
    };
    let (kind, verdict) = match u64::try_from(stat.f_type).unwrap_or_default() {
        0xEF53 => ("ext4", Verdict::Ok),
        0x5846_5342 => ("xfs", Verdict::Ok),
        0x9123_683E => ("btrfs", Verdict::Ok),
        0x2FC1_2FC1 => ("zfs", Verdict::Ok),
        0x794C_7630 => ("overlay: data is gone with the container; mount a volume", Verdict::Warning),
        0x0102_1994 => ("tmpfs: data is gone after a restart of the machine", Verdict::Warning),
        0x6969 | 0xFF53_4D42 | 0xFE53_4D42 => ("network file system: locks and syncs may not hold", Verdict::Warning),
        _ => ("of a kind that is not known here", Verdict::Ok),
    };
    check(name, verdict, format!("{} is {kind}", directory.display()))
}

#[expect(clippy::disallowed_methods, reason = "the check measures the disk, before any actor runs")]
fn sync_speed(name: &'static str, directory: &Path) -> Check {
    const SYNCS: u32 = 20;
    let measured = tempfile::NamedTempFile::new_in(directory).and_then(|mut file| {
        file.write_all(&[0; 4096])?;
        file.as_file().sync_all()?;
        let begin = Instant::now();
        for _ in 0..SYNCS {
            write_first_block(file.as_file())?;
        }
        Ok(begin.elapsed() / SYNCS)
    });
    match measured {
        Err(error) => check(name, Verdict::Bad, format!("{} cannot be written: {error}", directory.display())),
        Ok(time) if time > Duration::from_millis(20) => check(
            name,
            Verdict::Warning,
            format!("a sync takes {}; messages are acknowledged after one", latency(time)),
        ),
        Ok(time) if time < Duration::from_micros(5) => {
            check(name, Verdict::Warning, format!("a sync takes {}: this disk may not really sync", latency(time)))
        }
        Ok(time) => check(name, Verdict::Ok, format!("a sync takes {}", latency(time))),
    }
}

fn write_first_block(file: &File) -> std::io::Result<()> {
    use std::os::unix::fs::FileExt;
    file.write_all_at(&[1; 4096], 0)?;
    file.sync_data()
}

fn locks(paths: &Paths) -> Check {
    let held = [paths.run.join("lock"), paths.sessions.join(".lock")].iter().find_map(|file| Lock::holder(file));
    check("locks", Verdict::Ok, held.map_or_else(|| "free".to_owned(), |holder| format!("held by {holder}")))
}

fn sandbox(found: &Loaded) -> Check {
    let exec = &found.config.tools.exec;
    let (verdict, detail) = isolation(exec.enable, exec.sandbox, tools::probe_sandbox);
    check("sandbox", verdict, detail)
}

/// What becomes of commands, by `tools.exec`.
fn isolation(enable: bool, sandbox: Sandbox, probe: impl FnOnce() -> SandboxMode) -> (Verdict, String) {
    match (enable, sandbox) {
        (false, _) => (Verdict::Ok, "not needed: tools.exec.enable is false, so no command runs".to_owned()),
        (true, Sandbox::Off) => {
            let others = match probe() {
                SandboxMode::Bubblewrap { .. } => "those of confined sessions in bubblewrap".to_owned(),
                SandboxMode::Unavailable { reason } => format!("those of confined sessions are refused: {reason}"),
            };
            let own = "tools.exec.sandbox is off: commands run without one and can read the keys in the configuration";
            (Verdict::Warning, format!("{own}; {others}"))
        }
        (true, Sandbox::Auto | Sandbox::Bwrap) => match probe() {
            SandboxMode::Bubblewrap { .. } => (Verdict::Ok, "bubblewrap works; exec is sandboxed".to_owned()),
            SandboxMode::Unavailable { reason } => (Verdict::Warning, format!("exec is refused: {reason}")),
        },
    }
}

fn file_limit() -> Check {
    const WANTED: u64 = 8192;
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let text = |bound: Option<u64>| bound.map_or_else(|| "unlimited".to_owned(), |bound| bound.to_string());
    let detail = format!("{} now, {} at most; the gateway raises it", text(limit.current), text(limit.maximum));
    let enough = limit.maximum.is_none_or(|maximum| maximum >= WANTED);
    check("file limit", if enough { Verdict::Ok } else { Verdict::Warning }, detail)
}

fn clock() -> Check {
    let now = jiff::Timestamp::now();
    let built: jiff::Timestamp = "2026-01-01T00:00:00Z".parse().expect("this constant is a timestamp");
    if now < built {
        return check("clock", Verdict::Bad, format!("{now} lies before this program was made"));
    }
    check("clock", Verdict::Ok, format!("{now:.0}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_the_prompt_shows_in_part_is_told() {
        let home = testkit::workspace::TempWorkspace::new();
        let told = |text: &str, chars_max| shown_in_part(&home.write("MEMORY.md", text), chars_max);
        assert_eq!(told(&format!(" {}\n", "ü".repeat(10)), Some(10)), None);
        let long = told(&"ü".repeat(11), Some(10)).unwrap();
        assert!(
            long.ends_with("MEMORY.md has 11 characters; the prompt shows 10 of them, and leaves out the middle"),
            "{long}"
        );
        let huge = "x".repeat(257 << 10);
        for (chars_max, end) in
            [(None, "made of its first 256 KiB"), (Some(10), "made of 10 characters of its first 256 KiB")]
        {
            let told = told(&huge, chars_max).unwrap();
            assert!(told.ends_with(end), "{told}");
        }
        assert_eq!(told("short", None), None);
        assert_eq!(shown_in_part(&home.path("missing"), Some(10)), None);
    }

    #[test]
    fn attachments_that_go_are_told() {
        let sum = |files, bytes| channel::media::Sum { files, bytes };
        assert_eq!(attachments_in_words(sum(0, 0), sum(0, 0)).1, "0 files, 0 KiB");
        let told = attachments_in_words(sum(3, 6 << 20), sum(1, 2 << 20)).1;
        let gone = "a gateway removes 1 file of these, 2 MiB, that no message names, when it starts and daily";
        assert_eq!(told, format!("3 files, 6 MiB; {gone}"));
    }

    #[test]
    fn what_becomes_of_commands_is_told_by_what_is_configured() {
        let works = || SandboxMode::Bubblewrap { version: "bubblewrap 1".to_owned() };
        let none = || SandboxMode::Unavailable { reason: "it is missing".to_owned() };
        for (enable, sandbox, found, verdict, words) in [
            (true, Sandbox::Auto, works(), Verdict::Ok, "bubblewrap works; exec is sandboxed"),
            (true, Sandbox::Bwrap, none(), Verdict::Warning, "exec is refused: it is missing"),
            (true, Sandbox::Off, none(), Verdict::Warning, "can read the keys"),
            (true, Sandbox::Off, none(), Verdict::Warning, "confined sessions are refused: it is missing"),
            (true, Sandbox::Off, works(), Verdict::Warning, "those of confined sessions in bubblewrap"),
            (false, Sandbox::Off, none(), Verdict::Ok, "no command runs"),
        ] {
            let (is, told) = isolation(enable, sandbox, || found);
            assert_eq!((is, told.contains(words)), (verdict, true), "{enable} {sandbox:?}: {told}");
        }
    }

    #[test]
    fn free_space_is_held_against_the_segments_that_the_journal_takes() {
        const SEGMENT: u64 = 64 << 20;
        for (free, verdict, words) in [
            (0, Verdict::Bad, "has 0 KiB free; the journal's next segment needs 64 MiB"),
            (SEGMENT - 1, Verdict::Bad, "has 63 MiB free; the journal's next segment needs 64 MiB"),
            (SEGMENT, Verdict::Warning, "has 64 MiB free; the journal takes 64 MiB at a time and needs 256 MiB"),
            (4 * SEGMENT, Verdict::Ok, "has 256 MiB free; the journal takes 64 MiB at a time"),
        ] {
            let (found, detail) = space_for(free, SEGMENT);
            assert_eq!(found, verdict, "{detail}");
            assert!(detail.starts_with(words), "{detail}");
        }
    }
}
