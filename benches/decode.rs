//! Time of payload → records per named case and SIMD level, and over the captures.

#[allow(dead_code, reason = "tests use the rest")]
#[path = "../tests/support/captures.rs"]
mod captures;
#[allow(dead_code, reason = "tests use the rest")]
#[path = "../tests/support/kvcap.rs"]
mod kvcap;
mod support;
#[path = "support/timing.rs"]
mod timing;

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use kvtap::SourceConfig;
use support::cases;
use support::decoder::{Decoder, levels, source};
use support::payload::{TOKENS, payloads};

/// One iteration is a whole rotation, so that no payload comes back before all others were there.
fn named_cases(criterion: &mut Criterion) {
    for case in cases::all() {
        let payloads = payloads(&case, TOKENS);
        let bytes: usize = payloads.iter().map(|payload| payload.bytes.len()).sum();
        let mut group = criterion.benchmark_group(&case.name);
        group.throughput(Throughput::Bytes(bytes as u64));
        for level in levels() {
            let mut decoder = Decoder::new(source(&case, level));
            let mut records = Vec::new();
            for payload in &payloads {
                records.clear();
                decoder.decode(&payload.bytes, &mut records);
                assert!(records == payload.records, "{} decodes to wrong records", case.name);
            }
            group.bench_function(level, |bencher| {
                bencher.iter(|| {
                    for payload in &payloads {
                        records.clear();
                        decoder.decode(&payload.bytes, &mut records);
                        black_box(&records);
                    }
                });
            });
        }
    }
}

/// Each capture above 200 kB, as its producer sent it.
fn captured(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("corpus");
    for capture in captures::large() {
        let payloads = capture.payloads();
        let bytes: usize = payloads.iter().map(Vec::len).sum();
        let mut source = SourceConfig::new(7);
        source.block_size = capture.block_size;
        let mut decoder = Decoder::new(source);
        let mut records = Vec::new();
        let mut decode = || {
            let mut sum = 0_usize;
            for payload in &payloads {
                records.clear();
                decoder.decode(payload, &mut records);
                sum += black_box(&records).len();
            }
            sum
        };
        assert!(decode() > 0, "{} has blocks", capture.name);
        group.throughput(Throughput::Bytes(bytes as u64));
        group.bench_function(&capture.name, |bencher| bencher.iter(&mut decode));
    }
}

criterion_group! {
    name = benches;
    config = timing::brief();
    targets = named_cases, captured
}
criterion_main!(benches);
