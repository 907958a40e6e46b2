use proptest::prelude::*;

use super::*;

const POLICY: RestartPolicy = RestartPolicy {
    intensity: 5,
    window: Duration::from_secs(60),
    backoff_base: Duration::from_millis(100),
    backoff_cap: Duration::from_secs(30),
    quiet: Duration::from_secs(40),
};

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

#[test]
fn the_fifth_crash_within_a_minute_is_the_last() {
    let mut crashes = CrashHistory::default();
    for n in 1..5 {
        assert!(
            matches!(crashes.crashed(&POLICY, secs(n), 0), Verdict::Restart { in_window, .. } if u64::from(in_window) == n)
        );
    }
    assert_eq!(crashes.crashed(&POLICY, secs(5), 0), Verdict::GiveUp { in_window: 5 });
}

#[test]
fn old_crashes_leave_the_window() {
    let mut crashes = CrashHistory::default();
    for n in 0..100 {
        assert!(matches!(crashes.crashed(&POLICY, secs(n * 15), 0), Verdict::Restart { .. }), "crash {n}");
    }
}

#[test]
fn backoff_doubles_within_a_streak_and_begins_anew_after_a_quiet_time() {
    let loose = RestartPolicy { intensity: 1000, ..POLICY };
    let mut crashes = CrashHistory::default();
    // random = 0 leaves the fixed half.
    for (n, half_ms) in [(1, 50), (2, 100), (3, 200), (4, 400)] {
        let verdict = crashes.crashed(&loose, secs(n), 0);
        assert_eq!(verdict, Verdict::Restart { backoff: Duration::from_millis(half_ms), in_window: n as u32 });
    }
    let after_quiet = crashes.crashed(&loose, secs(44), 0);
    assert!(matches!(after_quiet, Verdict::Restart { backoff, .. } if backoff == Duration::from_millis(50)));
}

#[test]
fn forgiven_crashes_do_not_count() {
    let mut crashes = CrashHistory::default();
    for round in 0..10 {
        for n in 0..4 {
            let verdict = crashes.crashed(&POLICY, secs(round * 4 + n), 0);
            assert!(matches!(verdict, Verdict::Restart { .. }));
        }
        crashes.forgive();
    }
}

proptest! {
    #[test]
    fn restarts_in_any_window_stay_below_the_intensity(
        gaps_ms in proptest::collection::vec(0u64..40_000, 1..200),
        intensity in 1u32..8,
        random: u64,
    ) {
        let policy = RestartPolicy { intensity, ..POLICY };
        let mut crashes = CrashHistory::default();
        let mut now = Duration::ZERO;
        let mut restarts: Vec<Duration> = Vec::new();
        for gap in gaps_ms {
            now += Duration::from_millis(gap);
            match crashes.crashed(&policy, now, random) {
                Verdict::Restart { backoff, in_window } => {
                    prop_assert!(backoff <= policy.backoff_cap);
                    prop_assert!(backoff >= policy.backoff_base / 2);
                    restarts.push(now);
                    let counted = restarts.iter().filter(|at| now.saturating_sub(**at) < policy.window).count();
                    prop_assert!(counted <= in_window as usize);
                    prop_assert!(in_window < intensity);
                }
                Verdict::GiveUp { in_window } => {
                    prop_assert!(in_window >= intensity);
                    // A new activation begins with a clean history.
                    crashes = CrashHistory::default();
                    restarts.clear();
                }
            }
        }
    }
}
