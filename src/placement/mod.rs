//! Admitted event → records: steps 7–11 of the policy, in one pass over the blocks. Data plane.

mod record;
mod chain;
mod identity;
mod locals;
mod repeats;

pub(crate) use chain::Chain;
use locals::LocalHasher;
pub(crate) use record::{Lane, Op, Record, Slot};
use repeats::Repeats;

use crate::counters::Counters;
use crate::hash::prefix_hash;
use crate::ids::{EngineHash, LocalHash, PrefixHash, Tier};
use crate::judge::Place;
use crate::observe::Placement;
use crate::policy::{Admitted, KnownBlocks, Namespace, Reason};
use chain::Change;

/// Takes what placement makes.
pub(crate) trait Sink {
    /// A change for the index.
    fn record(&mut self, record: Record);
    /// The same for a person watching; every copy is shown.
    fn placement(&mut self, placement: Placement);
}

/// Buffers shared by all ranks of a source.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    locals: LocalHasher,
    repeats: Repeats,
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

/// Places the events of one worker and rank.
pub(crate) struct Placer<'a, S> {
    pub(crate) chain: &'a mut Chain,
    pub(crate) slot: Slot,
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
            Some(parent) => Some(self.chain.prefix_hash(parent).ok_or(Reason::UnknownParent)?),
        };
        self.store_by_tokens(admitted, parent);
        Ok(())
    }

    fn remove(&mut self, hashes: &[EngineHash], tier: Tier) {
        for &engine_hash in hashes {
            let Some((prefix_hash, was_last)) = self.chain.remove(engine_hash, tier) else {
                self.counters.filter(Reason::UnknownBlock, 1);
                continue;
            };
            if was_last {
                self.record(Op::Remove, tier, prefix_hash);
            }
            self.counters.removed_blocks += 1;
            self.sink.placement(Placement::Remove { tier, engine_hash, prefix_hash });
        }
    }

    fn clear(&mut self) {
        self.chain.clear();
        self.record(Op::Clear, Tier::Device, PrefixHash(0));
        self.sink.placement(Placement::Clear);
    }

    fn counters(&mut self) -> &mut Counters {
        self.counters
    }
}

impl<S: Sink> Placer<'_, S> {
    fn store_by_hash(&mut self, hashes: &[EngineHash], tier: Tier) {
        for &engine_hash in hashes {
            let Some((prefix_hash, change)) = self.chain.store_known(engine_hash, tier) else {
                self.counters.filter(Reason::UnresolvedHash, 1);
                continue;
            };
            if change == Change::Entered {
                self.record(Op::Store, tier, prefix_hash);
            }
            self.counters.placed_blocks += 1;
            self.sink.placement(Placement::Store { tier, engine_hash, local_hash: None, prefix_hash });
        }
    }

    fn store_by_tokens(&mut self, admitted: &Admitted<'_>, mut parent: Option<PrefixHash>) {
        let (tier, body) = (admitted.tier(), admitted.body());
        // Taken out for the loop, which needs all of `self`; an empty one costs nothing.
        let mut locals = std::mem::take(&mut self.scratch.locals);
        let local_hashes = locals.hash(admitted);
        for (&engine_hash, &local_hash) in body.block_hashes.iter().zip(local_hashes) {
            let prefix_hash = prefix_hash(parent, local_hash);
            parent = Some(prefix_hash);
            match self.chain.store(engine_hash, prefix_hash, admitted.salt(), tier) {
                Change::None => {}
                Change::Entered => self.record(Op::Store, tier, prefix_hash),
                Change::Replaced(old, held) => {
                    self.counters.filter(Reason::Rehashed, 1);
                    for tier in Tier::ALL.into_iter().filter(|tier| held[tier.index()]) {
                        self.record(Op::Remove, tier, old);
                    }
                    self.record(Op::Store, tier, prefix_hash);
                }
            }
            let local_hash = Some(local_hash);
            self.sink.placement(Placement::Store { tier, engine_hash, local_hash, prefix_hash });
        }
        self.counters.place(local_hashes.len(), body);
        self.scratch.locals = locals;
    }

    fn record(&mut self, op: Op, tier: Tier, prefix_hash: PrefixHash) {
        self.sink.record(Record { prefix_hash, lane: self.slot.lane(tier), op });
    }
}
