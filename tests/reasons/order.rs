//! An event that fails several steps is filtered by the first of them.

use kvtap::{Reason, Verdict};
use rmpv::Value;

use crate::group;
use crate::support::source::{Event, Source, clear, list, remove, store, store_by_hash};

/// A way to make an event fail one step, and the reason it then has.
type Fault = (fn(Event) -> Event, Reason);

/// By step; every fault can be added to a store of block 1 below the ambiguous parent 9.
const FAULTS: [&[Fault]; 9] = [
    &[
        (|event| event.set("ownership", "kvcr"), Reason::UnsupportedOwnership),
        (|event| event.set("ownership", "x"), Reason::UnknownOwnership),
    ],
    &[(|event| event.set("locality", "REMOTE"), Reason::NonLocalLocality)],
    &[(|event| event.set("medium", "tape"), Reason::UnknownMedium)],
    &[
        (|event| event.set("kv_cache_spec_kind", "mamba"), Reason::NonMainAttentionKind),
        (|event| event.set("kv_cache_spec_kind", "rwkv"), Reason::UnknownKind),
        (|event| event.set("group_idx", 1), Reason::NonMainAttentionGroup),
        (|event| event.set("group_idx", 2), Reason::UnlearnedGroupIdx),
    ],
    &[(|event| event.set("parent_block_hash", 9), Reason::AmbiguousCacheNamespace)],
    &[
        (|event| event.set("block_size", 2), Reason::PartialBlock),
        (|event| event.set("block_size", 8), Reason::BlockSizeMismatch),
    ],
    &[
        (|event| event.set("block_hashes", list![]), Reason::NoHashes),
        (|event| event.set("block_hashes", list![1, 1]), Reason::SelfReferencing),
        (|event| event.set("token_ids", list![1, 2, 3, 4, 5, 6, 7, 8, 9]), Reason::ExcessTokens),
    ],
    &[(|event| event.set("parent_block_hash", 77), Reason::UnknownParent)],
    &[(|event| event.set("token_ids", list![1, 2]), Reason::ShortTokens)],
];

/// A source with a proven block size, an ambiguous block 9 and a learned group 1.
fn source() -> Source {
    let mut source = Source::new();
    source.apply([
        store(&[9], None, 91..=94).set("cache_salt", "a"),
        store(&[9], None, 91..=94),
        group(store(&[1], None, 1..=4), 1, "mamba"),
    ]);
    assert_eq!(source.counts().filtered, [("non_main_attention_kind", 1), ("rehashed", 1)]);
    source
}

/// What became of one event: the reasons counted for it.
fn reasons(source: &mut Source, event: Event) -> Vec<(Reason, u64)> {
    let before = source.ingest.counters().clone();
    source.apply([event]);
    let after = source.ingest.counters();
    let counts = Reason::ALL.map(|reason| (reason, after.filtered(reason) - before.filtered(reason)));
    counts.into_iter().filter(|&(_, count)| count > 0).collect()
}

fn plain() -> Event {
    store(&[1], None, 1..=4)
}

#[test]
fn each_fault_alone_gives_its_reason() {
    for (fault, reason) in FAULTS.into_iter().flatten() {
        assert_eq!(reasons(&mut source(), fault(plain())), [(*reason, 1)]);
    }
}

/// Faults of one field exclude each other; all other pairs, adjacent or not, are tried.
#[test]
fn of_two_failing_steps_the_earlier_gives_the_reason() {
    let mut pairs = 0;
    for (step, earlier) in FAULTS.into_iter().enumerate() {
        for later in &FAULTS[step + 1..] {
            for (first, reason) in earlier {
                for (second, other) in *later {
                    let event = second(first(plain()));
                    // A later fault of the same field undoes the earlier one.
                    if Value::from(first(event.clone())) != Value::from(event.clone()) {
                        continue;
                    }
                    pairs += 1;
                    let both = reasons(&mut source(), event);
                    assert_eq!(both, [(*reason, 1)], "{} before {}", reason.label(), other.label());
                }
            }
        }
    }
    assert!(pairs > 80, "{pairs}");
}

