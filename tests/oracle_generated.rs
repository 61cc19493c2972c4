//! Shows that the generated streams reach every corner of the contract, and that damage never trips the oracle.

mod support;

use std::collections::BTreeMap;

use support::generate::{self, StreamOptions};
use support::mutate::mutate;
use support::oracle::{Copies, Digest, Oracle, OracleConfig, QueryOptions, Summary};

const REASONS: [&str; 20] = [
    "ambiguous_cache_namespace",
    "block_size_mismatch",
    "excess_tokens",
    "no_hashes",
    "non_local_locality",
    "non_main_attention_group",
    "non_main_attention_kind",
    "partial_block",
    "rehashed",
    "self_referencing",
    "short_tokens",
    "unknown_block",
    "unknown_kind",
    "unknown_medium",
    "unknown_ownership",
    "unknown_parent",
    "unlearned_group_idx",
    "unresolved_hash",
    "unsupported_ownership",
    "malformed",
];

fn replay(stream: &[Vec<u8>], options: &StreamOptions) -> Oracle {
    let digest = if options.digest_high { Digest::High } else { Digest::Low };
    let mut oracle = Oracle::new(OracleConfig { digest, ..OracleConfig::new(options.block_size) });
    for (sequence, payload) in (0..).zip(stream) {
        oracle.apply(sequence, payload);
    }
    oracle
}

#[test]
fn same_seed_gives_the_same_stream_and_another_seed_another() {
    let options = StreamOptions::default();
    assert_eq!(generate::stream(7, &options), generate::stream(7, &options));
    assert_ne!(generate::stream(7, &options), generate::stream(8, &options));
}

#[test]
fn generated_streams_reach_every_reason_and_mostly_place() {
    let options = StreamOptions::default();
    let mut reached: BTreeMap<&str, u64> = BTreeMap::new();
    let mut total = Summary::default();
    for seed in 0..60 {
        let summary = replay(&generate::stream(seed, &options), &options).summary();
        for (reason, times) in &summary.filtered {
            *reached.entry(reason).or_default() += times;
        }
        *reached.entry("malformed").or_default() += summary.malformed;
        total.batches += summary.batches;
        total.malformed_batches += summary.malformed_batches;
        total.stored += summary.stored;
        total.removed += summary.removed;
        total.cleared += summary.cleared;
        total.unknown += summary.unknown;
        total.blocks_placed += summary.blocks_placed;
        total.blocks_removed += summary.blocks_removed;
    }
    for reason in REASONS {
        assert!(reached.contains_key(reason), "{reason} not reached: {reached:?}");
    }
    assert!(reached["ambiguous_cache_namespace"] > 20, "{reached:?}");
    assert!(total.cleared > 0 && total.unknown > 0 && total.malformed_batches > 0, "{total:?}");
    assert!(total.malformed_batches * 20 < total.batches, "{total:?}");
    assert!(total.blocks_placed > total.stored, "{total:?} {reached:?}");
    assert!(total.blocks_removed > total.removed / 4, "{total:?} {reached:?}");
}

#[test]
fn prompts_of_the_generated_world_are_found() {
    let options = StreamOptions { broken_percent: 0, ..StreamOptions::default() };
    let mut deep = [0; 6];
    for seed in 0..20 {
        let oracle = replay(&generate::stream(seed, &options), &options);
        for (chain, times) in deep.iter_mut().enumerate() {
            let prompt = generate::prompt(chain, 8, options.block_size);
            let under = QueryOptions {
                lora_name: generate::lora_of(chain).map(str::to_owned),
                cache_salt: generate::salt_of(chain).map(str::to_owned),
                bigram: false,
            };
            let (blocks, matches) = oracle.query(&prompt, &under);
            assert_eq!(blocks, 8);
            *times += usize::from(matches.iter().any(|found| found.external > 1));
            assert_eq!(matches, oracle.query_prefixes(&oracle.chain(&prompt, &under)));
        }
    }
    assert!(deep.iter().all(|times| *times > 0), "{deep:?}");
}

#[test]
fn high_digests_and_sets_of_copies_have_streams_too() {
    let options = StreamOptions { digest_high: true, block_size: 3, ..StreamOptions::default() };
    let stream = generate::stream(3, &options);
    let right = replay(&stream, &options).summary();
    assert_ne!(
        right.digest,
        replay(&stream, &StreamOptions { digest_high: false, ..options.clone() }).digest()
    );
    let [counted, set] = [Copies::Count, Copies::Set].map(|copies| {
        let mut oracle = Oracle::new(OracleConfig { copies, digest: Digest::High, ..OracleConfig::new(3) });
        for seed in 0..20 {
            for payload in generate::stream(seed, &options) {
                oracle.apply(0, &payload);
            }
        }
        oracle.summary()
    });
    assert!(set.blocks_removed < counted.blocks_removed, "{set:?} {counted:?}");
}

#[test]
fn damaged_payloads_are_judged_and_some_still_pass() {
    let options = StreamOptions::default();
    let (mut passed, mut refused) = (0, 0);
    for seed in 0..60 {
        let stream = generate::stream(seed, &options);
        let mut oracle = Oracle::new(OracleConfig::new(options.block_size));
        for (number, payload) in (0..).zip(&stream) {
            let other = &stream[stream.len() - 1];
            let applied = oracle.apply(number, &mutate(seed * 1000 + number, payload, other));
            assert!(!applied.rejected || (applied.events.is_empty() && applied.placements.is_empty()));
            *if applied.rejected { &mut refused } else { &mut passed } += 1;
        }
    }
    assert!(passed > 300 && refused > 300, "{passed} passed, {refused} refused");
}

#[test]
fn containers_stand_at_depth_64_and_no_deeper() {
    // Batch, events and the event are three; `inner` arrays more are nested in the unknown event.
    let nested = |inner: usize| {
        let mut payload = vec![0x92, 0x00, 0x91, 0x92, 0xa1, b'x'];
        payload.extend(vec![0x91; inner - 1]);
        payload.push(0x90);
        payload
    };
    let mut oracle = Oracle::new(OracleConfig::new(4));
    assert!(!oracle.apply(0, &nested(61)).rejected);
    assert!(oracle.apply(1, &nested(62)).rejected);
}
