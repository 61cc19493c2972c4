//! What is learned of one rank holds for no other, and one source cannot bring ranks without end.

use kvtap::{Reason, Verdict, Worker};

use crate::group;
use crate::support::source::{Event, Source, clear, list, payload, remove, store};

const HELD: [u32; 4] = [1; 4];

fn verdict(source: &mut Source, rank: u32, event: Event) -> Verdict {
    source.apply_rank(rank, [event]).verdicts[0]
}

fn tail() -> Event {
    store(&[50], None, 1..=2).set("block_size", 2)
}

#[test]
fn groups_are_learned_per_rank() {
    let mut source = Source::new();
    source.apply_rank(0, [group(store(&[1], None, 1..=4), 1, "full_attention")]);
    source.apply_rank(1, [group(store(&[1], None, 1..=4), 1, "mamba")]);
    let event = || store(&[2], None, 5..=8).set("group_idx", 1);
    assert_eq!(verdict(&mut source, 0, event()), Verdict::Place);
    assert_eq!(verdict(&mut source, 1, event()), Verdict::Filter(Reason::NonMainAttentionGroup));
    assert_eq!(verdict(&mut source, 2, event()), Verdict::Filter(Reason::UnlearnedGroupIdx));
    assert_eq!(source.matches(5..=8), [(0, 0, HELD)]);
}

#[test]
fn removed_events_teach_no_group() {
    let mut source = Source::new();
    source.apply([group(remove(&[1]), 1, "full_attention")]);
    let event = store(&[2], None, 5..=8).set("group_idx", 1);
    assert_eq!(verdict(&mut source, 0, event), Verdict::Filter(Reason::UnlearnedGroupIdx));
}

#[test]
fn a_group_learned_anew_changes_its_kind() {
    let mut source = Source::new();
    source.apply([
        group(store(&[1], None, 1..=4), 1, "mamba"),
        group(store(&[2], None, 5..=8), 1, "mla_attention"),
    ]);
    assert_eq!(verdict(&mut source, 0, store(&[3], Some(2), 9..=12).set("group_idx", 1)), Verdict::Place);
}

/// The same bytes, so that a verdict kept from before would be found.
#[test]
fn equal_events_are_judged_anew_once_their_group_is_learned_anew() {
    let mut source = Source::new();
    let event = || store(&[3], None, 9..=12).set("group_idx", 1);
    let teach = |kind: &str| group(store(&[1], None, 1..=4), 1, kind);
    let (main, other) = (Verdict::Place, Verdict::Filter(Reason::NonMainAttentionGroup));
    let unlearned = Verdict::Filter(Reason::UnlearnedGroupIdx);
    let unknown = Verdict::Filter(Reason::UnknownKind);
    assert_eq!(source.apply([event(), event()]).verdicts, [unlearned; 2]);
    for (kind, verdict) in
        [("mamba", other), ("full_attention", main), ("rwkv", unknown), ("sliding_window", other)]
    {
        let taught = source.apply([event(), teach(kind), event(), event()]).verdicts;
        assert_eq!(taught[2..], [verdict; 2], "{kind}, in its batch");
        assert_eq!(source.apply([event()]).verdicts, [verdict], "{kind}, in the next");
    }
    assert_eq!(source.apply_rank(1, [event()]).verdicts, [unlearned], "another rank has learned nothing");
}

#[test]
fn group_0_alone_is_main_without_being_learned() {
    let mut source = Source::new();
    let high = [4095, 4096, 65_535, 65_536, 1 << 24, u32::MAX - 1, u32::MAX];
    let numbers: Vec<u32> = (0..=1100).chain(high).collect();
    let event = |&number: &u32| store(&[number.into()], None, 1..=4).set("group_idx", number);
    let verdicts = source.apply(numbers.iter().map(event)).verdicts;
    for (number, verdict) in numbers.into_iter().zip(verdicts) {
        let right = if number == 0 { Verdict::Place } else { Verdict::Filter(Reason::UnlearnedGroupIdx) };
        assert_eq!(verdict, right, "group {number}");
    }
    let removed = source.apply([remove(&[9]).set("group_idx", 5)]).verdicts;
    assert_eq!(removed, [Verdict::Filter(Reason::UnlearnedGroupIdx)]);
}

