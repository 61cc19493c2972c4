//! One source with its engine, and events built value by value: for tests that state exact answers.

use std::ops::RangeInclusive;

use kvtap::wire::{Event as WireEvent, EventError, WireError};
use kvtap::{
    Config, Engine, Ingest, Match, Observer, Placement, Prompt, Reader, Reason, SourceConfig, Verdict, Worker,
};
use rmpv::Value;

/// Tokens per block unless a test says otherwise.
pub(crate) const BLOCK_SIZE: u32 = 4;

/// A msgpack array of anything that is a value.
#[allow(unused_macros, reason = "every test binary uses its own part of this")]
macro_rules! list {
    ($($item:expr),* $(,)?) => { ::rmpv::Value::Array(vec![$(::rmpv::Value::from($item)),*]) };
}

/// A msgpack map with text keys.
#[allow(unused_macros, reason = "every test binary uses its own part of this")]
macro_rules! record {
    ($($key:literal: $value:expr),* $(,)?) => {
        ::rmpv::Value::Map(vec![$((::rmpv::Value::from($key), ::rmpv::Value::from($value))),*])
    };
}

#[allow(unused_imports, reason = "every test binary uses its own part of this")]
pub(crate) use {list, record};

/// A tagged map event under construction.
#[derive(Clone, Debug)]
pub(crate) struct Event(Vec<(Value, Value)>);

impl Event {
    pub(crate) fn new(tag: &str) -> Self {
        Self(vec![(Value::from("type"), Value::from(tag))])
    }

    /// Sets a key, replacing an earlier value.
    pub(crate) fn set(mut self, key: &str, value: impl Into<Value>) -> Self {
        let value = value.into();
        match self.0.iter_mut().find(|(known, _)| known.as_str() == Some(key)) {
            Some((_, old)) => *old = value,
            None => self.0.push((Value::from(key), value)),
        }
        self
    }

    pub(crate) fn without(mut self, key: &str) -> Self {
        self.0.retain(|(known, _)| known.as_str() != Some(key));
        self
    }
}

impl From<Event> for Value {
    fn from(event: Event) -> Self {
        Self::Map(event.0)
    }
}

/// A store on the device tier, in blocks of four.
pub(crate) fn store(hashes: &[u64], parent: Option<u64>, tokens: RangeInclusive<u32>) -> Event {
    Event::new("BlockStored")
        .set("block_hashes", hash_list(hashes))
        .set("parent_block_hash", parent.map_or(Value::Nil, Value::from))
        .set("token_ids", token_list(tokens))
        .set("block_size", BLOCK_SIZE)
}

/// A store of hashes alone, as offload connectors send it.
pub(crate) fn store_by_hash(hashes: &[u64], medium: &str) -> Event {
    Event::new("BlockStored")
        .set("block_hashes", hash_list(hashes))
        .set("parent_block_hash", Value::Nil)
        .set("token_ids", list![])
        .set("block_size", 0)
        .set("medium", medium)
}

pub(crate) fn remove(hashes: &[u64]) -> Event {
    Event::new("BlockRemoved").set("block_hashes", hash_list(hashes))
}

pub(crate) fn clear() -> Event {
    Event::new("AllBlocksCleared")
}

pub(crate) fn hash_list(hashes: &[u64]) -> Value {
    Value::Array(hashes.iter().copied().map(Value::from).collect())
}

pub(crate) fn token_list(tokens: impl IntoIterator<Item = u32>) -> Value {
    Value::Array(tokens.into_iter().map(Value::from).collect())
}

pub(crate) fn pack(value: &Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    rmpv::encode::write_value(&mut bytes, value).expect("writing to memory");
    bytes
}

/// A payload `[1.0, events, rank]`.
pub(crate) fn payload(events: impl IntoIterator<Item = impl Into<Value>>, rank: impl Into<Value>) -> Vec<u8> {
    let events = Value::Array(events.into_iter().map(Into::into).collect());
    pack(&list![1.0, events, rank.into()])
}

/// What became of one payload's events.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Seen {
    pub(crate) verdicts: Vec<Verdict>,
    pub(crate) placements: Vec<Placement>,
}

impl Seen {
    /// Local hashes of the blocks stored, in order.
    pub(crate) fn local_hashes(&self) -> Vec<u64> {
        let local = |placement: &Placement| {
            let Placement::Store { local_hash, .. } = *placement else { return None };
            local_hash.map(|hash| hash.0)
        };
        self.placements.iter().filter_map(local).collect()
    }

    /// Engine hashes and tier labels of stores (`+`), removals (`-`) and clears (`x`).
    pub(crate) fn ops(&self) -> Vec<(char, &'static str, u64)> {
        let op = |placement: &Placement| match *placement {
            Placement::Store { tier, engine_hash, .. } => ('+', tier.label(), engine_hash.0),
            Placement::Remove { tier, engine_hash, .. } => ('-', tier.label(), engine_hash.0),
            Placement::Clear => ('x', "", 0),
            other => panic!("unknown placement {other:?}"),
        };
        self.placements.iter().map(op).collect()
    }

    pub(crate) fn error(&self, event: usize) -> EventError {
        let Verdict::Malformed(error) = self.verdicts[event] else {
            panic!("event {event} is {:?}", self.verdicts[event])
        };
        error
    }
}

impl Observer for Seen {
    fn event(&mut self, _: Worker, _: &mut WireEvent<'_>, verdict: Verdict) {
        self.verdicts.push(verdict);
    }

