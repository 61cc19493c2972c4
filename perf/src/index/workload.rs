//! What the indexes are fed: multi-turn conversations that begin with shared system prompts, on workers that evict the least
//! recently used conversation, leaves first. One trace from a seed, for all systems.
//!
//! Workers emit what vLLM's do: a turn stores the blocks it misses (prefill, at most 512 blocks per event), then decode stores
//! one block per event; eviction removes one block per event. Engine hashes equal Dynamo's sequence hashes, which is what its
//! positional index needs.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;
use xxhash_rust::xxh3::xxh3_64_with_seed;

const SYSTEM_PROMPTS: usize = 64;
/// Percentage of turns that land on a random worker instead of the conversation's own.
const MIGRATING_PERCENT: u64 = 10;
/// Conversations grow no further.
const DEPTH_MAX: usize = 2000;
/// Blocks per stored event.
const STORED_MAX: usize = 512;
/// Blocks one worker evicts before it is another's turn, when all is evicted.
const EVICTED: usize = 128;
const SEED: u64 = 42;

/// SplitMix64.
#[derive(Clone)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }

    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A heavy-tailed length: exponential, at least 1.
    fn length(&mut self, mean: f64) -> usize {
        (1.0 - (1.0 - self.unit()).ln() * mean) as usize
    }
}

/// How much there is of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) workers: usize,
    /// Blocks each worker can hold; filling ends when nine of ten have reached it.
    pub(crate) capacity: usize,
    /// Blocks stored after that, while as many are evicted.
    pub(crate) steady_blocks: usize,
    pub(crate) queries: usize,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Kind {
    Store { parent: Option<u64> },
    Remove,
    Clear,
}

/// What one worker says; its blocks are a part of the trace's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event {
    pub(crate) worker: u32,
    pub(crate) kind: Kind,
    start: usize,
    pub(crate) len: usize,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    pub(crate) engine_hash: u64,
    pub(crate) local_hash: u64,
}

/// A block and the engine hash of its parent.
type Child = (Block, Option<u64>);

/// Everything that happens, in phases.
pub(crate) struct Trace {
    pub(crate) workers: usize,
    pub(crate) fill: Vec<Event>,
    pub(crate) steady: Vec<Event>,
    /// Evicts everything, leaves first, workers by turns.
    pub(crate) evict: Vec<Event>,
    /// Stores again what `evict` removes.
    pub(crate) refill: Vec<Event>,
    /// Clears every worker.
    pub(crate) clear: Vec<Event>,
    blocks: Vec<Block>,
    /// Live (worker, block) pairs after filling, and the distinct blocks among them.
    pub(crate) entries: usize,
    pub(crate) distinct: usize,
    /// Local hashes of prompts.
    pub(crate) queries: Vec<Vec<u64>>,
}

impl Trace {
    pub(crate) fn blocks_of(&self, event: &Event) -> &[Block] {
        &self.blocks[event.start..event.start + event.len]
    }
}

pub(crate) fn count(events: &[Event]) -> usize {
    events.iter().map(|event| event.len).sum()
}

#[derive(Clone, Default)]
struct Conversation {
    blocks: Vec<Block>,
    home: usize,
}

impl Conversation {
    fn grow(&mut self, random: &mut Random, blocks: usize) {
        for _ in 0..blocks {
            let local_hash = random.next();
            let engine_hash = match self.blocks.last() {
                Some(parent) => chain(parent.engine_hash, local_hash),
                None => local_hash,
            };
            self.blocks.push(Block { engine_hash, local_hash });
        }
    }
}

/// Dynamo's sequence hash.
fn chain(parent: u64, local_hash: u64) -> u64 {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&parent.to_le_bytes());
    bytes[8..].copy_from_slice(&local_hash.to_le_bytes());
    xxh3_64_with_seed(&bytes, 1337)
}

#[derive(Clone, Copy)]
struct Held {
    /// Blocks after it that are held too.
    children: u32,
    parent: Option<u64>,
}

#[derive(Default)]
struct Worker {
    held: FxHashMap<u64, Held>,
    /// Conversations with the tick of a use, oldest first. Only the last use counts.
    used: VecDeque<(usize, u64)>,
    last_use: FxHashMap<usize, u64>,
    tick: u64,
}

