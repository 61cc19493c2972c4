//! In steady state a batch costs no heap allocation on the thread that handles it. A binary of its own, under an
//! allocator that counts per thread.

mod support;

#[path = "zero_alloc/traffic.rs"]
mod traffic;

use kvtap::wire::{Decoder, Event as WireEvent};
use kvtap::{DigestHalf, EngineHash, Normalizer, StoredBlocks, Tier, Visitor, Worker};
use support::allocations::{Counting, measure};
use support::captures;
use support::source::{Source, payload, store};
use traffic::traffics;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Decodes all of a payload, down to the last extra key; gives a sum over what it saw, so that nothing is left out.
fn decode(decoder: &mut Decoder, payload: &[u8]) -> u64 {
    let Ok(mut batch) = decoder.read(payload) else { return 1 };
    let mut sum = u64::from(batch.dp_rank().unwrap_or(7));
    let mut add = |number: u64| sum = sum.rotate_left(5) ^ number;
    while let Some(event) = batch.next_event() {
        match event {
            WireEvent::Stored(mut stored) => {
                stored.drift().for_each(|_| add(3));
                add(u64::from(stored.gate().is_ok()));
                let Ok(body) = stored.body() else { continue };
                body.block_hashes.iter().for_each(|hash| add(hash.0));
                body.token_ids.iter().for_each(|&token| add(u64::from(token)));
                body.extra_keys.for_each(|block, _| add(block as u64));
                if let Some(infos) = body.block_mm_infos {
                    infos.for_each(|_, hash| add(hash));
                }
            }
            WireEvent::Removed(mut removed) => {
                removed.drift().for_each(|_| add(4));
                add(u64::from(removed.gate().is_ok()));
                removed.block_hashes().into_iter().flatten().for_each(|hash| add(hash.0));
            }
            WireEvent::Cleared(cleared) => add(u64::from(cleared.ownership().is_ok())),
            WireEvent::Unknown(tag) => add(tag.len() as u64),
            WireEvent::Malformed(error) => add(u64::from(error.offset())),
            other => panic!("unknown event {other:?}"),
        }
    }
    sum
}

#[test]
fn the_counter_counts() {
    let (_, usage) = measure(|| std::hint::black_box(vec![0_u8; 1000]));
    assert_eq!((usage.allocations, usage.held_bytes, usage.held_bytes_max), (1, 1000, 1000));
    let (_, usage) = measure(|| drop(std::hint::black_box(vec![0_u8; 1000])));
    assert_eq!((usage.allocations, usage.held_bytes, usage.held_bytes_max), (1, 0, 1000));
    let (elsewhere, _) = measure(|| std::thread::spawn(|| std::hint::black_box(vec![0_u8; 1 << 20])));
    elsewhere.join().expect("no panic");
    let (_, usage) = measure(|| ());
    assert_eq!(usage.allocations, 0);
}

#[test]
fn decoding_a_capture_again_allocates_nothing() {
    for capture in captures::all() {
        let records = capture.records();
        let mut decoder = Decoder::new(DigestHalf::Low);
        let mut pass = || {
            let sums = records.iter().map(|record| decode(&mut decoder, &record.payload));
            sums.fold(0_u64, |sum, payload| sum.rotate_left(1) ^ payload)
        };
        let first = pass();
        pass();
        let (again, usage) = measure(pass);
        assert_eq!(again, first, "{}: the same is seen again", capture.name);
        assert_eq!(usage.allocations, 0, "{}", capture.name);
    }
}

/// Even a first payload costs only the growth of the decoder's own tables, however it is written.
#[test]
fn a_decoder_that_has_seen_a_large_batch_needs_nothing_for_small_ones() {
    let mut decoder = Decoder::new(DigestHalf::Low);
    let large: Vec<_> = (0..200).map(|at| store(&[at + 1], None, 1..=400).set("new_key", 1)).collect();
    decode(&mut decoder, &payload(large, 0));
    for traffic in traffics() {
        let (_, usage) = measure(|| {
            for payload in &traffic.payloads {
                std::hint::black_box(decode(&mut decoder, payload));
            }
        });
        assert_eq!(usage.allocations, 0, "{}", traffic.name);
    }
}

/// Applies a payload and waits until the shards have given its buffers back.
fn apply(source: &mut Source, payload: &[u8]) -> u64 {
    let (_, usage) = measure(|| source.ingest.apply(payload).is_ok());
    source.ingest.flush();
    usage.allocations
}

#[test]
fn applying_steady_traffic_allocates_nothing() {
    for traffic in traffics() {
        let mut source = Source::new();
        let mut round =
            || -> u64 { traffic.payloads.iter().map(|payload| apply(&mut source, payload)).sum() };
        assert!(round() > 0, "{}: the first time something has to grow", traffic.name);
        let _warm: u64 = (0..20).map(|_| round()).sum();
        let allocations: u64 = (0..20).map(|_| round()).sum();
        assert_eq!(allocations, 0, "{}", traffic.name);
        assert_eq!(source.ingest.entries(), 0, "{}: the traffic ends where it began", traffic.name);
    }
}

#[test]
fn traffic_of_all_kinds_mixed_allocates_nothing() {
    let mut source = Source::new();
    let payloads: Vec<_> = traffics().into_iter().flat_map(|traffic| traffic.payloads).collect();
    let mut round = || -> u64 { payloads.iter().map(|payload| apply(&mut source, payload)).sum() };
    let _warm: u64 = (0..20).map(|_| round()).sum();
    let allocations: u64 = (0..20).map(|_| round()).sum();
    assert_eq!(allocations, 0);
}

/// Takes everything, keeps nothing.
struct Blind;

impl Visitor for Blind {
    fn stored(&mut self, _: StoredBlocks<'_>) {}
    fn removed(&mut self, _: Worker, _: Tier, _: &[EngineHash]) {}
    fn cleared(&mut self, _: Worker) {}
}

#[test]
fn reading_steady_traffic_without_an_index_allocates_nothing() {
    for traffic in traffics() {
        let config = Source::new().config;
        let mut normalizer = Normalizer::new(config).expect("a good source");
        let mut round = || {
            for payload in &traffic.payloads {
                let _ = std::hint::black_box(normalizer.read(payload, &mut Blind));
            }
        };
        (0..20).for_each(|_| round());
        let ((), usage) = measure(|| (0..20).for_each(|_| round()));
        assert_eq!(usage.allocations, 0, "{}", traffic.name);
    }
}
