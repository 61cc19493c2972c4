//! What a source holds, rank by rank and block by block, for those who want to hold a copy of it. Control plane: takes a walk
//! over its blocks.

use std::collections::{HashMap, HashSet};
use std::fmt;

use crate::hash::SaltHash;
use crate::ids::{EngineHash, LocalHash, Tier, Worker};
use crate::placement::{Known, Named, Ordinal, Placed};
use crate::policy::GroupKind;

/// One rank of a source: what it holds, and what was learned of it. [`Ingest::held`](crate::Ingest::held) tells it,
/// [`Ingest::load`](crate::Ingest::load) takes it over.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeldRank {
    /// Whose.
    pub worker: Worker,
    /// The learned kinds of its groups.
    pub groups: Vec<(u32, GroupKind)>,
    /// It has published a full block since it was last cleared, so smaller ones are tails.
    pub has_full_block: bool,
    /// Parents before what follows them.
    pub blocks: Vec<HeldBlock>,
}

impl HeldRank {
    /// A rank that holds nothing.
    #[must_use]
    pub const fn new(worker: Worker) -> Self {
        Self { worker, groups: Vec::new(), has_full_block: false, blocks: Vec::new() }
    }
}

/// A block that a worker holds; or, without any copies, one that leads to some that it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeldBlock {
    /// The engine's name for it. Without copies it is a number that names nothing else, as the engine's own is not known.
    pub engine_hash: EngineHash,
    /// The name of the block before it; `None` at the start of a prompt.
    pub parent: Option<EngineHash>,
    /// Hash of its tokens.
    pub local_hash: LocalHash,
    /// On device, host, disk, external.
    pub copies: [u32; 4],
    /// Hash of the cache salt that what follows inherits.
    pub salt: Option<u64>,
    /// It is known under several salts.
    pub is_ambiguous: bool,
}

impl HeldBlock {
    /// A block without copies or salt.
    #[must_use]
    pub const fn new(engine_hash: EngineHash, parent: Option<EngineHash>, local_hash: LocalHash) -> Self {
        Self { engine_hash, parent, local_hash, copies: [0; 4], salt: None, is_ambiguous: false }
    }

    /// Whether there is a copy of it.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.copies != [0; 4]
    }

    pub(crate) fn known(&self) -> Known {
        // What only leads to others is held as long as it takes to place these.
        let copies = if self.is_held() { self.copies } else { [1, 0, 0, 0] };
        let salt = self.salt.map(SaltHash::from_bits);
        Known { engine_hash: self.engine_hash, copies, salt, is_ambiguous: self.is_ambiguous }
    }
}

/// Why blocks could not be taken over; displays as one sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadError(Problem);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Problem {
    OtherWorker(Worker),
    RankTwice(Worker),
    BlockTwice(Worker, EngineHash),
    NoParent(Worker, EngineHash),
    Groups(Worker),
    Ranks(Worker),
    Blocks(usize),
}

impl LoadError {
    pub(crate) const fn groups(worker: Worker) -> Self {
        Self(Problem::Groups(worker))
    }

    pub(crate) const fn blocks(blocks: usize) -> Self {
        Self(Problem::Blocks(blocks))
    }

    pub(crate) const fn ranks(worker: Worker) -> Self {
        Self(Problem::Ranks(worker))
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Problem::OtherWorker(worker) => write!(f, "worker {worker} is not the source's"),
            Problem::RankTwice(worker) => write!(f, "worker {worker} comes twice"),
            Problem::BlockTwice(worker, hash) => write!(f, "block {} of worker {worker} comes twice", hash.0),
            Problem::NoParent(worker, hash) => {
                write!(f, "the parent of block {} of worker {worker} does not come before it", hash.0)
            }
            Problem::Groups(worker) => write!(f, "worker {worker} has more groups than a rank may have"),
            Problem::Blocks(blocks) => write!(f, "{blocks} blocks are more than a source may have"),
            Problem::Ranks(worker) => write!(f, "there is no room for worker {worker}"),
        }
    }
}

