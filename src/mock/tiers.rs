//! Memory below the device, as an offload connector fills it: finished prompts are copied to host memory, what no longer
//! fits there goes to disk, and what no longer fits there is gone. Leaf first, like the pool.

use std::collections::{BTreeMap, HashMap};

use super::event::{Event, Group, Medium, Removed, Stored};
use crate::ids::EngineHash;

/// One memory: blocks by when they were last used.
#[derive(Debug)]
struct Memory {
    capacity: usize,
    used: HashMap<EngineHash, u64>,
    order: BTreeMap<u64, Stored>,
    clock: u64,
}

#[derive(Debug)]
pub(super) struct Tiers {
    host: Memory,
    disk: Memory,
}

impl Memory {
    fn new(capacity: usize) -> Self {
        Self { capacity, used: HashMap::new(), order: BTreeMap::new(), clock: 0 }
    }

    /// Makes a block the latest used; true if it is new here.
    fn keep(&mut self, hash: EngineHash, block: Stored) -> bool {
        let before = self.used.insert(hash, self.clock);
        if let Some(before) = before {
            self.order.remove(&before);
        }
        self.order.insert(self.clock, block);
        self.clock += 1;
        before.is_none()
    }

    /// Takes out what was used longest ago, until the rest fits.
    fn overflow(&mut self) -> Vec<(EngineHash, Stored)> {
        let mut out = Vec::new();
        while self.order.len() > self.capacity {
            let Some((_, block)) = self.order.pop_first() else { break };
            for hash in &block.block_hashes {
                self.used.remove(hash);
                out.push((*hash, block.clone()));
            }
        }
        out
    }

    fn clear(&mut self) {
        self.used.clear();
        self.order.clear();
    }
}

impl Tiers {
    /// Host memory for half as many blocks as the device has, disk for as many: little, so that short runs fill both.
    pub(super) fn new(device_blocks: usize) -> Self {
        Self { host: Memory::new(device_blocks / 2), disk: Memory::new(device_blocks) }
    }

    /// Copies the blocks of a prompt, each a store of its own, first block first.
    pub(super) fn offload(&mut self, prompt: Vec<Stored>, events: &mut Vec<Event>) {
        let mut new = Vec::new();
        // The last block is used first, so that it goes before those it needs.
        for block in prompt.into_iter().rev() {
            let Some(&hash) = block.block_hashes.first() else { continue };
            let block = Stored { medium: Medium::Cpu, ..block };
            if self.host.keep(hash, block.clone()) {
                new.push(Event::Stored(block));
            }
        }
        events.extend(new.into_iter().rev());
        let mut leaving = Vec::new();
        for (hash, block) in self.host.overflow() {
            leaving.push(hash);
            let block = Stored { medium: Medium::Disk, ..block };
            if self.disk.keep(hash, block.clone()) {
                events.push(Event::Stored(block));
            }
        }
        events.extend(removed(leaving, Medium::Cpu));
        let gone = self.disk.overflow().into_iter().map(|(hash, _)| hash).collect();
        events.extend(removed(gone, Medium::Disk));
    }

    pub(super) fn clear(&mut self) {
        self.host.clear();
        self.disk.clear();
    }

    pub(super) fn resident(&self) -> impl Iterator<Item = (Medium, EngineHash)> {
        let host = self.host.used.keys().map(|hash| (Medium::Cpu, *hash));
        host.chain(self.disk.used.keys().map(|hash| (Medium::Disk, *hash)))
    }
}

/// Connectors remove many blocks at once.
fn removed(block_hashes: Vec<EngineHash>, medium: Medium) -> Option<Event> {
    let event = Removed { block_hashes, medium, group_idx: Group::MAIN.index };
    (!event.block_hashes.is_empty()).then_some(Event::Removed(event))
}
