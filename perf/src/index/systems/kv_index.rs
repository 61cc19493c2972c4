//! The crate `kv-index`, with answers through its callback. The thread that applies owns a map per worker.

use std::sync::Mutex;

use kv_index::{ChainBlockMap, ChainIndex, ContentHash, SequenceHash, StoredBlock};

use super::{Answer, Ask, System, beside, read, sorted};
use crate::index::workload::{Block, Event, Kind, Trace};

pub(crate) struct Chains {
    index: ChainIndex,
    /// Its numbers of our workers.
    workers: Vec<u32>,
    maps: Mutex<Vec<ChainBlockMap>>,
}

impl Chains {
    pub(crate) fn new(workers: usize) -> Self {
        let index = ChainIndex::with_max_workers(workers.next_multiple_of(64));
        let intern = |worker: usize| index.intern_worker(&worker.to_string()).expect("room");
        let workers: Vec<_> = (0..workers).map(intern).collect();
        let maps = Mutex::new(workers.iter().map(|_| ChainBlockMap::new()).collect());
        Self { index, workers, maps }
    }
}

pub(crate) enum ChainEvent {
    Store(u32, Option<SequenceHash>, Vec<StoredBlock>),
    Remove(u32, Vec<SequenceHash>),
    Clear(u32),
}

impl System for Chains {
    type Events = Vec<ChainEvent>;
    type Asker<'a> = ChainsAsker<'a>;

    fn events(&self, trace: &Trace, events: &[Event]) -> Self::Events {
        let stored = |block: &Block| StoredBlock {
            seq_hash: SequenceHash(block.engine_hash),
            content_hash: ContentHash(block.local_hash),
        };
        let convert = |event: &Event| {
            let blocks = trace.blocks_of(event).iter();
            match event.kind {
                Kind::Store { parent } => {
                    let parent = parent.map(SequenceHash);
                    ChainEvent::Store(event.worker, parent, blocks.map(stored).collect())
                }
                Kind::Remove => {
                    let hashes = blocks.map(|block| SequenceHash(block.engine_hash));
                    ChainEvent::Remove(event.worker, hashes.collect())
                }
                Kind::Clear => ChainEvent::Clear(event.worker),
            }
        };
        events.iter().map(convert).collect()
    }

    fn apply(&self, events: Self::Events) {
        let (index, maps) = (&self.index, &mut *self.maps.lock().expect("not poisoned"));
        let id = |worker: u32| self.workers[worker as usize];
        for event in events {
            match event {
                ChainEvent::Store(worker, parent, blocks) => {
                    let map = &mut maps[worker as usize];
                    index.apply_stored(id(worker), &blocks, parent, map).expect("accepted");
                }
                ChainEvent::Remove(worker, hashes) => {
                    index.apply_removed(id(worker), &hashes, &mut maps[worker as usize]);
                }
                ChainEvent::Clear(worker) => index.apply_cleared(id(worker), &mut maps[worker as usize]),
            }
        }
    }

    fn apply_beside(&self, events: Self::Events, ask: &mut dyn FnMut()) {
        beside(self, events, ask);
    }

    fn read(&self, prompts: &[Vec<u64>], threads: usize) -> Option<f64> {
        Some(read(self, prompts, threads))
    }

    fn asker(&self) -> ChainsAsker<'_> {
        ChainsAsker { chains: self, prompt: Vec::new(), found: Vec::with_capacity(1024) }
    }
}

pub(crate) struct ChainsAsker<'a> {
    chains: &'a Chains,
    prompt: Vec<u64>,
    found: Answer,
}

impl Ask for ChainsAsker<'_> {
    fn prepare(&mut self, prompt: &[u64]) {
        self.prompt.clear();
        self.prompt.extend_from_slice(prompt);
    }

    fn ask(&mut self) {
        let found = &mut self.found;
        found.clear();
        self.chains.index.score_into(
            &self.prompt,
            |&local_hash| local_hash,
            false,
            |worker, depth| found.push((worker, depth)),
        );
    }

    fn answer(&self) -> Answer {
        let number = |id: u32| self.chains.workers.iter().position(|&known| known == id).expect("known");
        sorted(self.found.iter().map(|&(worker, depth)| (number(worker) as u32, depth)))
    }
}
