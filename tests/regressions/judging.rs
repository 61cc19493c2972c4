//! What other consumers place although they should not, or drop although they should place it.

use kvtap::{Reason, Verdict, Worker};
use rmpv::Value;

use crate::support::source::{Counts, Source, list, remove, store, store_by_hash};

const HELD: [u32; 4] = [1; 4];

/// B16
#[test]
fn a_placeholder_store_after_the_gpu_store_adds_the_host_tier() {
    let mut source = Source::new();
    source.apply([store(&[1, 2], None, 1..=8)]);
    let placeholder = store_by_hash(&[1, 2], "CPU").set("lora_id", Value::Nil).set("lora_name", Value::Nil);
    let seen = source.apply([placeholder]);
    assert_eq!(seen.ops(), [('+', "host_pinned", 1), ('+', "host_pinned", 2)]);
    assert!(seen.local_hashes().is_empty(), "no tokens, no local hash");
    source.apply([remove(&[1, 2])]);
    assert_eq!(source.depths(1..=8), [0, 2, 2, 2]);
    assert_eq!(source.counts(), Counts { stored: 2, removed: 1, placed: 4, evicted: 2, ..Counts::default() });
    assert_eq!(source.ingest.counters().placed_tokens, 8, "a placeholder brings no tokens");
}

/// B16
#[test]
fn a_placeholder_store_before_any_gpu_store_is_counted_per_hash() {
    let mut source = Source::new();
    let seen = source.apply([store_by_hash(&[1, 2], "CPU")]);
    assert_eq!((seen.verdicts, seen.placements), (vec![Verdict::Place], vec![]));
    let filtered = vec![("unresolved_hash", 2)];
    assert_eq!(source.counts(), Counts { stored: 1, filtered, ..Counts::default() });
    source.apply([store(&[1], None, 1..=4)]);
    source.apply([remove(&[1])]);
    assert_eq!(source.depths(1..=4), [0; 4], "nothing was kept of it");
}

/// B23
#[test]
fn tokens_that_span_skipped_blocks_refuse_the_event_and_its_children() {
    let mut source = Source::new();
    source.apply([store(&[1, 2, 3], None, 1..=12)]);
    let sparse = store(&[5], Some(3), 13..=20).set("extra_keys", list![Value::Nil]);
    let seen = source.apply([sparse, store(&[6], Some(5), 21..=24)]);
    assert_eq!(
        seen.verdicts,
        [Verdict::Filter(Reason::ExcessTokens), Verdict::Filter(Reason::UnknownParent)]
    );
    assert_eq!(source.depths(1..=24), [3; 4]);
    let filtered = vec![("excess_tokens", 1), ("unknown_parent", 1)];
    assert_eq!(source.counts(), Counts { stored: 3, placed: 3, filtered, ..Counts::default() });
}

/// B25
#[test]
fn partial_blocks_are_never_full_ones_however_often_they_come() {
    let mut source = Source::with(|config| config.block_size = 16);
    let partial = || store(&[100], None, 1..=8).set("block_size", 8);
    let full = store(&[1], None, 1..=16).set("block_size", 16);
    let events = [partial(), remove(&[100]), full, partial(), remove(&[1])];
    let seen = source.apply(events);
    let (mismatch, partial) =
        (Verdict::Filter(Reason::BlockSizeMismatch), Verdict::Filter(Reason::PartialBlock));
    let place = Verdict::Place;
    assert_eq!(seen.verdicts, [mismatch, place, place, partial, place], "no full block was seen before");
    assert_eq!(seen.ops(), [('+', "device", 1), ('-', "device", 1)]);
    assert_eq!(source.matches(1..=8), []);
    assert_eq!(source.matches(1..=16), []);
    let filtered = vec![("partial_block", 1), ("block_size_mismatch", 1), ("unknown_block", 1)];
    assert_eq!(
        source.counts(),
        Counts { stored: 3, removed: 2, placed: 1, evicted: 1, filtered, ..Counts::default() }
    );
}

/// B30
#[test]
fn the_rank_on_the_wire_wins_over_the_registered_one() {
    let mut source = Source::with(|config| config.dp_rank = 1);
    source.apply_rank(0, [store(&[1], None, 1..=4)]);
    assert_eq!(source.matches(1..=4), [(0, 0, HELD)]);
    assert_eq!(source.ingest.workers().collect::<Vec<_>>(), [Worker { worker_id: 0, dp_rank: 0 }]);
}

/// B30
#[test]
fn two_publishers_that_both_say_rank_0_stay_two_workers() {
    let mut first = Source::new();
    let mut config = first.config.clone();
    config.worker_id = 1;
    config.dp_rank = 1;
    let mut second = first.engine.ingest(config).expect("a good source");
    first.apply([store(&[1], None, 1..=4)]);
    let shared = crate::support::source::payload([store(&[1, 2], None, 1..=8)], 0);
    second.apply(&shared).expect("a sound payload");
    second.flush();
    assert_eq!(first.matches(1..=8), [(0, 0, HELD), (1, 0, [2; 4])]);
}

