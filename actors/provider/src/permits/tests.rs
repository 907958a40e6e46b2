use std::collections::VecDeque;

use actix::Recipient;
use domain::ids::{Attempt, Epoch, TurnId};
use proptest::prelude::*;
use protocol::turn::Stamp;
use testkit::deadline::run;
use testkit::probe::Probe;
use tokio_util::sync::CancellationToken;

use super::*;

fn key(name: usize) -> SessionKey {
    SessionKey::new(&format!("test:{name}")).unwrap()
}

fn ask(session: usize, round: u32, to: &Recipient<Event>) -> AskPermit {
    let stamp =
        Stamp { epoch: Epoch(1), turn: TurnId(uuid::Uuid::from_u128(session as u128)), attempt: Attempt(1), round };
    AskPermit {
        stamp,
        key: key(session),
        urgency: Urgency::Turn,
        cancel: CancellationToken::new(),
        reply_to: to.clone(),
    }
}

/// The next grant: session, round, place.
async fn granted(probe: &mut Probe<Event>) -> (usize, u32, Permit) {
    let Event::Permitted { stamp, permit } = probe.next().await else { panic!("no permit") };
    (usize::try_from(stamp.turn.0.as_u128()).unwrap(), stamp.round, permit)
}

#[test]
fn a_session_with_nothing_running_comes_before_one_that_asks_twice() {
    run("fairness", async {
        let (places, mut probe) = (Places::new(2, Arc::new(supervision::real::RealClock::new())), Probe::new());
        let to = probe.recipient();
        for (session, round) in [(1, 1), (1, 2), (1, 3), (2, 1), (3, 1), (2, 2)] {
            places.ask(ask(session, round, &to));
        }
        let first = granted(&mut probe).await;
        let second = granted(&mut probe).await;
        assert_eq!((first.0, first.1, second.0, second.1), (1, 1, 1, 2));
        let mut held = VecDeque::from([first.2, second.2]);
        let mut order = Vec::new();
        for _ in 0..4 {
            assert!(probe.try_next().is_none(), "more than two places were given out");
            held.pop_front();
            let (session, round, permit) = granted(&mut probe).await;
            order.push((session, round));
            held.push_back(permit);
        }
        // By its turn (1, 3) is alone again: both earlier calls of its session have ended.
        assert_eq!(order, [(2, 1), (1, 3), (3, 1), (2, 2)]);
    });
}

#[test]
fn a_call_for_which_nobody_waits_gives_way_to_turns_and_takes_what_they_leave() {
    run("spare", async {
        let (places, mut probe) = (Places::new(2, Arc::new(supervision::real::RealClock::new())), Probe::new());
        let to = probe.recipient();
        let spare = |session| AskPermit { urgency: Urgency::Spare, ..ask(session, 9, &to) };
        let asks = [spare(1), spare(2), spare(3)];
        let cancels = asks.each_ref().map(|ask| ask.cancel.clone());
        let cancelled = || cancels.each_ref().map(CancellationToken::is_cancelled);
        for ask in asks {
            places.ask(ask);
        }
        let [first, second] = [granted(&mut probe).await, granted(&mut probe).await];
        assert_eq!((first.0, second.0, cancelled(), places.count()), (1, 2, [false; 3], [2, 1]));
        // The call of its own session takes no place from a turn, and counts for no place of it.
        places.ask(ask(1, 1, &to));
        assert_eq!(cancelled(), [true, false, false]);
        drop(first);
        let (session, round, turn) = granted(&mut probe).await;
        assert_eq!((session, round, cancelled()), (1, 1, [true, false, false]));
        places.ask(ask(4, 1, &to));
        places.ask(ask(5, 1, &to));
        assert_eq!(cancelled(), [true, true, false]);
        drop(turn);
        let (session, _, turn) = granted(&mut probe).await;
        drop(second);
        let (other, _, of_other) = granted(&mut probe).await;
        assert_eq!((session, other, places.count()), (4, 5, [2, 1]));
        // Only now is there a place that nobody else wants.
        drop(turn);
        let (session, round, _place) = granted(&mut probe).await;
        assert_eq!((session, round, cancelled()), (3, 9, [true, true, false]));
        drop(of_other);
    });
}

#[test]
fn who_gave_up_or_is_gone_gets_no_place_and_holds_none() {
    run("leavers", async {
        let (places, mut probe) = (Places::new(1, Arc::new(supervision::real::RealClock::new())), Probe::new());
        let to = probe.recipient();
        places.ask(ask(1, 1, &to));
        let held = granted(&mut probe).await.2;
        let cancelled = ask(2, 1, &to);
        let cancel = cancelled.cancel.clone();
        places.ask(cancelled);
        let gone = Probe::new();
        places.ask(ask(3, 1, &gone.recipient()));
        places.ask(ask(4, 1, &to));
        cancel.cancel();
        gone.stop().await;
        drop(held);
        let (session, _, permit) = granted(&mut probe).await;
        assert_eq!(session, 4);
        drop(permit);
        let state = places.lock();
        assert_eq!((state.free, state.running.len(), state.waiting.len(), state.ranks.len()), (1, 0, 0, 0));
    });
}

#[test]
fn cancelled_asks_do_not_pile_up() {
    run("sweep", async {
        let (places, mut probe) = (Places::new(1, Arc::new(supervision::real::RealClock::new())), Probe::new());
        let to = probe.recipient();
        places.ask(ask(0, 1, &to));
        let _held = granted(&mut probe).await.2;
        for round in 0..20_000 {
            let ask = ask(1, round, &to);
            let cancel = ask.cancel.clone();
            places.ask(ask);
            cancel.cancel();
        }
        assert!(places.lock().waiting.len() <= SWEEP_MIN);
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn places_are_never_lost_nor_made(steps in proptest::collection::vec((0usize..4, 0usize..5), 1..60), max in 1usize..4) {
        run("places", async move {
            let (places, mut probe) = (Places::new(max, Arc::new(supervision::real::RealClock::new())), Probe::new());
            let (to, mut held, mut cancels) = (probe.recipient(), Vec::new(), Vec::new());
            for (what, which) in steps {
                match what {
                    0 | 1 => {
                        let ask = ask(which, 1, &to);
                        cancels.push(ask.cancel.clone());
                        places.ask(ask);
                    }
                    2 if !held.is_empty() => drop(held.swap_remove(which % held.len())),
                    _ => {
                        if let Some(cancel) = cancels.get(which) {
                            cancel.cancel();
                        }
                    }
                }
                tokio::task::yield_now().await;
                while let Some(event) = probe.try_next() {
                    held.push(event);
                }
                let state = places.lock();
                let running: usize = state.running.values().sum();
                assert_eq!(running + state.free, max);
                assert!(state.free == 0 || state.waiting.is_empty());
                let ranks: usize = state.ranks.values().map(Vec::len).sum();
                assert_eq!(ranks, state.waiting.len());
                for (key, ranks) in &state.ranks {
                    let running = state.running.get(key).copied().unwrap_or(0);
                    for (before, rank) in ranks.iter().enumerate() {
                        assert_eq!(rank.0, running + before);
                        assert_eq!(&state.waiting[rank].key, key);
                    }
                }
            }
        });
    }
}
