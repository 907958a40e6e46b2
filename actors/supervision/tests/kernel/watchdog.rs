use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};

use actix::{Actor, Context, Handler, Supervised};
use protocol::supervision::{Event, EventName, Kind};
use supervision::log::MemoryLog;
use supervision::pressure::{Level, Pressure};
use supervision::watch::{Memory, Watch};
use supervision::{ArbiterPlacement, Child, Label, Placement, tell};
use testkit::deadline::run;

use crate::child::kernel;

struct Blocks;

/// Holds the thread until the test lets go, as the actor itself or as work with a name.
#[derive(Debug, actix::Message)]
#[rtype(result = "()")]
struct Hold(mpsc::Receiver<()>, Option<Label>);

impl Actor for Blocks {
    type Context = Context<Self>;
}

impl Supervised for Blocks {}

impl Handler<Hold> for Blocks {
    type Result = ();

    fn handle(&mut self, Hold(until, label): Hold, _: &mut Self::Context) {
        // It also ends when the test does.
        let wait = || {
            let _ = until.recv();
        };
        match label {
            Some(label) => label.run(wait),
            None => wait(),
        }
    }
}

async fn logged(log: &MemoryLog, name: EventName, count: usize) -> Event {
    loop {
        let mut events = log.named(name);
        if events.len() >= count {
            return events.remove(count - 1);
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}

#[test]
fn a_blocked_arbiter_is_found_with_who_blocks_it_and_memory_is_watched() {
    run("watchdog", async {
        let (kernel, log, _) = kernel();
        let place = Arc::new(ArbiterPlacement::new(2).unwrap());
        let (pressure, used) = (Arc::<Pressure>::default(), Arc::<AtomicU64>::default());
        let reads = used.clone();
        let memory = Memory {
            pressure: pressure.clone(),
            used: Box::new(move || Some(reads.load(Ordering::SeqCst))),
            limit: 100 << 20,
        };
        let actor = kernel.spawn(Child::new("/test/blocks", Kind::Tools), &*place, 1, |_| Blocks).recipient();
        let watch = Watch::start(kernel.clone(), place.clone(), memory).unwrap();
        let (ready, is_ready) = tokio::sync::oneshot::channel();
        place.run_on(1, Box::new(move || ready.send(()).unwrap()));
        is_ready.await.unwrap();
        let table = [(None, "/test/blocks"), (Some(Label::new("the tool test")), "the tool test")];
        for (at, (label, who)) in table.into_iter().enumerate() {
            let (release, until) = mpsc::channel();
            tell(&actor, Hold(until, label)).unwrap();
            let blocked = logged(&log, EventName::ArbiterBlocked, at + 1).await;
            assert_eq!(&*blocked.path.0, "/registry/1");
            assert!(blocked.reason.as_ref().unwrap().ends_with(&format!("by {who}")), "{blocked:?}");
            assert_eq!(kernel.metrics().degraded(), ["arbiter_blocked"]);
            drop(release);
            let freed = logged(&log, EventName::ArbiterFreed, at + 1).await;
            assert_eq!(freed.cause.as_deref(), Some(&*blocked.id));
            assert!(kernel.metrics().degraded().is_empty());
        }
        for (mib, level, events) in [(95, Level::High, 1), (120, Level::Refusing, 2)] {
            used.store(mib << 20, Ordering::SeqCst);
            let high = logged(&log, EventName::MemoryHigh, events).await;
            assert_eq!((pressure.level(), high.reason), (level, Some(format!("{mib} of 100 MiB are in use"))));
        }
        used.store(1 << 20, Ordering::SeqCst);
        let calm = logged(&log, EventName::MemoryCalm, 1).await;
        assert_eq!((pressure.level(), calm.cause), (Level::Calm, Some(log.named(EventName::MemoryHigh)[1].id.clone())));
        watch.stop();
        place.stop_and_join();
    });
}
