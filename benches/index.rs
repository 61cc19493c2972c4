//! Time of the index by itself, one shard: queries by depth and number of holders; storing, removing and clearing until it is
//! visible.

#[path = "support/filled.rs"]
mod filled;
#[path = "support/timing.rs"]
mod timing;

use std::hint::black_box;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use filled::{Blocks, empty, held, store, worker};
use kvtap::{Engine, Ingest, Wanted};

/// Prompts that take turns, so that not one alone stays in the cache.
const PROMPTS: u64 = 256;
/// Blocks of a worker that stores, evicts and clears.
const DEPTH: usize = 512;

fn query(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("index query");
    for depth in [16, 256, 2048] {
        for holders in [1, 8, 64] {
            let (engine, mut ingest) = empty();
            let prompts = held(&mut ingest, PROMPTS, depth, holders);
            let mut reader = engine.reader();
            let mut matches = Vec::new();
            reader.find_local_matches(&prompts[0].local_hashes, &mut matches);
            let deepest = matches.iter().map(|found| found.depths[0] as usize).max();
            assert_eq!((matches.len(), deepest), (holders as usize, Some(depth)));
            let mut prompts = prompts.iter().cycle();
            group.throughput(Throughput::Elements(depth as u64));
            group.bench_function(format!("d{depth}-h{holders}"), |bencher| {
                bencher.iter(|| {
                    let prompt = prompts.next().expect("prompts");
                    reader.for_each_match(&prompt.local_hashes, Wanted::default(), |found| {
                        black_box(found);
                    });
                });
            });
        }
    }
}

/// An index in which each of the workers may hold one prompt.
struct Filled {
    engine: Engine,
    ingest: Ingest,
}

impl Filled {
    fn new(prompts: &[Blocks]) -> Self {
        let (engine, ingest) = empty();
        Self { engine, ingest }.each(prompts, |ingest, number, prompt| {
            store(ingest, worker(number), prompt, DEPTH);
        })
    }

    /// Gives it back, so that taking it down is not timed.
    fn each(mut self, prompts: &[Blocks], apply: impl Fn(&mut Ingest, u32, &Blocks)) -> Self {
        for (number, prompt) in (0..).zip(prompts) {
            apply(&mut self.ingest, number, prompt);
            self.ingest.feed_sent();
        }
        self.ingest.flush();
        self
    }

    /// Workers that hold a part of this.
    fn holders(&self, prompt: &Blocks) -> usize {
        let mut matches = Vec::new();
        self.engine.reader().find_local_matches(&prompt.local_hashes, &mut matches);
        matches.len()
    }
}

fn ingest(criterion: &mut Criterion) {
    let prompts: Vec<_> = (0..PROMPTS).map(|seed| Blocks::new(seed, DEPTH)).collect();
    let mut group = criterion.benchmark_group("index ingest");
    group.throughput(Throughput::Elements(PROMPTS * DEPTH as u64));
    let remove = |ingest: &mut Ingest, number: u32, prompt: &Blocks| {
        // Leaves first, one per event.
        for hash in prompt.engine_hashes.rchunks(1) {
            ingest.feed_removed(worker(number), hash);
        }
    };
    let clear = |ingest: &mut Ingest, number: u32, _: &Blocks| ingest.feed_cleared(worker(number));
    assert_eq!(Filled::new(&prompts).holders(&prompts[9]), 1);
    assert_eq!(Filled::new(&prompts).each(&prompts, remove).holders(&prompts[9]), 0);
    assert_eq!(Filled::new(&prompts).each(&prompts, clear).holders(&prompts[9]), 0);
    group.bench_function("store", |bencher| {
        let run = |filled: Filled| {
            filled.each(&prompts, |ingest, number, prompt| store(ingest, worker(number), prompt, DEPTH))
        };
        bencher.iter_batched(|| Filled::new(&[]), run, BatchSize::PerIteration);
    });
    group.bench_function("remove", |bencher| {
        let run = |filled: Filled| filled.each(&prompts, remove);
        bencher.iter_batched(|| Filled::new(&prompts), run, BatchSize::PerIteration);
    });
    group.bench_function("clear", |bencher| {
        let run = |filled: Filled| filled.each(&prompts, clear);
        bencher.iter_batched(|| Filled::new(&prompts), run, BatchSize::PerIteration);
    });
    // One prompt of all workers, of which each gives up every other block.
    let shared = vec![Blocks::new(0, DEPTH); prompts.len()];
    group.throughput(Throughput::Elements(PROMPTS * DEPTH as u64 / 2));
    group.bench_function("pieces", |bencher| {
        let run = |filled: Filled| {
            filled.each(&shared, |ingest, number, prompt| {
                for hash in prompt.engine_hashes.iter().skip(1).step_by(2) {
                    ingest.feed_removed(worker(number), &[*hash]);
                }
            })
        };
        bencher.iter_batched(|| Filled::new(&shared), run, BatchSize::PerIteration);
    });
}

criterion_group! {
    name = benches;
    config = timing::brief();
    targets = query, ingest
}
criterion_main!(benches);
