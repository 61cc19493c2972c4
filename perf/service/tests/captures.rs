//! Every capture through both servers. Where their answers differ, the cause has a name: without it in the stream they are equal.
//! kvtap's are always those of the slow oracle.

#[path = "captures/causes.rs"]
mod causes;
#[allow(dead_code, reason = "shared with the crate's own tests, which use all of it")]
#[path = "../../../tests/support/oracle/mod.rs"]
mod oracle;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use kvtap::{LocalHash, Prompt};
use kvtap_perf_service::corpus::{Capture, captures};
use kvtap_perf_service::settle::Source;
use kvtap_perf_service::{post, start_dynamo, start_kvtap};
use serde_json::{Value as Json, json};

use causes::Cause::{
    self, CountsNoCopies, EvictsWhatLiesBeyond, IgnoresUntaggedSalts, KnowsOneNamePerPrefix, LosesTheBatch,
    ReadsMediaInUpperCase, TakesBrokenPayloads, TakesNoRankForARank, TakesRootsForChildren,
};
use causes::{Descendants, Names};
use oracle::{Copies, Match, Oracle, OracleConfig, QueryOptions};

const PATIENCE: Duration = Duration::from_secs(60);
/// Workers of this process so far.
static WORKERS: AtomicU64 = AtomicU64::new(1);

/// A worker whose stream is applied by both servers and the oracle.
struct Followed {
    source: Source,
    oracle: Oracle,
    payloads: Vec<Vec<u8>>,
    ranks: BTreeSet<u32>,
}

impl Followed {
    /// A worker of its own for the whole capture, or another for its first half.
    fn new(servers: &[SocketAddr], model_name: &str, capture: &Capture, causes: &[Cause]) -> Self {
        let mut config = OracleConfig::new(capture.block_size);
        config.worker_id = WORKERS.fetch_add(1, Ordering::Relaxed);
        let mut registration = json!({"instance_id": config.worker_id, "model_name": model_name, "block_size": config.block_size});
        if causes.contains(&CountsNoCopies) {
            config.copies = Copies::Set;
            registration["copies"] = "set".into();
        }
        let undo = |payload: &Vec<u8>| {
            causes.iter().try_fold(payload.clone(), |payload, cause| cause.undo(payload, config))
        };
        let mut descendants = Descendants::default();
        let mut names = Names::default();
        let follow = |mut payload: Vec<u8>| {
            if causes.contains(&KnowsOneNamePerPrefix) {
                payload = names.unify(payload);
            }
            if causes.contains(&EvictsWhatLiesBeyond) {
                payload = descendants.remove_too(payload);
            }
            payload
        };
        Self {
            source: Source::register(servers, registration),
            oracle: Oracle::new(config),
            payloads: capture.payloads.iter().filter_map(undo).map(follow).collect(),
            ranks: BTreeSet::from([0]),
        }
    }

    /// Publishes from one place of the stream to another, as parts of `all`, and waits until that is applied.
    fn publish(&mut self, part: std::ops::Range<usize>, all: usize) {
        let count = self.payloads.len();
        for payload in &self.payloads[part.start * count / all..part.end * count / all] {
            self.source.send(payload);
            let applied = self.oracle.apply(0, payload);
            if !applied.rejected {
                self.ranks.insert(applied.dp_rank);
            }
        }
        // The peer cannot read a batch of a higher rank.
        let ranks = self.ranks.iter().copied().filter(|&rank| i32::try_from(rank).is_ok());
        self.source.settle(ranks);
    }
}

/// What the service says of such matches.
fn answer(matches: &[Match], block_size: u32) -> Json {
    let mut answer = json!({"scores": {}, "frequencies": [], "instances": {}});
    for found in matches {
        let tokens = |depth: usize| depth as u64 * u64::from(block_size);
        let (worker, rank) = (found.worker_id.to_string(), found.dp_rank.to_string());
        if found.device > 0 {
            answer["scores"][&worker][&rank] = tokens(found.device).into();
        }
        let instance = &mut answer["instances"][&worker];
        instance["dp"][&rank] = tokens(found.device).into();
        for (key, depth) in [
            ("gpu", found.device),
            ("cpu", found.host_pinned),
            ("disk", found.external),
            ("longest_matched", found.external),
        ] {
            instance[key] = instance[key].as_u64().unwrap_or_default().max(tokens(depth)).into();
        }
    }
    answer
}

