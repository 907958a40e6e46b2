//! One question, one answer, offline, in a directory of its own.
//!
//! `cargo run --example one_turn`

use domain::ids::SessionKey;
use greenroom::app::{App, Options};

fn main() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    greenroom::run(async {
        let app = App::start(Options::in_directory(directory.path())?).await?;
        let answer = app.ask(&SessionKey::new("cli:example")?, "hello from one_turn").await?;
        println!("{}", answer.text);
        app.stop().await;
        Ok(())
    })
}
