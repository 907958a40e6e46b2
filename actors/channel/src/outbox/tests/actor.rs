//! The deliverer itself, with a journal that makes it crash and a channel that does as it is told.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use domain::ids::{DeliveryId, Epoch, LetterId, SessionId, SessionKey, TurnId};
use domain::text::{TextLimit, TextUnit};
use futures::FutureExt;
use futures::future::BoxFuture;
use protocol::journal::*;
use protocol::metrics::Metrics;
use protocol::supervision::EventName;
use supervision::log::MemoryLog;
use supervision::memory::{PowerCutDisk, RuntimeClock, memory_ports};
use supervision::{Kernel, LocalPlacement, RestartPolicy};
use testkit::deadline::run_paused;
use tokio::sync::{mpsc, oneshot};

use super::{id, row};
use crate::outbox::{Board, Deliverer, Delivery, Inlet, Outcome, Parts, PushChannel, Rules};

/// The outbox of a journal, as far as a deliverer sees it.
struct Double {
    rows: Mutex<Vec<OutRow>>,
    inlet: Arc<Inlet>,
    closed: mpsc::UnboundedSender<(DeliveryId, bool)>,
    /// How often `sent` still panics before it does anything.
    crashes: AtomicU32,
}

fn now<T>(value: T) -> oneshot::Receiver<T> {
    let (tx, rx) = oneshot::channel();
    let _ = tx.send(value);
    rx
}

impl Double {
    fn commit(&self, row: OutRow) {
        self.rows.lock().unwrap().push(row.clone());
        self.inlet.out(row);
    }

    fn close(&self, id: DeliveryId, delivered: bool) {
        self.rows.lock().unwrap().retain(|row| row.out.id != id);
        self.closed.send((id, delivered)).unwrap();
    }
}

impl Journal for Double {
    fn outbox_channels(&self) -> oneshot::Receiver<Vec<Arc<str>>> {
        let rows = self.rows.lock().unwrap();
        let channels: std::collections::BTreeSet<_> = rows.iter().map(|row| row.out.route.channel.clone()).collect();
        now(channels.into_iter().collect())
    }
    fn outbox(&self, ask: AskRows) -> oneshot::Receiver<Rows> {
        let rows = self.rows.lock().unwrap();
        now(Rows { rows: rows.iter().filter(|row| row.out.route.channel == ask.channel).cloned().collect(), left: 0 })
    }
    fn sending(&self, id: DeliveryId) -> oneshot::Receiver<()> {
        self.rows.lock().unwrap().iter_mut().filter(|row| row.out.id == id).for_each(|row| row.sending = true);
        now(())
    }
    fn sent(&self, id: DeliveryId) -> oneshot::Receiver<()> {
        let crashes = self.crashes.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        assert!(crashes.is_err(), "the deliverer crashes");
        self.close(id, true);
        now(())
    }
    fn undeliverable(&self, id: DeliveryId, _: Arc<str>) -> oneshot::Receiver<()> {
        self.close(id, false);
        now(())
    }
    fn admit(&self, _: Enqueue, _: protocol::journal::Told) {
        unreachable!("a deliverer accepts nothing")
    }
    fn load(&self, _: SessionKey) -> oneshot::Receiver<Result<Loaded, JournalError>> {
        unreachable!("a deliverer loads nothing")
    }
    fn commit(&self, _: Commit) -> oneshot::Receiver<CommitOutcome> {
        unreachable!("a deliverer commits nothing")
    }
    fn accepted(&self, _: LogPosition) -> oneshot::Receiver<Result<Arc<Accepted>, JournalError>> {
        unreachable!("a deliverer reads no messages")
    }
    fn release(&self, _: SessionKey, _: Epoch) {}
    fn ended(&self, _: SessionKey) -> oneshot::Receiver<Result<Option<Moving>, JournalError>> {
        oneshot::channel().1
    }
    fn moved(&self, _: SessionKey, _: SessionId) {}
    fn view_written(&self, _: ViewWritten) {}
    fn quarantine(&self, _: Quarantine) -> oneshot::Receiver<()> {
        unreachable!("a deliverer holds nobody back")
    }
    fn unquarantine(&self, _: SessionKey) -> oneshot::Receiver<()> {
        unreachable!("a deliverer holds nobody back")
    }
    fn unfinished(&self) -> oneshot::Receiver<Vec<Unfinished>> {
        unreachable!("a deliverer recovers no turns")
    }
    fn find_turn(&self, _: TurnId) -> oneshot::Receiver<Option<SessionKey>> {
        unreachable!("a deliverer asks for no turns")
    }
    fn open_of(&self, _: SessionKey) -> oneshot::Receiver<OpenWork> {
        unreachable!("a deliverer asks for no turns")
    }
    fn dead_letters(&self) -> oneshot::Receiver<Vec<DeadLetter>> {
        unreachable!("a deliverer reads no letters")
    }
    fn letter(&self, _: LetterId) -> oneshot::Receiver<Option<LetterDetail>> {
        unreachable!("a deliverer reads no letters")
    }
    fn drop_letter(&self, _: LetterId) -> oneshot::Receiver<bool> {
        unreachable!("a deliverer drops no letters")
    }
    fn redeliver(&self, _: LetterId) -> oneshot::Receiver<Option<OutRow>> {
        unreachable!("a deliverer opens nothing again")
    }
    fn drain(&self) {}
    fn close(&self) -> oneshot::Receiver<()> {
        unreachable!("a deliverer closes no journal")
    }
    fn backup(&self, _: PathBuf) -> oneshot::Receiver<Result<u64, JournalError>> {
        unreachable!("a deliverer copies nothing")
    }
    fn status(&self) -> JournalStatus {
        JournalStatus::default()
    }
}

