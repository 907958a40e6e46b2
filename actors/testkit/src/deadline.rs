//! Deadlines in real time, also where tokio's clock is paused: a paused clock jumps ahead whenever everybody waits, so
//! a tokio timer says nothing about a wait for another thread.

use std::future::Future;
use std::sync::mpsc;
use std::time::Duration;

/// How long a wait may last. Far above what any test needs, as machines may be busy.
pub const DEADLINE: Duration = Duration::from_secs(30);

/// Awaits `future`.
///
/// # Panics
/// With `name` when it takes longer than [`DEADLINE`].
pub async fn with_deadline<F: Future>(name: &str, future: F) -> F::Output {
    let (over, is_over) = tokio::sync::oneshot::channel();
    // Dropping `alive` ends the thread at once.
    let (alive, watched) = mpsc::channel::<()>();
    std::thread::spawn(move || {
        if watched.recv_timeout(DEADLINE) == Err(mpsc::RecvTimeoutError::Timeout) {
            // The test may just have come to its end.
            let _ = over.send(());
        }
    });
    tokio::select! {
        biased;
        output = future => {
            drop(alive);
            output
        }
        Ok(()) = is_over => panic!("{name}: nothing came within {DEADLINE:?}"),
    }
}

/// Runs an actor test to its end under a deadline, with an actix system around it.
pub fn run<F: Future>(name: &str, test: F) -> F::Output {
    actix_rt::System::new().block_on(with_deadline(name, test))
}

/// Like [`run`], with tokio's clock paused: timers fire in order as soon as nothing else is left to do.
pub fn run_paused<F: Future>(name: &str, test: F) -> F::Output {
    let system = actix_rt::System::with_tokio_rt(|| {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all().start_paused(true).build().expect("a runtime needs only file handles")
    });
    system.block_on(with_deadline(name, test))
}

/// Awaits `future` and says how long it took on tokio's clock, which is exact where that clock is paused.
pub async fn timed<F: Future>(future: F) -> (F::Output, Duration) {
    #[expect(clippy::disallowed_methods, reason = "the clock that is asked about is tokio's own")]
    let now = tokio::time::Instant::now;
    let begun = now();
    let output = future.await;
    (output, now() - begun)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_paused_clock_jumps_and_does_not_end_the_deadline() {
        run_paused("an hour", async {
            let ((), took) = timed(tokio::time::sleep(Duration::from_secs(3600))).await;
            assert!(took >= Duration::from_secs(3600));
        });
    }
}
