//! Tool catalogue, policy, sandbox and built-in tools.
