use std::path::Path;
use std::sync::Arc;

use domain::ids::SessionKey;
use domain::trigger::Status;
use supervision::memory::{Fault, PowerCutDisk, TestClock, memory_ports};
use supervision::ports::{Disk as _, Open};

use super::*;

fn world() -> (Arc<PowerCutDisk>, TriggerStore, Trigger) {
    let disk = PowerCutDisk::new();
    disk.create_dir_all(Path::new("/w")).unwrap();
    let store = on(&disk);
    let target = Target::of_session(SessionKey::new("webhook:7").unwrap());
    let trigger = store.create(b"seed", "door", &target).unwrap();
    (disk, store, trigger)
}

fn on(disk: &Arc<PowerCutDisk>) -> TriggerStore {
    TriggerStore::new("/w".into(), memory_ports(Arc::clone(disk), TestClock::new(), 1))
}

fn put(disk: &PowerCutDisk, path: &str, text: &str) {
    let file = disk.open(&Path::new("/w/triggers").join(path), Open::Create).unwrap();
    file.set_length(0).unwrap();
    file.write_at(text.as_bytes(), 0).unwrap();
}

fn names(disk: &PowerCutDisk, directory: &str) -> Vec<String> {
    let paths = disk.list(&Path::new("/w/triggers").join(directory)).unwrap_or_default();
    paths.iter().map(|path| path.file_name().unwrap().to_str().unwrap().to_owned()).collect()
}

fn json(disk: &PowerCutDisk, path: &str) -> Value {
    serde_json::from_slice(&disk.read(&Path::new("/w/triggers").join(path)).unwrap()).unwrap()
}

#[test]
fn the_same_seed_makes_one_trigger() {
    let (_, store, trigger) = world();
    let target = Target::of_session(SessionKey::new("webhook:8").unwrap());
    assert_eq!(store.create(b"seed", "other", &target).unwrap(), trigger);
    assert_ne!(store.create(b"more", "door", &target).unwrap().id, trigger.id);
    assert_eq!(store.list().unwrap().len(), 2);
    assert!(store.remove(&trigger.id).unwrap() && !store.remove(&trigger.id).unwrap());
    assert!(matches!(store.put(&trigger.id, "x".to_owned()), Err(NotQueued::Unknown(_))));
}

#[test]
fn a_delivery_is_claimed_once_and_again_when_it_was_left() {
    let (disk, store, trigger) = world();
    let name = store.put(&trigger.id, "done".to_owned()).unwrap();
    let (first, none) = (store.claim(20, &BTreeSet::new()).unwrap(), BTreeSet::new());
    let [(claimed, delivery, Ok(of))] = first.deliveries.as_slice() else { panic!("{first:?}") };
    assert_eq!((claimed, delivery.content.as_str(), of), (&name, "done", &trigger));
    assert_eq!((names(&disk, "inbox"), names(&disk, "processing")), (vec![], vec![name.clone()]));
    assert_eq!(store.claim(20, &[name.clone()].into()).unwrap(), Claimed::default(), "it is known");
    assert_eq!(on(&disk).claim(20, &none).unwrap(), first, "the next process claims what was left");
    let turn = TurnId(uuid::Uuid::from_u128(1));
    store.taken(&name, delivery, of, &turn.to_string()).unwrap();
    assert_eq!(names(&disk, "processing"), [""; 0]);
    assert_eq!(json(&disk, &format!("runs/{name}"))["status"], "accepted");
    let told = store.open().unwrap();
    assert_eq!(
        told,
        [Told { name: name.clone(), trigger: trigger.id.clone(), key: SessionKey::new("webhook:7").unwrap(), turn }]
    );
    store.ended(&told[0], Ok(&"ü".repeat(5000))).unwrap();
    assert_eq!(store.open().unwrap(), []);
    // What was accepted may be written down later than its end.
    store.taken(&name, delivery, of, &turn.to_string()).unwrap();
    let run = json(&disk, &format!("runs/{name}"));
    assert_eq!((&run["status"], run["response"].as_str().unwrap().chars().count()), (&json!("ok"), AUDIT_CHARS_MAX));
    let after = store.list().unwrap().remove(0);
    assert_eq!((after.last_status, after.run_history.len()), (Some(Status::Ok), 1));
}

