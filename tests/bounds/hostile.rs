//! A publisher that passes every bound of the library by a factor: memory stays where it may be, every refusal is counted, and
//! other sources do not notice.

use kvtap::{
    Config, ConfigError, Engine, Ingest, Normalizer, Prompt, Reason, SourceConfig, StoredBlocks, Tier,
    Visitor, Worker,
};

use crate::support::source::{BLOCK_SIZE, Event, clear, payload, remove, store};

const BLOCKS_MAX: u32 = 500;
const RANKS_MAX: u32 = 3;

/// Worker 0 is the hostile one.
fn config(worker_id: u64) -> SourceConfig {
    let mut config = SourceConfig::new(worker_id);
    config.block_size = BLOCK_SIZE;
    config.blocks_max = BLOCKS_MAX;
    config.ranks_max = RANKS_MAX;
    config
}

fn engine(shard_bytes: u64) -> Engine {
    let mut config = Config::default();
    config.shard_bytes = shard_bytes;
    Engine::new(config).expect("a good configuration")
}

/// An innocent worker with a prompt of 100 blocks.
struct Other {
    ingest: Ingest,
    tokens: Vec<u32>,
}

impl Other {
    fn new(engine: &Engine) -> Self {
        let mut ingest = engine.ingest(config(1)).expect("a good source");
        let hashes: Vec<u64> = (1..=100).collect();
        ingest.apply(&payload([store(&hashes, None, 0..=399)], 0)).expect("sound");
        Self { ingest, tokens: (0..400).collect() }
    }

    fn expect_unharmed(&mut self, engine: &Engine) {
        self.ingest.flush();
        let mut matches = Vec::new();
        engine.reader().find_matches(&Prompt::new(&self.tokens, BLOCK_SIZE), &mut matches);
        let mine: Vec<_> = matches.iter().filter(|found| found.worker.worker_id == 1).collect();
        assert_eq!(mine.iter().map(|found| found.depths).collect::<Vec<_>>(), [[100; 4]]);
    }
}

/// One prompt of one block, of its own.
fn block(number: u32) -> Event {
    store(&[u64::from(number) + 1], None, number * 4..=number * 4 + 3)
}

#[test]
fn blocks_beyond_the_limit_are_counted_and_not_placed_whichever_rank_brings_them() {
    let engine = engine(16 << 20);
    let mut other = Other::new(&engine);
    let mut hostile = engine.ingest(config(0)).expect("a good source");
    let mut bytes = 0;
    for number in 0..BLOCKS_MAX * 20 {
        hostile.apply(&payload([block(number)], number % RANKS_MAX)).expect("sound");
        if number == BLOCKS_MAX * 2 {
            bytes = hostile.bytes();
        }
    }
    let counters = hostile.counters().clone();
    assert_eq!(counters.placed_blocks, u64::from(BLOCKS_MAX));
    assert_eq!(counters.filtered(Reason::TooManyBlocks), u64::from(BLOCKS_MAX * 19));
    assert_eq!((hostile.entries(), hostile.bytes()), (BLOCKS_MAX as usize, bytes));
    other.expect_unharmed(&engine);

    // Another copy of a known block is none too many; what follows a refused one has no parent.
    hostile.apply(&payload([block(0)], 0)).expect("sound");
    hostile.apply(&payload([store(&[900_000], Some(9_001), 0..=3)], 0)).expect("sound");
    assert_eq!(hostile.counters().placed_blocks, u64::from(BLOCKS_MAX) + 1);
    assert_eq!(hostile.counters().filtered(Reason::UnknownParent), 1);

    // Of a chain, the blocks up to the first one too many are placed.
    hostile.apply(&payload([remove(&[4, 7])], 0)).expect("sound");
    hostile.apply(&payload([store(&[901, 902, 903, 904], None, 40_000..=40_015)], 0)).expect("sound");
    assert_eq!(hostile.counters().placed_blocks, u64::from(BLOCKS_MAX) + 3);
    assert_eq!(hostile.counters().filtered(Reason::TooManyBlocks), u64::from(BLOCKS_MAX * 19) + 2);

    // Whoever clears, or starts again, may bring as many again.
    hostile.apply(&payload([clear()], 1)).expect("sound");
    let placed = hostile.counters().placed_blocks;
    let freed = u64::try_from(BLOCKS_MAX as usize - hostile.entries()).expect("small");
    for number in 50_000..50_000 + BLOCKS_MAX {
        hostile.apply(&payload([block(number)], 0)).expect("sound");
    }
    assert_eq!(hostile.counters().placed_blocks - placed, freed);
    hostile.restart();
    for number in 60_000..60_000 + BLOCKS_MAX * 2 {
        hostile.apply(&payload([block(number)], 2)).expect("sound");
    }
    assert_eq!(hostile.entries(), BLOCKS_MAX as usize);
    other.expect_unharmed(&engine);
}

