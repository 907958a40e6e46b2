//! Moving in from nanobot and OpenClaw, and out to them, with one command.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::support::Place;

const NAMESPACE: &str = "sessions/5f0c2a9e7b1d4c3e8a6f9b0d1c2e3f4a";

fn fixtures(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

fn copy_tree(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_tree(&entry.path(), &to);
        } else {
            std::fs::write(to, std::fs::read(entry.path()).unwrap()).unwrap();
        }
    }
}

fn write(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

/// All files below a directory but for those of a process: locks, logs, journal.
fn files(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let (mut found, mut open) = (BTreeMap::new(), vec![root.to_owned()]);
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(directory).into_iter().flatten() {
            let entry = entry.unwrap();
            let (path, kind) = (entry.path(), entry.file_type().unwrap());
            let below = path.strip_prefix(root).unwrap().to_owned();
            if kind.is_dir() {
                open.push(path);
            } else if kind.is_file()
                && !below.starts_with("run")
                && !below.starts_with("logs")
                && !below.ends_with(".lock")
            {
                found.insert(below, std::fs::read(path).unwrap());
            }
        }
    }
    found
}

/// A nanobot directory with something of everything.
fn nanobot(dir: &Path) {
    copy_tree(&fixtures("nanobot/datadir"), dir);
    let workspace = dir.join("workspace");
    copy_tree(&fixtures("nanobot/memory/typical"), &workspace);
    copy_tree(&fixtures("nanobot/cron/three-kinds"), &workspace.join("cron"));
    let config = json!({
        "agents": {"defaults": {"workspace": "~/.nanobot/workspace", "model": "x/y", "botName": "bot"}},
        "providers": {"openrouter": {"apiKey": "sk-secret-key"}},
        "channels": {"websocket": {"port": 0}}, "api": {"port": 0}, "gateway": {"port": 0},
    });
    write(&dir.join("config.json"), &config.to_string());
    let older = fixtures("nanobot/legacy/canonical-and-lossy/workspace/sessions/weird_a_b.jsonl");
    write(&dir.join("sessions/weird_a_b.jsonl"), &std::fs::read_to_string(older).unwrap());
    write(&workspace.join("SOUL.md"), "nanobot's soul");
    write(&workspace.join("skills/water/SKILL.md"), "how to water");
    write(&workspace.join("notes/garden.txt"), "beans");
    write(&dir.join("media/telegram/bed.jpg"), "jpg");
    write(&dir.join("pairing.json"), "{}");
    for name in ["telegram_123.jsonl", "Y2xpOmRpcmVjdA.jsonl", "notes.txt"] {
        let from = fixtures("nanobot/legacy/canonical-and-lossy/workspace/sessions").join(name);
        write(&workspace.join("sessions").join(name), &std::fs::read_to_string(from).unwrap());
    }
    let script = workspace.join("skills/water/run.sh");
    write(&script, "#!/bin/sh\n");
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(script, executable).unwrap();
    std::os::unix::fs::symlink("/", workspace.join("root")).unwrap();
}

fn openclaw(dir: &Path) {
    copy_tree(&fixtures("openclaw/store"), dir);
    let config = "{ // mine\n agents: {defaults: {model: {primary: 'a/b'}, workspace: '~/.openclaw/workspace',}},\n\
        session: {dmScope: 'main'}, gateway: {port: 1} }";
    write(&dir.join("openclaw.json"), config);
    write(&dir.join("workspace/SOUL.md"), "openclaw's soul");
    write(&dir.join("workspace/MEMORY.md"), "remember");
    write(&dir.join("workspace/memory/2026-03-01.md"), "a day");
    let jobs = json!({"version": 1, "jobs": [{"id": "j", "schedule": {"kind": "every", "everyMs": 1000}}]});
    write(&dir.join("cron/jobs.json"), &jobs.to_string());
    write(&dir.join("credentials/oauth.json"), "{}");
}

