//! `/metrics` and `/explain` of a source that went through every fault: the exact numbers.

mod support;

#[path = "support/client.rs"]
mod client;
#[path = "peers/bench.rs"]
#[allow(dead_code, reason = "peers need more of it")]
mod bench;

use serde_json::json;

use bench::{Instance, query, wait};
use support::publisher::{Publisher, TCP};
use support::source::{Event, list, pack, payload, remove, store};

/// A batch with something of everything.
fn mixed() -> Vec<u8> {
    let events = [
        store(&[1], None, 1..=4),
        store(&[2], Some(1), 5..=8).set("colour", "red"),
        store(&[3], Some(1), 5..=8).set("medium", "TAPE"),
        Event::new("BlockMoved"),
        store(&[4], None, 1..=4).set("token_ids", "text"),
        store(&[4], None, 1..=4).without("block_hashes"),
        store(&[4], None, 1..=4).set("token_ids", list![1_u64 << 40]),
        remove(&[77]),
    ];
    payload(events, 0)
}

/// A payload for every rule that can be broken by less than 256 MiB.
fn broken() -> [(&'static str, Vec<u8>); 8] {
    let deep: Vec<u8> = [&[0x92, 0x00], [0x91; 70].as_slice(), &[0x90]].concat();
    let trailing = [empty(), vec![0x01]].concat();
    [
        ("truncated", vec![0x93, 0x01]),
        ("trailing_bytes", trailing),
        ("reserved_marker", vec![0x92, 0x01, 0xc1]),
        ("too_deep", deep),
        ("not_a_batch", vec![0x01]),
        ("bad_timestamp", pack(&list!["now", list![], 0])),
        ("bad_events", pack(&list![1.0, 5, 0])),
        ("bad_rank", pack(&list![1.0, list![], "first"])),
    ]
}

fn empty() -> Vec<u8> {
    pack(&list![1.0, list![], 0])
}

const SOURCE: &str = r#"model_name="m",routing_group="default",instance_id="7",dp_rank="0""#;
const PARTITION: &str = r#"{model_name="m",routing_group="default"}"#;

/// Sends every fault, and returns when the service has dealt with them: bytes of all payloads it applied or refused.
fn go_through_all(instance: &Instance, publisher: &Publisher) -> usize {
    instance.register(&publisher.endpoint, 7, Some(&publisher.replay_endpoint));
    publisher.wait_for_subscriber();
    publisher.send(0, &mixed());
    for (sequence, (_, payload)) in (1..).zip(broken()) {
        publisher.send(sequence, &payload);
    }
    // Batch 9 was never sent, 10 is replayed; 12 and 13 nobody has any more.
    publisher.send(11, &empty());
    assert_eq!(publisher.answer(&[(8, broken()[7].1.clone()), (10, empty())]), 8);
    publisher.send(14, &empty());
    assert_eq!(publisher.answer(&[]), 11);
    publisher.send(11, &empty());
    publisher.send_frames(&[b"weather", &15_u64.to_be_bytes(), &empty()]);
    publisher.send_frames(&[b"kv-events", &15_u64.to_be_bytes()]);
    // Another life.
    let event: rmpv::Value = store(&[5], None, 1..=4).into();
    let newer = pack(&list![50.0, rmpv::Value::Array(vec![event]), 0]);
    publisher.send(0, &newer);
    wait("the restart", || (instance.status().sequence.restarts == 1).then_some(()));
    instance.expect(&query(4), &json!({"0": 4}));
    let broken: usize = broken().iter().map(|(_, payload)| payload.len()).sum();
    mixed().len() + broken + 3 * empty().len() + newer.len()
}

/// The lines whose numbers are exact.
fn wanted(bytes: usize) -> Vec<String> {
    let plain = [
        ("batches", 13),
        ("payload_bytes", bytes as u64),
        ("placed_blocks", 3),
        ("removed_blocks", 0),
        ("placed_tokens", 12),
        ("undelivered_records", 0),
        ("back_pressure", 0),
        ("taken_blocks", 0),
        ("gaps", 2),
        ("replayed_batches", 1),
        ("lost_batches", 2),
        ("skipped_sequences", 1),
        ("restarts", 1),
        ("duplicates", 1),
        ("connects", 1),
        ("disconnects", 0),
        ("bad_messages", 1),
        ("foreign_messages", 1),
    ];
    let mut wanted: Vec<String> =
        plain.iter().map(|(name, count)| format!("kvtap_{name}_total{{{SOURCE}}} {count}")).collect();
    let mut labelled = |name: &str, labels: &str, count: u64| {
        wanted.push(format!("kvtap_{name}_total{{{SOURCE},{labels}}} {count}"));
    };
    for (kind, count) in [("stored", 4), ("removed", 1), ("cleared", 0), ("unknown", 1), ("malformed", 3)] {
        labelled("events", &format!("kind=\"{kind}\""), count);
    }
    for (reason, _) in broken() {
        labelled("malformed_batches", &format!("reason=\"{reason}\""), 1);
    }
    labelled("malformed_batches", "reason=\"too_long\"", 0);
    for (reason, count) in [("wrong_type", 1), ("missing", 1), ("out_of_range", 1), ("bad_utf8", 0)] {
        labelled("malformed_events", &format!("reason=\"{reason}\""), count);
    }
    labelled("not_placed", "reason=\"unknown_medium\",counted_in=\"events\"", 1);
    labelled("not_placed", "reason=\"unknown_block\",counted_in=\"blocks\"", 1);
    labelled("schema_drift", "field=\"unknown_key:colour\"", 1);
    labelled("schema_drift", "field=\"unknown_tag:BlockMoved\"", 1);
    wanted.push(format!("kvtap_index_entries{PARTITION} 1.0"));
    wanted.push(format!("kvtap_unclaimed_entries{PARTITION} 0.0"));
    wanted.push(format!("kvtap_refused_blocks{PARTITION} 0.0"));
    wanted.push(format!("kvtap_source_degraded{{{SOURCE}}} 0.0"));
    wanted.push(format!("kvtap_source_state{{{SOURCE},state=\"live\"}} 1.0"));
    wanted
}

#[test]
fn every_fault_is_counted_exactly() {
    let publisher = Publisher::bind(TCP, TCP);
    let instance = Instance::new();
    let bytes = go_through_all(&instance, &publisher);
    let (status, metrics) = instance.get("/metrics");
    let metrics = metrics.as_str().unwrap();
    assert_eq!(status, 200);
    for line in &wanted(bytes) {
        assert!(metrics.lines().any(|found| found == line), "{line} in {metrics}");
    }
    // What is not exact is there.
    for start in ["kvtap_index_bytes", "kvtap_engine_hash_bytes", "kvtap_channel_batches"] {
        assert!(metrics.lines().any(|line| line.starts_with(&format!("{start}{PARTITION} "))), "{start}");
    }
    assert!(metrics.contains("kvtap_query_seconds_bucket{le=\"+Inf\",endpoint=\"query\"}"), "{metrics}");
    let reasons = metrics.lines().filter(|line| line.starts_with("kvtap_malformed_batches_total{"));
    assert_eq!(reasons.count(), 9, "one line per rule");

    let explained = &instance.get("/explain").1[0];
    let by_reason = &explained["malformed_batches_by_reason"];
    assert_eq!(by_reason.as_object().unwrap().len(), 8, "{explained}");
    assert_eq!(
        explained["malformed_events_by_reason"],
        json!({"missing": 1, "out_of_range": 1, "wrong_type": 1})
    );
}