#[test]
fn ranks_beyond_the_limit_are_counted_in_events() {
    let engine = engine(16 << 20);
    let mut other = Other::new(&engine);
    let mut hostile = engine.ingest(config(0)).expect("a good source");
    for number in 0..RANKS_MAX * 20 {
        hostile.apply(&payload([block(number), block(number)], number)).expect("sound");
    }
    assert_eq!(hostile.workers().len(), RANKS_MAX as usize);
    assert_eq!(hostile.counters().filtered(Reason::TooManyRanks), u64::from(RANKS_MAX * 19 * 2));
    assert!(hostile.workers().all(|worker| worker.worker_id == 0), "ranks of its own worker only");
    other.expect_unharmed(&engine);
}

#[test]
fn a_shard_takes_no_more_memory_than_it_may() {
    const SHARD_BYTES: usize = 16 << 20;
    let engine = engine(SHARD_BYTES as u64);
    let mut other = Other::new(&engine);
    let mut source = config(0);
    source.blocks_max = u32::MAX;
    let mut hostile = engine.ingest(source).expect("a good source");
    let mut stored = 0_u32;
    // A prompt of one block takes a header, a page and its place among the children.
    while engine.refused_blocks() < 10_000 {
        assert!(stored < 1_000_000, "it never fills");
        hostile
            .apply(&payload((stored..stored + 1000).map(|number| block(number + 1000)), 0))
            .expect("sound");
        stored += 1000;
        hostile.flush();
    }
    // Besides its segments, tables by ordinal and what is resting.
    let most = 2 * (SHARD_BYTES + (4 << 20));
    assert!(engine.index_bytes() <= most, "{} bytes", engine.index_bytes());
    other.expect_unharmed(&engine);
    drop(hostile);
    let mut again = engine.ingest(config(2)).expect("a good source");
    let refused = engine.refused_blocks();
    again.apply(&payload([block(500)], 0)).expect("sound");
    again.flush();
    assert_eq!(engine.refused_blocks(), refused, "its room is free again");
}

#[test]
fn salts_that_a_normalizer_keeps_are_bounded() {
    struct Ignore;
    impl Visitor for Ignore {
        fn stored(&mut self, _: StoredBlocks<'_>) {}
        fn removed(&mut self, _: Worker, _: Tier, _: &[kvtap::EngineHash]) {}
        fn cleared(&mut self, _: Worker) {}
    }
    let mut normalizer = Normalizer::new(config(0)).expect("a good source");
    for number in 0..BLOCKS_MAX * 4 {
        let salted = block(number).set("cache_salt", format!("tenant {number}"));
        normalizer.read(&payload([salted], number % RANKS_MAX), &mut Ignore).expect("sound");
    }
    assert_eq!(normalizer.counters().placed_blocks, u64::from(BLOCKS_MAX));
    assert_eq!(normalizer.counters().filtered(Reason::TooManyBlocks), u64::from(BLOCKS_MAX * 3));
    // Those without a salt are the caller's to bound.
    normalizer.read(&payload([block(0)], 0), &mut Ignore).expect("sound");
    assert_eq!(normalizer.counters().placed_blocks, u64::from(BLOCKS_MAX) + 1);
}

#[test]
fn limits_out_of_their_range_are_refused_in_one_sentence() {
    let refused = |set: fn(&mut SourceConfig)| -> ConfigError {
        let mut config = config(0);
        set(&mut config);
        Normalizer::new(config).expect_err("out of range")
    };
    assert!(refused(|config| config.blocks_max = 0).to_string().contains("1 block or more"));
    assert!(refused(|config| config.ranks_max = 0).to_string().contains("1 to 1024, not 0"));
    assert!(refused(|config| config.ranks_max = 1025).to_string().contains("1 to 1024, not 1025"));
    for bytes in [(16 << 20) - 1, (8 << 30) + 1] {
        let mut config = Config::default();
        config.shard_bytes = bytes;
        let error = Engine::new(config).expect_err("out of range").to_string();
        assert!(error.contains("16777216 to 8589934592"), "{error}");
    }
}
