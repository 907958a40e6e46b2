//! Secrets at the door: compared in constant time, never logged.

use std::fmt;

use axum::http::HeaderMap;
use axum::http::header::{AUTHORIZATION, HOST};
use subtle::ConstantTimeEq;

/// A key or token that a client must show.
#[derive(Clone)]
pub struct Secret(String);

impl Secret {
    /// Takes the text; an empty one protects nothing and is none.
    pub fn new(text: impl Into<String>) -> Option<Self> {
        let text = text.into();
        (!text.is_empty()).then_some(Self(text))
    }

    /// Whether `given` is it. Takes the same time wherever they differ.
    pub fn is(&self, given: &str) -> bool {
        self.0.as_bytes().ct_eq(given.as_bytes()).into()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// The token of `Authorization: Bearer`.
pub(crate) fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Whether the `Host` header names this machine, or one of `allowed`. A page elsewhere whose name was made to point
/// here is refused by this.
pub(crate) fn host_is_local(headers: &HeaderMap, allowed: &[String]) -> bool {
    let Some(host) = headers.get(HOST).and_then(|host| host.to_str().ok()) else { return false };
    is_loopback_name(host_name(host)) || allowed.iter().any(|name| name.eq_ignore_ascii_case(host_name(host)))
}

/// The name in `host[:port]`.
pub(crate) fn host_name(host: &str) -> &str {
    if host.starts_with('[') {
        return host.split_inclusive(']').next().unwrap_or(host);
    }
    host.split(':').next().unwrap_or(host)
}

/// Whether a name without port means this machine.
pub(crate) fn is_loopback_name(name: &str) -> bool {
    let address = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost")
        || address.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Whether a page of this origin is let in: same host and port on this machine, or listed.
pub(crate) fn origin_is_allowed(headers: &HeaderMap, allowed: &[String]) -> bool {
    let Some(origin) = headers.get(axum::http::header::ORIGIN) else { return true };
    let Ok(origin) = origin.to_str() else { return false };
    if allowed.iter().any(|one| one == "*" || one.trim_end_matches('/').eq_ignore_ascii_case(origin)) {
        return true;
    }
    let Some((_, authority)) = origin.split_once("://") else { return false };
    let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    authority.eq_ignore_ascii_case(host) && is_loopback_name(host_name(host))
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn headers(list: &[(&'static str, &'static str)]) -> HeaderMap {
        list.iter().map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn secrets_compare_and_hide() {
        let secret = Secret::new("abc").unwrap();
        assert!(secret.is("abc") && !secret.is("abd") && !secret.is("ab") && !secret.is(""));
        assert!(Secret::new("").is_none());
        assert_eq!(format!("{secret:?}"), "Secret(..)");
    }

    #[test]
    fn bearer_tokens_are_found() {
        for (value, token) in
            [("Bearer abc", Some("abc")), ("bearer  abc ", Some("abc")), ("Basic abc", None), ("Bearer", None)]
        {
            assert_eq!(bearer(&headers(&[("authorization", value)])), token, "{value}");
        }
        assert_eq!(bearer(&HeaderMap::new()), None);
    }

    #[test]
    fn only_names_of_this_machine_are_hosts() {
        let allowed = ["box.lan".to_owned()];
        for (host, ok) in [
            ("localhost:18790", true),
            ("127.0.0.1", true),
            ("[::1]:18790", true),
            ("BOX.lan:1", true),
            ("evil.example", false),
            ("127.0.0.1.evil.example", false),
            ("localhost.evil.example:80", false),
        ] {
            assert_eq!(host_is_local(&headers(&[("host", host)]), &allowed), ok, "{host}");
        }
        assert!(!host_is_local(&HeaderMap::new(), &allowed));
    }

    #[test]
    fn foreign_origins_are_refused() {
        let allowed = ["https://app.example".to_owned()];
        for (origin, host, ok) in [
            ("http://127.0.0.1:8765", "127.0.0.1:8765", true),
            ("http://localhost:3000", "localhost:8765", false),
            ("https://app.example", "127.0.0.1:8765", true),
            ("https://evil.example", "127.0.0.1:8765", false),
            ("http://evil.example:8765", "evil.example:8765", false),
            ("null", "127.0.0.1:8765", false),
        ] {
            let headers = headers(&[("origin", origin), ("host", host)]);
            assert_eq!(origin_is_allowed(&headers, &allowed), ok, "{origin} at {host}");
        }
        assert!(origin_is_allowed(&HeaderMap::new(), &[]));
    }
}
