//! The index against a naive one over long random histories, and readers against a writer, checked per worker.
//!
//! `KVTAP_ROUNDS` sets how long both run (1 by default).

mod support;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use kvtap::{Config, Engine, Ingest, LocalHash, Match, Prompt, SourceConfig, Wanted, Worker};
use support::pack::Choices;
use support::sized;

const MEDIA: [&str; 4] = ["GPU", "CPU", "DISK", "EXTERNAL"];

fn rounds() -> usize {
    std::env::var("KVTAP_ROUNDS").map_or(1, |rounds| rounds.parse().expect("a count"))
}

fn engine(shards: usize, seed: u64) -> Engine {
    let mut config = Config::default();
    config.shards = shards;
    config.hash_seed = Some(seed);
    Engine::new(config).expect("an engine")
}

/// Blocks of one token each.
fn source(engine: &Engine, worker_id: u64) -> Ingest {
    let mut config = SourceConfig::new(worker_id);
    config.block_size = 1;
    engine.ingest(config).expect("a source")
}

fn number(out: &mut Vec<u8>, number: u64) {
    out.push(0xcf);
    out.extend(number.to_be_bytes());
}

fn numbers(out: &mut Vec<u8>, all: impl ExactSizeIterator<Item = u64>) {
    out.push(0xdd);
    out.extend(u32::try_from(all.len()).expect("few").to_be_bytes());
    all.for_each(|one| number(out, one));
}

fn text(out: &mut Vec<u8>, text: &str) {
    out.extend([0xd9, u8::try_from(text.len()).expect("short")]);
    out.extend(text.as_bytes());
}

/// A batch of one event for a rank.
fn payload(dp_rank: u32, event: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = vec![0x93, 0x01, 0x91];
    event(&mut out);
    number(&mut out, dp_rank.into());
    out
}

fn stored(out: &mut Vec<u8>, parent: Option<u64>, blocks: &[(u64, u32)], tier: usize) {
    out.push(0x97);
    text(out, "BlockStored");
    numbers(out, blocks.iter().map(|&(hash, _)| hash));
    match parent {
        None => out.push(0xc0),
        Some(parent) => number(out, parent),
    }
    numbers(out, blocks.iter().map(|&(_, token)| token.into()));
    out.extend([1, 0xc0]);
    text(out, MEDIA[tier]);
}

fn removed(out: &mut Vec<u8>, hashes: &[u64], tier: usize) {
    out.push(0x93);
    text(out, "BlockRemoved");
    numbers(out, hashes.iter().copied());
    text(out, MEDIA[tier]);
}

fn cleared(out: &mut Vec<u8>) {
    out.push(0x91);
    text(out, "AllBlocksCleared");
}

/// One rank, naively: engine hash to prompt and copies by tier.
#[derive(Default)]
struct Naive(BTreeMap<u64, (Vec<u32>, [u32; 4])>);

impl Naive {
    fn store(&mut self, parent: Option<u64>, blocks: &[(u64, u32)], tier: usize) {
        let mut path = match parent {
            None => Vec::new(),
            Some(parent) => match self.0.get(&parent) {
                None => return,
                Some((path, _)) => path.clone(),
            },
        };
        for &(hash, token) in blocks {
            path.push(token);
            let block = self.0.entry(hash).or_insert_with(|| (path.clone(), [0; 4]));
            if block.0 != path {
                *block = (path.clone(), [0; 4]);
            }
            block.1[tier] += 1;
        }
    }

    fn remove(&mut self, hash: u64, tier: usize) {
        if let Some((_, copies)) = self.0.get_mut(&hash) {
            copies[tier] = copies[tier].saturating_sub(1);
            if *copies == [0; 4] {
                self.0.remove(&hash);
            }
        }
    }

    fn depths(&self, prompt: &[u32]) -> [u32; 4] {
        [0, 1, 2, 3].map(|tier| {
            let is_held = |blocks: usize| {
                self.0.values().any(|(path, copies)| {
                    path[..] == prompt[..blocks] && copies[..=tier].iter().any(|&copies| copies > 0)
                })
            };
            let depth = (1..=prompt.len()).take_while(|&blocks| is_held(blocks)).count();
            u32::try_from(depth).expect("short")
        })
    }
}