/// Asks kvtap until it answers so: its shards apply what they have received each when it can.
fn expect(kvtap: SocketAddr, (path, body): (&str, &Json), expected: &Json) {
    let end = Instant::now() + PATIENCE;
    loop {
        let (status, answer) = post(kvtap, path, body);
        if status == 200 && answer == *expected {
            return;
        }
        assert!(Instant::now() < end, "{path} {}: {answer} is not {expected}", body["model_name"]);
        std::thread::yield_now();
    }
}

/// Of how many answers, and in how many of them the peer differs, at three points of the stream of a worker and one of another
/// worker whose stream ends in its middle.
fn differing(servers: [SocketAddr; 2], capture: &Capture, causes: &[Cause]) -> (usize, usize) {
    let [kvtap, dynamo] = servers;
    let model_name = format!("{} {causes:?}", capture.name);
    let mut workers = [(); 2].map(|()| Followed::new(&servers, &model_name, capture, causes));
    let (mut asked, mut different) = (0, 0);
    for point in 0..3 {
        workers[0].publish(point * 2..point * 2 + 2, 6);
        workers[1].publish([0..2, 2..3, 3..3][point].clone(), 6);
        for prompt in &capture.prompts {
            let matches: Vec<Match> = workers
                .iter()
                .flat_map(|worker| worker.oracle.query(prompt, &QueryOptions::default()).1)
                .collect();
            let expected = answer(&matches, capture.block_size);
            let mut hashes: Vec<LocalHash> = Vec::new();
            Prompt::new(prompt, capture.block_size).local_hashes(&mut hashes);
            let hashes: Vec<i64> = hashes.iter().map(|hash| hash.0.cast_signed()).collect();
            let by_tokens = json!({"token_ids": prompt, "model_name": model_name});
            let by_hash = json!({"block_hashes": hashes, "model_name": model_name});
            expect(kvtap, ("/query", &by_tokens), &expected);
            expect(kvtap, ("/query_by_hash", &by_hash), &expected);
            let theirs = post(dynamo, "/query", &by_tokens);
            assert_eq!(theirs, post(dynamo, "/query_by_hash", &by_hash), "{model_name}");
            asked += 1;
            different += usize::from(theirs.1 != expected);
        }
    }
    (asked, different)
}

