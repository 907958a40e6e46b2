//! The way out to people: takes messages, refuses them for now or for ever, hangs, and loses its answers, as its dice say.

use std::fmt;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use channel::outbox::{Delivery, Outcome, PushChannel};
use domain::text::{TextLimit, TextUnit};
use futures::future::BoxFuture;

use super::process::Process;

/// Its name.
pub const NAME: &str = "sim";
/// How long an attempt may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// The longest wait that it asks for, in seconds.
const RETRY_AFTER_S: u64 = 300;

/// The channel of a process.
pub struct SimChannel(pub Arc<Process>);

/// An attempt as long as it lasts, however it ends.
struct UnderWay(Arc<Process>, Delivery);

impl fmt::Debug for SimChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SimChannel")
    }
}

impl PushChannel for SimChannel {
    fn name(&self) -> &str {
        NAME
    }

    fn limit(&self) -> TextLimit {
        TextLimit { unit: TextUnit::Chars, max: self.0.world.plan.push_chars }
    }

    fn patience(&self) -> Duration {
        PATIENCE
    }

    fn send(&self, delivery: Delivery) -> BoxFuture<'static, Outcome> {
        let under_way = UnderWay::begin(self.0.clone(), delivery);
        Box::pin(async move { under_way.go_on().await })
    }
}

impl UnderWay {
    fn begin(process: Arc<Process>, delivery: Delivery) -> Self {
        process.note(|books| {
            let name = books.name(delivery.turn);
            if let Err(wrong) = books.begin_attempt(&delivery) {
                books.wrong(wrong);
            }
            format!("{name} part {} is sent, repeat={}", delivery.id.n, delivery.repeat)
        });
        Self(process, delivery)
    }

    async fn go_on(self) -> Outcome {
        let Self(process, delivery) = &self;
        let dice = &process.pushes;
        let wrong = process.goes_wrong(dice, process.world.plan.rates.pushes);
        let fault = if wrong { dice.below(8) } else { u64::MAX };
        sleep(dice.below(dice.one_of(&[1, 100, 3_000]))).await;
        match fault {
            0 => {
                let retry_after = dice.often(500).then(|| Duration::from_secs(dice.below(RETRY_AFTER_S)));
                return Outcome::Failed { reason: "busy".into(), retry_after, taken: false };
            }
            1 => {
                process.world.books().refused(delivery.id);
                return Outcome::Refused { reason: "never".into() };
            }
            2 => return std::future::pending().await,
            // Nobody supervises an attempt: it ends without a word.
            3 => resume_unwind(Box::new("a channel fails")),
            _ => {}
        }
        if !process.is_alive() {
            return std::future::pending().await;
        }
        process.note(|books| {
            let name = books.name(delivery.turn);
            if let Err(wrong) = books.received(delivery) {
                books.wrong(wrong);
            }
            format!("{name} part {} is received", delivery.id.n)
        });
        sleep(dice.below(dice.one_of(&[1, 100, 3_000]))).await;
        match fault {
            4 => return std::future::pending().await,
            5 => return Outcome::unknown("cut"),
            6 => resume_unwind(Box::new("a channel fails after it took the message")),
            _ => {}
        }
        process.world.books().took(delivery.id);
        Outcome::Delivered
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.world.books().end_attempt(&self.1);
    }
}

async fn sleep(ms: u64) {
    if ms > 0 {
        tokio::time::sleep(Duration::from_millis(ms)).await;
    }
}