#[test]
fn inside_the_seventh_step_no_hashes_come_before_repeated_ones_before_excess_tokens() {
    let event = store(&[], None, 1..=9);
    assert_eq!(reasons(&mut source(), event), [(Reason::NoHashes, 1)]);
    let event = store(&[1, 1], None, 1..=9);
    assert_eq!(reasons(&mut source(), event), [(Reason::SelfReferencing, 1)]);
}

#[test]
fn an_unknown_parent_counts_every_block_and_no_short_one() {
    let event = store(&[1, 2, 3], Some(77), 1..=5);
    assert_eq!(reasons(&mut source(), event), [(Reason::UnknownParent, 3)]);
}

/// The parent is ambiguous only where it is asked for its salt.
#[test]
fn a_store_without_tokens_does_not_read_the_namespace_of_its_parent() {
    let below = store(&[1], Some(9), 1..=4).set("token_ids", list![]);
    assert_eq!(reasons(&mut source(), below), [(Reason::ShortTokens, 1)]);
    let by_hash = store_by_hash(&[9], "CPU").set("parent_block_hash", 9);
    assert_eq!(reasons(&mut source(), by_hash), [(Reason::SelfReferencing, 1)]);
    let by_hash = store_by_hash(&[9, 1], "CPU").set("parent_block_hash", 77);
    assert_eq!(reasons(&mut source(), by_hash), [(Reason::UnresolvedHash, 1)], "no parent is looked up");
}

#[test]
fn only_the_steps_of_an_event_are_judged() {
    let mut source = source();
    // A clear has an owner and nothing else.
    let odd = clear().set("locality", "REMOTE").set("medium", "tape").set("kv_cache_spec_kind", "mamba");
    let seen = source.apply([odd]);
    assert_eq!((seen.verdicts, source.ingest.entries()), (vec![Verdict::Place], 0));
    // A removal is judged as far as its group.
    let removal = remove(&[1]).set("block_size", 8).set("parent_block_hash", 1);
    assert_eq!(reasons(&mut source, removal), [(Reason::UnknownBlock, 1)]);
    // Below host memory there are no groups.
    for medium in ["DISK", "EXTERNAL"] {
        let event = group(plain(), 1, "mamba").set("medium", medium);
        assert_eq!(reasons(&mut source, event), []);
    }
}

/// What is filtered before the fourth step teaches no group.
#[test]
fn an_event_filtered_early_teaches_nothing() {
    for (key, value) in
        [("ownership", "kvcr"), ("locality", "REMOTE"), ("medium", "tape"), ("medium", "DISK")]
    {
        let mut source = Source::new();
        source.apply([group(store(&[5], None, 51..=54), 3, "full_attention").set(key, value)]);
        let event = plain().set("group_idx", 3);
        assert_eq!(reasons(&mut source, event), [(Reason::UnlearnedGroupIdx, 1)], "{key} {value}");
    }
}

/// Only what passed the fourth step proves the block size.
#[test]
fn a_filtered_full_block_proves_nothing() {
    for (key, value) in [("ownership", "kvcr"), ("kv_cache_spec_kind", "mamba"), ("locality", "x")] {
        let mut source = Source::new();
        source.apply([plain().set(key, value)]);
        let tail = plain().set("block_size", 2).set("token_ids", list![1, 2]);
        assert_eq!(reasons(&mut source, tail), [(Reason::BlockSizeMismatch, 1)], "{key} {value}");
    }
}

/// A full block that a later step refuses was still a full block.
#[test]
fn a_full_block_with_an_unknown_parent_proves_the_size() {
    let mut source = Source::new();
    source.apply([store(&[1], Some(77), 1..=4)]);
    let tail = plain().set("block_size", 2).set("token_ids", list![1, 2]);
    assert_eq!(reasons(&mut source, tail), [(Reason::PartialBlock, 1)]);
}

#[test]
fn a_gate_that_cannot_be_read_is_malformed_before_any_step() {
    let mut source = source();
    let seen = source.apply([plain().set("ownership", "kvcr").set("group_idx", "x")]);
    assert!(matches!(seen.verdicts[..], [Verdict::Malformed(_)]));
    let seen = source.apply([plain().set("block_size", 8).set("cache_salt", 1)]);
    assert!(matches!(seen.verdicts[..], [Verdict::Malformed(_)]), "the body is read before the fifth step");
    assert_eq!(source.counts().malformed, 2);
}
