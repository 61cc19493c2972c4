//! The index behind its channels: order, visibility, sources that share an index, come and go, and outrun it.

mod support;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use kvtap::{Config, Engine, Ingest, LocalHash, Match, Prompt, Reader, SourceConfig, Wanted};
use support::pack::Choices;
use support::sized;
use support::source::{Event, clear, payload, remove, store};

fn engine(shards: usize) -> Engine {
    let mut config = Config::default();
    config.shards = shards;
    Engine::new(config).expect("a good configuration")
}

fn ingest(engine: &Engine, worker_id: u64, dp_rank: u32) -> Ingest {
    let mut config = SourceConfig::new(worker_id);
    config.block_size = 4;
    config.dp_rank = dp_rank;
    engine.ingest(config).expect("a good source")
}

/// Applies events of the source's own rank.
fn apply(ingest: &mut Ingest, events: impl IntoIterator<Item = Event>) {
    ingest.apply(&payload(events, rmpv::Value::Nil)).expect("a sound payload");
}

/// Worker, rank and device depth of all that match.
fn holders(reader: &mut Reader, tokens: std::ops::RangeInclusive<u32>) -> Vec<(u64, u32, u32)> {
    let tokens: Vec<u32> = tokens.collect();
    let mut matches = Vec::new();
    reader.find_matches(&Prompt::new(&tokens, 4), &mut matches);
    let plain = |found: &Match| (found.worker.worker_id, found.worker.dp_rank, found.depths[0]);
    let mut holders: Vec<_> = matches.iter().map(plain).collect();
    holders.sort_unstable();
    holders
}

/// What the block of four tokens from 1 on is asked by.
fn first_block() -> Vec<LocalHash> {
    let mut hashes = Vec::new();
    Prompt::new(&[1, 2, 3, 4], 4).local_hashes(&mut hashes);
    hashes
}

/// A chain that lies on every shard.
fn chain(hashes: std::ops::RangeInclusive<u64>) -> Event {
    let hashes: Vec<_> = hashes.collect();
    let tokens = u32::try_from(hashes.len()).expect("small") * 4;
    store(&hashes, None, 1..=tokens)
}

#[test]
fn events_of_one_batch_reach_every_shard_in_their_order() {
    for shards in [1, 2, 7] {
        let engine = engine(shards);
        let (mut source, mut reader) = (ingest(&engine, 0, 0), engine.reader());
        let all: Vec<u64> = (1..=64).collect();
        let mut choices = Choices::new(7);
        for round in 0..sized(200, 5) {
            // Any sequence of stores, removals and clears in one payload: the last word on each block counts.
            let mut events = Vec::new();
            let mut held = false;
            for _ in 0..=choices.below(9) {
                held = match choices.below(3) {
                    0 if held => {
                        events.push(remove(&all));
                        false
                    }
                    1 => {
                        events.push(clear());
                        false
                    }
                    _ if held => true,
                    _ => {
                        events.push(chain(1..=64));
                        true
                    }
                };
            }
            apply(&mut source, events);
            source.flush();
            let expected = if held { vec![(0, 0, 64)] } else { vec![] };
            assert_eq!(holders(&mut reader, 1..=256), expected, "round {round}");
            apply(&mut source, [clear()]);
        }
        assert_eq!(source.counters().filtered(kvtap::Reason::UnknownBlock), 0);
    }
}

#[test]
fn two_names_of_one_prefix_keep_it_until_both_are_gone() {
    for shards in [1, 2, 7] {
        let engine = engine(shards);
        let (mut source, mut reader) = (ingest(&engine, 0, 0), engine.reader());
        apply(&mut source, [chain(1..=32), chain(101..=132)]);
        apply(&mut source, [remove(&(1..=32).collect::<Vec<_>>())]);
        source.flush();
        assert_eq!(holders(&mut reader, 1..=128), [(0, 0, 32)]);
        apply(&mut source, [remove(&[120])]);
        source.flush();
        assert_eq!(holders(&mut reader, 1..=128), [(0, 0, 19)], "a hole in the middle");
        apply(&mut source, [remove(&(101..=119).chain(121..=132).collect::<Vec<_>>())]);
        source.flush();
        assert_eq!(holders(&mut reader, 1..=128), []);
    }
}

