//! A tool of one's own: what it takes, what it does, and the model calling it.
//!
//! `cargo run --example custom_tool`

use std::sync::Arc;

use domain::ids::SessionKey;
use futures::future::BoxFuture;
use greenroom::app::{App, Options};
use tools::{Call, Outcome, Tool, ToolSpec};

/// Adds two numbers.
struct Add;

impl Tool for Add {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "add".to_owned(),
            description: "Adds two whole numbers.".to_owned(),
            parameters: serde_json::json!({
                "type": "object",
                "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
                "required": ["a", "b"],
            }),
            parallel: true,
            idempotent: true,
        }
    }

    fn call(&self, call: Call) -> BoxFuture<'static, Outcome> {
        // The arguments were checked against the schema before the call.
        let number = |name: &str| call.arguments[name].as_i64().unwrap_or_default();
        let sum = number("a") + number("b");
        Box::pin(async move { Outcome::text(sum.to_string()) })
    }
}

fn main() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    greenroom::run(async {
        let app = App::start(Options::in_directory(directory.path())?.with_tool(Arc::new(Add))).await?;
        let text = "what is 2 + 40? [[tool=add {\"a\": 2, \"b\": 40}]] [[show_results]]";
        let answer = app.ask(&SessionKey::new("cli:example")?, text).await?;
        println!("{}", answer.text);
        app.stop().await;
        anyhow::ensure!(answer.text.contains("42"), "the tool's result is not in the answer");
        Ok(())
    })
}
