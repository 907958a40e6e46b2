//! Which model provider answers: the table of known ones and the choice among them.
//!
//! **Source:** the provider registry and matching order of nanobot 0.3.5. Pure: the environment is an argument.
//! Unlike there, the provider that `agents.defaults.provider` names may take its key from its usual environment
//! variable. Such a variable never selects a provider: a shell that happens to hold one must not send chats anywhere.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::check::Place;
use super::key::{camel, canonical};
use super::schema::{Config, Provider};
use super::secret::Secret;

/// How a provider is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Access {
    /// OpenAI-compatible, resells the models of others.
    Gateway,
    /// OpenAI-compatible, its own models.
    Direct,
    /// OpenAI-compatible, on the user's machine; no key.
    Local,
    /// OpenAI-compatible at an address of the user's; key optional.
    Custom,
    /// Speaks something that this version does not.
    Unsupported,
}

/// One row of the table.
#[derive(Debug)]
struct Known {
    name: &'static str,
    access: Access,
    /// Parts of model names that point here; the name itself always does.
    keywords: &'static [&'static str],
    /// Usual base address; empty when there is none.
    base: &'static str,
}

const fn row(name: &'static str, access: Access, keywords: &'static [&'static str], base: &'static str) -> Known {
    Known { name, access, keywords, base }
}

/// In matching order.
#[rustfmt::skip]
const KNOWN: &[Known] = {
    use Access::{Custom, Direct, Gateway, Local, Unsupported};
    &[
        row("custom", Custom, &[], ""),
        row("azure_openai", Unsupported, &[], ""),
        row("bedrock", Unsupported, &["anthropic.claude", "amazon.nova", "meta."], ""),
        row("openrouter", Gateway, &[], "https://openrouter.ai/api/v1"),
        row("orcarouter", Gateway, &[], "https://api.orcarouter.ai/v1"),
        row("edenai", Gateway, &[], "https://api.edenai.run/v3"),
        row("opencode", Gateway, &[], "https://opencode.ai/zen/v1"),
        row("opencode_zen", Gateway, &[], "https://opencode.ai/zen/v1"),
        row("opencode_go", Gateway, &[], "https://opencode.ai/zen/go/v1"),
        row("huggingface", Gateway, &[], "https://router.huggingface.co/v1"),
        row("skywork", Gateway, &[], "https://api.apifree.ai/agent/v1"),
        row("aihubmix", Gateway, &[], "https://aihubmix.com/v1"),
        row("siliconflow", Gateway, &[], "https://api.siliconflow.cn/v1"),
        row("novita", Gateway, &[], "https://api.novita.ai/openai"),
        row("volcengine", Gateway, &[], "https://ark.cn-beijing.volces.com/api/v3"),
        row("volcengine_coding_plan", Gateway, &[], "https://ark.cn-beijing.volces.com/api/coding/v3"),
        row("byteplus", Gateway, &[], "https://ark.ap-southeast.bytepluses.com/api/v3"),
        row("byteplus_coding_plan", Gateway, &[], "https://ark.ap-southeast.bytepluses.com/api/coding/v3"),
        row("anthropic", Unsupported, &["claude"], ""),
        row("openai", Direct, &["gpt"], "https://api.openai.com/v1"),
        row("openai_codex", Unsupported, &[], ""),
        row("xai_grok", Unsupported, &[], ""),
        row("github_copilot", Unsupported, &[], ""),
        row("deepseek", Direct, &[], "https://api.deepseek.com"),
        row("gemini", Direct, &[], "https://generativelanguage.googleapis.com/v1beta/openai/"),
        row("zhipu", Direct, &["glm", "zai"], "https://open.bigmodel.cn/api/paas/v4"),
        row("dashscope", Direct, &["qwen"], "https://dashscope.aliyuncs.com/compatible-mode/v1"),
        row("modelscope", Gateway, &[], "https://api-inference.modelscope.cn/v1"),
        row("moonshot", Direct, &["kimi"], "https://api.moonshot.ai/v1"),
        row("kimi_coding", Unsupported, &[], ""),
        row("minimax", Direct, &[], "https://api.minimax.io/v1"),
        row("minimax_anthropic", Unsupported, &[], ""),
        row("mistral", Direct, &[], "https://api.mistral.ai/v1"),
        row("stepfun", Direct, &[], "https://api.stepfun.com/v1"),
        row("xiaomi_mimo", Direct, &[], "https://api.xiaomimimo.com/v1"),
        row("longcat", Direct, &[], "https://api.longcat.chat/openai/v1"),
        row("ant_ling", Direct, &[], "https://api.ant-ling.com/v1"),
        row("vllm", Local, &[], ""),
        row("ollama", Local, &["nemotron"], "http://localhost:11434/v1"),
        row("lm_studio", Local, &[], "http://localhost:1234/v1"),
        row("atomic_chat", Local, &[], "http://localhost:1337/v1"),
        row("ovms", Local, &[], "http://localhost:8000/v3"),
        row("nvidia", Gateway, &[], "https://integrate.api.nvidia.com/v1"),
        row("groq", Gateway, &[], "https://api.groq.com/openai/v1"),
        row("qianfan", Direct, &[], "https://qianfan.baidubce.com/v2"),
    ]
};

/// Who answers.
#[derive(Debug, Clone, PartialEq)]
pub enum ProviderChoice {
    /// An OpenAI-compatible server.
    Remote(Box<ProviderSettings>),
    /// The built-in model.
    Offline {
        /// Why, for the user.
        why: String,
    },
}

/// Everything that is needed to call an OpenAI-compatible server.
#[derive(Debug, Clone, PartialEq)]
pub struct ProviderSettings {
    /// Canonical name.
    pub name: String,
    /// Base address without a trailing slash.
    pub api_base: String,
    /// The key, if it needs one.
    pub api_key: Option<Secret>,
    /// The model's name as this provider knows it.
    pub model: String,
    /// Headers added to each request.
    pub extra_headers: BTreeMap<String, Secret>,
    /// Fields merged last into each body.
    pub extra_body: Map<String, Value>,
    /// Parameters added to each address.
    pub extra_query: BTreeMap<String, Secret>,
    /// Whether tool calls in the text are calls.
    pub text_tool_calls: bool,
}

/// Why the asked provider cannot be used: what is said of the key at [`ProviderError::place`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProviderError {
    /// `agents.defaults.provider` names nobody.
    #[error("names no known provider and no entry under providers{}", hint(.nearest))]
    Unknown {
        /// The provider that was probably meant.
        nearest: Option<String>,
    },
    /// It needs a key and has none.
    #[error("is not set and provider {name} has no key; set it or the environment variable {variable}")]
    NoKey {
        /// The provider.
        name: String,
        /// The variable that may hold the key.
        variable: String,
    },
    /// It has no usual address and none is set.
    #[error(
        "is not set and provider {name} has no address of its own; set it to the server's http:// or https:// address"
    )]
    NoBase {
        /// The provider.
        name: String,
    },
    /// The address is not one.
    #[error("must start with http:// or https://")]
    BadBase {
        /// The provider.
        name: String,
    },
    /// It speaks a protocol that this version does not.
    #[error(
        "leads to {name}, which is not supported by this version: it speaks the OpenAI-compatible protocol only; \
         set agents.defaults.provider to openrouter, or to custom with providers.custom.apiBase"
    )]
    Unsupported {
        /// The provider.
        name: String,
        /// Whether it was found by its entry.
        automatic: bool,
    },
}