#[test]
fn a_source_that_goes_takes_its_blocks_along_and_leaves_others() {
    let engine = engine(3);
    let (mut first, mut second) = (ingest(&engine, 1, 0), ingest(&engine, 2, 0));
    let mut reader = engine.reader();
    apply(&mut first, [chain(1..=32)]);
    apply(&mut second, [chain(1..=16)]);
    second.flush();
    first.flush();
    assert_eq!(holders(&mut reader, 1..=128), [(1, 0, 32), (2, 0, 16)]);
    drop(first);
    assert_eq!(holders(&mut reader, 1..=128), [(2, 0, 16)], "gone when the drop returns");
    drop(second);
    assert_eq!(holders(&mut reader, 1..=128), []);
}

/// A long prompt gives its pages back while it is swept, and one of them may be used again at once: for the shorter list of
/// those that are left. It must not be looked at as a page after that.
#[test]
fn sweeping_a_long_prompt_looks_at_nothing_it_gave_back() {
    let engine = engine(1);
    let mut reader = engine.reader();
    // Pages rest until there are 64: with one number of short prompts, swept before, the 64th is the one used again.
    for short_prompts in 0..sized(64, 30) as u64 {
        let mut source = ingest(&engine, 1, 0);
        apply(&mut source, [chain(1..=300)]);
        apply(
            &mut source,
            (1..=short_prompts).map(|prompt| {
                let first = u32::try_from(prompt * 4 + 10_001).expect("small");
                store(&[prompt + 1000], None, first..=first + 3)
            }),
        );
        drop(source);
        let mut other = ingest(&engine, 2, 0);
        apply(&mut other, [store(&[1], None, 1..=4)]);
        // Not flushed: if the shard has died, that would wait for ever.
        let start = Instant::now();
        while holders(&mut reader, 1..=4) != [(2, 0, 1)] {
            assert!(start.elapsed() < Duration::from_secs(10), "after {short_prompts} short prompts");
            std::thread::yield_now();
        }
    }
}

/// Blocks of a source are gone although it was never flushed.
/// Waits for the bytes of an index that nobody flushes.
fn wait_for_bytes(engine: &Engine, are_so: impl Fn(usize) -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !are_so(engine.index_bytes()) {
        assert!(Instant::now() < end, "{} bytes", engine.index_bytes());
        std::thread::yield_now();
    }
}

#[test]
fn bytes_are_told_and_given_back_though_nobody_flushes() {
    let engine = engine(1);
    let before = engine.index_bytes();
    let mut source = ingest(&engine, 1, 0);
    let hashes: Vec<u64> = (1..=100_000).collect();
    for (number, some) in (0..).zip(hashes.chunks(1_000)) {
        apply(&mut source, [store(some, None, number * 4_000 + 1..=number * 4_000 + 4_000)]);
    }
    wait_for_bytes(&engine, |bytes| bytes > before + 100_000 * 8);
    apply(&mut source, hashes.chunks(1_000).map(remove));
    wait_for_bytes(&engine, |bytes| bytes < before + 100_000);
}

#[test]
fn a_source_that_goes_unflushed_leaves_nothing_behind() {
    let engine = engine(3);
    let mut reader = engine.reader();
    for _ in 0..sized(100, 5) {
        let mut source = ingest(&engine, 1, 0);
        apply(&mut source, [chain(1..=64)]);
        drop(source);
        assert_eq!(holders(&mut reader, 1..=4), []);
    }
}