/// What an attempt does.
enum Act {
    End(Outcome),
    Panic,
    Hang,
    Wait(oneshot::Receiver<()>),
}

/// Does as planned, then delivers; shows each attempt.
struct Channel {
    plan: Arc<Mutex<VecDeque<Act>>>,
    attempts: mpsc::UnboundedSender<Delivery>,
}

impl PushChannel for Channel {
    fn name(&self) -> &str {
        "hook"
    }
    fn limit(&self) -> TextLimit {
        TextLimit { unit: TextUnit::Chars, max: 100 }
    }
    fn patience(&self) -> Duration {
        Duration::from_secs(10)
    }
    fn send(&self, delivery: Delivery) -> BoxFuture<'static, Outcome> {
        self.attempts.send(delivery).unwrap();
        let act = self.plan.lock().unwrap().pop_front();
        async move {
            match act {
                None => Outcome::Delivered,
                Some(Act::End(outcome)) => outcome,
                Some(Act::Panic) => panic!("a channel fails"),
                Some(Act::Hang) => std::future::pending().await,
                Some(Act::Wait(until)) => {
                    until.await.unwrap();
                    Outcome::Delivered
                }
            }
        }
        .boxed()
    }
}

struct Scene {
    journal: Arc<Double>,
    plan: Arc<Mutex<VecDeque<Act>>>,
    attempts: mpsc::UnboundedReceiver<Delivery>,
    closed: mpsc::UnboundedReceiver<(DeliveryId, bool)>,
    log: Arc<MemoryLog>,
    kernel: Kernel,
    board: Arc<Board>,
    deliverer: Deliverer,
}