impl ProviderError {
    /// The key to blame.
    pub fn place(&self) -> Place {
        let path: &[&str] = match self {
            Self::Unknown { .. } | Self::Unsupported { automatic: false, .. } => &["agents", "defaults", "provider"],
            Self::Unsupported { name, automatic: true } => &["providers", name],
            Self::NoKey { name, .. } => &["providers", name, "api_key"],
            Self::NoBase { name } | Self::BadBase { name } => &["providers", name, "api_base"],
        };
        path.iter().fold(Place::default(), |place, step| place.child(step, &camel(step)))
    }
}

fn hint(nearest: &Option<String>) -> String {
    nearest.as_ref().map(|name| format!("; did you mean {name}?")).unwrap_or_default()
}

/// What the user is told when nothing is configured.
const NOTHING_CONFIGURED: &str = "no model provider is configured; set providers.<name>.apiKey, or \
                                  agents.defaults.provider together with the key's environment variable";

/// Chooses who answers. `env` is the process environment.
pub fn choose_provider(config: &Config, env: &BTreeMap<String, String>) -> Result<ProviderChoice, ProviderError> {
    let defaults = &config.agents.defaults;
    let asked = canonical(&defaults.provider);
    match asked.as_str() {
        "offline" => Ok(ProviderChoice::Offline { why: "agents.defaults.provider is offline".into() }),
        "auto" => match automatic(config) {
            Some(name) => settings(config, env, name),
            None => Ok(ProviderChoice::Offline { why: NOTHING_CONFIGURED.into() }),
        },
        name if known(name).is_some() || config.providers.contains_key(name) => settings(config, env, name),
        name => {
            let nearest = KNOWN
                .iter()
                .map(|row| (strsim::damerau_levenshtein(row.name, name), row.name))
                .filter(|(distance, _)| *distance <= 2)
                .min()
                .map(|(_, name)| name.to_string());
            Err(ProviderError::Unknown { nearest })
        }
    }
}

fn known(name: &str) -> Option<&'static Known> {
    KNOWN.iter().find(|row| row.name == name)
}