#[test]
fn a_new_source_in_a_freed_slot_sees_nothing_of_the_old_one() {
    let engine = engine(3);
    let mut reader = engine.reader();
    for round in 0..sized(5000, 20) as u64 {
        let mut old = ingest(&engine, round, 0);
        apply(&mut old, [chain(1..=8)]);
        drop(old);
        let mut new = ingest(&engine, round + 1_000_000, 0);
        apply(&mut new, [store(&[1], None, 101..=104)]);
        new.flush();
        assert_eq!(holders(&mut reader, 1..=32), [], "round {round}");
        assert_eq!(holders(&mut reader, 101..=104), [(round + 1_000_000, 0, 1)]);
        // More rounds than the index has slots: each was freed.
    }
}

#[test]
fn two_sources_of_one_worker_with_different_ranks_are_two_entries() {
    let engine = engine(2);
    let (mut first, mut second) = (ingest(&engine, 1, 0), ingest(&engine, 1, 1));
    let mut reader = engine.reader();
    apply(&mut first, [chain(1..=4)]);
    apply(&mut second, [chain(1..=8)]);
    first.flush();
    second.flush();
    assert_eq!(holders(&mut reader, 1..=32), [(1, 0, 4), (1, 1, 8)]);
    apply(&mut first, [clear()]);
    first.flush();
    assert_eq!(holders(&mut reader, 1..=32), [(1, 1, 8)]);
}

#[test]
fn two_sources_of_one_worker_and_rank_answer_as_one_but_forget_apart() {
    let engine = engine(2);
    let (mut first, mut second) = (ingest(&engine, 1, 0), ingest(&engine, 1, 0));
    let mut reader = engine.reader();
    apply(&mut first, [chain(1..=4)]);
    apply(&mut second, [chain(1..=8)]);
    first.flush();
    second.flush();
    assert_eq!(holders(&mut reader, 1..=32), [(1, 0, 8)], "what either holds");
    apply(&mut second, [clear()]);
    second.flush();
    assert_eq!(holders(&mut reader, 1..=32), [(1, 0, 4)]);
    drop(first);
    assert_eq!(holders(&mut reader, 1..=32), []);
}

#[test]
fn what_was_flushed_is_visible_to_readers_of_every_thread() {
    let engine = engine(3);
    let (to_reader, flushed) = std::sync::mpsc::channel::<u32>();
    let (to_writer, seen) = std::sync::mpsc::channel::<()>();
    let mut reader = engine.reader();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for depth in flushed {
                let expected = if depth == 0 { vec![] } else { vec![(0, 0, depth)] };
                assert_eq!(holders(&mut reader, 1..=400), expected);
                to_writer.send(()).expect("the writer waits");
            }
        });
        let mut source = ingest(&engine, 0, 0);
        for round in 0..u32::try_from(sized(300, 25)).expect("small") {
            let depth = round % 20;
            if depth == 0 {
                apply(&mut source, [clear()]);
            } else {
                let parent = (depth > 1).then(|| u64::from(depth) - 1);
                let first = (depth - 1) * 4 + 1;
                apply(&mut source, [store(&[u64::from(depth)], parent, first..=first + 3)]);
            }
            source.flush();
            to_reader.send(depth).expect("the reader lives");
            seen.recv().expect("the reader agrees");
        }
        drop(to_reader);
    });
}

/// Sweeping a big source holds a shard up between batches, so its channel fills and another source has to wait.
#[test]
#[cfg_attr(miri, ignore = "needs a hundred thousand blocks")]
fn a_source_that_outruns_the_shards_waits_and_loses_nothing() {
    let engine = engine(1);
    let (mut slow, mut fast) = (ingest(&engine, 1, 0), ingest(&engine, 2, 0));
    let mut parent = None;
    for part in 0..100_u64 {
        let hashes: Vec<_> = (part * 1000 + 1..=part * 1000 + 1000).collect();
        let first = u32::try_from(part).expect("small") * 4000 + 1;
        apply(&mut slow, [store(&hashes, parent, first..=first + 3999)]);
        parent = hashes.last().copied();
    }
    slow.flush();
    drop(slow);
    let mut blocks = 0_u32;
    while fast.counters().back_pressure == 0 && blocks < 200_000 {
        let first = blocks * 4 + 1_000_000;
        apply(&mut fast, [store(&[u64::from(blocks) + 1], None, first..=first + 3)]);
        blocks += 1;
    }
    assert!(fast.counters().back_pressure > 0, "never held up in {blocks} batches");
    fast.flush();
    let mut reader = engine.reader();
    for block in 0..blocks {
        let first = block * 4 + 1_000_000;
        assert_eq!(holders(&mut reader, first..=first + 3), [(2, 0, 1)], "block {block} of {blocks}");
    }
}

