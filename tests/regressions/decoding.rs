//! What other decoders choke on: encodings, odd fields, one bad event among good ones.

use kvtap::wire::{EventErrorKind, Field};
use kvtap::{DigestHalf, Prompt, Reason, Verdict};
use rmpv::Value;

use crate::support::source::{
    Counts, Event, Source, hash_list, list, pack, payload, record, remove, store, token_list,
};

const HELD: [u32; 4] = [1; 4];

/// B01
#[test]
fn map_events_are_stores_like_any_other_also_beside_array_events() {
    let full = store(&[11], None, 1..=4)
        .set("lora_id", Value::Nil)
        .set("medium", "GPU")
        .set("lora_name", Value::Nil);
    let mut source = Source::new();
    let seen = source.apply([full]);
    assert_eq!(seen.verdicts, [Verdict::Place]);
    assert_eq!(seen.ops(), [('+', "device", 11)]);
    assert_eq!(source.depths(1..=4), HELD);

    let tuple = list!["BlockStored", list![12], 11, token_list(5..=8), 4, Value::Nil, "GPU"];
    let map = Value::from(store(&[13], Some(12), 9..=12));
    let seen = source.apply([tuple, map]);
    assert_eq!(seen.ops(), [('+', "device", 12), ('+', "device", 13)]);
    assert_eq!(source.depths(1..=12), [3; 4]);
    assert_eq!(source.counts(), Counts { stored: 3, placed: 3, ..Counts::default() });
}

/// B03
#[test]
fn a_two_element_envelope_takes_the_rank_from_the_registration() {
    let mut source = Source::with(|config| config.dp_rank = 3);
    let event = list!["BlockStored", list![11], Value::Nil, token_list(1..=4), 4, Value::Nil];
    source.try_apply(&pack(&list![1.0, list![event]])).expect("a sound payload");
    assert_eq!(source.matches(1..=4), [(0, 3, HELD)]);
}

/// B05
#[test]
fn digests_of_any_length_are_hashes_and_mix_with_integers() {
    let digest = |last: u8| {
        let mut bytes = [0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77].repeat(4);
        bytes[31] = last;
        Value::Binary(bytes)
    };
    let event = store(&[], None, 1..=16).set(
        "block_hashes",
        list![digest(0xff), Value::Binary(vec![1, 2, 3, 4, 5, 6, 7, 8]), Value::Binary(vec![9]), 10],
    );
    let child = store(&[11], None, 17..=20).set("parent_block_hash", Value::Binary(vec![0x0a]));
    let root_again = store(&[12], None, 5..=8).set("parent_block_hash", digest(0xff));
    for (half, first) in [(DigestHalf::Low, 0x0011_2233_4455_66ff), (DigestHalf::High, 0x0011_2233_4455_6677)]
    {
        let mut source = Source::with(|config| config.digest = half);
        let seen = source.apply([event.clone(), child.clone(), root_again.clone()]);
        let stored: Vec<_> = seen.ops().iter().map(|&(_, _, hash)| hash).collect();
        assert_eq!(stored, [first, 0x0102_0304_0506_0708, 9, 10, 11, 12]);
        assert_eq!(source.depths(1..=20), [5; 4]);
    }
}

/// B05
#[test]
fn an_empty_digest_costs_its_event_alone() {
    let empty = store(&[], None, 1..=4).set("block_hashes", list![Value::Binary(Vec::new())]);
    let mut source = Source::new();
    let seen = source.apply([store(&[1], None, 1..=4), empty, store(&[2], Some(1), 5..=8)]);
    assert_eq!(
        (seen.error(1).kind(), seen.error(1).field()),
        (EventErrorKind::EmptyDigest, Field::BlockHashes)
    );
    assert_eq!(source.counts(), Counts { stored: 2, placed: 2, malformed: 1, ..Counts::default() });
}

/// B07
#[test]
fn an_unknown_tag_is_counted_by_name_and_the_rest_of_the_batch_applied() {
    let mut source = Source::new();
    source.apply([store(&[2], None, 5..=8)]);
    let tier_clear = Value::from(Event::new("TierBlocksCleared").set("medium", "GPU"));
    let inactive = list!["BlockInactive", list![1]];
    let seen =
        source.apply([store(&[1], None, 1..=4).into(), tier_clear, inactive, Value::from(remove(&[2]))]);
    assert_eq!(seen.verdicts, [Verdict::Place, Verdict::Unknown, Verdict::Unknown, Verdict::Place]);
    assert_eq!(seen.ops(), [('+', "device", 1), ('-', "device", 2)]);
    assert_eq!((source.depths(1..=4), source.depths(5..=8)), (HELD, [0; 4]));
    let expected = [("unknown_tag:TierBlocksCleared", 1), ("unknown_tag:BlockInactive", 1)];
    assert_eq!(source.drift(), expected.map(|(label, count)| (label.to_owned(), count)));
    assert_eq!(
        source.counts(),
        Counts { stored: 2, removed: 1, unknown: 2, placed: 2, evicted: 1, ..Counts::default() }
    );
}

