//! `greenroom deadletters`: turns that were given up.

use serde_json::{Value, json};

use super::admin::Admin;
use super::{print, print_json};
use crate::app::{App, Options};
use crate::cli::{Deadletters, Output};
use crate::config::Loaded;

/// Runs the subcommand, through the gateway or, when none runs, on the journal itself.
pub async fn run(loaded: Loaded, what: Deadletters) -> anyhow::Result<()> {
    let Deadletters::List(output) = what;
    let items = match Admin::find(&loaded.paths).await? {
        Some(admin) => admin.list("deadletters").await?,
        None => {
            let app = App::start(Options::at_rest(loaded)).await?;
            let letters = app.dead_letters().await;
            app.stop().await;
            letters?.iter().map(serde_json::to_value).collect::<Result<_, _>>()?
        }
    };
    show(&items, output)
}

fn show(items: &[Value], output: Output) -> anyhow::Result<()> {
    if output.json {
        return print_json(&json!({"items": items, "next": null}));
    }
    if items.is_empty() {
        return print("no dead letters");
    }
    for item in items {
        let field = |name: &str| item[name].as_str().unwrap_or_default().to_owned();
        let at = item["at_ms"].as_i64().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
        let at = at.map(|at| format!("{at:.0}")).unwrap_or_default();
        print(&format!("{at}  {}  {}  {}", field("key"), field("turn"), field("reason")))?;
    }
    Ok(())
}