/// The environment variable that usually holds this provider's key.
fn variable(name: &str) -> String {
    format!("{}_API_KEY", name.to_ascii_uppercase())
}

fn key(config: &Config, env: &BTreeMap<String, String>, name: &str) -> Option<Secret> {
    let from_file = config.providers.get(name).and_then(|entry| entry.api_key.clone());
    from_file.or_else(|| env.get(&variable(name)).filter(|text| !text.trim().is_empty()).map(Secret::new))
}

fn has_base(config: &Config, name: &str) -> bool {
    config.providers.get(name).is_some_and(|entry| entry.api_base.is_some())
}

/// Whether a known provider has what it needs in the configuration.
fn usable(config: &Config, row: &Known) -> bool {
    match row.access {
        Access::Gateway | Access::Direct | Access::Unsupported => {
            config.providers.get(row.name).is_some_and(|entry| entry.api_key.is_some())
        }
        Access::Local | Access::Custom => has_base(config, row.name),
    }
}

/// Matching order: prefix of the model, keyword in the model, local provider, any with a key, any custom one.
fn automatic(config: &Config) -> Option<&str> {
    let model = config.agents.defaults.model.to_lowercase();
    let prefix = model.split_once('/').map(|(prefix, _)| canonical(prefix));
    if let Some(prefix) = &prefix {
        if let Some(row) = known(prefix).filter(|row| usable(config, row)) {
            return Some(row.name);
        }
        if let Some((name, _)) = custom(config).find(|(name, _)| *name == prefix) {
            return Some(name);
        }
    }
    let foreign = prefix.as_deref().is_some_and(|prefix| known(prefix).is_some());
    let first = |accept: &dyn Fn(&Known) -> bool| KNOWN.iter().find(|row| usable(config, row) && accept(row));
    let keyword = |row: &Known| model.contains(row.name) || row.keywords.iter().any(|word| model.contains(word));
    first(&|row| keyword(row) && !(foreign && row.access == Access::Local))
        .or_else(|| first(&|row| row.access == Access::Local))
        .or_else(|| first(&|row| row.access != Access::Custom))
        .or_else(|| first(&|_| true))
        .map(|row| row.name)
        .or_else(|| custom(config).find(|(_, entry)| entry.api_base.is_some()).map(|(name, _)| name.as_str()))
}

/// Entries that the table does not know.
fn custom(config: &Config) -> impl Iterator<Item = (&String, &Provider)> {
    config.providers.iter().filter(|(name, _)| known(name).is_none())
}

fn settings(config: &Config, env: &BTreeMap<String, String>, name: &str) -> Result<ProviderChoice, ProviderError> {
    let row = known(name);
    let access = row.map_or(Access::Custom, |row| row.access);
    let api_key = key(config, env, name);
    match access {
        Access::Unsupported => {
            let automatic = canonical(&config.agents.defaults.provider) == "auto";
            return Err(ProviderError::Unsupported { name: name.into(), automatic });
        }
        Access::Gateway | Access::Direct if api_key.is_none() => {
            return Err(ProviderError::NoKey { name: name.into(), variable: variable(name) });
        }
        Access::Gateway | Access::Direct | Access::Local | Access::Custom => {}
    }
    let entry = config.providers.get(name).cloned().unwrap_or_default();
    let usual = row.map(|row| row.base).filter(|base| !base.is_empty()).map(str::to_string);
    let base = entry.api_base.or(usual).ok_or_else(|| ProviderError::NoBase { name: name.into() })?;
    let is_url = reqwest::Url::parse(&base).is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    if !is_url {
        return Err(ProviderError::BadBase { name: name.into() });
    }
    Ok(ProviderChoice::Remote(Box::new(ProviderSettings {
        name: name.into(),
        api_base: base.trim_end_matches('/').into(),
        api_key,
        model: model_name(&config.agents.defaults.model, name, access),
        extra_headers: entry.extra_headers,
        extra_body: entry.extra_body,
        extra_query: entry.extra_query,
        text_tool_calls: entry.text_tool_calls,
    })))
}

/// A provider of its own models does not know its own name as a prefix; one that resells does.
fn model_name(model: &str, provider: &str, access: Access) -> String {
    let stripped = match (access, model.split_once('/')) {
        (Access::Direct | Access::Local | Access::Custom, Some((prefix, rest))) if canonical(prefix) == provider => {
            rest
        }
        (Access::Gateway, Some(_)) if provider == "aihubmix" => model.rsplit('/').next().unwrap_or(model),
        (Access::Gateway | Access::Direct | Access::Local | Access::Custom | Access::Unsupported, _) => model,
    };
    stripped.into()
}

#[cfg(test)]
#[path = "providers_tests.rs"]
mod tests;
