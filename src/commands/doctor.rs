//! `greenroom doctor` and `greenroom config check`: what could be wrong with this machine, directory and configuration.

use std::fs::File;
use std::io::Write;
use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::json;

use super::{environment, print, print_json, try_load};
use crate::app::lock::Lock;
use crate::cli::{Output, Place};
use crate::config::{Loaded, Paths};
use crate::exit::{Exit, ExitCode};

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
    let loaded = try_load(place);
    let mut checks = vec![configuration(&loaded)];
    if let Ok(loaded) = &loaded {
        checks.push(provider(loaded));
        checks.extend(webhook(loaded));
        checks.extend(directories(&loaded.paths));
        checks.push(locks(&loaded.paths));
    }
    checks.extend([sandbox(), file_limit(), clock()]);
    if output.json {
        print_json(&json!({"checks": checks}))?;
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
    let bad = checks.iter().filter(|check| check.verdict == Verdict::Bad).count();
    if bad == 0 {
        Ok(())
    } else {
        Err(Exit::new(ExitCode::Failed, format!("{bad} of {} checks are bad", checks.len())).into())
    }
}

/// `config check`: errors end with the exit code for configuration; warnings are listed.
pub fn check_config(place: &Place, output: Output) -> anyhow::Result<()> {
    let loaded = try_load(place).map_err(|error| Exit::new(ExitCode::Config, error.to_string()))?;
    loaded.provider(&environment()).map_err(|error| Exit::new(ExitCode::Config, error.to_string()))?;
    let warnings: Vec<String> = loaded.warnings.iter().map(ToString::to_string).collect();
    if output.json {
        return print_json(&json!({"file": loaded.paths.config, "found": loaded.file_found, "warnings": warnings}));
    }
    let found = if loaded.file_found { "" } else { " (not there; built-in settings)" };
    print(&format!("{}{found}: usable, {} warning(s)", loaded.paths.config.display(), warnings.len()))?;
    warnings.iter().try_for_each(|warning| print(&format!("warning: {warning}")))
}

fn configuration(loaded: &Result<Loaded, crate::config::ConfigError>) -> Check {
    match loaded {
        Err(error) => check("configuration", Verdict::Bad, error.to_string()),
        Ok(loaded) if loaded.warnings.is_empty() => {
            check("configuration", Verdict::Ok, loaded.paths.config.display().to_string())
        }
        Ok(loaded) => {
            let detail = format!("{} warning(s); see `greenroom config check`", loaded.warnings.len());
            check("configuration", Verdict::Warning, detail)
        }
    }
}

fn provider(loaded: &Loaded) -> Check {
    use crate::config::ProviderChoice;
    match loaded.provider(&environment()) {
        Ok(ProviderChoice::Offline { why }) => {
            check("provider", Verdict::Warning, format!("the offline model answers: {why}"))
        }
        Ok(ProviderChoice::Remote(settings)) => {
            check("provider", Verdict::Ok, format!("{}, model {}", settings.name, settings.model))
        }
        Err(error) => check("provider", Verdict::Bad, error.to_string()),
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

fn directories(paths: &Paths) -> Vec<Check> {
    [("data", &paths.data), ("workspace", &paths.workspace)]
        .into_iter()
        .flat_map(|(name, directory)| {
            let Some(existing) = directory.ancestors().find(|ancestor| ancestor.is_dir()) else {
                return vec![check(name, Verdict::Bad, format!("{} has no existing parent", directory.display()))];
            };
            vec![file_system(name, existing), sync_speed(name, existing)]
        })
        .collect()
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
        Ok(time) if time > Duration::from_millis(20) => {
            check(name, Verdict::Warning, format!("a sync takes {time:.1?}; messages are acknowledged after one"))
        }
        Ok(time) if time < Duration::from_micros(5) => {
            check(name, Verdict::Warning, format!("a sync takes {time:.1?}: this disk may not really sync"))
        }
        Ok(time) => check(name, Verdict::Ok, format!("a sync takes {time:.1?}")),
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

fn sandbox() -> Check {
    match tools::probe_sandbox() {
        tools::SandboxMode::Bubblewrap { .. } => check("sandbox", Verdict::Ok, "bubblewrap works; exec is sandboxed"),
        tools::SandboxMode::Unavailable { reason } => {
            check("sandbox", Verdict::Warning, format!("exec is refused: {reason}"))
        }
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
