//! What a publisher can make the index do grows with what it sends, not with its square: the processor's time for n and for
//! 4 n blocks, in a binary of its own so that nothing else is timed.

mod support;

#[cfg(target_os = "linux")]
mod linux {
    use kvtap::{Config, Engine, Ingest, Prompt, SourceConfig};

    use crate::support::source::{Event, payload, remove, store};

    /// Blocks of the smaller run.
    const BLOCKS: u64 = 5000;
    /// Four times as many blocks take four times as long, or sixteen times if it is the square.
    const GROWTH_MAX: f64 = 9.0;
    const TRIES: usize = 5;

    /// Nanoseconds that the threads of this process have run, those that have ended left out.
    fn processor_ns() -> u64 {
        let threads = std::fs::read_dir("/proc/self/task").expect("Linux");
        let stats =
            threads.filter_map(|thread| std::fs::read_to_string(thread.ok()?.path().join("schedstat")).ok());
        stats.filter_map(|stat| stat.split(' ').next()?.parse::<u64>().ok()).sum()
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
        let taken = processor_ns() - start;
        assert_eq!(matches.iter().map(|found| found.depths[0]).collect::<Vec<_>>(), [depth]);
        taken
    }

    fn payloads(events: impl Iterator<Item = Event>) -> Vec<Vec<u8>> {
        let events: Vec<_> = events.collect();
        events.chunks(500).map(|some| payload(some.to_vec(), 0)).collect()
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

    #[test]
    fn time_grows_with_what_is_sent_and_not_with_its_square() {
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
