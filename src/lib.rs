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
mod sequence;
pub mod wire;
mod policy;
mod judge;
#[expect(unsafe_code, reason = "prefetch instructions")]
mod prefetch;
mod sync;
mod epoch;
mod rare;
mod placement;
mod channel;
#[expect(clippy::cast_possible_truncation, reason = "packs fields into words and takes them out")]
mod slots;
#[expect(clippy::cast_possible_truncation, reason = "packs fields into words and takes them out")]
mod shard;
#[expect(clippy::cast_possible_truncation, reason = "prompts and slots are counted in 32 and 16 bits")]
mod query;
mod counters;
mod seen;
mod observe;
mod prefixes;
mod held;
mod config;
mod normalizer;
mod ingest;
#[cfg(feature = "bench")]
mod feed;
mod engine;
pub mod kvcap;
#[cfg(feature = "zmq")]
pub mod source;
#[cfg(feature = "server")]
pub mod server;
#[cfg(feature = "mock")]
pub mod mock;

pub use config::{Config, ConfigError, Copies, SourceConfig};
pub use counters::Counters;
pub use engine::Engine;
pub use frames::{FrameError, Message, ReplayReply};
pub use held::{HeldBlock, HeldRank, LoadError};
pub use ids::{EngineHash, LocalHash, PrefixHash, Tier, Worker};
pub use ingest::Ingest;
pub use normalizer::{Normalizer, StoredBlocks, Visitor};
pub use observe::{Applied, Observer, Placement, Verdict};
pub use policy::{GroupKind, Reason, Scope};
pub use prefixes::PrefixHashes;
pub use query::{Match, Prompt, Reader, Wanted};
pub use sequence::{Live, Position, Replayed, Sequence, SequenceCounts};
pub use wire::{DigestHalf, SimdLevel};

/// The README's example is a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
