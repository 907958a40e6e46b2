//! Which model a session uses, and how hard it thinks: what it was set to, else what is configured.

use std::collections::BTreeMap;
use std::sync::Arc;

use domain::keys::SessionKind;
use domain::tally::{OFF, Tally};
use domain::text::{ellipsis, folded};

use crate::shared::SessionConfig;

/// Characters of a name that is told back.
const NAME_SHOWN_MAX: usize = 40;

/// A model and how it is asked.
#[derive(Debug, Clone, PartialEq)]
pub struct Preset {
    /// Its name, as the provider knows it.
    pub model: Arc<str>,
    /// Upper bound of an answer, in tokens.
    pub max_tokens: u32,
    /// The model's window.
    pub context_window_tokens: u64,
    /// Sampling temperature.
    pub temperature: f32,
    /// How hard it thinks, in the provider's word.
    pub effort: Option<Arc<str>>,
    /// The provider that it needs, where that is not the one that is used.
    pub elsewhere: Option<Arc<str>>,
}

/// The presets by their names.
pub type Presets = BTreeMap<Arc<str>, Preset>;

/// What holds for a session.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// The preset's name; `None` for what is configured.
    pub name: Option<Arc<str>>,
    /// Model, limits, and how hard it thinks.
    pub preset: Preset,
}

// === impl Settings ===

impl Settings {
    /// For a session of this kind. A preset that is not there any more, or not usable, is none.
    pub fn of(config: &SessionConfig, kind: SessionKind, tally: &Tally) -> Self {
        let usual = config.dream_preset.as_ref().filter(|_| kind == SessionKind::Dream);
        let chosen = tally.preset.as_ref().or(usual).and_then(|name| config.presets.get_key_value(name));
        let chosen = chosen.filter(|(_, preset)| preset.elsewhere.is_none());
        let mut settings = match chosen {
            Some((name, preset)) => Self { name: Some(Arc::clone(name)), preset: preset.clone() },
            None => {
                let own = config.policies.of(kind).model.as_ref();
                let model = Arc::clone(own.unwrap_or(&config.preset.model));
                Self { name: None, preset: Preset { model, ..config.preset.clone() } }
            }
        };
        if let Some(level) = &tally.effort {
            settings.preset.effort = (**level != *OFF).then(|| Arc::clone(level));
        }
        settings
    }

    /// Which model it is.
    pub fn told(&self) -> String {
        match &self.name {
            Some(name) => format!("{} (preset {name})", self.preset.model),
            None => self.preset.model.to_string(),
        }
    }
}

/// Looks whether a session can be set to that preset.
pub fn check(presets: &Presets, name: &str) -> Result<Arc<str>, String> {
    let Some((name, preset)) = presets.iter().find(|(known, _)| folded(known) == folded(name)) else {
        let name = ellipsis(name, NAME_SHOWN_MAX);
        return Err(format!("There is no preset {name}. {}", list(presets)));
    };
    match &preset.elsewhere {
        Some(provider) => Err(format!(
            "Preset {name} needs provider {provider}, which is not the configured one. Nothing was changed."
        )),
        None => Ok(Arc::clone(name)),
    }
}

/// The presets that there are.
pub fn list(presets: &Presets) -> String {
    if presets.is_empty() {
        return "No presets are configured.".to_owned();
    }
    let usable = presets.iter().filter(|(_, preset)| preset.elsewhere.is_none());
    let usable = usable.fold("Presets: default".to_owned(), |list, (name, _)| format!("{list}, {name}"));
    let other = |(name, preset): (&Arc<str>, &Preset)| Some(format!("{name} ({})", preset.elsewhere.as_deref()?));
    let others: Vec<String> = presets.iter().filter_map(other).collect();
    match others.as_slice() {
        [] => format!("{usable}."),
        others => format!("{usable}. Of another provider than the configured one, so not here: {}.", others.join(", ")),
    }
}

/// The largest window of a model that any session can use.
pub fn window_tokens_max(config: &SessionConfig) -> u64 {
    let others = config.presets.values().filter(|preset| preset.elsewhere.is_none());
    others.map(|preset| preset.context_window_tokens).fold(config.preset.context_window_tokens, u64::max)
}
