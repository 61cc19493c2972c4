//! Prefix hashes in, cumulative depths per worker out. Reads shards, writes nothing.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::hash::{SaltHash, Seed, blocks, hash_tokens, prefix_hash};
use crate::ids::{LocalHash, PrefixHash, Tier, Worker};
use crate::placement::Slot;
use crate::shard::{SharedTable, shard_of};
use crate::slots::Slots;

/// A prompt as a router knows it.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::exhaustive_structs, reason = "made by callers, with `..Default::default()`")]
pub struct Prompt<'a> {
    /// Token ids, from the prompt's start.
    pub token_ids: &'a [u32],
    /// Tokens per block.
    pub block_size: u32,
    /// Adapter name; empty is none.
    pub lora_name: Option<&'a str>,
    /// Cache namespace; empty is none.
    pub cache_salt: Option<&'a str>,
    /// Whether the workers publish EAGLE pairs: blocks are windows of one token more.
    pub bigram: bool,
}

impl<'a> Prompt<'a> {
    /// A prompt without adapter or salt.
    #[must_use]
    pub fn new(token_ids: &'a [u32], block_size: u32) -> Self {
        Self { token_ids, block_size, ..Self::default() }
    }

    /// Local hashes of the complete blocks, appended to `out`. Multimodal identities are not tokens: a router that has
    /// them asks by local hashes it computed itself.
    pub fn local_hashes(&self, out: &mut Vec<LocalHash>) {
        let seed = Seed::new(self.lora_name, SaltHash::of(self.cache_salt.map(str::as_bytes)));
        let blocks = blocks(self.token_ids, self.block_size as usize, self.bigram);
        out.extend(blocks.map(|tokens| hash_tokens(tokens, seed)));
    }
}

/// How much of a prompt one worker holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct Match {
    /// Who.
    pub worker: Worker,
    /// Blocks from the prompt's start, cumulative by tier: device; device or host; device, host or disk; any. Depth d
    /// means that blocks `0..d` are each at one of those tiers; a hole ends it. Where two sources bring one worker, the
    /// deeper of their two answers.
    pub depths: [u32; 4],
}

impl Match {
    /// The depth down to a tier.
    #[must_use]
    pub const fn depth(&self, tier: Tier) -> u32 {
        self.depths[tier.index()]
    }
}

/// The query side of an engine. Each thread has its own; answers reuse its buffers.
#[derive(Debug)]
pub struct Reader {
    shards: Vec<SharedTable>,
    slots: Arc<Slots>,
    local_hashes: Vec<LocalHash>,
    prefix_hashes: Vec<PrefixHash>,
    walk: Walk,
}

/// A walk along a prompt: which slots still match, and the tiers of each at the current block.
#[derive(Debug, Default)]
struct Walk {
    active: Vec<Candidate>,
    /// Tier bits by slot; all 0 between blocks.
    held: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
struct Candidate {
    slot: Slot,
    depths: [u32; 4],
    /// Cumulative tiers that have had no hole so far.
    alive: [bool; 4],
}

impl Reader {
    pub(crate) fn new(shards: Vec<SharedTable>, slots: Arc<Slots>) -> Self {
        let walk = Walk { active: Vec::new(), held: vec![0; Slot::COUNT] };
        Self { shards, slots, local_hashes: Vec::new(), prefix_hashes: Vec::new(), walk }
    }

    /// Matches a prompt. `matches` becomes every worker that holds its first block, by worker id, then rank. Gives the
    /// number of complete blocks the prompt has.
    pub fn find_matches(&mut self, prompt: &Prompt<'_>, matches: &mut Vec<Match>) -> usize {
        let mut local_hashes = std::mem::take(&mut self.local_hashes);
        local_hashes.clear();
        prompt.local_hashes(&mut local_hashes);
        self.find_local_matches(&local_hashes, matches);
        let blocks = local_hashes.len();
        self.local_hashes = local_hashes;
        blocks
    }

    /// As `find_matches`, from the local hashes of the prompt's blocks.
    pub fn find_local_matches(&mut self, local_hashes: &[LocalHash], matches: &mut Vec<Match>) {
        let mut prefix_hashes = std::mem::take(&mut self.prefix_hashes);
        prefix_hashes.clear();
        let mut parent = None;
        prefix_hashes.extend(local_hashes.iter().map(|&local_hash| {
            let prefix_hash = prefix_hash(parent, local_hash);
            parent = Some(prefix_hash);
            prefix_hash
        }));
        self.find_prefix_matches(&prefix_hashes, matches);
        self.prefix_hashes = prefix_hashes;
    }

    /// As `find_matches`, from the prefix hashes of the prompt's blocks.
    pub fn find_prefix_matches(&mut self, prefix_hashes: &[PrefixHash], matches: &mut Vec<Match>) {
        matches.clear();
        // Before the tables and until the end: no slot comes to stand for another worker while it is looked at.
        let workers = self.slots.read();
        let tables: SmallVec<[_; 8]> = self
            .shards
            .iter()
            .map(|shard| shard.read().unwrap_or_else(std::sync::PoisonError::into_inner))
            .collect();
        self.walk.active.clear();
        for (block, &prefix_hash) in prefix_hashes.iter().enumerate() {
            let table = &tables[shard_of(prefix_hash, tables.len())];
            let held = &mut self.walk.held;
            let active = &mut self.walk.active;
            let found = table.find_holders(prefix_hash, |slot, bit| {
                if block == 0 && held[slot.index()] == 0 {
                    active.push(Candidate { slot, depths: [0; 4], alive: [true; 4] });
                }
                held[slot.index()] |= bit;
            });
            let any_left = found && self.walk.step();
            table.find_holders(prefix_hash, |slot, _| self.walk.held[slot.index()] = 0);
            if !any_left {
                break;
            }
        }
        drop(tables);
        matches.extend(self.walk.active.iter().filter_map(|candidate| {
            let worker = workers[candidate.slot.index()]?;
            Some(Match { worker, depths: candidate.depths })
        }));
        drop(workers);
        matches.sort_unstable();
        // Two sources may bring one worker: it holds what either says it holds.
        matches.dedup_by(|later, earlier| {
            let same = later.worker == earlier.worker;
            if same {
                for (depth, other) in earlier.depths.iter_mut().zip(later.depths) {
                    *depth = other.max(*depth);
                }
            }
            same
        });
    }
}

impl Walk {
    /// Counts the current block for every slot that holds it; says whether any still matches.
    fn step(&mut self) -> bool {
        let mut any = false;
        for candidate in &mut self.active {
            let held = self.held[candidate.slot.index()];
            for tier in Tier::ALL {
                let cumulative = (2_u8 << tier.index()) - 1;
                let alive = &mut candidate.alive[tier.index()];
                *alive &= held & cumulative != 0;
                candidate.depths[tier.index()] += u32::from(*alive);
            }
            any |= candidate.alive[Tier::External.index()];
        }
        any
    }
}
