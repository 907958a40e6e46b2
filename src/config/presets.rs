//! The models that a session can be set to, as far as the provider that is used has them. Pure.
//!
//! **Source of names:** `modelPresets` of nanobot 0.3.5.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::key::{Key, Kind, Section};
use super::providers::{ProviderChoice, choose_provider};
use super::schema::Config;

section! {
    /// One entry of `modelPresets`.
    ModelPreset {
        /// The model's name, with or without the provider in front.
        model: String = String::new(), Kind::Text;
        /// A provider's name, or `auto`: found as for `agents.defaults`.
        provider: String = "auto".into(), Kind::Text;
        /// Most tokens of one answer.
        max_tokens: u32 = 8192, Kind::Whole(1, 10_000_000);
        /// Tokens that the model's context holds, answer included.
        context_window_tokens: u32 = 200_000, Kind::Whole(1, 100_000_000);
        /// Sampling temperature.
        temperature: f64 = 0.1, Kind::Number(0.0, 2.0);
        /// How hard a reasoning model thinks. Not set: the provider's choice.
        reasoning_effort: Option<String> = None, Kind::OptionalText;
    }
    unused []
}

/// How a preset is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PresetChoice {
    /// The model's name as the provider knows it.
    pub model: String,
    /// The provider that it needs, where that is not the one that is used.
    pub elsewhere: Option<String>,
}

/// Finds for each preset whether `used`, which was chosen for `agents.defaults`, can serve it.
pub fn choose_presets(
    config: &Config,
    env: &BTreeMap<String, String>,
    used: &ProviderChoice,
) -> BTreeMap<String, PresetChoice> {
    let choice = |preset: &ModelPreset| {
        let mut with = config.clone();
        with.agents.defaults.model.clone_from(&preset.model);
        if preset.provider != "auto" {
            with.agents.defaults.provider.clone_from(&preset.provider);
        }
        let needed = choose_provider(&with, env);
        match (needed, used) {
            (Ok(ProviderChoice::Remote(needed)), ProviderChoice::Remote(used)) if needed.name == used.name => {
                PresetChoice { model: needed.model, elsewhere: None }
            }
            (Ok(ProviderChoice::Offline { .. }), ProviderChoice::Offline { .. }) => {
                PresetChoice { model: preset.model.clone(), elsewhere: None }
            }
            (Ok(ProviderChoice::Remote(needed)), _) => {
                PresetChoice { model: needed.model, elsewhere: Some(needed.name) }
            }
            (Ok(ProviderChoice::Offline { .. }) | Err(_), _) => {
                PresetChoice { model: preset.model.clone(), elsewhere: Some(with.agents.defaults.provider) }
            }
        }
    };
    config.model_presets.iter().map(|(name, preset)| (name.clone(), choice(preset))).collect()
}

/// Names that a preset cannot have, and presets without a model: what is wrong with the first of them.
pub fn wrong(presets: &BTreeMap<String, ModelPreset>) -> Option<String> {
    presets.iter().find_map(|(name, preset)| {
        if name == "default" {
            Some("has an entry named default, which means agents.defaults; name it otherwise".to_owned())
        } else if name.is_empty() || name.contains(char::is_whitespace) {
            Some("has an entry whose name is empty or has a blank, which nobody could write behind /model".to_owned())
        } else if preset.model.trim().is_empty() {
            Some(format!("has the entry {name} without a model; set its model"))
        } else {
            None
        }
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_preset_is_usable_where_its_provider_is_the_one_that_is_used() {
        let presets = json!({
            "near": {"model": "deepseek/deepseek-reasoner"},
            "far": {"model": "gpt-5", "provider": "openai"},
            "found": {"model": "openai/gpt-5"},
            "nowhere": {"model": "x", "provider": "nobody"},
        });
        let config: Config = serde_json::from_value(json!({
            "agents": {"defaults": {"model": "deepseek-chat"}},
            "providers": {"deepseek": {"api_key": "a"}, "openai": {"api_key": "b"}},
            "model_presets": presets,
        }))
        .unwrap();
        let env = BTreeMap::new();
        let used = choose_provider(&config, &env).unwrap();
        let chosen = choose_presets(&config, &env, &used);
        let told: Vec<_> = chosen.iter().map(|(name, one)| (&**name, &*one.model, one.elsewhere.as_deref())).collect();
        assert_eq!(
            told,
            [
                ("far", "gpt-5", Some("openai")),
                ("found", "gpt-5", Some("openai")),
                ("near", "deepseek-reasoner", None),
                ("nowhere", "x", Some("nobody")),
            ]
        );
    }

    #[test]
    fn names_that_cannot_be_used_are_told() {
        let wrong = |presets: Value| wrong(&serde_json::from_value(presets).unwrap());
        assert_eq!(wrong(json!({"fast": {"model": "m"}})), None);
        assert!(wrong(json!({"default": {"model": "m"}})).unwrap().contains("agents.defaults"));
        assert!(wrong(json!({"a b": {"model": "m"}})).unwrap().contains("/model"));
        assert!(wrong(json!({"fast": {}})).unwrap().contains("fast without a model"));
    }
}
