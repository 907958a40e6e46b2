//! The rules of queues, changed while sessions run: what was answered is what was asked for, and holds from then on,
//! whatever crashes, until something else is asked for. A session that ended begins with the configured ones.

use domain::ids::SessionKey;
use domain::queue::{QueueAsk, QueueRules, QueueSet};
use protocol::session::{Mail, QueueState};
use tokio::sync::oneshot;

use super::books::Books;
use super::drive::Running;

/// How often a session is asked in the end: it may leave memory with the question in hand.
const TRIES: u32 = 10;

/// What one session was asked about its queue, in order.
#[derive(Debug, Default)]
pub struct Asked(Vec<Ask>);

#[derive(Debug)]
struct Ask {
    what: QueueAsk,
    /// Without it, it may have come to pass or not.
    answered: bool,
}

// === impl Asked ===

impl Asked {
    fn ask(&mut self, what: QueueAsk) -> usize {
        self.0.push(Ask { what, answered: false });
        self.0.len() - 1
    }

    fn refused(&mut self, number: usize) {
        self.0[number].what = QueueAsk::Show;
    }

    /// It was answered with these rules, which are one of those that may hold behind it.
    fn answered(&mut self, number: usize, rules: &QueueRules, usual: &QueueRules) -> Result<(), String> {
        self.0[number].answered = true;
        let asked = self.0.get(..=number).unwrap_or_default();
        let mut possible = vec![QueueSet::default()];
        for Ask { what, answered } in asked {
            let then: Vec<QueueSet> = possible.iter().map(|set| after(*what, *set)).collect();
            if *answered {
                possible.clear();
            }
            possible.extend(then);
            let mut seen = Vec::with_capacity(possible.len());
            possible.retain(|set| {
                !seen.contains(set) && {
                    seen.push(*set);
                    true
                }
            });
        }
        if possible.iter().any(|set| set.over(usual) == *rules) {
            return Ok(());
        }
        Err(format!("the rules of the queue are {rules} after {asked:?}"))
    }
}

/// What a session sets behind an ask.
fn after(ask: QueueAsk, before: QueueSet) -> QueueSet {
    match ask {
        QueueAsk::Show => before,
        QueueAsk::Set(set) => set.or(before),
        QueueAsk::Default => QueueSet::default(),
    }
}

// === impl Books ===

impl Books {
    fn asked(&mut self, key: &SessionKey) -> &mut Asked {
        &mut self.beings.entry(key.clone()).or_default().asked
    }

    fn queue_is(&mut self, key: &SessionKey, number: usize, state: &QueueState, usual: &QueueRules) {
        let asked = self.asked(key);
        let sets = asked.0[number].what != QueueAsk::Show;
        let checked = asked.answered(number, &state.rules, usual);
        self.counts.queues_set += u64::from(sets);
        // With a transcript its rules go, and they come back with it.
        if let Err(wrong) = checked
            && self.renewals(key) == 0
        {
            self.wrong(format!("{key}: {wrong}"));
        }
    }
}

// === impl Running ===

impl Running {
    /// Shows or sets the rules of a session's queue.
    pub fn ask_queue(&self, index: usize, ask: QueueAsk) {
        tokio::task::spawn_local(self.submit_ask(index, ask));
    }

    /// What holds in the end is what was asked for.
    pub async fn check_queues(&self) {
        for index in 0..self.process.world.plan.keys.len() {
            let mut told = false;
            for _ in 0..TRIES {
                told = self.submit_ask(index, QueueAsk::Show).await;
                if told || !self.process.is_alive() {
                    break;
                }
                tokio::time::sleep(std::time::Duration::from_secs(1)).await;
            }
            if !told && self.process.is_alive() {
                self.process.world.books().wrong(format!("{} does not tell its rules", self.key(index)));
            }
        }
    }

    /// Asks at once. The answer comes later; whether there was one.
    fn submit_ask(&self, index: usize, ask: QueueAsk) -> impl Future<Output = bool> + use<> {
        let key = self.key(index).clone();
        let number = self.process.world.books().asked(&key).ask(ask);
        let (reply, state) = oneshot::channel();
        if self.app.sessions().tell(&key, Mail::Queue { ask, reply }).is_err() {
            self.process.world.books().asked(&key).refused(number);
        }
        let process = self.process.clone();
        async move {
            let Ok(state) = state.await else { return false };
            process.note(|books| {
                books.queue_is(&key, number, &state, &process.world.plan.queue);
                format!("the queue of {key}: {}, {} wait", state.rules, state.waiting)
            });
            true
        }
    }
}
