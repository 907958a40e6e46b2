use supervision::memory::PowerCutDisk;

use super::*;

fn mover(disk: Arc<PowerCutDisk>) -> Mover {
    Mover {
        disk,
        aside: "/data/import/nanobot".into(),
        source: "/old".into(),
        sessions: "/data/workspace/sessions".into(),
        closed: Closed::default(),
        dry_run: false,
        planned: BTreeMap::new(),
        away: BTreeSet::new(),
        first_config: b"first".to_vec(),
        own: BTreeSet::new(),
        report: Report::default(),
    }
}

/// A file, one that differs from what is here, a session that went on here, and two of one name.
fn import(disk: &Arc<PowerCutDisk>) -> Vec<Outcome> {
    let mut mover = mover(Arc::clone(disk));
    for (to, bytes, same) in [
        ("/data/workspace/AGENTS.md", "rules", Same::Bytes),
        ("/data/workspace/SOUL.md", "their soul", Same::Bytes),
        ("/data/workspace/sessions/on.jsonl", "one\n", Same::Session),
        ("/data/workspace/sessions/a.jsonl", "newer\n", Same::Session),
        ("/data/workspace/sessions/a.jsonl", "older\n", Same::Session),
        ("/data/config.json", "{\"a\": 1}", Same::Json),
    ] {
        mover.put("file", to, Path::new(to), bytes.as_bytes(), same, Vec::new());
    }
    mover.report.items.into_iter().map(|item| item.outcome).collect()
}

fn place() -> Arc<PowerCutDisk> {
    let disk = PowerCutDisk::new();
    for (path, text) in [
        ("/data/workspace/SOUL.md", "my soul"),
        ("/data/workspace/sessions/on.jsonl", "one\ntwo\n"),
        ("/data/config.json", "{\"a\":1}"),
    ] {
        write_whole(&*disk, Path::new(path), text.as_bytes(), false).unwrap();
    }
    disk
}

/// All files but those that a cut run left under temporary names.
fn files(disk: &PowerCutDisk) -> BTreeMap<PathBuf, Vec<u8>> {
    let (mut files, mut open) = (BTreeMap::new(), vec![PathBuf::from("/data")]);
    while let Some(directory) = open.pop() {
        for path in disk.list(&directory).unwrap_or_default() {
            if disk.stat(&path).unwrap().directory {
                open.push(path);
            } else if !path.to_string_lossy().ends_with(".moving") {
                files.insert(path.clone(), disk.read(&path).unwrap());
            }
        }
    }
    files
}

#[test]
fn nothing_is_overwritten_and_a_second_run_finds_everything() {
    let disk = place();
    let outcomes = import(&disk);
    let words: Vec<&str> = outcomes
        .iter()
        .map(|outcome| match outcome {
            Outcome::Moved { .. } => "moved",
            Outcome::AlreadyHere { .. } => "here",
            Outcome::Conflict { .. } => "conflict",
            Outcome::Skipped { .. } => "skipped",
            Outcome::Failed { .. } => "failed",
        })
        .collect();
    assert_eq!(words, ["moved", "conflict", "here", "moved", "conflict", "here"]);
    let all = files(&disk);
    assert_eq!(all[Path::new("/data/workspace/SOUL.md")], b"my soul");
    assert_eq!(all[Path::new("/data/import/nanobot/workspace/SOUL.md")], b"their soul");
    assert_eq!(all[Path::new("/data/import/nanobot/sessions/a.jsonl")], b"older\n");
    let again = import(&disk);
    assert!(again.iter().all(|outcome| !matches!(outcome, Outcome::Moved { .. })), "{again:?}");
    assert_eq!(files(&disk), all);
}

#[test]
fn a_template_makes_room_as_long_as_nobody_wrote_in_it() {
    for (path, template) in TEMPLATES {
        let (to, disk) = (Path::new("/data/workspace").join(path), PowerCutDisk::new());
        for (there, came) in [(*template, "theirs"), ("mine", "mine")] {
            write_whole(&*disk, &to, there.as_bytes(), false).unwrap();
            mover(Arc::clone(&disk)).put("file", path, &to, b"theirs", Same::Bytes, Vec::new());
            assert_eq!(disk.read(&to).unwrap(), came.as_bytes(), "{path}");
        }
    }
}

#[test]
fn a_run_that_is_cut_anywhere_and_run_again_ends_in_the_same_state() {
    let whole = place();
    let before = whole.operations();
    import(&whole);
    let (expected, operations) = (files(&whole), whole.operations() - before);
    assert!(operations > 15);
    for at in 1..=operations {
        for seed in 0..4 {
            let disk = place();
            disk.power_off_at(before + at);
            import(&disk);
            // Found after a power failure, and after a kill.
            for found in [disk.cut(seed), disk.copy()] {
                import(&found);
                assert_eq!(files(&found), expected, "cut at {at}, seed {seed}");
            }
        }
    }
}

#[test]
fn a_name_of_any_length_is_written_under_another_name_first() {
    for (length, expected) in [(240, 240), (241, 16), (255, 16)] {
        assert_eq!(short(&"a".repeat(length)).len(), expected);
    }
}

#[test]
fn a_full_disk_is_told_apart_from_what_cannot_be_read() {
    let disk = place();
    let mut mover = mover(Arc::clone(&disk));
    disk.set_full(true);
    mover.put("file", "a", Path::new("/data/workspace/a"), b"x", Same::Bytes, Vec::new());
    assert_eq!((mover.report.failed(), mover.report.no_space), (1, true));
    disk.set_full(false);
    mover.report = Report::default();
    mover.copy(
        "file",
        &Found { path: "/old/gone".into(), below: "gone".into(), executable: false },
        Path::new("/data/b"),
    );
    assert_eq!((mover.report.failed(), mover.report.no_space), (1, false));
}
