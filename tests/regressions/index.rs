//! What other indexes forget too early, too late, or never.

use kvtap::{Copies, Reason, Verdict};

use crate::support::pack::Choices;
use crate::support::source::{Counts, Event, Source, clear, remove, store};

const HELD: [u32; 4] = [1; 4];

fn on_host(event: Event) -> Event {
    event.set("medium", "CPU_PINNED")
}

/// B17
#[test]
fn a_removal_on_the_gpu_leaves_the_host_copy() {
    let mut source = Source::new();
    source.apply([store(&[1], None, 1..=4), on_host(store(&[1], None, 1..=4)), remove(&[1])]);
    assert_eq!(source.depths(1..=4), [0, 1, 1, 1]);
    source.apply([on_host(remove(&[1]))]);
    assert_eq!(source.depths(1..=4), [0; 4]);
    assert_eq!(source.ingest.entries(), 0);
    let counts = Counts { stored: 2, removed: 2, placed: 2, evicted: 2, ..Counts::default() };
    assert_eq!(source.counts(), counts);
}

/// B20
#[test]
fn a_clear_forgets_every_block_and_gives_the_memory_back() {
    let mut source = Source::new();
    source.apply([store(&[1], None, 1..=4), on_host(store(&[2], Some(1), 5..=8))]);
    let seen = source.apply([clear()]);
    assert_eq!(seen.ops(), [('x', "", 0)]);
    assert_eq!(source.matches(1..=8), []);
    assert_eq!((source.ingest.entries(), source.ingest.digest(), source.ingest.bytes()), (0, 0, 0));
    let counts = Counts { stored: 2, cleared: 1, placed: 2, ..Counts::default() };
    assert_eq!(source.counts(), counts, "a clear is not so many removals");
    source.apply([store(&[1], None, 1..=4)]);
    assert_eq!(source.depths(1..=8), HELD, "what comes after it counts");
}

/// B21
#[test]
fn each_copy_has_a_removal_of_its_own() {
    let mut source = Source::new();
    source.apply([store(&[1], None, 1..=4), store(&[1], None, 1..=4), remove(&[1])]);
    assert_eq!(source.depths(1..=4), HELD);
    source.apply([remove(&[1])]);
    assert_eq!(source.depths(1..=4), [0; 4]);
    let seen = source.apply([remove(&[1])]);
    assert_eq!((seen.verdicts, seen.placements), (vec![Verdict::Place], vec![]));
    let filtered = vec![("unknown_block", 1)];
    let counts = Counts { stored: 2, removed: 3, placed: 2, evicted: 2, filtered, ..Counts::default() };
    assert_eq!(source.counts(), counts);
}

/// B21
#[test]
fn copies_of_one_tier_are_not_those_of_another() {
    let mut source = Source::new();
    source.apply([store(&[1], None, 1..=4), on_host(store(&[1], None, 1..=4)), remove(&[1]), remove(&[1])]);
    assert_eq!(source.depths(1..=4), [0, 1, 1, 1]);
    assert_eq!(source.ingest.counters().filtered(Reason::UnknownBlock), 1);
}

/// B21: for engines that announce a reused prefix again.
#[test]
fn announced_again_the_first_removal_is_final_where_copies_are_a_set() {
    let mut source = Source::with(|config| config.copies = Copies::Set);
    source.apply([store(&[1], None, 1..=4), store(&[1], None, 1..=4), remove(&[1])]);
    assert_eq!(source.depths(1..=4), [0; 4]);
    assert_eq!(source.ingest.entries(), 0);
}

/// B40
#[test]
fn a_store_that_repeats_a_hash_changes_nothing() {
    let mut source = Source::new();
    source.apply([store(&[9], None, 1..=4)]);
    let digest = source.ingest.digest();
    let seen = source.apply([
        store(&[1, 1], None, 1..=8),
        store(&[1], Some(1), 1..=4),
        store(&[1, 2, 1], None, 1..=12),
        store(&[9], Some(9), 5..=8),
    ]);
    assert_eq!(seen.verdicts, [Verdict::Filter(Reason::SelfReferencing); 4]);
    assert_eq!(seen.placements, []);
    assert_eq!((source.ingest.digest(), source.depths(1..=4)), (digest, HELD));
    let filtered = vec![("self_referencing", 4)];
    assert_eq!(source.counts(), Counts { stored: 5, placed: 1, filtered, ..Counts::default() });
    assert_eq!(source.ingest.counters().batches, 2, "the payload counts as applied");
}

