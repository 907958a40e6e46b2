//! The machine against a model of journal, receiver and crashes; then single rules by example.

mod actor;
mod model;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use domain::ids::{DeliveryId, SessionKey, TurnId};
use proptest::prelude::*;
use protocol::journal::{Out, OutRow, Rows};
use protocol::turn::PushRoute;
use uuid::Uuid;

use super::Outcome;
use super::machine::{Effect, Input, Machine, Now, Rules};
use model::World;

pub(super) fn id(number: u64) -> DeliveryId {
    DeliveryId { turn: TurnId(Uuid::from_u128(number.into())), n: 1 }
}

pub(super) fn row(number: u64, channel: &str, chat: &str, committed_ms: u64) -> OutRow {
    let (id, chat) = (id(number), Arc::<str>::from(chat));
    let route = PushRoute { channel: channel.into(), account: "default".into(), chat: chat.clone(), thread: None };
    OutRow {
        out: Out { id, turn: id.turn, route, parts: 1, text: format!("reply {number}").into() },
        key: SessionKey::new(&format!("{channel}:{chat}")).unwrap(),
        committed_ms,
        sending: false,
    }
}

pub(super) fn channels() -> BTreeSet<Arc<str>> {
    ["hook".into(), "mail".into()].into()
}

fn at(seconds: u64) -> Now {
    Now { mono: Duration::from_secs(seconds), wall_ms: 1_000_000 + seconds * 1000, random: 0 }
}

/// A machine that has read an outbox with these rows, and what it does first.
fn started(rules: Rules, rows: Vec<OutRow>) -> (Machine, Vec<Effect>) {
    let (mut machine, reads) = Machine::start(rules, channels());
    let [Effect::Channels, Effect::Read(hook), Effect::Read(mail)] = reads.as_slice() else { panic!("{reads:?}") };
    assert_eq!((&*hook.channel, &*mail.channel), ("hook", "mail"));
    machine.step(Input::Rows("mail".into(), Rows { rows: vec![], left: 0 }), at(0));
    let effects = machine.step(Input::Rows("hook".into(), Rows { rows, left: 0 }), at(0));
    (machine, effects)
}

/// Brings the first row up to its first attempt, which fails so.
fn fail(machine: &mut Machine, number: u64, outcome: Outcome, now: Now) -> Vec<Effect> {
    machine.step(Input::Marked(id(number)), now);
    machine.step(Input::Tried(id(number), outcome), now)
}

