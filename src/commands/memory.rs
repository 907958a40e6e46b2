//! `greenroom memory`: what is remembered. Reads the files of the workspace, which are whole at any moment, also while a
//! gateway runs.

use anyhow::Context;
use domain::memory::{FILES, LINES_MAX, Line};
use domain::text::counted;
use serde_json::{Value, json};
use supervision::real::real_ports;

use super::{print, print_json};
use crate::app::archive;
use crate::cli::{Memory, Output, Which};
use crate::config::Loaded;
use crate::exit::Exit;

/// Runs the subcommand.
pub fn run(loaded: &Loaded, what: Memory) -> anyhow::Result<()> {
    loaded.require_workspace().map_err(Exit::from)?;
    match what {
        Memory::Show(output) => show(loaded, output),
        Memory::Search { words, which } => history(loaded, &words.join(" "), &which),
        Memory::History { which } => history(loaded, "", &which),
    }
}

fn show(loaded: &Loaded, output: Output) -> anyhow::Result<()> {
    let (archive, ports) = (archive(loaded), real_ports(1)?);
    let disk = &*ports.disk;
    let files = archive.contents(disk).context("the memory cannot be read")?;
    let dream = archive.dream_cursor(disk);
    let lines = archive.recall(disk, usize::MAX, |line| line.cursor > dream).context("the archive cannot be read")?;
    let versions = archive.versions(disk).context("the versions of the memory cannot be read")?;
    let newest =
        versions.last().map(|version| json!({"id": version.id, "timestamp": version.timestamp, "by": version.by}));
    let max = loaded.config.agents.defaults.dream.memory_bytes_max;
    let of = |path: &str| {
        let text = files.get(path).and_then(Option::as_deref);
        json!({"path": path, "bytes": text.map(str::len), "text": text})
    };
    let body = json!({
        "files": FILES.map(of),
        "memory_bytes_max": max,
        "not_worked_in": lines.len(),
        "worked_in_up_to": dream,
        "versions": versions.len(),
        "newest_version": newest,
    });
    if output.json { print_json(&body) } else { print(&in_words(&body)) }
}

fn in_words(body: &Value) -> String {
    let mut parts = Vec::new();
    for file in body["files"].as_array().into_iter().flatten() {
        let path = file["path"].as_str().unwrap_or_default();
        let Some(text) = file["text"].as_str() else {
            parts.push(format!("{path}: does not exist"));
            continue;
        };
        let over =
            body["memory_bytes_max"].as_u64().filter(|max| path == "memory/MEMORY.md" && text.len() as u64 > *max);
        let over =
            over.map(|max| format!(", more than {max}: the next Dream is asked to shorten it")).unwrap_or_default();
        parts.push(format!("{path} ({}{over})\n\n{}", counted(text.len(), "byte"), text.trim_end()));
    }
    let waiting = counted(body["not_worked_in"].as_u64().unwrap_or(0), "line");
    let versions = counted(body["versions"].as_u64().unwrap_or(0), "version");
    let newest = body["newest_version"]["timestamp"].as_str();
    let newest = newest.map(|at| format!(", the newest of {at}")).unwrap_or_default();
    parts.push(format!("{waiting} of the archive not worked in yet; {versions} kept{newest}"));
    parts.join("\n\n")
}

fn history(loaded: &Loaded, query: &str, which: &Which) -> anyhow::Result<()> {
    let of = |line: &Line| which.session.as_deref().is_none_or(|key| line.session_key.as_deref() == Some(key));
    let ports = real_ports(1)?;
    // One more tells whether there are more.
    let limit = which.limit.saturating_add(1);
    let mut lines = archive(loaded)
        .recall(&*ports.disk, limit, |line| of(line) && line.has(query))
        .context("the archive cannot be read")?;
    let more = lines.len() > which.limit;
    if more {
        lines.remove(0);
    }
    if which.output.json {
        return print_json(&json!({"items": lines, "next": null, "more": more}));
    }
    if lines.is_empty() {
        return print("nothing found");
    }
    if more {
        print(&format!("(only the newest {}; --limit shows more, of about {LINES_MAX} that are kept)", which.limit))?;
    }
    lines.iter().try_for_each(|line| {
        let key = line.session_key.as_deref().unwrap_or("-");
        print(&format!("{}  {}  {key}\n  {}", line.cursor, line.timestamp, line.content.trim().replace('\n', "\n  ")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_there_is_is_told_in_words() {
        let body = json!({
            "files": [{"path": "SOUL.md", "bytes": null, "text": null}, {"path": "memory/MEMORY.md", "bytes": 5, "text": "facts"}],
            "memory_bytes_max": 4, "not_worked_in": 1, "versions": 2, "newest_version": {"timestamp": "2026-11-30 14:19"},
        });
        assert_eq!(
            in_words(&body),
            "SOUL.md: does not exist\n\nmemory/MEMORY.md (5 bytes, more than 4: the next Dream is asked to shorten it)\n\nfacts\n\n\
             1 line of the archive not worked in yet; 2 versions kept, the newest of 2026-11-30 14:19"
        );
    }
}
