//! What becomes of clients that read and of one that does not, in virtual time.

use axum::extract::ws::Message;
use domain::goal::Goal;
use domain::ids::{Attempt, SessionKey};
use futures::StreamExt;
use futures::channel::mpsc;
use protocol::metrics::gauge;
use protocol::turn::{TurnEvent, TurnEvents};
use serde_json::Value;
use supervision::memory::RuntimeClock;
use tokio::task::JoinHandle;

use super::*;
use crate::hub::outlet::{OUTLET_BYTES_MAX, Outflow};
use crate::hub::{Hub, Watch};
use crate::websocket::shows;

/// A client whose network holds so many frames that it has not read.
struct Client {
    frames: mpsc::Receiver<Message>,
    outflow: Outflow,
    gone: CancellationToken,
    writer: JoinHandle<()>,
    outlet: Arc<Outlet<Note>>,
    _watch: Watch,
}

fn key() -> SessionKey {
    SessionKey::new("websocket:a").unwrap()
}

impl Client {
    fn connect(hub: &Arc<Hub>, unread_max: usize) -> Self {
        let (outflow, gone) = (Outflow::default(), CancellationToken::new());
        let outlet = Outlet::<Note>::new(OUTLET_BYTES_MAX, outflow.clone());
        let watch = hub.attach_chat(&key(), None, Arc::<Outlet<Note>>::clone(&outlet)).watch;
        let (socket, frames) = mpsc::channel(unread_max);
        let writer = Writer {
            clock: RuntimeClock::new(),
            outlet: Arc::clone(&outlet),
            showing: Showing::default(),
            stopping: CancellationToken::new(),
            cut: CancellationToken::new(),
            gone: gone.clone(),
        };
        let writer = tokio::spawn(writer.run(socket.sink_map_err(axum::Error::new)));
        Self { frames, outflow, gone, writer, outlet, _watch: watch }
    }

    /// What it reads until its connection ends, or until there is nothing for now.
    async fn read(&mut self) -> (Vec<Value>, Option<u16>) {
        let (mut events, mut closed) = (Vec::new(), None);
        // The clock only moves when nobody can do anything.
        while let Ok(Some(frame)) = tokio::time::timeout(Duration::from_millis(1), self.frames.next()).await {
            match frame {
                Message::Text(text) => events.push(serde_json::from_str(&text).unwrap()),
                Message::Close(frame) => closed = frame.map(|frame| frame.code),
                Message::Binary(_) | Message::Ping(_) | Message::Pong(_) => panic!("{frame:?}"),
            }
        }
        (events, closed)
    }
}

/// The texts of the deltas of a turn, one after the other.
fn said(events: &[Value], turn: TurnId) -> String {
    let deltas = events.iter().filter(|event| event["event"] == "delta" && event["turn_id"] == turn.to_string());
    deltas.map(|event| event["text"].as_str().unwrap()).collect()
}

/// Two turns of a chat that speak at once.
struct Turns {
    hub: Arc<Hub>,
    seq: u64,
}

impl Turns {
    fn turn(number: u128) -> TurnId {
        TurnId(uuid::Uuid::from_u128(number))
    }

    fn emit(&mut self, number: u128, what: TurnProgress) {
        self.seq += 1;
        self.hub.emit(TurnEvent { key: key(), turn: Self::turn(number), attempt: Attempt(1), seq: self.seq, what });
    }

    fn say(&mut self, text: &str) {
        for number in [1, 2] {
            self.emit(number, TurnProgress::Delta(text.to_owned()));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_a_client_that_reads_nothing_is_merged_until_it_is_too_much_and_turns_and_others_go_on() {
    const SMALL: usize = 6000;
    let hub = Hub::new();
    let (mut slow, mut other) = (Client::connect(&hub, 0), Client::connect(&hub, 1_000_000));
    let mut turns = Turns { hub: Arc::clone(&hub), seq: 0 };
    for number in [1, 2] {
        turns.emit(number, TurnProgress::Started);
    }
    tokio::task::yield_now().await;
    let clock = RuntimeClock::new();
    let begun = clock.mono();
    // As single frames they would be more than may wait.
    for _ in 0..SMALL {
        turns.say("x");
        let waits = slow.outflow.bytes.get();
        assert!(waits <= gauge(OUTLET_BYTES_MAX), "{waits} bytes wait");
        // Whoever reads takes each piece when it comes.
        tokio::task::yield_now().await;
    }
    let unmerged = 2 * SMALL * 200;
    assert!(unmerged > 2 * OUTLET_BYTES_MAX && slow.outflow.bytes.get() < gauge(OUTLET_BYTES_MAX));
    assert_eq!(slow.outflow.slow.get(), 0, "merged, they fit");
    // Text cannot be merged away.
    let piece = "y".repeat(16 * 1024);
    let mut pieces = 0;
    while slow.outflow.slow.get() == 0 {
        turns.say(&piece);
        tokio::task::yield_now().await;
        pieces += 1;
        assert!(pieces * 2 * piece.len() <= 2 * OUTLET_BYTES_MAX, "more waits than may");
    }
    assert!(pieces * 2 * piece.len() + 2 * SMALL > OUTLET_BYTES_MAX / 2, "it was not closed for nothing");
    assert_eq!((slow.outflow.slow.get(), slow.outflow.bytes.get()), (1, 0));
    turns.say("z");
    for number in [1, 2] {
        tokio::task::yield_now().await;
        let text = format!("{}{}z", "x".repeat(SMALL), piece.repeat(pieces));
        turns.emit(number, TurnProgress::StreamEnd { text: text.into(), more: false, merge: false });
    }
    assert_eq!(clock.mono(), begun, "no turn waited for anybody");
    let (told, closed) = other.read().await;
    assert_eq!(closed, None);
    for number in [1, 2] {
        let all = said(&told, Turns::turn(number));
        assert!(all == format!("{}{}z", "x".repeat(SMALL), piece.repeat(pieces)), "{} characters", all.len());
    }
    assert_eq!(told.iter().filter(|event| event["event"] == "stream_end").count(), 2);
    let (_, closed) = slow.read().await;
    assert_eq!(closed, Some(1013));
    slow.writer.await.unwrap();
    assert!(slow.gone.is_cancelled() && !other.gone.is_cancelled());
    assert_eq!((other.outflow.slow.get(), other.outflow.bytes.get()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_goal_that_was_read_is_told_unless_something_newer_was_told_meanwhile() {
    let goal = |event: &Value| event["goal_state"]["objective"].as_str().map(str::to_owned);
    let read = || Note::Goal { chat_id: "a".into(), frame: Some(shows::goal("a", &Goal::new("as it was read"))) };
    let new = || TurnProgress::Goal(Arc::new(Goal::new("new")));
    for (meanwhile, told) in [
        (vec![TurnProgress::Delta("x".into())], vec!["as it was read"]),
        (vec![new()], vec!["new"]),
        (vec![new(), TurnProgress::Delta("x".into())], vec!["new"]),
    ] {
        let hub = Hub::new();
        let mut client = Client::connect(&hub, 100);
        let mut turns = Turns { hub: Arc::clone(&hub), seq: 0 };
        client.outlet.note(Note::GoalAsked { chat_id: "a".into() }, 0);
        meanwhile.into_iter().for_each(|what| turns.emit(1, what));
        client.outlet.note(read(), 0);
        client.outlet.note(read(), 0);
        let (events, _) = client.read().await;
        assert_eq!(events.iter().filter_map(goal).collect::<Vec<_>>(), told);
    }
}