/// B08
#[test]
fn a_malformed_event_does_not_cost_its_batch_mates() {
    let mut source = Source::new();
    let broken = Event::new("BlockStored").set("block_hashes", hash_list(&[2]));
    let seen = source.apply([store(&[1], None, 1..=4), broken, store(&[3], Some(1), 5..=8)]);
    assert_eq!((seen.error(1).kind(), seen.error(1).field()), (EventErrorKind::Missing, Field::TokenIds));
    assert_eq!(source.depths(1..=8), [2; 4]);
    assert_eq!(source.counts(), Counts { stored: 2, placed: 2, malformed: 1, ..Counts::default() });
}

/// B09
#[test]
fn eagle_pairs_hash_windows_of_one_token_more() {
    let pairs = list![list![1, 2], list![2, 3], list![3, 4], list![4, 5]];
    let mut source = Source::new();
    let seen = source.apply([list!["BlockStored", list![1], Value::Nil, pairs, 4, Value::Nil, "GPU"]]);
    assert_eq!(seen.verdicts, [Verdict::Place]);
    assert_eq!(source.ingest.counters().placed_tokens, 4);
    let eagle = |tokens| Prompt { bigram: true, ..Prompt::new(tokens, 4) };
    assert_eq!(source.matches_of(&eagle(&[1, 2, 3, 4, 5])), [(0, 0, HELD)]);
    assert_eq!(source.matches_of(&eagle(&[1, 2, 3, 4, 6])), [], "the fifth token counts");
    assert_eq!(source.matches_of(&eagle(&[1, 2, 3, 4])), [], "no complete window");
    assert_eq!(source.depths(1..=5), [0; 4], "a plain prompt asks for other blocks");
}

/// B11
#[test]
fn a_metadata_map_in_the_slot_of_the_adapter_name_gives_the_salt() {
    let salt = record! { "other": list![1], "cache_salt": "tenant-a", "more": Value::Nil };
    let event = |hash: u64, tokens, slot_7: Value| {
        list!["BlockStored", list![hash], Value::Nil, token_list(tokens), 4, Value::Nil, "GPU", slot_7]
    };
    let mut source = Source::new();
    let seen = source.apply([event(1, 1..=4, salt), event(2, 5..=8, Value::Nil)]);
    assert_eq!(seen.verdicts, [Verdict::Place; 2]);
    assert_eq!(source.depths_in("", "tenant-a", 1..=4), HELD);
    assert_eq!(source.depths_in("", "tenant-b", 1..=4), [0; 4]);
    assert_eq!(source.depths(1..=4), [0; 4]);
    assert_eq!(source.depths(5..=8), HELD);
    assert_eq!(source.depths_in("", "tenant-a", 5..=8), [0; 4]);
}

/// B13
#[test]
fn a_skipped_middle_slot_makes_the_event_malformed_not_guessed_at() {
    let mut source = Source::new();
    source.apply([store(&[1], None, 1..=4)]);
    let shifted_removal = list!["BlockRemoved", list![1], 0, "full_attention"];
    let shifted_store =
        list!["BlockStored", list![2], Value::Nil, token_list(1..=4), "CPU", Value::Nil, Value::Nil];
    let sound = Value::from(store(&[3], Some(1), 5..=8));
    let seen = source.apply([shifted_removal, shifted_store, sound]);
    assert_eq!((seen.error(0).kind(), seen.error(0).field()), (EventErrorKind::WrongType, Field::Medium));
    assert_eq!((seen.error(1).kind(), seen.error(1).field()), (EventErrorKind::WrongType, Field::BlockSize));
    assert_eq!(source.depths(1..=8), [2; 4]);
    assert_eq!(source.counts(), Counts { stored: 2, placed: 2, malformed: 2, ..Counts::default() });
}

