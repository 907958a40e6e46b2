use domain::ids::Source;
use domain::run::Saying;
use uuid::Uuid;

use super::later::{LATER_MAX, NotSaid};
use super::*;

pub(super) fn id(number: u128) -> RunId {
    RunId(Uuid::from_u128(number))
}

pub(super) fn turn(number: u128) -> TurnId {
    TurnId(Uuid::from_u128(number))
}

pub(super) fn spec(parent: &str, number: u128) -> RunSpec {
    RunSpec {
        run: id(number),
        parent: SessionKey::new(parent).unwrap(),
        turn: turn(1000),
        source: Source::new("cli").unwrap(),
        label: "toads".into(),
        task: "Count.".into(),
        model: None,
        tools: Vec::new(),
        timeout_s: 0,
        budget_tokens: 0,
        rounds: 0,
        fork: false,
        detached: false,
        route: None,
        scope: None,
        retry_of: None,
    }
}

fn spawn(machine: &mut Machine, spec: RunSpec, waits: bool) -> Vec<Effect> {
    let number = spec.run.0.as_u128();
    let ask = u64::try_from(number).unwrap();
    machine.step(Input::Spawn { ask, spec: spec.into(), waits, turn: turn(number), now_ms: ask })
}

/// Begun, and accepted by the journal.
pub(super) fn runs(machine: &mut Machine, spec: RunSpec) {
    let run = spec.run;
    assert!(matches!(&spawn(machine, spec, false)[..], [Effect::Begin { .. }]));
    let answered = machine.step(Input::Enqueued { run, verdict: Verdict::Accepted });
    assert!(matches!(&answered[..], [Effect::Spawned(_, Ok(Spawned { again: false, .. }))]), "{answered:?}");
}

pub(super) fn ended(number: u128, result: TurnResult, text: &str) -> Input {
    Input::Ended { turn: turn(number), end: End { result, text: text.into(), usage: Usage::default() } }
}

fn states(machine: &Machine) -> Vec<&'static str> {
    machine.rows(None).iter().map(|row| row.state).collect()
}

#[test]
fn the_same_call_is_the_same_run() {
    let mut machine = Machine::default();
    spawn(&mut machine, spec("cli:direct", 1), false);
    assert_eq!(spawn(&mut machine, spec("cli:direct", 1), false), [], "it waits for the same verdict");
    let answered = machine.step(Input::Enqueued { run: id(1), verdict: Verdict::Accepted });
    assert_eq!(answered.len(), 2);
    let again = spawn(&mut machine, spec("cli:direct", 1), false);
    assert!(matches!(&again[..], [Effect::Spawned(1, Ok(Spawned { again: true, .. }))]), "{again:?}");
    assert_eq!(states(&machine), ["running"]);
}

#[test]
fn one_of_before_is_followed_and_one_that_is_over_is_asked_for() {
    let mut machine = Machine::default();
    for (number, verdict) in [(1, Verdict::Open(turn(11))), (2, Verdict::Over(turn(12)))] {
        spawn(&mut machine, spec("cli:direct", number), true);
        let effects = machine.step(Input::Enqueued { run: id(number), verdict });
        let of = turn(10 + number);
        assert!(effects.iter().any(|effect| matches!(effect, Effect::AskEnd { turn, .. } if *turn == of)));
        machine.step(ended(10 + number, TurnResult::Done, "5"));
    }
    assert_eq!(states(&machine), ["done", "done"]);
}

#[test]
fn what_the_journal_does_not_take_is_no_run() {
    let mut machine = Machine::default();
    spawn(&mut machine, spec("cli:direct", 1), false);
    let answered = machine.step(Input::Enqueued { run: id(1), verdict: Verdict::Refused("full".to_owned()) });
    assert_eq!(answered, [Effect::Spawned(1, Err(NotSpawned::Refused("full".to_owned())))]);
    assert!(machine.rows(None).is_empty());
}

#[test]
fn bounds_hold_per_session_and_for_all_and_ended_ones_do_not_count() {
    let mut machine = Machine::default();
    let refusal = |effects: Vec<Effect>| match effects.into_iter().next() {
        Some(Effect::Spawned(_, Err(why))) => Some(why),
        Some(_) | None => None,
    };
    for number in 1..=OPEN_OF_SESSION_MAX as u128 {
        runs(&mut machine, spec("cli:a", number));
    }
    let open = OPEN_OF_SESSION_MAX;
    assert_eq!(refusal(spawn(&mut machine, spec("cli:a", 90), false)), Some(NotSpawned::OfSession { open }));
    machine.step(ended(1, TurnResult::Failed, ""));
    runs(&mut machine, spec("cli:a", 91));
    for number in 0..(OPEN_MAX - OPEN_OF_SESSION_MAX) as u128 {
        runs(&mut machine, spec(&format!("cli:{number}"), 100 + number));
    }
    let refused = refusal(spawn(&mut machine, spec("cli:last", 500), false));
    assert_eq!(refused, Some(NotSpawned::OfProcess { open: OPEN_MAX }));
    let child = spec("cli:a", 1).key().unwrap();
    assert_eq!(refusal(spawn(&mut machine, spec(child.as_str(), 501), false)), Some(NotSpawned::TooDeep));
}

