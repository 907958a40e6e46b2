//! The architecture's rules that a machine can check.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

const ACTORS: [&str; 9] =
    ["channel", "cron", "journal", "memory", "provider", "registry", "session", "subagent", "tools"];
const LINES_MAX: usize = 500;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Each workspace crate with the workspace crates it uses outside its tests.
fn arrows() -> BTreeMap<String, Vec<String>> {
    let out = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let metadata: Value = serde_json::from_slice(&out.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let ours: Vec<&str> = packages.iter().map(|package| package["name"].as_str().unwrap()).collect();
    packages
        .iter()
        .map(|package| {
            let uses = package["dependencies"].as_array().unwrap().iter().filter_map(|dependency| {
                let name = dependency["name"].as_str().unwrap();
                (dependency["kind"].is_null() && ours.contains(&name)).then(|| name.to_owned())
            });
            (package["name"].as_str().unwrap().to_owned(), uses.collect())
        })
        .collect()
}

/// The lines of a source file before its tests.
fn code(text: &str) -> Vec<&str> {
    text.lines().take_while(|line| line.trim() != "#[cfg(test)]").collect()
}

/// All source files below a directory of the repository.
pub fn sources(below: &str) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut open = vec![root().join(below)];
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.ends_with("target") {
                open.push(path);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                found.push((path, text));
            }
        }
    }
    assert!(!found.is_empty(), "no source files below {below}");
    found
}

#[test]
fn crates_import_only_what_the_layers_allow() {
    for (name, uses) in arrows() {
        let allowed: Vec<&str> = match name.as_str() {
            "domain" => vec![],
            "protocol" => vec!["domain"],
            "supervision" => vec!["domain", "protocol"],
            "testkit" => vec!["domain", "protocol", "supervision"],
            "greenroom" => ACTORS.into_iter().chain(["domain", "protocol", "supervision"]).collect(),
            actor => {
                assert!(ACTORS.contains(&actor), "{actor} is not in the table of crates");
                vec!["domain", "protocol", "supervision"]
            }
        };
        for used in uses {
            assert!(allowed.contains(&used.as_str()), "{name} must not import {used}");
        }
    }
}

#[test]
fn domain_is_pure() {
    let banned = [
        "tokio",
        "actix",
        "std::fs",
        "std::net",
        "std::process",
        "std::thread",
        "Instant",
        "SystemTime",
        "now()",
        "std::env",
        "async fn",
    ];
    for (path, text) in sources("actors/domain/src") {
        for (at, line) in code(&text).iter().enumerate() {
            let line = line.split("//").next().unwrap();
            for word in banned {
                assert!(!line.contains(word), "{}:{}: {word} in pure code", path.display(), at + 1);
            }
        }
    }
    let manifest = std::fs::read_to_string(root().join("actors/domain/Cargo.toml")).unwrap();
    for word in ["tokio", "actix", "reqwest"] {
        assert!(!manifest.contains(word), "domain depends on {word}");
    }
}

#[test]
fn actor_crates_touch_the_world_only_through_the_ports() {
    // `exec` starts processes, path checks need the kernel's own resolution, and the doors own their sockets.
    let allowed = ["actors/tools/src/", "actors/channel/src/"];
    let banned = ["std::fs", "tokio::fs", "std::process", "SystemTime", "Instant::now", "std::thread::sleep"];
    for name in ACTORS {
        for (path, text) in sources(&format!("actors/{name}/src")) {
            let short = path.strip_prefix(root()).unwrap().display().to_string();
            let test = short.ends_with("tests.rs") || short.contains("/tests/");
            if allowed.iter().any(|prefix| short.starts_with(prefix)) || test {
                continue;
            }
            for (at, line) in code(&text).iter().enumerate() {
                let line = line.split("//").next().unwrap();
                for word in banned {
                    assert!(!line.contains(word), "{short}:{}: {word} outside the ports", at + 1);
                }
            }
        }
    }
}

#[test]
fn files_are_short_enough_to_read() {
    for below in ["src", "actors", "examples", "tests"] {
        for (path, text) in sources(below) {
            let lines = text.lines().count();
            assert!(lines <= LINES_MAX, "{} has {lines} lines; {LINES_MAX} is the limit", path.display());
        }
    }
}

#[test]
fn there_is_one_version_of_each_crate_of_the_stack() {
    let lock = std::fs::read_to_string(root().join("Cargo.lock")).unwrap();
    for name in ["tokio", "hyper", "reqwest", "rustls", "axum"] {
        let found = lock.matches(&format!("name = \"{name}\"\n")).count();
        assert_eq!(found, 1, "{found} versions of {name}");
    }
}

#[test]
fn every_select_is_biased() {
    for (path, text) in sources("actors").into_iter().chain(sources("src")) {
        let lines: Vec<&str> = text.lines().collect();
        for (at, line) in lines.iter().enumerate() {
            if line.contains("select! {") && !line.trim_start().starts_with("//") {
                let next = lines.get(at + 1).copied().unwrap_or_default();
                assert!(next.contains("biased"), "{}:{}: select! without biased", path.display(), at + 1);
            }
        }
    }
}

#[test]
fn the_top_level_holds_only_what_it_should() {
    let out = Command::new("git").args(["ls-files"]).current_dir(root()).output();
    // A source archive has no git; the rule then has nothing to say.
    let Some(out) = out.ok().filter(|out| out.status.success()) else { return };
    let allowed = [
        "Cargo.toml",
        "Cargo.lock",
        "src",
        "actors",
        "tests",
        "examples",
        "README.md",
        "CHANGELOG.md",
        "LICENSE",
        "clippy.toml",
        "deny.toml",
        "rustfmt.toml",
        ".gitignore",
        ".ci",
        ".cargo",
        ".config",
    ];
    for line in String::from_utf8(out.stdout).unwrap().lines() {
        let top = line.split('/').next().unwrap();
        assert!(allowed.contains(&top), "{top} is not part of the layout");
    }
}
