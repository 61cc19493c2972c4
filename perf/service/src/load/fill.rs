//! What the servers hold: every worker has every prompt to a depth of its own, evenly from none to all of it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use kvtap::{LocalHash, Prompt};
use kvtap_perf_service::post;
use kvtap_perf_service::publish::{batch, removed_event, stored_event};
use kvtap_perf_service::settle::Source;
use serde_json::{Value as Json, json};

use super::servers::Pair;
use super::{SIZES, System};

const BLOCK_SIZE: u32 = 16;
const MODEL: &str = "m";
/// Blocks of one batch that comes and goes while queries are asked.
const CHURN_BLOCKS: u64 = 64;
/// Different chains that come and go, per worker.
const CHURN_CHAINS: u64 = 64;

/// Prompts of one length.
#[derive(Debug)]
pub(super) struct Size {
    pub(super) blocks: u32,
    /// A worker holds a multiple of `blocks / steps`.
    pub(super) steps: u32,
    pub(super) prompts: u32,
    /// Asked with `/query`; else with `/query_by_hash`.
    pub(super) by_tokens: bool,
}

/// SplitMix64's finisher: what stands for chance here.
fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// Which prompt, of which size.
#[derive(Clone, Copy)]
struct Which {
    size: usize,
    prompt: u32,
}

impl Which {
    fn seed(self) -> u64 {
        mix((self.size as u64) << 32 | u64::from(self.prompt))
    }

    fn tokens(self) -> Vec<u32> {
        let token = |place: u64| u32::try_from(mix(self.seed() ^ mix(place)) % 151_936).expect("below");
        (0..u64::from(SIZES[self.size].blocks * BLOCK_SIZE)).map(token).collect()
    }

    fn hash(self, block: u32) -> u64 {
        mix(self.seed().wrapping_add(u64::from(block)))
    }

    /// A batch for each step.
    fn batches(self) -> Vec<Vec<u8>> {
        let Size { blocks, steps, .. } = SIZES[self.size];
        let tokens = self.tokens();
        let step = blocks / steps;
        let batch = |number: u32| {
            let range = number * step..(number + 1) * step;
            let hashes: Vec<u64> = range.clone().map(|block| self.hash(block)).collect();
            let parent = range.start.checked_sub(1).map(|block| self.hash(block));
            let tokens = &tokens[(range.start * BLOCK_SIZE) as usize..(range.end * BLOCK_SIZE) as usize];
            batch(vec![stored_event(&hashes, parent, tokens, (BLOCK_SIZE, "GPU"))], None)
        };
        (0..steps).map(batch).collect()
    }

    fn steps_held(self, worker: u64) -> usize {
        (mix(self.seed() ^ mix(worker)) % (u64::from(SIZES[self.size].steps) + 1)) as usize
    }

    /// Path and body.
    fn request(self) -> (&'static str, Json) {
        let tokens = self.tokens();
        if SIZES[self.size].by_tokens {
            return ("/query", json!({"token_ids": tokens, "model_name": MODEL}));
        }
        let mut hashes: Vec<LocalHash> = Vec::new();
        Prompt::new(&tokens, BLOCK_SIZE).local_hashes(&mut hashes);
        let hashes: Vec<i64> = hashes.iter().map(|hash| hash.0.cast_signed()).collect();
        ("/query_by_hash", json!({"block_hashes": hashes, "model_name": MODEL}))
    }
}

fn all() -> impl Iterator<Item = Which> {
    let of = |size: usize| (0..SIZES[size].prompts).map(move |prompt| Which { size, prompt });
    (0..SIZES.len()).flat_map(of)
}

/// The workers, and what is asked about them.
pub(super) struct Fill {
    /// Away while blocks come and go.
    sources: Option<Vec<Source>>,
    scripts: Vec<PathBuf>,
}

/// Blocks that come and go.
pub(super) struct Churn {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<(Vec<Source>, u64)>,
    start: Instant,
}

impl Fill {
    /// Registers the workers with both servers.
    pub(super) fn new(pair: &Pair, workers: u64) -> Self {
        let register = |worker: u64| {
            let registration = json!({"instance_id": worker, "model_name": MODEL, "block_size": BLOCK_SIZE});
            Source::register(&pair.addresses(), registration)
        };
        let sources = Some((0..workers).map(register).collect());
        let scripts = (0..SIZES.len()).map(super::wrk::write_script).collect();
        Self { sources, scripts }
    }