impl Worker {
    fn hold(&mut self, engine_hash: u64, parent: Option<u64>) {
        if let Some(parent) = parent {
            self.held.get_mut(&parent).expect("parents are held").children += 1;
        }
        self.held.insert(engine_hash, Held { children: 0, parent });
    }

    fn touch(&mut self, conversation: usize) {
        self.tick += 1;
        self.last_use.insert(conversation, self.tick);
        self.used.push_back((conversation, self.tick));
    }

    /// Evicts down to `limit` blocks: the oldest conversation first, from its tail. Gives what is gone.
    fn evict(&mut self, conversations: &[Conversation], limit: usize) -> Vec<Child> {
        let mut evicted = Vec::new();
        while self.held.len() > limit {
            let &(oldest, tick) = self.used.front().expect("blocks belong to conversations");
            let is_current = self.last_use.get(&oldest) == Some(&tick);
            if is_current && self.evict_tail(&conversations[oldest], limit, &mut evicted) {
                self.last_use.remove(&oldest);
            } else if is_current {
                break;
            }
            self.used.pop_front();
        }
        evicted
    }

    /// Whether all of the conversation is gone that no other shares.
    fn evict_tail(&mut self, conversation: &Conversation, limit: usize, evicted: &mut Vec<Child>) -> bool {
        for &block in conversation.blocks.iter().rev() {
            let Some(&Held { children, parent }) = self.held.get(&block.engine_hash) else { continue };
            if children > 0 {
                break;
            }
            if self.held.len() <= limit {
                return false;
            }
            self.held.remove(&block.engine_hash);
            if let Some(parent) = parent {
                self.held.get_mut(&parent).expect("parents are held").children -= 1;
            }
            evicted.push((block, parent));
        }
        true
    }
}

struct Maker {
    size: Size,
    random: Random,
    system_prompts: Vec<Conversation>,
    conversations: Vec<Conversation>,
    active: Vec<usize>,
    workers: Vec<Worker>,
    events: Vec<Event>,
    blocks: Vec<Block>,
}

pub(crate) fn generate(size: Size) -> Trace {
    let mut maker = Maker::new(size);
    let mut full = 0;
    while full * 10 < size.workers * 9 {
        full += usize::from(maker.turn().filled);
    }
    let fill = std::mem::take(&mut maker.events);
    let mut held: Vec<u64> = maker.workers.iter().flat_map(|worker| worker.held.keys().copied()).collect();
    let entries = held.len();
    held.sort_unstable();
    held.dedup();
    let active = maker.active.clone();
    let mut stored = 0;
    while stored < size.steady_blocks {
        stored += maker.turn().stored;
    }
    let steady = std::mem::take(&mut maker.events);
    let queries = maker.queries(&active);
    let (evict, refill) = maker.evict_all();
    (0..size.workers).for_each(|worker| maker.push(worker, Kind::Clear, []));
    Trace {
        workers: size.workers,
        fill,
        steady,
        evict,
        refill,
        clear: maker.events,
        blocks: maker.blocks,
        entries,
        distinct: held.len(),
        queries,
    }
}

/// What came of a turn.
struct Turn {
    filled: bool,
    stored: usize,
}

impl Maker {
    fn new(size: Size) -> Self {
        let mut random = Random(SEED);
        let system_prompts = (0..SYSTEM_PROMPTS).map(|_| {
            let mut prompt = Conversation::default();
            let blocks = 32 + random.below(225);
            prompt.grow(&mut random, blocks);
            prompt
        });
        Self {
            system_prompts: system_prompts.collect(),
            size,
            random,
            conversations: Vec::new(),
            active: Vec::new(),
            workers: (0..size.workers).map(|_| Worker::default()).collect(),
            events: Vec::new(),
            blocks: Vec::new(),
        }
    }

    fn push(&mut self, worker: usize, kind: Kind, blocks: impl IntoIterator<Item = Block>) {
        let start = self.blocks.len();
        self.blocks.extend(blocks);
        let len = self.blocks.len() - start;
        self.events.push(Event { worker: worker as u32, kind, start, len });
    }

