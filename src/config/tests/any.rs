//! Any spelling and any text.

use proptest::prelude::*;

use super::*;

/// Every key with a value that is not its default.
fn sample() -> Value {
    json!({
        "agents": { "defaults": { "max_tokens": 5, "context_window_tokens": 9, "max_tool_result_chars": 101, "bot_name": "b" } },
        "providers": { "lm_studio": { "api_base": "http://x", "extra_query": { "keepThis_as": "1" } } },
        "channels": { "websocket": { "token_ttl_s": 31, "allow_from": ["x"], "max_message_bytes": 2048, "ping_interval_s": 6 } },
        "api": { "api_key": "k" },
        "tools": { "exec": { "allowed_env_keys": ["A"], "path_append": "/x" }, "restrict_to_workspace": false },
        "runtime": { "idle_seconds": 7, "frame_bytes_in_flight": 65536 },
        "supervision": { "poison_attempts": 9, "shard_min_sessions": 6 },
    })
}

/// Respells each name of `value` that is a key, as `choices` say.
fn respell(value: &Value, choices: &mut impl Iterator<Item = bool>, free: bool) -> Value {
    let Value::Object(object) = value else { return value.clone() };
    let pairs = object.iter().map(|(name, inner)| {
        let camel = !free && choices.next().unwrap_or_default();
        let spelled = if camel { super::key::camel(name) } else { name.clone() };
        (spelled, respell(inner, choices, free || name == "extra_query"))
    });
    Value::Object(pairs.collect())
}

/// Any JSON whose texts and names come from `leaf` and `name`.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        Just(Value::from("S3CR3T")),
    ];
    let name = prop_oneof![
        Just("api"),
        Just("apiKey"),
        Just("api_key"),
        Just("port"),
        Just("host"),
        Just("agents"),
        Just("defaults"),
        Just("maxTokens"),
        Just("providers"),
        Just("extraHeaders"),
        Just("channels"),
        Just("websocket"),
        Just("allowFrom"),
        Just("tools"),
        Just("exec"),
        Just("sandbox"),
        Just("temperature"),
        Just("zzz"),
        Just(""),
    ];
    leaf.prop_recursive(5, 40, 6, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::vec((name.clone(), inner), 0..6).prop_map(|pairs| Value::Object(
                pairs.into_iter().map(|(name, value)| (name.to_string(), value)).collect()
            )),
        ]
    })
}

proptest! {
    #[test]
    fn any_mix_of_spellings_means_the_same(choices in proptest::collection::vec(any::<bool>(), 60)) {
        let plain = accepted(&sample().to_string(), &[]);
        let mixed = respell(&sample(), &mut choices.into_iter(), false).to_string();
        let mixed = given(&mixed, &[]);
        prop_assert_eq!(mixed.config, plain);
        prop_assert_eq!(mixed.warnings.len(), 0);
    }

    #[test]
    fn no_message_repeats_a_secret(value in any_json(), name in "(GREENROOM|NANOBOT)_(API|API__PORT|PROVIDERS|TOOLS__EXEC__SANDBOX)") {
        const SECRET: &str = "S3CR3T";
        let (text, variable) = (value.to_string(), [("S", SECRET)]);
        let said = [
            given(&text.replace(SECRET, "${S}"), &variable),
            given(&text.replace(SECRET, "x-${S}"), &variable),
            given("{}", &[(&name, &text)]),
            given("{}", &[(&name, SECRET)]),
        ];
        for Assembled { problems, warnings, .. } in said {
            prop_assert!(!format!("{problems:?}{warnings:?}").contains(SECRET), "{:?}", problems);
        }
        let long = given(&text.replace(SECRET, "sk-or-v1-S3CR3T-0123"), &[]);
        prop_assert!(!format!("{:?}{:?}", long.problems, long.warnings).contains("v1-S3CR3T-"), "{:?}", long.problems);
    }

    #[test]
    fn any_text_is_survived(text in "\\PC{0,80}", json in "[\\[\\]{}\",:a0 \n]{0,40}") {
        // Only that it returns matters.
        let _ = (given(&text, &[]), given(&json, &[]));
    }
}
