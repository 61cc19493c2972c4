//! What every worker holds, as one flat map, and answers by looking at all of it.

use std::collections::{BTreeMap, BTreeSet};

use super::Copies;
use super::hashes::digest_share;

/// The tiers in the order of the answer, nearest first.
pub(crate) const TIERS: [&str; 4] = ["device", "host_pinned", "disk", "external"];

/// Worker, rank, tier, engine hash.
type Key = (u64, u32, u8, u64);

/// One block at one tier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) prefix_hash: u64,
    pub(crate) copies: u64,
    /// The namespace it was placed under; the same at every tier of one engine hash.
    pub(crate) cache_salt: Option<String>,
    /// Placed under two namespaces since it entered.
    pub(crate) ambiguous: bool,
}

/// How much of a prompt one worker holds, in blocks, tiers added up from the nearest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Match {
    pub(crate) worker_id: u64,
    pub(crate) dp_rank: u32,
    pub(crate) device: usize,
    pub(crate) host_pinned: usize,
    pub(crate) disk: usize,
    pub(crate) external: usize,
}

/// All live blocks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Index {
    entries: BTreeMap<Key, Entry>,
}

impl Index {
    /// The block under this engine hash, at whichever tier it is.
    pub(crate) fn find(&self, worker_id: u64, dp_rank: u32, engine_hash: u64) -> Option<&Entry> {
        (0..4).find_map(|tier| self.entries.get(&(worker_id, dp_rank, tier, engine_hash)))
    }

    /// Places one copy. True if the engine hash stood for another prefix before.
    pub(crate) fn store(&mut self, key: Key, placed: (u64, Option<String>), copies: Copies) -> bool {
        let (worker_id, dp_rank, tier, engine_hash) = key;
        let (prefix_hash, cache_salt) = placed;
        let known = self.find(worker_id, dp_rank, engine_hash).cloned();
        let ambiguous = known.as_ref().is_some_and(|known| known.ambiguous || known.cache_salt != cache_salt);
        let rehashed = known.is_some_and(|known| known.prefix_hash != prefix_hash);
        for tier in 0..4 {
            let key = (worker_id, dp_rank, tier, engine_hash);
            if rehashed {
                self.entries.remove(&key);
            } else if let Some(entry) = self.entries.get_mut(&key) {
                entry.cache_salt.clone_from(&cache_salt);
                entry.ambiguous = ambiguous;
            }
        }
        let fresh = Entry { prefix_hash, copies: 0, cache_salt, ambiguous };
        let entry = self.entries.entry((worker_id, dp_rank, tier, engine_hash)).or_insert(fresh);
        entry.copies = match copies {
            Copies::Count => entry.copies + 1,
            Copies::Set => 1,
        };
        rehashed
    }

    /// Takes one copy away; its prefix hash, or nothing if it was not at that tier.
    pub(crate) fn remove(&mut self, key: Key) -> Option<u64> {
        let entry = self.entries.get_mut(&key)?;
        let prefix_hash = entry.prefix_hash;
        entry.copies -= 1;
        if entry.copies == 0 {
            self.entries.remove(&key);
        }
        Some(prefix_hash)
    }

    /// Forgets everything of one worker and rank.
    pub(crate) fn clear(&mut self, worker_id: u64, dp_rank: u32) {
        self.entries.retain(|key, _| (key.0, key.1) != (worker_id, dp_rank));
    }

    /// Live (worker, tier, engine hash) triples.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The order-free digest of the live triples.
    pub(crate) fn digest(&self) -> u64 {
        self.entries.keys().fold(0, |sum: u64, (worker_id, dp_rank, tier, engine_hash)| {
            sum.wrapping_add(digest_share(*worker_id, *dp_rank, *tier, *engine_hash))
        })
    }

    /// Every live prefix hash.
    pub(crate) fn prefixes(&self) -> BTreeSet<u64> {
        self.entries.values().map(|entry| entry.prefix_hash).collect()
    }

    /// How much of a chain each worker holds; workers without the first block are left out.
    pub(crate) fn query(&self, chain: &[u64]) -> Vec<Match> {
        let mut held: BTreeMap<(u64, u32), [BTreeSet<u64>; 4]> = BTreeMap::new();
        for ((worker_id, dp_rank, tier, _), entry) in &self.entries {
            let tiers = held.entry((*worker_id, *dp_rank)).or_default();
            for cumulative in &mut tiers[usize::from(*tier)..] {
                cumulative.insert(entry.prefix_hash);
            }
        }
        let depth = |set: &BTreeSet<u64>| chain.iter().take_while(|prefix| set.contains(prefix)).count();
        let mut matches = Vec::new();
        for ((worker_id, dp_rank), tiers) in &held {
            let [device, host_pinned, disk, external] = [0, 1, 2, 3].map(|tier| depth(&tiers[tier]));
            if external > 0 {
                let (worker_id, dp_rank) = (*worker_id, *dp_rank);
                matches.push(Match { worker_id, dp_rank, device, host_pinned, disk, external });
            }
        }
        matches
    }
}
