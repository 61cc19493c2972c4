//! Traffic that ends where it began, of every kind that is sent.

use rmpv::Value;

use crate::support::source::{Event, list, pack, payload, record, remove, store, store_by_hash, token_list};

/// Payloads that end where they began, so that they can be applied over and over.
pub(crate) struct Traffic {
    pub(crate) name: &'static str,
    pub(crate) payloads: Vec<Vec<u8>>,
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

/// All of it.
pub(crate) fn traffics() -> Vec<Traffic> {
    [layouts(), groups(), identities(), oddities()].into_iter().flatten().collect()
}

/// Ways to write an event, hashes and tokens.
fn layouts() -> Vec<Traffic> {
    let pairs = |first: u32| Value::Array((first..first + 16).map(|token| list![token, token + 1]).collect());
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
    ]
}

/// What is filtered, whole or in part.
fn groups() -> Vec<Traffic> {
    let group = |event: Event, group: u32, kind: &str| {
        event
            .set("group_idx", group)
            .set("kv_cache_spec_kind", kind)
            .set("kv_cache_spec_sliding_window", 1024)
    };
    vec![
        cycle("a wrong block size", |event| event.set("block_size", 2)),
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
    ]
}

/// Adapters, salts and images.
fn identities() -> Vec<Traffic> {
    let image = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    let keys = list![list!["tenant", list![image, 3]], list!["adapter", list!["other", 0]], Value::Nil];
    let infos =
        record! { "mm_objects": list![record! { "mm_hash": u64::MAX, "offsets": list![list![0, 4]] }] };
    vec![
        cycle("an adapter and a salt", |event| event.set("lora_name", "adapter").set("cache_salt", "tenant")),
        Traffic {
            name: "images, a salt among the extra keys, an adapter",
            payloads: vec![
                payload(
                    [store(&[1, 2, 3], None, 1..=12).set("lora_name", "adapter").set("extra_keys", keys)],
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
    ]
}

/// What does not happen every day.
fn oddities() -> Vec<Traffic> {
    vec![
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
