//! The simulated engine: admits requests, computes a piece of each per step, and tells of every block that came or went.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use fastrand::Rng;

use super::event::{Event, Group, Identity, Medium, Removed, Stored};
use super::pool::{BlockId, Name, Pool};
use super::scenario::{Encoding, Feature, MockError, Scenario};
use super::tiers::Tiers;
use super::traffic::{Clients, Traffic, Turn};
use crate::hash::{SaltHash, Seed, digest_term, local_hash};
use crate::ids::{EngineHash, Worker};

/// Blocks of prompt that one request computes per step.
const PREFILL_BLOCKS: usize = 16;
/// Pieces of a block that partial tails are cut into.
const PARTIAL_UNITS: usize = 4;
/// One of so many steps clears the cache, where that is part of the scenario.
const CLEAR_ONE_IN: u32 = 250;

/// What an engine is to simulate.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MockOptions {
    /// The kind of traffic.
    pub scenario: Scenario,
    /// Whose ways it has: which events there are, and in what pieces.
    pub encoding: Encoding,
    /// Equal options and seeds give equal events.
    pub seed: u64,
    /// Tokens per block: 1 to 65,536.
    pub block_size: u32,
    /// Blocks of the device: at least 8 per request, at most 1,048,576.
    pub pool_blocks: usize,
    /// Requests that run at the same time, at most: 1 to 1,024.
    pub requests: usize,
}

impl MockOptions {
    /// Seed 0, blocks of 16 tokens, 512 of them, 8 requests.
    #[must_use]
    pub const fn new(scenario: Scenario, encoding: Encoding) -> Self {
        Self { scenario, encoding, seed: 0, block_size: 16, pool_blocks: 512, requests: 8 }
    }
}

/// A simulated engine.
#[derive(Debug)]
pub struct MockEngine {
    encoding: Encoding,
    block_size: usize,
    features: Vec<Feature>,
    groups: Vec<Group>,
    pool: Pool,
    tiers: Tiers,
    traffic: Traffic,
    requests: Vec<Request>,
    requests_max: usize,
    rng: Rng,
    /// Of the current step.
    events: Vec<Event>,
    /// Of a finished step, where each event is a batch of its own.
    pending: VecDeque<Event>,
    /// No step yet since the process started.
    is_fresh: bool,
    /// A full block came since the start or the last clear: only then can a tail be told from a wrong block size.
    has_stored: bool,
}

/// A request that is being computed.
#[derive(Debug)]
struct Request {
    turn: Turn,
    /// Of every full block.
    hashes: Vec<EngineHash>,
    computed: usize,
    /// Per group the blocks that hold its tokens; `None` where it keeps none.
    tables: Vec<Vec<Option<BlockId>>>,
    /// The tails told of its last block since that is being filled.
    tails: Vec<Stored>,
}

impl MockEngine {
    /// Starts with an empty pool.
    ///
    /// # Errors
    /// If the options cannot work together.
    pub fn new(options: &MockOptions) -> Result<Self, MockError> {
        let features = options.scenario.features(options.encoding)?;
        if !(1..=65_536).contains(&options.block_size) {
            return Err(MockError::BlockSize(options.block_size));
        }
        let block_size = options.block_size as usize;
        if features.contains(&Feature::PartialTails) && !block_size.is_multiple_of(PARTIAL_UNITS) {
            return Err(MockError::UncutBlocks(options.block_size));
        }
        if !(1..=1024).contains(&options.requests) {
            return Err(MockError::Requests(options.requests));
        }
        if !(8 * options.requests..=1 << 20).contains(&options.pool_blocks) {
            return Err(MockError::PoolBlocks(options.pool_blocks));
        }
        let groups = groups(options.block_size, &features);
        let mut rng = Rng::with_seed(options.seed);
        // Half as many again as fit when all requests are that long: now and then one finds no block and is given up.
        let tokens_max = options.pool_blocks * block_size * 3 / 2 / (groups.len() * options.requests);
        let clients = Clients {
            conversations: 3 * options.requests,
            tokens_max,
            have_namespaces: features.contains(&Feature::Namespaces),
        };
        let traffic = Traffic::new(rng.fork(), clients);
        Ok(Self {
            encoding: options.encoding,
            block_size,
            features,
            groups,
            pool: Pool::new(options.pool_blocks),
            tiers: Tiers::new(options.pool_blocks),
            traffic,
            requests: Vec::new(),
            requests_max: options.requests,
            rng,
            events: Vec::new(),
            pending: VecDeque::new(),
            is_fresh: true,
            has_stored: false,
        })
    }

