//! One timer per arbiter for all sessions that have something to wait for: a stall, a retry, an idle conversation.
//!
//! A session joins for one tick and joins again if it still needs one, so sleeping sessions cost nothing, and the timer
//! itself ends when nobody has joined.

use std::cell::RefCell;
use std::time::Duration;

use actix::WeakRecipient;
use supervision::tell;

/// Time passed.
#[derive(Debug, actix::Message)]
#[rtype(result = "()")]
pub struct Tick;

/// The shortest period.
const PERIOD_MIN: Duration = Duration::from_millis(10);
/// The longest period.
const PERIOD_MAX: Duration = Duration::from_secs(5);

#[derive(Default)]
struct Sweep {
    members: Vec<WeakRecipient<Tick>>,
    runs: bool,
}

thread_local! {
    static SWEEP: RefCell<Sweep> = RefCell::default();
}

/// Ends the sweep's claim to run, also when its runtime is dropped under it.
struct Runs;

impl Drop for Runs {
    fn drop(&mut self) {
        // The thread may be ending; then nobody asks any more.
        let _ = SWEEP.try_with(|sweep| sweep.borrow_mut().runs = false);
    }
}

/// How often to look after limits of these lengths.
pub fn period(limits: [Duration; 2]) -> Duration {
    let shortest = limits.into_iter().min().unwrap_or(PERIOD_MAX);
    (shortest / 4).clamp(PERIOD_MIN, PERIOD_MAX)
}

/// Sends `member` one [`Tick`] within `period`.
pub fn join(member: WeakRecipient<Tick>, period: Duration) {
    let begin = SWEEP.with_borrow_mut(|sweep| {
        sweep.members.push(member);
        !std::mem::replace(&mut sweep.runs, true)
    });
    if begin {
        actix_rt::spawn(run(period, Runs));
    }
}

async fn run(period: Duration, _runs: Runs) {
    loop {
        tokio::time::sleep(period).await;
        let members = SWEEP.with_borrow_mut(|sweep| std::mem::take(&mut sweep.members));
        if members.is_empty() {
            return;
        }
        for member in members {
            if let Some(member) = member.upgrade() {
                // A session that has left needs no tick.
                let _ = tell(&member, Tick);
            }
        }
    }
}