#[test]
fn a_restart_forgets_all_of_every_rank() {
    let mut source = Source::new();
    for rank in 0..2 {
        source.apply_rank(rank, [group(store(&[1], None, 1..=4), 1, "full_attention")]);
    }
    source.ingest.restart();
    assert_eq!((source.matches(1..=4), source.ingest.entries()), (vec![], 0));
    for rank in 0..2 {
        let mismatch = Verdict::Filter(Reason::BlockSizeMismatch);
        assert_eq!(verdict(&mut source, rank, tail()), mismatch, "no full block was seen");
        let of_group = store(&[2], None, 5..=8).set("group_idx", 1);
        assert_eq!(verdict(&mut source, rank, of_group), Verdict::Filter(Reason::UnlearnedGroupIdx));
        assert_eq!(
            verdict(&mut source, rank, store(&[3], Some(1), 5..=8)),
            Verdict::Filter(Reason::UnknownParent)
        );
        assert_eq!(verdict(&mut source, rank, store(&[1], None, 1..=4)), Verdict::Place);
    }
    assert_eq!(source.matches(1..=4), [(0, 0, HELD), (0, 1, HELD)]);
}

#[test]
fn groups_survive_a_clear_of_their_rank() {
    let mut source = Source::new();
    source.apply([group(store(&[1], None, 1..=4), 1, "mamba"), clear()]);
    let event = store(&[2], None, 5..=8).set("group_idx", 1);
    assert_eq!(verdict(&mut source, 0, event), Verdict::Filter(Reason::NonMainAttentionGroup));
}

#[test]
fn the_block_size_is_proven_per_rank_until_its_clear() {
    let mut source = Source::new();
    source.apply_rank(0, [store(&[1], None, 1..=4)]);
    source.apply_rank(1, [store(&[1], None, 1..=4)]);
    assert_eq!(verdict(&mut source, 0, tail()), Verdict::Filter(Reason::PartialBlock));
    assert_eq!(verdict(&mut source, 2, tail()), Verdict::Filter(Reason::BlockSizeMismatch));
    source.apply_rank(0, [clear()]);
    assert_eq!(verdict(&mut source, 0, tail()), Verdict::Filter(Reason::BlockSizeMismatch));
    assert_eq!(verdict(&mut source, 1, tail()), Verdict::Filter(Reason::PartialBlock));
    let mismatches: Vec<_> = source.ingest.mismatched_block_sizes().collect();
    let worker = |dp_rank| Worker { worker_id: 0, dp_rank };
    assert_eq!(mismatches, [(worker(0), 2, 1), (worker(2), 2, 1)]);
}

#[test]
fn namespaces_are_inherited_inside_a_rank_only() {
    let mut source = Source::new();
    let root = |salt: &str| store(&[1], None, 1..=4).set("cache_salt", salt);
    source.apply_rank(0, [root("a")]);
    source.apply_rank(1, [root("b")]);
    source.apply_rank(2, [store(&[1], None, 1..=4)]);
    for rank in 0..3 {
        assert_eq!(verdict(&mut source, rank, store(&[2], Some(1), 5..=8)), Verdict::Place, "not ambiguous");
    }
    let mut depths = |salt: &str| source.depths_of_ranks(salt, 1..=8);
    assert_eq!(depths("a"), [(0, [2; 4])]);
    assert_eq!(depths("b"), [(1, [2; 4])]);
    assert_eq!(depths(""), [(2, [2; 4])]);
    assert_eq!(source.counts().filtered, []);
}

