//! Brings the file writes of many sessions of one arbiter to the blocking pool together, and their outcomes back.
//!
//! One sync of the journal makes many commits durable at once, so their sessions write at the same moment. What has
//! gathered when all of them have had their turn goes over in one piece: two wake-ups of a thread instead of many.

use std::cell::RefCell;
use std::sync::Arc;

use supervision::ports::{Offload, offload};

/// Writes in one piece, so that a slow one holds up few others.
const PIECE_MAX: usize = 32;

/// What is done on the pool; gives what is then done on the arbiter.
pub type Job = Box<dyn FnOnce() -> Outcome + Send>;
/// Tells the session.
pub type Outcome = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Gather {
    jobs: Vec<Job>,
    runs: bool,
}

thread_local! {
    static GATHER: RefCell<Gather> = RefCell::default();
}

/// Ends the claim to gather, also when the runtime is dropped under it; what was not handed over is dropped.
struct Runs;

impl Drop for Runs {
    fn drop(&mut self) {
        // The thread may be ending; then nobody asks any more.
        let _ = GATHER.try_with(|gather| gather.take());
    }
}

/// Runs `job` on `pool`, with those of other sessions.
pub fn run_soon(pool: &Arc<dyn Offload>, job: Job) {
    let begin = GATHER.with_borrow_mut(|gather| {
        gather.jobs.push(job);
        !std::mem::replace(&mut gather.runs, true)
    });
    if begin {
        let pool = Arc::clone(pool);
        actix_rt::spawn(async move {
            let runs = Runs;
            tokio::task::yield_now().await;
            let jobs = GATHER.with_borrow_mut(|gather| std::mem::take(&mut gather.jobs));
            drop(runs);
            hand_over(&*pool, jobs);
        });
    }
}

fn hand_over(pool: &dyn Offload, mut jobs: Vec<Job>) {
    while !jobs.is_empty() {
        let rest = jobs.split_off(jobs.len().min(PIECE_MAX));
        let piece = std::mem::replace(&mut jobs, rest);
        let done = offload(pool, move || piece.into_iter().map(|job| job()).collect::<Vec<_>>());
        actix_rt::spawn(async move {
            // Should a job have panicked, its piece is dropped, and the sessions notice that.
            for outcome in done.await.unwrap_or_default() {
                outcome();
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use supervision::memory::InlineOffload;
    use testkit::deadline::run;

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
        run("gather", async {
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
}
