//! Slots: which session is live, and at which address, so that no mail is lost while a session leaves memory.
//!
//! - *Tell*: under the map's read guard, count the mail (`depth`), then enqueue it. A slot that is there is live.
//! - *Release*: under the map's write guard, remove the slot only if `depth` is 0; only then may the session stop.
//! - *Activate*: under the map's write guard, when there is no slot.
//!
//! **Invariant:** never await, and never call back into the slots, while a guard is held. A key always lives on the same
//! arbiter, so the last poll of the old instance precedes the first one of the new.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use domain::ids::{SessionKey, TurnId};
use protocol::session::{Address, Mail, State};
use protocol::turn::Lane;

use crate::planted::{Bug, planted};
use crate::ports::Clock;
use crate::tell::tell;

/// What a session shows of itself, for the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Note {
    /// What it does.
    pub state: State,
    /// The running turn.
    pub turn: Option<TurnId>,
    /// Waiting turns.
    pub inbox: u32,
    /// Which messages the running turn would take up.
    pub steers: Option<Lane>,
}

#[derive(Debug)]
struct Cell {
    incarnation: u64,
    alone: bool,
    depth: AtomicUsize,
    used_ms: AtomicU64,
    /// When the running turn began.
    turn_ms: AtomicU64,
    note: Mutex<Note>,
}

impl Cell {
    fn note(&self) -> MutexGuard<'_, Note> {
        self.note.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Slot {
    address: Address,
    cell: Arc<Cell>,
}

struct Inner {
    map: DashMap<SessionKey, Slot>,
    incarnations: AtomicU64,
    clock: Arc<dyn Clock>,
}

impl Inner {
    fn now_ms(&self) -> u64 {
        u64::try_from(self.clock.mono().as_millis()).unwrap_or(u64::MAX)
    }

    fn view(&self, key: &SessionKey, slot: &Slot, now_ms: u64) -> SlotView {
        let cell = &slot.cell;
        let since = |ms: &AtomicU64| Duration::from_millis(now_ms.saturating_sub(ms.load(Ordering::Relaxed)));
        let note = *cell.note();
        SlotView {
            key: key.clone(),
            incarnation: cell.incarnation,
            depth: cell.depth.load(Ordering::SeqCst),
            idle: since(&cell.used_ms),
            running: note.turn.map(|_| since(&cell.turn_ms)),
            note,
        }
    }

    fn deliver(&self, slot: &Slot, mail: Mail) {
        slot.cell.depth.fetch_add(1, Ordering::SeqCst);
        if matches!(mail, Mail::Queued(_)) {
            slot.cell.used_ms.store(self.now_ms(), Ordering::Relaxed);
        }
        // Gone only when its whole arbiter has ended: a supervisor removes the slot before it drops the mailbox.
        let _ = tell(&slot.address, mail);
    }
}

/// One live session, as a sweep or a snapshot sees it.
#[derive(Debug, Clone)]
pub struct SlotView {
    /// Session.
    pub key: SessionKey,
    /// Activation number.
    pub incarnation: u64,
    /// Mail under way.
    pub depth: usize,
    /// How long nothing has happened.
    pub idle: Duration,
    /// How long the running turn has been running here.
    pub running: Option<Duration>,
    /// What it does.
    pub note: Note,
}

/// The live sessions of one shard.
#[derive(Clone)]
pub struct Slots(Arc<Inner>);

impl Slots {
    /// None yet.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self(Arc::new(Inner { map: DashMap::new(), incarnations: AtomicU64::new(0), clock }))
    }

    /// Hands mail to the session, which `activate` starts if it is not live; `activate` may refuse, and the mail comes
    /// back. `activate` runs under the map's guard: it must only place the start of the actor, and whatever it calls must
    /// not touch the slots (an actor whose arbiter has ended is reported as down at once).
    pub fn tell(
        &self,
        key: &SessionKey,
        mail: Mail,
        activate: impl FnOnce(Lease) -> Option<Address>,
    ) -> Result<(), Mail> {
        let Err(mail) = self.tell_live(key, mail) else { return Ok(()) };
        match self.0.map.entry(key.clone()) {
            Entry::Occupied(slot) => self.0.deliver(slot.get(), mail),
            Entry::Vacant(vacant) => {
                let Some(slot) = self.make(key, false, activate) else { return Err(mail) };
                self.0.deliver(&slot, mail);
                vacant.insert(slot);
            }
        }
        Ok(())
    }

    /// Starts the session without any mail; false if it is live, or `activate` refused. See [`tell`](Self::tell), and
    /// [`Lease::alone`].
    pub fn wake(&self, key: &SessionKey, alone: bool, activate: impl FnOnce(Lease) -> Option<Address>) -> bool {
        match self.0.map.entry(key.clone()) {
            Entry::Occupied(_) => false,
            Entry::Vacant(vacant) => self.make(key, alone, activate).map(|slot| vacant.insert(slot)).is_some(),
        }
    }

