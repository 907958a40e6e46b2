//! `greenroom status`: whether a gateway runs here, and how it is.

use serde_json::{Value, json};

use super::admin::Admin;
use super::{print, print_json};
use crate::cli::Output;
use crate::config::Loaded;

/// Prints the status; no gateway is an answer too, not a failure.
pub async fn run(loaded: &Loaded, output: Output) -> anyhow::Result<()> {
    let paths = &loaded.paths;
    let gateway = match Admin::find(paths).await? {
        Some(admin) => Some((admin.beacon().clone(), admin.get("status").await?)),
        None => None,
    };
    if output.json {
        return print_json(&gateway.map_or(json!({"running": false}), |(_, status)| status));
    }
    print(&format!("data       {}", paths.data.display()))?;
    print(&format!("workspace  {}", paths.workspace.display()))?;
    let Some((beacon, status)) = gateway else {
        return print("gateway    not running");
    };
    print(&format!("gateway    running, process {}, version {}", beacon.pid, beacon.version))?;
    for (name, url) in [("websocket", &beacon.websocket_url), ("api", &beacon.api_url)] {
        if let Some(url) = url {
            print(&format!("{name:10} {url}"))?;
        }
    }
    for (name, value) in status.as_object().into_iter().flatten() {
        print_field(name, value)?;
    }
    Ok(())
}

fn print_field(name: &str, value: &Value) -> anyhow::Result<()> {
    match value {
        Value::Object(fields) => {
            let inner: Vec<String> = fields.iter().map(|(name, value)| format!("{name} {value}")).collect();
            print(&format!("{name:10} {}", inner.join(", ")))
        }
        Value::String(text) => print(&format!("{name:10} {text}")),
        Value::Null => Ok(()),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) => print(&format!("{name:10} {value}")),
    }
}
