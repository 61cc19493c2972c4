//! Composes the rooms: starts the shards, hands out write sides and query sides. Control plane.

use std::sync::Arc;

use ahash::RandomState;

use crate::channel::{self, Outlet};
use crate::config::{Config, ConfigError, Problem, SourceConfig, decoder};
use crate::epoch::Pins;
use crate::hash::PageKey;
use crate::ingest::{Ingest, Ranks};
use crate::query::Reader;
use crate::shard::{self, Common, Shared};
use crate::slots::Slots;

/// An index and its shard threads, which end when the engine and all write sides are gone.
///
/// ```
/// use kvtap::{Config, Engine, Match, Prompt, SourceConfig};
///
/// let engine = Engine::new(Config::default())?;
/// let mut source = SourceConfig::new(7);
/// source.block_size = 4;
/// let mut ingest = engine.ingest(source)?;
/// // [ts, [["BlockStored", [11], nil, [1, 2, 3, 4], 4, nil, "GPU"]], rank]
/// let payload = b"\x93\x01\x91\x97\xabBlockStored\x91\x0b\xc0\x94\x01\x02\x03\x04\x04\xc0\xa3GPU\x00";
/// ingest.apply(payload)?;
/// ingest.flush();
///
/// let mut matches = Vec::new();
/// engine.reader().find_matches(&Prompt::new(&[1, 2, 3, 4, 5], 4), &mut matches);
/// assert_eq!((matches[0].worker.worker_id, matches[0].depths), (7, [1; 4]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Engine {
    outlets: Vec<Outlet>,
    shards: Vec<Arc<Shared>>,
    common: Common,
}

impl Engine {
    /// Starts the shards.
    ///
    /// # Errors
    /// If a value is out of its range, or a thread cannot be started.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        config.check()?;
        let hasher = config.hash_seed.map_or_else(RandomState::new, fixed);
        let (pins, slots) = (Arc::new(Pins::new()), Arc::new(Slots::new(config.shards)));
        let page_key = PageKey::new(hasher.hash_one(2_u64));
        let shard_bytes = usize::try_from(config.shard_bytes).unwrap_or(usize::MAX);
        let common = Common { pins, slots, hasher, page_key, shard_bytes };
        let mut engine = Self { outlets: Vec::new(), shards: Vec::new(), common };
        for number in 0..config.shards {
            let (outlet, inlet) = channel::channel();
            engine.shards.push(shard::start(inlet, engine.common.clone(), number).map_err(Problem::Thread)?);
            engine.outlets.push(outlet);
        }
        Ok(engine)
    }

    /// The write side of a new source. Several sources may bring the same worker, normally with different ranks.
    ///
    /// # Errors
    /// If a value is out of its range.
    pub fn ingest(&self, config: SourceConfig) -> Result<Ingest, ConfigError> {
        let decoder = decoder(&config)?;
        let ranks = Ranks::new(Arc::clone(&self.common.slots), self.common.hasher.clone());
        Ok(Ingest::new(config, decoder, self.outlets.clone(), ranks))
    }

    /// A query side. Make one per thread.
    #[must_use]
    pub fn reader(&self) -> Reader {
        Reader::new(self.shards.clone(), self.common.clone())
    }

    /// Bytes of the shards, as of their last flush; engine-hash maps are counted by [`Ingest::bytes`].
    #[must_use]
    pub fn index_bytes(&self) -> usize {
        self.shards.iter().map(|shard| shard.bytes()).sum()
    }

    /// Record batches on their way to the shards at this moment: up to 64 for each.
    #[must_use]
    pub fn waiting_batches(&self) -> usize {
        self.outlets.iter().map(Outlet::waiting).sum()
    }

    /// Blocks that found no room in their shard ([`Config::shard_bytes`], and 4,096 segments of 256 KiB to 2 MiB) and cannot be
    /// matched, nor can those after them.
    #[must_use]
    pub fn refused_blocks(&self) -> u64 {
        self.shards.iter().map(|shard| shard.refused()).sum()
    }
}

fn fixed(seed: u64) -> RandomState {
    RandomState::with_seeds(seed, !seed, seed.rotate_left(32), 0x9e37_79b9_7f4a_7c15)
}
