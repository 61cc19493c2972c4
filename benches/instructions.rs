//! Instructions per named case, under valgrind: exact enough to see 1 %, on any machine. Setup is not counted.
//!
//! Valgrind 3.19 cannot run AVX-512, so the levels below it are forced. `perf` holds the baseline and compares with it.
#![expect(missing_docs, unused_qualifications, reason = "of what the macros make")]

mod support;

use std::hint::black_box;

use iai_callgrind::{library_benchmark, library_benchmark_group, main};
use support::cases;
use support::decoder::{Decoder, source};
use support::payload::{Payload, Record, payloads};

/// Tokens of a case's payloads together: enough for a mean, little enough for valgrind.
const TOKENS: usize = 16_384;

struct Prepared {
    decoder: Decoder,
    payloads: Vec<Payload>,
    records: Vec<Record>,
}

/// Decodes everything once, so that buffers have grown, and checks it.
fn prepare(name: &str, level: &str) -> Prepared {
    let case = cases::named(name);
    let mut decoder = Decoder::new(source(&case, level));
    let payloads = payloads(&case, TOKENS);
    let mut records = Vec::new();
    for payload in &payloads {
        records.clear();
        decoder.decode(&payload.bytes, &mut records);
        assert!(records == payload.records, "{name} decodes to wrong records");
    }
    Prepared { decoder, payloads, records }
}

fn scalar(name: String) -> Prepared {
    prepare(&name, "scalar")
}

fn ssse3(name: String) -> Prepared {
    prepare(&name, "ssse3")
}

// Gives everything back, so that freeing it is not counted.
#[library_benchmark]
#[benches::scalar(file = "benches/support/cases.txt", setup = scalar)]
#[benches::ssse3(file = "benches/support/cases.txt", setup = ssse3)]
fn decode(prepared: Prepared) -> Prepared {
    let Prepared { mut decoder, payloads, mut records } = prepared;
    for payload in &payloads {
        records.clear();
        decoder.decode(black_box(&payload.bytes), &mut records);
        black_box(&records);
    }
    Prepared { decoder, payloads, records }
}

library_benchmark_group!(name = instructions; benchmarks = decode);
main!(library_benchmark_groups = instructions);
