//! One process of a run: what its actors see of the outside, and how it ends.

use std::panic::panic_any;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use domain::ids::SessionKey;
use greenroom::app::App;
use protocol::session::Mail;
use protocol::supervision::Kind;
use supervision::memory::PowerCutDisk;
use supervision::planted::acting;
use tokio::sync::Notify;

use super::books::Books;
use super::dice::{Dice, Stream};
use super::plan::{How, Plan};

/// The first of January 2026.
const WALL_BEGIN_US: u64 = 1_767_225_600_000_000;

/// One run, over all of its processes.
pub struct World {
    /// The seed.
    pub seed: u64,
    /// What it makes happen.
    pub plan: Plan,
    /// What was seen.
    pub books: Mutex<Books>,
    /// The wall clock at the start of the present process.
    pub wall_us: AtomicU64,
    /// The step of the plan that comes next.
    pub step: AtomicUsize,
    /// Before this time no process begins, in milliseconds since 1970.
    pub until_ms: AtomicU64,
}

/// One process.
pub struct Process {
    /// Its run.
    pub world: Arc<World>,
    /// Which one it is, from 1.
    pub number: u32,
    /// Its disk.
    pub disk: Arc<PowerCutDisk>,
    /// What the model does.
    pub model: Dice,
    /// What the tools do.
    pub tools: Dice,
    /// How long the disk and the pool take.
    pub pool: Dice,
    /// What the clients do.
    pub clients: Dice,
    /// What the push channel does.
    pub pushes: Dice,
    death: Dice,
    /// Who is asked to leave memory at the next sync.
    leaver: Mutex<Option<SessionKey>>,
    alive: AtomicBool,
    calm: AtomicBool,
    jumped_us: AtomicI64,
    /// When the model was asked last, or could not have been, in milliseconds since the start.
    moved_ms: AtomicU64,
    full: AtomicBool,
    left: Mutex<Option<(How, Arc<PowerCutDisk>)>>,
    dies_at: Mutex<Option<(How, u64)>>,
    fuse: Mutex<Option<(Kind, u64)>>,
    app: Mutex<Weak<App>>,
    ended: Notify,
    began: tokio::time::Instant,
}

/// What an actor panics with when it is told to.
pub const FUSE: &str = "the simulation lets this fail";

/// A lock that nobody leaves in pieces: whatever panics in here was told to.
pub fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl World {
    /// A run before its first process.
    pub fn new(seed: u64, trace: bool) -> Arc<Self> {
        let plan = Plan::new(seed);
        let books = Mutex::new(Books::new(&plan, trace));
        let begin_us = plan.work.as_ref().map_or(WALL_BEGIN_US, |work| work.begin_ms * 1000);
        let (step, until_ms) = (AtomicUsize::new(0), AtomicU64::new(0));
        Arc::new(Self { seed, plan, books, wall_us: AtomicU64::new(begin_us), step, until_ms })
    }

    /// The books.
    pub fn books(&self) -> MutexGuard<'_, Books> {
        locked(&self.books)
    }
}

impl Process {
    /// On the runtime that it runs on.
    #[expect(clippy::disallowed_methods, reason = "this is the clock that the actors ask")]
    pub fn new(world: Arc<World>, number: u32, disk: Arc<PowerCutDisk>) -> Arc<Self> {
        let dice = |stream: fn(u32) -> Stream| Dice::new(world.seed, stream(number));
        Arc::new(Self {
            number,
            disk,
            model: dice(Stream::Model),
            tools: dice(Stream::Tools),
            pool: dice(Stream::Pool),
            clients: dice(Stream::Client),
            pushes: dice(Stream::Pushes),
            leaver: Mutex::new(None),
            death: dice(Stream::Death),
            alive: AtomicBool::new(true),
            calm: AtomicBool::new(false),
            jumped_us: AtomicI64::new(0),
            moved_ms: AtomicU64::new(0),
            full: AtomicBool::new(false),
            left: Mutex::new(None),
            dies_at: Mutex::new(None),
            fuse: Mutex::new(None),
            app: Mutex::new(Weak::new()),
            ended: Notify::new(),
            began: tokio::time::Instant::now(),
            world,
        })
    }

    // --- events ---

    /// Whether it has not ended.
    pub fn is_alive(&self) -> bool {
        self.alive.load(Ordering::SeqCst)
    }

    /// Enters an event, and checks what must be true after each.
    pub fn note(&self, enter: impl FnOnce(&mut Books) -> String) {
        if !self.is_alive() {
            return;
        }
        let status = locked(&self.app).upgrade().map(|app| app.journal().status());
        let mut books = self.world.books();
        let line = enter(&mut books);
        let line = format!("{}.{:09.3} {line}", self.number, self.mono().as_secs_f64());
        books.line(line);
        if let Some(status) = status {
            books.check_totals(&status);
        }
        let failed = books.failure.is_some();
        drop(books);
        if failed {
            self.end(How::Kill);
        }
    }

    /// Who is asked for the totals after each event.
    pub fn watch(&self, app: &Arc<App>) {
        *locked(&self.app) = Arc::downgrade(app);
    }

    // --- the end ---

    /// The process dies here and now: nothing that happens afterwards counts.
    pub fn die(&self, how: How) {
        self.note(|books| {
            match how {
                How::Kill => books.counts.kills += 1,
                How::Power => books.counts.power_cuts += 1,
            }
            format!("the process dies: {how:?}")
        });
        self.end(how);
    }

