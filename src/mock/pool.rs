//! A pool of cache blocks as vLLM keeps it: blocks are named by chained hashes, held by requests, and handed out again in
//! the order in which they were released, which is leaf first because requests release their last block first. Equal
//! blocks computed at the same time stay two copies, as there.

use std::collections::{BTreeMap, HashMap};

use crate::ids::EngineHash;

/// What a block can be found under.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Name {
    pub(super) group_idx: u32,
    pub(super) hash: EngineHash,
    /// A tail that does not fill the block yet.
    pub(super) partial: bool,
}

/// Position of a block in its pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BlockId(usize);

#[derive(Debug, Default)]
struct Block {
    holders: u32,
    /// Once full, a block may keep the name of the tail it was.
    names: Vec<Name>,
    /// Key in `free` while nobody holds it.
    released: u64,
}

#[derive(Debug)]
pub(super) struct Pool {
    blocks: Vec<Block>,
    /// Blocks nobody holds, by when they were released.
    free: BTreeMap<u64, BlockId>,
    /// Every copy of each named block, oldest first. Never empty.
    named: HashMap<Name, Vec<BlockId>>,
    clock: u64,
}

impl Pool {
    pub(super) fn new(blocks: usize) -> Self {
        let free: BTreeMap<_, _> = (0..).zip((0..blocks).map(BlockId)).collect();
        let block = |released| Block { released, ..Block::default() };
        let clock = blocks as u64;
        Self { blocks: (0..clock).map(block).collect(), free, named: HashMap::new(), clock }
    }

    pub(super) fn find(&self, name: &Name) -> Option<BlockId> {
        self.named.get(name).and_then(|copies| copies.first()).copied()
    }

    /// Takes the block that was released longest ago, and appends the names it lost. `None` if all are held.
    pub(super) fn take(&mut self, lost: &mut Vec<Name>) -> Option<BlockId> {
        let (_, id) = self.free.pop_first()?;
        self.blocks[id.0].holders = 1;
        for name in std::mem::take(&mut self.blocks[id.0].names) {
            self.forget(id, &name);
            lost.push(name);
        }
        Some(id)
    }

    pub(super) fn hold(&mut self, id: BlockId) {
        let block = &mut self.blocks[id.0];
        if block.holders == 0 {
            self.free.remove(&block.released);
        }
        block.holders += 1;
    }

    pub(super) fn release(&mut self, id: BlockId) {
        let block = &mut self.blocks[id.0];
        block.holders -= 1;
        if block.holders == 0 {
            block.released = self.clock;
            self.free.insert(self.clock, id);
            self.clock += 1;
        }
    }

    pub(super) fn name(&mut self, id: BlockId, name: Name) {
        self.blocks[id.0].names.push(name);
        self.named.entry(name).or_default().push(id);
    }

    /// Takes one of a block's names away.
    pub(super) fn unname(&mut self, id: BlockId, name: &Name) {
        self.blocks[id.0].names.retain(|other| other != name);
        self.forget(id, name);
    }

    /// Forgets all names; who holds what stays.
    pub(super) fn clear(&mut self) {
        self.named.clear();
        self.blocks.iter_mut().for_each(|block| block.names.clear());
    }

    /// Everything that can be found, copies once.
    pub(super) fn names(&self) -> impl Iterator<Item = &Name> {
        self.named.keys()
    }

    fn forget(&mut self, id: BlockId, name: &Name) {
        if let Some(copies) = self.named.get_mut(name) {
            copies.retain(|copy| *copy != id);
            if copies.is_empty() {
                self.named.remove(name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(hash: u64) -> Name {
        Name { group_idx: 0, hash: EngineHash(hash), partial: false }
    }

    #[test]
    fn what_was_released_longest_ago_goes_first() {
        let mut pool = Pool::new(2);
        let mut lost = Vec::new();
        let root = pool.take(&mut lost).unwrap();
        let leaf = pool.take(&mut lost).unwrap();
        assert_eq!(pool.take(&mut lost), None);
        pool.name(root, name(1));
        pool.name(leaf, name(2));
        pool.release(leaf);
        pool.release(root);
        assert_eq!(pool.take(&mut lost), Some(leaf));
        assert_eq!(lost, [name(2)]);
        assert_eq!((pool.find(&name(1)), pool.find(&name(2))), (Some(root), None));
    }

    #[test]
    fn a_held_block_is_not_handed_out() {
        let mut pool = Pool::new(2);
        let mut lost = Vec::new();
        let first = pool.take(&mut lost).unwrap();
        pool.release(first);
        pool.hold(first);
        assert_ne!(pool.take(&mut lost), Some(first));
        assert_eq!(pool.take(&mut lost), None);
    }

    #[test]
    fn copies_go_one_by_one() {
        let mut pool = Pool::new(2);
        let mut lost = Vec::new();
        for _ in 0..2 {
            let id = pool.take(&mut lost).unwrap();
            pool.name(id, name(1));
            pool.release(id);
        }
        pool.take(&mut lost).unwrap();
        assert!(pool.find(&name(1)).is_some());
        pool.take(&mut lost).unwrap();
        assert_eq!(pool.find(&name(1)), None);
        assert_eq!(lost, [name(1), name(1)]);
    }
}
