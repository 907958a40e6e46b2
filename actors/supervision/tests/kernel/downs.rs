use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use actix::{Actor, Context, Handler, Supervised};
use domain::ids::SessionKey;
use proptest::prelude::*;
use protocol::session::Mail;
use protocol::supervision::{ActorPath, Down, Event, EventName, ExitReason, Kind};
use supervision::{Child, CrashCell, Lease, LocalPlacement, Slots, tell};
use testkit::deadline::run_paused;
use testkit::probe::Probe;

use crate::child::{Crashing, Do, Said, Stage, kernel};

#[test]
fn the_fifth_crash_ends_it_and_the_owner_hears_first() {
    run_paused("give up", async {
        let mut stage = Stage::new();
        for n in 0..5 {
            stage.tell(Do::Boom);
            stage.tell(Do::Work(n));
        }
        let mut reasons = Vec::new();
        for _ in 0..5 {
            let down = stage.downs.next().await;
            reasons.push((down.incarnation, down.reason, down.restarts));
        }
        let restarted = |n| (n, ExitReason::Panicked, true);
        let end = (5, ExitReason::IntensityExceeded, false);
        assert_eq!(reasons, [restarted(1), restarted(2), restarted(3), restarted(4), end]);
        let said = stage.until(Said::Dropped).await;
        assert_eq!(said.last(), Some(&Said::OwnerTold), "before the mailbox goes");
        assert!(!said.contains(&Said::Worked(4)), "nothing runs on the broken value");
        assert!(tell(&stage.child, Do::Work(9)).is_err());

        let gave_up = stage.log.named(EventName::GaveUp).remove(0);
        let exited = stage.log.named(EventName::Exited).remove(0);
        assert_eq!(exited.cause.as_deref(), Some(&*gave_up.id));
        assert_eq!(exited.reason.as_deref(), Some("intensity_exceeded"));
        assert!(stage.kernel.actors().is_empty());
    });
}

#[test]
fn an_actor_that_stops_says_why() {
    for reason in [ExitReason::Passivated, ExitReason::Shutdown, ExitReason::Normal] {
        run_paused("stop", async {
            let mut stage = Stage::new();
            stage.tell(Do::Leave(reason));
            let down = stage.downs.next().await;
            assert_eq!((down.reason, down.restarts, down.crash), (reason, false, None));
            assert!(stage.downs.try_next().is_none());
        });
    }
}

#[test]
fn leaving_gives_no_fresh_restarts() {
    run_paused("history", async {
        let mut stage = Stage::new();
        for _ in 0..3 {
            stage.tell(Do::Boom);
            assert!(stage.downs.next().await.restarts);
        }
        stage.tell(Do::Leave(ExitReason::Passivated));
        assert_eq!(stage.downs.next().await.reason, ExitReason::Passivated);
        let mut next = stage.again();
        next.tell(Do::Boom);
        assert!(next.downs.next().await.restarts);
        next.tell(Do::Boom);
        assert_eq!(next.downs.next().await.reason, ExitReason::IntensityExceeded, "the fifth within a minute");
        let mut anew = next.again();
        anew.tell(Do::Boom);
        assert!(anew.downs.next().await.restarts, "whoever gave up begins anew");
    });
}

/// Panics once it has given its slot up.
struct Late {
    lease: Lease,
    cell: CrashCell,
}

impl Actor for Late {
    type Context = Context<Self>;
}

impl Supervised for Late {}

impl Handler<Mail> for Late {
    type Result = ();

    fn handle(&mut self, _: Mail, _: &mut Self::Context) {
        self.lease.received();
        assert!(self.lease.try_release());
        self.cell.exit_reason(ExitReason::Passivated);
        panic!("too late");
    }
}

