//! Synthetic routing workload: many workers, shared system prompts, multi-turn conversations,
//! per-worker LRU eviction. Produces one event trace that every index consumes.
//!
//! What each worker emits follows vLLM: a turn stores the blocks it is missing (prefill, at most
//! 512 blocks per event), then decode stores one block per event; eviction removes tail blocks of
//! the least recently used conversation first, `rm_batch` hashes per event (vLLM sends one).
//! Engine hashes are set equal to Dynamo's sequence hash, which is what its positional index
//! needs; the prototype treats them as opaque.

use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// splitmix64, so runs are reproducible without a dependency.
#[derive(Clone)]
pub struct Rng(pub u64);
impl Rng {
    #[inline]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
    pub fn below(&mut self, n: u64) -> u64 {
        ((self.next() as u128 * n as u128) >> 64) as u64
    }
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// The chain step of Dynamo's sequence hash.
#[inline(always)]
pub fn chain(parent: u64, local: u64) -> u64 {
    let mut b = [0u8; 16];
    b[..8].copy_from_slice(&parent.to_le_bytes());
    b[8..].copy_from_slice(&local.to_le_bytes());
    xxh3_64_with_seed(&b, 1337)
}

#[derive(Clone, Copy, Debug)]
pub struct Cfg {
    pub workers: usize,
    /// Blocks each worker can hold; the fill phase ends when every worker has reached it.
    pub capacity: usize,
    pub sys_prompts: usize,
    /// Blocks stored in the steady phase that follows the fill phase.
    pub steady_blocks: usize,
    /// Percentage of turns that land on a random worker instead of the conversation's own.
    pub migrate_pct: u64,
    pub max_depth: usize,
    pub rm_batch: usize,
    pub seed: u64,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Kind {
    Store { parent: Option<u64> },
    Remove,
}

#[derive(Clone, Copy, Debug)]
pub struct Event {
    pub worker: u32,
    pub kind: Kind,
    pub start: u32,
    pub len: u32,
}

/// (engine hash, local hash)
pub type Block = (u64, u64);

pub struct Query {
    pub locals: Vec<u64>,
    pub prefixes: Vec<u64>,
}

pub struct Trace {
    pub cfg: Cfg,
    pub fill: Vec<Event>,
    pub steady: Vec<Event>,
    pub blocks: Vec<Block>,
    /// Live (worker, block) pairs after the fill phase, and the distinct blocks among them.
    pub entries: usize,
    pub distinct: usize,
    pub queries: Vec<Query>,
}

impl Trace {
    pub fn blocks_of<'a>(&'a self, e: &Event) -> &'a [Block] {
        &self.blocks[e.start as usize..(e.start + e.len) as usize]
    }
    pub fn count(&self, evs: &[Event]) -> (usize, usize) {
        evs.iter().fold((0, 0), |(s, r), e| match e.kind {
            Kind::Store { .. } => (s + e.len as usize, r),
            Kind::Remove => (s, r + e.len as usize),
        })
    }
}

struct Conv {
    locals: Vec<u64>,
    prefixes: Vec<u64>,
    home: usize,
}

#[derive(Default)]
struct Worker {
    /// prefix -> (children present on this worker, local hash)
    held: FxHashMap<u64, (u32, u64)>,
    lru: VecDeque<(u32, u64)>,
    stamp: FxHashMap<u32, u64>,
    tick: u64,
}

fn grow(c: &mut Conv, r: &mut Rng, n: usize) {
    for _ in 0..n {
        let l = r.next();
        let p = c.prefixes.last().map_or(l, |&p| chain(p, l));
        c.locals.push(l);
        c.prefixes.push(p);
    }
}

/// Heavy-tailed length with the given mean (exponential, at least 1).
fn exp_len(r: &mut Rng, mean: f64) -> usize {
    (1.0 + -(1.0 - r.unit()).ln() * mean) as usize
}

struct Gen {
    evs: Vec<Event>,
    blocks: Vec<Block>,
}

impl Gen {
    fn push(&mut self, worker: usize, kind: Kind, it: impl Iterator<Item = Block>) {
        let start = self.blocks.len();
        self.blocks.extend(it);
        let len = (self.blocks.len() - start) as u32;
        self.evs.push(Event { worker: worker as u32, kind, start: start as u32, len });
    }
}