    /// Publishes all that workers hold, and waits until both servers have it. Tells what it was.
    pub(super) fn publish_all(&mut self) -> String {
        let sources = self.sources.as_mut().expect("here");
        let (mut blocks, mut bytes) = (0, 0);
        for which in all() {
            let batches = which.batches();
            let step = u64::from(SIZES[which.size].blocks / SIZES[which.size].steps);
            for (worker, source) in (0..).zip(sources.iter_mut()) {
                for batch in &batches[..which.steps_held(worker)] {
                    source.send(batch);
                    blocks += step;
                    bytes += batch.len();
                }
            }
        }
        sources.iter_mut().for_each(|source| source.settle([0]));
        format!("{blocks} blocks of {BLOCK_SIZE} tokens stored, {:.0} MB of payloads.", bytes as f64 / 1e6)
    }

    /// Both must give the same answers.
    pub(super) fn compare(&self, pair: &Pair, size: usize) {
        for which in all().filter(|which| which.size == size) {
            let (path, body) = which.request();
            let [kvtap, dynamo] = System::BOTH.map(|system| post(pair.address(system), path, &body));
            assert!(kvtap.0 == 200 && kvtap.1["instances"] != json!({}), "{path}: {kvtap:?}");
            assert_eq!(kvtap, dynamo, "{path}");
        }
    }

    /// The script that asks for prompts of this size.
    pub(super) fn script(&self, size: usize) -> PathBuf {
        self.scripts[size].clone()
    }

    /// From now on every worker stores so many blocks a second, and removes as many.
    #[expect(clippy::disallowed_methods, reason = "a rate is kept by the clock")]
    pub(super) fn start_churn(&mut self, blocks_per_second: u64) -> Churn {
        let mut sources = self.sources.take().expect("here");
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let pairs = churn_batches();
            let start = Instant::now();
            let a_round = Duration::from_secs(1).mul_f64(CHURN_BLOCKS as f64 / blocks_per_second as f64);
            let a_turn = a_round / u32::try_from(sources.len()).expect("few");
            let mut turns = 0;
            while !stopped.load(Ordering::Relaxed) {
                let next = start + a_turn * turns;
                std::thread::sleep(next.saturating_duration_since(Instant::now()));
                let worker = turns as usize % sources.len();
                let chain = turns as usize / sources.len() % pairs.len();
                let (stored, removed) = &pairs[chain];
                sources[worker].send(stored);
                sources[worker].send(removed);
                turns += 1;
            }
            (sources, u64::from(turns) * CHURN_BLOCKS)
        });
        Churn { stop, thread, start: Instant::now() }
    }

    /// Blocks per second that were stored meanwhile.
    pub(super) fn stop_churn(&mut self, churn: Churn) -> f64 {
        churn.stop.store(true, Ordering::Relaxed);
        let (sources, blocks) = churn.thread.join().expect("no panic");
        self.sources = Some(sources);
        blocks as f64 / churn.start.elapsed().as_secs_f64()
    }
}

/// Chains that nobody asks for: stored, and removed from the leaf on.
fn churn_batches() -> Vec<(Vec<u8>, Vec<u8>)> {
    let pair = |chain: u64| {
        let hash = |block: u64| mix(0xc0de << 32 | chain << 16 | block);
        let hashes: Vec<u64> = (0..CHURN_BLOCKS).map(hash).collect();
        let tokens: Vec<u32> = (0..CHURN_BLOCKS * u64::from(BLOCK_SIZE))
            .map(|place| u32::try_from(mix(chain << 32 | place) % 151_936).expect("below"))
            .collect();
        let leaves_first: Vec<u64> = hashes.iter().rev().copied().collect();
        let stored = stored_event(&hashes, None, &tokens, (BLOCK_SIZE, "GPU"));
        (batch(vec![stored], None), batch(vec![removed_event(&leaves_first, "GPU")], None))
    };
    (0..CHURN_CHAINS).map(pair).collect()
}

/// What is asked for prompts of this size, as wrk's script takes it.
pub(super) fn requests(size: usize) -> Vec<(&'static str, Json)> {
    all().filter(|which| which.size == size).map(Which::request).collect()
}
