//! The program as scripts see it: exit status, what goes to stdout and stderr, keys and order of the JSON, and a few
//! captures compared with what they must give.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

const EDGES: &str = "vllm-0.33.0-edges";
const CHAT: &str = "engine-vllm-0.10.2-chat16";
const TRAFFIC: &str = "lora-salt-vllm-map-16";
const CAPTURES: [&str; 3] = [EDGES, CHAT, TRAFFIC];

const EVENT_KEYS: [&str; 21] = [
    "batch",
    "seq",
    "ts",
    "dp_rank",
    "event",
    "kind",
    "block_hashes",
    "parent",
    "token_ids",
    "bigram",
    "block_size",
    "medium",
    "lora_name",
    "cache_salt",
    "session_id",
    "group_idx",
    "spec_kind",
    "sliding_window",
    "locality",
    "ownership",
    "verdict",
];

fn corpus(file: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus").join(file).display().to_string()
}

fn kvcap(name: &str) -> String {
    corpus(&format!("{name}.kvcap"))
}

fn kvtap(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_kvtap")).args(args).stdin(Stdio::null()).output().unwrap()
}

/// Stdout of a call that must succeed and say nothing else than a block size warning.
fn stdout(args: &[&str]) -> String {
    let output = kvtap(args);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{args:?}: {stderr}");
    assert!(stderr.lines().all(|line| line.starts_with("warning: ")), "{args:?}: {stderr}");
    String::from_utf8(output.stdout).unwrap()
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The one line on stderr of a call that must fail with this status and print nothing.
fn failure(args: &[&str], status: i32) -> String {
    let (stdout, sentence) = partial(args, status);
    assert!(stdout.is_empty(), "{args:?}");
    sentence
}

/// What a call that must fail with this status prints, and the one line on stderr.
fn partial(args: &[&str], status: i32) -> (String, String) {
    let output = kvtap(args);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(status), "{args:?}: {stderr}");
    assert_eq!(stderr.lines().count(), 1, "{args:?}: {stderr}");
    (String::from_utf8(output.stdout).unwrap(), stderr)
}

fn sidecar(name: &str) -> Value {
    serde_json::from_str(&fs::read_to_string(corpus(&format!("{name}.json"))).unwrap()).unwrap()
}

fn block_size(name: &str) -> String {
    sidecar(name)["block_size"].to_string()
}

