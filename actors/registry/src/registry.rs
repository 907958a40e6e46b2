//! The registry's state, and how a session is found or started.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use actix::Addr;
use domain::ids::SessionKey;
use protocol::journal::{Journal, Queued, QueuedSink};
use protocol::metrics::{ByArbiter, ByKind, ByState, Metrics};
use protocol::registry::{Sessions, Unreachable};
use protocol::session::{Address, Mail, State};
use protocol::supervision::{ActorPath, Kind, TreeNode};
use protocol::top::{SessionsTop, TopQuery};
use protocol::turn::Lane;
use supervision::planted::{Bug, planted};
use supervision::pressure::{Level, Pressure};
use supervision::spawn::OnDown;
use supervision::{Child, CrashCell, Kernel, Lease, Placement, Slots, shard_of};

use crate::budget::Budget;
use crate::pause::Pause;
use crate::quarantine::Waitlist;
use crate::shard::Shard;
use crate::sweep::{Idle, leavers};

/// How often a stop or a recovery looks whether it may go on.
pub(crate) const POLL_EVERY: Duration = Duration::from_millis(5);
/// After this long an idle session leaves while the memory is short.
const IDLE_UNDER_PRESSURE: Duration = Duration::from_secs(2);
/// How long the sessions together may take to checkpoint their turns at an orderly stop.
const CHECKPOINT_MAX: Duration = Duration::from_secs(10);

/// What the registry needs.
pub struct Deps {
    /// Starts the shards, and has clock, log and counters.
    pub kernel: Kernel,
    /// Where sessions run.
    pub placement: Arc<dyn Placement>,
    /// The counters.
    pub metrics: Metrics,
    /// Its settings.
    pub config: RegistryConfig,
    /// Starts sessions.
    pub factory: Arc<dyn SessionFactory>,
    /// Whether sessions have to leave for want of memory.
    pub memory: Arc<Pressure>,
}

/// Settings.
#[derive(Debug, Clone)]
pub struct RegistryConfig {
    /// A session that did nothing for this long leaves memory.
    pub idle: Duration,
    /// Live sessions; over it the longest idle ones leave.
    pub max_live: usize,
    /// The first quarantine of a session.
    pub quarantine_base: Duration,
    /// The longest one.
    pub quarantine_cap: Duration,
    /// Fewer distinct crashing sessions than this never escalate.
    pub shard_min_sessions: u32,
}

/// Starts session actors; the composition root implements it.
pub trait SessionFactory: Send + Sync + 'static {
    /// Starts one. Called with a slot's guard held: it may only place the start.
    fn start(&self, start: SessionStart) -> Address;
}

/// How a session is to be started.
pub struct SessionStart {
    /// Session.
    pub key: SessionKey,
    /// Arbiter.
    pub shard: usize,
    /// Place in the tree.
    pub path: ActorPath,
    /// Its hold on its slot.
    pub lease: Lease,
    /// Shared with its supervisor.
    pub crash: CrashCell,
    /// To be called at the end of each incarnation.
    pub on_down: OnDown,
}

/// One arbiter's share of the sessions.
pub(crate) struct Sector {
    pub slots: Slots,
    pub waitlist: Waitlist,
    pub budget: Mutex<Budget>,
    pause: Mutex<Pause>,
    mailbox: AtomicU64,
    /// Holds the shard's mailbox open, so that it can be restarted.
    _shard: Addr<Shard>,
}

impl Sector {
    /// Whether it starts no sessions for now.
    pub fn pause(&self) -> MutexGuard<'_, Pause> {
        self.pause.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// See the crate's documentation.
pub struct Registry {
    pub(crate) me: Weak<Registry>,
    pub(crate) kernel: Kernel,
    pub(crate) placement: Arc<dyn Placement>,
    pub(crate) metrics: Metrics,
    pub(crate) config: RegistryConfig,
    pub(crate) sectors: Vec<Sector>,
    factory: Arc<dyn SessionFactory>,
    memory: Arc<Pressure>,
    journal: OnceLock<Arc<dyn Journal>>,
    stopping: AtomicBool,
}

impl Registry {
    /// Starts the shards. No session is started before [`attach_journal`](Self::attach_journal).
    pub fn new(deps: Deps) -> Arc<Self> {
        let Deps { kernel, placement, metrics, config, factory, memory } = deps;
        Arc::new_cyclic(|me: &Weak<Self>| {
            let sector = |index: usize| {
                let child = Child::new(shard_path(index), Kind::Registry);
                let registry = me.clone();
                let make = move |_: &mut actix::Context<Shard>| Shard { registry, index };
                Sector {
                    slots: Slots::new(kernel.ports().clock.clone()),
                    waitlist: Waitlist::default(),
                    budget: Mutex::default(),
                    pause: Mutex::default(),
                    mailbox: AtomicU64::new(0),
                    _shard: kernel.spawn(child, &*placement, index, make),
                }
            };
            let sectors = (0..placement.arbiters()).map(sector).collect();
            Self {
                me: me.clone(),
                kernel,
                placement,
                metrics,
                config,
                sectors,
                factory,
                memory,
                journal: OnceLock::new(),
                stopping: AtomicBool::new(false),
            }
        })
    }

