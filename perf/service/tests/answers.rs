//! The same registrations, events and queries through both indexers: their JSON answers must be equal.

use std::fs::{self, File};
use std::io::BufReader;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use kvtap::kvcap::Reader;
use kvtap::{LocalHash, Prompt};
use kvtap_perf_service::{Publisher, post, start_dynamo, start_kvtap};
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(20);

/// Captures about which the two agree. They do not about `lora-salt-vllm-map-16`, where the peer's depths are not those that the
/// corpus expects, nor about `engine-sglang-0.5.23-radix64`, where the peer has no match for the worker whose stream ends in
/// its middle; why is not known. Others were not tried.
const CAPTURES: [&str; 4] = [
    "chat-vllm-map-16",
    "engine-vllm-0.9.2-chat16",
    "engine-vllm-0.23.0-hybrid64",
    "engine-vllm-0.33.0-chat16",
];

fn corpus(file: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/corpus").join(file)
}

fn payloads(name: &str) -> Vec<Vec<u8>> {
    let file = File::open(corpus(&format!("{name}.kvcap"))).expect("a capture");
    let mut reader = Reader::new(BufReader::new(file)).expect("a capture");
    let mut payloads = Vec::new();
    while let Some(record) = reader.next_record().expect("a record") {
        payloads.push(record.payload.to_vec());
    }
    payloads
}

/// Prompts that hit wholly, in part, and not at all.
fn prompts(name: &str) -> Vec<Vec<u32>> {
    let text = fs::read_to_string(corpus(&format!("{name}.queries.jsonl"))).expect("queries");
    let line = |line: &str| {
        let query: Value = serde_json::from_str(line).expect("JSON");
        serde_json::from_value(query[0].clone()).expect("token ids")
    };
    text.lines().map(line).collect()
}

fn register(addresses: [SocketAddr; 2], body: &Value, publisher: &Publisher) {
    for address in addresses {
        assert_eq!(post(address, "/register", body), (201, json!({"status": "ok"})), "{body}");
        publisher.wait_for_subscriber();
    }
}

/// Asks both until they agree: each applies what it has received when it can.
fn compare(addresses: [SocketAddr; 2], path: &str, body: &Value) -> Value {
    let end = Instant::now() + PATIENCE;
    loop {
        let [kvtap, dynamo] = addresses.map(|address| post(address, path, body));
        if kvtap == dynamo {
            return kvtap.1;
        }
        assert!(Instant::now() < end, "{path} {}\nkvtap:  {kvtap:?}\ndynamo: {dynamo:?}", body["model_name"]);
        std::thread::yield_now();
    }
}

#[test]
fn answers_are_equal() {
    let kvtap = start_kvtap();
    let addresses = [kvtap.address(), start_dynamo()];
    let (mut asked, mut matched) = (0, 0);
    for (name, instance_id) in CAPTURES.into_iter().zip((1..).step_by(2)) {
        let expected = fs::read_to_string(corpus(&format!("{name}.json"))).expect("a description");
        let block_size = serde_json::from_str::<Value>(&expected).expect("JSON")["block_size"].clone();
        let payloads = payloads(name);
        // One worker with all of the stream, and one whose stream ends in its middle.
        for (instance_id, batches) in [(instance_id, payloads.len()), (instance_id + 1, payloads.len() / 2)] {
            let publisher = Publisher::bind();
            let body = json!({
                "instance_id": instance_id, "endpoint": publisher.endpoint, "model_name": name,
                "block_size": block_size, "tenant_id": "t",
            });
            register(addresses, &body, &publisher);
            for (sequence, payload) in (0..).zip(&payloads[..batches]) {
                publisher.send(sequence, payload);
            }
            // Its queue must empty before it goes.
            std::mem::forget(publisher);
        }
        let block_size = u32::try_from(block_size.as_u64().expect("a size")).expect("small");
        for prompt in prompts(name) {
            let body = json!({"token_ids": prompt, "model_name": name});
            let answer = compare(addresses, "/query", &body);
            let mut hashes: Vec<LocalHash> = Vec::new();
            Prompt::new(&prompt, block_size).local_hashes(&mut hashes);
            let hashes: Vec<i64> = hashes.iter().map(|hash| hash.0.cast_signed()).collect();
            let body = json!({"block_hashes": hashes, "model_name": name});
            assert_eq!(compare(addresses, "/query_by_hash", &body), answer);
            asked += 1;
            matched += usize::from(answer["instances"] != json!({}));
        }
    }
    println!("{asked} prompts asked, {matched} matched");
    assert!(matched * 2 > asked, "{matched} of {asked}");
}

#[test]
fn refusals_are_equal() {
    let kvtap = start_kvtap();
    let addresses = [kvtap.address(), start_dynamo()];
    let publisher = Publisher::bind();
    let registration = json!({
        "instance_id": 1, "endpoint": publisher.endpoint, "model_name": "m", "block_size": 16, "routing_group": "g",
    });
    register(addresses, &registration, &publisher);
    let with = |key: &str, value: Value| {
        let mut changed = registration.clone();
        changed[key] = value;
        changed
    };
    for (path, body) in [
        ("/register", registration.clone()),
        ("/register", with("model_name", "other".into())),
        (
            "/register",
            json!({
                "instance_id": 2, "endpoint": publisher.endpoint, "model_name": "m", "block_size": 32, "routing_group": "g",
            }),
        ),
        ("/query", json!({"token_ids": [1], "model_name": "m"})),
        ("/query_by_hash", json!({"block_hashes": [1], "model_name": "n"})),
        (
            "/query_by_hash",
            json!({"block_hashes": [1], "model_name": "m", "routing_group": "g", "cache_salt": "s"}),
        ),
        ("/query", json!({"token_ids": [1], "model_name": "m", "routing_group": "g"})),
        ("/unregister", json!({"instance_id": 9, "model_name": "m", "routing_group": "g"})),
        ("/unregister", json!({"instance_id": 1, "model_name": "m", "routing_group": "g", "dp_rank": 5})),
        ("/unregister", json!({"instance_id": 1, "model_name": "m", "routing_group": "g"})),
        ("/query", json!({"token_ids": [1], "model_name": "m", "routing_group": "g"})),
    ] {
        let [kvtap, dynamo] = addresses.map(|address| post(address, path, &body));
        assert_eq!(kvtap, dynamo, "{path} {body}");
    }
}
