//! Every reason for not placing: the smallest input that reaches it, its exact count and scope, and what it left alone.
//! Then the order of the steps, and that one rank's state is not another's.

mod support;

#[path = "reasons/order.rs"]
mod order;
#[path = "reasons/ranks.rs"]
mod ranks;

use kvtap::{Placement, Reason, Scope, Verdict};
use rmpv::Value;
use support::source::{Event, Source, clear, list, remove, store, store_by_hash};

/// One way to reach a reason.
struct Case {
    reason: Reason,
    scope: Scope,
    /// What the input is.
    name: &'static str,
    /// Events before, all of which are placed.
    before: Vec<Event>,
    /// The event that reaches the reason.
    event: Event,
    count: u64,
}

fn case(reason: Reason, scope: Scope, name: &'static str, event: Event) -> Case {
    Case { reason, scope, name, before: Vec::new(), event, count: 1 }
}

impl Case {
    fn after(self, before: impl IntoIterator<Item = Event>) -> Self {
        Self { before: before.into_iter().collect(), ..self }
    }

    fn times(self, count: u64) -> Self {
        Self { count, ..self }
    }
}

fn stored() -> Event {
    store(&[1], None, 1..=4)
}

fn group(event: Event, group_idx: u32, kind: &str) -> Event {
    event.set("group_idx", group_idx).set("kv_cache_spec_kind", kind)
}

/// Whole events, steps 1 to 4.
fn gate_cases() -> Vec<Case> {
    use Reason::{
        NonLocalLocality, NonMainAttentionGroup, NonMainAttentionKind, UnknownKind, UnknownMedium,
        UnknownOwnership, UnlearnedGroupIdx, UnsupportedOwnership,
    };
    let mut cases = vec![
        case(UnsupportedOwnership, Scope::Event, "a store", stored().set("ownership", "kvcr")),
        case(UnsupportedOwnership, Scope::Event, "a removal", remove(&[9]).set("ownership", "kvcr")),
        case(UnsupportedOwnership, Scope::Event, "a clear", clear().set("ownership", "kvcr")),
        case(UnknownOwnership, Scope::Event, "another name", stored().set("ownership", "KVCR")),
        case(UnknownOwnership, Scope::Event, "an empty name", stored().set("ownership", "")),
        case(UnknownOwnership, Scope::Event, "a clear of another", clear().set("ownership", "x")),
        case(NonLocalLocality, Scope::Event, "a remote store", stored().set("locality", "REMOTE")),
        case(NonLocalLocality, Scope::Event, "another case", stored().set("locality", "local")),
        case(NonLocalLocality, Scope::Event, "an empty one", remove(&[9]).set("locality", "")),
        case(UnknownMedium, Scope::Event, "a tape", stored().set("medium", "tape")),
        case(UnknownMedium, Scope::Event, "a removal", remove(&[9]).set("medium", "CPU_TIER3")),
        case(UnknownMedium, Scope::Event, "a space", stored().set("medium", " ")),
        case(UnknownKind, Scope::Event, "on the event", stored().set("kv_cache_spec_kind", "rwkv")),
        case(UnknownKind, Scope::Event, "empty", group(stored(), 0, "")),
        case(UnknownKind, Scope::Event, "learned", stored().set("group_idx", 3)),
        case(NonMainAttentionGroup, Scope::Event, "a removal", remove(&[9]).set("group_idx", 1)),
        case(NonMainAttentionGroup, Scope::Event, "group 0", stored().set("group_idx", 0)),
        case(UnlearnedGroupIdx, Scope::Event, "a store", stored().set("group_idx", 1)),
        case(UnlearnedGroupIdx, Scope::Event, "a removal", remove(&[9]).set("group_idx", u32::MAX)),
        case(UnlearnedGroupIdx, Scope::Event, "on the host", {
            stored().set("group_idx", 1).set("medium", "CPU")
        }),
    ];
    for kind in [
        "sliding_window",
        "sliding_window_mla",
        "mamba",
        "chunked_local_attention",
        "encoder_only_attention",
        "cross_attention",
    ] {
        cases.push(case(NonMainAttentionKind, Scope::Event, kind, stored().set("kv_cache_spec_kind", kind)));
    }
    cases
}

