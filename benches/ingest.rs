//! Time of payload → visible in the index: decoding, policy, chains, channels and two shards, per named case and over the
//! captures.

#[allow(dead_code, reason = "tests use the rest")]
#[path = "../tests/support/captures.rs"]
mod captures;
#[allow(dead_code, reason = "tests use the rest")]
#[path = "../tests/support/kvcap.rs"]
mod kvcap;
mod support;
#[path = "support/timing.rs"]
mod timing;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use kvtap::{Config, Engine, Ingest, SourceConfig};
use support::cases::{self, Content};
use support::payload::payloads;

/// Tokens of a case's payloads together. An iteration starts with an empty index.
const TOKENS: usize = 300_000;

/// The worker whose blocks the sidecars' digests are of.
const WORKER: u64 = 0;

/// An engine with a fixed seed, and a write side of it.
fn fresh(source: &SourceConfig) -> (Engine, Ingest) {
    let mut config = Config::default();
    config.hash_seed = Some(1);
    let engine = Engine::new(config).expect("a valid engine");
    let ingest = engine.ingest(source.clone()).expect("a valid source");
    (engine, ingest)
}

/// Applies everything and waits until it is visible. Gives both back, so that taking them down is not timed.
fn apply<'p>(
    (engine, mut ingest): (Engine, Ingest),
    payloads: impl IntoIterator<Item = &'p Vec<u8>>,
) -> (Engine, Ingest) {
    for payload in payloads {
        // Captures hold broken payloads on purpose; they are counted.
        let _ = ingest.apply(payload);
    }
    ingest.flush();
    (engine, ingest)
}

fn named_cases(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("ingest");
    // Removals alone would find nothing to remove.
    for case in cases::all().filter(|case| case.content != Content::Removed && !case.is_split()) {
        let payloads = payloads(&case, TOKENS);
        let bytes: usize = payloads.iter().map(|payload| payload.bytes.len()).sum();
        let placed: usize = payloads.iter().map(|payload| payload.records.len()).sum();
        let mut source = SourceConfig::new(7);
        source.block_size = u32::try_from(case.block_size).expect("a small block");
        let run = |fresh| apply(fresh, payloads.iter().map(|payload| &payload.bytes));
        let (_, ingest) = run(fresh(&source));
        assert_eq!(ingest.counters().placed_blocks, placed as u64, "{}", case.name);
        assert_eq!(ingest.entries(), placed, "{}", case.name);
        group.throughput(Throughput::Bytes(bytes as u64));
        group.bench_function(&case.name, |bencher| {
            bencher.iter_batched(|| fresh(&source), run, BatchSize::PerIteration);
        });
    }
}

fn captured(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("ingest corpus");
    for capture in captures::large() {
        let payloads = capture.payloads();
        let bytes: usize = payloads.iter().map(Vec::len).sum();
        let mut source = SourceConfig::new(WORKER);
        source.block_size = capture.block_size;
        let (_, ingest) = apply(fresh(&source), &payloads);
        let expected = &capture.sidecar["expected"];
        assert_eq!(Some(ingest.entries() as u64), expected["index"]["entries"].as_u64(), "{}", capture.name);
        assert_eq!(
            Some(&*format!("{:016x}", ingest.digest())),
            expected["digest"].as_str(),
            "{}",
            capture.name
        );
        group.throughput(Throughput::Bytes(bytes as u64));
        group.bench_function(&capture.name, |bencher| {
            bencher.iter_batched(|| fresh(&source), |fresh| apply(fresh, &payloads), BatchSize::PerIteration);
        });
    }
}

criterion_group! {
    name = benches;
    config = timing::brief();
    targets = named_cases, captured
}
criterion_main!(benches);