/// B42
#[test]
fn memory_does_not_grow_with_suffixes_that_come_and_go() {
    let mut source = Source::new();
    let prefix: Vec<u64> = (1..=16).collect();
    source.apply([store(&prefix, None, 1..=64)]);
    let empty_digest = source.ingest.digest();
    let mut choices = Choices::new(42);
    let mut bytes = Vec::new();
    for round in 0..20_000_u32 {
        let first = u64::from(round) * 8 + 1000;
        let mut suffix: Vec<u64> = (first..first + 8).collect();
        let tokens = round * 32 + 1000;
        source.apply([store(&suffix, Some(16), tokens..=tokens + 31)]);
        assert_eq!(source.ingest.entries(), 24);
        choices.shuffle(&mut suffix);
        source.apply([remove(&suffix)]);
        assert_eq!((source.ingest.entries(), source.ingest.digest()), (16, empty_digest));
        if round % 1000 == 0 {
            source.ingest.flush();
            bytes.push(source.ingest.bytes() + source.engine.index_bytes());
        }
    }
    assert!(bytes.iter().all(|&later| later <= bytes[0] + 4096), "{bytes:?}");
    assert_eq!(source.depths(1..=64), [16; 4]);
    source.apply([remove(&prefix)]);
    assert_eq!((source.ingest.entries(), source.ingest.digest()), (0, 0));
    assert_eq!(source.matches(1..=64), []);
    assert_eq!(source.counts().filtered, []);
}

/// B42: the memory of a mass of blocks is given back.
#[test]
fn memory_returns_after_mass_eviction() {
    let mut source = Source::new();
    let before = (source.ingest.bytes(), source.engine.index_bytes());
    let hashes: Vec<u64> = (1..=50_000).collect();
    for (block, chunk) in hashes.chunks(500).enumerate() {
        let first = u32::try_from(block).expect("small") * 2000 + 1;
        source.apply([store(chunk, None, first..=first + 1999)]);
    }
    source.ingest.flush();
    let full = (source.ingest.bytes(), source.engine.index_bytes());
    for chunk in hashes.chunks(500) {
        source.apply([remove(chunk)]);
    }
    source.ingest.flush();
    let empty = (source.ingest.bytes(), source.engine.index_bytes());
    let is_back = |before: usize, full: usize, empty: usize| (empty - before) * 20 <= full - before;
    assert!(
        is_back(before.0, full.0, empty.0) && is_back(before.1, full.1, empty.1),
        "{before:?} bytes became {full:?}, then {empty:?}"
    );
}

/// A bound on blocks bounds what is known of them, too, however many there were before.
#[test]
fn salts_and_copies_leave_no_room_behind_while_a_block_stays() {
    let mut source = Source::new();
    let hashes: Vec<u64> = (1..=20_000).collect();
    let salted = || store(&hashes, None, 1..=80_000).set("cache_salt", "s");
    source.apply([salted(), salted(), salted(), salted()]);
    let full = source.ingest.bytes();
    for _ in 0..4 {
        source.apply([remove(&hashes[1..])]);
    }
    assert_eq!(source.ingest.entries(), 1);
    assert!(source.ingest.bytes() * 50 < full, "{full} bytes became {}", source.ingest.bytes());
}

/// B61
#[test]
fn two_names_of_one_block_keep_it_until_both_are_gone() {
    let mut source = Source::new();
    source.apply([store(&[1], None, 1..=4), store(&[101], None, 1..=4), remove(&[1])]);
    assert_eq!(source.depths(1..=4), HELD);
    source.apply([remove(&[101])]);
    assert_eq!(source.depths(1..=4), [0; 4]);
    assert_eq!(source.counts().filtered, []);
}

/// B61: children of either name are one chain.
#[test]
fn children_of_either_name_continue_the_block() {
    let mut source = Source::new();
    source.apply([store(&[1], None, 1..=4), store(&[101], None, 1..=4)]);
    source.apply([store(&[2], Some(1), 5..=8), store(&[3], Some(101), 9..=12)]);
    assert_eq!(source.depths(1..=8), [2; 4]);
    let other: Vec<u32> = (1..=4).chain(9..=12).collect();
    assert_eq!(source.matches_of(&kvtap::Prompt::new(&other, 4)), [(0, 0, [2; 4])]);
}

/// B62
#[test]
fn order_inside_a_batch_counts() {
    let held = || store(&[1], None, 1..=4);
    let mut source = Source::new();
    source.apply([held()]);
    source.apply([remove(&[1]), held()]);
    assert_eq!(source.depths(1..=4), HELD);
    source.apply([remove(&[1])]);
    source.apply([held(), remove(&[1])]);
    assert_eq!(source.depths(1..=4), [0; 4]);
    source.apply([held(), remove(&[1]), held()]);
    assert_eq!(source.depths(1..=4), HELD);
    source.apply([clear(), held(), clear()]);
    assert_eq!(source.depths(1..=4), [0; 4]);
}
