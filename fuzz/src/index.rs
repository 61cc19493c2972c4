//! Histories of several sources, as payloads through policy, placement and the index, against a naive model: the same counts,
//! entries, digest, and the same answers however they are asked for.
//!
//! Blocks hold one token, mostly 0, so that prompts meet; engine hashes are small numbers that come again.

mod model;
mod wire;

use std::collections::BTreeMap;

use arbitrary::{Arbitrary, Unstructured};
use kvtap::{Config, Engine, Ingest, LocalHash, Match, Prompt, Reader, Reason, SourceConfig, Wanted, Worker};
use model::{Depths, Model, Paths};

/// Worker of each source; the first and the last bring the same ranks.
const SOURCES: [u64; 3] = [0, 1, 0];
/// Ranks of each source.
const RANKS: u32 = 3;
const OPS_MAX: usize = 400;
/// Blocks named in one history, so that it ends soon.
const BLOCKS_MAX: usize = 20_000;

/// An index, and what happens to it.
#[derive(Debug)]
pub struct History {
    shards: Shards,
    /// The second source counts copies once.
    has_set: bool,
    hash_seed: u8,
    ops: Vec<Op>,
}

#[derive(Clone, Copy, Debug)]
enum Shards {
    One,
    Two,
    Seven,
}

/// A source and a rank, by their numbers.
#[derive(Clone, Copy, Debug)]
struct Who(u8);

#[derive(Clone, Copy, Debug)]
enum Op {
    Store(Who, Store),
    /// Hashes alone, as offload connectors send them.
    StoreByHash {
        who: Who,
        below: u8,
        first: Name,
        count: u8,
    },
    Remove {
        who: Who,
        tier: u8,
        first: Name,
        count: u8,
        downwards: bool,
    },
    Clear(Who),
    /// The source goes; a new one comes with its next event.
    Leave(Who),
    /// What was said so far becomes a payload; otherwise it waits for more events of the same rank.
    Send(Who),
    Ask(Question),
}

#[derive(Clone, Copy, Debug)]
struct Store {
    tier: u8,
    parent: Option<Name>,
    first: Name,
    count: u8,
    /// Blocks with another token than 0: every so many, from a place on.
    turn: Option<(u8, u8)>,
    /// Tokens that are missing at the end.
    short: u8,
}

#[derive(Clone, Copy, Debug)]
enum Name {
    /// One never used.
    New,
    /// One of those used, by its number.
    Used(u16),
    /// One that the rank holds, by its place among them.
    Held(u16),
}

#[derive(Clone, Copy, Debug)]
enum Question {
    /// The prompt that ends with a block which a rank holds, and more blocks.
    Held(Who, u16, u8),
    /// A prompt of so many blocks, with a turn.
    Plain(u8, u8),
}

/// A step has the same number of bytes whatever it is, so that inputs cut and joined anywhere go on to mean something.
impl<'a> Arbitrary<'a> for History {
    fn arbitrary(bytes: &mut Unstructured<'a>) -> arbitrary::Result<Self> {
        let [shards, set, hash_seed] = bytes.arbitrary()?;
        let shards = match shards % 3 {
            0 => Shards::One,
            1 => Shards::Two,
            _ => Shards::Seven,
        };
        let mut ops = Vec::new();
        while bytes.len() >= size_of::<[u8; 8]>() {
            ops.push(Op::from_bytes(bytes.arbitrary()?));
        }
        Ok(Self { shards, has_set: set % 2 == 1, hash_seed, ops })
    }
}

