//! Seeds for every target, from the captures and the tests' generator. Small inputs only: fuzzers like those best.

use std::collections::BTreeMap;

use crate::support::captures;
use crate::support::generate::{self, StreamOptions};
use crate::{payload, support};

/// Longest seed.
const SEED_MAX: usize = 3000;

/// Inputs by target and name.
#[must_use]
pub fn all() -> BTreeMap<(&'static str, String), Vec<u8>> {
    let mut seeds = BTreeMap::new();
    for capture in captures::all() {
        let payloads = capture.payloads();
        let setup = payload::setup(capture.block_size.into());
        // The beginning, and what is told there for the first time.
        seeds.insert(("payload", capture.name.clone()), payload::join(setup, &payloads, SEED_MAX));
        if let Some(first) = payloads.iter().find(|payload| payload.len() <= SEED_MAX) {
            seeds.insert(("simd", capture.name.clone()), [&[0], &first[..]].concat());
        }
    }
    for seed in 0..24_u64 {
        let options = StreamOptions { digest_high: seed % 3 == 0, batches: 12, ..StreamOptions::default() };
        let setup = if options.digest_high { 8 } else { 0 };
        let stream = generate::stream(seed, &options);
        seeds.insert(("payload", format!("generated-{seed:02}")), payload::join(setup, &stream, SEED_MAX));
    }
    for (name, bytes) in arrays() {
        for shape in [1, 2, 3] {
            seeds.insert(("simd", format!("{name}-{shape}")), [&[shape | 8], &bytes[..]].concat());
        }
    }
    for capture in captures::all() {
        let bytes = std::fs::read(&capture.path).expect("a capture");
        if bytes.len() <= SEED_MAX {
            seeds.insert(("capture", capture.name), bytes);
        }
    }
    seeds.insert(("capture", "empty".to_owned()), b"KVCAP\0\x01\n".to_vec());
    let mut choices = support::pack::Choices::new(5);
    for seed in 0..16 {
        // Any bytes are a history, and so are they for the numbers of a source, for requests, and for dumps.
        seeds.insert(("index", format!("random-{seed:02}")), choices.bytes(3 + (256 << (seed % 4))));
        seeds.insert(("sequence", format!("random-{seed:02}")), choices.bytes(1 + (64 << (seed % 4))));
        seeds.insert(("http", format!("random-{seed:02}")), choices.bytes(32 << (seed % 4)));
        seeds.insert(("dump", format!("random-{seed:02}")), choices.bytes(64 << (seed % 4)));
        // Without changes.
        let plain = [&[0, 0, 0, 1, 0, 4, 0x2f], &choices.bytes(96)[..]].concat();
        seeds.insert(("dump", format!("plain-{seed:02}")), plain);
    }
    for route in 0..12 {
        // As the route takes it; then with a field less, and with bytes that are none of JSON.
        for (name, changes) in [("plain", &[][..]), ("less", &[2, 220, 0]), ("damaged", &[128, 246, 0])] {
            let changed = u8::try_from(changes.len() / 3).expect("few");
            let head = [route, 0, 0, 200, 0, 0, 18, 1, changed, 0];
            seeds.insert(("http", format!("route-{route:02}-{name}")), [&head, changes].concat());
        }
    }
    seeds
}

/// Arrays of one width, long enough for a vector and more; and of all of them.
fn arrays() -> Vec<(&'static str, Vec<u8>)> {
    let of = |heads: &[&[u8]]| {
        let elements = (0..40_u8).flat_map(|at| {
            let head = heads[usize::from(at) % heads.len()];
            let width = match head.first() {
                Some(0xcc | 0xd0) => 1,
                Some(0xcd | 0xd1) => 2,
                Some(0xce | 0xd2) => 4,
                Some(0xcf | 0xd3) => 8,
                _ => 0,
            };
            let body: Vec<u8> =
                (0..width).map(|byte: u8| at.wrapping_mul(37).wrapping_add(byte.wrapping_mul(91))).collect();
            [head, &body[..], if head.is_empty() { std::slice::from_ref(&0x2a) } else { &[] }].concat()
        });
        elements.collect::<Vec<u8>>()
    };
    vec![
        ("fixints", of(&[b""])),
        ("width-1", of(&[b"\xcc"])),
        ("width-2", of(&[b"\xcd"])),
        ("width-4", of(&[b"\xce"])),
        ("width-8", of(&[b"\xcf"])),
        ("signed-8", of(&[b"\xd3"])),
        ("mixed", of(&[b"", b"\xcd", b"\xce", b"\xcc", b"\xcd"])),
        ("mixed-signed", of(&[b"\xd3", b"\xcf", b"\xd0", b"\xd1", b"\xd2", b""])),
    ]
}
