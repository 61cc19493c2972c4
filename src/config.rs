//! What an operator may set, and what is wrong with it in one sentence. Control plane.

use std::fmt;
use std::ops::RangeInclusive;

use crate::wire::{Decoder, DigestHalf, SimdLevel};

/// Ranks one source may bring at most: a quarter of an index.
const RANKS_MAX: u32 = 1024;
/// Bytes of a shard: at least room for every size of block, at most 4,096 segments.
const SHARD_BYTES: RangeInclusive<u64> = 16 << 20..=8 << 30;

/// What an engine is made of.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// Index shards, each with a thread of its own: 1 to 64.
    pub shards: usize,
    /// Seed of the hash maps. `None` draws one at start, so that publishers cannot aim at a bucket; a fixed one makes runs
    /// repeatable.
    pub hash_seed: Option<u64>,
    /// Bytes of memory a shard may take: 16 MiB to 8 GiB, which is the default. Blocks that find no room are counted
    /// ([`Engine::refused_blocks`](crate::Engine::refused_blocks)) and not matched.
    pub shard_bytes: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self { shards: 2, hash_seed: None, shard_bytes: *SHARD_BYTES.end() }
    }
}

/// How repeated stores of a block count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Copies {
    /// Each is a copy of its own; the block is gone when as many were removed.
    #[default]
    Count,
    /// They are one; the first removal is final. For engines told to announce reused prefixes again (vLLM's "full" report
    /// mode, `engine-vllm-0.33.0-report-full32`).
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
    /// Tokens per block: 1 to 65,536.
    pub block_size: u32,
    /// How repeated stores count.
    pub copies: Copies,
    /// How digests become engine hashes.
    pub digest: DigestHalf,
    /// Longest payload in bytes; longer ones are refused, which bounds the memory one batch can take.
    pub payload_max: u32,
    /// Blocks the source may hold, over all its ranks: at least 1. New ones beyond it are not placed, and counted
    /// [`too_many_blocks`](crate::Reason::TooManyBlocks). Each takes 24 bytes here, and in the index 39 at best, 300 at worst.
    pub blocks_max: u32,
    /// Ranks the source may bring: 1 to 1,024. Events of more are [`too_many_ranks`](crate::Reason::TooManyRanks).
    pub ranks_max: u32,
    /// Kernels to decode integers with; `None` takes the best this CPU runs. For tests and measurements.
    pub simd: Option<SimdLevel>,
}

impl SourceConfig {
    /// Rank 0, block size 16, copies counted, low half of digests, payloads up to 256 MiB, 16,777,216 blocks,
    /// 1,024 ranks, the best SIMD level.
    #[must_use]
    pub fn new(worker_id: u64) -> Self {
        Self {
            worker_id,
            dp_rank: 0,
            block_size: 16,
            copies: Copies::Count,
            digest: DigestHalf::Low,
            payload_max: 256 << 20,
            blocks_max: 1 << 24,
            ranks_max: RANKS_MAX,
            simd: None,
        }
    }
}

/// A configuration that cannot work; displays as one sentence that names the option and its range.
#[derive(Debug)]
pub struct ConfigError(Problem);

#[derive(Debug)]
pub(crate) enum Problem {
    Shards(usize),
    ShardBytes(u64),
    BlockSize(u32),
    BlocksMax,
    RanksMax(u32),
    Simd(SimdLevel),
    Thread(std::io::Error),
}

impl From<Problem> for ConfigError {
    fn from(problem: Problem) -> Self {
        Self(problem)
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Problem::Shards(shards) => write!(f, "shards must be 1 to 64, not {shards}"),
            Problem::ShardBytes(bytes) => {
                let (least, most) = (SHARD_BYTES.start(), SHARD_BYTES.end());
                write!(f, "the bytes of a shard must be {least} to {most}, not {bytes}")
            }
            Problem::BlocksMax => f.write_str("a source must be allowed 1 block or more"),
            Problem::RanksMax(ranks) => {
                write!(f, "the ranks of a source must be 1 to {RANKS_MAX}, not {ranks}")
            }
            Problem::BlockSize(size) => write!(f, "the block size must be 1 to 65536 tokens, not {size}"),
            Problem::Simd(level) => write!(f, "this CPU does not run the SIMD level {}", level.label()),
            Problem::Thread(error) => write!(f, "a shard thread could not be started: {error}"),
        }
    }
}

impl std::error::Error for ConfigError {}

impl Config {
    /// Checks what an engine is to be made of, as [`Engine::new`](crate::Engine::new) does.
    ///
    /// # Errors
    /// If a number is out of its range.
    pub fn check(&self) -> Result<(), ConfigError> {
        if !(1..=64).contains(&self.shards) {
            return Err(Problem::Shards(self.shards).into());
        }
        if !SHARD_BYTES.contains(&self.shard_bytes) {
            return Err(Problem::ShardBytes(self.shard_bytes).into());
        }
        Ok(())
    }
}

impl SourceConfig {
    /// Checks what is said of a source, as [`Engine::ingest`](crate::Engine::ingest) does.
    ///
    /// # Errors
    /// If a number is out of its range.
    pub fn check(&self) -> Result<(), ConfigError> {
        if !(1..=65_536).contains(&self.block_size) {
            return Err(Problem::BlockSize(self.block_size).into());
        }
        if self.blocks_max == 0 {
            return Err(Problem::BlocksMax.into());
        }
        if !(1..=RANKS_MAX).contains(&self.ranks_max) {
            return Err(Problem::RanksMax(self.ranks_max).into());
        }
        Ok(())
    }
}

/// Checks what is said of a source, and makes its decoder.
pub(crate) fn decoder(config: &SourceConfig) -> Result<Decoder, ConfigError> {
    config.check()?;
    let mut decoder = match config.simd {
        None => Decoder::new(config.digest),
        Some(level) => Decoder::with_simd(config.digest, level).ok_or(Problem::Simd(level))?,
    };
    decoder.set_payload_max(config.payload_max);
    Ok(decoder)
}