    fn end(&self, how: How) {
        if self.alive.swap(false, Ordering::SeqCst) {
            self.world.books().jobs.disturbed(self.wall_ms(), None);
            let left = match how {
                How::Kill => self.disk.copy(),
                How::Power => self.disk.cut(self.death.bits()),
            };
            self.disk.power_off_at(0);
            *locked(&self.left) = Some((how, left));
            self.ended.notify_one();
        }
    }

    /// Returns when the process has died.
    pub async fn died(&self) {
        if self.is_alive() {
            self.ended.notified().await;
        }
    }

    /// What the process has left, should it have died.
    pub fn left(&self) -> Option<Arc<PowerCutDisk>> {
        locked(&self.left).as_ref().map(|(_, disk)| disk.clone())
    }

    /// From now on the process does nothing that counts; it was stopped in order.
    pub fn stopped(&self) {
        self.world.books().jobs.disturbed(self.wall_ms(), None);
        self.alive.store(false, Ordering::SeqCst);
    }

    /// It dies in the middle of the `n`th change of the disk from now on.
    pub fn die_at_change(&self, how: How, n: u64) {
        *locked(&self.dies_at) = Some((how, n));
    }

    /// Counts a change of the disk; whether the process dies in the middle of it.
    pub fn change(&self) -> Option<How> {
        let mut dies_at = locked(&self.dies_at);
        let (how, left) = dies_at.as_mut()?;
        *left = left.saturating_sub(1);
        if *left > 0 {
            return None;
        }
        let how = *how;
        *dies_at = None;
        Some(how)
    }

    /// The model was asked.
    pub fn moved(&self) {
        self.moved_ms.store(self.now_ms(), Ordering::SeqCst);
    }

    /// For how long nobody has asked the model though that could be.
    pub fn still_ms(&self) -> u64 {
        self.now_ms() - self.moved_ms.load(Ordering::SeqCst)
    }

    /// The disk is full, or no longer.
    pub fn set_full(&self, full: bool) {
        self.disturb();
        self.moved();
        self.full.store(full, Ordering::SeqCst);
        self.disk.set_full(full);
    }

    /// Whether it is.
    pub fn is_full(&self) -> bool {
        self.full.load(Ordering::SeqCst)
    }

    // --- faults ---

    /// Something may go wrong from now on.
    pub fn disturb(&self) {
        let now_ms = self.wall_ms();
        self.world.books().jobs.disturbed(now_ms, Some(now_ms));
    }

    /// A session is asked to leave memory when something was made durable next: before whoever waits for that hears of it.
    pub fn leave_at_sync(&self, key: &SessionKey) {
        *locked(&self.leaver) = Some(key.clone());
    }

    /// Something was made durable.
    pub fn synced(&self) {
        let Some(key) = locked(&self.leaver).take() else { return };
        let Some(app) = locked(&self.app).upgrade() else { return };
        // One that is not live need not leave.
        let _ = app.sessions().tell_live(&key, Mail::Passivate);
    }

    /// An actor of this kind panics at its `after`th call to the outside from now on.
    pub fn set_fuse(&self, kind: Kind, after: u64) {
        self.disturb();
        *locked(&self.fuse) = Some((kind, after));
    }

    /// An actor calls the outside: it may have to panic.
    pub fn touch(&self) {
        let Some(kind) = acting().filter(|_| !std::thread::panicking()) else { return };
        let mut fuse = locked(&self.fuse);
        let Some((_, left)) = fuse.as_mut().filter(|(of, _)| *of == kind) else { return };
        if *left > 0 {
            *left -= 1;
            return;
        }
        *fuse = None;
        drop(fuse);
        panic_any(FUSE);
    }

    /// From now on nothing goes wrong by itself.
    pub fn calm_down(&self) {
        self.calm.store(true, Ordering::SeqCst);
        *locked(&self.fuse) = None;
        *locked(&self.dies_at) = None;
        self.set_full(false);
        self.disk.forget_faults();
    }

    /// Whether something goes wrong that does so `permille` times out of 1000.
    pub fn goes_wrong(&self, dice: &Dice, permille: u64) -> bool {
        dice.often(permille) && !self.calm.load(Ordering::SeqCst)
    }

    // --- time ---

    /// Since its start.
    pub fn mono(&self) -> Duration {
        self.began.elapsed()
    }

    /// Milliseconds since its start.
    pub fn now_ms(&self) -> u64 {
        u64::try_from(self.mono().as_millis()).unwrap_or(u64::MAX)
    }

    /// The wall clock.
    pub fn wall_us(&self) -> u64 {
        let mono_us = u64::try_from(self.mono().as_micros()).unwrap_or(u64::MAX);
        let wall = self.world.wall_us.load(Ordering::SeqCst).saturating_add(mono_us);
        wall.saturating_add_signed(self.jumped_us.load(Ordering::SeqCst))
    }

    /// The same in milliseconds.
    pub fn wall_ms(&self) -> u64 {
        self.wall_us() / 1000
    }

    /// Sets the wall clock so much forward or back.
    pub fn jump_wall(&self, seconds: i64) {
        let before_ms = self.wall_ms();
        self.jumped_us.fetch_add(seconds.saturating_mul(1_000_000), Ordering::SeqCst);
        self.world.books().jobs.jumped(before_ms, self.wall_ms());
    }
}
