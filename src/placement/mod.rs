//! Admitted event → records: steps 7–11 of the policy, in one pass over the blocks. Data plane.

#[expect(clippy::cast_possible_truncation, reason = "packs fields into words and takes them out")]
mod record;
mod ordinals;
#[expect(clippy::cast_possible_truncation, reason = "packs fields into words and takes them out")]
mod names;
mod chain;
mod identity;
mod locals;
mod repeats;

pub(crate) use chain::{Chain, Known, Named};
use locals::LocalHasher;
pub(crate) use record::{Lane, Op, Ordinal, Placed, Record, Slot, shard_of};
use repeats::Repeats;

use crate::counters::Counters;
use crate::hash::SaltHash;
use crate::ids::{EngineHash, LocalHash, Tier};
use crate::judge::Place;
use crate::observe::Placement;
use crate::policy::{Admitted, KnownBlocks, Namespace, Reason};
use chain::{Change, Link};

/// Removals that wait before they are applied, while what is known of their blocks is fetched.
const REMOVALS_MAX: usize = 32;

/// Takes what placement makes.
pub(crate) trait Sink {
    /// Whether somebody watches placements, who must see them in the order of events.
    fn is_watched(&self) -> bool;
    /// A change for a shard.
    fn record(&mut self, shard: usize, record: Record);
    /// A stored block, which follows the block of the ordinal, or begins a prompt.
    fn store(&mut self, shard: usize, after: Option<Ordinal>, record: Record);
    /// Every block of the slot is gone. Gives the slot in which the worker goes on.
    fn clear(&mut self, slot: Slot) -> Slot;
    /// The same for a person watching; every copy is shown.
    fn placement(&mut self, placement: Placement);
}

/// Buffers shared by all ranks of a source.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    locals: LocalHasher,
    repeats: Repeats,
    /// Removals of the rank in hand that are not applied yet.
    removals: Vec<(EngineHash, Tier)>,
}

impl Scratch {
    /// Step 7: refuses stores without hashes, with repeated ones, or with more tokens than they account for.
    #[inline]
    pub(crate) fn check(&mut self, admitted: &Admitted<'_>) -> Result<(), Reason> {
        self.repeats.check(admitted.body(), admitted.parent())
    }

    /// Step 9: local hashes of the leading complete blocks.
    #[inline]
    pub(crate) fn local_hashes(&mut self, admitted: &Admitted<'_>) -> &[LocalHash] {
        self.locals.hash(admitted)
    }
}

/// What is the same for all blocks of a store, and what the first of them follows.
struct Stored {
    parent: Option<EngineHash>,
    before: Option<Link>,
    at: (Tier, Option<SaltHash>),
}

/// Places the events of one worker and rank.
pub(crate) struct Placer<'a, S> {
    pub(crate) chain: &'a mut Chain,
    pub(crate) slot: &'a mut Slot,
    pub(crate) scratch: &'a mut Scratch,
    pub(crate) counters: &'a mut Counters,
    pub(crate) sink: &'a mut S,
}

impl<S> KnownBlocks for Placer<'_, S> {
    fn namespace(&self, engine_hash: EngineHash) -> Namespace {
        self.chain.namespace(engine_hash)
    }
}

impl<S: Sink> Place for Placer<'_, S> {
    fn store(&mut self, admitted: &Admitted<'_>) -> Result<(), Reason> {
        let body = admitted.body();
        self.scratch.check(admitted)?;
        if admitted.is_by_hash_alone() {
            self.store_by_hash(body.block_hashes, admitted.tier());
            return Ok(());
        }
        let parent = match admitted.parent() {
            None => None,
            Some(parent) => Some(self.chain.find(parent).ok_or(Reason::UnknownParent)?),
        };
        self.store_by_tokens(admitted, parent);
        Ok(())
    }

    /// Engines evict block by block, each removal an event of its own: were each applied at once, each would wait for memory
    /// alone. Nothing looks at blocks before `finish`.
    fn remove(&mut self, hashes: &[EngineHash], tier: Tier) {
        self.chain.prefetch(hashes);
        self.scratch.removals.extend(hashes.iter().map(|&hash| (hash, tier)));
        if self.scratch.removals.len() >= REMOVALS_MAX || self.sink.is_watched() {
            self.finish();
        }
    }

    fn finish(&mut self) {
        let mut removals = std::mem::take(&mut self.scratch.removals);
        for (engine_hash, tier) in removals.drain(..) {
            self.remove_one(engine_hash, tier);
        }
        self.scratch.removals = removals;
    }

    fn clear(&mut self) {
        self.finish();
        // Who clears without end what is empty must not keep the shards sweeping.
        if self.chain.blocks() > 0 {
            self.chain.clear();
            *self.slot = self.sink.clear(*self.slot);
        }
        self.sink.placement(Placement::Clear);
    }

    fn counters(&mut self) -> &mut Counters {
        self.counters
    }
}

