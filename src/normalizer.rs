//! Payload → placements without an index, for routers that keep their own. Data plane, but for new ranks.

use std::collections::HashMap;

use ahash::RandomState;

use crate::config::{ConfigError, SourceConfig, decoder};
use crate::counters::Counters;
use crate::hash::SaltHash;
use crate::ids::{EngineHash, LocalHash, Tier, Worker};
use crate::judge::{Judge, Place};
use crate::observe::Applied;
use crate::placement::Scratch;
use crate::policy::{Admitted, KnownBlocks, Namespace, Policy, Reason};
use crate::seen::Seen;
use crate::wire::{Decoder, Shape, WireError};

/// Receives what a [`Normalizer`] admits.
pub trait Visitor {
    /// Blocks of one event were stored.
    fn stored(&mut self, stored: StoredBlocks<'_>);
    /// Copies of blocks were removed; some may never have been stored.
    fn removed(&mut self, worker: Worker, tier: Tier, hashes: &[EngineHash]);
    /// Every block of the worker and rank is gone.
    fn cleared(&mut self, worker: Worker);
}

/// The blocks of one stored event, in chain order.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct StoredBlocks<'a> {
    /// Whose.
    pub worker: Worker,
    /// Where.
    pub tier: Tier,
    /// The block before the first; none at the start of a prompt. It may be unknown.
    pub parent: Option<EngineHash>,
    /// The engine's names. With tokens, as many as there are complete blocks; without, all.
    pub engine_hashes: &'a [EngineHash],
    /// Local hashes of the same blocks; empty where an offload connector sent hashes alone.
    pub local_hashes: &'a [LocalHash],
}

/// Decoder and policy of one source: steps 1–7 and 9 of the verdict. Steps 8 and 10 (unknown parents, copies) need the
/// index that the caller keeps.
///
/// ```
/// use kvtap::{EngineHash, Normalizer, SourceConfig, StoredBlocks, Tier, Visitor, Worker};
///
/// #[derive(Default)]
/// struct Count(usize);
/// impl Visitor for Count {
///     fn stored(&mut self, stored: StoredBlocks<'_>) {
///         self.0 += stored.engine_hashes.len();
///     }
///     fn removed(&mut self, _: Worker, _: Tier, hashes: &[EngineHash]) {
///         self.0 = self.0.saturating_sub(hashes.len()); // some may never have been stored
///     }
///     fn cleared(&mut self, _: Worker) {
///         self.0 = 0;
///     }
/// }
///
/// let mut source = SourceConfig::new(7);
/// source.block_size = 4;
/// let mut normalizer = Normalizer::new(source)?;
/// let mut count = Count::default();
/// let payload = b"\x93\x01\x91\x97\xabBlockStored\x91\x0b\xc0\x94\x01\x02\x03\x04\x04\xc0\xa3GPU\x00";
/// normalizer.read(payload, &mut count)?;
/// assert_eq!(count.0, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Normalizer {
    config: SourceConfig,
    decoder: Decoder,
    ranks: Vec<Rank>,
    /// Blocks with a salt, of all ranks at the end of the last batch.
    salted: usize,
    scratch: Scratch,
    counters: Counters,
    seen: Seen,
    hasher: RandomState,
}

#[derive(Debug)]
struct Rank {
    worker: Worker,
    policy: Policy,
    salts: Salts,
}

/// The salts of blocks that have one, until their first removal. Without an index, a block stored first without a
/// salt and then with one is not seen to be ambiguous, and blocks teach even if their parent is unknown to the caller.
#[derive(Debug)]
struct Salts(HashMap<EngineHash, Namespace, RandomState>);

impl Normalizer {
    /// A normalizer for one source; `copies` of the configuration is the caller's business.
    ///
    /// # Errors
    /// If a value is out of its range.
    pub fn new(config: SourceConfig) -> Result<Self, ConfigError> {
        Ok(Self {
            decoder: decoder(&config)?,
            config,
            ranks: Vec::new(),
            salted: 0,
            scratch: Scratch::default(),
            counters: Counters::default(),
            seen: Seen::default(),
            hasher: RandomState::new(),
        })
    }

    /// Reads one payload and shows the visitor what counts of it.
    ///
    /// # Errors
    /// If the payload is broken: where and why. Nothing of it was shown.
    pub fn read(&mut self, payload: &[u8], visitor: &mut impl Visitor) -> Result<Applied, WireError> {
        let mut batch = self.counters.batch(payload, self.decoder.read(payload))?;
        self.seen.batch(&batch);
        let dp_rank = batch.dp_rank().unwrap_or(self.config.dp_rank);
        let worker = Worker { worker_id: self.config.worker_id, dp_rank };
        let applied = Applied { worker, timestamp: batch.timestamp() };
        let Some(rank) = find(&mut self.ranks, worker, &self.config, &self.hasher) else {
            self.counters.refuse(&mut batch, worker, &mut ());
            return Ok(applied);
        };
        let others = self.salted.saturating_sub(rank.salts.0.len());
        let salts_max = (self.config.blocks_max as usize).saturating_sub(others);
        batch.for_each(|event| {
            let place = Show {
                worker,
                salts: &mut rank.salts,
                salts_max,
                scratch: &mut self.scratch,
                counters: &mut self.counters,
                visitor,
            };
            Judge { policy: &mut rank.policy, seen: &mut self.seen, place }.event(event);
        });
        self.salted = others + rank.salts.0.len();
        self.seen.unlisted(batch.unlisted_drift());
        Ok(applied)
    }

