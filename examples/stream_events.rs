//! Every event of a turn as it comes: pieces of text, a tool call, and the one end.
//!
//! `cargo run --example stream_events`

use domain::ids::SessionKey;
use futures::StreamExt;
use greenroom::app::{App, Options};

fn main() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    greenroom::run(async {
        let app = App::start(Options::in_directory(directory.path())?).await?;
        // The offline model does what stands between the brackets.
        let text = "look around [[tool=list_dir {\"path\": \".\"}]] [[tokens=3]]";
        let mut events = app.submit(&SessionKey::new("cli:example")?, text).await?;
        while let Some(event) = events.next().await {
            println!("{}.{}.{}  {:?}", event.turn, event.attempt, event.seq, event.what);
            if matches!(event.what, protocol::turn::TurnProgress::Finished(_)) {
                break;
            }
        }
        app.stop().await;
        Ok(())
    })
}
