//! What was seen of the jobs, and what must be true of them in the end.
//!
//! - A moment that a transcript names is one of its job's, by an oracle of its own (`due`), stands there once, and lies
//!   neither before the job was made, nor behind its end, nor where it was switched off.
//! - Where nothing disturbs anybody, each moment of a job is used, or was told as skipped for a reason that holds there.
//! - Of a job that makes up for all that it missed, each moment is used; of one that does so once, one of those that passed
//!   while nobody was there.
//! - A run of a job does not begin before the one before has ended.

use std::collections::{BTreeMap, BTreeSet};

use domain::cron::Missed;
use domain::cron::scheduler::JobView;
use domain::event::EventKind;
use domain::ids::TurnId;
use domain::transcript::{EntryKind, Transcript};
use protocol::supervision::{Event, EventName, Kind};

use super::due::Rule;
use super::work::Job;

/// This long before and after a disturbance, nothing is said of what is due, in milliseconds.
const BEFORE_MS: u64 = 180_000;
const AFTER_MS: u64 = 960_000;

/// What is known of one job.
#[derive(Debug, Default, Clone)]
pub struct Known {
    /// Its id, once it is known.
    pub id: Option<String>,
    /// Before this it was not made.
    made_ms: Option<u64>,
    /// Moments after this are not used.
    gone_ms: Option<u64>,
    /// Times at which it was seen switched on, with nobody changing it between.
    on: Vec<(u64, u64)>,
    /// Times at which it was surely off.
    off: Vec<(u64, u64)>,
    /// The last span goes on.
    open: Option<bool>,
    /// Times at which it may have been run by hand.
    hand: Vec<(u64, u64)>,
    /// It was said to be made or changed, and not to be in the file.
    unsaved: bool,
}

/// What is known of all.
#[derive(Debug, Default)]
pub struct Jobs {
    known: Vec<Known>,
    /// Spans of the wall clock in which nothing is disturbed.
    calm: Vec<(u64, u64)>,
    calm_from: Option<u64>,
    /// The latest time that was ever seen.
    high_ms: u64,
    /// Whether the wall clock was ever set.
    jumped: bool,
    /// What was told of jobs: when, of which, and what.
    skipped: Vec<(u64, String)>,
}

/// A moment that was used.
#[derive(Debug, Clone, Copy)]
struct Used {
    due_ms: u64,
    accepted_ms: u64,
    turn: TurnId,
    into: Option<TurnId>,
}

// === impl Jobs ===

impl Jobs {
    /// That many, none of them made.
    pub fn new(count: usize) -> Self {
        Self { known: vec![Known::default(); count], ..Self::default() }
    }

    /// What is known of a job.
    pub fn of(&self, job: usize) -> &Known {
        &self.known[job]
    }

    // --- what happens ---

    /// Something disturbs the process at `before_ms`; from `after_ms` on it is left alone, if it goes on.
    pub fn disturbed(&mut self, before_ms: u64, after_ms: Option<u64>) {
        if let Some(from) = self.calm_from.take() {
            self.calm.push((from, before_ms));
        }
        self.high_ms = self.high_ms.max(before_ms);
        // Moments that the clock passes twice were used when it came there first.
        self.calm_from = after_ms.map(|after| after.max(self.high_ms));
    }

    /// The wall clock is set.
    pub fn jumped(&mut self, before_ms: u64, after_ms: u64) {
        self.jumped = true;
        self.disturbed(before_ms, Some(after_ms));
    }

    /// The supervision log was told something. The answer is what is wrong with it.
    pub fn event(&mut self, event: &Event, now_ms: u64) -> Result<(), String> {
        let reason = || event.reason.clone().unwrap_or_default();
        match event.event {
            EventName::Restarted if event.kind == Kind::Cron => self.disturbed(now_ms, Some(now_ms)),
            EventName::CronSkipped => self.skipped.push((now_ms, reason())),
            EventName::CronDamaged => return Err(format!("the jobs were found damaged: {}", reason())),
            _ => {}
        }
        Ok(())
    }

    /// Somebody is about to change a job.
    pub fn changing(&mut self, job: usize, now_ms: u64) {
        self.high_ms = self.high_ms.max(now_ms);
        let known = &mut self.known[job];
        known.made_ms.get_or_insert(now_ms);
        known.gone_ms = None;
        known.open = None;
    }

    /// A change was answered: it is in the file, or is not.
    pub fn changed(&mut self, job: usize, saved: bool) {
        self.known[job].unsaved |= !saved;
    }

