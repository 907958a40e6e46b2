//! Doors to the outside: WebSocket, OpenAI-compatible API, webhooks, health, metrics and administration; and delivery.
//!
//! A door turns what a client sent into a message for the journal, waits until that is durable, and shows the client
//! what becomes of it. It registers at the [`Hub`] before it hands the message over, so it sees the turn from its first
//! event on; turns never wait for a client.
//!
//! **Invariant:** a client is told "accepted" only after the journal said so, and every refusal says which bound was
//! reached and when to come back.
//!
//! | module | what |
//! |---|---|
//! | [`hub`] | turn events on their way to whoever watches, with a short memory for clients that come back |
//! | [`doors`] | what all doors share: journal, sessions, hub, ports |
//! | [`websocket`] | nanobot's WebSocket protocol |
//! | [`openai_api`] | `/v1/chat/completions` and `/v1/models` |
//! | [`webhook`] | messages by HTTP, with replies sent to an address |
//! | [`media`] | what came with messages: kept as files, and removed when nothing names it |
//! | [`Restart`] | restarting the process, asked for in a chat |
//! | [`outbox`] | delivers what turns say to chats that wait for no connection |
//! | [`gateway`] | `/health`, `/ready`, `/metrics` and `/admin/v1/` |

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod auth;
mod control;
pub mod doors;
pub mod gateway;
pub mod hints;
mod http;
pub mod hub;
mod json;
pub mod media;
mod meter;
mod open;
pub mod openai_api;
pub mod outbox;
mod outcome;
mod picture;
pub mod reports;
mod restart;
mod silent;
pub mod webhook;
pub mod websocket;

pub use auth::Secret;
pub use control::{nothing_said, perform};
pub use doors::{Doors, Phase};
pub use hub::Hub;
pub use restart::Restart;
