//! Signatures of what is sent, as receivers of Standard Webhooks check them; and of what hooks are sent. Pure.
//!
//! Three headers: `webhook-id`, `webhook-timestamp` (seconds since 1970) and `webhook-signature`, which is `v1,` and the
//! base64 form of HMAC-SHA256 over `<id>.<timestamp>.<body>`.
//! **Source:** the Standard Webhooks specification, standardwebhooks.com.

use std::fmt;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// Begins a secret that is written in base64.
const BASE64_PREFIX: &str = "whsec_";

/// The secret that sender and receiver share.
#[derive(Clone)]
pub struct SigningSecret(Hmac<Sha256>);

/// A secret that begins with `whsec_` and does not go on in base64.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("what follows whsec_ is not base64")]
pub struct BadSecret;

// === impl SigningSecret ===

impl SigningSecret {
    /// Takes `whsec_` and base64, or any other text as it is.
    pub fn new(text: &str) -> Result<Self, BadSecret> {
        let key = match text.strip_prefix(BASE64_PREFIX) {
            Some(base64) => BASE64_STANDARD.decode(base64).map_err(|_| BadSecret)?,
            None => text.as_bytes().to_vec(),
        };
        Ok(Self(Hmac::new_from_slice(&key).expect("HMAC takes keys of any length")))
    }

    /// The value of `webhook-signature`.
    pub fn sign(&self, id: &str, timestamp_s: u64, body: &[u8]) -> String {
        let mut mac = self.0.clone();
        mac.update(id.as_bytes());
        mac.update(format!(".{timestamp_s}.").as_bytes());
        mac.update(body);
        format!("v1,{}", BASE64_STANDARD.encode(mac.finalize().into_bytes()))
    }

    /// Whether `hex` is the HMAC-SHA256 of a body as it is, in hex. Takes the same time wherever they differ.
    pub(crate) fn signs(&self, hex: &str, body: &[u8]) -> bool {
        let Some(given) = bytes_of(hex) else { return false };
        self.0.clone().chain_update(body).verify_slice(&given).is_ok()
    }
}

fn bytes_of(hex: &str) -> Option<Vec<u8>> {
    let digits = hex.chars().map(|digit| digit.to_digit(16)).collect::<Option<Vec<u32>>>()?;
    let (pairs, []) = digits.as_chunks() else { return None };
    pairs.iter().map(|[high, low]| u8::try_from(high * 16 + low).ok()).collect()
}

impl fmt::Debug for SigningSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SigningSecret(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_signature_is_the_one_that_receivers_compute() {
        // The example of the specification's own libraries.
        let secret = SigningSecret::new("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let signature = secret.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, br#"{"test": 2432232314}"#);
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn other_secrets_are_taken_as_they_are() {
        let plain = SigningSecret::new("test").unwrap().sign("i", 1, b"x");
        let base64 = SigningSecret::new("whsec_dGVzdA==").unwrap().sign("i", 1, b"x");
        assert_eq!(plain, base64);
        assert_ne!(plain, SigningSecret::new("tesu").unwrap().sign("i", 1, b"x"));
        assert!(SigningSecret::new("whsec_*").is_err());
        assert_eq!(format!("{:?}", SigningSecret::new("test").unwrap()), "SigningSecret(..)");
    }
}
