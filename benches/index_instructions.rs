//! Instructions of the index, under valgrind, on the thread that calls: queries, and what `Ingest` does before records are sent.
//! What shards do is not counted: when they run is left to chance.
#![expect(missing_docs, unused_qualifications, reason = "of what the macros make")]

#[path = "support/filled.rs"]
mod filled;

use std::hint::black_box;

use filled::{Blocks, empty, held, store, worker};
use iai_callgrind::{library_benchmark, library_benchmark_group, main};
use kvtap::{Engine, Ingest, Reader, Wanted};

const PROMPTS: u64 = 4;
/// Blocks stored and removed: their records fit into one batch, which stays unsent.
const BLOCKS: usize = 64;
/// Seed of blocks that no prompt has.
const OTHER: u64 = 1 << 20;

struct Asking {
    reader: Reader,
    prompts: Vec<Blocks>,
    _ingest: Ingest,
}

/// The number after a letter in a name such as `index-d16-h64`.
fn number(name: &str, letter: char) -> usize {
    let part = name.split('-').find_map(|part| part.strip_prefix(letter)?.parse().ok());
    part.unwrap_or_else(|| panic!("{name}: no {letter}"))
}

/// Asks once, so that buffers have grown.
fn query(name: &str) -> Asking {
    let (engine, mut ingest) = empty();
    let holders = u32::try_from(number(name, 'h')).expect("few holders");
    let prompts = held(&mut ingest, PROMPTS, number(name, 'd'), holders);
    let mut asking = Asking { reader: engine.reader(), prompts, _ingest: ingest };
    assert_eq!(asking.ask(), PROMPTS * u64::from(holders));
    asking
}

impl Asking {
    fn ask(&mut self) -> u64 {
        let mut found = 0;
        for prompt in &self.prompts {
            self.reader.for_each_match(black_box(&prompt.local_hashes), Wanted::default(), |one| {
                black_box(one);
                found += 1;
            });
        }
        found
    }
}

// Gives everything back, so that freeing it is not counted.
#[library_benchmark]
#[benches::query(
    args = ["index-d16-h1", "index-d16-h64", "index-d256-h1", "index-d256-h64", "index-d2048-h1", "index-d2048-h64"],
    setup = query
)]
fn find(mut asking: Asking) -> Asking {
    black_box(asking.ask());
    asking
}

struct Feeding {
    ingest: Ingest,
    blocks: Blocks,
    blocks_per_event: usize,
    _engine: Engine,
}

/// A worker that holds something already, and another.
fn ingest(name: &str) -> Feeding {
    let (engine, mut ingest) = empty();
    for seed in 0..PROMPTS {
        store(&mut ingest, worker(0), &Blocks::new(seed, 1000), 1000);
    }
    store(&mut ingest, worker(1), &Blocks::new(0, 1), 1);
    let blocks = Blocks::new(OTHER, BLOCKS);
    let mut feeding = Feeding { ingest, blocks, blocks_per_event: number(name, 'b'), _engine: engine };
    // Tables have grown then.
    feeding.feed();
    feeding.ingest.feed_sent();
    feeding.ingest.flush();
    feeding
}

impl Feeding {
    fn feed(&mut self) {
        let Self { ingest, blocks: Blocks { engine_hashes, local_hashes }, blocks_per_event, .. } = self;
        let mut parent = None;
        let events = engine_hashes.chunks(*blocks_per_event).zip(local_hashes.chunks(*blocks_per_event));
        for (engine_hashes, local_hashes) in events {
            let stored = ingest.feed_stored(worker(0), parent, engine_hashes, local_hashes);
            assert!(stored, "parents are known");
            parent = engine_hashes.last().copied();
        }
        for hash in engine_hashes.rchunks(1) {
            ingest.feed_removed(worker(0), hash);
        }
        // Removals wait until another worker's events come.
        ingest.feed_removed(worker(1), &[]);
    }
}

#[library_benchmark]
#[benches::ingest(args = ["index-b1", "index-b64"], setup = ingest)]
fn feed(mut feeding: Feeding) -> Feeding {
    feeding.feed();
    feeding
}

library_benchmark_group!(name = instructions; benchmarks = find, feed);
main!(library_benchmark_groups = instructions);
