use std::sync::mpsc;

use actix::{Actor, Context, Handler, Supervised};
use protocol::supervision::{Down, ExitReason, Kind};
use supervision::{ArbiterPlacement, Child, Placement, tell};
use testkit::deadline::run;
use tokio::sync::oneshot;

use crate::child::kernel;

struct Where;

#[derive(Debug, actix::Message)]
#[rtype(result = "()")]
enum Ask {
    Thread(oneshot::Sender<std::thread::ThreadId>),
    Boom,
}

impl Actor for Where {
    type Context = Context<Self>;
}

impl Supervised for Where {}

impl Handler<Ask> for Where {
    type Result = ();

    fn handle(&mut self, ask: Ask, _: &mut Self::Context) {
        match ask {
            Ask::Thread(reply) => {
                let _ = reply.send(std::thread::current().id());
            }
            Ask::Boom => panic!("boom"),
        }
    }
}

fn child(name: &str, downs: &mpsc::Sender<Down>) -> Child {
    let downs = downs.clone();
    let mut child = Child::new(name, Kind::Tools);
    child.on_down = Some(Box::new(move |down| {
        let _ = downs.send(down);
    }));
    child
}

#[test]
fn actors_run_where_they_are_placed_and_end_with_their_arbiter() {
    run("arbiters", async {
        let (kernel, _, _) = kernel();
        let place = ArbiterPlacement::new(2).unwrap();
        let (tx, downs) = mpsc::channel();
        let mut threads = Vec::new();
        let mut actors = Vec::new();
        for n in 0..4 {
            let actor = kernel.spawn(child(&format!("/test/{n}"), &tx), &place, n, |_| Where).recipient();
            if n % 2 == 0 {
                tell(&actor, Ask::Boom).unwrap();
            }
            let (reply, thread) = oneshot::channel();
            tell(&actor, Ask::Thread(reply)).unwrap();
            threads.push(thread.await.unwrap());
            actors.push(actor);
        }
        assert_eq!((threads[0], threads[1]), (threads[2], threads[3]));
        assert_ne!(threads[0], threads[1]);
        assert_eq!(place.arbiters(), 2);
        place.stop_and_join();
        let late = kernel.spawn(child("/test/late", &tx), &place, 0, |_| Where);
        assert!(!late.connected());
        drop((actors, tx, kernel));
        let all: Vec<Down> = downs.iter().collect();
        assert_eq!(all.iter().filter(|down| down.restarts).count(), 2);
        let ended: Vec<&Down> = all.iter().filter(|down| !down.restarts).collect();
        assert_eq!(ended.len(), 5);
        assert!(ended.iter().all(|down| down.reason == ExitReason::Killed));
    });
}
