//! Random runs: whatever happens in whatever order, nothing is lost, nothing runs twice at once.

use std::time::Duration;

use domain::ids::TurnId;
use proptest::prelude::*;
use protocol::registry::Sessions;
use protocol::session::Mail;
use testkit::deadline::run_paused;

use crate::stage::{Stage, key, pass};

const IDLE: Duration = Duration::from_secs(20);
const QUARANTINE: Duration = Duration::from_secs(5);

#[derive(Debug, Clone)]
enum Op {
    Enqueue { key: u32, bombs: u32 },
    Passivate(u32),
    Release(u32),
    Rude(u32),
    Pass(Duration),
}

fn op() -> impl Strategy<Value = Op> {
    let key = 0u32..4;
    prop_oneof![
        6 => (key.clone(), prop_oneof![5 => Just(0), 2 => 1u32..3, 1 => 4u32..12])
            .prop_map(|(key, bombs)| Op::Enqueue { key, bombs }),
        3 => key.clone().prop_map(Op::Passivate),
        1 => key.clone().prop_map(Op::Release),
        1 => key.prop_map(Op::Rude),
        3 => (0u64..200).prop_map(|ms| Op::Pass(Duration::from_millis(ms))),
        1 => (0u64..30).prop_map(|seconds| Op::Pass(Duration::from_secs(seconds))),
    ]
}

async fn play(ops: Vec<Op>) -> (Vec<(u32, TurnId)>, Stage) {
    let stage = Stage::timed(3, 2, IDLE, QUARANTINE);
    let mut accepted = Vec::new();
    for op in ops {
        match op {
            Op::Enqueue { key: n, bombs } => accepted.push((n, stage.enqueue(&key(n), bombs))),
            Op::Passivate(n) => {
                let _ = stage.registry.tell_live(&key(n), Mail::Passivate);
            }
            Op::Release(n) => {
                stage.registry.release(&key(n));
            }
            Op::Rude(n) => stage.watched.rude.lock().unwrap().push(key(n)),
            Op::Pass(time) => pass(time).await,
        }
    }
    stage.watched.rude.lock().unwrap().clear();
    // Long enough for every quarantine, and for every session to leave memory.
    pass(QUARANTINE * 36 * 4 + IDLE).await;
    (accepted, stage)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn nothing_is_lost_and_no_key_lives_twice(ops in proptest::collection::vec(op(), 1..40)) {
        run_paused("random", async {
            let (accepted, stage) = play(ops).await;
            let done = stage.journal.done.lock().unwrap().clone();
            for n in 0..4 {
                let accepted: Vec<_> = accepted.iter().filter(|(of, _)| *of == n).map(|(_, turn)| *turn).collect();
                let done: Vec<_> = done.iter().filter(|(of, _)| *of == key(n)).map(|(_, turn)| *turn).collect();
                prop_assert_eq!(done, accepted, "once each, in order");
            }
            prop_assert!(*stage.watched.live_max.lock().unwrap() <= 1);
            prop_assert_eq!(stage.live(), 0);
            prop_assert!(stage.watched.live.lock().unwrap().values().all(|live| *live == 0));
            Ok(())
        })?;
    }
}