impl std::error::Error for LoadError {}

/// Checks what does not show one by one, before anything is touched.
pub(crate) fn check(ranks: &[HeldRank], worker_id: u64) -> Result<(), LoadError> {
    let mut workers = HashSet::new();
    for rank in ranks {
        let worker = rank.worker;
        if worker.worker_id != worker_id {
            return Err(LoadError(Problem::OtherWorker(worker)));
        }
        if !workers.insert(worker) {
            return Err(LoadError(Problem::RankTwice(worker)));
        }
        let mut known = HashSet::new();
        for block in &rank.blocks {
            if block.parent.is_some_and(|parent| !known.contains(&parent)) {
                return Err(LoadError(Problem::NoParent(worker, block.engine_hash)));
            }
            if !known.insert(block.engine_hash) {
                return Err(LoadError(Problem::BlockTwice(worker, block.engine_hash)));
            }
        }
    }
    Ok(())
}

/// Puts the names and places of one rank together, shard by shard.
#[derive(Debug, Default)]
pub(crate) struct Arrangement {
    pub(crate) blocks: Vec<HeldBlock>,
    names: HashSet<EngineHash>,
    /// Names given to blocks that have none count down from the last number.
    given: u64,
}

impl Arrangement {
    /// With all names of the rank, so that none is given twice.
    pub(crate) fn new(names: HashSet<EngineHash>) -> Self {
        Self { blocks: Vec::with_capacity(names.len()), names, given: 0 }
    }

    /// Adds one shard's blocks: parents first, chains in one piece where they do not branch.
    pub(crate) fn add(&mut self, named: &[Named], placed: &[Placed]) {
        let places: HashMap<u32, &Placed> = placed
            .iter()
            .filter(|placed| placed.ordinal != Ordinal::NONE)
            .map(|placed| (placed.ordinal.0, placed))
            .collect();
        // By the place before: what follows it. Several names may stand at one place.
        let mut followers: HashMap<Option<u32>, Vec<(HeldBlock, u32)>> = HashMap::new();
        for Named { known, ordinal } in named {
            let Some(placed) = places.get(&ordinal.0) else { continue };
            let mut block = HeldBlock::new(known.engine_hash, None, placed.local_hash);
            block.copies = known.copies;
            block.salt = known.salt.map(SaltHash::bits);
            block.is_ambiguous = known.is_ambiguous;
            followers.entry(placed.before).or_default().push((block, placed.at));
        }
        for placed in placed.iter().filter(|placed| placed.ordinal == Ordinal::NONE) {
            let block = HeldBlock::new(self.give_name(), None, placed.local_hash);
            followers.entry(placed.before).or_default().push((block, placed.at));
        }
        // What follows is told after the first name of a place: that of the highest tier, where most of it is.
        let tier = |block: &HeldBlock| Tier::ALL.iter().position(|tier| block.copies[tier.index()] > 0);
        followers.values_mut().for_each(|all| all.sort_by_key(|(block, _)| std::cmp::Reverse(tier(block))));
        let mut open: Vec<(Option<EngineHash>, HeldBlock, u32)> = Vec::new();
        let mut take = |place, parent, open: &mut Vec<_>| {
            for (block, at) in followers.remove(&place).unwrap_or_default() {
                open.push((parent, block, at));
            }
        };
        take(None, None, &mut open);
        while let Some((parent, block, at)) = open.pop() {
            self.blocks.push(HeldBlock { parent, ..block });
            take(Some(at), Some(block.engine_hash), &mut open);
        }
    }

    fn give_name(&mut self) -> EngineHash {
        loop {
            let name = EngineHash(u64::MAX - self.given);
            self.given += 1;
            if self.names.insert(name) {
                return name;
            }
        }
    }
}