impl Op {
    fn from_bytes([kind, who, how, parent, first, count, turn, short]: [u8; 8]) -> Self {
        let (who, tier, below) = (Who(who), how & 3, how >> 2);
        match kind % 32 {
            0..=10 => Self::Store(
                who,
                Store {
                    tier,
                    parent: (below & 3 > 0).then(|| Name::from_bytes(how >> 4 & 3, parent)),
                    first: Name::from_bytes(how >> 6, first),
                    // Mostly short, so that much happens to the same blocks.
                    count: if count < 192 { count % 8 } else { count },
                    turn: (turn < 128).then_some((turn % 32, turn >> 5)),
                    short: if short < 16 { short } else { 0 },
                },
            ),
            11..=13 => {
                Self::StoreByHash { who, below, first: Name::from_bytes(how >> 6, first), count: count % 16 }
            }
            14..=20 => {
                let first = Name::from_bytes(how >> 6, first);
                Self::Remove {
                    who,
                    tier,
                    first,
                    count: if count < 128 { 1 } else { count },
                    downwards: turn % 2 == 0,
                }
            }
            21 => Self::Clear(who),
            22 => Self::Leave(who),
            23..=26 => Self::Send(who),
            27..=30 => Self::Ask(Question::Held(who, first.into(), how)),
            _ => Self::Ask(Question::Plain(count % 64, turn % 64)),
        }
    }
}

impl Name {
    fn from_bytes(how: u8, number: u8) -> Self {
        match how {
            0 => Self::New,
            1 => Self::Used(number.into()),
            _ => Self::Held(number.into()),
        }
    }
}

/// Both sides.
struct World {
    engine: Engine,
    reader: Reader,
    sources: [Option<Source>; SOURCES.len()],
    has_set: bool,
    paths: Paths,
    /// Names in use are below.
    next_name: u64,
    blocks: usize,
    /// The latest prompts.
    prompts: Vec<Vec<u32>>,
}

/// One source, both sides.
struct Source {
    ingest: Ingest,
    model: Model,
    /// Events that wait to be sent, and their rank.
    waiting: Vec<Vec<u8>>,
    rank: u32,
}

/// Runs a history; asks once more at its end.
pub fn run(history: &History) {
    let mut world = World::new(history);
    for &op in history.ops.iter().take(OPS_MAX) {
        world.step(op);
    }
    world.ask(Question::Held(Who(0), 0, 0));
    world.ask(Question::Held(Who(1), u16::MAX, 1));
}

impl Who {
    const fn source(self) -> usize {
        self.0 as usize % SOURCES.len()
    }

    const fn rank(self) -> u32 {
        self.0 as u32 / 3 % RANKS
    }
}

impl World {
    fn new(history: &History) -> Self {
        let mut config = Config::default();
        config.shards = match history.shards {
            Shards::One => 1,
            Shards::Two => 2,
            Shards::Seven => 7,
        };
        config.hash_seed = Some(history.hash_seed.into());
        let engine = Engine::new(config).expect("an engine");
        Self {
            reader: engine.reader(),
            engine,
            sources: [None, None, None],
            has_set: history.has_set,
            paths: Paths::default(),
            next_name: 1,
            blocks: 0,
            prompts: Vec::new(),
        }
    }

    fn source(&mut self, who: Who) -> &mut Source {
        let Self { engine, sources, has_set, .. } = self;
        let number = who.source();
        sources[number].get_or_insert_with(|| {
            let is_set = *has_set && number == 1;
            let mut config = SourceConfig::new(SOURCES[number]);
            config.block_size = 1;
            config.copies = if is_set { kvtap::Copies::Set } else { kvtap::Copies::Count };
            let ingest = engine.ingest(config).expect("a source");
            Source { ingest, model: Model::new(is_set), waiting: Vec::new(), rank: 0 }
        })
    }

    fn step(&mut self, op: Op) {
        match op {
            Op::Store(who, store) => self.store(who, store),
            Op::StoreByHash { who, below, first, count } => {
                let names = self.names(who, first, count);
                let tier = 1 + usize::from(below) % 3;
                let source = self.source(who);
                source.model.store_by_hash(who.rank(), &names, tier);
                source.say(who.rank(), wire::stored(None, &names, &[], tier));
            }
            Op::Remove { who, tier, first, count, downwards } => {
                let mut names = self.names(who, first, count);
                if downwards {
                    names.reverse();
                }
                let tier = usize::from(tier) % 4;
                let source = self.source(who);
                source.model.remove(who.rank(), &names, tier);
                source.say(who.rank(), wire::removed(&names, tier));
            }
            Op::Clear(who) => {
                let source = self.source(who);
                source.model.clear(who.rank());
                source.say(who.rank(), wire::cleared());
            }
            Op::Leave(who) => self.sources[who.source()] = None,
            Op::Send(who) => self.source(who).send(),
            Op::Ask(question) => self.ask(question),
        }
    }

