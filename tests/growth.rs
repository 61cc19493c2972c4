//! What a publisher can make the index do grows with what it sends, not with its square: the processor's time for n and for
//! 4 n blocks, in a binary of its own so that nothing else is timed.

mod support;

#[cfg(target_os = "linux")]
mod linux {
    use std::collections::HashMap;
    use std::ffi::OsString;

    use kvtap::{Config, Engine, Ingest, Prompt, SourceConfig};

    use crate::support::source::{Event, clear, payload, remove, store};

    /// Blocks of the smaller run.
    const BLOCKS: u64 = 5000;
    /// Four times as many blocks take four times as long, or sixteen times if it is the square.
    const GROWTH_MAX: f64 = 9.0;
    const TRIES: usize = 5;

    /// Nanoseconds that each thread of this process has run.
    fn processor_ns() -> HashMap<OsString, u64> {
        let threads = std::fs::read_dir("/proc/self/task").expect("Linux");
        let of_thread = |thread: std::io::Result<std::fs::DirEntry>| {
            let thread = thread.ok()?;
            let stat = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
            Some((thread.file_name(), stat.split(' ').next()?.parse().ok()?))
        };
        threads.filter_map(of_thread).collect()
    }

    fn source(engine: &Engine) -> Ingest {
        let mut config = SourceConfig::new(1);
        config.block_size = 1;
        engine.ingest(config).expect("a good source")
    }

    fn one(hash: u64, parent: Option<u64>, token: u32) -> Event {
        store(&[hash], parent, token..=token).set("block_size", 1)
    }

    fn long_prompt(blocks: u64) -> Event {
        let hashes: Vec<u64> = (1..=blocks).collect();
        let last = u32::try_from(blocks).expect("few");
        store(&hashes, None, 1..=last).set("block_size", 1)
    }

    /// The time that some payloads take, made before.
    fn time(payloads: &[Vec<u8>], prompt: u64, depth: u32) -> u64 {
        let mut config = Config::default();
        config.shards = 1;
        let engine = Engine::new(config).expect("an engine");
        let mut source = source(&engine);
        let start = processor_ns();
        for payload in payloads {
            source.apply(payload).expect("a sound payload");
        }
        source.flush();
        let tokens: Vec<u32> = (1..=u32::try_from(prompt).expect("few")).collect();
        let mut matches = Vec::new();
        engine.reader().find_matches(&Prompt::new(&tokens, 1), &mut matches);
        // What an earlier engine's threads did before they ended is left out.
        let ran = |(thread, ns): (OsString, u64)| ns.saturating_sub(start.get(&thread).copied().unwrap_or(0));
        let taken = processor_ns().into_iter().map(ran).sum();
        let depths = matches.iter().map(|found| found.depths[0]);
        assert!(
            depths.clone().all(|found| found == depth) && (depths.len() > 0) == (depth > 0),
            "{matches:?}"
        );
        taken
    }

    fn payloads(events: impl Iterator<Item = Event>) -> Vec<Vec<u8>> {
        let events: Vec<_> = events.collect();
        events.chunks(500).map(|some| payload(some.to_vec(), 0)).collect()
    }

    /// Blocks of the prompt that many ranks hold.
    const SHARED: u64 = 251;

    fn ranks(blocks: u64) -> std::ops::Range<u32> {
        0..u32::try_from(blocks / SHARED).expect("few")
    }

    /// As many ranks as hold so many blocks together: of each what `make` gives for every block.
    fn rank_by_rank(blocks: u64, make: impl Fn(u64) -> Vec<Event>) -> Vec<Vec<u8>> {
        ranks(blocks).map(|rank| payload((1..=SHARED).flat_map(&make).collect::<Vec<_>>(), rank)).collect()
    }

    /// For every block what `make` gives, of each rank.
    fn by_turns(blocks: u64, make: impl Fn(u64) -> Vec<Event>) -> Vec<Vec<u8>> {
        let of_block = |block| {
            let events = make(block);
            ranks(blocks)
                .filter(|_| !events.is_empty())
                .map(|rank| payload(events.clone(), rank))
                .collect::<Vec<_>>()
        };
        (1..=SHARED).flat_map(of_block).collect()
    }

    fn block(at: u64) -> Vec<Event> {
        vec![one(at, (at > 1).then(|| at - 1), u32::try_from(at).expect("few"))]
    }

    fn in_host_memory(at: u64) -> Vec<Event> {
        block(at).into_iter().map(|event| event.set("medium", "CPU")).collect()
    }

    /// Whether a block is given up for a hole.
    fn is_hole(at: u64) -> bool {
        at.is_multiple_of(2) && at < SHARED - 1
    }

