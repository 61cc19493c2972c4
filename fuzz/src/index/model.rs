//! What one source holds, naively: by rank, engine hash to prompt and copies. Written from the contract alone.

use std::collections::{BTreeMap, HashMap, HashSet};

use xxhash_rust::xxh3::xxh3_64;

/// Blocks, cumulative by tier.
pub(super) type Depths = [u32; 4];

/// A prompt, by its number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Node(usize);

/// Every prompt seen.
#[derive(Default)]
pub(super) struct Paths {
    numbers: HashMap<(Node, u32), Node>,
    /// The prompt before the last block, and that block's token; number 0 is the empty prompt.
    before: Vec<(Node, u32)>,
}

impl Paths {
    fn next(&mut self, node: Node, token: u32) -> Node {
        *self.numbers.entry((node, token)).or_insert_with(|| {
            self.before.push((node, token));
            Node(self.before.len())
        })
    }

    pub(super) fn tokens(&self, mut node: Node) -> Vec<u32> {
        let mut tokens = Vec::new();
        while node.0 > 0 {
            let (before, token) = self.before[node.0 - 1];
            tokens.push(token);
            node = before;
        }
        tokens.reverse();
        tokens
    }

    /// The prompts that a prompt begins with, as far as they were seen.
    pub(super) fn walk(&self, prompt: &[u32]) -> Vec<Node> {
        let mut nodes = Vec::new();
        let mut node = Node(0);
        for &token in prompt {
            let Some(&next) = self.numbers.get(&(node, token)) else { break };
            nodes.push(next);
            node = next;
        }
        nodes
    }
}

/// One engine hash.
struct Block {
    node: Node,
    copies: [u64; 4],
}

/// One source.
pub(super) struct Model {
    is_set: bool,
    ranks: BTreeMap<u32, BTreeMap<u64, Block>>,
    pub(super) counts: Counts,
}

#[derive(Default)]
pub(super) struct Counts {
    pub(super) placed: u64,
    pub(super) removed: u64,
    /// By label; none is zero.
    pub(super) filtered: BTreeMap<&'static str, u64>,
}

impl Counts {
    fn filter(&mut self, reason: &'static str, times: usize) {
        if times > 0 {
            *self.filtered.entry(reason).or_default() += times as u64;
        }
    }
}

impl Model {
    pub(super) fn new(is_set: bool) -> Self {
        Self { is_set, ranks: BTreeMap::new(), counts: Counts::default() }
    }

    /// A store of as many blocks as there are tokens; the names of others are there too.
    pub(super) fn store(
        &mut self,
        paths: &mut Paths,
        (rank, tier): (u32, usize),
        parent: Option<u64>,
        (names, tokens): (&[u64], &[u32]),
    ) {
        let blocks = self.ranks.entry(rank).or_default();
        if names.is_empty() {
            return self.counts.filter("no_hashes", 1);
        }
        if parent.is_some_and(|parent| names.contains(&parent)) {
            return self.counts.filter("self_referencing", 1);
        }
        if tokens.is_empty() && tier > 0 {
            return self.store_by_hash(rank, names, tier);
        }
        let mut node = match parent {
            None => Node(0),
            Some(parent) => match blocks.get(&parent) {
                None => return self.counts.filter("unknown_parent", names.len()),
                Some(block) => block.node,
            },
        };
        self.counts.filter("short_tokens", names.len() - tokens.len());
        for (&name, &token) in names.iter().zip(tokens) {
            node = paths.next(node, token);
            let block = blocks.entry(name).or_insert(Block { node, copies: [0; 4] });
            if block.node != node {
                *block = Block { node, copies: [0; 4] };
                self.counts.filter("rehashed", 1);
            }
            block.copies[tier] = if self.is_set { 1 } else { block.copies[tier] + 1 };
            self.counts.placed += 1;
        }
    }

    pub(super) fn store_by_hash(&mut self, rank: u32, names: &[u64], tier: usize) {
        let blocks = self.ranks.entry(rank).or_default();
        if names.is_empty() {
            return self.counts.filter("no_hashes", 1);
        }
        for name in names {
            match blocks.get_mut(name) {
                None => self.counts.filter("unresolved_hash", 1),
                Some(block) => {
                    block.copies[tier] = if self.is_set { 1 } else { block.copies[tier] + 1 };
                    self.counts.placed += 1;
                }
            }
        }
    }

    pub(super) fn remove(&mut self, rank: u32, names: &[u64], tier: usize) {
        let blocks = self.ranks.entry(rank).or_default();
        for name in names {
            let Some(block) = blocks.get_mut(name).filter(|block| block.copies[tier] > 0) else {
                self.counts.filter("unknown_block", 1);
                continue;
            };
            block.copies[tier] -= 1;
            self.counts.removed += 1;
            if block.copies == [0; 4] {
                blocks.remove(name);
            }
        }
    }

    pub(super) fn clear(&mut self, rank: u32) {
        self.ranks.entry(rank).or_default().clear();
    }

    /// One of the names a rank holds.
    pub(super) fn held_name(&self, rank: u32, place: usize) -> Option<u64> {
        let blocks = self.ranks.get(&rank).filter(|blocks| !blocks.is_empty())?;
        blocks.keys().nth(place % blocks.len()).copied()
    }

    pub(super) fn node(&self, rank: u32, name: u64) -> Option<Node> {
        Some(self.ranks.get(&rank)?.get(&name)?.node)
    }

    /// How much of a prompt each rank holds.
    pub(super) fn depths(&self, prompt: &[Node]) -> Vec<(u32, Depths)> {
        let of_rank = |(&rank, blocks): (&u32, &BTreeMap<u64, Block>)| {
            let depths = [0, 1, 2, 3].map(|tier| {
                let is_held = |block: &&Block| block.copies[..=tier].iter().any(|&copies| copies > 0);
                let held: HashSet<Node> = blocks.values().filter(is_held).map(|block| block.node).collect();
                let depth = prompt.iter().take_while(|node| held.contains(node)).count();
                u32::try_from(depth).expect("short")
            });
            (rank, depths)
        };
        self.ranks.iter().map(of_rank).collect()
    }

    fn live(&self) -> impl Iterator<Item = (u32, u8, u64)> {
        self.ranks.iter().flat_map(|(&rank, blocks)| {
            blocks.iter().flat_map(move |(&name, block)| {
                (0..4_u8)
                    .filter(|&tier| block.copies[usize::from(tier)] > 0)
                    .map(move |tier| (rank, tier, name))
            })
        })
    }

    pub(super) fn entries(&self) -> usize {
        self.live().count()
    }

    pub(super) fn digest(&self, worker_id: u64) -> u64 {
        let term = |(rank, tier, name): (u32, u8, u64)| {
            let bytes =
                [&worker_id.to_le_bytes()[..], &rank.to_le_bytes(), &[tier], &name.to_le_bytes()].concat();
            xxh3_64(&bytes)
        };
        self.live().map(term).fold(0, u64::wrapping_add)
    }
}