/// Both indexes, and a source of chance. Engine hashes are few, so that they come again under other prompts.
struct History {
    choices: Choices,
    engine: Engine,
    sources: Vec<Ingest>,
    naive: BTreeMap<Worker, Naive>,
    tiers: usize,
    hashes: usize,
    /// Most blocks of a store.
    blocks: usize,
    /// How often, of 100, a prompt takes another way than most.
    turns: usize,
}

impl History {
    fn new(seed: u64, tiers: usize, (hashes, blocks, turns): (usize, usize, usize)) -> Self {
        let engine = engine(1 + usize::try_from(seed % 3).expect("small"), seed);
        let sources = (0..2).map(|worker_id| source(&engine, worker_id)).collect();
        Self {
            choices: Choices::new(seed),
            engine,
            sources,
            naive: BTreeMap::new(),
            tiers,
            hashes,
            blocks,
            turns,
        }
    }

    fn step(&mut self) {
        let choices = &mut self.choices;
        let worker_id = choices.below(2);
        let worker = Worker { worker_id: worker_id as u64, dp_rank: u32::from(choices.percent(50)) };
        let naive = self.naive.entry(worker).or_default();
        let tier = choices.below(self.tiers);
        let event = choices.below(1000);
        let known: Vec<u64> = naive.0.keys().copied().collect();
        let payload = if event < 450 {
            let parent = (!known.is_empty() && choices.percent(90)).then(|| choices.pick(&known));
            let mut blocks: Vec<(u64, u32)> = Vec::new();
            for _ in 0..1 + choices.below(self.blocks) {
                let hash = 1 + choices.below(self.hashes) as u64;
                if Some(hash) != parent && blocks.iter().all(|&(other, _)| other != hash) {
                    blocks.push((hash, u32::from(choices.percent(self.turns))));
                }
            }
            if blocks.is_empty() {
                return;
            }
            naive.store(parent, &blocks, tier);
            payload(worker.dp_rank, |out| stored(out, parent, &blocks, tier))
        } else if event < 998 {
            // Mostly leaves, deepest first; now and then whatever comes, known or not.
            let deepest = known.iter().copied().max_by_key(|hash| naive.0[hash].0.len());
            let any = 1 + choices.below(self.hashes) as u64;
            let hash = if choices.percent(60) { deepest.unwrap_or(any) } else { any };
            naive.remove(hash, tier);
            payload(worker.dp_rank, |out| removed(out, &[hash], tier))
        } else {
            naive.0.clear();
            payload(worker.dp_rank, cleared)
        };
        self.sources[worker_id].apply(&payload).expect("sound");
    }

    fn check(&mut self) {
        self.sources.iter_mut().for_each(Ingest::flush);
        let paths: Vec<_> = self.naive.values().flat_map(|naive| naive.0.values()).collect();
        let mut prompt = match paths.is_empty() {
            true => vec![1],
            false => paths[self.choices.below(paths.len())].0.clone(),
        };
        prompt.extend((0..self.choices.below(4)).map(|_| u32::from(self.choices.percent(30))));
        let all = self.naive.iter().map(|(&worker, naive)| (worker, naive.depths(&prompt)));
        let right: Vec<_> = all.filter(|(_, depths)| depths[3] > 0).collect();
        let mut reader = self.engine.reader();
        let mut found = Vec::new();
        reader.find_matches(&Prompt::new(&prompt, 1), &mut found);
        assert_eq!(pairs(&found), right, "{prompt:?}");
        let mut locals = Vec::new();
        Prompt::new(&prompt, 1).local_hashes(&mut locals);
        self.check_other_ways(&locals, &right);
    }

