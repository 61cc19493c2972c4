//! Every capture against what it must decode to: the crate, and the oracle, so that it can be trusted elsewhere.
//!
//! `KVTAP_CORPUS` points both at another directory of captures.

mod support;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value as Json, json};
use support::captures::{self, Capture};
use support::fast::Fast;
use support::oracle::{Applied, Copies, Match, Oracle, OracleConfig, QueryOptions, Summary};

/// Shards of the crate's index; other tests show that their number does not matter.
const SHARDS: usize = 2;

/// Either implementation.
trait Replay {
    fn apply(&mut self, sequence: u64, payload: &[u8]) -> Applied;
    fn summary(&self) -> Summary;
    fn query(&mut self, tokens: &[u32]) -> (usize, Vec<Match>);
}

impl Replay for Oracle {
    fn apply(&mut self, sequence: u64, payload: &[u8]) -> Applied {
        self.apply(sequence, payload)
    }

    fn summary(&self) -> Summary {
        self.summary()
    }

    fn query(&mut self, tokens: &[u32]) -> (usize, Vec<Match>) {
        Self::query(self, tokens, &QueryOptions::default())
    }
}

impl Replay for Fast {
    fn apply(&mut self, sequence: u64, payload: &[u8]) -> Applied {
        self.apply(sequence, payload)
    }

    fn summary(&self) -> Summary {
        self.summary()
    }

    fn query(&mut self, tokens: &[u32]) -> (usize, Vec<Match>) {
        self.flush();
        self.query(tokens, &QueryOptions::default())
    }
}

fn answer(blocks: usize, matches: &[Match]) -> Json {
    let lines = matches.iter().map(|found| {
        json!({
            "worker": found.worker_id,
            "dp_rank": found.dp_rank,
            "device": found.device,
            "host_pinned": found.host_pinned,
            "disk": found.disk,
            "external": found.external,
        })
    });
    json!({ "blocks": blocks, "matches": lines.collect::<Vec<_>>() })
}

/// Every disagreement of one capture, one line each.
fn disagreements(capture: &Capture, replay: &mut impl Replay) -> Vec<String> {
    let mut placements = Vec::new();
    for record in capture.records() {
        let applied = replay.apply(record.sequence, &record.payload);
        placements.extend(applied.placements.iter().map(|placed| placed.to_json(record.sequence)));
    }
    let mut wrong = Vec::new();
    let (summary, expected) = (replay.summary().to_json(), &capture.sidecar["expected"]);
    for (key, value) in expected.as_object().expect("the expected report") {
        if summary[key] != *value {
            wrong.push(format!("{key}: {} is not {value}", summary[key]));
        }
    }
    if let Some(expected) = capture.lines("placements.jsonl") {
        if expected.len() != placements.len() {
            wrong.push(format!("{} placements are not {}", placements.len(), expected.len()));
        }
        if let Some((ours, theirs)) = placements.iter().zip(&expected).find(|(ours, theirs)| ours != theirs) {
            wrong.push(format!("placement: {ours} is not {theirs}"));
        }
    }
    for (number, query) in capture.lines("queries.jsonl").expect("queries").iter().enumerate() {
        let tokens = query[0].as_array().expect("token ids").iter();
        let tokens: Vec<_> =
            tokens.map(|token| u32::try_from(token.as_u64().expect("an id")).expect("u32")).collect();
        let (blocks, matches) = replay.query(&tokens);
        let ours = answer(blocks, &matches);
        if ours != query[1] {
            wrong.push(format!("query {number}: {ours} is not {}", query[1]));
        }
    }
    wrong
}

fn all_disagreements<R: Replay>(new: impl Fn(OracleConfig) -> R) -> String {
    let lines = captures::all().into_iter().flat_map(|capture| {
        let lines = disagreements(&capture, &mut new(OracleConfig::new(capture.block_size)));
        lines.into_iter().map(move |line| format!("{}: {line}\n", capture.name))
    });
    lines.collect()
}

#[test]
fn every_capture_decodes_to_its_expected_contents() {
    assert_eq!(all_disagreements(|config| Fast::new(config, SHARDS)), "");
}

#[test]
fn the_oracle_agrees_with_every_capture() {
    assert_eq!(all_disagreements(Oracle::new), "");
}

/// Captures whose stream cannot tell what the engine holds: node hashes (SGLang 0.4.7), extra keys outside the hash
/// (SGLang 0.5.23 without a salt), and partial tails, which are resident but never placed.
const BLIND: [&str; 3] =
    ["engine-sglang-0.4.7-radix64", "engine-sglang-0.5.23-radix64", "engine-vllm-0.33.0-mamba-partial64"];

#[test]
fn the_index_ends_with_what_the_engine_held() {
    let mut compared = 0;
    for capture in captures::all() {
        let held = &capture.sidecar["resident_in_engine_at_end"];
        if held.is_null() || BLIND.contains(&capture.name.as_str()) {
            continue;
        }
        // vLLM's "full" report mode announces reused prefixes again; an operator says so.
        let copies = if capture.name.contains("report-full") { Copies::Set } else { Copies::Count };
        let mut fast = Fast::new(OracleConfig { copies, ..OracleConfig::new(capture.block_size) }, SHARDS);
        let mut live = BTreeSet::new();
        let mut copies_left = BTreeMap::new();
        for record in capture.records() {
            for placed in fast.apply(record.sequence, &record.payload).placements {
                let left: &mut i64 = copies_left.entry(placed.engine_hash).or_default();
                *left = match (placed.op, copies) {
                    ("store", Copies::Count) => *left + 1,
                    ("store", Copies::Set) => 1,
                    ("remove", _) => *left - 1,
                    _ => 0,
                };
                if placed.op == "clear" {
                    live.clear();
                    copies_left.clear();
                } else if *left > 0 {
                    live.extend(placed.engine_hash);
                } else {
                    live.remove(&placed.engine_hash.expect("a block"));
                }
            }
        }
        assert_eq!(live.len(), fast.ingest().entries(), "{}", capture.name);
        let distinct = held.get("blocks").or_else(|| held["0"].get("distinct")).expect("a count");
        assert_eq!(Some(live.len() as u64), distinct.as_u64(), "{}", capture.name);
        if let Some(sum) = held["0"]["sum"].as_str() {
            let ours = live.iter().copied().fold(0, u64::wrapping_add);
            assert_eq!(ours.to_string(), sum, "{}", capture.name);
        }
        compared += 1;
    }
    assert!(compared > 15, "only {compared} captures tell");
}
