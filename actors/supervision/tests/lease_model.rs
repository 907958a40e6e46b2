//! The lease protocol as a model, in every interleaving: a teller and a session that wants to leave.
//!
//! It is a model because the real one is made of a map and mailboxes that loom cannot look into; the steps are those of
//! `supervision::lease`.

#![allow(clippy::unwrap_used, reason = "tests")]

use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::sync::{Arc, Mutex, RwLock};
use loom::thread;

struct Instance {
    depth: AtomicUsize,
    mailbox: Mutex<Vec<u32>>,
    open: Mutex<bool>,
}

#[derive(Default)]
struct World {
    handled: Mutex<Vec<u32>>,
}

type Slot = Arc<RwLock<Option<Arc<Instance>>>>;

fn instance() -> Arc<Instance> {
    Arc::new(Instance { depth: AtomicUsize::new(0), mailbox: Mutex::new(Vec::new()), open: Mutex::new(true) })
}

fn enqueue(to: &Instance, mail: u32) {
    // A closed mailbox swallows mail silently, as actix does.
    if *to.open.lock().unwrap() {
        to.mailbox.lock().unwrap().push(mail);
    }
}

/// What is in the mailbox is handled; mail that comes later finds it closed once `open` is false.
fn drain(instance: &Instance, world: &World) {
    let mails = std::mem::take(&mut *instance.mailbox.lock().unwrap());
    for mail in mails {
        instance.depth.fetch_sub(1, Ordering::SeqCst);
        world.handled.lock().unwrap().push(mail);
    }
}

fn tell_leased(slot: &Slot, mail: u32) {
    {
        let guard = slot.read().unwrap();
        if let Some(live) = &*guard {
            live.depth.fetch_add(1, Ordering::SeqCst);
            enqueue(live, mail);
            return;
        }
    }
    let mut guard = slot.write().unwrap();
    let live = guard.get_or_insert_with(instance);
    live.depth.fetch_add(1, Ordering::SeqCst);
    enqueue(live, mail);
}

fn leave_leased(slot: &Slot, me: &Arc<Instance>) -> bool {
    let mut guard = slot.write().unwrap();
    let mine = guard.as_ref().is_some_and(|live| Arc::ptr_eq(live, me));
    if mine && me.depth.load(Ordering::SeqCst) == 0 {
        *guard = None;
        return true;
    }
    false
}

fn tell_naive(slot: &Slot, mail: u32) {
    let live = slot.read().unwrap().clone();
    let live = live.unwrap_or_else(|| Arc::clone(slot.write().unwrap().get_or_insert_with(instance)));
    live.depth.fetch_add(1, Ordering::SeqCst);
    enqueue(&live, mail);
}

fn leave_naive(slot: &Slot, _: &Arc<Instance>) -> bool {
    *slot.write().unwrap() = None;
    true
}

fn explore(tell: fn(&Slot, u32), leave: fn(&Slot, &Arc<Instance>) -> bool) {
    loom::model(move || {
        let world = Arc::new(World::default());
        let first = instance();
        let slot: Slot = Arc::new(RwLock::new(Some(Arc::clone(&first))));
        let tellers: Vec<_> = [1, 2]
            .into_iter()
            .map(|mail| {
                let slot = Arc::clone(&slot);
                thread::spawn(move || tell(&slot, mail))
            })
            .collect();
        let left = leave(&slot, &first);
        if left {
            *first.open.lock().unwrap() = false;
            first.mailbox.lock().unwrap().clear();
        }
        for teller in tellers {
            teller.join().unwrap();
        }
        if !left {
            drain(&first, &world);
        }
        let last = slot.read().unwrap().clone();
        if let Some(live) = last.filter(|live| !Arc::ptr_eq(live, &first)) {
            drain(&live, &world);
        }
        let mut handled = world.handled.lock().unwrap().clone();
        handled.sort_unstable();
        assert_eq!(handled, [1, 2], "mail was lost");
    });
}

#[test]
fn leased_mail_is_never_lost() {
    explore(tell_leased, leave_leased);
}

#[test]
#[should_panic(expected = "mail was lost")]
fn without_the_lease_mail_is_lost() {
    explore(tell_naive, leave_naive);
}