/// Names at two tiers of the same blocks: each must find them until it is taken out.
#[test]
fn a_cleared_worker_with_two_names_at_two_tiers_leaves_nothing() {
    for shards in [1, 2, 7] {
        let engine = engine(shards);
        let (mut first, mut second) = (ingest(&engine, 1, 0), ingest(&engine, 2, 0));
        let mut reader = engine.reader();
        for _ in 0..5 {
            let prompts = (0..200_u64).flat_map(|prompt| {
                let hashes =
                    |names: u64| (1..=20).map(move |block| names + prompt * 100 + block).collect::<Vec<_>>();
                let tokens = u32::try_from(prompt).expect("small") * 1000
                    ..=u32::try_from(prompt).expect("small") * 1000 + 79;
                let on_host = store(&hashes(1_000_000), None, tokens.clone()).set("medium", "CPU");
                [on_host, store(&hashes(2_000_000), None, tokens)]
            });
            apply(&mut first, prompts);
            apply(&mut first, [clear()]);
            // Takes the memory that the clear gives back.
            for prompt in 0..200_u64 {
                let from = u32::try_from(prompt).expect("small") * 1000 + 500_000;
                let hashes: Vec<_> = (1..=20).map(|block| prompt * 100 + block).collect();
                apply(&mut second, [store(&hashes, None, from..=from + 79)]);
            }
            first.flush();
            second.flush();
            for prompt in 0..200_u32 {
                assert_eq!(holders(&mut reader, prompt * 1000..=prompt * 1000 + 79), []);
                let from = prompt * 1000 + 500_000;
                assert_eq!(holders(&mut reader, from..=from + 79), [(2, 0, 20)]);
            }
            apply(&mut second, [clear()]);
        }
        assert_eq!(engine.refused_blocks(), 0);
    }
}

/// A prompt that lies block by block on device and host, across several runs' length.
#[test]
fn a_prompt_scattered_over_two_tiers_is_matched_whole() {
    let engine = engine(1);
    let (mut source, mut reader) = (ingest(&engine, 1, 0), engine.reader());
    let hashes: Vec<u64> = (1..=10_000).collect();
    let odd: Vec<u64> = hashes.iter().copied().filter(|hash| hash % 2 == 1).collect();
    apply(&mut source, [store(&hashes, None, 1..=40_000)]);
    let no_tokens = rmpv::Value::Array(Vec::new());
    let onto_host =
        store(&odd, None, 1..=1).set("token_ids", no_tokens).set("medium", "CPU").set("block_size", 0);
    apply(&mut source, [onto_host, remove(&odd)]);
    source.flush();
    let tokens: Vec<u32> = (1..=40_004).collect();
    let mut matches = Vec::new();
    reader.find_matches(&Prompt::new(&tokens, 4), &mut matches);
    assert_eq!(matches[0].depths, [0, 10_000, 10_000, 10_000]);
    apply(&mut source, [remove(&[5_000])]);
    source.flush();
    reader.find_matches(&Prompt::new(&tokens, 4), &mut matches);
    assert_eq!(matches[0].depths, [0, 4_999, 4_999, 4_999]);
}

/// A clear of something: one of nothing takes no other slot.
fn storm() -> [Event; 2] {
    [store(&[7], None, 11..=14), clear()]
}

