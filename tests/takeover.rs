//! What a source tells of itself and another takes over: from then on the two cannot be told apart.

mod support;

use std::collections::BTreeMap;

use kvtap::{
    Config, Copies, Counters, Engine, EngineHash, HeldBlock, HeldRank, Ingest, LocalHash, Match, Prompt,
    Reason, SourceConfig, Worker,
};

use support::generate::{self, StreamOptions};
use support::source::{Event, Source, clear, remove, store, store_by_hash};

/// Shards differ, so that nothing can depend on them.
fn ingest(shards: usize, options: &StreamOptions, copies: Copies) -> (Engine, Ingest) {
    let mut config = Config::default();
    config.shards = shards;
    let engine = Engine::new(config).unwrap();
    let mut source = SourceConfig::new(7);
    (source.block_size, source.copies) = (options.block_size, copies);
    let ingest = engine.ingest(source).unwrap();
    (engine, ingest)
}

/// All that is held, by rank and name; places that only lead to others have no name of their own.
fn held(ingest: &Ingest) -> Vec<(Worker, BTreeMap<u64, HeldBlock>, Vec<u64>)> {
    let mut ranks: Vec<_> = ingest.held().into_iter().filter(|rank| !rank.blocks.is_empty()).collect();
    ranks.sort_by_key(|rank| rank.worker.dp_rank);
    let of = |rank: HeldRank| {
        let (held, places): (Vec<_>, Vec<_>) = rank.blocks.into_iter().partition(HeldBlock::is_held);
        // Of several names of one place any may be told as the parent.
        let named = held.into_iter().map(|mut block| {
            block.parent = None;
            (block.engine_hash.0, block)
        });
        let mut places: Vec<u64> = places.iter().map(|place| place.local_hash.0).collect();
        places.sort_unstable();
        (rank.worker, named.collect(), places)
    };
    ranks.into_iter().map(of).collect()
}

fn answers(engine: &Engine, options: &StreamOptions) -> Vec<Vec<Match>> {
    let mut reader = engine.reader();
    let chains = (0..6).map(|chain| {
        let tokens = generate::prompt(chain, 8, options.block_size);
        let prompt = Prompt {
            lora_name: generate::lora_of(chain),
            cache_salt: generate::salt_of(chain),
            ..Prompt::new(&tokens, options.block_size)
        };
        let mut matches = Vec::new();
        reader.find_matches(&prompt, &mut matches);
        matches.sort_unstable();
        matches
    });
    chains.collect()
}

fn counted(counters: &Counters) -> Vec<u64> {
    let plain = [
        counters.stored_events,
        counters.removed_events,
        counters.cleared_events,
        counters.malformed_events,
        counters.placed_blocks,
        counters.removed_blocks,
        counters.placed_tokens,
    ];
    plain.into_iter().chain(Reason::ALL.into_iter().map(|reason| counters.filtered(reason))).collect()
}

#[test]
fn any_stream_may_change_hands_at_any_moment() {
    let options = StreamOptions { batches: 60, ..StreamOptions::default() };
    let (mut salted, mut copied, mut ambiguous, mut places, mut groups) = (0, 0, 0, 0, 0);
    for seed in 0..support::sized(120, 2) as u64 {
        let copies = if seed % 4 == 3 { Copies::Set } else { Copies::Count };
        let stream = generate::stream(seed, &options);
        let cut = 1 + usize::try_from(seed * 7 % 59).unwrap();
        let (engine, mut first) = ingest(3, &options, copies);
        for payload in &stream[..cut] {
            let _ = first.apply(payload);
        }
        let (other_engine, mut second) = ingest(2, &options, copies);
        let told = first.held();
        second.load(&told).unwrap();
        assert_eq!(counted(second.counters()), counted(&Counters::default()), "nothing of it is counted");
        for rank in &told {
            groups += usize::from(!rank.groups.is_empty());
            for block in &rank.blocks {
                salted += usize::from(block.salt.is_some());
                copied += usize::from(block.copies.iter().any(|&copies| copies > 1));
                ambiguous += usize::from(block.is_ambiguous);
                places += usize::from(!block.is_held());
            }
        }
        let before = counted(first.counters());
        for at in cut..=stream.len() {
            first.flush();
            second.flush();
            assert_eq!((first.digest(), first.entries()), (second.digest(), second.entries()), "{seed} {at}");
            assert_eq!(answers(&engine, &options), answers(&other_engine, &options), "{seed} {at}");
            assert_eq!(held(&first), held(&second), "{seed} {at}");
            if let Some(payload) = stream.get(at) {
                assert_eq!(first.apply(payload).is_ok(), second.apply(payload).is_ok());
            }
        }
        let after: Vec<u64> =
            counted(first.counters()).iter().zip(before).map(|(after, before)| after - before).collect();
        assert_eq!(counted(second.counters()), after, "{seed}");
    }
    if !cfg!(miri) {
        for (what, times) in [
            ("salt", salted),
            ("copies", copied),
            ("ambiguous", ambiguous),
            ("place", places),
            ("group", groups),
        ] {
            assert!(times > 20, "{what}: {times}");
        }
    }
}

/// A source that has taken over what another holds.
fn taken(from: &Source) -> Source {
    let mut source = Source::new();
    source.ingest.load(&from.ingest.held()).unwrap();
    source
}