    /// The events of the next step that has any; there is always another.
    pub fn next_batch(&mut self) -> Vec<Event> {
        loop {
            if let Some(event) = self.pending.pop_front() {
                return vec![event];
            }
            self.step();
            let events = std::mem::take(&mut self.events);
            if self.encoding.sends_single_events() {
                self.pending.extend(events);
            } else if !events.is_empty() {
                return events;
            }
        }
    }

    /// Dies without a word and starts again with nothing in its cache.
    pub fn restart(&mut self) {
        self.drop_everything();
        self.pending.clear();
        self.is_fresh = true;
    }

    /// What the engine holds of its main group, as the digest of an index that holds the same. Between the batches of one
    /// step (see [`Self::is_between_steps`]) it is ahead of what was told.
    #[must_use]
    pub fn digest(&self, worker: Worker) -> u64 {
        let main = |name: &&Name| name.group_idx == Group::MAIN.index && !name.partial;
        let device = self.pool.names().filter(main).map(|name| (Medium::Gpu, name.hash));
        let below = self.tiers.resident();
        let term = |(medium, hash): (Medium, EngineHash)| digest_term(worker, medium.tier(), hash);
        device.chain(below).map(term).fold(0, u64::wrapping_add)
    }

    /// Whether all that happened was told.
    #[must_use]
    pub fn is_between_steps(&self) -> bool {
        self.pending.is_empty()
    }

    fn has(&self, feature: Feature) -> bool {
        self.features.contains(&feature)
    }

    fn step(&mut self) {
        if std::mem::take(&mut self.is_fresh) && self.encoding.clears_at_start() {
            self.events.push(Event::Cleared);
            return;
        }
        if self.has(Feature::Clears) && self.rng.u32(0..CLEAR_ONE_IN) == 0 {
            self.drop_everything();
            self.events.push(Event::Cleared);
            return;
        }
        self.admit();
        let mut finished = Vec::new();
        for mut request in std::mem::take(&mut self.requests) {
            if !self.compute(&mut request) {
                self.release(&request);
                self.traffic.abort(&request.turn);
            } else if request.computed < request.turn.tokens.len() {
                self.requests.push(request);
            } else {
                finished.push(request);
            }
        }
        // Last, so that nothing of theirs is evicted in this step: connectors tell of their copies after the device.
        for request in finished {
            self.release(&request);
            self.offload(&request);
            self.traffic.finish(request.turn);
        }
    }

    /// Lets some more requests in, now and then two with the same prompt.
    fn admit(&mut self) {
        for _ in 0..self.requests_max.div_ceil(8) {
            let free = self.requests_max - self.requests.len();
            let turn = if free > 0 { self.traffic.next_turn() } else { None };
            let Some(turn) = turn else { return };
            let again = if free > 1 { self.traffic.sample_again(&turn) } else { None };
            [Some(turn), again].into_iter().flatten().for_each(|turn| self.start(turn));
        }
    }

    /// Starts a request with the blocks that the cache has of it.
    fn start(&mut self, turn: Turn) {
        let hashes = chain(&turn, self.block_size);
        // The last token of a prompt is always computed.
        let full = (turn.prompt_tokens - 1) / self.block_size;
        let found = hashes.iter().take(full).take_while(|hash| {
            let name = Name { group_idx: Group::MAIN.index, hash: **hash, partial: false };
            self.pool.find(&name).is_some()
        });
        let found = found.count();
        let mut tables = Vec::new();
        // Groups with a window find what they find: a real engine would need the window's blocks, too.
        for group in &self.groups {
            let names = hashes.iter().take(found);
            let names = names.map(|hash| Name { group_idx: group.index, hash: *hash, partial: false });
            let table: Vec<_> = names.map(|name| self.pool.find(&name)).collect();
            table.iter().flatten().for_each(|id| self.pool.hold(*id));
            tables.push(table);
        }
        self.requests.push(Request {
            turn,
            hashes,
            computed: found * self.block_size,
            tables,
            tails: Vec::new(),
        });
    }

