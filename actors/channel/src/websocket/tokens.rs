//! Single-use tokens for the handshake: issued to whoever has the secret, valid for a while, taken once.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use supervision::ports::Ids;

/// Tokens that were issued and not yet used.
const OUTSTANDING_MAX: usize = 10_000;

/// The outstanding tokens with their ends.
#[derive(Default)]
pub(crate) struct Tokens(Mutex<HashMap<String, Duration>>);

/// Too many tokens are outstanding.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooMany;

impl Tokens {
    /// Makes a token that is valid until `now + ttl`.
    pub(crate) fn issue(&self, ids: &dyn Ids, now: Duration, ttl: Duration) -> Result<String, TooMany> {
        let mut token = String::from("nbwt_");
        for _ in 0..4 {
            write!(token, "{:016x}", ids.random()).unwrap_or_default();
        }
        let mut outstanding = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if outstanding.len() >= OUTSTANDING_MAX {
            outstanding.retain(|_, end| *end > now);
        }
        if outstanding.len() >= OUTSTANDING_MAX {
            return Err(TooMany);
        }
        outstanding.insert(token.clone(), now + ttl);
        Ok(token)
    }

    /// Takes a token; true if it was valid.
    pub(crate) fn take(&self, token: &str, now: Duration) -> bool {
        let mut outstanding = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        outstanding.remove(token).is_some_and(|end| end > now)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    struct Counting(AtomicU64);

    impl Ids for Counting {
        fn uuid_v7(&self) -> uuid::Uuid {
            uuid::Uuid::nil()
        }
        fn random(&self) -> u64 {
            self.0.fetch_add(1, Ordering::Relaxed)
        }
    }

    #[test]
    fn a_token_works_once_and_not_for_ever() {
        let (tokens, ids) = (Tokens::default(), Counting(AtomicU64::new(0)));
        let second = Duration::from_secs(1);
        let token = tokens.issue(&ids, second, second).unwrap();
        assert!(token.starts_with("nbwt_"));
        assert!(!tokens.take("nbwt_", second));
        assert!(tokens.take(&token, second));
        assert!(!tokens.take(&token, second));
        let late = tokens.issue(&ids, second, second).unwrap();
        assert!(!tokens.take(&late, 2 * second));
    }

    #[test]
    fn outstanding_tokens_are_bounded_and_old_ones_make_room() {
        let (tokens, ids) = (Tokens::default(), Counting(AtomicU64::new(0)));
        let second = Duration::from_secs(1);
        for _ in 0..OUTSTANDING_MAX {
            tokens.issue(&ids, second, second).unwrap();
        }
        assert_eq!(tokens.issue(&ids, second, second), Err(TooMany));
        assert!(tokens.issue(&ids, 3 * second, second).is_ok());
    }
}
