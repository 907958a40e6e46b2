//! What a seed makes happen of work that nobody asks for just now: jobs that are due at times. Pure.
//!
//! A run is cut into stretches of a year, some of them around the hours at which clocks are put forward and back; between
//! them no process lives, or dies and comes back much later. Some of the messages send sub-agents to do something.

use domain::cron::Missed;
use domain::ids::SessionKey;

use super::dice::Dice;
use super::due::{Rule, TIMES, ZONES, changes};
use super::handing;
use super::plan::{Act, How, Message, Step};
use protocol::supervision::Kind;

const MINUTE_MS: u64 = 60_000;
const HOUR_MS: u64 = 60 * MINUTE_MS;
const DAY_MS: u64 = 24 * HOUR_MS;
/// The year of the runs.
const YEAR: i16 = 2026;
/// Its beginning.
const YEAR_BEGIN_MS: u64 = 1_767_225_600_000;

/// The work of a run.
#[derive(Debug)]
pub struct Work {
    /// When the first process begins, in milliseconds since 1970.
    pub begin_ms: u64,
    /// The jobs; each is made by one of the steps.
    pub jobs: Vec<Job>,
}

/// A job.
#[derive(Debug)]
pub struct Job {
    /// When it is due.
    pub rule: Rule,
    /// What becomes of times that were missed.
    pub missed: Missed,
    /// Its session.
    pub key: SessionKey,
    /// What that is told.
    pub text: String,
}

/// What is done to jobs.
#[derive(Debug, Clone, Copy)]
pub enum JobAct {
    /// One is made.
    Make(usize, Way),
    /// One is removed.
    Remove(usize, Way),
    /// One is switched on or off.
    Enable(usize, bool),
    /// One is run by hand.
    Run(usize),
}

/// How somebody changes jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// The actor is asked.
    Asked,
    /// `jobs.json` is edited.
    Edited,
    /// A line is left in `action.jsonl`.
    Acted,
}

// === impl Work ===

impl Work {
    /// The sessions of which nobody but this work wants anything.
    pub fn keys(&self) -> impl Iterator<Item = SessionKey> {
        self.jobs.iter().map(|job| job.key.clone()).chain([handing::session()])
    }

    /// That of a seed, and its steps between the others.
    pub fn new(dice: &Dice, steps: Vec<Step>) -> (Self, Vec<Step>) {
        let stretches = stretches(dice);
        let begin_ms = stretches.first().copied().unwrap_or(YEAR_BEGIN_MS);
        let jobs: Vec<Job> = (0..dice.between(2, 6)).map(|n| job(dice, n, &stretches)).collect();
        let steps = with_jobs(dice, steps, &stretches, jobs.len());
        (Self { begin_ms, jobs }, steps)
    }
}

/// When processes begin to live, in order.
fn stretches(dice: &Dice) -> Vec<u64> {
    let changes: Vec<u64> = ZONES.iter().flat_map(|zone| changes(zone, YEAR)).collect();
    let mut begins: Vec<u64> = (0..dice.between(3, 6))
        .map(|_| match dice.below(3) {
            0 => YEAR_BEGIN_MS + dice.below(364) * DAY_MS + dice.below(DAY_MS),
            _ => dice.one_of(&changes).saturating_sub(dice.below(3 * HOUR_MS)),
        })
        .collect();
    begins.sort_unstable();
    begins
}

fn job(dice: &Dice, n: u64, stretches: &[u64]) -> Job {
    let rule = match dice.below(10) {
        0 => Rule::At(dice.one_of(stretches) + dice.below(3 * HOUR_MS)),
        1..=3 => Rule::Every(dice.one_of(&[7 * MINUTE_MS, 20 * MINUTE_MS, HOUR_MS, 30 * HOUR_MS])),
        _ => Rule::Times(dice.one_of(&TIMES), dice.one_of(&ZONES)),
    };
    let missed = dice.one_of(&[Missed::Skip, Missed::Once, Missed::All]);
    let missed = match rule {
        // A hundred runs at each beginning of a process would hide the rest.
        Rule::Every(every) if every < HOUR_MS && missed == Missed::All => Missed::Once,
        Rule::Times(times, _) if times.expr.contains("* * * *") && missed == Missed::All => Missed::Skip,
        Rule::At(_) | Rule::Every(_) | Rule::Times(..) => missed,
    };
    let key = if dice.often(300) { "cron:all".to_owned() } else { format!("cron:j{n}") };
    let mut text = format!("do j{n} [[tokens={}]]", dice.between(1, 3));
    if dice.often(300) {
        text.push_str(&format!(" [[tool=look {{\"n\":\"j{n}\"}}]]"));
    }
    Job { rule, missed, key: SessionKey::new(&key).expect("a short printable key"), text }
}