    /// Computes a piece; false if there is no block left for it.
    fn compute(&mut self, request: &mut Request) -> bool {
        let turn = &request.turn;
        let to = if request.computed < turn.prompt_tokens {
            turn.prompt_tokens.min(request.computed + PREFILL_BLOCKS * self.block_size)
        } else {
            // One token in small blocks; in large ones more, or most steps would have nothing to tell.
            turn.tokens.len().min(request.computed + self.block_size.div_ceil(16))
        };
        for table in &mut request.tables {
            while table.len() < to.div_ceil(self.block_size) {
                let mut lost = Vec::new();
                let block = self.pool.take(&mut lost);
                lost.into_iter().for_each(|name| self.removed(name));
                let Some(block) = block else { return false };
                table.push(Some(block));
            }
        }
        let filled = request.computed / self.block_size..to / self.block_size;
        request.computed = to;
        if !filled.is_empty() {
            self.fill(request, &filled);
            self.has_stored = true;
        }
        let pauses = to == request.turn.prompt_tokens || to == request.turn.tokens.len();
        if pauses && self.has_stored && self.has(Feature::PartialTails) {
            self.store_tail(request);
        }
        true
    }

    /// Tells of blocks that are full now, in every group.
    fn fill(&mut self, request: &mut Request, filled: &Range<usize>) {
        let tails = std::mem::take(&mut request.tails);
        let block = request.tables[0][filled.start];
        for tail in &tails {
            let name = Name { group_idx: Group::MAIN.index, hash: tail.block_hashes[0], partial: true };
            block.into_iter().for_each(|id| self.pool.unname(id, &name));
            self.removed(name);
        }
        for group in 0..self.groups.len() {
            self.store(request, group, filled.clone());
        }
        for tail in tails {
            // vLLM 0.33.0 often names a full block by its former tail once more (`engine-vllm-0.33.0-mamba-partial64`).
            if self.rng.bool() {
                self.name_tail(block, tail);
            }
        }
    }

    /// Names the blocks that a group keeps of those just filled, lets go of the others and of what left its window, and
    /// tells of it.
    fn store(&mut self, request: &mut Request, group: usize, mut filled: Range<usize>) {
        let Request { turn, hashes, computed, tables, .. } = request;
        let (group, table) = (self.groups[group], &mut tables[group]);
        let name = |block: usize| Name { group_idx: group.index, hash: hashes[block], partial: false };
        if self.encoding.keeps_one_copy() {
            // Whoever computed the same before has the better claim; leaf-first eviction makes these the leading ones.
            while let Some(other) = filled.clone().next().and_then(|block| self.pool.find(&name(block))) {
                let own = table[filled.start].replace(other);
                self.pool.hold(other);
                own.into_iter().for_each(|own| self.pool.release(own));
                filled.start += 1;
            }
            if filled.is_empty() {
                return;
            }
        }
        let first_kept = match (group.sliding_window, group.spec_kind) {
            (Some(window), _) => computed.saturating_sub(window as usize) / self.block_size,
            (None, "mamba") => filled.end - 1,
            (None, _) => 0,
        };
        for left in table.iter_mut().take(first_kept).rev().filter_map(Option::take) {
            self.pool.release(left);
        }
        let kept = filled.start.max(first_kept)..filled.end;
        for block in kept.clone() {
            table[block].into_iter().for_each(|id| self.pool.name(id, name(block)));
        }
        let stored = Stored {
            block_hashes: hashes[kept].to_vec(),
            parent: filled.start.checked_sub(1).map(|before| hashes[before]),
            token_ids: turn.tokens[filled.start * self.block_size..filled.end * self.block_size].to_vec(),
            block_size: tokens_as_u32(self.block_size),
            medium: Medium::Gpu,
            group,
            identity: Arc::clone(&turn.identity),
        };
        self.events.push(Event::Stored(stored));
    }

    /// Tells of the block that is not full, if a unit of it is. Only the last full unit is told of, so its parent may
    /// never have been.
    fn store_tail(&mut self, request: &mut Request) {
        let unit = self.block_size / PARTIAL_UNITS;
        let start = request.computed - request.computed % self.block_size;
        let end = request.computed - request.computed % unit;
        if start == end {
            return;
        }
        let Request { turn, hashes, tables, .. } = &*request;
        let before = start.checked_sub(self.block_size).map(|before| hashes[before / self.block_size]);
        let unit_hash = |end: usize| engine_hash(before, &turn.tokens[start..end], &turn.identity);
        let tail = Stored {
            block_hashes: vec![unit_hash(end)],
            parent: if end - unit == start { before } else { Some(unit_hash(end - unit)) },
            token_ids: turn.tokens[end - unit..end].to_vec(),
            block_size: tokens_as_u32(unit),
            medium: Medium::Gpu,
            group: Group::MAIN,
            identity: Arc::clone(&turn.identity),
        };
        if request.tails.last() != Some(&tail) {
            self.name_tail(tables[0].last().copied().flatten(), tail.clone());
            request.tails.push(tail);
        }
    }