    /// The other ways to ask give the same.
    fn check_other_ways(&mut self, locals: &[LocalHash], right: &[(Worker, [u32; 4])]) {
        let mut reader = self.engine.reader();
        let mut found = Vec::new();
        let mut answers = vec![Vec::new(); 3];
        reader.find_many(&[locals, &locals[..1], locals], &mut answers);
        assert_eq!(pairs(&answers[2]), right);
        let candidates = [Worker { worker_id: 1, dp_rank: 0 }];
        reader.find_wanted_matches(
            locals,
            Wanted { candidates: Some(&candidates), ..Wanted::default() },
            &mut found,
        );
        let only: Vec<_> = right.iter().copied().filter(|(worker, _)| *worker == candidates[0]).collect();
        assert_eq!(pairs(&found), only);
        reader.find_wanted_matches(
            locals,
            Wanted { leader_is_enough: true, ..Wanted::default() },
            &mut found,
        );
        let best = |all: &[(Worker, [u32; 4])]| all.iter().map(|&(_, depths)| depths[3]).max();
        for (found, right) in pairs(&found).iter().zip(right) {
            assert_eq!(found.0, right.0);
            assert!(
                found.1 == right.1
                    || Some(found.1[3]) == best(&pairs(&answers[2]))
                    || found.1[3] <= right.1[3]
            );
        }
    }
}

fn pairs(matches: &[Match]) -> Vec<(Worker, [u32; 4])> {
    let mut pairs: Vec<_> = matches.iter().map(|found| (found.worker, found.depths)).collect();
    pairs.sort_unstable();
    pairs
}

