//! What is known of runs from before this process, or this life of the keeper.

use std::sync::Arc;

use domain::ids::{RunId, SessionKey};

use super::{BTreeSet, Effect, Machine, Note, Past, Run, State, tokens};

// === impl Machine ===

impl Machine {
    /// Runs from before are looked for: whose sessions or turns are stopped from now on are stopped when they are found.
    /// Until [`Input::AllFound`](super::Input::AllFound).
    pub fn looks(&mut self) {
        self.stopped.get_or_insert_with(BTreeSet::new);
    }

    /// What is to be kept since it was asked last.
    pub fn take_notes(&mut self) -> Vec<Note> {
        std::mem::take(&mut self.notes)
    }

    /// All that is to be kept, in place of every note of before.
    pub fn all_notes(&self) -> Vec<Note> {
        let ended = self.ended.iter().filter_map(|run| self.runs.get(run));
        let open = self.runs.values().filter(|run| matches!(run.state, State::Running));
        ended.chain(open).flat_map(Run::notes).collect()
    }

    /// One that has begun is followed to its end. So is the turn that asked for it: its end may be that of the run.
    pub(super) fn follow(&mut self, mut run: Run, out: &mut Vec<Effect>) {
        let spec = Arc::clone(&run.spec);
        let of_parent = [None, Some(spec.turn)].map(|turn| (spec.parent.clone(), turn));
        let was_stopped = self.stopped.iter().any(|stopped| of_parent.iter().any(|one| stopped.contains(one)));
        let mut ends = vec![(run.key.clone(), run.turn)];
        // One that an operator asked for once more was not asked for by that turn.
        if !spec.detached && spec.retry_of.is_none() {
            ends.push((spec.parent.clone(), spec.turn));
        }
        for (key, turn) in ends {
            out.push(Effect::Watch { key: key.clone(), turn });
            // It may have ended before somebody watched.
            out.push(Effect::AskEnd { key, turn });
        }
        if was_stopped && !spec.detached {
            run.dropped = true;
            out.push(Effect::Drop { key: run.key.clone(), turn: run.turn });
        }
        self.runs.insert(spec.run, run);
    }

    /// The notes of before were read. What is known by now is known better, but for when a run began and who waits.
    pub(super) fn past(&mut self, runs: Vec<Past>, out: &mut Vec<Effect>) {
        let mut ended = Vec::new();
        for past in runs {
            let (run, over) = (past.spec.run, past.end.is_some());
            match self.runs.get_mut(&run) {
                Some(known) if !known.is_open() || !over || known.turn == past.turn => {
                    known.since_ms = known.since_ms.min(past.since_ms);
                    known.waits |= past.waits;
                    if let State::Ended { told, .. } = &mut known.state {
                        *told |= known.waits;
                    }
                }
                // What is open of its session is something else: it was told something after its end.
                Some(_) | None => {
                    let Some(mut known) = Run::of_past(past) else { continue };
                    if over {
                        known.later = self.runs.remove(&run).map(|run| run.turn).into_iter().collect();
                        self.runs.insert(run, known);
                        ended.push(run);
                    } else {
                        self.follow(known, out);
                    }
                }
            }
        }
        for run in ended.into_iter().rev() {
            self.ended.push_front(run);
        }
        self.forget();
    }

    /// Those that have ended and whose reports are not known to be with their parents.
    pub fn untold(&self) -> Vec<(RunId, SessionKey)> {
        let ended = self.ended.iter().filter_map(|run| self.runs.get(run));
        ended.filter(|run| !run.is_over()).map(|run| (run.spec.run, run.key.clone())).collect()
    }
}

// === impl Run ===

impl Run {
    fn of_past(past: Past) -> Option<Self> {
        let Past { spec, turn, since_ms, waits, end, told } = past;
        let key = spec.key().ok()?;
        let used = end.as_ref().map_or(0, |end| tokens(end.usage));
        let state = match end {
            None => State::Running,
            Some(end) => State::Ended { told: told || waits || end.is_silent(), end },
        };
        Some(Self { spec, key, turn, since_ms, waits, dropped: false, state, later: Vec::new(), used })
    }

    fn notes(&self) -> Vec<Note> {
        let told = matches!(self.state, State::Ended { told: true, .. });
        let reported = told.then_some(Note::Reported { run: self.spec.run });
        [self.began()].into_iter().chain(self.note_of_end()).chain(reported).collect()
    }

    pub(super) fn note_of_end(&self) -> Option<Note> {
        match &self.state {
            State::Ended { end, .. } => Some(Note::ended(self.spec.run, end)),
            State::Starting { .. } | State::Running => None,
        }
    }
}

#[cfg(test)]
mod tests;
