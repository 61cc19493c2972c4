//! Decodes the KV-cache events of LLM engines in place and answers which worker holds how much of a prompt.

mod ids;

pub use ids::{EngineHash, LocalHash, PrefixHash, Tier, Worker};