impl Scene {
    /// A deliverer that finds these rows.
    fn new(rows: Vec<OutRow>, crashes: u32, plan: Vec<Act>) -> Self {
        let (tell_closed, closed) = mpsc::unbounded_channel();
        let (tell_attempt, attempts) = mpsc::unbounded_channel();
        let inlet = Arc::new(Inlet::default());
        let (rows, crashes) = (Mutex::new(rows), AtomicU32::new(crashes));
        let journal = Arc::new(Double { rows, inlet: inlet.clone(), closed: tell_closed, crashes });
        let plan = Arc::new(Mutex::new(VecDeque::from(plan)));
        let log = MemoryLog::new();
        let ports = memory_ports(PowerCutDisk::new(), RuntimeClock::new(), 1);
        let kernel = Kernel::new(ports, log.clone(), Metrics::default());
        let channel = Channel { plan: plan.clone(), attempts: tell_attempt };
        let board = Arc::new(Board::default());
        let parts = Parts {
            journal: journal.clone(),
            channels: [("hook".into(), Arc::new(channel) as Arc<dyn PushChannel>)].into(),
            rules: Rules::default(),
            inlet,
            board: board.clone(),
        };
        let deliverer = Deliverer::start(&kernel, &LocalPlacement::new(), RestartPolicy::default(), parts);
        Self { journal, plan, attempts, closed, log, kernel, board, deliverer }
    }

    async fn attempt(&mut self) -> (DeliveryId, bool) {
        let delivery = self.attempts.recv().await.unwrap();
        (delivery.id, delivery.repeat)
    }

    fn count(&self, name: EventName) -> usize {
        self.log.events().iter().filter(|event| event.event == name).count()
    }
}

/// Committed when the clock of the tests begins.
fn fresh(number: u64, chat: &str) -> OutRow {
    row(number, "hook", chat, 1_767_225_600_000)
}

#[test]
fn a_deliverer_that_crashes_forgets_nothing_and_marks_what_it_sends_again() {
    run_paused("crash", async {
        let mut scene = Scene::new(vec![fresh(1, "a"), fresh(2, "a")], 7, vec![]);
        for _ in 0..7 {
            let (sent, _) = scene.attempt().await;
            assert_eq!(sent, id(1));
        }
        assert_eq!(scene.attempt().await, (id(1), true));
        assert_eq!(scene.closed.recv().await, Some((id(1), true)));
        assert_eq!(scene.attempt().await, (id(2), false));
        assert_eq!(scene.closed.recv().await, Some((id(2), true)));
        // More often than any other actor may: it is never given up.
        assert_eq!((scene.count(EventName::Restarted), scene.count(EventName::GaveUp)), (7, 0));
        assert_eq!(scene.count(EventName::DeliveryRepeated), 7);
        scene.journal.commit(fresh(3, "a"));
        assert_eq!(scene.attempt().await, (id(3), false));
    });
}

#[test]
fn attempts_that_panic_or_hang_fail_alone_and_are_repeated() {
    run_paused("bad channel", async {
        let mut scene = Scene::new(vec![fresh(1, "a")], 0, vec![Act::Panic, Act::Hang]);
        assert_eq!(scene.attempt().await, (id(1), false));
        for _ in 0..2 {
            assert_eq!(scene.attempt().await, (id(1), true));
        }
        assert_eq!(scene.closed.recv().await, Some((id(1), true)));
        assert_eq!((scene.count(EventName::Restarted), scene.count(EventName::DeliveryRepeated)), (0, 1));
    });
}