    fn store(&mut self, who: Who, store: Store) {
        let names = self.names(who, store.first, store.count);
        let parent = store.parent.map(|parent| self.name(who, parent));
        let tokens: Vec<u32> = (0..names.len())
            .map(|at| match store.turn {
                Some((from, every)) if at >= usize::from(from) => {
                    u32::from((at - usize::from(from)).is_multiple_of(usize::from(every) + 1))
                }
                _ => 0,
            })
            .take(names.len().saturating_sub(usize::from(store.short) % 8))
            .collect();
        let tier = usize::from(store.tier) % 4;
        let Self { sources, paths, .. } = self;
        self.blocks += names.len();
        let Some(source) = &mut sources[who.source()] else { return };
        source.model.store(paths, (who.rank(), tier), parent, (&names, &tokens));
        source.say(who.rank(), wire::stored(parent, &names, &tokens, tier));
    }

    /// `count` names from one on; also makes sure that the source is there.
    fn names(&mut self, who: Who, first: Name, count: u8) -> Vec<u64> {
        let first = self.name(who, first);
        let room = BLOCKS_MAX.saturating_sub(self.blocks);
        let names: Vec<u64> = (first..).take(usize::from(count).min(room)).collect();
        self.next_name = self.next_name.max(first + names.len() as u64);
        names
    }

    fn name(&mut self, who: Who, name: Name) -> u64 {
        let next = self.next_name;
        let source = self.source(who);
        match name {
            Name::New => next,
            Name::Used(number) => 1 + u64::from(number) % next,
            Name::Held(place) => source.model.held_name(who.rank(), place.into()).unwrap_or(next),
        }
    }

    fn ask(&mut self, question: Question) {
        let mut prompt = match question {
            Question::Held(who, place, _) => {
                let name = self.name(who, Name::Held(place));
                let node = self.source(who).model.node(who.rank(), name);
                node.map(|node| self.paths.tokens(node)).unwrap_or_default()
            }
            Question::Plain(blocks, turn) => (0..blocks).map(|block| u32::from(block == turn)).collect(),
        };
        if let Question::Held(_, _, more) = question {
            prompt.extend((0..more % 8).map(|bit| u32::from(more >> bit & 1)));
        }
        for source in self.sources.iter_mut().flatten() {
            source.check();
        }
        let right = self.right(&prompt);
        let mut found = Vec::new();
        self.reader.find_matches(&Prompt::new(&prompt, 1), &mut found);
        assert_eq!(pairs(&found), right, "{prompt:?}");
        self.ask_many(&prompt, &right);
        self.ask_wanted(&prompt, &right);
        self.prompts.push(prompt);
        assert_eq!(self.engine.refused_blocks(), 0);
    }

    /// What the model says.
    fn right(&self, prompt: &[u32]) -> Vec<(Worker, Depths)> {
        let nodes = self.paths.walk(prompt);
        let mut all: BTreeMap<Worker, Depths> = BTreeMap::new();
        for (source, worker_id) in self.sources.iter().zip(SOURCES) {
            let Some(source) = source else { continue };
            for (dp_rank, depths) in source.model.depths(&nodes) {
                let known = all.entry(Worker { worker_id, dp_rank }).or_default();
                for (known, depth) in known.iter_mut().zip(depths) {
                    *known = depth.max(*known);
                }
            }
        }
        all.into_iter().filter(|(_, depths)| depths[3] > 0).collect()
    }

    /// Several prompts at once, which must be as one by one: this one, its beginning, none, and the latest others.
    fn ask_many(&mut self, prompt: &[u32], right: &[(Worker, Depths)]) {
        let half = prompt[..prompt.len() / 2].to_vec();
        let latest = self.prompts.iter().rev().take(20).cloned();
        let prompts: Vec<_> = [prompt.to_vec(), half, Vec::new()].into_iter().chain(latest).collect();
        let locals: Vec<_> = prompts.iter().map(|prompt| locals(prompt)).collect();
        let asked: Vec<&[LocalHash]> = locals.iter().map(Vec::as_slice).collect();
        let mut answers = vec![Vec::new(); asked.len()];
        self.engine.reader().find_many(&asked, &mut answers);
        assert_eq!(pairs(&answers[0]), right);
        for (locals, answer) in locals.iter().zip(&answers) {
            let mut alone = Vec::new();
            self.reader.find_local_matches(locals, &mut alone);
            assert_eq!(pairs(answer), pairs(&alone));
        }
    }

