//! Decodes the KV-cache events of LLM engines in place and answers which worker holds how much of a prompt.

mod ids;
mod hash;
pub mod wire;
mod policy;
mod counters;
mod observe;
mod engine;
pub mod kvcap;

pub use counters::Counters;
pub use engine::{Applied, Config, ConfigError, Copies, Engine, Ingest, Match, Prompt, Reader, SourceConfig};
pub use ids::{EngineHash, LocalHash, PrefixHash, Tier, Worker};
pub use observe::{Observer, Placement, Verdict};
pub use policy::{Reason, Scope};
pub use wire::DigestHalf;
