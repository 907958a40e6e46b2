//! The doors behind real sockets, with doubles for journal and sessions.

#![allow(clippy::unwrap_used, clippy::panic)]

mod api;
mod client;
mod gateway;
mod hooks;
mod memory;
mod webhook;
mod websocket;
mod world;