    /// An active conversation, or a new one.
    fn pick(&mut self) -> usize {
        let active_max = self.size.workers * (self.size.capacity / 400).max(4);
        let is_full = self.active.len() >= active_max;
        if is_full && self.random.below(4) != 0 {
            return self.active[self.random.below(active_max)];
        }
        // System prompts are Zipf-popular.
        let popular = (SYSTEM_PROMPTS as f64).powf(self.random.unit()) as usize;
        let mut conversation = self.system_prompts[popular.clamp(1, SYSTEM_PROMPTS) - 1].clone();
        conversation.home = self.random.below(self.size.workers);
        self.conversations.push(conversation);
        let number = self.conversations.len() - 1;
        if is_full {
            let at = self.random.below(active_max);
            self.active[at] = number;
        } else {
            self.active.push(number);
        }
        number
    }

    fn turn(&mut self) -> Turn {
        let number = self.pick();
        let (random, conversation) = (&mut self.random, &mut self.conversations[number]);
        if conversation.blocks.len() < DEPTH_MAX {
            let asked = if random.below(20) == 0 { 200 + random.below(400) } else { random.length(24.0) };
            conversation.grow(random, asked);
        }
        let replied = random.length(16.0);
        conversation.grow(random, replied);
        let migrates = (random.below(100) as u64) < MIGRATING_PERCENT;
        let at = if migrates { random.below(self.size.workers) } else { conversation.home };
        let capacity = self.size.capacity;
        let before = self.workers[at].held.len();
        let stored = self.store(at, number, replied);
        self.workers[at].touch(number);
        let filled = before < capacity && self.workers[at].held.len() >= capacity;
        for (block, _) in self.workers[at].evict(&self.conversations, capacity) {
            self.push(at, Kind::Remove, [block]);
        }
        Turn { filled, stored }
    }

    /// The blocks of a conversation that a worker misses: in chunks, but those of the reply one by one.
    fn store(&mut self, at: usize, number: usize, replied: usize) -> usize {
        let blocks = std::mem::take(&mut self.conversations[number].blocks);
        let worker = &mut self.workers[at];
        let known = blocks.iter().take_while(|block| worker.held.contains_key(&block.engine_hash)).count();
        let mut parent = known.checked_sub(1).map(|last| blocks[last].engine_hash);
        for block in &blocks[known..] {
            worker.hold(block.engine_hash, parent);
            parent = Some(block.engine_hash);
        }
        let mut next = known;
        while next < blocks.len() {
            let asked = (blocks.len() - replied).saturating_sub(next);
            let end = next + asked.clamp(1, STORED_MAX);
            let parent = next.checked_sub(1).map(|last| blocks[last].engine_hash);
            self.push(at, Kind::Store { parent }, blocks[next..end].iter().copied());
            next = end;
        }
        let stored = blocks.len() - known;
        self.conversations[number].blocks = blocks;
        stored
    }

    /// Prompts of conversations that were active, cut somewhere, and 16 blocks that nobody has seen.
    fn queries(&mut self, active: &[usize]) -> Vec<Vec<u64>> {
        let query = |_| {
            let blocks = &self.conversations[active[self.random.below(active.len())]].blocks;
            let cut = 16 + self.random.below(blocks.len() - 15);
            let mut locals: Vec<u64> = blocks[..cut].iter().map(|block| block.local_hash).collect();
            locals.extend((0..16).map(|_| self.random.next()));
            locals
        };
        (0..self.size.queries).map(query).collect()
    }

    /// Evicts everything, and stores it again: from the end, so that parents come before their children.
    fn evict_all(&mut self) -> (Vec<Event>, Vec<Event>) {
        let mut gone: Vec<(usize, Vec<Child>)> = Vec::new();
        while self.workers.iter().any(|worker| !worker.held.is_empty()) {
            for at in 0..self.workers.len() {
                let limit = self.workers[at].held.len().saturating_sub(EVICTED);
                let evicted = self.workers[at].evict(&self.conversations, limit);
                for &(block, _) in &evicted {
                    self.push(at, Kind::Remove, [block]);
                }
                gone.push((at, evicted));
            }
        }
        let evict = std::mem::take(&mut self.events);
        for (at, mut evicted) in gone.into_iter().rev() {
            evicted.reverse();
            for run in evicted.chunk_by(|(block, _), (_, parent)| Some(block.engine_hash) == *parent) {
                let parent = run[0].1;
                self.push(at, Kind::Store { parent }, run.iter().map(|&(block, _)| block));
            }
        }
        (evict, std::mem::take(&mut self.events))
    }
}
