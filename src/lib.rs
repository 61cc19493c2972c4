//! Decodes the KV-cache events of LLM engines in place and answers which worker holds how much of a prompt.

mod ids;
mod hash;
mod frames;
pub mod wire;
mod policy;
mod judge;
mod placement;
mod channel;
mod shard;
mod slots;
mod query;
mod counters;
mod seen;
mod observe;
mod config;
mod normalizer;
mod ingest;
mod engine;
pub mod kvcap;

pub use config::{Config, ConfigError, Copies, SourceConfig};
pub use counters::Counters;
pub use engine::Engine;
pub use frames::{FrameError, Message, ReplayReply};
pub use ids::{EngineHash, LocalHash, PrefixHash, Tier, Worker};
pub use ingest::{Applied, Ingest};
pub use normalizer::{Normalizer, StoredBlocks, Visitor};
pub use observe::{Observer, Placement, Verdict};
pub use policy::{Reason, Scope};
pub use query::{Match, Prompt, Reader};
pub use wire::DigestHalf;
