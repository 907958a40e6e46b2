//! Hooks: other programs tell a session that something has happened.
//!
//! `POST /hooks/<id>` with any text as its body, signed (`X-Signature-256: sha256=<hex>`, which is the HMAC-SHA256 of the
//! body as it is; GitHub's `X-Hub-Signature-256` is the same) or with the hook's token (`Authorization: Bearer <token>`).
//! Once the message is on disk: 202 with
//!
//! ```json
//! {"turn_id":"0193…","seq":4,"position":0,"state":"running"}
//! ```
//!
//! The message is an [`Event`](domain::event::Event): data, whatever it says, and no command. A delivery that was taken
//! before starts nothing and is answered with its turn and `"state":"duplicate"`. Deliveries are told apart by the header
//! `X-GitHub-Delivery`, `webhook-id`, `X-Delivery-Id` or `Idempotency-Key`, and without one of them by their bodies.
//!
//! | status | when |
//! |---|---|
//! | 202 | it is on disk, now or since before |
//! | 400 | nothing is left of the message, or it is no text |
//! | 401 | neither signature nor token is the hook's |
//! | 404 | there is no such hook |
//! | 413 | the body is too large |
//! | 429 | the hook is called too often, or its session has too much waiting; `Retry-After` says when to come back |
//! | 503 | the gateway takes nothing at present; `Retry-After` too |

mod check;
mod message;
mod rate;
mod serve;

use std::collections::BTreeMap;
use std::sync::Arc;

use domain::ids::SessionKey;
use protocol::turn::Route;

use crate::auth::Secret;
use crate::webhook::SigningSecret;
pub use message::Template;
pub use rate::Rate;
pub(super) use serve::receive;

/// Most bytes of a body.
const BODY_BYTES_MAX: usize = 256 * 1024;

/// One hook.
#[derive(Debug)]
pub struct Hook {
    /// What people are told that it is.
    pub name: Arc<str>,
    /// The session that is told.
    pub key: SessionKey,
    /// Where its answer goes.
    pub route: Route,
    /// What is said.
    pub message: Template,
    /// Signs bodies.
    pub secret: Option<SigningSecret>,
    /// Is shown in place of a signature.
    pub token: Option<Secret>,
    /// How often it may be called.
    pub rate: Rate,
}

/// All hooks, by their ids.
pub type Hooks = BTreeMap<Arc<str>, Hook>;
