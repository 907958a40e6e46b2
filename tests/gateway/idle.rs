//! A gateway with nothing to do does nothing, and what its commands started is gone.

use std::time::Duration;

use serde_json::json;

use crate::support::{Place, said};

/// How long it is watched.
const WATCHED: Duration = Duration::from_secs(4);
/// Processor time that it may take meanwhile: timers tick, pings are sent, nothing spins.
const BUSY_MAX: Duration = Duration::from_millis(400);
const SESSIONS: usize = 50;

/// Processor time that a process has taken, from the 14th and 15th field of its `stat`, in hundredths of a second.
fn busy(pid: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let behind_the_name = stat.rsplit_once(')').unwrap().1;
    let ticks: u64 =
        behind_the_name.split_whitespace().skip(11).take(2).map(|field| field.parse::<u64>().unwrap()).sum();
    Duration::from_millis(ticks * 10)
}

/// Processes whose parent is `pid`, dead ones that nobody asked about included.
fn children(pid: u32) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        // One that ends meanwhile is no child any more.
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else { continue };
        let Some((name, rest)) = stat.rsplit_once(')') else { continue };
        if rest.split_whitespace().nth(1) == Some(&pid.to_string()) {
            found.push(format!("{name})"));
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_gateway_takes_no_time_and_leaves_no_processes() {
    let place = Place::new(json!({"tools": {"exec": {"sandbox": "off", "timeout": 1}}}));
    let gateway = place.start().await;
    let mut socket = gateway.websocket("").await;
    socket.until("ready").await;
    // A command that ends, one that is killed with what it started, and one that leaves something behind.
    for (n, command) in ["true", "sleep 600 | cat", "(sleep 600 &) ; echo left"].iter().enumerate() {
        let call = json!({"command": command});
        socket.say("tools", &format!("[[tool=exec {call}]]"), &format!("m{n}")).await;
        assert_eq!(socket.until("turn_end").await["result"], "done");
    }
    for n in 0..SESSIONS {
        socket.say(&format!("live-{n}"), "hello", "m").await;
    }
    for _ in 0..SESSIONS {
        socket.until("turn_end").await;
    }
    gateway.settle().await;
    assert_eq!(children(gateway.pid()), [] as [String; 0]);
    let before = busy(gateway.pid());
    tokio::time::sleep(WATCHED).await;
    let taken = busy(gateway.pid()) - before;
    assert!(taken <= BUSY_MAX, "{taken:?} of {WATCHED:?} with nothing to do");
    assert_eq!(gateway.admin("status").await["sessions_live"], SESSIONS + 1);
    assert_eq!(gateway.terminate().await, Some(0));
    assert!(said(&place.transcript("websocket.tools")).len() >= 12);
}
