//! An index that is filled without payloads, the same in every run. Only with the feature `bench`, so no part of `mod.rs`.

use kvtap::{Config, Engine, EngineHash, Ingest, LocalHash, SourceConfig, Worker};

/// The blocks of a prompt.
#[derive(Clone, Debug)]
pub(crate) struct Blocks {
    pub(crate) engine_hashes: Vec<EngineHash>,
    pub(crate) local_hashes: Vec<LocalHash>,
}

impl Blocks {
    /// Different ones for each seed.
    pub(crate) fn new(seed: u64, count: usize) -> Self {
        let hash = |at: usize| mix(mix(seed) ^ at as u64);
        Self {
            engine_hashes: (0..count).map(|at| EngineHash(hash(2 * at))).collect(),
            local_hashes: (0..count).map(|at| LocalHash(hash(2 * at + 1))).collect(),
        }
    }
}

/// SplitMix64.
fn mix(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

pub(crate) const fn worker(number: u32) -> Worker {
    Worker { worker_id: 7, dp_rank: number }
}

/// One shard, hashes of a fixed seed.
pub(crate) fn empty() -> (Engine, Ingest) {
    let mut config = Config::default();
    config.shards = 1;
    config.hash_seed = Some(1);
    let engine = Engine::new(config).expect("a valid engine");
    let ingest = engine.ingest(SourceConfig::new(7)).expect("a valid source");
    (engine, ingest)
}

/// Stores the first blocks of a prompt in one event.
pub(crate) fn store(ingest: &mut Ingest, worker: Worker, blocks: &Blocks, count: usize) {
    let stored =
        ingest.feed_stored(worker, None, &blocks.engine_hashes[..count], &blocks.local_hashes[..count]);
    assert!(stored, "nothing before the first block");
}

/// Prompts of so many blocks, each with so many holders: the first has all of it, the others less and less, down to a half.
pub(crate) fn held(ingest: &mut Ingest, prompts: u64, depth: usize, holders: u32) -> Vec<Blocks> {
    let prompts: Vec<_> = (0..prompts).map(|seed| Blocks::new(seed, depth)).collect();
    for prompt in &prompts {
        for number in 0..holders {
            let less = depth * number as usize / (2 * holders as usize);
            store(ingest, worker(number), prompt, depth - less);
            ingest.feed_sent();
        }
    }
    ingest.flush();
    prompts
}
