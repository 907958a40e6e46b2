use serde_json::json;

use super::*;
use crate::config::assemble::assemble;

fn config(json: Value) -> Config {
    assemble("/d/config.json".as_ref(), Some(&json.to_string()), &BTreeMap::new()).config
}

fn env(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
}

/// `name model base`, or `offline`.
fn choice(json: Value, variables: &[(&str, &str)]) -> String {
    match choose_provider(&config(json), &env(variables)) {
        Ok(ProviderChoice::Remote(chosen)) => format!("{} {} {}", chosen.name, chosen.model, chosen.api_base),
        Ok(ProviderChoice::Offline { .. }) => "offline".into(),
        Err(error) => format!("error: {} {error}", error.place().shown),
    }
}

fn agent(model: &str, provider: &str, providers: Value) -> Value {
    json!({ "agents": { "defaults": { "model": model, "provider": provider } }, "providers": providers })
}

const OPENROUTER: &str = "https://openrouter.ai/api/v1";

#[test]
fn automatic_choice_follows_prefix_keyword_local_key_custom() {
    let key = json!({ "apiKey": "k" });
    let base = json!({ "apiBase": "http://10.0.0.1:1/v1/" });
    for (model, providers, expect) in [
        ("anthropic/claude-x", json!({ "openrouter": key }), format!("openrouter anthropic/claude-x {OPENROUTER}")),
        (
            "openrouter/auto",
            json!({ "openrouter": key, "openai": key }),
            format!("openrouter openrouter/auto {OPENROUTER}"),
        ),
        (
            "deepseek/deepseek-chat",
            json!({ "openrouter": key, "deepseek": key }),
            "deepseek deepseek-chat https://api.deepseek.com".into(),
        ),
        ("gpt-5", json!({ "openrouter": key, "openai": key }), "openai gpt-5 https://api.openai.com/v1".into()),
        ("glm-5", json!({ "zhipu": key, "groq": key }), "zhipu glm-5 https://open.bigmodel.cn/api/paas/v4".into()),
        (
            "deepseek/deepseek-chat",
            json!({ "openrouter": key }),
            format!("openrouter deepseek/deepseek-chat {OPENROUTER}"),
        ),
        ("nemotron", json!({ "openrouter": key, "ollama": base }), "ollama nemotron http://10.0.0.1:1/v1".into()),
        ("llama", json!({ "lmStudio": base }), "lm_studio llama http://10.0.0.1:1/v1".into()),
        ("lm-studio/llama", json!({ "lm-studio": base, "openai": key }), "lm_studio llama http://10.0.0.1:1/v1".into()),
        ("llama", json!({ "lmStudio": {} }), "offline".into()),
        ("llama", json!({ "openai": { "apiKey": "" }, "groq": { "apiKey": null } }), "offline".into()),
        ("llama", json!({ "custom": base }), "custom llama http://10.0.0.1:1/v1".into()),
        ("my-llm/big", json!({ "openai": key, "myLlm": base }), "my_llm big http://10.0.0.1:1/v1".into()),
        ("big", json!({ "zzz": base, "openai": key }), "openai big https://api.openai.com/v1".into()),
        ("big", json!({ "zzz": base }), "zzz big http://10.0.0.1:1/v1".into()),
        ("a/b/c", json!({ "aihubmix": key }), "aihubmix c https://aihubmix.com/v1".into()),
        ("any", json!({}), "offline".into()),
    ] {
        assert_eq!(choice(agent(model, "auto", providers.clone()), &[]), expect, "{model} {providers}");
    }
}

#[test]
fn a_named_provider_is_taken_and_its_key_may_come_from_the_environment() {
    let variables = [("OPENROUTER_API_KEY", "from-env"), ("OPENAI_API_KEY", "from-env")];
    assert_eq!(choice(agent("m", "openrouter", json!({})), &variables), format!("openrouter m {OPENROUTER}"));
    assert_eq!(choice(agent("m", "auto", json!({})), &variables), "offline", "a variable alone selects nobody");
    assert_eq!(choice(agent("m", "offline", json!({ "openai": { "apiKey": "k" } })), &variables), "offline");
    assert_eq!(choice(agent("m", "ollama", json!({})), &[]), "ollama m http://localhost:11434/v1");
    let both = config(agent(
        "m",
        "openai",
        json!({ "openai": {
        "apiKey": "from-file", "extraHeaders": { "X-A": "b" }, "extraBody": { "topK": 1 }, "extraQuery": { "api-version": "1" },
        "textToolCalls": true
    } }),
    ));
    let Ok(ProviderChoice::Remote(chosen)) = choose_provider(&both, &env(&variables)) else { panic!("not chosen") };
    assert_eq!(chosen.api_key, Some(Secret::new("from-file")));
    assert_eq!(chosen.extra_headers, [("X-A".to_string(), Secret::new("b"))].into());
    assert_eq!(Value::Object(chosen.extra_body), json!({ "topK": 1 }));
    assert_eq!(chosen.extra_query, [("api-version".to_string(), Secret::new("1"))].into());
    assert!(chosen.text_tool_calls);
}

#[test]
fn what_cannot_be_used_says_what_to_set() {
    for (provider, providers, parts) in [
        ("openrouter", json!({}), ["openrouter has no key", "providers.openrouter.apiKey", "OPENROUTER_API_KEY"]),
        ("opencode_zen", json!({}), ["opencode_zen", "providers.opencodeZen.apiKey", "OPENCODE_ZEN_API_KEY"]),
        ("custom", json!({}), ["custom", "has no address of its own", "providers.custom.apiBase"]),
        ("vllm", json!({ "vllm": {} }), ["vllm", "has no address of its own", "providers.vllm.apiBase"]),
        ("mine", json!({ "mine": { "apiBase": "10.0.0.1" } }), ["providers.mine.apiBase", "http://", "https://"]),
        ("mine", json!({ "mine": { "apiBase": "http://" } }), ["providers.mine.apiBase", "http://", "https://"]),
        ("mine", json!({ "mine": { "apiBase": "https://a b/v1" } }), ["providers.mine.apiBase", "http://", "https://"]),
        (
            "anthropic",
            json!({ "anthropic": { "apiKey": "k" } }),
            ["agents.defaults.provider leads to anthropic, which is not supported", "openrouter", "custom"],
        ),
        (
            "auto",
            json!({ "anthropic": { "apiKey": "k" } }),
            ["providers.anthropic leads to anthropic, which is not supported", "openrouter", "custom"],
        ),
        ("azure-openai", json!({}), ["azure_openai, which is not supported", "openrouter", "custom"]),
        ("openruter", json!({}), ["no known provider", "did you mean", "openrouter"]),
        ("nobody-at-all", json!({}), ["agents.defaults.provider", "no known provider", "providers"]),
    ] {
        let said = choice(agent("claude", provider, providers), &[]);
        assert!(said.starts_with("error: ") && parts.iter().all(|part| said.contains(part)), "{provider}: {said}");
    }
}
