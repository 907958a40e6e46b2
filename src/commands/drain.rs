//! `greenroom gateway drain`: tells the running gateway to stop in order, and follows it to its end.

use std::time::Duration;

use domain::text::counted;
use serde_json::{Value, json};

use super::admin::Admin;
use super::{print, print_json};
use crate::app::lock::Lock;
use crate::cli::DrainArgs;
use crate::config::Loaded;

/// How often the gateway is asked how far it is.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Drains; with `--wait` returns when the gateway's process has let its directory go.
pub async fn run(loaded: &Loaded, arguments: &DrainArgs) -> anyhow::Result<()> {
    let admin = Admin::require(&loaded.paths).await?;
    let json = arguments.output.json;
    let mut answer: Value = admin.post("drain", &json!({})).await?.json().await?;
    let mut told = progress(&answer);
    if !json {
        print(&told)?;
    }
    if arguments.wait {
        let lock = loaded.paths.run.join("lock");
        while Lock::holder(&lock).is_some() {
            tokio::time::sleep(LOOK_EVERY).await;
            // It closes its doors before it ends.
            let Ok(status) = admin.get("status").await else { continue };
            let now = progress(&status);
            if now != told && !json {
                print(&now)?;
            }
            told = now;
        }
    }
    if arguments.wait {
        // Of a gateway that has ended there is nothing more to say.
        answer["ended"] = true.into();
    }
    match (json, arguments.wait) {
        (true, _) => print_json(&answer),
        (false, true) => print("the gateway has ended; what is open goes on at the next start"),
        (false, false) => Ok(()),
    }
}

fn progress(status: &Value) -> String {
    let count = |value: &Value| value.as_u64().unwrap_or(0);
    let running = counted(count(&status["turns_running"]), "turn");
    format!("draining: {running} running, {} open", count(&status["journal"]["open"]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_one_line() {
        for (running, words) in [(1, "1 turn running"), (2, "2 turns running")] {
            let status = json!({"turns_running": running, "journal": {"open": 5}});
            assert_eq!(progress(&status), format!("draining: {words}, 5 open"));
        }
    }
}