#[test]
fn whoever_waits_is_told_when_the_reports_are_with_the_parent() {
    let mut machine = Machine::default();
    runs(&mut machine, spec("cli:direct", 1));
    runs(&mut machine, spec("cli:direct", 2));
    assert_eq!(machine.step(Input::Wait { ask: 7, runs: vec![id(1), id(2)], any: false }), []);
    assert_eq!(machine.step(Input::Wait { ask: 8, runs: vec![id(1), id(2)], any: true }), []);
    assert_eq!(machine.step(ended(1, TurnResult::Done, "5")), [], "its report is under way");
    let any = machine.step(Input::Reported { run: id(1) });
    assert!(matches!(&any[..], [Effect::Rows(8, rows)] if rows.len() == 1 && rows[0].text.as_deref() == Some("5")));
    // Whoever has nothing to say reports nothing.
    let all = machine.step(ended(2, TurnResult::Done, "NO_REPLY"));
    assert!(matches!(&all[..], [Effect::Rows(7, rows)] if rows.len() == 2), "{all:?}");
    let unknown = machine.step(Input::Wait { ask: 9, runs: vec![id(99)], any: false });
    assert_eq!(unknown, [Effect::Rows(9, Vec::new())], "it has been over for long");
}

#[test]
fn an_end_that_comes_before_the_verdict_is_not_lost() {
    let mut machine = Machine::default();
    spawn(&mut machine, spec("cli:direct", 1), true);
    machine.step(ended(1, TurnResult::Done, "5"));
    machine.step(Input::Wait { ask: 3, runs: vec![id(1)], any: false });
    let told = machine.step(Input::Enqueued { run: id(1), verdict: Verdict::Accepted });
    assert!(matches!(&told[..], [Effect::Spawned(1, Ok(_)), Effect::Rows(3, _)]), "{told:?}");
}

#[test]
fn a_stop_ends_the_children_of_that_session_or_turn_but_not_detached_ones() {
    let mut machine = Machine::default();
    runs(&mut machine, spec("cli:a", 1));
    runs(&mut machine, RunSpec { detached: true, ..spec("cli:a", 2) });
    runs(&mut machine, RunSpec { turn: turn(2000), ..spec("cli:a", 3) });
    runs(&mut machine, spec("cli:b", 4));
    let dropped = |machine: &mut Machine, of| {
        let parent = SessionKey::new("cli:a").unwrap();
        let effects = machine.step(Input::CancelChildren { parent, turn: of });
        let turns = effects.iter().filter_map(|effect| match effect {
            Effect::Drop { turn, .. } => Some(*turn),
            Effect::Begin { .. }
            | Effect::Watch { .. }
            | Effect::AskEnd { .. }
            | Effect::Stop { .. }
            | Effect::Spawned(..)
            | Effect::Rows(..)
            | Effect::Cancelled(..) => None,
        });
        turns.collect::<Vec<_>>()
    };
    assert_eq!(dropped(&mut machine, Some(turn(1000))), [turn(1)]);
    assert_eq!(dropped(&mut machine, None), [turn(1), turn(3)]);
    assert_eq!(machine.step(Input::Wait { ask: 8, runs: vec![id(1)], any: false }), []);
    let told = machine.step(ended(1, TurnResult::Cancelled, ""));
    assert!(matches!(&told[..], [Effect::Rows(8, rows)] if rows.len() == 1), "no report comes of it: {told:?}");
    assert_eq!(dropped(&mut machine, None), [turn(3)]);
    let others = SessionKey::new("cli:b").unwrap();
    let cancelled = machine.step(Input::Cancel { ask: 1, parent: Some(others), run: id(3) });
    assert_eq!(cancelled, [Effect::Cancelled(1, false)], "it is not his");
    let cancelled = machine.step(Input::Cancel { ask: 1, parent: None, run: id(3) });
    assert!(matches!(&cancelled[..], [Effect::Stop { .. }, Effect::Cancelled(1, true)]));
}

#[test]
fn only_the_last_that_have_ended_are_known() {
    let mut machine = Machine::default();
    for number in 1..=(ENDED_KEPT + 3) as u128 {
        runs(&mut machine, spec("cli:a", number));
        machine.step(ended(number, TurnResult::Done, &"x".repeat(TEXT_CHARS_MAX + 5)));
    }
    let rows = machine.rows(None);
    assert_eq!((rows.len(), rows[0].run), (ENDED_KEPT, id(4)));
    assert_eq!(rows[0].text.as_ref().unwrap().len(), TEXT_CHARS_MAX);
}

fn say(machine: &mut Machine, number: u128, saying: Saying, by: Option<&str>) -> Result<(), NotSaid> {
    let (parent, by) = (SessionKey::new("cli:direct").unwrap(), by.map(|by| Source::new(by).unwrap()));
    machine.say((&parent, id(number)), (saying, by.as_ref()), turn(100 + number)).map(|_| ())
}

