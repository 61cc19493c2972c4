//! The stand-in engine: what it tells is what it holds, in every encoding, and its bytes say what its events say.

use std::collections::{BTreeMap, BTreeSet};

use kvtap::mock::{
    Batch, Encoding, Event, Group, Ledger, Medium, MockEngine, MockError, MockOptions, Removed, Scenario,
    Stored,
};
use kvtap::{Config, Counters, Engine, Ingest, Reason, SourceConfig, Tier, Worker};

const WORKER: Worker = Worker { worker_id: 7, dp_rank: 3 };
const BATCHES: usize = 1_500;

fn options(scenario: Scenario, encoding: Encoding, seed: u64) -> MockOptions {
    let mut options = MockOptions::new(scenario, encoding);
    options.seed = seed;
    options
}

/// Every pair that an encoding can express.
fn pairs() -> Vec<(Scenario, Encoding)> {
    let all = Scenario::ALL.into_iter();
    let all = all.flat_map(|scenario| Encoding::ALL.map(|encoding| (scenario, encoding)));
    all.filter(|(scenario, encoding)| scenario.features(*encoding).is_ok()).collect()
}

fn ingest(engine: &Engine, block_size: u32) -> Ingest {
    let mut config = SourceConfig::new(WORKER.worker_id);
    config.block_size = block_size;
    engine.ingest(config).unwrap()
}

fn start_engine() -> Engine {
    Engine::new(Config::default()).unwrap()
}

fn payload(encoding: Encoding, step: usize, events: &[Event]) -> Vec<u8> {
    let timestamp = f64::from(u32::try_from(step).unwrap());
    encoding.encode(&Batch { timestamp, events, dp_rank: WORKER.dp_rank })
}

/// Counts of a stream, as far as a listener should filter.
#[derive(Default)]
struct Told {
    stored: u64,
    removed: u64,
    cleared: u64,
    filtered: BTreeMap<&'static str, u64>,
    /// Tails announced and not removed.
    tails: BTreeMap<u64, u64>,
    media: BTreeMap<&'static str, u64>,
    groups: BTreeMap<u32, u64>,
    namespaces: u64,
    shared: u64,
}

impl Told {
    fn filter(&mut self, reason: Reason, count: u64) {
        *self.filtered.entry(reason.label()).or_default() += count;
    }

    fn apply(&mut self, event: &Event, block_size: u32) {
        match event {
            Event::Stored(stored) => {
                self.stored += 1;
                *self.media.entry(Encoding::VllmMap.medium(stored.medium)).or_default() += 1;
                *self.groups.entry(stored.group.index).or_default() += 1;
                self.namespaces += u64::from(stored.identity.lora.is_some());
                self.shared += u64::from(stored.parent.is_some());
                if stored.group.index != 0 {
                    self.filter(Reason::NonMainAttentionKind, 1);
                } else if stored.block_size != 0 && stored.block_size < block_size {
                    self.filter(Reason::PartialBlock, 1);
                    *self.tails.entry(stored.block_hashes[0].0).or_default() += 1;
                }
            }
            Event::Removed(removed) => {
                self.removed += 1;
                if removed.group_idx != 0 {
                    self.filter(Reason::NonMainAttentionGroup, 1);
                    return;
                }
                for hash in &removed.block_hashes {
                    if let Some(copies) = self.tails.get_mut(&hash.0).filter(|copies| **copies > 0) {
                        *copies -= 1;
                        self.filter(Reason::UnknownBlock, 1);
                    }
                }
            }
            Event::Cleared => {
                self.cleared += 1;
                self.tails.clear();
            }
        }
    }

    fn assert_equal(&self, counters: &Counters, context: &str) {
        let events = (counters.stored_events, counters.removed_events, counters.cleared_events);
        assert_eq!(events, (self.stored, self.removed, self.cleared), "{context}");
        assert_eq!((counters.unknown_events, counters.malformed_events), (0, 0), "{context}");
        let counts = Reason::ALL.into_iter().map(|reason| (reason.label(), counters.filtered(reason)));
        let filtered: BTreeMap<_, _> = counts.filter(|(_, count)| *count > 0).collect();
        assert_eq!(filtered, self.filtered, "{context}");
    }
}

#[test]
fn a_listener_ends_with_exactly_the_blocks_of_the_engine() {
    let engine = start_engine();
    for (scenario, encoding) in pairs() {
        for (seed, block_size, pool_blocks, requests) in
            [(1, 16, 512, 8), (2, 4, 64, 8), (3, 64, 200, 1), (4, 16, 2000, 60)]
        {
            let context = format!("{} {} {seed}", scenario.label(), encoding.label());
            let mut options = options(scenario, encoding, seed);
            (options.block_size, options.pool_blocks, options.requests) = (block_size, pool_blocks, requests);
            let mut mock = MockEngine::new(&options).unwrap();
            let (mut ingest, mut ledger) = (ingest(&engine, block_size), Ledger::new(block_size));
            let mut told = Told::default();
            for step in 0..BATCHES {
                let events = mock.next_batch();
                assert!(!events.is_empty(), "{context}");
                events.iter().for_each(|event| told.apply(event, block_size));
                ledger.apply(&events);
                ingest.apply(&payload(encoding, step, &events)).unwrap();
                if mock.is_between_steps() && (step % 20 == 0 || step > BATCHES - 20) {
                    let held = ledger.digest(WORKER);
                    assert_eq!((ingest.digest(), mock.digest(WORKER)), (held, held), "{context}, {step}");
                }
            }
            told.assert_equal(ingest.counters(), &context);
            assert_eq!(ingest.entries(), ledger.entries(), "{context}");
            assert!(told.removed > 0 && told.shared > 0, "{context}");
        }
    }
}

