//! Model calls: OpenAI-compatible servers and the built-in offline model.
