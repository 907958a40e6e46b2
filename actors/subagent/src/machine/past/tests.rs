use std::sync::Arc;

use domain::chat::Usage;
use domain::ids::TurnId;
use domain::run::RunSpec;
use protocol::subagent::{DELIVERED, PENDING};
use protocol::turn::TurnResult;

use super::*;
use crate::history::{found, lines};
use crate::machine::tests::{ended, id, runs, spec, turn};
use crate::machine::{ENDED_KEPT, End, Input};

/// What the next process is told by the notes of this one.
fn noted(machine: &mut Machine) -> Vec<Past> {
    found(lines(&machine.take_notes()).as_bytes()).runs
}

/// State and delivery of each run.
fn rows(machine: &Machine) -> Vec<(&'static str, Option<&'static str>)> {
    machine.rows(None).iter().map(|row| (row.state, row.delivery)).collect()
}

fn found_now(spec: RunSpec, of: u128) -> Input {
    Input::Found { spec: spec.into(), turn: turn(of), now_ms: 900 }
}

/// The turns that are dropped, and those whose ends are asked for.
fn dropped_and_asked(effects: &[Effect]) -> (Vec<u128>, Vec<u128>) {
    let (mut dropped, mut asked) = (Vec::new(), Vec::new());
    for effect in effects {
        match effect {
            Effect::Drop { turn, .. } => dropped.push(turn.0.as_u128()),
            Effect::AskEnd { turn, .. } => asked.push(turn.0.as_u128()),
            Effect::Begin { .. }
            | Effect::Watch { .. }
            | Effect::Stop { .. }
            | Effect::Spawned(..)
            | Effect::Rows(..)
            | Effect::Cancelled(..) => {}
        }
    }
    (dropped, asked)
}

#[test]
fn the_next_process_knows_what_ended_and_follows_what_did_not() {
    let mut machine = Machine::default();
    for number in 1..=3 {
        runs(&mut machine, spec("cli:a", number));
    }
    machine.step(ended(1, TurnResult::Done, "5 toads"));
    machine.step(Input::Reported { run: id(1) });
    machine.step(Input::Reported { run: id(1) });
    machine.step(ended(2, TurnResult::Failed, "no"));
    let all = lines(&machine.all_notes());
    let noted = noted(&mut machine);
    assert_eq!(found(all.as_bytes()).runs, noted, "all of them at once say the same");
    let mut next = Machine::default();
    let effects = next.step(Input::Past { runs: noted });
    assert_eq!(dropped_and_asked(&effects), (Vec::new(), vec![3, 1000]), "how it and its parent's turn ended");
    assert_eq!(rows(&next), [("done", Some(DELIVERED)), ("failed", Some(PENDING)), ("running", None)]);
    assert_eq!(next.rows(None)[0].text.as_deref(), Some("5 toads"));
    assert_eq!(next.untold(), [(id(2), spec("cli:a", 2).key().unwrap())]);
    assert_eq!(next.spec_of(id(1)), Some(&Arc::new(spec("cli:a", 1))));
    assert_eq!(next.take_notes(), [], "they are in the file");
}

#[test]
fn what_is_known_by_now_is_known_better_but_for_the_begin_and_who_waits() {
    let mut before = Machine::default();
    runs(&mut before, spec("cli:a", 1));
    runs(&mut before, spec("cli:a", 2));
    before.step(ended(2, TurnResult::Done, "5"));
    let mut past = noted(&mut before);
    past.iter_mut().filter(|past| past.spec.run == id(1)).for_each(|past| past.waits = true);
    let mut machine = Machine::default();
    machine.step(found_now(spec("cli:a", 1), 1));
    // It was told something after its end.
    machine.step(found_now(spec("cli:a", 2), 77));
    machine.step(ended(1, TurnResult::Done, "7"));
    assert_eq!(rows(&machine)[0], ("done", Some(PENDING)), "nobody knows that somebody waits");
    machine.step(Input::Past { runs: past });
    assert_eq!(rows(&machine), [("done", None), ("running", None)]);
    assert_eq!(machine.rows(None)[0].since_ms, 1);
    machine.step(ended(77, TurnResult::Done, "6"));
    assert_eq!(rows(&machine)[1], ("done", Some(PENDING)));
    assert_eq!(machine.rows(None)[1].text.as_deref(), Some("6"));
}

#[test]
fn whoever_stops_a_session_before_its_runs_are_found_stops_them_too() {
    let stopped = |of: Option<TurnId>, spec: RunSpec| {
        let mut machine = Machine::default();
        machine.looks();
        let parent = SessionKey::new("cli:a").unwrap();
        machine.step(Input::CancelChildren { parent, turn: of });
        dropped_and_asked(&machine.step(found_now(spec, 1))).0 == [1]
    };
    assert!(stopped(None, spec("cli:a", 1)) && stopped(Some(turn(1000)), spec("cli:a", 1)));
    assert!(!stopped(Some(turn(2000)), spec("cli:a", 1)) && !stopped(None, spec("cli:b", 1)));
    assert!(!stopped(None, RunSpec { detached: true, ..spec("cli:a", 1) }));
    let mut machine = Machine::default();
    machine.looks();
    machine.step(Input::AllFound);
    let parent = SessionKey::new("cli:a").unwrap();
    machine.step(Input::CancelChildren { parent, turn: None });
    assert_eq!(dropped_and_asked(&machine.step(found_now(spec("cli:a", 1), 1))).0, [0; 0], "it began later");
}

#[test]
fn only_the_turn_that_asked_for_a_run_is_asked_about() {
    let asked = |spec: RunSpec| dropped_and_asked(&Machine::default().step(found_now(spec, 1))).1;
    assert_eq!(asked(spec("cli:a", 1)), [1, 1000]);
    assert_eq!(asked(RunSpec { detached: true, ..spec("cli:a", 1) }), [1]);
    assert_eq!(asked(RunSpec { retry_of: Some(id(9)), ..spec("cli:a", 1) }), [1]);
}

#[test]
fn those_of_before_go_first_when_there_are_too_many() {
    let mut before = Machine::default();
    for number in 1..=ENDED_KEPT as u128 {
        runs(&mut before, spec("cli:a", number));
        before.step(ended(number, TurnResult::Done, "5"));
    }
    let mut machine = Machine::default();
    runs(&mut machine, spec("cli:a", 5000));
    machine.step(Input::Ended {
        turn: turn(5000),
        end: End { result: TurnResult::Done, text: "NO_REPLY".into(), usage: Usage::default() },
    });
    machine.step(Input::Past { runs: noted(&mut before) });
    let rows = machine.rows(None);
    assert_eq!((rows.len(), rows[0].run), (ENDED_KEPT, id(2)));
    assert_eq!(rows.iter().find(|row| row.run == id(5000)).unwrap().delivery, None, "it has nothing to report");
}
