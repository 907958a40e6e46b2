//! Wire formats: the only places that know how a provider's requests and replies look.

pub mod openai;
mod text_calls;
mod think;