impl<S: Sink> Placer<'_, S> {
    #[inline]
    fn remove_one(&mut self, engine_hash: EngineHash, tier: Tier) {
        let Some((link, was_last, is_gone)) = self.chain.remove(engine_hash, tier) else {
            self.counters.filter(Reason::UnknownBlock, 1);
            return;
        };
        if was_last {
            let op = if is_gone { Op::Forget } else { Op::Drop };
            self.sink.record(link.shard, Record::new(op, self.slot.lane(tier), link.ordinal, 0));
        }
        self.counters.removed_blocks += 1;
        self.sink.placement(Placement::Remove { tier, engine_hash });
    }

    fn store_by_hash(&mut self, hashes: &[EngineHash], tier: Tier) {
        self.chain.prefetch(hashes);
        for &engine_hash in hashes {
            let Some((link, change)) = self.chain.store_known(engine_hash, tier) else {
                self.counters.filter(Reason::UnresolvedHash, 1);
                continue;
            };
            if change == Change::Entered {
                self.sink.record(link.shard, Record::new(Op::Hold, self.slot.lane(tier), link.ordinal, 0));
            }
            self.counters.placed_blocks += 1;
            self.sink.placement(Placement::Store { tier, engine_hash, parent: None, local_hash: None });
        }
    }

    fn store_by_tokens(&mut self, admitted: &Admitted<'_>, before: Option<Link>) {
        let body = admitted.body();
        self.chain.prefetch(body.block_hashes);
        // Taken out for the loop, which needs all of `self`; an empty one costs nothing.
        let mut locals = std::mem::take(&mut self.scratch.locals);
        let local_hashes = locals.hash(admitted);
        let stored = Stored { parent: admitted.parent(), before, at: (admitted.tier(), admitted.salt()) };
        let placed = self.store_blocks(stored, body.block_hashes, local_hashes);
        self.counters.place(local_hashes.len(), placed, body);
        self.scratch.locals = locals;
    }

    /// Stores a chain of blocks, up to the first that is one too many; gives how many.
    #[inline]
    fn store_blocks(
        &mut self,
        stored: Stored,
        engine_hashes: &[EngineHash],
        local_hashes: &[LocalHash],
    ) -> usize {
        let Stored { mut parent, mut before, at } = stored;
        let (tier, lane) = (at.0, self.slot.lane(at.0));
        for (number, (&engine_hash, &local_hash)) in engine_hashes.iter().zip(local_hashes).enumerate() {
            let Some((link, change)) = self.chain.store(engine_hash, before, local_hash, at) else {
                return number;
            };
            let after = before.map(|link| link.ordinal);
            let store = Record::new(Op::Store, lane, link.ordinal, local_hash.0);
            match change {
                Change::None => {}
                Change::New => self.sink.store(link.shard, after, store),
                Change::Entered => {
                    self.sink.record(link.shard, Record::new(Op::Hold, lane, link.ordinal, 0));
                }
                Change::Replaced(old, held) => {
                    self.counters.filter(Reason::Rehashed, 1);
                    // Before the old is forgotten, so that what both continue stays.
                    self.sink.store(link.shard, after, store);
                    self.forget(old, held);
                }
            }
            self.sink.placement(Placement::Store { tier, engine_hash, parent, local_hash: Some(local_hash) });
            before = Some(link);
            parent = Some(engine_hash);
        }
        local_hashes.len()
    }

    /// Stores a block as another source knows it. False, and nothing done, if its parent is unknown, or its own hash known.
    pub(crate) fn load(&mut self, known: &Known, parent: Option<EngineHash>, local_hash: LocalHash) -> bool {
        let before = parent.and_then(|parent| self.chain.find(parent));
        if parent.is_some() && before.is_none() {
            return false;
        }
        let Some(link) = self.chain.load(known, before, local_hash) else { return false };
        let mut is_stored = false;
        for tier in Tier::ALL.into_iter().filter(|tier| known.copies[tier.index()] > 0) {
            let lane = self.slot.lane(tier);
            if std::mem::replace(&mut is_stored, true) {
                self.sink.record(link.shard, Record::new(Op::Hold, lane, link.ordinal, 0));
            } else {
                let store = Record::new(Op::Store, lane, link.ordinal, local_hash.0);
                self.sink.store(link.shard, before.map(|before| before.ordinal), store);
            }
        }
        true
    }

    /// Takes out a block that was stored only so that others can follow it.
    pub(crate) fn unload(&mut self, engine_hash: EngineHash, tier: Tier) {
        if let Some((link, true, true)) = self.chain.remove(engine_hash, tier) {
            self.sink.record(link.shard, Record::new(Op::Forget, self.slot.lane(tier), link.ordinal, 0));
        }
    }

    /// Stores blocks without an event; false if their parent is unknown.
    #[cfg(feature = "bench")]
    pub(crate) fn feed(
        &mut self,
        parent: Option<EngineHash>,
        engine_hashes: &[EngineHash],
        local_hashes: &[LocalHash],
    ) -> bool {
        self.finish();
        let before = parent.and_then(|parent| self.chain.find(parent));
        if parent.is_some() && before.is_none() {
            return false;
        }
        self.chain.prefetch(engine_hashes);
        self.store_blocks(Stored { parent, before, at: (Tier::Device, None) }, engine_hashes, local_hashes);
        true
    }

    /// A block is no longer known, at whichever tiers it was held.
    fn forget(&mut self, block: Link, held: [bool; 4]) {
        let tiers = || Tier::ALL.into_iter().filter(|tier| held[tier.index()]);
        let last = tiers().next_back();
        for tier in tiers() {
            let op = if Some(tier) == last { Op::Forget } else { Op::Drop };
            self.sink.record(block.shard, Record::new(op, self.slot.lane(tier), block.ordinal, 0));
        }
    }
}