    /// A job was removed, and that is in the file.
    pub fn removed(&mut self, job: usize, now_ms: u64) {
        self.high_ms = self.high_ms.max(now_ms);
        self.known[job].gone_ms = Some(self.high_ms);
    }

    /// Somebody runs it by hand, and was answered at `to_ms`, if at all.
    pub fn by_hand(&mut self, job: usize, from_ms: u64, to_ms: Option<u64>) {
        let hand = &mut self.known[job].hand;
        match (to_ms, hand.last_mut()) {
            (Some(to_ms), Some(last)) => last.1 = to_ms,
            (None, _) | (Some(_), None) => hand.push((from_ms, u64::MAX)),
        }
    }

    /// Whether a job is known and may be there.
    pub fn is_made(&self, job: usize) -> bool {
        self.known[job].made_ms.is_some()
    }

    /// All jobs were told.
    pub fn listed(&mut self, views: &[JobView], now_ms: u64) {
        self.high_ms = self.high_ms.max(now_ms);
        for (n, known) in self.known.iter_mut().enumerate() {
            let name = format!("j{n}");
            let view = views.iter().find(|view| view.name == name);
            let on = view.map(|view| view.enabled);
            if let Some(view) = view {
                known.id = Some(view.id.as_str().to_owned());
            }
            let spans = if on == Some(true) { &mut known.on } else { &mut known.off };
            match (on, spans.last_mut()) {
                (Some(on), Some(last)) if known.open == Some(on) => last.1 = last.1.max(now_ms),
                (Some(_), _) => spans.push((now_ms, now_ms)),
                (None, _) => {}
            }
            known.open = on;
        }
    }

    // --- what must be true ---

    /// What is wrong with what the transcripts say of the jobs.
    pub fn check(&self, jobs: &[Job], transcripts: &[Transcript]) -> Result<u64, String> {
        let (mut used, mut ends) = (BTreeMap::<usize, Vec<Used>>::new(), BTreeMap::new());
        for transcript in transcripts {
            for entry in transcript.entries() {
                match &entry.kind {
                    EntryKind::User(user) => {
                        let (Some(mark), Some(event)) = (&user.mark, &user.event) else { continue };
                        if event.kind != EventKind::Cron {
                            continue;
                        }
                        let due_ms = mark.idempotency_key.rsplit(':').next().and_then(|due| due.parse().ok());
                        let job = event.name.strip_prefix('j').and_then(|n| n.parse::<usize>().ok());
                        let (Some(due_ms), Some(job)) = (due_ms, job.filter(|job| *job < jobs.len())) else {
                            return Err(format!("a job's message is named {}", mark.idempotency_key));
                        };
                        let accepted_ms = mark.accepted_ms;
                        used.entry(job).or_default().push(Used {
                            due_ms,
                            accepted_ms,
                            turn: mark.turn,
                            into: mark.into,
                        });
                    }
                    EntryKind::Assistant(answer) => {
                        if let (Some(turn), Some(_)) = (answer.turn, answer.end) {
                            ends.insert(turn, entry.timestamp_ms);
                        }
                    }
                    _ => {}
                }
            }
        }
        let mut count = 0;
        for (n, job) in jobs.iter().enumerate() {
            let used = used.remove(&n).unwrap_or_default();
            count += used.len() as u64;
            let what = |wrong| format!("j{n} ({:?}, {:?}): {wrong}", job.rule, job.missed);
            self.check_used(&self.known[n], &job.rule, &used).map_err(what)?;
            self.check_overlap(&used, &ends).map_err(what)?;
            self.check_owed(&self.known[n], job, &used).map_err(what)?;
        }
        Ok(count)
    }

    /// Nothing is used twice, or that should not be.
    fn check_used(&self, known: &Known, rule: &Rule, used: &[Used]) -> Result<(), String> {
        let mut all = BTreeSet::new();
        let mut dues = Vec::new();
        for Used { due_ms, .. } in used {
            if !all.insert(*due_ms) {
                return Err(format!("{due_ms} was used twice"));
            }
            if known.hand.iter().any(|(from, to)| (from..=to).contains(&due_ms)) {
                continue;
            }
            let made = known.made_ms.is_some_and(|made| *due_ms >= made);
            let gone = known.gone_ms.is_some_and(|gone| *due_ms > gone);
            let off = known.off.iter().any(|(from, to)| (from..=to).contains(&due_ms));
            if !rule.has(*due_ms) || !made || gone || off {
                return Err(format!("{due_ms} was used, made={made} gone={gone} off={off}"));
            }
            dues.push(*due_ms);
        }
        dues.sort_unstable();
        match rule {
            Rule::Every(every) => match dues.windows(2).find(|pair| pair[1] - pair[0] < *every) {
                Some(pair) => Err(format!("{pair:?} are too near")),
                None => Ok(()),
            },
            Rule::At(_) | Rule::Times(..) => Ok(()),
        }
    }

