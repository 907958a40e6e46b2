//! SIGKILL at random points under load: at any moment of a turn, of a tool call, of a batch, and of the start itself.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream;
use serde_json::{Value, json};
use testkit::model::Model;

use super::account::{Account, settle};
use super::api_client::Asker;
use super::dice::{Dice, rounds, seed};
use super::ledger::{Doors, Ledger, Promise};
use super::message::{EFFECTS, answer};
use super::poster::Poster;
use super::pushes::{self, Pushes};
use super::receiver::{PATIENCE_S, Receiver};
use super::websocket_client::Talker;
use crate::support::{Gateway, PATIENCE, Place};

/// Kills where nobody asks for another number.
const ROUNDS: usize = 12;
const TALKERS: u64 = 4;
const CHATS_OF_EACH: u64 = 6;
const PATIENT_ASKERS: u64 = 4;
const HASTY_ASKERS: u64 = 4;
const POSTERS: u64 = 6;
/// From so many kills on everything has happened that is to happen, and half of them happen to a log that uses its
/// segments again.
const FULL_ROUNDS: usize = 200;
/// Of a message that fills the log, which has it twice: as it was accepted and as a line of the transcript.
const FILL_BYTES: usize = 384 * 1024;
/// So many of them at once, and so many times.
const FILL_AT_ONCE: u64 = 16;
const FILLS_MAX: u64 = 60;

/// When a round is over.
enum Moment {
    /// So long after the start, wherever it is by then.
    Starting(Duration),
    /// When the clients were told so many things, and a little later.
    Working(u64, Duration),
}

impl Moment {
    fn draw(dice: &mut Dice) -> Self {
        match dice.between(0, 9) {
            0 => Self::Starting(Duration::from_millis(dice.between(0, 300))),
            1..4 => Self::Working(dice.between(1, 10), Duration::from_micros(dice.between(0, 5_000))),
            _ => Self::Working(dice.between(20, 120), Duration::from_micros(dice.between(0, 20_000))),
        }
    }
}

fn config(push_to: &str) -> Value {
    json!({
        // Nothing here is a turn that takes the process down; none may be taken for one.
        "supervision": {"processDeaths": 10_000, "poisonAttempts": 1000},
        "runtime": {"idleSeconds": 1, "contextSeconds": 1},
        // Each message has a turn and an answer of its own.
        "queue": {"mode": "followup", "cap": 64},
        // The smallest segments that there may be.
        "journal": {"segmentBytes": 32 << 20, "maxBytes": 512 << 20},
        // Those that fill the log fit in.
        "agents": {"defaults": {"contextWindowTokens": 128_000, "maxTokens": 1000}},
        "channels": {"webhook": {
            "enabled": true, "port": 0, "url": push_to, "timeout": PATIENCE_S, "maxMessageChars": 100, "allowFrom": ["*"],
        }},
        "tools": {"exec": {"sandbox": "off"}},
    })
}

async fn doors(gateway: &mut Gateway) -> Doors {
    let beacon = gateway.wait_until_listening().await;
    let (websocket, api, webhook) = (beacon.websocket_url, beacon.api_url, beacon.webhook_url);
    Doors { websocket: websocket.unwrap(), api: api.unwrap(), webhook: webhook.unwrap() }
}

/// The journal's own account, at any moment.
async fn check_status(ledger: &Ledger, gateway: &Gateway) -> Value {
    let status = gateway.admin("status").await;
    let journal = |name: &str| status["journal"][name].as_u64().unwrap_or_else(|| panic!("{name}: {status}"));
    let (accepted, ended) = (journal("accepted"), journal("done") + journal("dead") + journal("cancelled"));
    if accepted != ended + journal("open") || journal("dead") > 0 {
        ledger.violation(format!("the journal's account does not agree: {status}"));
    }
    status
}

async fn round(ledger: &Ledger, place: &Place, dice: &mut Dice) {
    let mut gateway = place.spawn();
    match Moment::draw(dice) {
        Moment::Starting(after) => tokio::time::sleep(after).await,
        Moment::Working(steps, after) => {
            ledger.open(doors(&mut gateway).await);
            ledger.moved(steps).await;
            check_status(ledger, &gateway).await;
            tokio::time::sleep(after).await;
        }
    }
    gateway.kill_nine();
    ledger.check();
}

/// Every session still works; and each has come back to memory, which makes its file complete: at a start that is done
/// for those alone that have work.
async fn last_words(ledger: &Ledger, gateway: &Gateway) {
    let (sessions, _) = ledger.close();
    let words = sessions.into_keys().map(|stem| {
        let id = format!("last-{}", stem.replace('.', "-"));
        let text = format!("{id} [[say={}]]", answer(&id));
        say(ledger, gateway, stem, id, text)
    });
    stream::iter(words).buffer_unordered(16).collect::<Vec<()>>().await;
}

