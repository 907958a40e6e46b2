//! Brings the file writes of many sessions of one arbiter to the blocking pool together, and their outcomes back.
//!
//! Nobody waits for a file but the next turn of its session, so writes are gathered for a moment and go over in pieces:
//! two wake-ups of a thread for many of them. A turn that waits hurries all that has gathered, once whoever else is about
//! to do something has done it.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use supervision::ports::{Offload, offload};

/// How long a write waits for others at most.
const WAIT: Duration = Duration::from_millis(10);
/// Writes in one piece, so that a slow one holds up few others.
const PIECE_MAX: usize = 32;

/// What is done on the pool; gives what is then done on the arbiter.
pub type Job = Box<dyn FnOnce() -> Outcome + Send>;
/// Tells the session.
pub type Outcome = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Gather {
    jobs: Vec<Job>,
    /// Somebody hands over in time.
    runs: bool,
    /// Somebody hands over as soon as he gets his turn.
    hurries: bool,
}

thread_local! {
    static GATHER: RefCell<Gather> = RefCell::default();
}

/// Ends the claim to hand over in time, also when the runtime is dropped under it; then what has gathered is dropped.
struct Runs;

impl Drop for Runs {
    fn drop(&mut self) {
        // The thread may be ending; then nobody asks any more.
        let _ = GATHER.try_with(|gather| gather.take());
    }
}

/// Ends the claim to hand over at once.
struct Hurries;

impl Drop for Hurries {
    fn drop(&mut self) {
        // As above.
        let _ = GATHER.try_with(|gather| gather.borrow_mut().hurries = false);
    }
}

/// Runs `job` on `pool`, with those of other sessions.
pub fn run_soon(pool: &Arc<dyn Offload>, job: Job) {
    let (full, begin) = GATHER.with_borrow_mut(|gather| {
        gather.jobs.push(job);
        (gather.jobs.len() == PIECE_MAX, !std::mem::replace(&mut gather.runs, true))
    });
    if full {
        hand_over(&**pool);
    }
    if begin {
        let pool = Arc::clone(pool);
        actix_rt::spawn(async move {
            let _runs = Runs;
            tokio::time::sleep(WAIT).await;
            hand_over(&*pool);
        });
    }
}

/// Hands over what has gathered behind the tasks that are ready to run now: they may have something to add.
pub fn hurry(pool: &Arc<dyn Offload>) {
    let begin = GATHER.with_borrow_mut(|gather| !std::mem::replace(&mut gather.hurries, true));
    if begin {
        let pool = Arc::clone(pool);
        let hurries = Hurries;
        actix_rt::spawn(async move {
            drop(hurries);
            hand_over(&*pool);
        });
    }
}

fn hand_over(pool: &dyn Offload) {
    let jobs = GATHER.with_borrow_mut(|gather| std::mem::take(&mut gather.jobs));
    if jobs.is_empty() {
        return;
    }
    let done = offload(pool, move || jobs.into_iter().map(|job| job()).collect::<Vec<_>>());
    actix_rt::spawn(async move {
        // Should a job have panicked, its piece is dropped, and the sessions notice that.
        for outcome in done.await.unwrap_or_default() {
            outcome();
        }
    });
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use supervision::memory::{InlineOffload, RuntimeClock};
    use supervision::ports::Clock;
    use testkit::deadline::run_paused;

    use super::*;

    /// Counts how many pieces come.
    #[derive(Default)]
    struct Pieces(AtomicUsize);

    impl Offload for Pieces {
        fn run(&self, job: Box<dyn FnOnce() + Send>) {
            self.0.fetch_add(1, Ordering::SeqCst);
            InlineOffload.run(job);
        }
    }

    #[test]
    fn jobs_of_one_moment_go_together_and_in_order() {
        run_paused("gather", async {
            let pieces = Arc::new(Pieces::default());
            let pool: Arc<dyn Offload> = pieces.clone();
            let done = Arc::new(Mutex::new(Vec::new()));
            for (round, expected) in [(0, 3), (1, 6)] {
                let (tx, rx) = tokio::sync::oneshot::channel();
                let mut tx = Some(tx);
                for number in 0..70 {
                    let (done, tx) = (Arc::clone(&done), tx.take_if(|_| number == 69));
                    let job = move || -> Outcome {
                        done.lock().unwrap().push(round * 70 + number);
                        Box::new(move || tx.into_iter().for_each(|tx| tx.send(()).unwrap()))
                    };
                    run_soon(&pool, Box::new(job));
                }
                rx.await.unwrap();
                assert_eq!(pieces.0.load(Ordering::SeqCst), expected);
            }
            assert_eq!(*done.lock().unwrap(), (0..140).collect::<Vec<_>>());
        });
    }

    #[test]
    fn whoever_is_in_a_hurry_takes_the_others_along() {
        run_paused("hurry", async {
            let pieces = Arc::new(Pieces::default());
            let pool: Arc<dyn Offload> = pieces.clone();
            let done = Arc::new(AtomicUsize::new(0));
            for _ in 0..3 {
                let done = Arc::clone(&done);
                let job = move || -> Outcome {
                    Box::new(move || {
                        done.fetch_add(1, Ordering::SeqCst);
                    })
                };
                run_soon(&pool, Box::new(job));
            }
            let clock = RuntimeClock::new();
            let begin = clock.mono();
            hurry(&pool);
            hurry(&pool);
            run_soon(&pool, Box::new(|| Box::new(|| ())));
            while done.load(Ordering::SeqCst) < 3 {
                tokio::task::yield_now().await;
            }
            assert_eq!((pieces.0.load(Ordering::SeqCst), clock.mono() - begin), (1, Duration::ZERO));
        });
    }
}
