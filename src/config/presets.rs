//! The models that a session can be set to, as far as the provider that is used has them. Pure.
//!
//! **Source of names:** `modelPresets` of nanobot 0.3.5.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::check::Place;
use super::key::{Key, Kind, Section, camel, canonical, closest};
use super::providers::{ProviderChoice, choose_provider};
use super::schema::Config;

/// What `agents.defaults` says of the model, by the name that `/model` has for it.
const DEFAULT: &str = "default";
/// A provider that is found as for `agents.defaults`.
const AUTO: &str = "auto";

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
        if preset.provider != AUTO {
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

/// The settings with the preset of `agents.defaults.modelPreset` in place of what `agents.defaults` says of the model.
pub fn with_default(config: &Config) -> Config {
    let mut with = config.clone();
    if let Some((_, preset)) = default_preset(config) {
        let (defaults, preset) = (&mut with.agents.defaults, preset.clone());
        defaults.model = preset.model;
        if preset.provider != AUTO {
            defaults.provider = preset.provider;
        }
        defaults.max_tokens = preset.max_tokens;
        defaults.context_window_tokens = preset.context_window_tokens;
        defaults.temperature = preset.temperature;
        defaults.reasoning_effort = preset.reasoning_effort;
    }
    with
}

/// The key of the provider that the default preset names, if it names one.
pub fn default_provider(config: &Config) -> Option<Place> {
    let (name, _) = default_preset(config).filter(|(_, preset)| preset.provider != AUTO)?;
    let steps = ["model_presets", name, "provider"];
    Some(steps.into_iter().fold(Place::default(), |place, step| place.child(step, &camel(step))))
}

/// What is wrong with `agents.defaults.modelPreset`.
pub fn wrong_default(config: &Config) -> Option<String> {
    wrong_name(config, &default_name(config)?)
}

/// Why the preset of Dream is none.
pub fn wrong_dream(config: &Config) -> Option<String> {
    wrong_name(config, &dream_name(config)?)
}

/// The preset that Dream is set to.
pub fn dream_name(config: &Config) -> Option<String> {
    let named = config.agents.defaults.dream.model_override.as_deref().map(canonical);
    named.filter(|name| name != DEFAULT)
}

fn wrong_name(config: &Config, named: &str) -> Option<String> {
    if config.model_presets.contains_key(named) {
        return None;
    }
    let names: Vec<&str> = config.model_presets.keys().map(String::as_str).collect();
    Some(match (names.as_slice(), closest(named, names.iter().copied())) {
        ([], _) => "names a preset, but there are no modelPresets".to_owned(),
        (_, Some(meant)) => format!("names no entry of modelPresets; did you mean {meant}?"),
        (names, None) => format!("names no entry of modelPresets; there are {}", names.join(", ")),
    })
}

fn default_name(config: &Config) -> Option<String> {
    config.agents.defaults.model_preset.as_deref().map(canonical).filter(|name| name != DEFAULT)
}

fn default_preset(config: &Config) -> Option<(&str, &ModelPreset)> {
    config.model_presets.get_key_value(&default_name(config)?).map(|(name, preset)| (name.as_str(), preset))
}

/// Names that a preset cannot have, and presets without a model: what is wrong with the first of them.
pub fn wrong(presets: &BTreeMap<String, ModelPreset>) -> Option<String> {
    presets.iter().find_map(|(name, preset)| {
        if name == DEFAULT {
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
    fn the_default_preset_takes_the_place_of_the_defaults_and_leaves_the_others_as_they_are() {
        let config = |name: Value| -> Config {
            serde_json::from_value(json!({
                "agents": {"defaults": {"model": "deepseek-chat", "model_preset": name, "temperature": 0.7}},
                "providers": {"deepseek": {"api_key": "a"}, "openai": {"api_key": "b"}},
                "model_presets": {
                    "far_away": {"model": "gpt-5", "provider": "openai", "max_tokens": 9, "reasoning_effort": "low"},
                    "near": {"model": "deepseek-reasoner"},
                },
            }))
            .unwrap()
        };
        let chosen = |name: Value| {
            let written = config(name);
            let with = with_default(&written);
            let Ok(ProviderChoice::Remote(used)) = choose_provider(&with, &BTreeMap::new()) else { panic!("none") };
            let presets = choose_presets(&written, &BTreeMap::new(), &ProviderChoice::Remote(used.clone()));
            let usable: Vec<String> =
                presets.into_iter().filter(|(_, one)| one.elsewhere.is_none()).map(|(name, _)| name).collect();
            let defaults = with.agents.defaults;
            (used.name, used.model, defaults.max_tokens, defaults.temperature, defaults.reasoning_effort, usable)
        };
        let near = vec!["near".to_owned()];
        let plain = ("deepseek".into(), "deepseek-chat".into(), 8192, 0.7, None, near.clone());
        assert_eq!(chosen(Value::Null), plain);
        assert_eq!(chosen(json!("default")), plain);
        let reasoner = ("deepseek".into(), "deepseek-reasoner".into(), 8192, 0.1, None, near);
        assert_eq!(chosen(json!("near")), reasoner);
        let far = ("openai".into(), "gpt-5".into(), 9, 0.1, Some("low".into()), vec!["far_away".to_owned()]);
        assert_eq!(chosen(json!("farAway")), far);
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
