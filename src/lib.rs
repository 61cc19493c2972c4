//! Decodes the KV-cache events of LLM engines in place and answers which worker holds how much of a prompt.
//!
//! [`Engine`] starts the index; [`Ingest`] is the write side of one publisher, [`Reader`] the query side of one thread.
//! [`Normalizer`] is the same write side for routers that keep an index of their own, and [`wire`] the decoder alone. What
//! came and what became of it is in [`Counters`], each drop under a [`Reason`].
//!
//! # Guarantees
//!
//! * A payload is applied entirely or, if its structure is broken, not at all; a malformed event costs itself.
//! * Nothing from the wire panics, recurses, or reserves memory by a declared length.
//! * Nothing is dropped silently: counts of events placed, filtered, unknown and malformed add up.
//! * In steady state a batch costs no heap allocation from its payload to the shards.
//!
//! The modules are private and stand below in the order in which data flows.

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
#[cfg(feature = "mock")]
pub mod mock;

pub use config::{Config, ConfigError, Copies, SourceConfig};
pub use counters::Counters;
pub use engine::Engine;
pub use frames::{FrameError, Message, ReplayReply};
pub use ids::{EngineHash, LocalHash, PrefixHash, Tier, Worker};
pub use ingest::Ingest;
pub use normalizer::{Normalizer, StoredBlocks, Visitor};
pub use observe::{Applied, Observer, Placement, Verdict};
pub use policy::{Reason, Scope};
pub use query::{Match, Prompt, Reader};
pub use wire::{DigestHalf, SimdLevel};

/// The README's example is a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