#[test]
fn what_is_no_delivery_is_set_aside_and_the_others_go_on() {
    let (disk, store, trigger) = world();
    let good = store.put(&trigger.id, "done".to_owned()).unwrap();
    disk.create_dir_all(Path::new("/w/triggers/inbox")).unwrap();
    put(&disk, "inbox/1-a.json", "{");
    put(&disk, "inbox/é.json", r#"{"id":"a","triggerId":"trg_A","content":"x"}"#);
    put(&disk, "inbox/.half.json", "{");
    put(&disk, "inbox/note.txt", "x");
    put(&disk, "inbox/2-b.json", r#"{"id":"b","trigger_id":"trg_NONE","content":"x"}"#);
    let claimed = store.claim(20, &BTreeSet::new()).unwrap();
    let bad: Vec<_> = claimed.bad.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(bad, ["1-a.json", "é.json"]);
    let told: Vec<_> = claimed.deliveries.iter().map(|(name, _, of)| (name.as_str(), of.is_ok())).collect();
    assert_eq!(told, [(good.as_str(), true), ("2-b.json", false)]);
    let (_, delivery, why) = claimed.deliveries[1].clone();
    store.fail("2-b.json", &delivery, None, &why.unwrap_err()).unwrap();
    assert_eq!(names(&disk, "failed"), ["1-a.json.bad", "2-b.json", "é.json.bad"]);
    assert_eq!(json(&disk, "runs/2-b.json")["error"], "there is no such trigger");
    assert_eq!(names(&disk, "inbox"), [".half.json", "note.txt"]);
}

#[test]
fn at_most_so_many_are_claimed_and_wait() {
    let (disk, store, trigger) = world();
    for number in 0..30 {
        put_one(&disk, number, &trigger.id);
    }
    assert_eq!(store.claim(20, &BTreeSet::new()).unwrap().deliveries.len(), 20);
    assert_eq!((names(&disk, "inbox").len(), names(&disk, "processing").len()), (10, 20));
    for number in 30..1020 {
        put_one(&disk, number, &trigger.id);
    }
    assert!(matches!(store.put(&trigger.id, "x".to_owned()), Err(NotQueued::Full)));
}

fn put_one(disk: &PowerCutDisk, number: u32, id: &TriggerId) {
    disk.create_dir_all(Path::new("/w/triggers/inbox")).unwrap();
    let text = json!({"id": format!("d{number}"), "triggerId": id, "content": "x"}).to_string();
    put(disk, &format!("inbox/{number:05}-d.json"), &text);
}

#[test]
fn a_damaged_list_of_triggers_is_kept_and_told() {
    let (disk, store, trigger) = world();
    let name = store.put(&trigger.id, "done".to_owned()).unwrap();
    put(&disk, "triggers.json", r#"{"triggers": [{"id": "x"}]}"#);
    let why = store.claim(20, &BTreeSet::new()).unwrap_err().to_string();
    assert!(why.contains("triggers[0].id") && why.contains("triggers.json.corrupt-"), "{why}");
    assert_eq!(names(&disk, "inbox"), [name], "what was handed in waits");
    assert!(names(&disk, "").iter().any(|name| name.starts_with("triggers.json.corrupt-")));
}

#[test]
fn a_write_that_fails_leaves_what_was_there() {
    let (disk, store, trigger) = world();
    for fault in [Fault::WriteEnospc, Fault::SyncEio] {
        disk.fail_next(fault);
        assert!(store.put(&trigger.id, "done".to_owned()).is_err());
        assert!(names(&disk, "inbox").iter().all(|name| name.starts_with('.')), "nothing half is handed in");
    }
    store.put(&trigger.id, "done".to_owned()).unwrap();
    for seed in 0..10 {
        let cut = disk.cut(seed);
        assert_eq!(on(&cut).claim(20, &BTreeSet::new()).unwrap().deliveries.len(), 1, "what was handed in is there");
    }
}

#[test]
fn what_is_no_file_keeps_nobody_from_the_others() {
    let home = testkit::workspace::TempWorkspace::new();
    let workspace = home.home().join("workspace");
    let store = TriggerStore::new(workspace.clone(), supervision::real::real_ports(1).unwrap());
    let target = Target::of_session(SessionKey::new("webhook:7").unwrap());
    let id = store.create(b"seed", "door", &target).unwrap().id;
    let good = store.put(&id, "done".to_owned()).unwrap();
    let inbox = workspace.join("triggers/inbox");
    std::fs::create_dir(inbox.join("0.json")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", inbox.join("1.json")).unwrap();
    std::fs::File::create(inbox.join("2.json")).unwrap().set_len(BYTES_MAX + 1).unwrap();
    let claimed = store.claim(20, &BTreeSet::new()).unwrap();
    assert_eq!(claimed.deliveries.iter().map(|(name, ..)| name).collect::<Vec<_>>(), [&good]);
    let bad: Vec<_> = claimed.bad.iter().map(|(name, why)| format!("{name}: {why}")).collect();
    assert_eq!(
        bad,
        [
            "0.json: not a regular file",
            "1.json: a symbolic link, not a regular file",
            "2.json: triggers/inbox/2.json has 4194305 bytes; at most 4194304 are read"
        ]
    );
    assert!(workspace.join("triggers/failed/0.json.bad").is_dir(), "it is kept");
}