/// Runs a command with `--json`; what it printed, and its exit code.
fn json_of(place: &Place, arguments: &[&str]) -> (Value, Option<i32>) {
    let out = place.run(&[arguments, &["--json"]].concat());
    let said = String::from_utf8_lossy(&out.stdout);
    assert!(!said.contains("sk-secret-key"), "keys are never shown");
    let stderr = String::from_utf8_lossy(&out.stderr);
    (serde_json::from_str(&said).unwrap_or_else(|error| panic!("{said:?} {stderr}: {error}")), out.status.code())
}

/// What became of the things with this result: their names.
fn named<'r>(report: &'r Value, result: &str) -> Vec<&'r str> {
    let items = report["items"].as_array().unwrap().iter();
    items.filter(|item| item["result"] == result).map(|item| item["name"].as_str().unwrap()).collect()
}

#[test]
fn nanobot_moves_in_once_whole_and_goes_back_byte_for_byte() {
    let place = Place::empty();
    let source = place.path().join(".nanobot");
    nanobot(&source);
    let before = files(&source);

    let (planned, code) = json_of(&place, &["import", "nanobot", "--dry-run"]);
    assert_eq!((code, &planned["dry_run"]), (Some(0), &json!(true)));
    assert!(!place.path().join("workspace").exists() && !place.path().join("config.json").exists());

    let (done, code) = json_of(&place, &["import", "nanobot"]);
    assert_eq!((code, &done["items"]), (Some(0), &planned["items"]), "a dry run says what will be done");
    assert_eq!(files(&source), before, "the source is never touched");
    let here = |name: &str| std::fs::read_to_string(place.path().join(name)).unwrap();
    assert_eq!(here("workspace/SOUL.md"), "nanobot's soul");
    assert_eq!(here("workspace/notes/garden.txt"), "beans");
    assert_eq!(here("media/telegram/bed.jpg"), "jpg");
    for name in ["memory/MEMORY.md", "memory/history.jsonl", "memory/.cursor", "memory/.dream_cursor", "cron/jobs.json"]
    {
        assert_eq!(
            here(&format!("workspace/{name}")).into_bytes(),
            before[&Path::new("workspace").join(name)],
            "{name}"
        );
    }
    assert_eq!(here("workspace/skills/water/SKILL.md"), "how to water");
    let script = std::fs::metadata(place.path().join("workspace/skills/water/run.sh")).unwrap();
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&script.permissions()) & 0o777, 0o700);
    let config: Value = serde_json::from_str(&here("config.json")).unwrap();
    assert_eq!(
        (&config["agents"]["defaults"]["workspace"], &config["agents"]["defaults"]["model"]),
        (&Value::Null, &json!("x/y"))
    );
    let skipped = named(&done, "skipped");
    assert!(
        ["pairing.json", "workspace/root", "workspace/sessions/notes.txt"].iter().all(|name| skipped.contains(name))
    );
    let conflicts = named(&done, "conflict");
    assert_eq!(conflicts.len(), 1, "two files are the session cli:direct: {conflicts:?}");
    assert!(place.transcript("telegram.123").len() > 1, "a file with an older name came, too");

    assert!(place.transcript("weird.a_2fb").len() > 1, "and one from before there were namespaces");

    let all = files(place.path());
    let (again, _) = json_of(&place, &["import", "nanobot"]);
    assert_eq!(
        (&again["counts"]["imported"], files(place.path())),
        (&json!(0), all.clone()),
        "a second run changes nothing"
    );
    assert_eq!(named(&again, "conflict"), conflicts);

    // Killed anywhere: some things are missing, and one is half written under another name.
    for name in ["workspace/SOUL.md", "workspace/sessions/telegram.123.jsonl", "config.json"] {
        std::fs::remove_file(place.path().join(name)).unwrap();
    }
    write(&place.path().join("workspace/.SOUL.md.moving"), "nano");
    let (rest, _) = json_of(&place, &["import", "nanobot"]);
    assert_eq!((&rest["counts"]["imported"], files(place.path())), (&json!(3), all), "it ends in the same state");

    let out = place.path().join("out");
    let (report, code) = json_of(&place, &["export", "--to", "nanobot", out.to_str().unwrap()]);
    assert_eq!((code, &report["counts"]["failed"]), (Some(0), &json!(0)), "{report}");
    let id = std::fs::read_to_string(out.join("workspace/.nanobot/workspace-id")).unwrap();
    let mut compared = 0;
    for (name, bytes) in &before {
        let Ok(file) = name.strip_prefix(NAMESPACE) else { continue };
        // The other file of cli:direct changed later and was taken.
        if file.extension().is_some_and(|kind| kind == "jsonl") && file != Path::new("Y2xpOmRpcmVjdA.jsonl") {
            let back = std::fs::read(out.join("sessions").join(id.trim()).join(file)).unwrap();
            assert_eq!(String::from_utf8_lossy(&back), String::from_utf8_lossy(bytes), "{}", file.display());
            compared += 1;
        }
    }
    assert!(compared > 35);
}