#[test]
fn engine_hashes_of_one_rank_mean_nothing_in_another() {
    let mut source = Source::new();
    source.apply_rank(0, [store(&[1], None, 1..=4)]);
    let child = store(&[2], Some(1), 5..=8);
    assert_eq!(verdict(&mut source, 1, child), Verdict::Filter(Reason::UnknownParent));
    source.apply_rank(1, [remove(&[1])]);
    assert_eq!(source.matches(1..=4), [(0, 0, HELD)]);
    assert_eq!(source.counts().filtered, [("unknown_parent", 1), ("unknown_block", 1)]);
}

#[test]
fn a_clear_empties_its_rank_alone() {
    let mut source = Source::new();
    for rank in [0, 1, 7] {
        source.apply_rank(rank, [store(&[1], None, 1..=4), store(&[2], None, 5..=8).set("medium", "DISK")]);
    }
    source.apply_rank(1, [clear()]);
    assert_eq!(source.matches(1..=4), [(0, 0, HELD), (0, 7, HELD)]);
    assert_eq!(source.matches(5..=8), [(0, 0, [0, 0, 1, 1]), (0, 7, [0, 0, 1, 1])]);
    assert_eq!(source.ingest.entries(), 4);
}

/// A clear that is filtered clears nothing.
#[test]
fn a_clear_of_another_owner_leaves_the_blocks() {
    let mut source = Source::new();
    source.apply([store(&[1], None, 1..=4)]);
    source.apply([clear().set("ownership", "kvcr")]);
    assert_eq!(verdict(&mut source, 0, tail()), Verdict::Filter(Reason::PartialBlock), "nor the proof");
    let filtered = source.counts().filtered;
    assert_eq!(
        (source.depths(1..=4), filtered),
        (HELD, vec![("unsupported_ownership", 1), ("partial_block", 1)])
    );
}

#[test]
fn a_source_may_bring_1024_ranks_and_no_more() {
    let mut source = Source::new();
    for rank in 0..1024 {
        assert_eq!(verdict(&mut source, rank, store(&[1], None, 1..=4)), Verdict::Place);
    }
    let before = (source.ingest.entries(), source.ingest.digest());
    let events = [
        store(&[1], None, 1..=4),
        remove(&[1]),
        clear(),
        Event::new("Tomorrow"),
        Event::new("BlockStored").set("ownership", "kvcr"),
    ];
    let seen = source.apply_rank(5000, events);
    let refused = Verdict::Filter(Reason::TooManyRanks);
    assert_eq!(seen.verdicts, [refused, refused, refused, Verdict::Unknown, refused]);
    assert_eq!(seen.placements, []);
    assert_eq!((source.ingest.entries(), source.ingest.digest()), before);
    assert_eq!(source.ingest.workers().len(), 1024);
    let counts = source.counts();
    assert_eq!((counts.stored, counts.removed, counts.cleared, counts.unknown), (1026, 1, 1, 1));
    assert_eq!(counts.filtered, [("too_many_ranks", 4)]);
    assert_eq!(Reason::TooManyRanks.scope(), kvtap::Scope::Event);

    // A broken event of such a batch is still broken, and known ranks go on.
    let broken = payload([list![1]], 5000);
    let seen = source.try_apply(&broken).expect("a sound payload");
    assert!(matches!(seen.verdicts[..], [Verdict::Malformed(_)]));
    assert_eq!(verdict(&mut source, 1023, store(&[2], Some(1), 5..=8)), Verdict::Place);
    assert_eq!(source.matches(1..=8).len(), 1024);

    // Another source of the same engine has ranks of its own.
    let mut other = source.engine.ingest(source.config.clone()).expect("a good source");
    other.apply(&payload([store(&[1], None, 1..=4)], 5000)).expect("a sound payload");
    assert_eq!(other.counters().filtered(Reason::TooManyRanks), 0);
}