#[test]
fn a_scenario_shows_what_it_is_named_after() {
    for (scenario, encoding) in pairs() {
        let context = format!("{} {}", scenario.label(), encoding.label());
        let mut mock = MockEngine::new(&options(scenario, encoding, 5)).unwrap();
        let mut told = Told::default();
        for _ in 0..BATCHES {
            mock.next_batch().iter().for_each(|event| told.apply(event, 16));
        }
        let vllm = matches!(encoding, Encoding::VllmMap | Encoding::VllmTuple);
        let mixed = scenario == Scenario::Mixed;
        let groups = scenario == Scenario::Hybrid || mixed && vllm;
        assert_eq!(told.groups.len(), if groups { 4 } else { 1 }, "{context}: {:?}", told.groups);
        let tiers = scenario == Scenario::Offload || mixed && encoding != Encoding::Trtllm;
        assert_eq!(told.media.len(), if tiers { 3 } else { 1 }, "{context}: {:?}", told.media);
        assert_eq!(told.namespaces > 0, scenario == Scenario::Lora || mixed, "{context}");
        let tails = told.filtered.contains_key("partial_block");
        let partial = scenario == Scenario::Partial || mixed && encoding == Encoding::VllmMap;
        assert_eq!(tails, partial, "{context}");
        let at_start = u64::from(encoding == Encoding::Sglang);
        assert_eq!(told.cleared > at_start, scenario == Scenario::Cleared || mixed, "{context}");
    }
}

#[test]
fn equal_blocks_computed_at_the_same_time_are_copies() {
    let mut mock = MockEngine::new(&options(Scenario::Chat, Encoding::VllmMap, 0)).unwrap();
    let mut copies = BTreeMap::<u64, u32>::new();
    let mut most = 0;
    for _ in 0..BATCHES {
        for event in mock.next_batch() {
            match event {
                Event::Stored(Stored { block_hashes, .. }) => {
                    for hash in block_hashes {
                        let count = copies.entry(hash.0).or_default();
                        *count += 1;
                        most = most.max(*count);
                    }
                }
                Event::Removed(Removed { block_hashes, .. }) => {
                    block_hashes.iter().for_each(|hash| *copies.get_mut(&hash.0).unwrap() -= 1);
                }
                Event::Cleared => {}
            }
        }
    }
    assert!(most > 1);
}

/// A block leaves a memory only when none there needs it any more, or when a nearer one has it, too.
#[test]
fn blocks_leave_before_those_that_they_need() {
    for (scenario, encoding) in [
        (Scenario::Chat, Encoding::VllmMap),
        (Scenario::Chat, Encoding::Sglang),
        (Scenario::Offload, Encoding::Sglang),
    ] {
        let mut mock = MockEngine::new(&options(scenario, encoding, 3)).unwrap();
        let (mut copies, mut children) = (BTreeMap::<_, u32>::new(), BTreeMap::<_, BTreeSet<_>>::new());
        let mut removed_blocks = 0;
        for event in (0..BATCHES).flat_map(|_| mock.next_batch()) {
            match event {
                Event::Stored(Stored { block_hashes, parent, medium, .. }) => {
                    let parents = parent.into_iter().chain(block_hashes.iter().copied());
                    let pairs = parents.zip(block_hashes.iter().skip(usize::from(parent.is_none())));
                    pairs.for_each(|(parent, child)| {
                        children.entry(parent).or_default().insert(*child);
                    });
                    for hash in block_hashes {
                        *copies.entry((medium.tier(), hash)).or_default() += 1;
                    }
                }
                Event::Removed(Removed { block_hashes, medium, .. }) => {
                    let tier = medium.tier();
                    for hash in block_hashes {
                        removed_blocks += 1;
                        let count = copies.get_mut(&(tier, hash)).unwrap();
                        *count -= 1;
                        if *count == 0 {
                            copies.remove(&(tier, hash));
                            let held = |child| copies.contains_key(&(tier, child));
                            let needed = children.get(&hash).is_some_and(|all| all.iter().any(|&c| held(c)));
                            let nearer = Tier::ALL.iter().take(tier.index());
                            let nearer = nearer.into_iter().any(|tier| copies.contains_key(&(*tier, hash)));
                            assert!(!needed || nearer, "{} {} {tier:?}", scenario.label(), encoding.label());
                        }
                    }
                }
                Event::Cleared => {
                    copies.clear();
                }
            }
        }
        assert!(removed_blocks > 100);
    }
}