/// Every clear takes another slot, of which there are 8,192, and shards sweep the old ones when they find the time.
#[test]
#[cfg_attr(miri, ignore = "needs ten thousand clears")]
fn a_storm_of_clears_refuses_nobody() {
    let engine = engine(2);
    let mut reader = engine.reader();
    let (mut stormy, mut other) = (ingest(&engine, 1, 0), ingest(&engine, 2, 0));
    for round in 0..3_u32 {
        apply(&mut stormy, (0..20_000).flat_map(|_| storm()));
        // Without waiting for anything: ranks that were never seen, of both sources.
        for rank in round * 3..round * 3 + 3 {
            for source in [&mut stormy, &mut other] {
                source.apply(&payload([store(&[1], None, 1..=4)], rank)).expect("a sound payload");
            }
        }
        apply(&mut other, (0..20_000).flat_map(|_| storm()));
        stormy.flush();
        other.flush();
        // Both storms were of rank 0.
        let held = |worker: u64| (0..round * 3 + 3).map(move |rank| (worker, rank, 1));
        let right: Vec<_> = held(1).skip(usize::from(round > 0)).chain(held(2).skip(1)).collect();
        assert_eq!(holders(&mut reader, 1..=4), right);
    }
    let placed = |source: &Ingest| (source.counters().placed_blocks, source.counters().cleared_events);
    assert_eq!((placed(&stormy), placed(&other)), ((60_009, 60_000), (60_009, 60_000)));
}

/// While somebody reads an answer, no slot becomes free; then a new rank has to wait if there is none left.
#[test]
#[cfg_attr(miri, ignore = "needs thousands of clears")]
fn a_new_rank_waits_for_slots_that_are_being_swept() {
    const SLOTS: usize = 8192;
    let engine = engine(1);
    let (mut holder, mut stormy, late) =
        (ingest(&engine, 1, 0), ingest(&engine, 2, 0), ingest(&engine, 3, 0));
    apply(&mut holder, [store(&[1], None, 1..=4)]);
    holder.flush();
    let mut late = std::thread::scope(|scope| {
        let (mut late, mut joined) = (Some(late), None);
        engine.reader().for_each_match(&first_block(), Wanted::default(), |_| {
            // One slot is the holder's, and one this source's own.
            apply(&mut stormy, (2..SLOTS).flat_map(|_| storm()));
            let (done, is_done) = std::sync::mpsc::channel();
            let mut late = late.take().expect("one match");
            joined = Some(scope.spawn(move || {
                apply(&mut late, [store(&[1], None, 1..=4)]);
                // Nobody may be there any more.
                let _ = done.send(());
                late
            }));
            assert!(is_done.recv_timeout(Duration::from_millis(300)).is_err(), "it waits");
        });
        joined.expect("a match").join().expect("no panic")
    });
    late.flush();
    assert_eq!(holders(&mut engine.reader(), 1..=4), [(1, 0, 1), (3, 0, 1)]);
    assert!(late.counters().back_pressure > 0);
}

/// Depths, and copies of one block, beyond what 16 bits count.
#[test]
#[cfg_attr(miri, ignore = "needs a hundred thousand blocks")]
fn chains_and_copies_go_beyond_16_bits() {
    let (engine, blocks) = (engine(2), 70_000_u32);
    let (mut source, mut reader) = (ingest(&engine, 1, 0), engine.reader());
    let hashes: Vec<u64> = (1..=u64::from(blocks)).collect();
    apply(&mut source, [store(&hashes, None, 1..=blocks * 4)]);
    source.flush();
    assert_eq!(holders(&mut reader, 1..=blocks * 4 + 4), [(1, 0, blocks)]);
    apply(&mut source, [remove(&[66_000])]);
    source.flush();
    assert_eq!(holders(&mut reader, 1..=blocks * 4), [(1, 0, 65_999)]);

    // Under one name many times, and under as many names.
    let first = blocks * 4 + 1;
    let again = || store(&[1 << 40], None, first..=first + 3);
    apply(&mut source, (0..blocks).map(|_| again()));
    apply(
        &mut source,
        (0..blocks).map(|copy| store(&[(1 << 41) + u64::from(copy)], None, first..=first + 3)),
    );
    let is_held = |source: &mut Ingest, reader: &mut Reader| {
        source.flush();
        holders(reader, first..=first + 3) == [(1, 0, 1)]
    };
    apply(&mut source, (0..blocks).map(|copy| remove(&[(1 << 41) + u64::from(copy)])));
    apply(&mut source, (1..blocks).map(|_| remove(&[1 << 40])));
    assert!(is_held(&mut source, &mut reader), "one copy is left");
    apply(&mut source, [remove(&[1 << 40])]);
    assert!(!is_held(&mut source, &mut reader));
    assert_eq!(source.counters().filtered(kvtap::Reason::UnknownBlock), 0);
    assert_eq!(engine.refused_blocks(), 0);
}