#[test]
fn the_wait_doubles_up_to_its_cap_and_a_day_ends_it() {
    let (mut machine, effects) = started(Rules::default(), vec![row(1, "hook", "a", 1_000_000)]);
    assert_eq!(effects, [Effect::Mark(id(1))]);
    let mut now = at(0);
    let mut effects = fail(&mut machine, 1, Outcome::failed("down"), now);
    let (mut waits, mut numbers) = (Vec::new(), Vec::new());
    while let [Effect::Failed(failed)] = effects.as_slice() {
        assert_eq!((failed.row.out.id, &*failed.reason), (id(1), "down"));
        assert_eq!(now.mono + failed.wait, machine.due().unwrap());
        numbers.push(failed.number);
        let due = machine.due().unwrap();
        waits.push((due - now.mono).as_secs());
        now = at(due.as_secs());
        assert!(matches!(machine.step(Input::Tick, now).as_slice(), [Effect::Send(_)]));
        effects = machine.step(Input::Tried(id(1), Outcome::failed("down")), now);
    }
    assert_eq!(numbers, (1..=numbers.len() as u32).collect::<Vec<_>>());
    assert_eq!(waits[..11], [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
    assert!(waits[9..].iter().all(|wait| *wait == 300));
    let [Effect::GiveUp(given_up, reason)] = effects.as_slice() else { panic!("{effects:?}") };
    assert_eq!((given_up.out.id, &**reason), (id(1), "not delivered within 24 hours; the last time: down"));
    assert!((24 * 3600..24 * 3600 + 300).contains(&now.mono.as_secs()), "{now:?}");
}

#[test]
fn jitter_shortens_a_wait_by_a_quarter_at_most() {
    let wait_for = |random| {
        let (mut machine, _) = started(Rules::default(), vec![row(1, "hook", "a", 1_000_000)]);
        fail(&mut machine, 1, Outcome::failed("down"), Now { random, ..at(0) });
        machine.due().unwrap()
    };
    let waits: BTreeSet<Duration> = [0, 1000, 77_777, u64::MAX].into_iter().map(wait_for).collect();
    assert!(waits.len() > 2);
    assert!(waits.iter().all(|wait| (750..=1000).contains(&wait.as_millis())), "{waits:?}");
}

#[test]
fn a_receiver_may_ask_for_a_longer_wait_up_to_a_cap() {
    for (asked_s, waited_s) in [(0, 1), (7, 7), (600, 600), (1_000_000, 3600)] {
        let (mut machine, _) = started(Rules::default(), vec![row(1, "hook", "a", 1_000_000)]);
        let retry_after = Some(Duration::from_secs(asked_s));
        fail(&mut machine, 1, Outcome::Failed { reason: "429".into(), retry_after, taken: false }, at(0));
        assert_eq!(machine.due(), Some(Duration::from_secs(waited_s)), "{asked_s}");
    }
}

#[test]
fn only_what_may_have_been_taken_is_repeated() {
    for (outcome, repeat) in [(Outcome::failed("429"), false), (Outcome::unknown("timeout"), true)] {
        let (mut machine, _) = started(Rules::default(), vec![row(1, "hook", "a", 1_000_000)]);
        fail(&mut machine, 1, outcome, at(0));
        for first in [true, false] {
            let now = at(machine.due().unwrap().as_secs());
            let effects = machine.step(Input::Tick, now);
            let [Effect::Send(attempt)] = effects.as_slice() else { panic!("{effects:?}") };
            assert_eq!((attempt.repeat, attempt.first_repeat), (repeat, repeat && first));
            machine.step(Input::Tried(id(1), Outcome::failed("429")), now);
        }
    }
    let found = OutRow { sending: true, ..row(1, "hook", "a", 1_000_000) };
    let (_, effects) = started(Rules::default(), vec![found]);
    let [Effect::Send(attempt)] = effects.as_slice() else { panic!("{effects:?}") };
    assert!(attempt.repeat && attempt.first_repeat);
}

#[test]
fn the_next_row_follows_a_refused_one_and_waits_for_a_failed_one() {
    let rows = vec![row(1, "hook", "a", 1_000_000), row(2, "hook", "a", 1_000_000)];
    let (mut machine, _) = started(Rules::default(), rows);
    let effects = fail(&mut machine, 1, Outcome::failed("down"), at(0));
    assert!(matches!(effects.as_slice(), [Effect::Failed(_)]), "{effects:?}");
    let effects = machine.step(Input::Tick, at(1));
    assert!(matches!(effects.as_slice(), [Effect::Send(attempt)] if attempt.row.out.id == id(1)));
    let effects = machine.step(Input::Tried(id(1), Outcome::Refused { reason: "410".into() }), at(1));
    assert!(matches!(effects.as_slice(), [Effect::GiveUp(row, _)] if row.out.id == id(1)));
    assert_eq!(machine.step(Input::Closed(id(1)), at(1)), [Effect::Mark(id(2))]);
}

#[test]
fn a_jump_of_the_wall_clock_ages_nothing() {
    let (mut machine, _) = started(Rules::default(), vec![row(1, "hook", "a", 1_000_000)]);
    let jumped = Now { wall_ms: 1_000_000 + 1_000 * 86_400_000, ..at(0) };
    let effects = fail(&mut machine, 1, Outcome::failed("down"), jumped);
    assert!(matches!(effects.as_slice(), [Effect::Failed(_)]), "{effects:?}");
}

#[test]
fn rows_of_a_channel_that_is_not_there_wait_untried_and_are_given_up_at_their_age() {
    const DAY: u64 = 24 * 60 * 60;
    let (mut machine, _) = started(Rules::default(), vec![]);
    let effects = machine.step(Input::Channels(vec!["gone".into(), "hook".into()]), at(0));
    let [Effect::Read(ask)] = effects.as_slice() else { panic!("{effects:?}") };
    assert_eq!(&*ask.channel, "gone");
    let old = |n, age_s: u64| row(n, "gone", "a", 1_000_000 - age_s * 1000);
    let rows = Rows { rows: vec![old(1, 600), old(2, 60)], left: 0 };
    assert_eq!(machine.step(Input::Rows("gone".into(), rows), at(0)), [], "nothing is written, nothing is sent");
    assert_eq!(machine.step(Input::Row(row(3, "gone", "b", 1_000_000)), at(0)), []);
    assert!(machine.is_quiet());
    assert_eq!(machine.due(), Some(Duration::from_secs(DAY - 600)));
    assert_eq!(machine.step(Input::Tick, at(DAY - 601)), []);
    let effects = machine.step(Input::Tick, at(DAY - 600));
    let [Effect::GiveUp(first, why)] = effects.as_slice() else { panic!("{effects:?}") };
    assert_eq!((first.out.id, why.contains("24 hours") && why.contains("not enabled")), (id(1), true), "{why}");
    assert_eq!(machine.step(Input::Closed(id(1)), at(DAY - 599)), []);
    assert_eq!(machine.due(), Some(Duration::from_secs(DAY - 60)), "the next one of the chat has its own time");
    let given_up = |effects: Vec<Effect>| match effects.as_slice() {
        [Effect::GiveUp(row, _)] => row.out.id,
        _ => panic!("{effects:?}"),
    };
    assert_eq!(given_up(machine.step(Input::Tick, at(DAY - 60))), id(2));
    // One of a channel of which nothing was known comes while the process runs, as a turn from before ends.
    let effects = machine.step(Input::Row(row(4, "other", "c", 1_000_000)), at(0));
    let [Effect::Read(ask)] = effects.as_slice() else { panic!("{effects:?}") };
    assert_eq!(&*ask.channel, "other");
}

#[test]
fn one_channel_with_too_much_holds_up_no_other_and_its_rest_is_read_again() {
    let rules = Rules { rows_max: 4, parallel: 1, ..Rules::default() };
    let rows: Vec<OutRow> = (1..=6).map(|number| row(number, "hook", "a", 1_000_000 + number)).collect();
    let (mut machine, _) = started(rules, rows.clone());
    assert_eq!(machine.loads()["hook"].held(), 4);
    machine.step(Input::Row(row(9, "mail", "m", 1_000_009)), at(0));
    assert_eq!(machine.loads()["mail"].held(), 1);
    let mut effects = Vec::new();
    for number in [1, 9, 2] {
        assert_eq!(effects, [] as [Effect; 0], "before {number}");
        machine.step(Input::Marked(id(number)), at(0));
        machine.step(Input::Tried(id(number), Outcome::Delivered), at(0));
        effects = machine.step(Input::Closed(id(number)), at(0));
        effects.retain(|effect| matches!(effect, Effect::Read(_)));
    }
    let [Effect::Read(ask)] = effects.as_slice() else { panic!("{effects:?}") };
    assert_eq!((&*ask.channel, ask.rows_max), ("hook", 4));
    // A row of after the question comes before its answer, which does not have it.
    machine.step(Input::Row(row(7, "hook", "a", 1_000_007)), at(0));
    machine.step(Input::Rows("hook".into(), Rows { rows: rows[2..].to_vec(), left: 0 }), at(0));
    assert_eq!(machine.loads()["hook"].held(), 4);
    assert!(machine.loads()["hook"].behind);
}

#[test]
fn a_drained_machine_ends_what_is_under_way_and_begins_nothing_again() {
    let rows = vec![row(1, "hook", "a", 1_000_000), row(2, "hook", "b", 1_000_000)];
    let (mut machine, _) = started(Rules::default(), rows);
    fail(&mut machine, 1, Outcome::failed("down"), at(0));
    machine.step(Input::Marked(id(2)), at(0));
    assert_eq!(machine.step(Input::Drain, at(0)), []);
    assert!(!machine.is_quiet());
    machine.step(Input::Tried(id(2), Outcome::Delivered), at(0));
    machine.step(Input::Closed(id(2)), at(0));
    assert!(machine.is_quiet());
    assert_eq!((machine.due(), machine.step(Input::Tick, at(100))), (None, vec![]));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn every_row_is_delivered_in_order_through_any_life(
        happenings in prop::collection::vec(model::happening(), 1..120),
        rows_max in 1usize..6,
        parallel in 1usize..4,
    ) {
        let rules = Rules { rows_max, parallel, bytes_max: 60, ..Rules::default() };
        let mut world = World::new(rules);
        for happening in happenings {
            world.happen(happening);
        }
        world.settle();
    }
}
