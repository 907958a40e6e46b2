use std::sync::Mutex;

use domain::chat::{StopReason, Usage};
use domain::keys::UNIFIED_KEY;
use protocol::turn::{Finished, TurnResult};

use super::*;

#[derive(Default)]
struct Seen(Mutex<Vec<(u64, bool, bool)>>);

impl Sink for Seen {
    fn show(&self, shown: &Shown) {
        if shown.had {
            return;
        }
        self.0.lock().unwrap().push((shown.event.seq, shown.gap, shown.restart));
    }
}

impl Seen {
    fn take(&self) -> Vec<(u64, bool, bool)> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

const TURN: &str = "01890a5d-ac96-774b-bcce-b302099a8057";

fn key(text: &str) -> SessionKey {
    SessionKey::new(text).unwrap()
}

fn emit(hub: &Hub, name: &str, attempt: u32, seq: u64, what: TurnProgress) {
    let (key, turn) = (key(name), TURN.parse().unwrap());
    hub.emit(TurnEvent { key, turn, attempt: Attempt(attempt), seq, what });
}

fn delta(text: &str) -> TurnProgress {
    TurnProgress::Delta(text.to_owned())
}

fn finished() -> TurnProgress {
    let (result, text, stop, model) = (TurnResult::Done, String::new(), StopReason::Stop, "m".into());
    TurnProgress::Finished(Arc::new(Finished {
        result,
        into: None,
        text,
        stop,
        model,
        usage: Usage::default(),
        latency_ms: 0,
        standing: None,
    }))
}

fn cursor(attempt: u32, seq: u64) -> Option<Cursor> {
    Some(Cursor { turn: TURN.parse().unwrap(), attempt: Attempt(attempt), seq })
}

#[test]
fn a_chat_is_remembered_while_a_turn_runs_and_forgotten_after() {
    let hub = Hub::new();
    let name = "websocket:c";
    emit(&hub, name, 1, 1, TurnProgress::Started);
    emit(&hub, name, 1, 2, delta("a"));
    emit(&hub, name, 1, 3, delta("b"));
    let seen = Arc::new(Seen::default());
    let attached = hub.attach_chat(&key(name), cursor(1, 2), seen.clone());
    assert!(attached.followed && attached.running.is_some());
    assert_eq!(seen.take(), [(3, false, false)]);
    emit(&hub, name, 1, 4, delta("c"));
    assert_eq!(seen.take(), [(4, false, false)]);
    emit(&hub, name, 1, 5, finished());
    assert_eq!(seen.take(), [(5, false, false)]);
    let again = hub.attach_chat(&key(name), cursor(1, 2), seen.clone());
    assert!(!again.followed && again.running.is_none());
    drop((attached, again));
    assert_eq!((hub.sessions(), hub.ring_bytes.load(Ordering::Relaxed)), (0, 0));
}

#[test]
fn a_cursor_of_an_earlier_attempt_starts_over() {
    let hub = Hub::new();
    let name = "websocket:c";
    emit(&hub, name, 1, 1, TurnProgress::Started);
    emit(&hub, name, 1, 2, delta("a"));
    emit(&hub, name, 2, 1, TurnProgress::Started);
    emit(&hub, name, 2, 2, delta("b"));
    let seen = Arc::new(Seen::default());
    let _attached = hub.attach_chat(&key(name), cursor(1, 2), seen.clone());
    assert_eq!(seen.take(), [(1, false, true), (2, false, false)]);
}

#[test]
fn an_unwatched_turn_leaves_nothing_behind() {
    let hub = Hub::new();
    for (seq, what) in [(1, TurnProgress::Started), (2, delta("a")), (3, finished())] {
        emit(&hub, "api:x", 1, seq, what);
        assert_eq!(hub.sessions(), 0);
    }
    let seen = Arc::new(Seen::default());
    let watch = hub.watch_turn(&key("api:x"), TURN.parse().unwrap(), Keep::No, seen.clone());
    drop(watch);
    assert_eq!(hub.sessions(), 0);
    emit(&hub, "websocket:gone", 1, 9, finished());
    assert_eq!(hub.sessions(), 0, "an end alone is not worth remembering");
}

#[test]
fn a_kept_turn_is_replayed_from_its_start_for_who_comes_later() {
    let hub = Hub::new();
    let (name, turn) = ("api:x", TURN.parse().unwrap());
    let first = Arc::new(Seen::default());
    let watch = hub.watch_turn(&key(name), turn, Keep::Yes, first.clone());
    emit(&hub, name, 1, 1, TurnProgress::Started);
    emit(&hub, name, 1, 2, delta("a"));
    drop(watch);
    emit(&hub, name, 1, 3, delta("b"));
    assert_eq!(first.take().len(), 2);
    let second = Arc::new(Seen::default());
    let _watch = hub.watch_turn(&key(name), turn, Keep::Yes, second.clone());
    assert_eq!(second.take(), [(1, false, false), (3, false, false)]);
}

#[test]
fn who_joins_a_turn_that_nobody_remembers_is_told_of_the_gap_until_the_round_ends() {
    let hub = Hub::new();
    let seen = Arc::new(Seen::default());
    let _watch = hub.watch_turn(&key("api:x"), TURN.parse().unwrap(), Keep::Yes, seen.clone());
    emit(&hub, "api:x", 1, 7, delta("b"));
    emit(&hub, "api:x", 1, 8, TurnProgress::StreamEnd { text: "ab".into(), more: true, merge: false });
    emit(&hub, "api:x", 1, 9, delta("c"));
    assert_eq!(seen.take(), [(7, true, false), (8, true, false), (9, false, false)]);
}

#[test]
fn all_running_turns_together_stay_within_their_memory() {
    let hub = Hub::new();
    let piece = "x".repeat(RING_BYTES_MAX / 2);
    for index in 0..3000 {
        let name = format!("websocket:{index}");
        emit(&hub, &name, 1, 1, TurnProgress::Started);
        emit(&hub, &name, 1, 2, delta(&piece));
        emit(&hub, &name, 1, 3, delta(&piece));
    }
    assert!(hub.ring_bytes.load(Ordering::Relaxed) <= RINGS_BYTES_MAX);
    let held: usize =
        hub.sessions.iter().map(|session| session.turns.iter().map(|slot| slot.ring.bytes()).sum::<usize>()).sum();
    assert_eq!(held, hub.ring_bytes.load(Ordering::Relaxed));
}

/// Emits from one thread while others attach: nobody misses an event or gets one twice.
#[test]
fn attaching_is_one_step() {
    let hub = Hub::new();
    let name = "websocket:c";
    emit(&hub, name, 1, 1, TurnProgress::Started);
    let emitter = {
        let hub = Arc::clone(&hub);
        std::thread::spawn(move || {
            for seq in 2..=5000 {
                emit(&hub, name, 1, seq, TurnProgress::Notice("".into()));
            }
        })
    };
    let mut watches = Vec::new();
    while !emitter.is_finished() {
        let seen = Arc::new(Seen::default());
        watches.push((hub.attach_chat(&key(name), cursor(1, 1), seen.clone()), seen));
        if watches.len() > 50 {
            break;
        }
    }
    emitter.join().unwrap();
    for (_, seen) in &watches {
        let seqs: Vec<u64> = seen.take().iter().map(|event| event.0).collect();
        assert!(seqs.is_sorted_by(|a, b| a < b));
        let last_restart = seqs.first().copied().unwrap_or(5001);
        assert!(seqs.len() as u64 == 5001 - last_restart, "no hole after the first event shown");
    }
}

struct Fragile;

impl Sink for Fragile {
    fn show(&self, shown: &Shown) {
        assert!(!matches!(shown.event.what, TurnProgress::Finished(_)), "it cannot bear the end");
    }
}

#[test]
fn a_sink_that_panics_leaves_no_turn_that_never_ends() {
    let hub = Hub::new();
    let (name, turn) = ("api:fragile", TURN.parse().unwrap());
    let chat = hub.attach_chat(&key(name), None, Arc::new(Fragile)).watch;
    let watch = hub.watch_turn(&key(name), turn, Keep::Yes, Arc::new(Seen::default()));
    emit(&hub, name, 1, 1, TurnProgress::Started);
    assert_eq!(hub.unfinished(&key(name)), [(turn, Attempt(1))]);
    let end = std::panic::AssertUnwindSafe(|| emit(&hub, name, 1, 2, finished()));
    assert!(std::panic::catch_unwind(end).is_err());
    assert_eq!(hub.unfinished(&key(name)), []);
    drop((chat, watch));
    assert_eq!((hub.sessions(), hub.bytes().0), (0, 0));
}

#[test]
fn a_claimed_turn_of_a_shared_session_is_shown_to_its_chat_alone() {
    let (hub, shared) = (Hub::new(), key(UNIFIED_KEY));
    let turn = TURN.parse().unwrap();
    let [a, b] = ["websocket:a", "websocket:b"].map(|chat| {
        let seen = Arc::new(Seen::default());
        (seen.clone(), hub.attach_chat(&key(chat), None, seen))
    });
    hub.claim(&shared, turn, &key("websocket:a")).unwrap().keep();
    assert!(hub.claim(&shared, turn, &key("websocket:b")).is_none(), "it is taken");
    emit(&hub, UNIFIED_KEY, 1, 1, TurnProgress::Started);
    emit(&hub, UNIFIED_KEY, 1, 2, delta("x"));
    assert_eq!((a.0.take().len(), b.0.take().len()), (2, 0));
    assert_eq!(hub.unfinished(&shared), [(turn, Attempt(1))], "its end is told also after a crash");
    let again = Arc::new(Seen::default());
    let attached = hub.attach_chat(&key("websocket:a"), cursor(1, 1), again.clone());
    assert!(attached.followed);
    assert_eq!(again.take(), [(2, false, false)], "who comes back follows it");
    emit(&hub, UNIFIED_KEY, 1, 3, finished());
    assert_eq!((a.0.take().len(), b.0.take().len()), (1, 0));
    assert_eq!(hub.unfinished(&shared), []);
    // Nothing is left of it.
    let claim = hub.claim(&shared, turn, &key("websocket:b")).unwrap();
    assert!(claim.give_back());
    drop(hub.claim(&shared, turn, &key("websocket:b")).unwrap());
    assert!(hub.claim(&shared, turn, &key("websocket:a")).is_some(), "what is not kept is given back");
}

#[test]
fn a_turn_that_somebody_waits_for_cannot_be_claimed() {
    let (hub, shared, seen) = (Hub::new(), key(UNIFIED_KEY), Arc::new(Seen::default()));
    let turn = TURN.parse().unwrap();
    let _watch = hub.watch_turn(&shared, turn, Keep::No, seen.clone());
    assert!(hub.claim(&shared, turn, &key("websocket:a")).is_none());
    emit(&hub, UNIFIED_KEY, 1, 1, TurnProgress::Started);
    emit(&hub, UNIFIED_KEY, 1, 2, finished());
    assert_eq!(seen.take().len(), 2);
}

mod resume;