#[test]
fn whoever_crashes_after_it_gave_its_slot_up_does_not_live_again() {
    run_paused("late", async {
        let (kernel, log, _) = kernel();
        let slots = Slots::new(kernel.ports().clock.clone());
        let key = SessionKey::new("api:late").unwrap();
        let (mut downs, path) = (Probe::<Down>::new(), ActorPath::session(0, &key));
        let start = |lease: Lease| {
            let mut child = Child::new(Arc::clone(&path.0), Kind::Session);
            child.lease = Some(lease.clone());
            let cell = child.crash.clone();
            Some(kernel.spawn(child, &LocalPlacement::new(), 0, move |_| Late { lease, cell }).recipient())
        };
        slots.tell(&key, Mail::Passivate, start).unwrap();
        kernel.monitor(&path, downs.recipient().downgrade());
        let down = downs.next().await;
        assert_eq!((down.reason, down.restarts), (ExitReason::Passivated, false));
        tokio::time::sleep(std::time::Duration::from_secs(120)).await;
        let told: Vec<_> = log.events().into_iter().map(|event| (event.event, event.verdict)).collect();
        let gave_up = (EventName::GaveUp, Some("left".to_owned()));
        assert_eq!(told, [(EventName::Started, None), gave_up, (EventName::Exited, None)]);
    });
}

#[test]
fn a_panic_in_stopping_ends_in_a_restart_and_not_in_an_abort() {
    run_paused("stopping", async {
        let mut stage = Stage::new();
        stage.tell(Do::LeaveAndBoom);
        assert!(stage.downs.next().await.restarts);
        stage.tell(Do::Work(1));
        stage.until(Said::Worked(1)).await;
    });
}

#[test]
fn a_dead_path_answers_at_once() {
    run_paused("noproc", async {
        let (kernel, _, _) = kernel();
        let mut downs = Probe::<Down>::new();
        kernel.monitor(&ActorPath("/nobody".into()), downs.recipient().downgrade());
        let down = downs.next().await;
        assert_eq!((down.reason, down.incarnation), (ExitReason::Noproc, 0));
    });
}

#[test]
fn an_actor_that_cannot_be_made_is_down() {
    run_paused("factory", async {
        let (kernel, log, _) = kernel();
        let mut downs = Probe::<Down>::new();
        let child = Child::new("/test/unborn", Kind::Tools);
        let path = child.path.clone();
        let address = kernel.spawn(child, &LocalPlacement::new(), 0, |_| -> Crashing { panic!("not today") });
        kernel.monitor(&path, downs.recipient().downgrade());
        let down = downs.next().await;
        assert!(!down.restarts);
        assert_eq!(down.crash.unwrap().panic.text, "not today");
        assert!(!address.connected());
        assert_eq!(log.named(EventName::GaveUp).len(), 1);
    });
}

fn ops() -> impl Strategy<Value = Vec<Do>> {
    let op = prop_oneof![
        4 => (0u32..9).prop_map(Do::Work),
        2 => Just(Do::Boom),
        1 => Just(Do::BoomInFuture),
        1 => Just(Do::BoomInTimer),
        1 => Just(Do::BoomInRestart),
        1 => Just(Do::BoomInStarted),
        1 => Just(Do::Forgive),
        1 => Just(Do::Leave(ExitReason::Passivated)),
        1 => Just(Do::LeaveAndBoom),
    ];
    proptest::collection::vec(op, 0..30)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn each_incarnation_has_one_down_and_one_event(ops in ops()) {
        let check = AssertUnwindSafe(|| run_paused("downs", all_downs(ops)));
        let (downs, events) = check();
        for (n, down) in downs.iter().enumerate() {
            prop_assert_eq!(down.incarnation, n as u64 + 1);
            prop_assert_eq!(down.restarts, n + 1 < downs.len());
        }
        let named = |name| events.iter().filter(|event| event.event == name).count();
        prop_assert_eq!(named(EventName::Started), 1);
        prop_assert_eq!(named(EventName::Exited), 1);
        prop_assert_eq!(named(EventName::Restarted) + named(EventName::Exited), downs.len());
    }
}

async fn all_downs(ops: Vec<Do>) -> (Vec<Down>, Vec<Event>) {
    let mut stage = Stage::new();
    for op in ops {
        // It may have left before.
        let _ = tell(&stage.child, op);
    }
    let _ = tell(&stage.child, Do::Leave(ExitReason::Normal));
    let mut downs = Vec::new();
    loop {
        let down = stage.downs.next().await;
        let last = !down.restarts;
        downs.push(down);
        if last {
            assert!(stage.downs.try_next().is_none());
            return (downs, stage.log.events());
        }
    }
}
