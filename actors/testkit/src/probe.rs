//! Stands in for a neighbor: an actor that hands every message to the test, in order.

use actix::fut::wrap_future;
use actix::{Actor, ActorContext, ActorFutureExt, AsyncContext, Context, Handler, Message, Recipient};
use tokio::sync::{mpsc, oneshot};

use crate::deadline::with_deadline;

/// The test's end; the actor ends with it. Needs an actix system ([`deadline::run`](crate::deadline::run)).
#[derive(Debug)]
pub struct Probe<M: Message<Result = ()> + Send + Unpin + 'static> {
    recipient: Recipient<M>,
    inbox: mpsc::UnboundedReceiver<M>,
    /// Its drop ends the actor.
    alive: oneshot::Sender<()>,
}

/// The actor's end.
struct Ear<M>(mpsc::UnboundedSender<M>);

// === impl Ear ===

impl<M: Unpin + 'static> Actor for Ear<M> {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        // Unbounded, so that a test that does not listen never looks like a full neighbor.
        ctx.set_mailbox_capacity(0);
    }
}

impl<M: Message<Result = ()> + Unpin + 'static> Handler<M> for Ear<M> {
    type Result = ();

    fn handle(&mut self, message: M, _: &mut Self::Context) {
        // The test may be over.
        let _ = self.0.send(message);
    }
}

// === impl Probe ===

impl<M: Message<Result = ()> + Send + Unpin + 'static> Probe<M> {
    /// Starts the actor on the current arbiter.
    #[expect(clippy::new_without_default, reason = "it starts an actor, which a default should not")]
    #[allow(clippy::disallowed_methods, reason = "a probe is supervised by its test")]
    pub fn new() -> Self {
        let (tx, inbox) = mpsc::unbounded_channel();
        let (alive, dropped) = oneshot::channel();
        let ear = Ear::create(|ctx| {
            ctx.spawn(wrap_future(dropped).map(|_, _: &mut Ear<M>, ctx: &mut Context<Ear<M>>| ctx.stop()));
            Ear(tx)
        });
        Self { recipient: ear.recipient(), inbox, alive }
    }

    /// What to give to the actor under test.
    pub fn recipient(&self) -> Recipient<M> {
        self.recipient.clone()
    }

    /// The next message.
    ///
    /// # Panics
    /// When none comes before the deadline.
    pub async fn next(&mut self) -> M {
        if let Some(message) = self.try_next() {
            return message;
        }
        let wait = with_deadline(std::any::type_name::<M>(), self.inbox.recv());
        wait.await.expect("the probe's own actor holds the other end")
    }

    /// Ends the actor, as if the neighbor had died; its recipients are disconnected when this returns.
    pub async fn stop(mut self) {
        drop(self.alive);
        let wait = async { while self.inbox.recv().await.is_some() {} };
        with_deadline("the probe's end", wait).await;
    }

    /// The next message if one is there already.
    pub fn try_next(&mut self) -> Option<M> {
        self.inbox.try_recv().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deadline::run;

    #[derive(Debug, PartialEq, Message)]
    #[rtype(result = "()")]
    struct Number(u32);

    #[test]
    fn messages_arrive_in_order() {
        run("probe", async {
            let mut probe = Probe::new();
            for number in 0..100 {
                supervision::tell(&probe.recipient(), Number(number)).unwrap();
            }
            for number in 0..100 {
                assert_eq!(probe.next().await, Number(number));
            }
            assert_eq!(probe.try_next(), None);
        });
    }
}