    /// Only some workers, and only the leader.
    fn ask_wanted(&mut self, prompt: &[u32], right: &[(Worker, Depths)]) {
        let locals = locals(prompt);
        let mut found = Vec::new();
        let candidates: Vec<_> = [(0, 1), (1, 0), (1, 2), (7, 0)]
            .map(|(worker_id, dp_rank)| Worker { worker_id, dp_rank })
            .into_iter()
            .take(prompt.len() % 5)
            .collect();
        let only = Wanted { candidates: Some(&candidates), ..Wanted::default() };
        self.reader.find_wanted_matches(&locals, only, &mut found);
        let expected: Vec<_> =
            right.iter().copied().filter(|(worker, _)| candidates.contains(worker)).collect();
        assert_eq!(pairs(&found), expected, "{candidates:?} {prompt:?}");

        let leader = Wanted { leader_is_enough: true, ..Wanted::default() };
        self.reader.find_wanted_matches(&locals, leader, &mut found);
        let found = pairs(&found);
        let workers = |all: &[(Worker, Depths)]| all.iter().map(|(worker, _)| *worker).collect::<Vec<_>>();
        assert_eq!(workers(&found), workers(right), "{prompt:?}");
        let short: Vec<_> = found.iter().zip(right).filter(|(found, right)| found != right).collect();
        assert!(short.len() <= 1, "more than one leader: {found:?}, not {right:?}");
        for ((worker, depths), (_, true_depths)) in short {
            for tier in 0..4 {
                let other = found.iter().filter(|found| found.0 != *worker).map(|found| found.1[tier]).max();
                let is_leader = depths[tier] < true_depths[tier] && Some(depths[tier]) >= other;
                assert!(is_leader || depths[tier] == true_depths[tier], "{found:?}, not {right:?}");
            }
        }
    }
}

impl Source {
    /// Says an event, after what waits if that is of another rank.
    fn say(&mut self, rank: u32, event: Vec<u8>) {
        if rank != self.rank {
            self.send();
            self.rank = rank;
        }
        self.waiting.push(event);
    }

    fn send(&mut self) {
        if !self.waiting.is_empty() {
            self.ingest.apply(&wire::payload(self.rank, &self.waiting)).expect("a sound payload");
            self.waiting.clear();
        }
    }

    /// Flushes; compares all that the source counts.
    fn check(&mut self) {
        self.send();
        self.ingest.flush();
        let (counters, counts) = (self.ingest.counters(), &self.model.counts);
        assert_eq!(counters.malformed_events + counters.unknown_events, 0);
        assert_eq!((counters.placed_blocks, counters.removed_blocks), (counts.placed, counts.removed));
        let filtered = |reason: &Reason| (reason.label(), counters.filtered(*reason));
        let filtered: BTreeMap<_, _> =
            Reason::ALL.iter().map(filtered).filter(|(_, count)| *count > 0).collect();
        assert_eq!(filtered, counts.filtered);
        assert_eq!(self.ingest.entries(), self.model.entries());
        let worker_id = self.ingest.workers().next().map_or(0, |worker| worker.worker_id);
        assert_eq!(self.ingest.digest(), self.model.digest(worker_id));
    }
}

fn locals(prompt: &[u32]) -> Vec<LocalHash> {
    let mut locals = Vec::new();
    Prompt::new(prompt, 1).local_hashes(&mut locals);
    locals
}

fn pairs(matches: &[Match]) -> Vec<(Worker, Depths)> {
    let mut pairs: Vec<_> = matches.iter().map(|found| (found.worker, found.depths)).collect();
    pairs.sort_unstable();
    pairs
}
