//! In steady state a batch costs no heap allocation on the thread that handles it. A binary of its own, under an
//! allocator that counts per thread.

mod support;

use kvtap::wire::{Decoder, Event as WireEvent};
use kvtap::{DigestHalf, EngineHash, Normalizer, StoredBlocks, Tier, Visitor, Worker};
use rmpv::Value;
use support::allocations::{Counting, measure};
use support::captures;
use support::source::{Event, Source, list, pack, payload, record, remove, store, store_by_hash, token_list};

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

/// Payloads that end where they began, so that they can be applied over and over.
struct Traffic {
    name: &'static str,
    payloads: Vec<Vec<u8>>,
}

/// Blocks in one chain, stored in several batches and removed again in others.
fn cycle(name: &'static str, dress: impl Fn(Event) -> Event) -> Traffic {
    let mut payloads = Vec::new();
    for turn in 0..8_u32 {
        let first = u64::from(turn) * 4 + 1;
        let hashes: Vec<_> = (first..first + 4).collect();
        let tokens = turn * 16 + 1..=turn * 16 + 16;
        let parent = (turn > 0).then(|| first - 1);
        payloads.push(payload([dress(store(&hashes, parent, tokens))], 0));
    }
    let hashes: Vec<_> = (1..=32).rev().collect();
    payloads.extend(hashes.chunks(5).map(|chunk| payload([dress(remove(chunk))], 0)));
    Traffic { name, payloads }
}

fn digest(hash: u64) -> Value {
    let mut bytes = vec![0x5a; 24];
    bytes.extend(hash.to_be_bytes());
    Value::Binary(bytes)
}

fn traffics() -> Vec<Traffic> {
    let group = |event: Event, group: u32, kind: &str| {
        event
            .set("group_idx", group)
            .set("kv_cache_spec_kind", kind)
            .set("kv_cache_spec_sliding_window", 1024)
    };
    let pairs = |first: u32| Value::Array((first..first + 16).map(|token| list![token, token + 1]).collect());
    let image = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    let identities = list![list!["tenant", list![image, 3]], list!["adapter", list!["other", 0]], Value::Nil];
    let infos =
        record! { "mm_objects": list![record! { "mm_hash": u64::MAX, "offsets": list![list![0, 4]] }] };
    let tuple = |hash: u64, tokens: std::ops::RangeInclusive<u32>| {
        let parent = if hash == 1 { Value::Nil } else { Value::from(hash - 1) };
        list![
            "BlockStored",
            list![hash],
            parent,
            token_list(tokens),
            4,
            Value::Nil,
            "GPU",
            Value::Nil,
            Value::Nil,
            0
        ]
    };
    vec![
        cycle("plain maps", |event| event.set("medium", "GPU").set("lora_id", Value::Nil)),
        Traffic {
            name: "tuples",
            payloads: vec![
                payload([tuple(1, 1..=4), tuple(2, 5..=8), tuple(3, 9..=12)], 0),
                pack(&list![1.0, list![list!["BlockRemoved", list![3, 2, 1], "GPU", 0]]]),
            ],
        },
        cycle("another rank, a wrong size, a partial tail", |event| event.set("block_size", 2)),
        cycle("filtered windows of a hybrid model", |event| group(event, 1, "sliding_window")),
        Traffic {
            name: "a hybrid model, both groups",
            payloads: vec![
                payload(
                    [
                        group(store(&[1, 2], None, 1..=8), 0, "full_attention"),
                        group(store(&[11, 12], None, 1..=8), 1, "mamba"),
                        store(&[13], Some(2), 9..=12).set("group_idx", 1),
                    ],
                    0,
                ),
                payload([remove(&[11]).set("group_idx", 1), remove(&[2, 1]).set("group_idx", 0)], 0),
            ],
        },
        Traffic {
            name: "EAGLE pairs",
            payloads: vec![
                payload([store(&[1, 2, 3, 4], None, 1..=1).set("token_ids", pairs(1))], 0),
                payload([remove(&[4, 3, 2, 1])], 0),
            ],
        },
        Traffic {
            name: "digests",
            payloads: vec![
                payload([store(&[], None, 1..=8).set("block_hashes", list![digest(1), digest(2)])], 0),
                payload([store(&[3], None, 9..=12).set("parent_block_hash", digest(2))], 0),
                payload([remove(&[]).set("block_hashes", list![digest(3), digest(2), digest(1)])], 0),
            ],
        },
        cycle("an adapter and a salt", |event| event.set("lora_name", "adapter").set("cache_salt", "tenant")),
        Traffic {
            name: "images, a salt among the extra keys, an adapter",
            payloads: vec![
                payload(
                    [store(&[1, 2, 3], None, 1..=12)
                        .set("lora_name", "adapter")
                        .set("extra_keys", identities)],
                    0,
                ),
                payload([store(&[4], Some(3), 13..=16).set("lora_name", "adapter")], 0),
                payload([remove(&[4, 1, 2, 3])], 0),
            ],
        },
        Traffic {
            name: "multimodal infos",
            payloads: vec![
                payload([store(&[1], None, 1..=4).set("block_mm_infos", list![infos])], 0),
                payload([remove(&[1])], 0),
            ],
        },
        Traffic {
            name: "offloading",
            payloads: vec![
                payload([store(&[1, 2], None, 1..=8), store_by_hash(&[1, 2, 77], "CPU")], 0),
                payload([remove(&[1, 2]), store_by_hash(&[2], "STORAGE")], 0),
                payload([remove(&[2]).set("medium", "STORAGE"), remove(&[2, 1]).set("medium", "CPU")], 0),
            ],
        },
        Traffic {
            name: "copies, two names of one block, another prefix under one name",
            payloads: vec![
                payload([store(&[1], None, 1..=4), store(&[1], None, 1..=4), store(&[2], None, 1..=4)], 0),
                payload([store(&[1], None, 5..=8), remove(&[1, 2, 9])], 0),
            ],
        },
        Traffic {
            name: "drift, unknown tags, malformed events, orphans",
            payloads: vec![
                payload(
                    [
                        Event::new("Tomorrow").set("x", 1),
                        store(&[1], None, 1..=4).set("new_key", list![1, "x"]),
                        store(&[5], None, 1..=4).set("token_ids", "none"),
                        store(&[6], Some(99), 1..=4),
                        store(&[7, 7], None, 1..=8),
                        store(&(1..=40).collect::<Vec<_>>(), Some(99), 1..=160),
                    ],
                    -1,
                ),
                payload([remove(&[1])], 0),
                b"\x93\x01\x91".to_vec(),
                b"\x93\x01\xc0\x00".to_vec(),
            ],
        },
    ]
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
        (0..20).for_each(|_| drop(round()));
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
    (0..20).for_each(|_| drop(round()));
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
                drop(std::hint::black_box(normalizer.read(payload, &mut Blind)));
            }
        };
        (0..20).for_each(|_| round());
        let ((), usage) = measure(|| (0..20).for_each(|_| round()));
        assert_eq!(usage.allocations, 0, "{}", traffic.name);
    }
}