    /// A run ends before the next one begins.
    fn check_overlap(&self, used: &[Used], ends: &BTreeMap<TurnId, u64>) -> Result<(), String> {
        if self.jumped {
            return Ok(());
        }
        for pair in used.windows(2) {
            let [first, next] = pair else { continue };
            let end = ends.get(&first.into.unwrap_or(first.turn));
            let host = |used: &Used| used.into.unwrap_or(used.turn);
            if host(first) == host(next) || end.is_some_and(|end| next.accepted_ms < *end) {
                return Err(format!("{} was accepted before the run of {} had ended", next.due_ms, first.due_ms));
            }
        }
        Ok(())
    }

    /// What had to be used was used.
    fn check_owed(&self, known: &Known, job: &Job, used: &[Used]) -> Result<(), String> {
        let is_used = |from: u64, to: u64| used.iter().any(|used| (from..=to).contains(&used.due_ms));
        let of_job = known.id.as_ref().map(|id| format!("job {id}: ")).unwrap_or_default();
        let told = |from: u64, to: u64, what: &str| {
            let of_job = self.skipped.iter().filter_map(|(at, text)| Some((at, text.strip_prefix(&of_job)?)));
            of_job.filter(|(at, text)| (from..=to).contains(at) && text.starts_with(what)).count()
        };
        let excused = |from: u64, to: u64| {
            told(from, to + AFTER_MS, "the run before") + told(from, to + AFTER_MS, "not accepted") > 0
        };
        for (from, to) in self.shared(&known.on) {
            if let Rule::Every(every) = job.rule
                && to - from >= 2 * every
                && !is_used(from, to)
                && !excused(from, to)
            {
                return Err(format!("nothing was used from {from} to {to}"));
            }
            // One that makes up for all that it missed may be behind.
            let dues = if job.missed == Missed::All { Vec::new() } else { job.rule.dues(from, to) };
            for due in dues {
                if !is_used(due, due) && !excused(due, due) {
                    return Err(format!("{due} was not used, and nothing disturbed it"));
                }
            }
        }
        if known.unsaved {
            return Ok(());
        }
        for (from, to) in &known.on {
            let to = to.saturating_sub(AFTER_MS);
            let dues = if *from < to { job.rule.dues(*from + 1, to) } else { Vec::new() };
            match job.missed {
                Missed::Skip => {}
                Missed::All => {
                    let lacks: Vec<_> = dues.iter().filter(|due| !is_used(**due, **due)).collect();
                    let excuses =
                        told(*from, u64::MAX, "not accepted") + 1_000_000 * told(*from, u64::MAX, "of the missed");
                    if lacks.len() > excuses {
                        return Err(format!("{lacks:?} were not made up for"));
                    }
                }
                Missed::Once => self.check_once(&dues, &is_used, &excused)?,
            }
        }
        Ok(())
    }

    /// Of the moments between two spans in which somebody was there, one is used.
    fn check_once(
        &self,
        dues: &[u64],
        is_used: &impl Fn(u64, u64) -> bool,
        excused: &impl Fn(u64, u64) -> bool,
    ) -> Result<(), String> {
        // Who is there for a moment only may not have looked yet: what was missed before that is made up for with the rest.
        let long = self.calm.iter().filter(|(from, to)| to.saturating_sub(*from) > AFTER_MS).collect::<Vec<_>>();
        for pair in long.windows(2) {
            let (from, to) = (pair[0].1, pair[1].0);
            let missed: Vec<u64> = dues.iter().copied().filter(|due| *due > from && *due < to).collect();
            let (Some(first), Some(last)) = (missed.first(), missed.last()) else { continue };
            if !is_used(*first, *last) && !excused(*first, to) {
                return Err(format!("{missed:?} were missed, and none was made up for"));
            }
        }
        Ok(())
    }

    /// Where these spans and the calm ones meet, without what lies near a disturbance.
    fn shared(&self, on: &[(u64, u64)]) -> Vec<(u64, u64)> {
        let mut shared = Vec::new();
        for (from, to) in on {
            for (calm_from, calm_to) in &self.calm {
                let (from, to) = ((*from).max(*calm_from) + BEFORE_MS, (*to).min(*calm_to).saturating_sub(AFTER_MS));
                if from < to {
                    shared.push((from, to));
                }
            }
        }
        shared
    }
}
