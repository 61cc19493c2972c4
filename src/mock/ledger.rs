//! What a listener must hold after it has seen some batches: plain maps, written from the contract alone. It knows no
//! tokens and no prefixes, since the simulated engine's hashes never lie.

use std::collections::HashMap;

use super::event::{Event, Group, Stored};
use crate::hash::digest_term;
use crate::ids::{EngineHash, Tier, Worker};

/// The blocks of one worker, by the events that reached its listener. Batches may be missing.
#[derive(Clone, Debug)]
pub struct Ledger {
    block_size: u32,
    /// Copies per tier; none are 0.
    copies: [HashMap<EngineHash, u64>; Tier::ALL.len()],
}

impl Ledger {
    /// Of a listener that expects blocks of this many tokens.
    #[must_use]
    pub fn new(block_size: u32) -> Self {
        Self { block_size, copies: Default::default() }
    }

    /// Takes one batch.
    pub fn apply(&mut self, events: &[Event]) {
        for event in events {
            match event {
                Event::Stored(stored) => self.store(stored),
                Event::Removed(removed) if removed.group_idx == Group::MAIN.index => {
                    let copies = &mut self.copies[removed.medium.tier().index()];
                    removed.block_hashes.iter().for_each(|hash| remove(copies, *hash));
                }
                Event::Removed(_) => {}
                Event::Cleared => self.clear(),
            }
        }
    }

    /// Forgets everything, as after a restart.
    pub fn clear(&mut self) {
        self.copies.iter_mut().for_each(HashMap::clear);
    }

    /// Blocks, once per tier.
    #[must_use]
    pub fn entries(&self) -> usize {
        self.copies.iter().map(HashMap::len).sum()
    }

    /// The digest of an index that holds the same under this worker.
    #[must_use]
    pub fn digest(&self, worker: Worker) -> u64 {
        let tiers = Tier::ALL.into_iter().zip(&self.copies);
        tiers
            .flat_map(|(tier, copies)| copies.keys().map(move |hash| digest_term(worker, tier, *hash)))
            .fold(0, u64::wrapping_add)
    }

    fn store(&mut self, stored: &Stored) {
        let tier = stored.medium.tier();
        let by_hash = tier != Tier::Device && stored.token_ids.is_empty();
        let is_whole =
            stored.block_size == self.block_size && stored.parent.is_none_or(|parent| self.knows(parent));
        if stored.group.index != Group::MAIN.index || !(by_hash || is_whole) {
            return;
        }
        for hash in &stored.block_hashes {
            if !by_hash || self.knows(*hash) {
                *self.copies[tier.index()].entry(*hash).or_default() += 1;
            }
        }
    }

    fn knows(&self, hash: EngineHash) -> bool {
        self.copies.iter().any(|copies| copies.contains_key(&hash))
    }
}

fn remove(copies: &mut HashMap<EngineHash, u64>, hash: EngineHash) {
    if let Some(count) = copies.get_mut(&hash) {
        *count -= 1;
        if *count == 0 {
            copies.remove(&hash);
        }
    }
}