fn turn(g: &mut Gen, w: &mut Worker, wi: usize, ci: u32, convs: &[Conv], decode: usize, cfg: &Cfg) {
    let c = &convs[ci as usize];
    let n = c.prefixes.len();
    let mut k = 0;
    while k < n && w.held.contains_key(&c.prefixes[k]) {
        k += 1;
    }
    // Prefill the missing blocks in chunks, then decode one block per event.
    let mut at = k;
    while at < n {
        let chunk = if at + decode >= n { 1 } else { (n - decode - at).min(512) };
        let parent = (at > 0).then(|| c.prefixes[at - 1]);
        for i in at..at + chunk {
            if i > 0 {
                w.held.get_mut(&c.prefixes[i - 1]).unwrap().0 += 1;
            }
            w.held.insert(c.prefixes[i], (0, c.locals[i]));
        }
        g.push(wi, Kind::Store { parent }, (at..at + chunk).map(|i| (c.prefixes[i], c.locals[i])));
        at += chunk;
    }
    w.tick += 1;
    w.stamp.insert(ci, w.tick);
    w.lru.push_back((ci, w.tick));
    // Evict down to capacity, oldest conversation first, tail first.
    let mut out: Vec<Block> = vec![];
    while w.held.len() > cfg.capacity {
        let Some(&(old, t)) = w.lru.front() else { break };
        if w.stamp.get(&old) != Some(&t) || (old == ci && w.lru.len() > 1) {
            w.lru.pop_front();
            if old == ci {
                w.lru.push_back((old, t));
            }
            continue;
        }
        let oc = &convs[old as usize];
        let mut i = oc.prefixes.len();
        let mut done = true;
        while i > 0 {
            let p = oc.prefixes[i - 1];
            match w.held.get(&p) {
                None => i -= 1,
                Some(&(0, l)) => {
                    if w.held.len() <= cfg.capacity {
                        done = false;
                        break;
                    }
                    w.held.remove(&p);
                    if i > 1 {
                        if let Some(e) = w.held.get_mut(&oc.prefixes[i - 2]) {
                            e.0 -= 1;
                        }
                    }
                    out.push((p, l));
                    i -= 1;
                }
                Some(_) => break,
            }
        }
        if done {
            w.lru.pop_front();
            w.stamp.remove(&old);
        }
    }
    for c in out.chunks(cfg.rm_batch) {
        g.push(wi, Kind::Remove, c.iter().copied());
    }
}

pub fn generate(cfg: Cfg) -> Trace {
    let mut r = Rng(cfg.seed);
    let mut convs: Vec<Conv> = vec![];
    let sys: Vec<Conv> = (0..cfg.sys_prompts)
        .map(|_| {
            let mut c = Conv { locals: vec![], prefixes: vec![], home: 0 };
            let n = 32 + r.below(225) as usize; // 32..=256 blocks of system prompt
            grow(&mut c, &mut r, n);
            c
        })
        .collect();
    let mut ws: Vec<Worker> = (0..cfg.workers).map(|_| Worker::default()).collect();
    let mut g = Gen { evs: vec![], blocks: vec![] };
    let mut active: Vec<u32> = vec![];
    let live_target = cfg.workers * (cfg.capacity / 400).max(4);
    let (mut full, mut fill_end, mut stored_at_fill) = (0usize, None, 0usize);
    let mut stored = 0usize;
    let (mut entries, mut distinct) = (0, 0);
    let mut snapshot: Vec<u32> = vec![];
    loop {
        // Pick an active conversation, or start a new one.
        let ci = if active.len() < live_target || r.below(4) == 0 {
            // System prompts are Zipf-popular.
            let s = ((cfg.sys_prompts as f64).powf(r.unit()) as usize).clamp(1, cfg.sys_prompts) - 1;
            let (locals, prefixes) = (sys[s].locals.clone(), sys[s].prefixes.clone());
            convs.push(Conv { locals, prefixes, home: r.below(cfg.workers as u64) as usize });
            let id = convs.len() as u32 - 1;
            if active.len() < live_target {
                active.push(id);
            } else {
                let at = r.below(active.len() as u64) as usize;
                active[at] = id;
            }
            id
        } else {
            active[r.below(active.len() as u64) as usize]
        };
        let c = &mut convs[ci as usize];
        if c.prefixes.len() < cfg.max_depth {
            let user = if r.below(20) == 0 { 200 + r.below(400) as usize } else { exp_len(&mut r, 24.0) };
            grow(c, &mut r, user);
        }
        let reply = exp_len(&mut r, 16.0);
        grow(c, &mut r, reply);
        let wi = if r.below(100) < cfg.migrate_pct { r.below(cfg.workers as u64) as usize } else { c.home };
        let b0 = ws[wi].held.len();
        let e0 = g.evs.len();
        turn(&mut g, &mut ws[wi], wi, ci, &convs, reply, &cfg);
        stored += g.evs[e0..]
            .iter()
            .map(|e| if e.kind == Kind::Remove { 0 } else { e.len as usize })
            .sum::<usize>();
        if b0 < cfg.capacity && ws[wi].held.len() >= cfg.capacity {
            full += 1;
        }
        if fill_end.is_none() && full * 10 >= cfg.workers * 9 {
            fill_end = Some(g.evs.len());
            stored_at_fill = stored;
            entries = ws.iter().map(|w| w.held.len()).sum();
            let mut all: Vec<u64> = ws.iter().flat_map(|w| w.held.keys().copied()).collect();
            all.sort_unstable();
            all.dedup();
            distinct = all.len();
            snapshot = active.clone();
        }
        if fill_end.is_some() && stored - stored_at_fill >= cfg.steady_blocks {
            break;
        }
    }
    // Queries: an active conversation's prompt (as of the end of the fill or later) plus a new,
    // unseen user turn. Depths vary from the shortest system prompt to max_depth.
    let mut queries = vec![];
    for _ in 0..4000 {
        let c = &convs[snapshot[r.below(snapshot.len() as u64) as usize] as usize];
        let cut = 16 + r.below(c.locals.len() as u64 - 15) as usize;
        let mut q = Conv { locals: c.locals[..cut].to_vec(), prefixes: c.prefixes[..cut].to_vec(), home: 0 };
        grow(&mut q, &mut r, 16);
        queries.push(Query { locals: q.locals, prefixes: q.prefixes });
    }
    let f = fill_end.unwrap();
    let steady = g.evs.split_off(f);
    Trace { cfg, fill: g.evs, steady, blocks: g.blocks, entries, distinct, queries }
}
