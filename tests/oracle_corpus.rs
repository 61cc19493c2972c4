//! Holds the oracle against every capture and what it must decode to, so that it can be trusted elsewhere.
//!
//! `KVTAP_CORPUS` points it at another directory of captures.

mod support;

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value as Json, json};
use support::kvcap;
use support::oracle::{Match, Oracle, OracleConfig, QueryOptions};

fn captures() -> Vec<PathBuf> {
    let own = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/corpus");
    let directory = std::env::var("KVTAP_CORPUS").unwrap_or_else(|_| own.to_owned());
    let files = fs::read_dir(directory).expect("a directory of captures");
    let paths = files.map(|file| file.expect("a readable entry").path());
    let mut captures: Vec<_> =
        paths.filter(|path| path.extension().is_some_and(|kind| kind == "kvcap")).collect();
    captures.sort();
    captures
}

fn read_json(text: &str) -> Json {
    serde_json::from_str(text).expect("JSON")
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
fn disagreements(capture: &Path) -> Vec<String> {
    let sidecar = read_json(&fs::read_to_string(capture.with_extension("json")).expect("a sidecar"));
    let block_size = u32::try_from(sidecar["block_size"].as_u64().expect("a size")).expect("a small size");
    let mut oracle = Oracle::new(OracleConfig::new(block_size));
    let mut placements = Vec::new();
    for record in kvcap::read(&fs::read(capture).expect("a capture")) {
        let applied = oracle.apply(record.sequence, &record.payload);
        placements.extend(applied.placements.iter().map(|placed| placed.to_json(record.sequence)));
    }
    let mut wrong = Vec::new();
    let (summary, expected) = (oracle.summary().to_json(), &sidecar["expected"]);
    for (key, value) in expected.as_object().expect("the expected report") {
        if summary[key] != *value {
            wrong.push(format!("{key}: {} is not {value}", summary[key]));
        }
    }
    if let Ok(lines) = fs::read_to_string(capture.with_extension("placements.jsonl")) {
        let expected: Vec<_> = lines.lines().map(read_json).collect();
        if expected.len() != placements.len() {
            wrong.push(format!("{} placements are not {}", placements.len(), expected.len()));
        }
        if let Some((ours, theirs)) = placements.iter().zip(&expected).find(|(ours, theirs)| ours != theirs) {
            wrong.push(format!("placement: {ours} is not {theirs}"));
        }
    }
    let queries = fs::read_to_string(capture.with_extension("queries.jsonl")).expect("queries");
    for (number, line) in queries.lines().enumerate() {
        let query = read_json(line);
        let tokens = query[0].as_array().expect("token ids").iter();
        let tokens: Vec<_> =
            tokens.map(|token| u32::try_from(token.as_u64().expect("an id")).expect("u32")).collect();
        let (blocks, matches) = oracle.query(&tokens, &QueryOptions::default());
        let ours = answer(blocks, &matches);
        if ours != query[1] {
            wrong.push(format!("query {number}: {ours} is not {}", query[1]));
        }
    }
    wrong
}

#[test]
fn oracle_agrees_with_every_capture() {
    let captures = captures();
    assert!(!captures.is_empty(), "no captures found");
    let mut wrong = Vec::new();
    for capture in &captures {
        let name = capture.file_name().expect("a file").to_string_lossy();
        wrong.extend(disagreements(capture).iter().map(|line| format!("{name}: {line}")));
    }
    assert!(wrong.is_empty(), "{} captures, disagreements:\n{}", captures.len(), wrong.join("\n"));
}