/// Sources of many threads share the shards; each keeps its own order.
#[test]
fn sources_on_many_threads_do_not_disturb_each_other() {
    let engine = engine(3);
    std::thread::scope(|scope| {
        for worker_id in 0..6 {
            let engine = &engine;
            scope.spawn(move || {
                let (mut source, mut reader) = (ingest(engine, worker_id, 0), engine.reader());
                let mut choices = Choices::new(worker_id);
                for _ in 0..sized(300, 5) {
                    let depth = choices.below(24) as u64 + 1;
                    apply(
                        &mut source,
                        [chain(1..=depth), remove(&(1..=depth).collect::<Vec<_>>()), chain(1..=depth)],
                    );
                    source.flush();
                    let mine: Vec<_> = holders(&mut reader, 1..=96)
                        .into_iter()
                        .filter(|&(id, ..)| id == worker_id)
                        .collect();
                    assert_eq!(mine, [(worker_id, 0, u32::try_from(depth).expect("small"))]);
                    apply(&mut source, [clear()]);
                }
            });
        }
    });
}

#[test]
fn readers_outlive_the_engine_and_its_sources() {
    let engine = engine(2);
    let (mut source, mut reader) = (ingest(&engine, 0, 0), engine.reader());
    drop(engine);
    apply(&mut source, [chain(1..=4)]);
    source.flush();
    assert_eq!(holders(&mut reader, 1..=16), [(0, 0, 4)]);
    drop(source);
    assert_eq!(holders(&mut reader, 1..=16), []);
}

/// As below, at the one moment at which it could happen.
#[test]
fn a_slot_stands_for_nobody_else_until_the_answer_is_read() {
    let engine = engine(1);
    let mut sources = [1, 2].map(|worker_id| {
        let mut source = ingest(&engine, worker_id, 0);
        apply(&mut source, [store(&[1], None, 1..=4)]);
        source.flush();
        (worker_id, source)
    });
    let (mut named, mut newcomer) = (Vec::new(), ingest(&engine, 3, 0));
    engine.reader().for_each_match(&first_block(), Wanted::default(), |found| {
        named.push(found.worker.worker_id);
        // Whoever comes next in the answer goes, and is swept; then somebody else comes.
        for (worker_id, source) in &mut sources {
            if *worker_id == found.worker.worker_id {
                source.flush();
            } else {
                *source = ingest(&engine, 4, 0);
            }
        }
        sources.iter_mut().for_each(|(_, source)| source.flush());
        apply(&mut newcomer, [store(&[1], None, 5..=8)]);
    });
    assert!(named == [1] || named == [2], "{named:?}");
}

#[test]
fn an_answer_never_names_the_worker_that_took_over_a_slot() {
    let engine = engine(1);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut reader = engine.reader();
                while !done.load(Ordering::Relaxed) {
                    let named = holders(&mut reader, 1..=4);
                    assert!(named.iter().all(|&(worker_id, ..)| worker_id == 1), "{named:?}");
                }
            });
        }
        for _ in 0..sized(2_000, 20) {
            let mut first = ingest(&engine, 1, 0);
            apply(&mut first, [store(&[1], None, 1..=4)]);
            first.flush();
            drop(first);
            // Takes the slot that has just become free.
            apply(&mut ingest(&engine, 2, 0), [store(&[2], None, 5..=8)]);
        }
        done.store(true, Ordering::Relaxed);
    });
}
