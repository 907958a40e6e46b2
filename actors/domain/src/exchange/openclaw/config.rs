//! `openclaw.json` → our configuration.

use serde_json::{Map, Value};

/// What becomes of OpenClaw's configuration.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Mapped {
    /// Ours.
    pub config: Value,
    /// What was taken over: their key and ours. No values.
    pub taken: Vec<(String, String)>,
    /// Keys that have no place in ours.
    pub left: Vec<String>,
}

/// Their key and ours; `*` is the name of a provider.
const TABLE: &[(&str, &str)] = &[
    ("agents.defaults.model", "agents.defaults.model"),
    ("agents.defaults.model.primary", "agents.defaults.model"),
    ("agents.defaults.userTimezone", "agents.defaults.timezone"),
    ("agents.defaults.contextTokens", "agents.defaults.contextWindowTokens"),
    ("models.providers.*.apiKey", "providers.*.apiKey"),
    ("models.providers.*.baseUrl", "providers.*.apiBase"),
    ("models.providers.*.headers", "providers.*.extraHeaders"),
    ("env.ANTHROPIC_API_KEY", "providers.anthropic.apiKey"),
    ("env.OPENAI_API_KEY", "providers.openai.apiKey"),
    ("env.OPENROUTER_API_KEY", "providers.openrouter.apiKey"),
    ("env.GEMINI_API_KEY", "providers.gemini.apiKey"),
    ("env.GROQ_API_KEY", "providers.groq.apiKey"),
    ("env.DEEPSEEK_API_KEY", "providers.deepseek.apiKey"),
    ("channels.telegram.enabled", "channels.telegram.enabled"),
    ("channels.telegram.botToken", "channels.telegram.token"),
    ("channels.telegram.allowFrom", "channels.telegram.allowFrom"),
    ("channels.discord.enabled", "channels.discord.enabled"),
    ("channels.discord.token", "channels.discord.token"),
    ("channels.discord.allowFrom", "channels.discord.allowFrom"),
    ("channels.slack.enabled", "channels.slack.enabled"),
    ("channels.slack.botToken", "channels.slack.botToken"),
    ("channels.slack.appToken", "channels.slack.appToken"),
    ("channels.slack.allowFrom", "channels.slack.allowFrom"),
];

/// Maps what has a place in ours; names everything else.
pub fn map_config(theirs: &Value) -> Mapped {
    let mut mapped = Mapped { config: Value::Object(Map::new()), ..Mapped::default() };
    walk(theirs, &mut Vec::new(), &mut mapped);
    mapped
}

fn walk<'v>(value: &'v Value, path: &mut Vec<&'v str>, mapped: &mut Mapped) {
    if let Some(ours) = ours(path, value) {
        mapped.taken.push((path.join("."), ours.join(".")));
        put(&mut mapped.config, &ours, value.clone());
        return;
    }
    match value {
        Value::Object(fields) if !fields.is_empty() && path.len() < 16 => {
            for (name, value) in fields {
                path.push(name);
                walk(value, path, mapped);
                path.pop();
            }
        }
        Value::Object(_) | Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            if !path.is_empty() {
                mapped.left.push(path.join("."));
            }
        }
    }
}

/// Our key for theirs.
fn ours(path: &[&str], value: &Value) -> Option<Vec<String>> {
    // What stands in `env.vars` means the same as what stands in `env`.
    let path: Vec<&str> = match path {
        ["env", "vars", name] => vec!["env", *name],
        path => path.to_vec(),
    };
    let fits = |their: &&(&str, &str)| {
        let pattern: Vec<&str> = their.0.split('.').collect();
        pattern.len() == path.len() && pattern.iter().zip(&path).all(|(want, have)| *want == "*" || want == have)
    };
    let (theirs, ours) = TABLE.iter().find(fits)?;
    // A model may be an object, which is looked into.
    if *theirs == "agents.defaults.model" && !value.is_string() {
        return None;
    }
    let name = theirs.split('.').zip(&path).find(|(want, _)| *want == "*").map(|(_, have)| *have);
    Some(ours.split('.').map(|part| if part == "*" { name.unwrap_or(part) } else { part }.to_owned()).collect())
}

/// Sets a value, unless one is there: what stands first in their file counts.
fn put(config: &mut Value, path: &[String], value: Value) {
    let mut at = config;
    for name in path {
        if !at.is_object() {
            *at = Value::Object(Map::new());
        }
        let Some(fields) = at.as_object_mut() else { return };
        at = fields.entry(name.as_str()).or_insert(Value::Null);
    }
    if at.is_null() {
        *at = value;
    }
}