    fn name_tail(&mut self, block: Option<BlockId>, tail: Stored) {
        let Some(block) = block else { return };
        let hash = tail.block_hashes[0];
        self.pool.name(block, Name { group_idx: Group::MAIN.index, hash, partial: true });
        self.events.push(Event::Stored(tail));
    }

    /// Tells that a copy left the device.
    fn removed(&mut self, name: Name) {
        if let (true, Some(Event::Removed(last))) = (self.encoding.merges_removals(), self.events.last_mut())
            && last.medium == Medium::Gpu
        {
            last.block_hashes.push(name.hash);
            return;
        }
        let (block_hashes, medium) = (vec![name.hash], Medium::Gpu);
        self.events.push(Event::Removed(Removed { block_hashes, medium, group_idx: name.group_idx }));
    }

    /// Copies the full blocks of a finished request to the tiers below.
    fn offload(&mut self, request: &Request) {
        if !self.has(Feature::Offload) {
            return;
        }
        let by_hash = self.encoding.offloads_by_hash();
        let block = |number: usize| {
            let bare = Stored {
                block_hashes: vec![request.hashes[number]],
                parent: None,
                token_ids: Vec::new(),
                block_size: 0,
                medium: Medium::Cpu,
                group: Group::MAIN,
                identity: Arc::default(),
            };
            if by_hash {
                return bare;
            }
            let tokens = number * self.block_size..(number + 1) * self.block_size;
            Stored {
                parent: number.checked_sub(1).map(|before| request.hashes[before]),
                token_ids: request.turn.tokens[tokens].to_vec(),
                block_size: tokens_as_u32(self.block_size),
                identity: Arc::clone(&request.turn.identity),
                ..bare
            }
        };
        let full = request.computed / self.block_size;
        self.tiers.offload((0..full).map(block).collect(), &mut self.events);
    }

    /// Lets go of all blocks, the last first.
    fn release(&mut self, request: &Request) {
        for id in request.tables.iter().flat_map(|table| table.iter().rev().flatten()) {
            self.pool.release(*id);
        }
    }

    fn drop_everything(&mut self) {
        for request in std::mem::take(&mut self.requests) {
            self.release(&request);
            self.traffic.abort(&request.turn);
        }
        self.pool.clear();
        self.tiers.clear();
        self.has_stored = false;
    }
}

/// One group of full attention, or with it two windows and a state, as hybrid models have.
fn groups(block_size: u32, features: &[Feature]) -> Vec<Group> {
    let window = |index, blocks| {
        let sliding_window = Some(blocks * block_size);
        Group { index, spec_kind: "sliding_window", sliding_window }
    };
    let state = Group { index: 2, spec_kind: "mamba", sliding_window: None };
    let all = [Group::MAIN, window(1, 4), state, window(3, 8)];
    if features.contains(&Feature::Groups) { all.to_vec() } else { vec![Group::MAIN] }
}

/// Hashes of the full blocks.
fn chain(turn: &Turn, block_size: usize) -> Vec<EngineHash> {
    let mut parent = None;
    let step = |tokens: &[u32]| {
        let hash = engine_hash(parent, tokens, &turn.identity);
        parent = Some(hash);
        hash
    };
    turn.tokens.chunks_exact(block_size).map(step).collect()
}

/// A hash as engines chain it: of the block before, the tokens, and what else tells prompts apart. No router's hash.
fn engine_hash(parent: Option<EngineHash>, tokens: &[u32], identity: &Identity) -> EngineHash {
    let mut bytes = parent.map_or(0, |hash| hash.0).to_le_bytes().to_vec();
    bytes.extend(tokens.iter().flat_map(|token| token.to_le_bytes()));
    let salt = SaltHash::of(identity.cache_salt.as_deref().map(str::as_bytes));
    let seed = Seed::new(identity.lora.as_ref().map(|lora| lora.name.as_str()), salt);
    EngineHash(local_hash(&bytes, seed).0)
}

#[expect(clippy::cast_possible_truncation, reason = "at most 65,536")]
const fn tokens_as_u32(tokens: usize) -> u32 {
    tokens as u32
}