/// What OpenClaw had put away is found in the archive.
fn the_archive_is_listed(place: &Place) {
    let (listed, _) = json_of(place, &["sessions", "list", "--archived"]);
    let ended = |id: &str| {
        let (key, items) = (format!("agent:main:orphan:{id}"), listed["items"].as_array().unwrap().iter());
        items.filter(|item| item["key"] == *key).map(|item| item["archived_ms"].as_u64()).collect::<Vec<_>>()
    };
    assert_eq!(ended("a1000018-0000-4000-8000-000000000018").len(), 2, "one for each reset: {listed}");
    let deleted = "a1000019-0000-4000-8000-000000000019";
    assert_eq!(ended(deleted), [Some(1_769_944_953_444)], "{listed}");
    let key = format!("agent:main:orphan:{deleted}");
    let (shown, _) = json_of(place, &["sessions", "show", &key, "--archived"]);
    assert!(shown["entries"][0]["sessionKey"] == *key, "{shown}");
}

#[test]
fn openclaw_moves_in_with_names_topics_and_archives_and_goes_back() {
    let place = Place::empty();
    let source = place.path().join(".openclaw");
    openclaw(&source);
    let before = files(&source);
    let (done, code) = json_of(&place, &["import", "openclaw"]);
    assert_eq!((code, files(&source)), (Some(0), before.clone()), "{done}");
    let sessions = place.path().join("workspace/sessions");
    let ada = place.transcript("agent.main.direct.ada");
    assert!(ada.iter().any(|line| line["type"] == "session_info" && line["name"] == "Ada"));
    let topic = sessions.join("agent.main.orphan.a1000020-0000-4000-8000-000000000020-topic-7.jsonl");
    assert!(topic.exists(), "a topic's file without an entry came, too");
    let archive = sessions.join("archive/openclaw/main");
    for (name, bytes) in &before {
        let Ok(file) = name.strip_prefix("agents/main/sessions") else { continue };
        let is_archive = [".bak.", ".reset.not-a-time"].iter().any(|kind| file.to_str().unwrap().contains(kind));
        assert!(!is_archive || std::fs::read(archive.join(file)).unwrap() == *bytes, "{}", file.display());
    }
    the_archive_is_listed(&place);
    let here = |name: &str| std::fs::read_to_string(place.path().join(name)).unwrap();
    assert_eq!(
        (here("workspace/memory/MEMORY.md"), here("workspace/memory/2026-03-01.md")),
        ("remember".into(), "a day".into())
    );
    let config: Value = serde_json::from_str(&here("config.json")).unwrap();
    assert_eq!(config, json!({"agents": {"defaults": {"model": "a/b"}}}));
    let remarks = done["items"][0]["remarks"].to_string();
    assert!(remarks.contains("session.dmScope has no place here"), "{remarks}");
    assert!(named(&done, "skipped").contains(&"credentials"));
    let jobs: Value = serde_json::from_str(&here("workspace/cron/jobs.json")).unwrap();
    assert_eq!(jobs["jobs"][0]["schedule"], json!({"kind": "every", "everyMs": 1000}));
    let (again, _) = json_of(&place, &["import", "openclaw"]);
    assert_eq!((&again["counts"]["imported"], &again["counts"]["conflicts"]), (&json!(0), &json!(0)), "{again}");

    let out = place.path().join("out");
    let export = ["export", "--to", "openclaw", out.to_str().unwrap()];
    let (report, code) = json_of(&place, &export);
    assert_eq!(code, Some(0), "{report}");
    let theirs = out.join("agents/main/sessions");
    let read = |path: &Path| -> Value { serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap() };
    let (was, is) = (read(&source.join("agents/main/sessions/sessions.json")), read(&theirs.join("sessions.json")));
    for (key, entry) in was.as_object().unwrap() {
        assert_eq!((&is[key]["sessionId"], &is[key]["channel"]), (&entry["sessionId"], &entry["channel"]), "{key}");
        let header: Value = serde_json::from_str(
            std::fs::read_to_string(theirs.join(is[key]["sessionFile"].as_str().unwrap()))
                .unwrap()
                .lines()
                .next()
                .unwrap(),
        )
        .unwrap();
        assert_eq!((&header["id"], &header["version"]), (&is[key]["sessionId"], &json!(3)), "{key}");
    }
    let written = std::fs::read_dir(&theirs)
        .unwrap()
        .filter(|file| file.as_ref().unwrap().file_name().to_str().unwrap().ends_with(".jsonl"));
    assert_eq!(written.count(), is.as_object().unwrap().len(), "no file that the store does not name");

    // Only what is new is added; what differs stops all of it.
    let (again, _) = json_of(&place, &export);
    assert_eq!(again["counts"]["exported"], 0, "{again}");
    let first = theirs.join(is["agent:main:main"]["sessionFile"].as_str().unwrap());
    write(&first, "mine");
    let (refused, code) = json_of(&place, &export);
    assert_eq!((code, std::fs::read_to_string(&first).unwrap()), (Some(1), "mine".into()), "{refused}");
    let (missing, code) = json_of(&place, &["export", "--to", "openclaw", "/nowhere", "--session", "api:nope"]);
    assert_eq!((code, &missing["error"]["code"]), (Some(1), &json!("not_found")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_moved_in_goes_on_and_no_move_runs_beside_a_gateway() {
    let place = Place::empty();
    nanobot(&place.path().join(".nanobot"));
    place.write_config(
        &json!({
            "agents": {"defaults": {"provider": "offline"}},
            "channels": {"websocket": {"port": 0}}, "api": {"port": 0}, "gateway": {"port": 0},
        })
        .to_string(),
    );
    let (done, code) = json_of(&place, &["import", "nanobot"]);
    assert_eq!(code, Some(1), "something did not come");
    assert!(named(&done, "conflict").contains(&"config.json"), "a configuration that is here stays");
    assert!(place.path().join("import/nanobot").exists());
    let had = place.transcript("cli.tools").len();
    let gateway = place.start().await;
    gateway.say("cli:tools", "and now?", "m1").await;
    for command in [vec!["import", "nanobot"], vec!["export", "--to", "nanobot", "/nowhere"]] {
        let (refused, code) = json_of(&place, &command);
        assert_eq!((code, &refused["error"]["code"]), (Some(4), &json!("directory_in_use")), "{command:?}: {refused}");
    }
    assert_eq!(gateway.terminate().await, Some(0));
    assert!(place.transcript("cli.tools").len() > had);
    let (again, _) = json_of(&place, &["import", "nanobot"]);
    let went_on =
        again["items"].as_array().unwrap().iter().find(|item| item["name"].as_str().unwrap().starts_with("cli:tools "));
    assert_eq!(went_on.unwrap()["result"], "already_here", "a session that was talked to since is still the same one");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_unified_session_moves_in_with_its_option_and_goes_on() {
    let place = Place::empty();
    let source = place.path().join(".nanobot");
    nanobot(&source);
    let config = json!({
        "agents": {"defaults": {"provider": "offline", "unifiedSession": true}},
        "channels": {"websocket": {"port": 0}}, "api": {"port": 0}, "gateway": {"port": 0},
    });
    write(&source.join("config.json"), &config.to_string());
    assert_eq!(json_of(&place, &["import", "nanobot"]).1, Some(0));
    let had = place.transcript("unified.default").len();
    assert!(had > 0);
    let gateway = place.start().await;
    let mut socket = gateway.client().await;
    socket.say("phone", "and now?", "m1").await;
    socket.until("turn_end").await;
    assert_eq!(gateway.terminate().await, Some(0));
    assert_eq!(place.transcript("unified.default").len(), had + 2);
}

#[test]
fn what_cannot_be_read_is_named_and_the_rest_goes_on() {
    let place = Place::empty();
    let source = place.path().join("old");
    copy_tree(&fixtures("nanobot/datadir-damaged"), &source);
    write(&source.join("config.json"), "{\n \"agents\": {,}\n}");
    let (done, code) = json_of(&place, &["import", "nanobot", source.to_str().unwrap()]);
    assert_eq!(code, Some(1), "something failed");
    let config = &done["items"][0];
    assert_eq!((&config["result"], &config["why"]), (&json!("failed"), &json!("line 2, column 13: not JSON")));
    assert!(done["counts"]["imported"].as_u64().unwrap() > 25, "{}", done["counts"]);
    let bad =
        done["items"].as_array().unwrap().iter().find(|item| item["name"].as_str().unwrap().starts_with("d:bad "));
    assert!(bad.unwrap()["remarks"][0]["line"].is_u64(), "{bad:?}");
    for (arguments, code) in [
        (vec!["import", "nanobot", "/proc/self/fd"], 1),
        (vec!["import", "nanobot", "/nowhere"], 1),
        (vec!["import", "openclaw"], 1),
        (vec!["import", "other"], 2),
        (vec!["export", "--to", "other", "/tmp"], 2),
    ] {
        assert_eq!(place.run(&arguments).status.code(), Some(code), "{arguments:?}");
    }
}

#[test]
fn a_workspace_around_this_programs_directory_brings_nothing_of_that() {
    let place = Place::empty();
    let dir = place.path().join(".nanobot");
    write(&dir.join("config.json"), &json!({"agents": {"defaults": {"workspace": place.path()}}}).to_string());
    write(&place.path().join("notes.txt"), "beans");
    write(&place.path().join("home/config.json"), r#"{"api": {"apiKey": "sk-secret-key"}}"#);
    let home = place.path().join("home");
    let import = || {
        let mut command = place.command(&["import", "nanobot", dir.to_str().unwrap(), "--json"]);
        let out = command.env("GREENROOM_HOME", &home).output().unwrap();
        let said = String::from_utf8_lossy(&out.stdout).into_owned();
        serde_json::from_str::<Value>(&said).unwrap_or_else(|error| panic!("{said:?}: {error}"))
    };
    let report = import();
    let skipped = report["items"].as_array().unwrap().iter().any(|item| {
        item["result"] == "skipped"
            && item["why"].as_str().is_some_and(|why| why.contains("this program's own directory"))
    });
    assert!(skipped, "{report}");
    let came = files(&home.join("workspace"));
    assert!(
        came.contains_key(Path::new("notes.txt")) && came.keys().all(|name| !name.starts_with("home")),
        "{:?}",
        came.keys()
    );
    assert_eq!(import()["counts"]["imported"], 0, "nothing grows by being imported again");
}

#[test]
fn what_moved_in_and_ended_here_stays_ended_and_comes_back_only_by_name() {
    for system in ["nanobot", "openclaw"] {
        let place = Place::empty();
        let source = place.path().join(format!(".{system}"));
        let (archived, deleted) = match system {
            "nanobot" => {
                nanobot(&source);
                ("cli:tools", "telegram:123")
            }
            _ => {
                openclaw(&source);
                ("agent:main:direct:ada", "agent:main:main")
            }
        };
        assert_eq!(json_of(&place, &["import", system]).1, Some(0));
        assert_eq!(json_of(&place, &["sessions", "archive", archived]).1, Some(0));
        assert_eq!(json_of(&place, &["sessions", "delete", deleted]).1, Some(0));
        let before = files(&place.path().join("workspace"));
        for arguments in [vec!["import", system, "--dry-run"], vec!["import", system]] {
            let (again, code) = json_of(&place, &arguments);
            assert_eq!((code, &again["counts"]["imported"]), (Some(0), &json!(0)), "{again}");
            for (key, why) in [(archived, "archived here"), (deleted, "deleted here")] {
                let mut items = again["items"].as_array().unwrap().iter();
                let item = items.find(|item| item["name"].as_str().unwrap().starts_with(&format!("{key} ")));
                let item = item.unwrap_or_else(|| panic!("{key} is told: {again}"));
                assert_eq!(item["result"], "skipped", "{item}");
                assert!(item["why"].as_str().unwrap().starts_with(why), "{item}");
            }
            assert_eq!(files(&place.path().join("workspace")), before);
        }
        assert_eq!(json_of(&place, &["sessions", "unarchive", archived]).1, Some(0));
        let (again, _) = json_of(&place, &["import", system]);
        assert_eq!(&again["counts"]["imported"], &json!(0), "{again}");
        let here = named(&again, "already_here");
        assert!(here.iter().any(|name| name.starts_with(&format!("{archived} "))), "{again}");
    }
}

#[test]
fn what_has_not_changed_is_told_so_in_another_zone_and_another_directory() {
    let place = Place::empty();
    let source = place.path().join(".nanobot");
    nanobot(&source);
    let import = |place: &Place, zone: &str| {
        let mut command = place.command(&["import", "nanobot", source.to_str().unwrap(), "--json"]);
        let out = command.env("TZ", zone).output().unwrap();
        serde_json::from_slice::<Value>(&out.stdout).unwrap_or_else(|error| panic!("{error}: {out:?}"))
    };
    import(&place, "Asia/Tokyo");
    let moved = Place::empty();
    for place in [&place, &moved] {
        copy_tree(&source.parent().unwrap().join("workspace"), &moved.path().join("workspace"));
        let before = files(&place.path().join("workspace"));
        let again = import(place, "America/New_York");
        let sessions = again["items"].as_array().unwrap().iter().filter(|item| item["kind"] == "session");
        let changed: Vec<&Value> =
            sessions.filter(|item| !matches!(item["result"].as_str(), Some("already_here" | "skipped"))).collect();
        // The older one of two files with one key lies aside, and is told as ever.
        assert!(changed.len() == 1 && changed[0]["result"] == "conflict", "{changed:?}");
        assert_eq!(files(&place.path().join("workspace")), before);
    }
    let aside = std::fs::read_dir(place.path().join("import/nanobot/sessions")).unwrap();
    assert_eq!(aside.count(), 1, "and not laid there again");
    // A message more makes it another one.
    let file = source.join(NAMESPACE).join("Y2xpOnRvb2xz.jsonl");
    let text = std::fs::read_to_string(&file).unwrap() + "{\"role\":\"user\",\"content\":\"more\"}\n";
    write(&file, &text);
    let again = import(&place, "America/New_York");
    assert!(named(&again, "conflict").iter().any(|name| name.starts_with("cli:tools ")), "{again}");
}

#[test]
fn jobs_of_the_data_directory_come_along_where_the_workspace_has_none() {
    let old = std::fs::read_to_string(fixtures("nanobot/cron/three-kinds/jobs.json")).unwrap();
    let none = r#"{"version":1,"jobs":[]}"#;
    for own in [None, Some(none)] {
        let place = Place::empty();
        let source = place.path().join(".nanobot");
        write(&source.join("config.json"), "{}");
        write(&source.join("workspace/SOUL.md"), "soul");
        write(&source.join("cron/jobs.json"), &old);
        if let Some(own) = own {
            write(&source.join("workspace/cron/jobs.json"), own);
        }
        let (report, _) = json_of(&place, &["import", "nanobot"]);
        assert_eq!(named(&report, "skipped").contains(&"cron/jobs.json"), own.is_some(), "{report}");
        let here = std::fs::read_to_string(place.path().join("workspace/cron/jobs.json")).unwrap();
        assert_eq!(here, own.unwrap_or(&old));
    }
}
