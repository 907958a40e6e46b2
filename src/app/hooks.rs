//! The configured hooks, as the gateway's port serves them.

use std::sync::Arc;

use channel::gateway::hooks::{Hook, Hooks, Rate, Template};
use channel::webhook::SigningSecret;
use domain::ids::SessionKey;
use protocol::turn::{DEFAULT_ACCOUNT, PushRoute, Route};

use crate::config::{Config, HookConfig};

/// All of them; `is_told` says of which channels answers can be sent by.
pub fn hooks(config: &Config, is_told: impl Fn(&str) -> bool) -> Hooks {
    // What cannot be used was refused with the configuration.
    config.hooks.iter().filter_map(|hook| Some((hook.id.as_str().into(), one(hook, &is_told)?))).collect()
}

fn one(hook: &HookConfig, is_told: impl Fn(&str) -> bool) -> Option<Hook> {
    let key = SessionKey::new(&hook.session).ok()?;
    let named = hook.channel.as_deref().zip(hook.to.as_deref()).map(|(channel, to)| PushRoute {
        channel: channel.into(),
        account: DEFAULT_ACCOUNT.into(),
        chat: to.into(),
        thread: hook.thread.as_deref().map(Arc::from),
    });
    let route = named.or_else(|| PushRoute::of_session(&key, is_told)).map_or(Route::Live, Route::Push);
    Some(Hook {
        name: hook.name.as_deref().unwrap_or(&hook.id).into(),
        key,
        route,
        message: Template::parse(&hook.message).ok()?,
        secret: hook.secret.as_ref().and_then(|secret| SigningSecret::new(secret.expose()).ok()),
        token: hook.token.as_ref().and_then(|token| channel::Secret::new(token.expose())),
        rate: Rate::per_minute(hook.per_minute),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_answer_goes_to_the_named_chat_or_the_one_of_the_session() {
        let config: Config = serde_json::from_value(json!({"hooks": [
            {"id": "a", "session": "webhook:7:thread:t", "token": "t"},
            {"id": "b", "session": "websocket:7", "secret": "s", "name": "B", "per_minute": 5},
            {"id": "c", "session": "websocket:7", "token": "t", "channel": "webhook", "to": "9", "thread": "x"},
        ]}))
        .unwrap();
        let hooks = hooks(&config, |channel| channel == "webhook");
        let push = |chat: &str, thread: &str| {
            let (channel, account) = ("webhook".into(), "default".into());
            Route::Push(PushRoute { channel, account, chat: chat.into(), thread: Some(thread.into()) })
        };
        let found: Vec<_> = hooks.iter().map(|(id, hook)| (&**id, &*hook.name, hook.route.clone())).collect();
        assert_eq!(found, [("a", "a", push("7", "t")), ("b", "B", Route::Live), ("c", "c", push("9", "x"))]);
        assert!(hooks["b"].secret.is_some() && hooks["b"].token.is_none());
    }
}
