//! What a listener must hold, block by block, so that prompts can be asked whose answers are known. Plain maps.

use std::collections::HashMap;
use std::sync::Arc;

use kvtap::EngineHash;
use kvtap::mock::{Event, Group, Identity, Stored};
use serde::{Deserialize, Serialize};

/// A prompt, and what its engine's worker must answer: depths at the device, with the host, with the disk, with all.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Sample {
    pub(super) tokens: Vec<u32>,
    pub(super) lora: Option<String>,
    pub(super) salt: Option<String>,
    pub(super) depths: [u32; 4],
}

/// The main group's blocks of one engine.
pub(super) struct Model {
    block_size: u32,
    blocks: HashMap<EngineHash, Block>,
}

struct Block {
    /// By tier.
    copies: [u64; 4],
    parent: Option<EngineHash>,
    tokens: Vec<u32>,
    identity: Arc<Identity>,
}

impl Model {
    pub(super) fn new(block_size: u32) -> Self {
        Self { block_size, blocks: HashMap::new() }
    }

    pub(super) fn clear(&mut self) {
        self.blocks.clear();
    }

    pub(super) fn apply(&mut self, events: &[Event]) {
        for event in events {
            match event {
                Event::Stored(stored) if stored.group.index == Group::MAIN.index => self.store(stored),
                Event::Removed(removed) if removed.group_idx == Group::MAIN.index => {
                    let tier = removed.medium.tier() as usize;
                    removed.block_hashes.iter().for_each(|hash| self.remove(*hash, tier));
                }
                Event::Stored(_) | Event::Removed(_) => {}
                Event::Cleared => self.clear(),
            }
        }
    }

    fn store(&mut self, stored: &Stored) {
        let tier = stored.medium.tier() as usize;
        if tier > 0 && stored.token_ids.is_empty() {
            for hash in &stored.block_hashes {
                if let Some(block) = self.blocks.get_mut(hash) {
                    block.copies[tier] += 1;
                }
            }
            return;
        }
        let is_known = stored.parent.is_none_or(|parent| self.blocks.contains_key(&parent));
        if stored.block_size != self.block_size || !is_known {
            return;
        }
        let mut parent = stored.parent;
        let tokens = stored.token_ids.chunks_exact(self.block_size as usize);
        for (hash, tokens) in stored.block_hashes.iter().zip(tokens) {
            let block = self.blocks.entry(*hash).or_insert_with(|| Block {
                copies: [0; 4],
                parent,
                tokens: tokens.to_vec(),
                identity: Arc::clone(&stored.identity),
            });
            block.copies[tier] += 1;
            parent = Some(*hash);
        }
    }

    fn remove(&mut self, hash: EngineHash, tier: usize) {
        let Some(block) = self.blocks.get_mut(&hash) else { return };
        block.copies[tier] = block.copies[tier].saturating_sub(1);
        if block.copies == [0; 4] {
            self.blocks.remove(&hash);
        }
    }

    /// Some prompts, each up to a block that is held, and a block beyond it that nobody has.
    pub(super) fn samples(&self, count: usize) -> Vec<Sample> {
        // A hash map's order is random enough.
        let step = (self.blocks.len() / count.max(1)).max(1);
        self.blocks.keys().step_by(step).filter_map(|&hash| self.sample(hash)).collect()
    }

    /// `None` if a block before it is gone: then nobody knows its tokens any more.
    fn sample(&self, hash: EngineHash) -> Option<Sample> {
        let mut chain = vec![self.blocks.get(&hash)?];
        while let Some(parent) = chain.last()?.parent {
            chain.push(self.blocks.get(&parent)?);
        }
        chain.reverse();
        let mut tokens: Vec<u32> = chain.iter().flat_map(|block| block.tokens.iter().copied()).collect();
        tokens.extend((0..self.block_size).map(|token| u32::MAX - token));
        let depths = [1, 2, 3, 4].map(|tiers| {
            let is_held = |block: &&&Block| block.copies[..tiers].iter().any(|&copies| copies > 0);
            u32::try_from(chain.iter().take_while(is_held).count()).unwrap_or(u32::MAX)
        });
        let identity = &chain[0].identity;
        let lora = identity.lora.as_ref().map(|lora| lora.name.clone());
        Some(Sample { tokens, lora, salt: identity.cache_salt.clone(), depths })
    }
}