/// B15
#[test]
fn mooncake_masters_milliseconds_nil_tokens_and_lower_case_media_are_read() {
    let mut source = Source::new();
    source.apply([store(&[5], None, 1..=4)]);
    let event = record! {
        "event_type": "stored", "type": "BlockStored", "event_id": 7, "seq_hashes": list![5],
        "block_hashes": list![5], "parent_hash": Value::Nil, "parent_block_hash": Value::Nil,
        "token_ids": Value::Nil, "base_block_idx": 0, "backend_id": "d0", "medium": "cpu",
        "object_key": "5", "tenant_id": "default",
    };
    let bytes = pack(&list![1_739_145_600_000_u64, list![event], 0]);
    let applied = source.ingest.apply(&bytes).expect("a sound payload");
    assert!((applied.timestamp - 1_739_145_600.0).abs() < 1e-6, "{}", applied.timestamp);
    assert_eq!(source.counts(), Counts { stored: 2, placed: 2, ..Counts::default() });
    assert_eq!(source.depths(1..=4), HELD);
    source.apply([remove(&[5])]);
    assert_eq!(source.depths(1..=4), [0, 1, 1, 1], "held in host memory");
    let keys =
        ["event_type", "event_id", "seq_hashes", "parent_hash", "base_block_idx", "backend_id", "object_key"];
    let mut expected: Vec<_> = keys.map(|key| (format!("unknown_key:{key}"), 1)).into();
    expected.push(("unknown_key:tenant_id".to_owned(), 1));
    assert_eq!(source.drift(), expected);
}

/// B27
#[test]
fn a_multimodal_block_shorter_than_ours_is_a_mismatch_not_a_panic() {
    let mut source = Source::with(|config| config.block_size = 16);
    let event =
        store(&[1], None, 1..=8).set("block_size", 8).set("extra_keys", list![list![list!["img", 0]]]);
    let seen = source.apply([event]);
    assert_eq!(seen.verdicts, [Verdict::Filter(Reason::BlockSizeMismatch)]);
    assert_eq!(
        source.counts(),
        Counts { stored: 1, filtered: vec![("block_size_mismatch", 1)], ..Counts::default() }
    );
}

/// B28
#[test]
fn an_empty_hash_list_with_tokens_is_counted_and_does_nothing() {
    let mut source = Source::new();
    let seen = source.apply([store(&[], None, 1..=16), store(&[], Some(9), 1..=4)]);
    assert_eq!(seen.verdicts, [Verdict::Filter(Reason::NoHashes); 2]);
    assert_eq!(source.counts(), Counts { stored: 2, filtered: vec![("no_hashes", 2)], ..Counts::default() });
    assert_eq!(source.ingest.entries(), 0);
}

/// B47
#[test]
fn an_unknown_key_costs_nothing_and_is_counted_once_per_event() {
    let mut source = Source::new();
    source.apply([store(&[10], None, 5..=8)]);
    let odd = || store(&[1], None, 1..=4).set("origin", "x");
    source.apply([odd(), remove(&[10]).set("medium", "GPU")]);
    assert_eq!((source.depths(1..=4), source.depths(5..=8)), (HELD, [0; 4]));
    assert_eq!(source.drift(), [("unknown_key:origin".to_owned(), 1)]);
    source.apply([odd(), odd()]);
    assert_eq!(source.drift(), [("unknown_key:origin".to_owned(), 3)]);
    assert_eq!(source.counts(), Counts { stored: 4, removed: 1, placed: 4, evicted: 1, ..Counts::default() });
}

/// B21: a count of copies on the wire is not known yet; it is one more unknown key.
#[test]
fn remaining_copy_counts_on_a_removal_are_drift_and_copies_are_counted_here() {
    let mut source = Source::new();
    source.apply([store(&[1], None, 1..=4), store(&[1], None, 1..=4)]);
    source.apply([remove(&[1]).set("remaining_copy_counts", list![1])]);
    assert_eq!(source.depths(1..=4), HELD);
    source.apply([remove(&[1]).set("remaining_copy_counts", list![0])]);
    assert_eq!(source.depths(1..=4), [0; 4]);
    assert_eq!(source.drift(), [("unknown_key:remaining_copy_counts".to_owned(), 2)]);
}

/// A refused payload between sound ones leaves the source as it was.
#[test]
fn a_refused_payload_costs_no_block_of_its_source() {
    let mut source = Source::new();
    source.apply([store(&[1], None, 1..=4)]);
    let mut cut = payload([remove(&[1]), remove(&[1])], 0);
    cut.pop();
    source.try_apply(&cut).expect_err("cut short");
    assert_eq!(source.depths(1..=4), HELD);
    let counters = source.ingest.counters();
    assert_eq!((counters.batches, counters.malformed_batches, counters.removed_events), (2, 1, 0));
}