    fn placement(&mut self, _: Worker, placement: Placement) {
        self.placements.push(placement);
    }
}

/// Counters, in a form that tests can write down: what is left out is zero.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) stored: u64,
    pub(crate) removed: u64,
    pub(crate) cleared: u64,
    pub(crate) unknown: u64,
    pub(crate) malformed: u64,
    /// Blocks placed and taken out again, every copy.
    pub(crate) placed: u64,
    pub(crate) evicted: u64,
    /// By label, in the order of `Reason::ALL`; those that are not zero.
    pub(crate) filtered: Vec<(&'static str, u64)>,
}

/// A source, its engine and a query side.
pub(crate) struct Source {
    pub(crate) engine: Engine,
    pub(crate) ingest: Ingest,
    pub(crate) reader: Reader,
    pub(crate) config: SourceConfig,
}

impl Source {
    /// Worker 0, rank 0, blocks of four, three shards.
    pub(crate) fn new() -> Self {
        Self::with(|_| ())
    }

    pub(crate) fn with(change: impl FnOnce(&mut SourceConfig)) -> Self {
        let mut engine_config = Config::default();
        engine_config.shards = 3;
        let engine = Engine::new(engine_config).expect("a good configuration");
        let mut config = SourceConfig::new(0);
        config.block_size = BLOCK_SIZE;
        change(&mut config);
        let ingest = engine.ingest(config.clone()).expect("a good source");
        Self { ingest, reader: engine.reader(), engine, config }
    }

    /// Applies a sound payload of rank 0.
    pub(crate) fn apply(&mut self, events: impl IntoIterator<Item = impl Into<Value>>) -> Seen {
        self.apply_rank(0, events)
    }

    pub(crate) fn apply_rank(
        &mut self,
        rank: u32,
        events: impl IntoIterator<Item = impl Into<Value>>,
    ) -> Seen {
        self.try_apply(&payload(events, rank)).expect("a sound payload")
    }

    /// Applies any payload; shows nothing of a refused one.
    pub(crate) fn try_apply(&mut self, payload: &[u8]) -> Result<Seen, WireError> {
        let mut seen = Seen::default();
        match self.ingest.apply_observed(payload, &mut seen) {
            Ok(_) => Ok(seen),
            Err(error) => {
                assert_eq!(seen, Seen::default(), "nothing of a refused payload is shown");
                Err(error)
            }
        }
    }

    pub(crate) fn counts(&self) -> Counts {
        let counters = self.ingest.counters();
        Counts {
            stored: counters.stored_events,
            removed: counters.removed_events,
            cleared: counters.cleared_events,
            unknown: counters.unknown_events,
            malformed: counters.malformed_events,
            placed: counters.placed_blocks,
            evicted: counters.removed_blocks,
            filtered: Reason::ALL
                .iter()
                .map(|&reason| (reason.label(), counters.filtered(reason)))
                .filter(|&(_, count)| count > 0)
                .collect(),
        }
    }

    /// Drift labels with counts.
    pub(crate) fn drift(&self) -> Vec<(String, u64)> {
        self.ingest.drift().map(|(label, count)| (label.to_owned(), count)).collect()
    }

    /// Who matches a prompt of these tokens.
    pub(crate) fn matches(&mut self, tokens: RangeInclusive<u32>) -> Vec<(u64, u32, [u32; 4])> {
        let tokens: Vec<u32> = tokens.collect();
        let prompt = Prompt::new(&tokens, self.config.block_size);
        self.matches_of(&prompt)
    }

    pub(crate) fn matches_of(&mut self, prompt: &Prompt<'_>) -> Vec<(u64, u32, [u32; 4])> {
        self.ingest.flush();
        let mut matches = Vec::new();
        self.reader.find_matches(prompt, &mut matches);
        matches.iter().map(plain).collect()
    }

    /// Depths of the only worker; zeros if it matches nothing.
    pub(crate) fn depths(&mut self, tokens: RangeInclusive<u32>) -> [u32; 4] {
        only(&self.matches(tokens))
    }

    /// As `depths`, under an adapter and a salt; empty is none.
    pub(crate) fn depths_in(&mut self, lora: &str, salt: &str, tokens: RangeInclusive<u32>) -> [u32; 4] {
        let tokens: Vec<u32> = tokens.collect();
        let prompt = Prompt {
            lora_name: Some(lora),
            cache_salt: Some(salt),
            ..Prompt::new(&tokens, self.config.block_size)
        };
        only(&self.matches_of(&prompt))
    }

    /// Depths by rank, under a salt; empty is none.
    pub(crate) fn depths_of_ranks(
        &mut self,
        salt: &str,
        tokens: RangeInclusive<u32>,
    ) -> Vec<(u32, [u32; 4])> {
        let tokens: Vec<u32> = tokens.collect();
        let prompt = Prompt { cache_salt: Some(salt), ..Prompt::new(&tokens, self.config.block_size) };
        self.matches_of(&prompt).into_iter().map(|(_, rank, depths)| (rank, depths)).collect()
    }
}

fn plain(found: &Match) -> (u64, u32, [u32; 4]) {
    (found.worker.worker_id, found.worker.dp_rank, found.depths)
}

fn only(matches: &[(u64, u32, [u32; 4])]) -> [u32; 4] {
    match matches {
        [] => [0; 4],
        [(_, _, depths)] => *depths,
        more => panic!("one worker, but {more:?}"),
    }
}