#[test]
fn what_a_run_is_told_later_is_work_of_it() {
    let mut machine = Machine::default();
    runs(&mut machine, spec("cli:direct", 1));
    runs(&mut machine, spec("cli:other", 2));
    assert_eq!(say(&mut machine, 2, Saying::Send, None), Err(NotSaid::Unknown), "another session's");
    assert_eq!(say(&mut machine, 1, Saying::Steer, Some("webhook")), Err(NotSaid::NotHis));
    assert_eq!(say(&mut machine, 1, Saying::Steer, Some("cli")), Ok(()));
    machine.step(ended(1, TurnResult::Done, "5 toads"));
    assert_eq!(states(&machine), ["running", "running"], "it has not seen what it was told");
    machine.step(ended(101, TurnResult::Joined, ""));
    assert_eq!(machine.rows(None)[0].text.as_deref(), Some("5 toads"));
    assert_eq!(say(&mut machine, 1, Saying::Steer, None), Err(NotSaid::Ended));
    assert_eq!(say(&mut machine, 1, Saying::Send, None), Ok(()));
    machine.step(Input::Wait { ask: 9, runs: vec![id(1)], any: false });
    let parent = SessionKey::new("cli:direct").unwrap();
    let dropped = machine.step(Input::CancelChildren { parent, turn: None });
    assert!(matches!(&dropped[..], [Effect::Drop { turn: of, .. }] if *of == turn(101)), "{dropped:?}");
    machine.step(ended(101, TurnResult::Done, "and 3 newts"));
    let told = machine.step(Input::Reported { run: id(1) });
    assert!(matches!(&told[..], [Effect::Rows(9, rows)] if rows[0].text.as_deref() == Some("and 3 newts")));
}

#[test]
fn a_run_that_goes_on_counts_and_what_waits_for_one_has_a_bound() {
    let mut machine = Machine::default();
    runs(&mut machine, spec("cli:direct", 100));
    machine.step(ended(100, TurnResult::Done, "5"));
    for number in 1..=OPEN_OF_SESSION_MAX as u128 {
        runs(&mut machine, spec("cli:direct", number));
    }
    assert_eq!(say(&mut machine, 100, Saying::Send, None), Err(NotSaid::TooMany));
    for _ in 0..LATER_MAX {
        assert_eq!(say(&mut machine, 1, Saying::Send, None), Ok(()));
    }
    assert_eq!(say(&mut machine, 1, Saying::Send, None), Err(NotSaid::Full));
    machine.unsaid(id(1), turn(101));
    assert_eq!(say(&mut machine, 1, Saying::Steer, None), Ok(()));
}

#[test]
fn whoever_waits_for_nothing_is_answered_at_once() {
    for any in [false, true] {
        let told = Machine::default().step(Input::Wait { ask: 1, runs: Vec::new(), any });
        assert_eq!(told, [Effect::Rows(1, Vec::new())]);
    }
}

fn budget(effects: &[Effect]) -> Result<u64, NotSpawned> {
    match effects {
        [Effect::Begin { spec, .. }] => Ok(spec.budget_tokens),
        [Effect::Spawned(_, Err(why))] => Err(why.clone()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_runs_of_a_turn_share_its_tokens_and_what_one_leaves_is_for_others() {
    let mut machine = Machine::new(1000);
    let with = |number, tokens| RunSpec { budget_tokens: tokens, ..spec("cli:direct", number) };
    let begin = |machine: &mut Machine, spec: RunSpec| {
        let run = spec.run;
        let given = budget(&spawn(machine, spec, false));
        machine.step(Input::Enqueued { run, verdict: Verdict::Accepted });
        given
    };
    assert_eq!(begin(&mut machine, with(1, 0)), Ok(200), "one of five that may come");
    assert_eq!(begin(&mut machine, with(2, 700)), Ok(700));
    assert_eq!(begin(&mut machine, with(3, 101)), Err(NotSpawned::OverTree { left: 100, of: 1000 }));
    let usage = Usage { input_tokens: 30, output_tokens: 20, cached_tokens: 10 };
    let end =
        |number| Input::Ended { turn: turn(number), end: End { result: TurnResult::Done, text: "5".into(), usage } };
    machine.step(end(2));
    assert_eq!(begin(&mut machine, with(3, 750)), Ok(750), "what the second one left");
    assert_eq!(begin(&mut machine, with(4, 0)), Err(NotSpawned::OverTree { left: 0, of: 1000 }));
    let other = RunSpec { turn: turn(1001), ..with(5, 0) };
    assert_eq!(begin(&mut machine, other), Ok(200), "another turn has its own");
    machine.step(end(1));
    assert_eq!(
        machine
            .say((&SessionKey::new("cli:direct").unwrap(), id(1)), (Saying::Send, None), turn(6))
            .map(|spec| spec.budget_tokens),
        Ok(150)
    );
}