    /// Hands over the journal, which itself needs the registry first.
    pub fn attach_journal(&self, journal: Arc<dyn Journal>) {
        assert!(self.journal.set(journal).is_ok(), "the journal is attached once");
        self.count();
    }

    pub(crate) fn journal(&self) -> Option<&Arc<dyn Journal>> {
        self.journal.get()
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    pub(crate) fn sector(&self, key: &SessionKey) -> (usize, &Sector) {
        let index = shard_of(key, self.sectors.len());
        (index, &self.sectors[index])
    }

    /// Finds or starts the session; the mail comes back when it must not be live.
    fn reach(&self, key: &SessionKey, mail: Mail) -> Result<(), Mail> {
        self.reach_for(key, mail, None)
    }

    /// The same; `cause` is the event that led to it.
    pub(crate) fn reach_for(&self, key: &SessionKey, mail: Mail, cause: Option<String>) -> Result<(), Mail> {
        let (index, sector) = self.sector(key);
        sector.slots.tell(key, mail, |lease| self.start(index, lease, cause))
    }

    /// Starts a session that has work; false when it is live or must not be. `cause` is the event that led to it.
    pub(crate) fn wake(&self, key: &SessionKey, alone: bool, cause: Option<String>) -> bool {
        let (index, sector) = self.sector(key);
        sector.slots.wake(key, alone, |lease| self.start(index, lease, cause))
    }

    /// Under the slot's guard: what is checked here cannot change before the slot is there.
    fn start(&self, shard: usize, lease: Lease, cause: Option<String>) -> Option<Address> {
        let key = lease.key().clone();
        let sector = &self.sectors[shard];
        if self.is_stopping() || self.journal().is_none() || sector.waitlist.holds(&key) || sector.pause().holds() {
            return None;
        }
        let crash = CrashCell::default();
        if let Some(cause) = cause {
            crash.because_of(cause);
        }
        let on_down: OnDown = {
            let (me, key, crash, incarnation) = (self.me.clone(), key.clone(), crash.clone(), lease.incarnation());
            Box::new(move |down| {
                if let Some(registry) = me.upgrade() {
                    registry.down(&key, incarnation, &crash, &down);
                }
            })
        };
        let path = ActorPath::session(shard, &key);
        Some(self.factory.start(SessionStart { key, shard, path, lease, crash, on_down }))
    }

    /// Asks idle sessions of a shard to leave, ends quarantines, and counts.
    pub(crate) fn sweep(&self, index: usize) {
        let sector = &self.sectors[index];
        let live = sector.slots.len();
        let live_max = self.config.max_live.div_ceil(self.sectors.len());
        // For want of memory all that do nothing leave, after a moment, so that none goes between two turns.
        let idle_max = match self.memory.level() {
            Level::Calm => self.config.idle,
            Level::High | Level::Refusing => self.config.idle.min(IDLE_UNDER_PRESSURE),
        };
        let (mut idle, mut mailbox) = (Vec::new(), 0);
        sector.slots.for_each(|slot| {
            mailbox += slot.depth as u64;
            // Most sessions stay most of the time, so only those are looked at closer that may have to leave.
            let quiet = slot.depth == 0 && slot.note.turn.is_none() && slot.note.inbox == 0;
            if quiet && (slot.idle >= idle_max || live > live_max) {
                idle.push(Idle { key: slot.key, idle: slot.idle });
            }
        });
        sector.mailbox.store(mailbox, Ordering::Relaxed);
        for key in leavers(idle, live, idle_max, live_max) {
            // One that has left meanwhile needs no asking.
            let _ = sector.slots.tell_live(&key, Mail::Passivate);
        }
        self.end_pause(index, sector);
        if !sector.pause().holds() {
            self.end_quarantines(sector);
        }
        if index == 0 {
            self.count();
        }
    }

    /// Notes how late the timer of an arbiter fired.
    pub(crate) fn late(&self, index: usize, delay: Duration) {
        let labels = ByArbiter { arbiter: u32::try_from(index).unwrap_or(u32::MAX) };
        self.metrics.kernel.arbiter_delay_seconds.get_or_create(&labels).observe(delay.as_secs_f64());
    }

    fn count(&self) {
        let gauge = |state, value: usize| {
            let value = i64::try_from(value).unwrap_or(i64::MAX);
            self.metrics.sessions.get_or_create(&ByState { state }).set(value);
        };
        gauge("live", self.live());
        gauge("quarantined", self.sectors.iter().map(|sector| sector.waitlist.len()).sum());
        let mailbox: u64 = self.sectors.iter().map(|sector| sector.mailbox.load(Ordering::Relaxed)).sum();
        let mailbox = i64::try_from(mailbox).unwrap_or(i64::MAX);
        self.metrics.mailbox_messages.get_or_create(&ByKind { kind: Kind::Session.word() }).set(mailbox);
    }

    /// Stops in order: starts no session any more, lets running turns end until `deadline` is over, and then
    /// checkpoints those that still run. The answer is how many sessions are left.
    pub async fn stop(&self, deadline: Duration) -> usize {
        self.stopping.store(true, Ordering::SeqCst);
        if !deadline.is_zero() {
            self.tell_all(|| Mail::Drain);
            self.until_empty(deadline).await;
        }
        self.tell_all(|| Mail::Interrupt);
        self.until_empty(CHECKPOINT_MAX).await;
        self.live()
    }

    fn tell_all(&self, mail: impl Fn() -> Mail) {
        for sector in &self.sectors {
            let mut keys = Vec::new();
            sector.slots.for_each(|slot| keys.push(slot.key));
            // The slots come in no order; the same life of a process ends in the same one.
            keys.sort();
            for key in keys {
                // One that has left meanwhile needs no stopping.
                let _ = sector.slots.tell_live(&key, mail());
            }
        }
    }

    async fn until_empty(&self, patience: Duration) {
        let clock = &self.kernel.ports().clock;
        let end = clock.mono() + patience;
        while self.live() > 0 && clock.mono() < end {
            tokio::time::sleep(POLL_EVERY).await;
        }
    }
}

pub(crate) fn shard_path(index: usize) -> String {
    format!("/registry/{index}")
}

impl QueuedSink for Registry {
    fn queued(&self, queued: Queued) {
        if planted(Bug::LostPoke) {
            self.wake(&queued.key, false, None);
            return;
        }
        // A session that must not be live finds its message in the journal later.
        let _ = self.reach(&queued.key, Mail::Queued(queued.item));
    }
}

impl Sessions for Registry {
    fn tell(&self, key: &SessionKey, mail: Mail) -> Result<(), Unreachable> {
        let Err(mail) = self.answer_for(key, mail) else { return Ok(()) };
        self.reach(key, mail).map_err(|_| {
            let (_, sector) = self.sector(key);
            if sector.waitlist.holds(key) {
                Unreachable::Quarantined
            } else if self.is_stopping() {
                Unreachable::Stopping
            } else {
                Unreachable::Paused
            }
        })
    }

