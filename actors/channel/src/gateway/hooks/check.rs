//! Who may call a hook, and which delivery it is. Pure.

use axum::http::HeaderMap;
use domain::ids::MessageId;
use sha2::{Digest, Sha256};

use super::Hook;
use crate::auth::bearer;

/// Where the signature of a body stands.
const SIGNATURES: [&str; 2] = ["x-signature-256", "x-hub-signature-256"];
/// Which digest it is of.
const SCHEME: &str = "sha256=";
/// Where senders name a delivery; the same one in each attempt.
const DELIVERIES: [&str; 4] = ["x-github-delivery", "webhook-id", "x-delivery-id", "idempotency-key"];

impl Hook {
    /// Whether the request shows the hook's token. That takes no look at the body.
    pub(super) fn shows_token(&self, headers: &HeaderMap) -> bool {
        self.token.as_ref().is_some_and(|token| bearer(headers).is_some_and(|given| token.is(given)))
    }

    /// Whether the body is signed with the hook's secret.
    pub(super) fn is_signed(&self, headers: &HeaderMap, body: &[u8]) -> bool {
        let Some(secret) = &self.secret else { return false };
        let mut given = SIGNATURES.iter().filter_map(|name| headers.get(*name)?.to_str().ok()?.strip_prefix(SCHEME));
        given.any(|hex| secret.signs(hex.trim(), body))
    }
}

/// The id of a delivery to the hook `id`.
pub(super) fn delivery(id: &str, headers: &HeaderMap, body: &[u8]) -> MessageId {
    let mut names = DELIVERIES.iter().filter_map(|name| headers.get(*name)).map(|name| name.as_bytes());
    let name = names.find(|name| !name.is_empty());
    let plain = name.and_then(|name| MessageId::new(&format!("{id}:{}", std::str::from_utf8(name).ok()?)).ok());
    // A name that is too long tells deliveries apart all the same.
    plain.unwrap_or_else(|| {
        let hash: String = Sha256::digest(name.unwrap_or(body)).iter().map(|byte| format!("{byte:02x}")).collect();
        MessageId::new(&format!("{id}:sha256:{hash}")).expect("the id of a hook is short and ASCII")
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use axum::http::HeaderValue;
    use domain::ids::SessionKey;
    use protocol::turn::Route;

    use super::super::{Rate, Template};
    use super::*;
    use crate::auth::Secret;
    use crate::webhook::SigningSecret;

    fn headers(list: &[(&'static str, &str)]) -> HeaderMap {
        list.iter().map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_str(value).unwrap())).collect()
    }

    fn hook(secret: Option<&str>, token: Option<&str>) -> Hook {
        Hook {
            name: Arc::from("h"),
            key: SessionKey::new("webhook:7").unwrap(),
            route: Route::Live,
            message: Template::parse("{{body}}").unwrap(),
            secret: secret.map(|secret| SigningSecret::new(secret).unwrap()),
            token: token.and_then(Secret::new),
            rate: Rate::per_minute(60),
        }
    }

    /// The example of GitHub's documentation on validating deliveries.
    const SIGNED: &str = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";

    #[test]
    fn a_signature_is_that_of_the_body_as_it_is() {
        let hook = hook(Some("It's a Secret to Everybody"), None);
        for (name, value, body, ok) in [
            ("x-hub-signature-256", SIGNED, "Hello, World!", true),
            ("x-signature-256", SIGNED, "Hello, World!", true),
            ("x-signature-256", &SIGNED.to_uppercase().replace("SHA256", "sha256"), "Hello, World!", true),
            ("x-signature-256", SIGNED, "Hello, World! ", false),
            ("x-signature-256", &SIGNED.replace("757107", "757108"), "Hello, World!", false),
            ("x-signature-256", SIGNED.trim_end_matches("17"), "Hello, World!", false),
            ("x-signature-256", "sha256=", "Hello, World!", false),
            ("x-signature-256", "sha256=zz", "Hello, World!", false),
            ("x-signature-256", SIGNED.trim_start_matches("sha256="), "Hello, World!", false),
            ("x-other", SIGNED, "Hello, World!", false),
        ] {
            assert_eq!(hook.is_signed(&headers(&[(name, value)]), body.as_bytes()), ok, "{name}: {value} {body}");
        }
        assert!(!hook.shows_token(&headers(&[("authorization", "Bearer It's a Secret to Everybody")])));
    }

    #[test]
    fn a_hook_without_a_secret_trusts_no_signature_and_one_without_a_token_none() {
        let only_token = hook(None, Some("t"));
        assert!(only_token.shows_token(&headers(&[("authorization", "Bearer t")])));
        for value in ["Bearer u", "Bearer ", "Basic t", "t"] {
            assert!(!only_token.shows_token(&headers(&[("authorization", value)])), "{value}");
        }
        assert!(!only_token.is_signed(&headers(&[("x-signature-256", SIGNED)]), b"Hello, World!"));
        assert!(!hook(None, Some("")).shows_token(&headers(&[("authorization", "Bearer ")])));
    }

    #[test]
    fn a_delivery_is_known_by_its_name_or_its_body() {
        let id = |list: &[(&'static str, &str)], body: &str| delivery("h", &headers(list), body.as_bytes()).to_string();
        assert_eq!(id(&[("x-github-delivery", "d-1")], "x"), "h:d-1");
        assert_eq!(id(&[("idempotency-key", "k"), ("webhook-id", "w")], "x"), "h:w");
        let (one, other) = (id(&[], "x"), id(&[], "y"));
        assert!(one.starts_with("h:sha256:2d711642b726b044"), "{one}");
        assert!(one != other && one == id(&[("webhook-id", "")], "x"));
        let long = "n".repeat(300);
        let named = id(&[("webhook-id", &long)], "x");
        assert!(named.starts_with("h:sha256:") && named != one && named == id(&[("webhook-id", &long)], "y"));
    }
}
