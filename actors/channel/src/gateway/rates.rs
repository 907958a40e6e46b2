//! Counts per second over the last seconds: one sample a second, a bounded number of them.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use protocol::top::TopRates;

/// Time between two samples.
pub(super) const SAMPLE_EVERY: Duration = Duration::from_secs(1);
/// Samples kept: the rates are over the time between the first and the last.
const SAMPLES_MAX: usize = 11;

/// What was counted until now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Sample {
    pub(super) at: Duration,
    pub(super) accepted: u64,
    pub(super) ended: u64,
    pub(super) refused: u64,
    pub(super) restarts: u64,
}

/// The last samples.
#[derive(Debug, Default)]
pub(super) struct Rates(Mutex<VecDeque<Sample>>);

impl Rates {
    pub(super) fn push(&self, sample: Sample) {
        let mut samples = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        samples.push_back(sample);
        if samples.len() > SAMPLES_MAX {
            samples.pop_front();
        }
    }

    pub(super) fn get(&self) -> TopRates {
        let samples = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match (samples.front(), samples.back()) {
            (Some(first), Some(last)) => between(first, last),
            (_, _) => TopRates::default(),
        }
    }
}

fn between(first: &Sample, last: &Sample) -> TopRates {
    let over = last.at.saturating_sub(first.at);
    if over.is_zero() {
        return TopRates::default();
    }
    // A counter that went back belongs to something new; it says nothing yet.
    let rate = |before: u64, now: u64| now.saturating_sub(before) as f64 / over.as_secs_f64();
    TopRates {
        over_ms: u64::try_from(over.as_millis()).unwrap_or(u64::MAX),
        accepted: rate(first.accepted, last.accepted),
        ended: rate(first.ended, last.ended),
        refused: rate(first.refused, last.refused),
        restarts: rate(first.restarts, last.restarts),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_over_the_last_ten_seconds() {
        let rates = Rates::default();
        assert_eq!(rates.get(), TopRates::default());
        let sample = |second: u64| Sample {
            at: Duration::from_secs(second),
            accepted: if second < 50 { 0 } else { (second - 50) * 20 },
            ended: 7,
            refused: second,
            restarts: 0,
        };
        rates.push(sample(1));
        assert_eq!(rates.get(), TopRates::default(), "one sample is no rate");
        (2..=100).for_each(|second| rates.push(sample(second)));
        let expect = TopRates { over_ms: 10_000, accepted: 20.0, ended: 0.0, refused: 1.0, restarts: 0.0 };
        assert_eq!(rates.get(), expect);
        rates.push(Sample { at: Duration::from_secs(101), ..Sample::default() });
        assert_eq!(rates.get().accepted, 0.0, "never below nothing");
    }
}
