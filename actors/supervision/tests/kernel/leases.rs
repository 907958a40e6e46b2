//! The lease protocol on real threads and real actors: nothing is lost while sessions leave memory all the time.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use actix::{Actor, ActorContext, Context, Handler, Supervised};
use domain::ids::{Seq, SessionKey, TurnId};
use protocol::journal::{InboxItem, LogPosition};
use protocol::session::Mail;
use protocol::supervision::{ExitReason, Kind};
use supervision::memory::TestClock;
use supervision::{ArbiterPlacement, Child, CrashCell, Kernel, Lease, Slots, shard_of};
use testkit::deadline::run;
use uuid::Uuid;

use crate::child::kernel;

const KEYS: usize = 16;
const THREADS: usize = 4;
const MAILS: u32 = 5_000;
const PASSIVATE_EVERY: u32 = 5;

#[derive(Default)]
struct Tally {
    handled: AtomicU32,
    activations: AtomicU32,
    doubles: AtomicU32,
    live: [AtomicI32; KEYS],
}

struct Sleepy {
    lease: Lease,
    cell: CrashCell,
    index: usize,
    seen: u32,
    tally: Arc<Tally>,
}

impl Actor for Sleepy {
    type Context = Context<Self>;

    fn started(&mut self, _: &mut Self::Context) {
        self.tally.activations.fetch_add(1, Ordering::SeqCst);
        if self.tally.live[self.index].fetch_add(1, Ordering::SeqCst) != 0 {
            self.tally.doubles.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn stopped(&mut self, _: &mut Self::Context) {
        self.tally.live[self.index].fetch_sub(1, Ordering::SeqCst);
    }
}

impl Supervised for Sleepy {}

impl Handler<Mail> for Sleepy {
    type Result = ();

    fn handle(&mut self, _: Mail, ctx: &mut Self::Context) {
        self.lease.received();
        self.tally.handled.fetch_add(1, Ordering::SeqCst);
        self.seen += 1;
        if self.seen.is_multiple_of(PASSIVATE_EVERY) && self.lease.try_release() {
            self.cell.exit_reason(ExitReason::Passivated);
            ctx.stop();
        }
    }
}

fn mail() -> Mail {
    Mail::Queued(InboxItem {
        turn: TurnId(Uuid::nil()),
        seq: Seq(1),
        at: LogPosition(0),
        inline: None,
        push: None,
        event: false,
    })
}

fn flood(kernel: &Kernel, place: &ArbiterPlacement, slots: &Slots, tally: &Arc<Tally>, from: usize) {
    for n in 0..MAILS as usize {
        send(kernel, place, slots, tally, (from + n) % KEYS);
    }
}

fn send(kernel: &Kernel, place: &ArbiterPlacement, slots: &Slots, tally: &Arc<Tally>, index: usize) {
    let key = SessionKey::new(&format!("test:{index}")).unwrap();
    let shard = shard_of(&key, 2);
    let told = slots.tell(&key, mail(), |lease| {
        let tally = Arc::clone(tally);
        let cell = CrashCell::default();
        let mut child = Child::new(format!("/s/{index}"), Kind::Session);
        child.crash = cell.clone();
        let make = move |_: &mut Context<Sleepy>| Sleepy { lease, cell, index, seen: 0, tally };
        Some(kernel.spawn(child, place, shard, make).recipient())
    });
    assert!(told.is_ok());
}

async fn until_handled(tally: &Tally, count: u32) {
    while tally.handled.load(Ordering::SeqCst) < count {
        tokio::task::yield_now().await;
    }
}

#[test]
fn no_mail_is_lost_while_sessions_leave_memory() {
    run("leases", async {
        let (kernel, _, _) = kernel();
        let place = ArbiterPlacement::new(2).unwrap();
        let slots = Slots::new(TestClock::new());
        let tally = Arc::new(Tally::default());
        std::thread::scope(|scope| {
            for from in 0..THREADS {
                let (kernel, place, slots, tally) = (&kernel, &place, &slots, &tally);
                scope.spawn(move || flood(kernel, place, slots, tally, from * 3));
            }
        });
        let mut all = THREADS as u32 * MAILS;
        until_handled(&tally, all).await;
        // A flood leaves few quiet moments in which a session may go; one mail at a time leaves nothing else.
        for _ in 0..2 * PASSIVATE_EVERY {
            send(&kernel, &place, &slots, &tally, 0);
            all += 1;
            until_handled(&tally, all).await;
        }
        assert_eq!(tally.handled.load(Ordering::SeqCst), all);
        assert_eq!(tally.doubles.load(Ordering::SeqCst), 0, "two live instances of a key");
        let activations = tally.activations.load(Ordering::SeqCst);
        assert!(activations > KEYS as u32, "sessions did leave memory: {activations}");
        place.stop_and_join();
    });
}