/// Spreads the steps over the stretches, and puts those of the jobs between them.
fn with_jobs(dice: &Dice, steps: Vec<Step>, stretches: &[u64], jobs: usize) -> Vec<Step> {
    let faults = dice.one_of(&[0, 100, 250]);
    let share = steps.len().div_ceil(stretches.len().max(1));
    let (mut steps, mut all, mut made, mut handed) = (steps.into_iter(), Vec::new(), 0, 0);
    for (at, begin) in stretches.iter().enumerate() {
        if at > 0 {
            all.push(Step { pause_ms: 0, act: Act::Until(*begin) });
            let act = dice.one_of(&[Leave::Restart, Leave::Die(How::Kill), Leave::Die(How::Power)]);
            all.push(Step { pause_ms: 0, act: act.act() });
        }
        let length_ms = dice.one_of(&[10, 25, 40, 90]) * MINUTE_MS;
        let parts = dice.between(3, 10);
        for part in 0..parts {
            let pause_ms = dice.below(2 * length_ms / parts + 1);
            let act = match dice.below(1000) {
                roll if roll < faults => fault(dice),
                _ if made < jobs && (at > 0 || part < 2 || dice.often(500)) => {
                    made += 1;
                    Act::Job(JobAct::Make(made - 1, dice.one_of(&[Way::Asked, Way::Asked, Way::Edited, Way::Acted])))
                }
                roll if roll < 550 => Act::Wait,
                roll if roll < 700 => {
                    handed += 1;
                    Act::HandIn(handed)
                }
                _ => Act::Job(change(dice, made.max(1))),
            };
            all.push(Step { pause_ms: if made < 2 { pause_ms.min(MINUTE_MS) } else { pause_ms }, act });
        }
        all.extend(steps.by_ref().take(share));
    }
    all.extend(steps);
    all
}

#[derive(Debug, Clone, Copy)]
enum Leave {
    Restart,
    Die(How),
}

impl Leave {
    fn act(self) -> Act {
        match self {
            Self::Restart => Act::Restart,
            Self::Die(how) => Act::Die(how),
        }
    }
}

fn change(dice: &Dice, made: usize) -> JobAct {
    let job = dice.index(made);
    match dice.below(6) {
        0 => JobAct::Remove(job, dice.one_of(&[Way::Asked, Way::Edited, Way::Acted])),
        1 | 2 => JobAct::Enable(job, false),
        3 | 4 => JobAct::Enable(job, true),
        _ => JobAct::Run(job),
    }
}

fn fault(dice: &Dice) -> Act {
    let how = || dice.one_of(&[How::Kill, How::Power, How::Power]);
    match dice.below(5) {
        0 => Act::Die(how()),
        1 => Act::DieAtChange(how(), dice.between(1, 30)),
        2 => Act::Panic { kind: Kind::Subagent, after: dice.below(10) },
        _ => Act::Panic { kind: Kind::Cron, after: dice.below(dice.one_of(&[3, 30])) },
    }
}

/// Lets some messages send sub-agents.
pub fn with_runs(dice: &Dice, messages: &mut [Message]) {
    let often = dice.one_of(&[0, 300, 600]);
    for (n, message) in messages.iter_mut().enumerate().filter(|_| dice.often(often)) {
        for place in 0..dice.one_of(&[1, 1, 2, 7]) {
            let round = dice.between(1, 2);
            message.text.push_str(&format!(" [[tool@{round}=spawn {}]]", run(dice, n, place)));
        }
    }
}

fn run(dice: &Dice, n: usize, place: u64) -> serde_json::Value {
    let name = format!("r{n}.{place}");
    let mut task = format!("do {name} [[tokens={}]]", dice.between(1, 4));
    for round in 1..=dice.below(3) {
        task.push_str(&format!(" [[tool@{round}=look {{\"n\":\"{name}.{round}\"}}]]"));
    }
    let mut call = serde_json::json!({"task": task, "label": name});
    if dice.often(200) {
        call["timeout"] = dice.between(1, 30).into();
    }
    if dice.often(150) {
        call["budget"] = dice.between(1, 5_000).into();
    }
    if dice.often(100) {
        call["wait"] = true.into();
    }
    if dice.often(200) {
        call["detach"] = true.into();
    }
    call
}
