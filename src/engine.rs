//! Composes the rooms: engine, write side of one source, query side.
use crate::counters::Counters;
use crate::ids::*;
use crate::observe::Observer;
use crate::wire::{DigestHalf, WireError};

/// What an engine is made of.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// Index shards, each with a thread of its own (1 to 64).
    pub shards: usize,
}
impl Default for Config {
    fn default() -> Self {
        Self { shards: 2 }
    }
}
/// How repeated stores of a block count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Copies {
    /// Each store is a copy of its own, gone when as many were removed.
    #[default]
    Count,
    /// Stores are idempotent, the first removal is final.
    Set,
}
/// What is known of a source before it has sent anything.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SourceConfig {
    /// The router's number for the worker.
    pub worker_id: u64,
    /// Rank of batches that name none.
    pub dp_rank: u32,
    /// Tokens per block.
    pub block_size: u32,
    /// How repeated stores count.
    pub copies: Copies,
    /// How digests are read.
    pub digest: DigestHalf,
}
impl SourceConfig {
    /// Rank 0, block size 16, copies counted, low digest half.
    #[must_use]
    pub fn new(worker_id: u64) -> Self {
        Self { worker_id, dp_rank: 0, block_size: 16, copies: Copies::Count, digest: DigestHalf::Low }
    }
}
/// A bad configuration, in one sentence.
#[derive(Debug)]
pub struct ConfigError(());
impl std::fmt::Display for ConfigError {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        Ok(())
    }
}
impl std::error::Error for ConfigError {}
/// The engine.
#[derive(Debug)]
pub struct Engine(());
impl Engine {
    /// Starts.
    pub fn new(_: Config) -> Result<Self, ConfigError> {
        unimplemented!()
    }
    /// Registers a source.
    pub fn ingest(&self, _: SourceConfig) -> Result<Ingest, ConfigError> {
        unimplemented!()
    }
    /// Query side.
    #[must_use]
    pub fn reader(&self) -> Reader {
        unimplemented!()
    }
    /// Bytes the index takes (shards only).
    #[must_use]
    pub fn index_bytes(&self) -> usize {
        unimplemented!()
    }
}
/// What a batch was.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Applied {
    /// Whose blocks it was about.
    pub worker: Worker,
    /// Unix seconds.
    pub timestamp: f64,
}
/// Write side of one source.
#[derive(Debug)]
pub struct Ingest(());
impl Ingest {
    /// Applies a payload.
    pub fn apply(&mut self, payload: &[u8]) -> Result<Applied, WireError> {
        self.apply_observed(payload, &mut ())
    }
    /// Applies a payload and lets the observer watch.
    pub fn apply_observed(&mut self, _: &[u8], _: &mut impl Observer) -> Result<Applied, WireError> {
        unimplemented!()
    }
    /// Returns when everything applied before is visible.
    pub fn flush(&mut self) {
        unimplemented!()
    }
    /// Counts.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        unimplemented!()
    }
    /// Event shapes seen, with counts.
    pub fn shapes(&self) -> impl Iterator<Item = (crate::wire::Shape, u64)> {
        std::iter::empty()
    }
    /// Schema drift seen: `unknown_key:NAME`, `extra_slot:N`, `unknown_tag:NAME`, `unknown_envelope_field`; with counts.
    pub fn drift(&self) -> impl Iterator<Item = (&str, u64)> {
        std::iter::empty()
    }
    /// Ranks whose producer uses another block size than configured: worker, that size, events.
    pub fn mismatched_block_sizes(&self) -> impl Iterator<Item = (Worker, u32, u64)> {
        std::iter::empty()
    }
    /// Workers (rank by rank) that have sent batches.
    #[must_use]
    pub fn workers(&self) -> usize {
        unimplemented!()
    }
    /// Live (worker, tier, engine hash) triples.
    #[must_use]
    pub fn entries(&self) -> usize {
        unimplemented!()
    }
    /// Order-free digest of them; digests of several sources add up (wrapping).
    #[must_use]
    pub fn digest(&self) -> u64 {
        unimplemented!()
    }
    /// Bytes the engine-hash maps take.
    #[must_use]
    pub fn bytes(&self) -> usize {
        unimplemented!()
    }
}
/// The namespace and form of a prompt's tokens.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Prompt<'a> {
    /// Token ids.
    pub token_ids: &'a [u32],
    /// Tokens per block.
    pub block_size: u32,
    /// Adapter.
    pub lora_name: Option<&'a str>,
    /// Namespace.
    pub cache_salt: Option<&'a str>,
    /// EAGLE: windows of block size + 1 tokens.
    pub bigram: bool,
}
/// How much of a prompt a worker holds, in blocks, cumulative by tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Match {
    /// Who.
    pub worker: Worker,
    /// By tier: device; with host; with disk; with external.
    pub depths: [u32; 4],
}
/// Query side.
#[derive(Debug)]
pub struct Reader(());
impl Reader {
    /// Matches a prompt; returns how many complete blocks it has. `matches` is overwritten: by worker, then rank.
    pub fn find_matches(&mut self, _: &Prompt<'_>, matches: &mut Vec<Match>) -> usize {
        matches.clear();
        unimplemented!()
    }
}