#[test]
fn a_hole_stays_a_hole_until_its_block_comes_back() {
    let mut source = Source::new();
    source.apply([store(&[1, 2, 3], None, 1..=12), remove(&[1, 2])]);
    let mut other = taken(&source);
    assert_eq!(other.depths(1..=12), [0; 4]);
    assert_eq!(other.ingest.entries(), 1);
    other.apply([store(&[1], None, 1..=4)]);
    assert_eq!(other.depths(1..=12), [1; 4]);
    other.apply([store(&[22], Some(1), 5..=8)]);
    assert_eq!(other.depths(1..=12), [3; 4]);
    // The old names are gone here as there.
    other.apply([store(&[9], Some(2), 50..=53)]);
    assert_eq!(other.counts().filtered, [("unknown_parent", 1)]);
}

#[test]
fn what_was_learned_goes_along() {
    let mut source = Source::new();
    let salted = |event: Event| event.set("cache_salt", "s");
    let of_group = |event: Event, kind: &str| event.set("group_idx", 1).set("kv_cache_spec_kind", kind);
    source.apply([
        salted(store(&[1, 2], None, 1..=8)),
        store_by_hash(&[2], "CPU"),
        store_by_hash(&[2], "CPU"),
        of_group(store(&[50], None, 1..=4), "mamba"),
    ]);
    let mut other = taken(&source);
    // The salt is inherited, a copy is left, the group's kind and the block size are known.
    other.apply([
        store(&[3], Some(2), 9..=12),
        remove(&[2]).set("medium", "CPU"),
        remove(&[50]).set("group_idx", 1),
        store(&[60], None, 1..=2).set("block_size", 2),
    ]);
    assert_eq!(other.depths_in("", "s", 1..=12), [3; 4]);
    assert_eq!(other.depths(1..=12), [0; 4]);
    assert_eq!(other.ingest.held()[0].blocks.iter().map(|block| block.copies[1]).sum::<u32>(), 1);
    assert_eq!(other.counts().filtered, [("non_main_attention_group", 1), ("partial_block", 1)]);
    // A clear there is a clear here.
    other.apply([clear()]);
    assert_eq!((other.ingest.entries(), other.depths_in("", "s", 1..=12)), (0, [0; 4]));
}

#[test]
fn it_takes_the_place_of_what_was_held() {
    let mut source = Source::new();
    source.apply([store(&[1], None, 1..=4)]);
    let mut other = Source::new();
    other.apply([store(&[1, 2], None, 101..=108)]);
    other.ingest.load(&source.ingest.held()).unwrap();
    assert_eq!((other.depths(1..=4), other.depths(101..=108)), ([1; 4], [0; 4]));
    assert_eq!(other.ingest.digest(), source.ingest.digest());
}

#[test]
fn what_contradicts_itself_changes_nothing() {
    let worker = Worker { worker_id: 0, dp_rank: 0 };
    let block = |hash: u64, parent: Option<u64>| {
        let mut block = HeldBlock::new(EngineHash(hash), parent.map(EngineHash), LocalHash(hash));
        block.copies = [1, 0, 0, 0];
        block
    };
    let rank = |worker: Worker, blocks: Vec<HeldBlock>| {
        let mut rank = HeldRank::new(worker);
        rank.blocks = blocks;
        rank
    };
    let mut crowded = HeldRank::new(worker);
    crowded.groups = (0..1025).map(|group| (group, kvtap::GroupKind::Main)).collect();
    for (ranks, part) in [
        (vec![rank(worker, vec![block(1, Some(2))])], "parent of block 1"),
        (vec![rank(worker, vec![block(1, Some(1))])], "parent of block 1"),
        (vec![rank(worker, vec![block(1, Some(2)), block(2, Some(1))])], "parent of block 1"),
        (vec![rank(worker, vec![block(1, None), block(1, None)])], "block 1 of worker 0/0 comes twice"),
        (vec![rank(Worker { worker_id: 1, dp_rank: 0 }, vec![])], "worker 1/0"),
        (vec![rank(worker, vec![]), rank(worker, vec![])], "worker 0/0 comes twice"),
    ] {
        let mut source = Source::new();
        source.apply([store(&[1], None, 1..=4)]);
        let error = source.ingest.load(&ranks).unwrap_err().to_string();
        assert!(error.contains(part) && !error.contains('\n'), "{error}");
        assert_eq!(source.depths(1..=4), [1; 4], "{part}");
    }
    let mut source = Source::new();
    let error = source.ingest.load(&[crowded]).unwrap_err().to_string();
    assert!(error.contains("groups"), "{error}");
    // More ranks than a source may bring: nothing is held then.
    let many = (0..1025).map(|dp_rank| rank(Worker { worker_id: 0, dp_rank }, vec![block(1, None)]));
    let error = source.ingest.load(&many.collect::<Vec<_>>()).unwrap_err().to_string();
    assert!(error.contains("no room"), "{error}");
    assert_eq!(source.ingest.entries(), 0);
    // Absurd numbers are numbers.
    let mut absurd = block(u64::MAX, None);
    absurd.copies = [u32::MAX; 4];
    source.ingest.load(&[rank(worker, vec![absurd])]).unwrap();
    assert_eq!(source.ingest.entries(), 4);
}