    fn make(&self, key: &SessionKey, alone: bool, activate: impl FnOnce(Lease) -> Option<Address>) -> Option<Slot> {
        let cell = Arc::new(Cell {
            incarnation: self.0.incarnations.fetch_add(1, Ordering::Relaxed) + 1,
            alone,
            depth: AtomicUsize::new(0),
            used_ms: AtomicU64::new(self.0.now_ms()),
            turn_ms: AtomicU64::new(0),
            note: Mutex::new(Note { state: State::Loading, turn: None, inbox: 0, steers: None }),
        });
        let lease = Lease { inner: Arc::clone(&self.0), key: key.clone(), cell: Arc::clone(&cell) };
        Some(Slot { address: activate(lease)?, cell })
    }

    /// Hands mail to the session only if it is live; gives it back otherwise.
    pub fn tell_live(&self, key: &SessionKey, mail: Mail) -> Result<(), Mail> {
        match self.0.map.get(key) {
            Some(slot) => {
                self.0.deliver(&slot, mail);
                Ok(())
            }
            None => Err(mail),
        }
    }

    /// Removes the slot of a session that ended without releasing it, and tells how it was: its `depth` is the mail that
    /// went with its mailbox. `None` if the slot was gone or belongs to a later activation.
    pub fn remove(&self, key: &SessionKey, incarnation: u64) -> Option<SlotView> {
        let (key, slot) = self.0.map.remove_if(key, |_, slot| slot.cell.incarnation == incarnation)?;
        Some(self.0.view(&key, &slot, self.0.now_ms()))
    }

    /// Notes that a session crashed and waits for its restart.
    pub fn restarts(&self, key: &SessionKey, incarnation: u64) {
        if let Some(slot) = self.0.map.get(key)
            && slot.cell.incarnation == incarnation
        {
            slot.cell.note().state = State::Restarting;
        }
    }

    /// How a live session is.
    pub fn view(&self, key: &SessionKey) -> Option<SlotView> {
        self.0.map.get(key).map(|slot| self.0.view(key, &slot, self.0.now_ms()))
    }

    /// How many sessions are live.
    pub fn len(&self) -> usize {
        self.0.map.len()
    }

    /// Whether none is live.
    pub fn is_empty(&self) -> bool {
        self.0.map.is_empty()
    }

    /// Calls `look` for each live session, in no order. `look` must not touch the slots.
    pub fn for_each(&self, mut look: impl FnMut(SlotView)) {
        let now_ms = self.0.now_ms();
        for slot in &self.0.map {
            look(self.0.view(slot.key(), &slot, now_ms));
        }
    }
}

/// A session's hold on its slot.
#[derive(Clone)]
pub struct Lease {
    inner: Arc<Inner>,
    key: SessionKey,
    cell: Arc<Cell>,
}

impl Lease {
    /// To be called once for each [`Mail`] that is taken from the mailbox, before anything else is done with it.
    pub fn received(&self) {
        let before = self.cell.depth.fetch_sub(1, Ordering::SeqCst);
        debug_assert!(before > 0, "more mail was received than sent");
    }

    /// Gives the slot up if no mail is under way. True: the slot is gone, and the session must stop now. False: mail is
    /// coming, the session stays.
    pub fn try_release(&self) -> bool {
        let mine = |_: &SessionKey, slot: &Slot| {
            let none_coming = slot.cell.depth.load(Ordering::SeqCst) == 0 || planted(Bug::NaivePassivation);
            slot.cell.incarnation == self.cell.incarnation && none_coming
        };
        self.inner.map.remove_if(&self.key, mine).is_some()
    }

    /// Whether the slot is still this incarnation's. A session that crashes after it gave its slot up must not live again.
    pub fn is_held(&self) -> bool {
        self.inner.map.get(&self.key).is_some_and(|slot| slot.cell.incarnation == self.cell.incarnation)
    }

    /// Shows what the session does, and counts as use.
    pub fn note(&self, note: Note) {
        let now_ms = self.inner.now_ms();
        let before = std::mem::replace(&mut *self.cell.note(), note);
        if before.turn != note.turn {
            self.cell.turn_ms.store(now_ms, Ordering::Relaxed);
        }
        self.cell.used_ms.store(now_ms, Ordering::Relaxed);
    }

    /// Mail under way, and turns that wait.
    pub fn waiting(&self) -> (u64, u64) {
        (self.cell.depth.load(Ordering::SeqCst) as u64, u64::from(self.cell.note().inbox))
    }

    /// Whose it is.
    pub fn key(&self) -> &SessionKey {
        &self.key
    }

    /// Whether the turn that was cut when the process died runs alone now, as it is suspected of that death: then
    /// another death is its crash.
    pub fn alone(&self) -> bool {
        self.cell.alone
    }

    /// Activation number: grows with every activation of any session of the shard.
    pub fn incarnation(&self) -> u64 {
        self.cell.incarnation
    }
}

impl std::fmt::Debug for Lease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lease").field("key", &self.key).field("incarnation", &self.cell.incarnation).finish()
    }
}