#[test]
fn the_first_failure_and_each_doubling_are_told_and_the_last_one_is_shown() {
    run_paused("failures", async {
        let failed = || Act::End(Outcome::failed("the receiver answered 503"));
        let (release, held) = oneshot::channel();
        let plan = (0..9).map(|_| failed()).chain([Act::Wait(held)]).collect();
        let mut scene = Scene::new(vec![fresh(1, "a")], 0, plan);
        for _ in 0..10 {
            scene.attempt().await;
        }
        let failing = scene.board.failing(id(1)).unwrap();
        assert_eq!((failing.tries, &*failing.error), (9, "the receiver answered 503"));
        release.send(()).unwrap();
        assert_eq!(scene.closed.recv().await, Some((id(1), true)));
        let events = scene.log.events();
        let told = events.iter().filter(|event| event.event == EventName::DeliveryFailed);
        let told: Vec<_> = told.map(|event| (event.attempt.unwrap().0, event.backoff_ms.unwrap())).collect();
        let numbers: Vec<u32> = told.iter().map(|(number, _)| *number).collect();
        assert_eq!(numbers, [1, 2, 4, 8]);
        // A quarter of a wait is left to chance.
        assert!(told.iter().all(|(n, ms)| (750 << (n - 1)..=1000 << (n - 1)).contains(ms)), "{told:?}");
        let first = events.iter().find(|event| event.event == EventName::DeliveryFailed).unwrap();
        assert_eq!((first.delivery, first.turn), (Some(id(1)), Some(id(1).turn)));
        assert_eq!(first.reason.as_deref(), Some("the receiver answered 503"));
        scene.journal.commit(fresh(2, "a"));
        scene.attempt().await;
        assert_eq!(scene.board.failing(id(1)), None, "it is delivered");
    });
}

#[test]
fn what_is_refused_is_told_and_counted() {
    run_paused("refusal", async {
        let refused = Act::End(Outcome::Refused { reason: "gone".into() });
        let mut scene = Scene::new(vec![fresh(1, "a"), fresh(2, "a")], 0, vec![refused]);
        assert_eq!(scene.closed.recv().await, Some((id(1), false)));
        assert_eq!(scene.closed.recv().await, Some((id(2), true)));
        let events = scene.log.events();
        let event = events.iter().find(|event| event.event == EventName::Undeliverable).unwrap();
        assert_eq!((event.delivery, event.reason.as_deref()), (Some(id(1)), Some("gone")));
        let letters = &scene.kernel.metrics().dead_letters;
        assert_eq!(letters.get_or_create(&protocol::metrics::ByKind { kind: "delivery" }).get(), 1);
    });
}

#[test]
fn what_waits_for_a_channel_that_is_not_enabled_becomes_a_dead_letter_after_a_day() {
    run_paused("a channel that is gone", async {
        let gone = |number| row(number, "gone", "a", 1_767_225_600_000);
        let mut scene = Scene::new(vec![gone(1), fresh(2, "a")], 0, vec![]);
        assert_eq!(scene.closed.recv().await, Some((id(2), true)), "the others are delivered meanwhile");
        scene.journal.commit(gone(3));
        let begun = scene.kernel.ports().clock.mono();
        for number in [1, 3] {
            assert_eq!(scene.closed.recv().await, Some((id(number), false)));
        }
        let waited = scene.kernel.ports().clock.mono() - begun;
        assert!(waited >= Duration::from_secs(24 * 60 * 60 - 1), "{waited:?}");
        assert_eq!(scene.count(EventName::Undeliverable), 2);
        assert!(scene.journal.rows.lock().unwrap().is_empty());
    });
}

#[test]
fn an_orderly_stop_waits_for_what_is_being_sent_and_for_nothing_else() {
    run_paused("drain", async {
        let (release, held) = oneshot::channel();
        let failed = Act::End(Outcome::failed("down"));
        let mut scene = Scene::new(vec![fresh(1, "a"), fresh(2, "b")], 0, vec![failed, Act::Wait(held)]);
        assert_eq!(scene.attempt().await, (id(1), false));
        assert_eq!(scene.attempt().await, (id(2), false));
        let drained = scene.deliverer.drain();
        let mut drained = std::pin::pin!(drained);
        assert!(tokio::time::timeout(Duration::from_millis(100), drained.as_mut()).await.is_err());
        release.send(()).unwrap();
        drained.await;
        assert_eq!(scene.closed.recv().await, Some((id(2), true)));
        assert_eq!(scene.journal.rows.lock().unwrap().len(), 1);
        let waiting = scene.board.waiting();
        assert_eq!((waiting[0].messages, waiting[0].oldest_ms), (1, Some(1_767_225_600_000)));
        assert!(scene.plan.lock().unwrap().is_empty());
    });
}