/// A file of this test run alone, deleted with the value.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str, bytes: &[u8]) -> Self {
        let path = std::env::temp_dir().join(format!("kvtap-cli-{}-{name}", std::process::id()));
        fs::write(&path, bytes).unwrap();
        Self(path)
    }

    /// A capture of these payloads, their sequence numbers from 100.
    fn capture(name: &str, payloads: &[&[u8]]) -> Self {
        let mut writer = kvtap::kvcap::Writer::new(Vec::new()).unwrap();
        for (sequence, payload) in (100..).zip(payloads) {
            let record = kvtap::kvcap::Record { unix_ns: 0, sequence, topic: b"kv", payload };
            writer.write(&record).unwrap();
        }
        Self::new(name, &writer.into_inner())
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// The keys of an object as they stand in its text; `serde_json` sorts them.
fn keys(line: &str) -> Vec<String> {
    let mut keys = Vec::new();
    let (mut depth, mut text, mut in_text) = (0, String::new(), false);
    for char in line.chars() {
        match char {
            '"' => {
                if !in_text {
                    text.clear();
                }
                in_text = !in_text;
            }
            _ if in_text => text.push(char),
            '{' | '[' => depth += 1,
            '}' | ']' => depth -= 1,
            ':' if depth == 1 => keys.push(text.clone()),
            _ => {}
        }
    }
    keys
}

#[test]
fn replay_gives_what_the_sidecar_expects() {
    for name in CAPTURES {
        let size = block_size(name);
        for shards in ["1", "2", "7"] {
            let text = stdout(&["replay", &kvcap(name), "--block-size", &size, "--shards", shards, "--json"]);
            let mut got: Value = serde_json::from_str(&text).unwrap();
            assert!(got["elapsed_s"].as_f64().unwrap() > 0.0);
            assert!(got["index"]["bytes"].as_u64().unwrap() > 0);
            got.as_object_mut().unwrap().remove("elapsed_s");
            got["index"].as_object_mut().unwrap().remove("bytes");
            assert_eq!(got, sidecar(name)["expected"], "{name} with {shards} shards");
        }
    }
}

#[test]
fn placements_are_the_expected_lines() {
    for name in [EDGES, CHAT] {
        let text = stdout(&["placements", &kvcap(name), "--block-size", &block_size(name)]);
        let expected = fs::read_to_string(corpus(&format!("{name}.placements.jsonl"))).unwrap();
        assert_eq!(lines(&text), lines(&expected), "{name}");
        for (line, expected) in text.lines().zip(expected.lines()) {
            assert_eq!(keys(line), keys(expected));
        }
    }
}

#[test]
fn query_gives_the_expected_answers() {
    for name in CAPTURES {
        let expected = fs::read_to_string(corpus(&format!("{name}.queries.jsonl"))).unwrap();
        let (mut prompts, mut answers) = (String::new(), Vec::new());
        for mut pair in lines(&expected) {
            prompts += &format!("{}\n", pair[0]);
            answers.push(pair[1].take());
        }
        let file = Scratch::new(&format!("{name}.prompts"), prompts.as_bytes());
        let args = [
            "query",
            &kvcap(name),
            "--tokens-file",
            file.path(),
            "--block-size",
            &block_size(name),
            "--json",
        ];
        let got = stdout(&args);
        assert_eq!(got.lines().count(), answers.len(), "{name}");
        for (number, (line, mut answer)) in got.lines().zip(answers).enumerate() {
            answer["prompt"] = number.into();
            assert_eq!(serde_json::from_str::<Value>(line).unwrap(), answer, "{name}, prompt {number}");
            assert_eq!(keys(line), ["prompt", "blocks", "matches"]);
        }
    }
}

#[test]
fn a_prompt_matches_in_its_own_namespace_and_form() {
    let adapter = b"\x92\x01\x91\x98\xabBlockStored\x91\x01\xc0\x94\x01\x02\x03\x04\x04\xc0\xa3GPU\xa1a";
    let salt =
        b"\x92\x01\x91\x98\xabBlockStored\x91\x02\xc0\x94\x01\x02\x03\x04\x04\xc0\xa3GPU\x81\xaacache_salt\xa1s";
    let pairs =
        b"\x92\x01\x91\x97\xabBlockStored\x91\x03\xc0\x94\x92\x01\x02\x92\x02\x03\x92\x03\x04\x92\x04\x05\x04\xc0\xa3GPU";
    let captures: [(&str, &[u8], &[&str]); 3] = [
        ("adapter.kvcap", adapter, &["--lora-name", "a"]),
        ("salt.kvcap", salt, &["--cache-salt", "s"]),
        ("pairs.kvcap", pairs, &["--bigram"]),
    ];
    for (name, payload, options) in captures {
        let file = Scratch::capture(name, &[payload]);
        let query = ["query", file.path(), "--tokens", "1,2,3,4,5", "--block-size", "4", "--json"];
        assert_eq!(lines(&stdout(&query))[0]["matches"], serde_json::json!([]), "{name}");
        let answer = lines(&stdout(&[&query, options].concat())).remove(0);
        assert_eq!(answer["matches"][0]["device"], 1, "{name}");
    }
}

#[test]
fn copies_and_digest_are_read_as_told() {
    let store = b"\x92\x01\x91\x97\xabBlockStored\x91\xc4\x10\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x02\xc0\x94\x01\x02\x03\x04\x04\xc0\xa3GPU";
    let remove = b"\x92\x01\x91\x92\xacBlockRemoved\x91\xc4\x10\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x02";
    let file = Scratch::capture("copies.kvcap", &[store, store, remove]);
    for (options, entries) in [(&[][..], 1), (&["--copies", "count"], 1), (&["--copies", "set"], 0)] {
        let replay = ["replay", file.path(), "--block-size", "4", "--json"];
        let sum = lines(&stdout(&[&replay, options].concat())).remove(0);
        assert_eq!(sum["index"]["entries"], entries, "{options:?}");
    }
    for (options, engine_hash) in [(&[][..], "2"), (&["--digest", "low"], "2"), (&["--digest", "high"], "1")]
    {
        let placements = ["placements", file.path(), "--block-size", "4"];
        let got = lines(&stdout(&[&placements, options].concat()));
        assert_eq!(got.len(), 3);
        assert!(got.iter().all(|line| line["engine_hash"] == engine_hash), "{options:?}");
    }
}

#[test]
fn a_file_is_the_worker_of_its_position() {
    let (edges, chat) = (kvcap(EDGES), kvcap(CHAT));
    let pair = lines(&fs::read_to_string(corpus(&format!("{CHAT}.queries.jsonl"))).unwrap())
        .into_iter()
        .find(|pair| pair[1]["matches"].as_array().is_some_and(|matches| !matches.is_empty()))
        .unwrap();
    let tokens: Vec<String> = pair[0].as_array().unwrap().iter().map(Value::to_string).collect();
    let text = stdout(&["query", &edges, &chat, &chat, "--tokens", &tokens.join(","), "--json"]);
    let got = lines(&text);
    let workers: Vec<_> =
        got[0]["matches"].as_array().unwrap().iter().map(|found| found["worker"].as_u64()).collect();
    assert_eq!((got.len(), workers), (1, vec![Some(1), Some(2)]));

    let sum = |files: &[&str]| lines(&stdout(&[&["replay", "--json"], files].concat())).remove(0);
    let (one, all) = (sum(&[&chat]), sum(&[&chat, &chat, &edges]));
    let edges = sum(&[&edges]);
    for key in ["batches", "tokens", "payload_bytes"] {
        let [one, edges] = [&one, &edges].map(|sum| sum[key].as_u64().unwrap());
        assert_eq!(all[key], 2 * one + edges, "{key}");
    }
    let workers = |sum: &Value| sum["index"]["workers"].as_u64().unwrap();
    assert_eq!(workers(&all), 2 * workers(&one) + workers(&edges));
}

#[test]
fn replay_json_has_its_keys_in_order() {
    let text = stdout(&["replay", &kvcap(EDGES), "--block-size", "4", "--json"]);
    assert_eq!(text.lines().count(), 1);
    let expected = [
        "batches",
        "malformed_batches",
        "events",
        "filtered",
        "blocks",
        "tokens",
        "payload_bytes",
        "elapsed_s",
        "index",
        "digest",
    ];
    assert_eq!(keys(&text), expected);
    let order: Vec<_> =
        kvtap::Reason::ALL.into_iter().filter_map(|reason| text.find(reason.label())).collect();
    assert!(order.is_sorted() && order.len() > 10, "{text}");
}

#[test]
fn inspect_shows_every_event_with_all_keys() {
    let text = stdout(&["inspect", &kvcap(EDGES), "--block-size", "4", "--json"]);
    let events = &sidecar(EDGES)["expected"]["events"];
    let got = lines(&text);
    for kind in ["stored", "removed", "cleared", "unknown", "malformed"] {
        let count = got.iter().filter(|line| line["kind"] == kind).count();
        assert_eq!(events[kind], count, "{kind}");
    }
    assert!(text.lines().all(|line| keys(line) == EVENT_KEYS));
    let stored = got.iter().find(|line| line["kind"] == "stored").unwrap();
    assert!(stored["block_hashes"][0].as_str().unwrap().parse::<u64>().is_ok());
    assert!(stored["ts"].as_f64().is_some_and(|ts| ts < 1e11));
    assert_eq!(stored["verdict"], "place");

    let human = stdout(&["inspect", &kvcap(EDGES), "--block-size", "4"]);
    assert_eq!(human.lines().count(), got.len() + 1, "a heading and a line per event");
}

#[test]
fn what_is_malformed_is_told_with_its_offset() {
    let payloads: [&[u8]; 3] = [
        b"\x92\x01\x92\x92\xacBlockRemoved\x05\x91\xb0AllBlocksCleared",
        b"\x92\x01\x91\x91\xa3New",
        b"\x92\x01\x91\xcd\x00",
    ];
    let file = Scratch::capture("malformed.kvcap", &payloads);
    let got = lines(&stdout(&["inspect", file.path(), "--json"]));
    let kinds: Vec<_> = got.iter().map(|line| line["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["malformed", "cleared", "unknown", "malformed"]);
    let field = |line: usize, key: &str| got[line][key].clone();
    assert_eq!((field(0, "error"), field(0, "offset")), ("wrong_type:block_hashes".into(), 17.into()));
    assert_eq!((field(3, "error"), field(3, "offset")), ("truncated".into(), 3.into()));
    assert_eq!((field(3, "batch"), field(3, "seq"), field(3, "event")), (2.into(), 102.into(), Value::Null));
    let human = stdout(&["replay", file.path()]);
    assert!(human.contains("refused whole: 1") && human.contains("unknown_tag:New"), "{human}");
}

#[test]
fn bad_usage_is_status_2_and_one_sentence() {
    let file = kvcap(EDGES);
    let cases: &[(&[&str], &str)] = &[
        (&["replay"], "<FILE>"),
        (&["inspect"], "<FILE>"),
        (&["placements"], "<FILE>"),
        (&["query", "--tokens", "1"], "<FILE>"),
        (&["repaly", &file], "repaly"),
        (&["inspect", &file, &file], "unexpected argument"),
        (&["replay", &file, "--frobnicate"], "--frobnicate"),
        (&["replay", &file, "--block-size", "0"], "--block-size"),
        (&["replay", &file, "--block-size", "65537"], "--block-size"),
        (&["replay", &file, "--block-size", "many"], "--block-size"),
        (&["replay", &file, "--block-size"], "--block-size"),
        (&["placements", &file, "--block-size", "0"], "--block-size"),
        (&["replay", &file, "--shards", "0"], "--shards"),
        (&["replay", &file, "--shards", "65"], "--shards"),
        (&["replay", &file, "--copies", "some"], "--copies"),
        (&["replay", &file, "--digest", "middle"], "--digest"),
        (&["query", &file], "--tokens"),
        (&["query", &file, "--tokens", "1", "--tokens-file", "f"], "--tokens"),
        (&["query", &file, "--tokens", "1,x"], "'x' is not a token id"),
        (&["query", &file, "--tokens", "4294967296"], "is not a token id"),
        (&["query", &file, "--tokens=-1"], "is not a token id"),
        (&["query", &file, "--tokens", ""], "--tokens"),
    ];
    for (args, about) in cases {
        let sentence = failure(args, 2);
        assert!(sentence.starts_with("error: ") && sentence.contains(about), "{args:?}: {sentence}");
    }
    assert_eq!(kvtap(&[]).status.code(), Some(2));
}

#[test]
fn help_and_version_are_no_failure() {
    for args in [&["--help"][..], &["--version"], &["replay", "--help"], &["help", "query"]] {
        assert!(!stdout(args).is_empty(), "{args:?}");
    }
}

#[test]
fn a_file_that_cannot_be_read_is_status_1() {
    let missing = "/nowhere/missing.kvcap";
    for command in [&["replay"][..], &["inspect"], &["placements"], &["query", "--tokens", "1"]] {
        let sentence = failure(&[command, &[missing]].concat(), 1);
        assert!(sentence.contains(missing), "{sentence}");
    }
    failure(&["replay", env!("CARGO_MANIFEST_DIR")], 1);
    let sentence = failure(&["query", &kvcap(CHAT), "--tokens-file", missing], 1);
    assert!(sentence.contains(missing), "{sentence}");
}

#[test]
fn prompts_that_are_no_arrays_are_status_1_with_their_line() {
    let file = Scratch::new("bad.prompts", b"[1,2]\n\n[1,-2]\n");
    let sentence = failure(&["query", &kvcap(CHAT), "--tokens-file", file.path()], 1);
    assert!(sentence.contains("line 3"), "{sentence}");
}

#[test]
fn a_damaged_capture_is_status_1_with_offset_and_expectation() {
    let bytes = fs::read(kvcap(CHAT)).unwrap();
    let expectations: [(&str, &[u8], &str); 4] = [
        ("empty", b"", "at byte 0 expected the 8-byte magic of a capture, the file ends after 0"),
        ("text", b"not a capture", "at byte 0 expected the 8-byte magic of a capture, found other bytes"),
        ("header", &bytes[..18], "at byte 8 expected a record header of 24 bytes, the file ends after 10"),
        ("cut", &bytes[..bytes.len() - 1], "payload bytes, the file ends after"),
    ];
    for (name, bytes, expected) in expectations {
        let file = Scratch::new(name, bytes);
        for command in [&["replay"][..], &["replay", "--json"], &["query", "--tokens", "1"]] {
            let (stdout, sentence) = partial(&[command, &[file.path()]].concat(), 1);
            assert!(sentence.contains(file.path()) && sentence.contains(expected), "{sentence}");
            let is_capture = bytes.starts_with(b"KVCAP");
            assert_eq!(!stdout.is_empty(), is_capture, "what was read is told: {stdout}");
        }
    }
}

#[test]
fn what_was_read_before_the_damage_is_told_and_the_call_fails() {
    let bytes = fs::read(kvcap(CHAT)).unwrap();
    let file = Scratch::new("last.kvcap", &bytes[..bytes.len() - 1]);
    let whole = lines(&stdout(&["replay", &kvcap(CHAT), "--json"])).remove(0);
    let (stdout, sentence) = partial(&["replay", &kvcap(CHAT), file.path(), "--json"], 1);
    let both = lines(&stdout).remove(0);
    let batches = whole["batches"].as_u64().unwrap();
    assert_eq!(both["batches"].as_u64(), Some(2 * batches - 1), "all but the damaged record");
    assert!(sentence.contains(file.path()), "{sentence}");
}

#[test]
fn a_capture_without_records_is_read_as_nothing() {
    let file = Scratch::new("none.kvcap", b"KVCAP\0\x01\n");
    let got = lines(&stdout(&["replay", file.path(), "--json"])).remove(0);
    assert_eq!((&got["batches"], &got["index"]["workers"]), (&0.into(), &0.into()));
    assert_eq!((&got["filtered"], &got["digest"]), (&serde_json::json!({}), &"0000000000000000".into()));
    assert!(stdout(&["placements", file.path()]).is_empty());
    let answer = stdout(&["query", file.path(), "--tokens", "1,2", "--json"]);
    assert_eq!(answer, "{\"prompt\":0,\"blocks\":0,\"matches\":[]}\n");
}

#[test]
fn a_reader_that_leaves_early_is_no_failure() {
    let file = kvcap(TRAFFIC);
    for args in [&["placements", &file][..], &["inspect", &file], &["inspect", "--json", &file]] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_kvtap"))
            .args(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut first = String::new();
        // Reader and pipe end with this statement.
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
        let mut stderr = String::new();
        child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        assert_eq!((child.wait().unwrap().code(), stderr.as_str()), (Some(0), ""), "{args:?}");
        assert!(!first.is_empty());
    }
}

#[test]
fn a_wrong_block_size_is_told_on_stderr() {
    let output = kvtap(&["replay", &kvcap(CHAT), "--block-size", "32", "--json"]);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(stderr.contains("blocks of 16 tokens") && stderr.contains("--block-size 16"), "{stderr}");
    assert_eq!(lines(&String::from_utf8(output.stdout).unwrap())[0]["blocks"]["placed"], 0);
}

#[test]
fn the_summary_for_people_names_reasons_and_producers() {
    let text = stdout(&["replay", &kvcap(EDGES), "--block-size", "4"]);
    for part in ["per second", "non_main_attention_kind", "All of it fits vLLM ≥ 0.33", "e5131d5a74d3211d"]
    {
        assert!(text.contains(part), "{part} is missing in\n{text}");
    }
    let text = stdout(&["query", &kvcap(EDGES), "--tokens", "5,5,5,5", "--block-size", "4"]);
    assert!(text.contains("none") && text.contains("+ external"), "{text}");
}

#[test]
fn events_without_room_in_the_index_are_warned_of() {
    let mut bytes = b"KVCAP\0\x01\n".to_vec();
    for rank in 0..1_025_u16 {
        let [high, low] = rank.to_be_bytes();
        let payload =
            [&b"\x93\x01\x91\x95\xabBlockStored\x91\x01\xc0\x94\x01\x02\x03\x04\x04\xcd"[..], &[high, low]]
                .concat();
        bytes.extend([0; 8]);
        bytes.extend(u64::from(rank).to_le_bytes());
        bytes.extend([0; 4]);
        bytes.extend(u32::try_from(payload.len()).unwrap().to_le_bytes());
        bytes.extend(payload);
    }
    let file = Scratch::new("ranks.kvcap", &bytes);
    let output = kvtap(&["replay", file.path(), "--block-size", "4", "--json"]);
    let got = lines(&String::from_utf8(output.stdout).unwrap()).remove(0);
    assert_eq!((&got["index"]["workers"], &got["filtered"]["too_many_ranks"]), (&1_024.into(), &1.into()));
    let warning = String::from_utf8(output.stderr).unwrap();
    assert!(warning.starts_with("warning: ") && warning.contains("1 events not placed"), "{warning}");
}
