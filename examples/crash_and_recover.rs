//! Kills a process with SIGKILL while it works on an accepted message, starts anew on the same directory, and finds the
//! message answered once.
//!
//! `cargo run --example crash_and_recover`

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use domain::ids::{MessageId, SessionKey};
use greenroom::app::{App, Options};
use protocol::session::TurnRecord;

fn main() -> anyhow::Result<()> {
    match std::env::args().nth(1) {
        Some(directory) => greenroom::run(accept_and_hang(Path::new(&directory))),
        None => parent(),
    }
}

/// The child: accepts a message that would take a while to answer, and says so.
async fn accept_and_hang(directory: &Path) -> anyhow::Result<()> {
    let app = App::start(Options::in_directory(directory)?).await?;
    let key = SessionKey::new("cli:example")?;
    let turn = app.submit_as(&key, "survive this [[delay=1500]]", MessageId::new("m1")?).await?;
    println!("{}", turn.turn);
    std::future::pending().await
}

fn parent() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let mut child = Command::new(std::env::current_exe()?).arg(directory.path()).stdout(Stdio::piped()).spawn()?;
    let out = child.stdout.take().ok_or_else(|| anyhow::anyhow!("the child has no output"))?;
    let mut turn = String::new();
    BufReader::new(out).read_line(&mut turn)?;
    println!("accepted as turn {}", turn.trim());
    child.kill()?;
    child.wait()?;
    println!("killed");
    greenroom::run(async {
        let app = App::start(Options::in_directory(directory.path())?).await?;
        let key = SessionKey::new("cli:example")?;
        // The next message of the session waits for the recovered one.
        app.ask(&key, "are you there?").await?;
        match app.turn(&key, turn.trim().parse()?).await? {
            Some(TurnRecord::Ended { text, .. }) => println!("recovered: {text}"),
            other => anyhow::bail!("the accepted message is not answered: {other:?}"),
        }
        app.stop().await;
        Ok(())
    })
}
