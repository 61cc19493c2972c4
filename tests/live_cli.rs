//! The live commands as scripts see them: exit status, the JSON's keys, what goes to stdout and stderr.

mod support;

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

use support::publisher::{Publisher, TCP, ipc};
use support::source::{payload, store};

/// Keys of a source that scripts may rely on, in order.
const SOURCE_KEYS: [&str; 12] = [
    "endpoint",
    "worker",
    "dp_rank",
    "state",
    "cursor",
    "batches",
    "gaps",
    "replayed_batches",
    "lost_batches",
    "restarts",
    "duplicates",
    "degraded",
];
const SUMMARY_KEYS: [&str; 11] = [
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
    "sources",
];

fn start(args: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_kvtap"))
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn kvtap(args: &[&str]) -> Output {
    start(args).wait_with_output().unwrap()
}

fn batch(number: u64) -> Vec<u8> {
    let first = u32::try_from(number * 4).unwrap();
    payload([store(&[number + 1], None, first..=first + 3)], 0)
}

fn kept(last: u64) -> Vec<(u64, Vec<u8>)> {
    (0..=last).map(|number| (number, batch(number))).collect()
}

/// Reads stderr until a line has this in it.
fn until(process: &mut Child, part: &str) {
    let mut lines = BufReader::new(process.stderr.as_mut().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains(part)), "it ended without saying '{part}'");
}

/// Ends it by a signal. Gives its status and what it printed.
fn end(mut process: Child, signal: &str) -> (Option<i32>, String) {
    let kill = Command::new("kill").args([format!("-{signal}"), process.id().to_string()]).status();
    assert!(kill.unwrap().success());
    let mut printed = String::new();
    process.stdout.take().unwrap().read_to_string(&mut printed).unwrap();
    (process.wait().unwrap().code(), printed)
}

#[test]
fn serve_follows_a_source_until_a_signal_and_sums_up() {
    for signal in ["TERM", "INT"] {
        let publisher = Publisher::bind(TCP, TCP);
        let spec = format!(
            "{},worker=7,block_size=4,replay={},model=m,topic=kv-events",
            publisher.endpoint, publisher.replay_endpoint
        );
        let mut serve = start(&["serve", "--source", &spec, "--json"]);
        publisher.wait_for_subscriber();
        publisher.send(3, &batch(3));
        publisher.answer(&kept(3));
        until(&mut serve, "replay done");
        let (status, printed) = end(serve, signal);
        assert_eq!(status, Some(0));
        let sum: Value = serde_json::from_str(&printed).unwrap();
        let keys: Vec<&str> = SUMMARY_KEYS.to_vec();
        assert_eq!(in_order(&printed, &keys), keys);
        let source = &sum["sources"][0];
        let sources = &printed[printed.find("\"sources\"").unwrap()..];
        assert_eq!(in_order(sources, &SOURCE_KEYS), SOURCE_KEYS);
        assert_eq!(
            (&source["worker"], &source["cursor"], &source["state"]),
            (&7.into(), &3.into(), &"live".into())
        );
        assert_eq!((&source["replayed_batches"], &source["lost_batches"]), (&3.into(), &0.into()));
        assert_eq!((&sum["blocks"]["placed"], &sum["index"]["entries"]), (&4.into(), &4.into()));
        assert_eq!(source["degraded"], false);
    }
}

/// Those of the keys that stand in the text, in the order in which they stand there.
fn in_order<'k>(text: &str, keys: &[&'k str]) -> Vec<&'k str> {
    let mut found: Vec<_> =
        keys.iter().filter_map(|key| Some((text.find(&format!("\"{key}\":"))?, *key))).collect();
    found.sort_unstable();
    found.into_iter().map(|(_, key)| key).collect()
}

#[test]
fn serve_ends_by_itself() {
    let endpoint = ipc();
    let output = kvtap(&["serve", "--source", &endpoint, "--source", &endpoint, "--for", "0.3", "--json"]);
    assert_eq!(output.status.code(), Some(0));
    let sum: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&sum["sources"][1]["worker"], &sum["sources"][1]["state"]),
        (&1.into(), &"connecting".into())
    );
    assert_eq!(sum["sources"][0]["cursor"], Value::Null);
    let table = kvtap(&["serve", "--source", &endpoint, "--for", "0.1"]);
    assert!(String::from_utf8(table.stdout).unwrap().contains("connecting"));
}

#[test]
fn what_capture_records_replays_to_the_same_index() {
    let publisher = Publisher::bind(&ipc(), &ipc());
    let path =
        std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("live-{}.kvcap", std::process::id()));
    let file = path.display().to_string();
    let capture = start(&["capture", &publisher.endpoint, "-o", &file, "--batches", "5"]);
    publisher.wait_for_subscriber();
    publisher.send_frames(&[b"bad"]);
    (0..9).for_each(|number| publisher.send(number, &batch(number)));
    let output = capture.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(0), 0));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("5 batches") && said.contains("1 messages"), "{said}");
    let replay = kvtap(&["replay", &file, "--block-size", "4", "--json"]);
    let sum: Value = serde_json::from_slice(&replay.stdout).unwrap();
    assert_eq!((&sum["batches"], &sum["index"]["entries"]), (&5.into(), &5.into()));
    std::fs::remove_file(path).unwrap();
}

#[test]
fn doctor_says_what_to_change() {
    let publisher = Publisher::bind(TCP, TCP);
    let args = ["--seconds", "1.5", "--replay", &publisher.replay_endpoint];
    for json in [false, true] {
        let mut command = vec!["doctor", &publisher.endpoint];
        command.extend(args);
        if json {
            command.push("--json");
        }
        let doctor = start(&command);
        publisher.wait_for_subscriber();
        for number in [4, 5, 7] {
            publisher.send(number, &batch(number));
        }
        assert_eq!(publisher.answer(&kept(7)), 7);
        let output = doctor.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains("set block_size=4"), "{text}");
        if json {
            let found: Value = serde_json::from_str(&text).unwrap();
            assert_eq!((&found["messages"], &found["missing_batches"]), (&3.into(), &1.into()));
            assert_eq!(
                (&found["replay"]["state"], &found["replay"]["frames"]),
                (&"answers".into(), &4.into())
            );
            assert_eq!(found["mix"][0]["verdict"], "block_size_mismatch");
        } else {
            assert!(text.contains("answers, in replies of 4 frames"), "{text}");
        }
    }
}

#[test]
fn doctor_fails_where_nothing_comes() {
    let output = kvtap(&["doctor", &ipc(), "--seconds", "0.1"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stdout).unwrap().contains("Nothing came"));
}

#[test]
fn bad_usage_is_one_sentence() {
    let bad: [&[&str]; 9] = [
        &["serve", "--source", "tcp://h"],
        &["serve", "--source", "tcp://h:1,block_size=0"],
        &["serve", "--source", "tcp://h:1,colour=red"],
        &["serve", "--for", "soon"],
        &["serve", "--shards", "0"],
        &["capture", "tcp://h:1"],
        &["capture", "http://h:1", "-o", "x"],
        &["doctor", "nowhere"],
        &["doctor", "tcp://h:1", "--block-size", "0"],
    ];
    for args in bad {
        let output = kvtap(args);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{args:?}: {said}");
        assert_eq!(said.lines().count(), 1, "{args:?}: {said}");
    }
}