/// Whole events, steps 5 to 7.
fn body_cases() -> Vec<Case> {
    use Reason::{
        AmbiguousCacheNamespace, BlockSizeMismatch, ExcessTokens, NoHashes, PartialBlock, SelfReferencing,
    };
    let held = || [store(&[9], None, 91..=94)];
    let two_salts = || ["a", "b"].map(|salt| store(&[9], None, 91..=94).set("cache_salt", salt));
    let many: Vec<_> = (1..=20).collect();
    let repeated: Vec<_> = (1..=20).chain([1]).collect();
    let pairs = list![list![1, 2], list![2, 3], list![3, 4], list![4, 5], list![5, 6]];
    let small = |size: u32| store(&[1], None, 1..=size).set("block_size", size);
    vec![
        case(AmbiguousCacheNamespace, Scope::Event, "two salts", store(&[1], Some(9), 1..=4))
            .after(two_salts()),
        case(AmbiguousCacheNamespace, Scope::Event, "a salt, then none", store(&[1], Some(9), 1..=4))
            .after([two_salts()[0].clone(), store(&[9], None, 91..=94)]),
        case(AmbiguousCacheNamespace, Scope::Event, "on disk", {
            store(&[1], Some(9), 1..=4).set("medium", "DISK")
        })
        .after(two_salts()),
        case(PartialBlock, Scope::Event, "after a full one", small(2)).after(held()),
        case(PartialBlock, Scope::Event, "size 0 on the device", {
            store(&[1], None, 1..=4).set("block_size", 0)
        })
        .after(held()),
        case(BlockSizeMismatch, Scope::Event, "smaller, no full one seen", small(3)),
        case(BlockSizeMismatch, Scope::Event, "larger", small(8)).after(held()),
        case(BlockSizeMismatch, Scope::Event, "on disk", small(8).set("medium", "DISK")),
        case(BlockSizeMismatch, Scope::Event, "by hash alone on the device", store_by_hash(&[1], "GPU")),
        case(NoHashes, Scope::Event, "no hashes", store(&[], None, 1..=4)),
        case(NoHashes, Scope::Event, "nothing at all", store_by_hash(&[], "CPU")),
        case(SelfReferencing, Scope::Event, "repeated", store(&[1, 2, 1], None, 1..=12)),
        case(SelfReferencing, Scope::Event, "its own parent", store(&[9], Some(9), 1..=4)).after(held()),
        case(SelfReferencing, Scope::Event, "its own unknown parent", store(&[1], Some(1), 1..=4)),
        case(SelfReferencing, Scope::Event, "late among many", store(&repeated, None, 1..=84)),
        case(SelfReferencing, Scope::Event, "the parent among many", store(&many, Some(20), 1..=80)),
        case(SelfReferencing, Scope::Event, "by hash alone", store_by_hash(&[9, 9], "CPU")).after(held()),
        case(ExcessTokens, Scope::Event, "one block too many", store(&[1], None, 1..=8)),
        case(ExcessTokens, Scope::Event, "one token too many", store(&[1], None, 1..=5)),
        case(ExcessTokens, Scope::Event, "one too many for two", store(&[1, 2], None, 1..=9)),
        case(ExcessTokens, Scope::Event, "one too many for twenty", store(&many, None, 1..=81)),
        case(
            ExcessTokens,
            Scope::Event,
            "one pair too many",
            store(&[1], None, 1..=4).set("token_ids", pairs),
        ),
    ]
}

/// Single blocks.
fn block_cases() -> Vec<Case> {
    use Reason::{Rehashed, ShortTokens, UnknownBlock, UnknownParent, UnresolvedHash};
    let held = || [store(&[9], None, 91..=94)];
    vec![
        case(UnknownParent, Scope::Block, "never seen", store(&[1, 2, 3], Some(8), 1..=12)).times(3),
        case(UnknownParent, Scope::Block, "left", store(&[1], Some(9), 1..=4))
            .after([held()[0].clone(), remove(&[9])]),
        case(UnknownParent, Scope::Block, "no tokens either", {
            store(&[1, 2], Some(8), 1..=4).set("token_ids", list![])
        })
        .times(2),
        case(ShortTokens, Scope::Block, "none", stored().set("token_ids", list![])),
        case(ShortTokens, Scope::Block, "nil", stored().set("token_ids", Value::Nil)),
        case(ShortTokens, Scope::Block, "too few for one", store(&[1], None, 1..=3)),
        case(UnresolvedHash, Scope::Block, "never seen", store_by_hash(&[1, 2], "CPU")).times(2),
        case(UnresolvedHash, Scope::Block, "left", store_by_hash(&[9], "STORAGE"))
            .after([held()[0].clone(), remove(&[9])]),
        case(UnknownBlock, Scope::Block, "never seen", remove(&[1, 2])).times(2),
        case(UnknownBlock, Scope::Block, "at another tier", remove(&[9]).set("medium", "CPU")).after(held()),
        case(Rehashed, Scope::Block, "other tokens", store(&[9], None, 1..=4)).after(held()),
    ]
}