#[test]
fn equal_seeds_give_equal_bytes_and_others_do_not() {
    let stream = |scenario, encoding, seed| -> Vec<Vec<u8>> {
        let mut mock = MockEngine::new(&options(scenario, encoding, seed)).unwrap();
        (0..200).map(|step| payload(encoding, step, &mock.next_batch())).collect()
    };
    for (scenario, encoding) in pairs() {
        assert_eq!(stream(scenario, encoding, 4), stream(scenario, encoding, 4));
        assert_ne!(stream(scenario, encoding, 4), stream(scenario, encoding, 5));
    }
}

#[test]
fn a_restart_begins_with_an_empty_cache() {
    for encoding in Encoding::ALL {
        let engine = start_engine();
        let mut mock = MockEngine::new(&options(Scenario::Mixed, encoding, 6)).unwrap();
        let mut before = ingest(&engine, 16);
        for step in 0..300 {
            before.apply(&payload(encoding, step, &mock.next_batch())).unwrap();
        }
        mock.restart();
        assert_eq!(mock.digest(WORKER), 0);
        let (mut after, mut ledger) = (ingest(&engine, 16), Ledger::new(16));
        for step in 0..300 {
            let events = mock.next_batch();
            if step == 0 {
                assert_eq!(events == [Event::Cleared], encoding == Encoding::Sglang);
            }
            ledger.apply(&events);
            after.apply(&payload(encoding, step, &events)).unwrap();
        }
        assert_eq!(after.digest(), ledger.digest(WORKER));
        assert_eq!(after.counters().filtered(Reason::UnknownParent), 0);
    }
}

#[test]
fn a_listener_that_missed_batches_holds_what_the_ledger_says() {
    let engine = start_engine();
    for (scenario, encoding) in pairs() {
        let mut mock = MockEngine::new(&options(scenario, encoding, 8)).unwrap();
        let (mut ingest, mut ledger) = (ingest(&engine, 16), Ledger::new(16));
        for step in 0..BATCHES {
            let events = mock.next_batch();
            if step % 5 != 3 {
                ledger.apply(&events);
                ingest.apply(&payload(encoding, step, &events)).unwrap();
            }
        }
        let context = format!("{} {}", scenario.label(), encoding.label());
        assert_ne!(ledger.digest(WORKER), mock.digest(WORKER), "{context}");
        assert_eq!(ingest.digest(), ledger.digest(WORKER), "{context}");
    }
}

#[test]
fn options_that_cannot_work_are_refused_in_one_sentence() {
    let refused = |options: &MockOptions| MockEngine::new(options).unwrap_err().to_string();
    let with = |block_size, pool_blocks| {
        let mut options = options(Scenario::Partial, Encoding::VllmMap, 0);
        (options.block_size, options.pool_blocks) = (block_size, pool_blocks);
        options
    };
    assert_eq!(refused(&with(0, 512)), "the block size must be 1 to 65536 tokens, not 0");
    assert_eq!(refused(&with(6, 512)), "partial tails need blocks of a multiple of 4 tokens, not 6");
    assert_eq!(refused(&with(16, 63)), "the pool must have 8 blocks per request to 1048576, not 63");
    for (scenario, encoding) in [
        (Scenario::Hybrid, Encoding::Sglang),
        (Scenario::Hybrid, Encoding::Trtllm),
        (Scenario::Partial, Encoding::VllmTuple),
        (Scenario::Partial, Encoding::Sglang),
        (Scenario::Partial, Encoding::Trtllm),
        (Scenario::Offload, Encoding::Trtllm),
    ] {
        let error = MockEngine::new(&options(scenario, encoding, 0)).unwrap_err();
        assert!(matches!(error, MockError::Inexpressible { .. }));
        let sentence = error.to_string();
        let start =
            format!("the encoding {} cannot express the scenario {}: ", encoding.label(), scenario.label());
        assert!(sentence.starts_with(&start) && sentence.len() > start.len(), "{sentence}");
    }
}

#[test]
fn a_group_says_its_window() {
    let mut mock = MockEngine::new(&options(Scenario::Hybrid, Encoding::VllmMap, 0)).unwrap();
    let mut seen = BTreeMap::new();
    for _ in 0..200 {
        for event in mock.next_batch() {
            if let Event::Stored(Stored { group, medium: Medium::Gpu, .. }) = event {
                seen.insert(group.index, group);
            }
        }
    }
    assert_eq!(seen[&0], Group::MAIN);
    let kinds: Vec<_> = seen.values().map(|group| (group.spec_kind, group.sliding_window)).collect();
    let expected = [
        ("full_attention", None),
        ("sliding_window", Some(64)),
        ("mamba", None),
        ("sliding_window", Some(128)),
    ];
    assert_eq!(kinds, expected);
}