/// Captures about which they differ, why, and in how many answers. Without the cause in the stream they do not.
const DIFFERENT: [(&str, &[Cause], usize); 44] = [
    ("broken", &[LosesTheBatch, TakesBrokenPayloads], 20),
    ("engine-sglang-0.4.9-radix64", &[TakesRootsForChildren, EvictsWhatLiesBeyond], 35),
    ("engine-sglang-0.5.23-radix64", &[CountsNoCopies], 15),
    ("engine-sglang-0.5.23-radix64-dynamo", &[EvictsWhatLiesBeyond, KnowsOneNamePerPrefix], 2),
    ("engine-vllm-0.33.0-digest-sha256-cbor128", &[LosesTheBatch], 31),
    ("engine-vllm-0.33.0-digest-xxhash32", &[LosesTheBatch], 36),
    ("engine-vllm-0.33.0-mamba-partial64", &[CountsNoCopies, EvictsWhatLiesBeyond], 20),
    ("lora-salt-vllm-map-16", &[IgnoresUntaggedSalts], 6),
    ("malformed-map", &[LosesTheBatch, TakesNoRankForARank], 13),
    ("malformed-tuple", &[LosesTheBatch, TakesNoRankForARank], 17),
    ("odd-valid", &[LosesTheBatch, TakesNoRankForARank], 13),
    ("real-sglang-0.4.6.post5-fields", &[LosesTheBatch], 11),
    ("real-sglang-0.5.23-page64", &[CountsNoCopies, EvictsWhatLiesBeyond], 14),
    ("real-vllm-0.17.1-fields", &[LosesTheBatch], 3),
    ("real-vllm-0.19.1-fields", &[LosesTheBatch], 3),
    ("real-vllm-0.20.2-fields", &[LosesTheBatch], 3),
    ("real-vllm-0.22.1-fields", &[LosesTheBatch], 4),
    ("real-vllm-0.23.0-fields", &[LosesTheBatch], 4),
    ("real-vllm-0.24.0-fields", &[LosesTheBatch], 4),
    ("real-vllm-0.25.1-fields", &[LosesTheBatch], 4),
    ("real-vllm-0.26.0-fields", &[LosesTheBatch], 4),
    ("real-vllm-0.27.1-fields", &[LosesTheBatch], 4),
    ("real-vllm-0.29.0-fields", &[LosesTheBatch], 4),
    ("real-vllm-0.30.0-fields", &[LosesTheBatch], 4),
    ("real-vllm-0.33.0-digest128", &[LosesTheBatch], 36),
    ("real-vllm-0.33.0-fields", &[LosesTheBatch], 4),
    ("real-vllm-0.9.0-fields", &[LosesTheBatch], 27),
    ("sglang-0.4.6.post5-edges", &[LosesTheBatch], 56),
    ("sglang-0.5.18-edges", &[LosesTheBatch, ReadsMediaInUpperCase, KnowsOneNamePerPrefix], 5),
    ("sglang-0.5.20-edges", &[ReadsMediaInUpperCase], 4),
    ("sglang-0.5.22-edges", &[ReadsMediaInUpperCase], 4),
    ("sglang-0.5.9-edges", &[ReadsMediaInUpperCase], 4),
    ("vllm-0.10.2-edges", &[LosesTheBatch, ReadsMediaInUpperCase], 6),
    ("vllm-0.14.1-edges", &[LosesTheBatch, ReadsMediaInUpperCase], 5),
    ("vllm-0.17.1-edges", &[ReadsMediaInUpperCase], 4),
    ("vllm-0.20.2-edges", &[LosesTheBatch, ReadsMediaInUpperCase], 6),
    ("vllm-0.22.1-edges", &[LosesTheBatch, ReadsMediaInUpperCase], 7),
    ("vllm-0.24.0-edges", &[LosesTheBatch, ReadsMediaInUpperCase], 7),
    ("vllm-0.26.0-edges", &[LosesTheBatch], 1),
    ("vllm-0.29.0-edges", &[LosesTheBatch], 1),
    ("vllm-0.30.0-edges", &[LosesTheBatch], 2),
    ("vllm-0.33.0-edges", &[LosesTheBatch], 1),
    ("vllm-0.9.0-edges", &[LosesTheBatch], 47),
    ("vllm-0.9.1-edges", &[LosesTheBatch], 1),
];

#[test]
fn answers_are_equal_or_differ_for_a_known_cause() {
    // The peer's decoder, which `causes` asks, recurses: more than a test's thread has.
    let thread = std::thread::Builder::new().stack_size(64 << 20).spawn(compare_all).expect("a thread");
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

fn compare_all() {
    let kvtap = start_kvtap();
    let servers = [kvtap.address(), start_dynamo()];
    let (mut asked, mut equal, mut wrong) = (0, 0, Vec::new());
    let captures = captures();
    for capture in &captures {
        let known = DIFFERENT.iter().find(|(name, ..)| *name == capture.name);
        let (answers, different) = differing(servers, capture, &[]);
        asked += answers;
        equal += answers - different;
        let expected = known.map_or(0, |(_, _, different)| *different);
        if different != expected {
            wrong.push(format!("{}: {different} of {answers} differ, not {expected}", capture.name));
        }
        if let Some((_, causes, _)) = known {
            let (answers, left) = differing(servers, capture, causes);
            if left != 0 {
                wrong.push(format!("{}: {left} of {answers} differ without {causes:?}", capture.name));
            }
        }
    }
    println!("{} captures, {asked} answers, {equal} equal", captures.len());
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(DIFFERENT.iter().all(|(name, ..)| captures.iter().any(|capture| capture.name == *name)));
}