fn cases() -> Vec<Case> {
    let mut cases = gate_cases();
    for case in &mut cases {
        // A group is learned from an event that is filtered itself: of the other kind, under the group's number.
        case.before = match (case.reason, case.name) {
            (Reason::UnknownKind, "learned") => vec![group(stored(), 3, "rwkv")],
            (Reason::NonMainAttentionGroup, "group 0") => vec![group(stored(), 0, "mamba")],
            (Reason::NonMainAttentionGroup, _) => vec![group(stored(), 1, "mamba")],
            _ => Vec::new(),
        };
    }
    cases.into_iter().chain(body_cases()).chain(block_cases()).collect()
}

#[test]
fn every_reason_is_reached_counted_exactly_and_places_nothing() {
    for Case { reason, scope, name, before, event, count } in cases() {
        let what = format!("{}: {name}", reason.label());
        assert_eq!(reason.scope(), scope, "{what}");
        let mut source = Source::new();
        source.apply(before);
        let held = (source.ingest.entries(), source.ingest.digest());
        let counters = source.ingest.counters().clone();
        let seen = source.apply([event]);

        let counts = |reason: Reason| source.ingest.counters().filtered(reason) - counters.filtered(reason);
        let counted: Vec<_> =
            Reason::ALL.into_iter().map(|reason| (reason, counts(reason))).filter(|&(_, n)| n > 0).collect();
        assert_eq!(counted, [(reason, count)], "{what}");

        // Unknown parents are counted by block, though the whole event is filtered.
        let whole = scope == Scope::Event || reason == Reason::UnknownParent;
        let verdict = if whole { Verdict::Filter(reason) } else { Verdict::Place };
        assert_eq!(seen.verdicts, [verdict], "{what}");

        if reason == Reason::Rehashed {
            assert!(matches!(seen.placements[..], [Placement::Store { .. }]), "{what}: placed all the same");
            continue;
        }
        assert_eq!(seen.placements, [], "{what}");
        assert_eq!((source.ingest.entries(), source.ingest.digest()), held, "{what}");
        let after = source.ingest.counters().clone();
        let blocks = (after.placed_blocks, after.removed_blocks, after.placed_tokens);
        assert_eq!(
            blocks,
            (counters.placed_blocks, counters.removed_blocks, counters.placed_tokens),
            "{what}"
        );
        assert_eq!(source.depths(1..=4), [0; 4], "{what}");
        if held.0 > 0 && counters.filtered(Reason::Rehashed) == 0 {
            assert_eq!(source.depths(91..=94), [1; 4], "{what}: what was held is held");
        }
        let events = after.stored_events + after.removed_events + after.cleared_events;
        let events_before = counters.stored_events + counters.removed_events + counters.cleared_events;
        assert_eq!((events - events_before, after.malformed_events), (1, 0), "{what}: still an event");
    }
}

#[test]
fn no_reason_is_left_out() {
    let reached: Vec<_> = cases().into_iter().map(|case| case.reason).collect();
    for reason in Reason::ALL {
        // Those need a thousand ranks, and a limit, and have tests of their own.
        let is_apart = matches!(reason, Reason::TooManyRanks | Reason::TooManyBlocks);
        assert!(is_apart || reached.contains(&reason), "{}", reason.label());
    }
}

