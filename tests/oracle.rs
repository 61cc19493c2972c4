//! The fast path against the slow oracle: same acceptance, events, placements, counts, digest and answers, on captures,
//! on random valid streams, and on damaged ones.
//!
//! `KVTAP_MUTATIONS` sets how many damaged payloads are tried (10,000 by default), `PROPTEST_CASES` how many streams.

mod support;

use proptest::prelude::*;
use support::captures;
use support::fast::Fast;
use support::generate::{self, StreamOptions};
use support::mutate::mutate;
use support::oracle::{Copies, Digest, Oracle, OracleConfig, QueryOptions};

/// Shard counts whose answers must not differ.
const SHARDS: [usize; 3] = [1, 2, 7];

/// Fast and slow side by side.
struct Pair {
    oracle: Oracle,
    fast: Vec<Fast>,
    sequence: u64,
}

impl Pair {
    fn new(config: OracleConfig) -> Self {
        let fast = SHARDS.iter().map(|&shards| Fast::new(config, shards)).collect();
        Self { oracle: Oracle::new(config), fast, sequence: 0 }
    }

    fn apply(&mut self, payload: &[u8]) {
        let mut slow = self.oracle.apply(self.sequence, payload);
        slow.rejection = None;
        for fast in &mut self.fast {
            let applied = fast.apply(self.sequence, payload);
            assert_eq!(applied, slow, "payload {}", hex(payload));
        }
        self.sequence += 1;
    }

    /// Counts, digest, and what is held of every prompt that ends with a stored block, and of some that go on.
    fn check(&mut self) {
        let summary = self.oracle.summary();
        for fast in &mut self.fast {
            fast.flush();
            assert_eq!(fast.summary(), summary);
        }
        let prefixes = self.oracle.stored_prefixes();
        // The oracle looks at everything it holds each time.
        for &prefix in prefixes.iter().step_by(prefixes.len() / 100 + 1) {
            for fast in &mut self.fast {
                let (chain, found) = fast.query_stored(prefix);
                assert_eq!(found, self.oracle.query_prefixes(&chain));
            }
        }
    }

    fn query(&mut self, tokens: &[u32], options: &QueryOptions) {
        let slow = self.oracle.query(tokens, options);
        for fast in &mut self.fast {
            assert_eq!(fast.query(tokens, options), slow);
        }
    }

    /// Every chain of the generator's world, at every depth, as plain and as EAGLE prompts.
    fn query_world(&mut self, block_size: u32) {
        for chain in 0..6 {
            for bigram in [false, true] {
                let options = QueryOptions {
                    lora_name: generate::lora_of(chain).map(str::to_owned),
                    cache_salt: generate::salt_of(chain).map(str::to_owned),
                    bigram,
                };
                for blocks in 1..=7 {
                    self.query(&generate::prompt(chain, blocks, block_size), &options);
                }
            }
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn captures_decode_as_the_oracle_says() {
    for capture in captures::all() {
        let mut pair = Pair::new(OracleConfig::new(capture.block_size));
        for record in capture.records() {
            pair.apply(&record.payload);
        }
        pair.check();
    }
}

fn options() -> impl Strategy<Value = (StreamOptions, OracleConfig)> {
    let sizes = prop_oneof![Just(1_u32), Just(2), Just(4), Just(16)];
    (sizes, any::<bool>(), any::<bool>(), 0_usize..30, 1_usize..4).prop_map(
        |(block_size, set, digest_high, broken_percent, dp_ranks)| {
            let stream = StreamOptions {
                block_size,
                digest_high,
                broken_percent,
                dp_ranks,
                ..StreamOptions::default()
            };
            let config = OracleConfig {
                copies: if set { Copies::Set } else { Copies::Count },
                digest: if digest_high { Digest::High } else { Digest::Low },
                ..OracleConfig::new(block_size)
            };
            (stream, config)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        cases: std::env::var("PROPTEST_CASES").map_or(100, |cases| cases.parse().expect("a count")),
        ..ProptestConfig::default()
    })]

    #[test]
    fn random_streams_decode_as_the_oracle_says(seed: u64, (stream, config) in options()) {
        let mut pair = Pair::new(config);
        for payload in generate::stream(seed, &stream) {
            pair.apply(&payload);
        }
        pair.check();
        pair.query_world(stream.block_size);
    }
}

#[test]
fn damaged_payloads_decode_as_the_oracle_says() {
    let wanted: u64 =
        std::env::var("KVTAP_MUTATIONS").map_or(10_000, |count| count.parse().expect("a count"));
    let mut done = 0;
    let mut round = 0;
    while done < wanted {
        for capture in captures::small() {
            let mut pair = Pair::new(OracleConfig::new(capture.block_size));
            let records = capture.records();
            for (at, record) in records.iter().enumerate() {
                let other = &records[(at * 7 + 1) % records.len()].payload;
                pair.apply(&mutate(round * 1_000_003 + done, &record.payload, other));
                done += 1;
            }
            pair.check();
            let summary = pair.oracle.summary();
            let events =
                summary.stored + summary.removed + summary.cleared + summary.unknown + summary.malformed;
            assert!(summary.malformed_batches < summary.batches || events == 0);
            if done >= wanted {
                break;
            }
        }
        round += 1;
    }
}

#[test]
fn damaged_streams_decode_as_the_oracle_says() {
    let options = StreamOptions::default();
    for seed in 0..100 {
        let mut pair = Pair::new(OracleConfig::new(options.block_size));
        let stream = generate::stream(seed, &options);
        for (at, payload) in stream.iter().enumerate() {
            let other = &stream[(at + 1) % stream.len()];
            // Half of them stay whole, so that state builds up between the damaged ones.
            let payload =
                if at % 2 == 0 { payload.clone() } else { mutate(seed << 16 | at as u64, payload, other) };
            pair.apply(&payload);
        }
        pair.check();
        pair.query_world(options.block_size);
    }
}
