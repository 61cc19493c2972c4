//! One shard's blocks: prefix hash → the lanes that hold it.

use std::collections::HashMap;

use ahash::RandomState;
use smallvec::SmallVec;

use crate::ids::PrefixHash;
use crate::placement::{Lane, Op, Record, Slot};

/// A lane that holds a block, and under how many engine hashes.
#[derive(Clone, Copy, Debug)]
struct Holder {
    lane: Lane,
    /// More than one where two engine hashes of a worker mean one prefix: the block stays until all are gone.
    names: u16,
    /// The slot's generation when it was stored; an older one was cleared since.
    generation: u32,
}

type Holders = SmallVec<[Holder; 1]>;

/// Blocks by prefix hash. A clear only raises the slot's generation; what it left behind is swept when it is found,
/// or all at once when there is much of it.
#[derive(Debug)]
pub(crate) struct Table {
    blocks: HashMap<PrefixHash, Holders, RandomState>,
    generations: Vec<u32>,
    /// Live holders of each slot.
    live: Vec<usize>,
    /// Holders in `blocks` whose slot was cleared since.
    stale: usize,
}

const SWEEP_FROM: usize = 4096;

impl Table {
    pub(crate) fn new(hasher: RandomState) -> Self {
        Self {
            blocks: HashMap::with_hasher(hasher),
            generations: vec![0; Slot::COUNT],
            live: vec![0; Slot::COUNT],
            stale: 0,
        }
    }

    pub(crate) fn apply(&mut self, record: Record) {
        match record.op {
            Op::Store => self.store(record.prefix_hash, record.lane),
            Op::Remove => self.remove(record.prefix_hash, record.lane),
            Op::Clear => self.clear(record.lane.slot()),
        }
    }

    fn store(&mut self, prefix_hash: PrefixHash, lane: Lane) {
        let slot = lane.slot().index();
        let generation = self.generations[slot];
        let holders = self.blocks.entry(prefix_hash).or_default();
        if let Some(holder) = holders.iter_mut().find(|holder| holder.lane == lane) {
            if holder.generation == generation {
                holder.names = holder.names.saturating_add(1);
                return;
            }
            self.stale -= 1;
            *holder = Holder { lane, names: 1, generation };
        } else {
            holders.push(Holder { lane, names: 1, generation });
        }
        self.live[slot] += 1;
    }

    fn remove(&mut self, prefix_hash: PrefixHash, lane: Lane) {
        let slot = lane.slot().index();
        let Some(holders) = self.blocks.get_mut(&prefix_hash) else { return };
        let Some(at) = holders.iter().position(|holder| holder.lane == lane) else { return };
        let holder = &mut holders[at];
        if holder.generation == self.generations[slot] {
            holder.names -= 1;
            if holder.names > 0 {
                return;
            }
            self.live[slot] -= 1;
        } else {
            self.stale -= 1;
        }
        holders.swap_remove(at);
        if holders.is_empty() {
            self.blocks.remove(&prefix_hash);
            self.give_back();
        }
    }

    fn clear(&mut self, slot: Slot) {
        let slot = slot.index();
        self.stale += std::mem::take(&mut self.live[slot]);
        self.generations[slot] = self.generations[slot].wrapping_add(1);
        // A generation that comes round again must find nothing of its first time.
        if self.stale > SWEEP_FROM.max(self.blocks.len() / 2) || self.generations[slot] == 0 {
            self.sweep();
        }
    }

    fn sweep(&mut self) {
        let generations = &self.generations;
        self.blocks.retain(|_, holders| {
            holders.retain(|holder| holder.generation == generations[holder.lane.slot().index()]);
            !holders.is_empty()
        });
        self.stale = 0;
        self.give_back();
    }

    fn give_back(&mut self) {
        let (len, capacity) = (self.blocks.len(), self.blocks.capacity());
        if capacity > SWEEP_FROM && len < capacity / 8 {
            self.blocks.shrink_to(len * 2);
        }
    }

    /// Calls `each` with the slot and tier bit of every lane that holds the block; says whether any does.
    pub(crate) fn find_holders(&self, prefix_hash: PrefixHash, mut each: impl FnMut(Slot, u8)) -> bool {
        let mut found = false;
        for holder in self.blocks.get(&prefix_hash).into_iter().flatten() {
            let slot = holder.lane.slot();
            if holder.generation == self.generations[slot.index()] {
                found = true;
                each(slot, holder.lane.tier_bit());
            }
        }
        found
    }

    /// Bytes the table takes, without the allocator's own.
    pub(crate) fn bytes(&self) -> usize {
        let bucket = size_of::<(PrefixHash, Holders)>() + 1;
        let spilled: usize = self
            .blocks
            .values()
            .filter(|holders| holders.spilled())
            .map(|holders| holders.capacity() * size_of::<Holder>())
            .sum();
        self.blocks.capacity() * bucket + spilled
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Tier;

    fn record(op: Op, block: u64, slot: usize) -> Record {
        let slot = Slot::new(slot).expect("small");
        Record { prefix_hash: PrefixHash(block), lane: slot.lane(Tier::Device), op }
    }

    fn holders(table: &Table, block: u64) -> Vec<usize> {
        let mut slots = Vec::new();
        table.find_holders(PrefixHash(block), |slot, _| slots.push(slot.index()));
        slots
    }

    #[test]
    fn a_block_stays_until_its_last_name_is_gone() {
        let mut table = Table::new(RandomState::with_seed(1));
        table.apply(record(Op::Store, 7, 0));
        table.apply(record(Op::Store, 7, 0));
        table.apply(record(Op::Remove, 7, 0));
        assert_eq!(holders(&table, 7), [0]);
        table.apply(record(Op::Remove, 7, 0));
        assert!(holders(&table, 7).is_empty());
        assert!(table.blocks.is_empty());
    }

    #[test]
    fn a_clear_hides_its_slot_alone_and_the_slot_can_be_used_again() {
        let mut table = Table::new(RandomState::with_seed(1));
        for block in 0..10_000 {
            table.apply(record(Op::Store, block, 0));
            table.apply(record(Op::Store, block, 1));
        }
        table.apply(record(Op::Clear, 0, 0));
        assert_eq!(holders(&table, 3), [1]);
        table.apply(record(Op::Store, 3, 0));
        assert_eq!(holders(&table, 3).len(), 2);
        table.apply(record(Op::Remove, 4, 0)); // cleared before: nothing to remove
        assert_eq!(holders(&table, 4), [1]);
        table.apply(record(Op::Clear, 0, 1));
        table.apply(record(Op::Clear, 0, 0));
        assert!((0..10_000).all(|block| holders(&table, block).is_empty()));
        assert!(table.blocks.capacity() < 5000, "swept, and memory given back");
    }
}