#[test]
fn labels_are_the_documented_ones_in_the_order_of_the_steps() {
    let labels = Reason::ALL.map(Reason::label);
    let expected = [
        "too_many_ranks",
        "unsupported_ownership",
        "unknown_ownership",
        "non_local_locality",
        "unknown_medium",
        "non_main_attention_kind",
        "non_main_attention_group",
        "unknown_kind",
        "unlearned_group_idx",
        "ambiguous_cache_namespace",
        "partial_block",
        "block_size_mismatch",
        "no_hashes",
        "self_referencing",
        "excess_tokens",
        "unknown_parent",
        "too_many_blocks",
        "short_tokens",
        "unresolved_hash",
        "unknown_block",
        "rehashed",
    ];
    assert_eq!(labels, expected);
}

#[test]
fn too_few_tokens_place_the_leading_blocks_and_count_the_rest() {
    let mut source = Source::new();
    let seen = source.apply([store(&[1, 2, 3, 4], None, 1..=11)]);
    assert_eq!(seen.ops(), [('+', "device", 1), ('+', "device", 2)]);
    assert_eq!(source.counts().filtered, [("short_tokens", 2)]);
    assert_eq!(source.ingest.counters().placed_tokens, 8);
    assert_eq!(source.depths(1..=12), [2; 4]);
}

#[test]
fn exactly_enough_tokens_are_not_too_many() {
    for blocks in [1, 2, 8, 9, 20] {
        let hashes: Vec<u64> = (1..=blocks).collect();
        let tokens = u32::try_from(blocks).expect("small") * 4;
        let mut source = Source::new();
        source.apply([store(&hashes, None, 1..=tokens)]);
        let placed = source.ingest.counters().placed_blocks;
        assert_eq!((placed, source.counts().filtered), (blocks, vec![]));
    }
}

#[test]
fn a_removal_counts_what_is_unknown_and_takes_the_rest() {
    let mut source = Source::new();
    source.apply([store(&[1, 2], None, 1..=8)]);
    let seen = source.apply([remove(&[7, 2, 8, 1])]);
    assert_eq!(seen.ops(), [('-', "device", 2), ('-', "device", 1)]);
    assert_eq!(source.counts().filtered, [("unknown_block", 2)]);
}

#[test]
fn a_rehashed_block_is_replaced_on_every_tier() {
    let mut source = Source::new();
    let on = |medium: &str, tokens| store(&[1], None, tokens).set("medium", medium);
    source.apply([on("GPU", 1..=4), on("CPU", 1..=4), on("DISK", 1..=4), on("DISK", 1..=4)]);
    assert_eq!((source.depths(1..=4), source.ingest.entries()), ([1; 4], 3));
    source.apply([on("CPU", 5..=8)]);
    assert_eq!((source.depths(1..=4), source.depths(5..=8)), ([0; 4], [0, 1, 1, 1]));
    assert_eq!(source.ingest.entries(), 1);
    assert_eq!(source.counts().filtered, [("rehashed", 1)]);
    source.apply([remove(&[1]).set("medium", "DISK"), remove(&[1])]);
    assert_eq!(source.counts().filtered, [("unknown_block", 2), ("rehashed", 1)], "nothing is left there");
    source.apply([remove(&[1]).set("medium", "CPU")]);
    assert_eq!(source.ingest.entries(), 0);
}

#[test]
fn the_parent_of_old_sglang_roots_means_none() {
    let mut source = Source::new();
    let seen = source.apply([store(&[1, 2], Some(5_740_354_900_026_072_187), 1..=8)]);
    assert_eq!(seen.verdicts, [Verdict::Place]);
    assert_eq!(source.depths(1..=8), [2; 4]);
}

#[test]
fn every_medium_has_its_tier_in_any_case() {
    let tiers: [(&str, &[&str]); 4] = [
        ("device", &["", "GPU", "DEVICE"]),
        ("host_pinned", &["CPU", "CPU_PINNED", "CPU_TIER1"]),
        ("disk", &["CPU_TIER2", "DISK", "NVME", "STORAGE"]),
        ("external", &["EXTERNAL", "NETWORK", "REMOTE", "SHARED"]),
    ];
    for (tier, media) in tiers {
        for medium in media {
            let lower = medium.to_ascii_lowercase();
            let mixed = medium.get(..1).unwrap_or_default().to_owned() + lower.get(1..).unwrap_or_default();
            for medium in [medium, lower.as_str(), &mixed] {
                let seen = Source::new().apply([stored().set("medium", medium)]);
                assert_eq!(seen.ops(), [('+', tier, 1)], "{medium}");
            }
        }
    }
}