    fn hole(at: u64) -> Vec<Event> {
        if is_hole(at) { vec![remove(&[at])] } else { Vec::new() }
    }

    /// `make` gives the payloads for so many blocks, and the depth at which the long prompt then matches.
    fn check(what: &str, make: impl Fn(u64) -> (Vec<Vec<u8>>, u64)) {
        let few = make(BLOCKS);
        let many = make(4 * BLOCKS);
        let depth = |depth: u64| u32::try_from(depth).expect("few");
        let mut seen = Vec::new();
        for _ in 0..TRIES {
            let few = time(&few.0, BLOCKS, depth(few.1));
            let many = time(&many.0, 4 * BLOCKS, depth(many.1));
            #[expect(clippy::cast_precision_loss, reason = "a ratio")]
            seen.push(many as f64 / few as f64);
            if seen.iter().any(|&growth| growth < GROWTH_MAX) {
                return;
            }
        }
        panic!("{what}: four times the blocks took {seen:.1?} times as long");
    }

    fn check_many_ranks() {
        check("block by block", |blocks| (by_turns(blocks, block), SHARED));
        check("a hole at every other block of each, made and filled", |blocks| {
            let refill = |at| if is_hole(at) { block(at) } else { Vec::new() };
            let all = [rank_by_rank(blocks, block), by_turns(blocks, hole), by_turns(blocks, refill)];
            (all.concat(), SHARED)
        });
        check("in many pieces, taken away from the end", |blocks| {
            let rest = |at| {
                let at = SHARED + 1 - at;
                if is_hole(at) || at == 1 { Vec::new() } else { vec![remove(&[at])] }
            };
            let all = [rank_by_rank(blocks, block), rank_by_rank(blocks, hole), by_turns(blocks, rest)];
            (all.concat(), 1)
        });
        check("in many pieces, the last block given up and held again", |blocks| {
            let again = |_| [vec![remove(&[SHARED])], block(SHARED)].concat();
            let all = [rank_by_rank(blocks, block), rank_by_rank(blocks, hole), by_turns(blocks, again)];
            (all.concat(), 1)
        });
        check("in many pieces at two tiers, cleared", |blocks| {
            let all = [block, in_host_memory, hole].map(|make| rank_by_rank(blocks, make));
            let clears = ranks(blocks).map(|rank| payload([clear()], rank)).collect();
            ([all.concat(), clears].concat(), 0)
        });
    }

    /// One test, so that nothing else runs meanwhile.
    #[test]
    fn time_grows_with_what_is_sent_and_not_with_its_square() {
        check_one_rank();
        check_many_ranks();
    }

    fn check_one_rank() {
        check("a child at every block of a long prompt", |blocks| {
            let children = (1..=blocks).map(|at| one(1_000_000 + at, Some(at), 0));
            (payloads(std::iter::once(long_prompt(blocks)).chain(children)), blocks)
        });
        check("children at every block, from the end", |blocks| {
            let children = (1..=blocks).rev().map(|at| one(1_000_000 + at, Some(at), 0));
            (payloads(std::iter::once(long_prompt(blocks)).chain(children)), blocks)
        });
        check("as many children of one block", |blocks| {
            let children = (1..=blocks).map(|child| {
                one(1_000_000 + child, Some(1), 10_000_000 + u32::try_from(child).expect("few"))
            });
            (payloads(std::iter::once(long_prompt(blocks)).chain(children)), blocks)
        });
        check("a hole at every other block, made and filled", |blocks| {
            let holes = || (2..=blocks).step_by(2);
            let removals = holes().map(|hole| remove(&[hole]));
            let refills = holes().map(|hole| one(hole, Some(hole - 1), u32::try_from(hole).expect("few")));
            (payloads(std::iter::once(long_prompt(blocks)).chain(removals).chain(refills)), blocks)
        });
        check("a prompt taken away block by block from its front, but for the first", |blocks| {
            let removals = (2..=blocks).map(|block| remove(&[block]));
            (payloads(std::iter::once(long_prompt(blocks)).chain(removals)), 1)
        });
        check("two prompts' worth of names for one prompt, taken away by turns", |blocks| {
            let names: Vec<u64> = (1..=blocks).map(|block| block + 2_000_000).collect();
            let last = u32::try_from(blocks).expect("few");
            let again = store(&names, None, 1..=last).set("block_size", 1);
            let removals =
                (1..=blocks).map(|block| remove(&[block + if block % 2 == 0 { 2_000_000 } else { 0 }]));
            (payloads([long_prompt(blocks), again].into_iter().chain(removals)), blocks)
        });
    }
}