    fn tell_live(&self, key: &SessionKey, mail: Mail) -> Result<(), Mail> {
        let Err(mail) = self.answer_for(key, mail) else { return Ok(()) };
        self.sector(key).1.slots.tell_live(key, mail)
    }

    fn state(&self, key: &SessionKey) -> Option<State> {
        let (_, sector) = self.sector(key);
        sector.slots.view(key).map(|slot| slot.note.state).or_else(|| sector.waitlist.state(key))
    }

    fn steers(&self, key: &SessionKey) -> Option<Lane> {
        self.sector(key).1.slots.view(key)?.note.steers
    }

    fn live(&self) -> usize {
        self.sectors.iter().map(|sector| sector.slots.len()).sum()
    }

    fn tree(&self) -> TreeNode {
        self.snapshot()
    }

    fn top(&self, query: &TopQuery) -> SessionsTop {
        self.busiest(query)
    }

    fn release(&self, key: &SessionKey) -> bool {
        let (_, sector) = self.sector(key);
        let Some(held) = sector.waitlist.release(key) else { return false };
        if let Some(journal) = self.journal() {
            // Nobody waits for it: should it not get to the disk, the next process holds the session back again.
            drop(journal.unquarantine(key.clone()));
        }
        self.released(key, held, "by hand");
        true
    }
}