/// Lets the clients come to their end on a gateway that nobody kills.
async fn last_round(ledger: &Ledger, place: &Place, clients: Vec<tokio::task::JoinHandle<()>>) -> Account {
    ledger.closing.cancel();
    let mut gateway = place.spawn();
    ledger.open(doors(&mut gateway).await);
    let ended = tokio::time::timeout(PATIENCE, futures::future::try_join_all(clients)).await;
    ledger.check();
    let status = gateway.admin("status").await;
    ended.unwrap_or_else(|_| panic!("seed {}: messages without an end: {status}", ledger.seed)).unwrap();
    last_words(ledger, &gateway).await;
    gateway.delivered().await;
    let status = check_status(ledger, &gateway).await;
    assert_eq!(status["journal"]["open"], 0);
    assert_eq!(gateway.get("/ready").await.0, 200);
    assert_eq!(gateway.terminate().await, Some(0));
    settle(ledger, place)
}

/// The log's segments: the number of each by the file that it is in.
fn segments(place: &Place) -> BTreeMap<u64, u64> {
    let files = std::fs::read_dir(place.path().join("journal")).unwrap().map(Result::unwrap);
    let number = |name: &str| u64::from_str_radix(name.strip_suffix(".seg")?, 16).ok();
    // A file may go while they are listed.
    files.filter_map(|file| Some((file.metadata().ok()?.ino(), number(file.file_name().to_str()?)?))).collect()
}

/// A round without a kill, in which so much is said that the log goes on in files that it has used before.
async fn go_round(ledger: &Ledger, place: &Place) {
    let mut gateway = place.spawn();
    ledger.open(doors(&mut gateway).await);
    let mut first = BTreeMap::new();
    for fill in 0..FILLS_MAX {
        let now = segments(place);
        for (file, number) in &now {
            first.entry(*file).or_insert(*number);
        }
        let again = now.iter().filter(|(file, number)| first[file] < **number).count();
        if again > 0 {
            println!("chaos journal: {} segments in {} files", now.values().max().unwrap(), now.len());
            return gateway.kill_nine();
        }
        let says = (0..FILL_AT_ONCE).map(|number| {
            let id = format!("fill-{fill}-{number}");
            let text = format!("{id} [[say={}]]{}", answer(&id), " .".repeat(FILL_BYTES / 2));
            say(ledger, &gateway, format!("websocket.{id}"), id, text)
        });
        futures::future::join_all(says).await;
    }
    panic!("seed {}: no file of the log was used again: {:?}", ledger.seed, segments(place));
}

/// Says something through the admin API and hears the end.
async fn say(ledger: &Ledger, gateway: &Gateway, stem: String, id: String, text: String) {
    ledger.sent(&stem, &id, Promise::Kept, Vec::new());
    let word = gateway.say(&stem.replace('.', ":"), &text, &id).await;
    ledger.acknowledged(&id, "");
    ledger.ended(&id, &word, &answer(&id));
}

/// All clients at work.
fn begin(ledger: &Arc<Ledger>, receiver: &Arc<Receiver>) -> Vec<tokio::task::JoinHandle<()>> {
    let ledger = || Arc::clone(ledger);
    let mut clients = Vec::new();
    clients.extend((0..TALKERS).map(|number| tokio::spawn(Talker::new(ledger(), number, CHATS_OF_EACH).run())));
    clients.extend((0..PATIENT_ASKERS).map(|number| tokio::spawn(Asker::patient(ledger(), number).run())));
    clients.extend((0..HASTY_ASKERS).map(|number| tokio::spawn(Asker::hasty(ledger(), number).run())));
    let poster = |number| tokio::spawn(Poster::new(ledger(), Arc::clone(receiver), number).run());
    clients.extend((0..POSTERS).map(poster));
    clients
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_doubled_or_reordered_by_kills_at_random_points_under_load() {
    let (rounds, seed) = (rounds(ROUNDS), seed());
    println!("chaos kills: GREENROOM_CHAOS_SEED={seed} GREENROOM_CHAOS_ROUNDS={rounds}");
    let model = Model::start_on_thread();
    model.config(|config| config.record = false);
    let (receiver, url) = Receiver::start(seed).await;
    let place = Place::with_model(&model.url(), config(&url));
    std::fs::create_dir_all(place.path().join("workspace").join(EFFECTS)).unwrap();
    let ledger = Ledger::new(seed);
    let clients = begin(&ledger, &receiver);
    let mut dice = Dice::new(seed, 0);
    for number in 0..rounds {
        if rounds >= FULL_ROUNDS && number == rounds / 2 {
            go_round(&ledger, &place).await;
        }
        round(&ledger, &place, &mut dice).await;
    }
    let account = last_round(&ledger, &place, clients).await;
    let pushes = pushes::settle(&ledger, &place, &receiver.close());
    let dead = place.events().iter().filter(|event| event["event"] == "dead_lettered").count();
    println!("chaos kills: seed {seed}, {rounds} kills, {account}, dead letters {dead}");
    println!("chaos pushes: {pushes}");
    ledger.check();
    assert_eq!((account.dead, account.failed, dead), (0, 0, 0));
    assert!(account.answered > 0 && account.effects > 0, "there was no load");
    let Pushes { turns, rows, repeated, receipts, .. } = pushes;
    assert!(turns > 0, "nothing was pushed");
    if rounds >= FULL_ROUNDS {
        assert!(rows > turns && repeated > 0 && receipts > rows, "nothing was pushed in parts, or repeated");
    }
}
