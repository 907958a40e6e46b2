//! SIGKILL at random points under load: at any moment of a turn, of a tool call, of a batch, and of the start itself.

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
const HEAVY_POSTERS: u64 = 2;
/// From so many kills on everything has happened that is to happen: the log also fills enough segments to use old ones
/// again.
const FULL_ROUNDS: usize = 200;

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
        // The smallest segments that there may be.
        "journal": {"segmentBytes": 32 << 20, "maxBytes": 512 << 20},
        "agents": {"defaults": {"contextWindowTokens": 128_000, "maxTokens": 1000}},
        "channels": {"webhook": {
            "enabled": true, "port": 0, "url": push_to, "timeout": PATIENCE_S, "maxMessageChars": 100,
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
    let words = sessions.keys().map(|stem| async move {
        let id = format!("last-{}", stem.replace('.', "-"));
        ledger.sent(stem, &id, Promise::Kept, Vec::new());
        let answer = answer(&id);
        let word = gateway.say(&stem.replace('.', ":"), &format!("{id} [[say={answer}]]"), &id).await;
        ledger.acknowledged(&id, "");
        ledger.ended(&id, &word, &answer);
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

/// The lowest and the highest number of the log's segments, and how many there are.
fn segments(place: &Place) -> (u64, u64, usize) {
    let names = std::fs::read_dir(place.path().join("journal")).unwrap().map(|file| file.unwrap().file_name());
    let number = |name: &str| u64::from_str_radix(name.strip_suffix(".seg")?, 16).ok();
    let numbers: Vec<u64> = names.filter_map(|name| number(name.to_str()?)).collect();
    (*numbers.iter().min().unwrap(), *numbers.iter().max().unwrap(), numbers.len())
}

/// All clients at work.
fn begin(ledger: &Arc<Ledger>, receiver: &Arc<Receiver>) -> Vec<tokio::task::JoinHandle<()>> {
    let ledger = || Arc::clone(ledger);
    let mut clients = Vec::new();
    clients.extend((0..TALKERS).map(|number| tokio::spawn(Talker::new(ledger(), number, CHATS_OF_EACH).run())));
    clients.extend((0..PATIENT_ASKERS).map(|number| tokio::spawn(Asker::patient(ledger(), number).run())));
    clients.extend((0..HASTY_ASKERS).map(|number| tokio::spawn(Asker::hasty(ledger(), number).run())));
    let light = |number| tokio::spawn(Poster::light(ledger(), Arc::clone(receiver), number).run());
    clients.extend((0..POSTERS).map(light));
    let heavy = |number| tokio::spawn(Poster::heavy(ledger(), Arc::clone(receiver), number).run());
    clients.extend((0..HEAVY_POSTERS).map(heavy));
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
    for _ in 0..rounds {
        round(&ledger, &place, &mut dice).await;
    }
    let account = last_round(&ledger, &place, clients).await;
    let pushes = pushes::settle(&ledger, &place, &receiver.close());
    let dead = place.events().iter().filter(|event| event["event"] == "dead_lettered").count();
    let (lowest, highest, files) = segments(&place);
    println!("chaos kills: seed {seed}, {rounds} kills, {account}, dead letters {dead}");
    println!("chaos pushes: {pushes}");
    println!("chaos journal: segments {lowest} to {highest} in {files} files");
    ledger.check();
    assert_eq!((account.dead, account.failed, dead), (0, 0, 0));
    assert!(account.answered > 0 && account.effects > 0, "there was no load");
    let Pushes { turns, rows, repeated, receipts, .. } = pushes;
    assert!(turns > 0, "nothing was pushed");
    if rounds >= FULL_ROUNDS {
        assert!(rows > turns && repeated > 0 && receipts > rows, "nothing was pushed in parts, or repeated");
        assert!(lowest > 1 && highest > files as u64, "no segment was used again");
    }
}