/// B49
#[test]
fn mla_models_are_main_attention() {
    let mut source = Source::new();
    let kind = |kind: &str| store(&[1], None, 1..=4).set("group_idx", 0).set("kv_cache_spec_kind", kind);
    let seen = source.apply([kind("mla_attention"), remove(&[1]).set("group_idx", 0)]);
    assert_eq!(seen.ops(), [('+', "device", 1), ('-', "device", 1)]);
    assert_eq!(source.counts().filtered, []);
}

/// B51
#[test]
fn blocks_widened_by_the_producer_are_a_mismatch_on_every_worker_and_never_partial() {
    let mut source = Source::with(|config| config.block_size = 16);
    let wide = || store(&[1, 2], None, 1..=64).set("block_size", 32);
    for rank in 0..3 {
        for _ in 0..2 {
            let seen = source.apply_rank(rank, [wide(), wide()]);
            assert_eq!(seen.verdicts, [Verdict::Filter(Reason::BlockSizeMismatch); 2]);
            assert_eq!(seen.placements, []);
        }
    }
    let filtered = vec![("block_size_mismatch", 12)];
    assert_eq!(source.counts(), Counts { stored: 12, filtered, ..Counts::default() });
    let reported: Vec<_> = source.ingest.mismatched_block_sizes().collect();
    let worker = |dp_rank| Worker { worker_id: 0, dp_rank };
    assert_eq!(reported, [(worker(0), 32, 4), (worker(1), 32, 4), (worker(2), 32, 4)]);
    assert_eq!(source.ingest.entries(), 0);

    let mut config = source.config.clone();
    config.block_size = 32;
    source.ingest = source.engine.ingest(config.clone()).expect("a good source");
    source.config = config;
    source.apply([wide()]);
    assert_eq!(source.depths(1..=64), [2; 4], "registered again with the right size");
}

/// B52
#[test]
fn children_of_a_batch_that_was_never_sent_are_counted_not_hung_at_the_root() {
    let mut source = Source::new();
    source.apply([store(&[1, 2, 3, 4], None, 1..=16)]);
    let seen = source.apply([store(&[6], Some(5), 21..=24)]);
    assert_eq!(seen.verdicts, [Verdict::Filter(Reason::UnknownParent)]);
    source.apply([remove(&[5])]);
    assert_eq!(source.depths(1..=24), [4; 4]);
    assert_eq!(source.depths(21..=24), [0; 4], "not at the root");
    let filtered = vec![("unknown_parent", 1), ("unknown_block", 1)];
    assert_eq!(source.counts(), Counts { stored: 2, removed: 1, placed: 4, filtered, ..Counts::default() });
}

/// B56
#[test]
fn a_flood_of_placeholder_stores_is_counted_and_keeps_no_memory() {
    let mut source = Source::new();
    let hashes: Vec<u64> = (1..=24).collect();
    let flood = store_by_hash(&hashes, "CPU").without("parent_block_hash");
    let before = source.ingest.bytes();
    for _ in 0..1000 {
        source.apply([flood.clone()]);
    }
    let filtered = vec![("unresolved_hash", 24_000)];
    assert_eq!(source.counts(), Counts { stored: 1000, filtered, ..Counts::default() });
    assert_eq!(source.ingest.bytes(), before);
}

/// B57
#[test]
fn a_sparse_store_leaves_no_trace_in_the_engine_hash_map() {
    let mut source = Source::new();
    let seen = source.apply([store(&[2], None, 1..=8), store(&[1, 2], None, 1..=8)]);
    assert_eq!(seen.verdicts, [Verdict::Filter(Reason::ExcessTokens), Verdict::Place]);
    assert_eq!(source.depths(1..=8), [2; 4]);
    let filtered = vec![("excess_tokens", 1)];
    assert_eq!(source.counts(), Counts { stored: 2, placed: 2, filtered, ..Counts::default() });
    assert_eq!(source.ingest.entries(), 2, "nothing was rehashed, because nothing was bound");
}

/// B64
#[test]
fn media_that_are_not_the_gpu_are_not_taken_for_it() {
    let mut source = Source::new();
    let on = |hash: u64, medium: &str| store(&[hash], None, 1..=4).set("medium", medium);
    let seen = source.apply([on(1, "EXTERNAL"), on(2, "gpu "), on(3, "NVME"), on(4, "cxl")]);
    let unknown = Verdict::Filter(Reason::UnknownMedium);
    assert_eq!(seen.verdicts, [Verdict::Place, unknown, Verdict::Place, unknown]);
    assert_eq!(seen.ops(), [('+', "external", 1), ('+', "disk", 3)]);
    assert_eq!(source.depths(1..=4), [0, 0, 1, 1]);
    let filtered = vec![("unknown_medium", 2)];
    assert_eq!(source.counts(), Counts { stored: 4, placed: 2, filtered, ..Counts::default() });
}