#[test]
fn long_random_histories_answer_as_the_naive_index() {
    for seed in 0..(sized(12, 2) * rounds()) as u64 {
        let tiers = if seed % 2 == 0 { 1 } else { 4 };
        let shape = [(30, 6, 30), (300, 6, 30), (3000, 60, 2)][usize::try_from(seed / 2 % 3).expect("small")];
        let mut history = History::new(seed, tiers, shape);
        for step in 0..sized(3000, 100) {
            history.step();
            if step % 7 == 0 {
                history.check();
            }
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "needs many blocks")]
fn memory_comes_back_after_everything_was_evicted_in_random_order() {
    let engine = engine(2, 1);
    let mut source = source(&engine, 0);
    let before = engine.index_bytes() + source.bytes();
    let mut hashes: Vec<u64> = (1..=200_000).collect();
    for run in hashes.chunks(500) {
        let blocks: Vec<_> = run.iter().map(|&hash| (hash, u32::try_from(hash).expect("small"))).collect();
        source.apply(&payload(0, |out| stored(out, None, &blocks, 0))).expect("sound");
    }
    source.flush();
    let full = engine.index_bytes() + source.bytes();
    Choices::new(7).shuffle(&mut hashes);
    for some in hashes.chunks(100) {
        source.apply(&payload(0, |out| removed(out, some, 0))).expect("sound");
    }
    source.flush();
    let after = engine.index_bytes() + source.bytes();
    assert_eq!(source.entries(), 0);
    assert!((after - before) * 20 < full, "{before} bytes, {full} with all blocks, {after} after");
}

/// Blocks of the prompt that the readers ask about.
const DEPTH: u64 = 300;

/// What each rank does, and what a reader may see of it.
#[derive(Clone, Copy)]
enum Role {
    /// Holds the whole prompt all the time.
    Steady,
    /// Evicts and stores the last 200 blocks, leaves first.
    Breathing,
    /// Loses block 150 and gets it back.
    Holed,
    /// Is cleared and filled again.
    Cleared,
    /// Holds the blocks from 100 on in host memory instead, by turns.
    Tiered,
}

const ROLES: [Role; 5] = [Role::Steady, Role::Breathing, Role::Holed, Role::Cleared, Role::Tiered];

fn run_of(from: u64, to: u64) -> Vec<(u64, u32)> {
    (from..to).map(|block| (block + 1, u32::try_from(block).expect("small"))).collect()
}

/// One turn of a rank's life; it begins and ends holding the whole prompt on the device.
fn live(role: Role, dp_rank: u32, source: &mut Ingest) {
    let mut say = |event: &dyn Fn(&mut Vec<u8>)| {
        source.apply(&payload(dp_rank, |out| event(out))).expect("sound");
    };
    match role {
        Role::Steady => {}
        Role::Breathing => {
            for block in (100..DEPTH).rev() {
                say(&|out| removed(out, &[block + 1], 0));
            }
            say(&|out| stored(out, Some(100), &run_of(100, DEPTH), 0));
        }
        Role::Holed => {
            say(&|out| removed(out, &[151], 0));
            say(&|out| stored(out, Some(150), &run_of(150, 151), 0));
        }
        Role::Cleared => {
            say(&|out| cleared(out));
            say(&|out| stored(out, None, &run_of(0, DEPTH), 0));
        }
        Role::Tiered => {
            for block in 100..DEPTH {
                say(&|out| stored(out, Some(block), &run_of(block, block + 1), 1));
                say(&|out| removed(out, &[block + 1], 0));
            }
            for block in 100..DEPTH {
                say(&|out| stored(out, Some(block), &run_of(block, block + 1), 0));
                say(&|out| removed(out, &[block + 1], 1));
            }
        }
    }
}

/// Whether a reader may see these depths of a role.
fn may_be(role: Role, depths: [u32; 4]) -> bool {
    let [device, rest @ ..] = depths;
    match role {
        Role::Steady => depths == [300; 4],
        Role::Breathing => depths == [device; 4] && (100..=300).contains(&device),
        Role::Holed => depths == [150; 4] || depths == [300; 4],
        Role::Cleared => depths == [device; 4] && device <= 300,
        Role::Tiered => (100..=300).contains(&device) && rest == [300; 3],
    }
}

fn write(engine: &Engine, turns: usize) {
    let mut source = source(engine, 0);
    let mut other = self::source(engine, 1);
    for dp_rank in 0..5 {
        source.apply(&payload(dp_rank, |out| stored(out, None, &run_of(0, DEPTH), 0))).expect("sound");
    }
    source.flush();
    READY.store(true, Ordering::Release);
    for turn in 0..turns {
        for (dp_rank, role) in (0..).zip(ROLES) {
            live(role, dp_rank, &mut source);
        }
        // Blocks of others come and go in masses, so that the table grows and shrinks.
        let base = turn as u64 * 10_000 + 1000;
        let many: Vec<_> = (base..base + sized(3000, 30) as u64)
            .map(|hash| (hash, u32::try_from(hash).expect("small")))
            .collect();
        other.apply(&payload(0, |out| stored(out, None, &many, 0))).expect("sound");
        let hashes: Vec<_> = many.iter().map(|&(hash, _)| hash).collect();
        other.apply(&payload(0, |out| removed(out, &hashes, 0))).expect("sound");
        if turn % 8 == 0 {
            source.flush();
        }
    }
    DONE.store(true, Ordering::Release);
    // Held until the readers have gone, so that no worker leaves under them.
    while LEFT.load(Ordering::Acquire) < 2 {
        std::thread::yield_now();
    }
}

static READY: AtomicBool = AtomicBool::new(false);
static DONE: AtomicBool = AtomicBool::new(false);
static LEFT: AtomicU64 = AtomicU64::new(0);

#[test]
fn readers_see_of_each_worker_only_what_it_ever_held() {
    let engine = engine(2, 3);
    let prompt: Vec<u32> = (0..u32::try_from(DEPTH).expect("small") + 20).collect();
    let mut asked = 0;
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| write(&engine, sized(150, 2) * rounds()));
        let readers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let mut reader = engine.reader();
                    let (mut matches, mut asked) = (Vec::new(), 0);
                    let wrong = loop {
                        if !READY.load(Ordering::Acquire) {
                            std::thread::yield_now();
                            continue;
                        }
                        reader.find_matches(&Prompt::new(&prompt, 1), &mut matches);
                        asked += 1;
                        let find = |dp_rank| {
                            matches.iter().find(|found| found.worker == Worker { worker_id: 0, dp_rank })
                        };
                        let wrong = (0..).zip(ROLES).find_map(|(dp_rank, role)| {
                            let depths = find(dp_rank).map_or([0; 4], |found| found.depths);
                            (!may_be(role, depths)).then_some((dp_rank, depths))
                        });
                        if wrong.is_some() || DONE.load(Ordering::Acquire) {
                            break wrong;
                        }
                    };
                    LEFT.fetch_add(1, Ordering::AcqRel);
                    (wrong, asked)
                })
            })
            .collect();
        for reader in readers {
            let (wrong, times) = reader.join().expect("a reader");
            assert_eq!(wrong, None, "rank and depths");
            asked += times;
        }
        writer.join().expect("the writer");
    });
    assert!(asked > sized(100, 2), "{asked} queries");
}
