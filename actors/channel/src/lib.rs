//! Doors to the outside: WebSocket, OpenAI-compatible API, admin and health.