    /// What the source has brought, and what became of it.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The shapes of its events, with counts; the first 32 shapes.
    pub fn shapes(&self) -> impl Iterator<Item = (Shape, u64)> {
        self.seen.shapes()
    }

    /// What no known producer version sends, as [`crate::Ingest::drift`].
    pub fn drift(&self) -> impl Iterator<Item = (&str, u64)> {
        self.seen.drifts()
    }

    /// Ranks whose producer uses another block size than configured: the most frequent such size, and how many events
    /// had it.
    pub fn mismatched_block_sizes(&self) -> impl Iterator<Item = (Worker, u32, u64)> {
        self.ranks.iter().filter_map(|rank| {
            let (block_size, events) = rank.policy.mismatched_block_size()?;
            Some((rank.worker, block_size, events))
        })
    }
}

fn find<'r>(
    ranks: &'r mut Vec<Rank>,
    worker: Worker,
    config: &SourceConfig,
    hasher: &RandomState,
) -> Option<&'r mut Rank> {
    let at = match ranks.iter().position(|rank| rank.worker == worker) {
        Some(at) => at,
        None if ranks.len() >= config.ranks_max as usize => return None,
        None => {
            let salts = Salts(HashMap::with_hasher(hasher.clone()));
            ranks.push(Rank { worker, policy: Policy::new(config.block_size), salts });
            ranks.len() - 1
        }
    };
    ranks.get_mut(at)
}

/// Shows admitted events of one rank to the visitor.
struct Show<'a, V> {
    worker: Worker,
    salts: &'a mut Salts,
    /// Blocks with a salt that there may be; without theirs, children would be taken for others.
    salts_max: usize,
    scratch: &'a mut Scratch,
    counters: &'a mut Counters,
    visitor: &'a mut V,
}

impl Salts {
    fn store(&mut self, hashes: &[EngineHash], salt: Option<SaltHash>) {
        if self.0.is_empty() && salt.is_none() {
            return;
        }
        for &hash in hashes {
            let known = self.0.get(&hash).copied();
            let namespace = match (known, salt) {
                (None, None) => continue,
                (None, Some(salt)) => Namespace::Salted(salt),
                (Some(Namespace::Salted(old)), Some(new)) if old == new => continue,
                (Some(_), _) => Namespace::Ambiguous,
            };
            self.0.insert(hash, namespace);
        }
    }
}

impl<V> KnownBlocks for Show<'_, V> {
    fn namespace(&self, engine_hash: EngineHash) -> Namespace {
        self.salts.0.get(&engine_hash).copied().unwrap_or(Namespace::Plain)
    }
}

impl<V: Visitor> Place for Show<'_, V> {
    fn store(&mut self, admitted: &Admitted<'_>) -> Result<(), Reason> {
        let body = admitted.body();
        self.scratch.check(admitted)?;
        let mut stored = StoredBlocks {
            worker: self.worker,
            tier: admitted.tier(),
            parent: admitted.parent(),
            engine_hashes: body.block_hashes,
            local_hashes: &[],
        };
        if admitted.is_by_hash_alone() {
            self.counters.placed_blocks += stored.engine_hashes.len() as u64;
        } else {
            stored.local_hashes = self.scratch.local_hashes(admitted);
            stored.engine_hashes = &body.block_hashes[..stored.local_hashes.len()];
            let salted = self.salts.0.len() + stored.engine_hashes.len();
            if admitted.salt().is_some() && salted > self.salts_max {
                return Err(Reason::TooManyBlocks);
            }
            self.salts.store(stored.engine_hashes, admitted.salt());
            self.counters.place(stored.local_hashes.len(), stored.local_hashes.len(), body);
        }
        self.visitor.stored(stored);
        Ok(())
    }

    fn remove(&mut self, hashes: &[EngineHash], tier: Tier) {
        if !self.salts.0.is_empty() {
            for hash in hashes {
                self.salts.0.remove(hash);
            }
        }
        self.counters.removed_blocks += hashes.len() as u64;
        self.visitor.removed(self.worker, tier, hashes);
    }

    /// Nothing waits: the visitor keeps the blocks.
    fn finish(&mut self) {}

    fn clear(&mut self) {
        self.salts.0.clear();
        self.visitor.cleared(self.worker);
    }

    fn counters(&mut self) -> &mut Counters {
        self.counters
    }
}
