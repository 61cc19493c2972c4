//! The same requests to both servers: registrations, refusals, statuses, and answers over tiers, ranks and groups.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use kvtap::{LocalHash, Prompt};
use kvtap_perf_service::publish::{batch, removed_event, stored_event};
use kvtap_perf_service::settle::Source;
use kvtap_perf_service::{get, post, send, start_dynamo, start_kvtap};
use rmpv::Value;
use serde_json::{Value as Json, json};

const PATIENCE: Duration = Duration::from_secs(60);
const JSON: &str = "application/json";

/// Asks both until they agree: kvtap's shards apply what they have received each when it can.
fn agree(servers: [SocketAddr; 2], path: &str, body: &Json) -> (u16, Json) {
    let end = Instant::now() + PATIENCE;
    loop {
        let [kvtap, dynamo] = servers.map(|server| post(server, path, body));
        if kvtap == dynamo {
            return kvtap;
        }
        assert!(Instant::now() < end, "{path} {body}\nkvtap:  {kvtap:?}\ndynamo: {dynamo:?}");
        std::thread::yield_now();
    }
}

#[test]
fn refusals_are_equal() {
    let kvtap = start_kvtap();
    let servers = [kvtap.address(), start_dynamo()];
    let source = Source::register(
        &servers,
        json!({"instance_id": 1, "model_name": "m", "block_size": 16, "routing_group": "g"}),
    );
    let with = |changes: &[(&str, Json)]| {
        let mut changed = source.registration().clone();
        changes.iter().for_each(|(key, value)| changed[*key] = value.clone());
        changed
    };
    for (path, body) in [
        ("/register", with(&[])),
        ("/register", with(&[("model_name", "other".into())])),
        ("/register", with(&[("instance_id", 2.into()), ("block_size", 32.into())])),
        ("/query", json!({"token_ids": [1], "model_name": "m"})),
        ("/query_by_hash", json!({"block_hashes": [1], "model_name": "n"})),
        (
            "/query_by_hash",
            json!({"block_hashes": [1], "model_name": "m", "routing_group": "g", "cache_salt": "s"}),
        ),
        ("/query_by_hash", json!({"block_hashes": [1], "model_name": "n", "cache_salt": ""})),
        ("/query", json!({"token_ids": [1], "model_name": "m", "routing_group": "g"})),
        ("/query", json!({"token_ids": [], "model_name": "m", "routing_group": "g"})),
        ("/unregister", json!({"instance_id": 9, "model_name": "m", "routing_group": "g"})),
        ("/unregister", json!({"instance_id": 1, "model_name": "m", "routing_group": "g", "dp_rank": 5})),
        ("/unregister", json!({"instance_id": 1, "model_name": "m", "routing_group": "g"})),
        ("/query", json!({"token_ids": [1], "model_name": "m", "routing_group": "g"})),
    ] {
        let [kvtap, dynamo] = servers.map(|server| post(server, path, &body));
        assert_eq!(kvtap, dynamo, "{path} {body}");
    }
}

/// What is no request at all: the statuses are equal; only kvtap's refusals are JSON.
#[test]
fn statuses_are_equal() {
    let kvtap = start_kvtap();
    let servers = [kvtap.address(), start_dynamo()];
    let source = Source::register(&servers, json!({"instance_id": 1, "model_name": "m", "block_size": 16}));
    let mut zero = source.registration().clone();
    zero["instance_id"] = json!(-1);
    let zero = zero.to_string();
    for (path, content) in [
        ("/query", (JSON, "{")),
        ("/query", (JSON, "[]")),
        ("/query", (JSON, "{}")),
        ("/query", (JSON, "")),
        ("/query", (JSON, r#"{"token_ids": [-1], "model_name": "m"}"#)),
        ("/query", (JSON, r#"{"token_ids": [4294967296], "model_name": "m"}"#)),
        ("/query", (JSON, r#"{"token_ids": [1.5], "model_name": "m"}"#)),
        ("/query", (JSON, r#"{"token_ids": [1], "token_ids": [2], "model_name": "m"}"#)),
        ("/query", (JSON, r#"{"token_ids": [1], "model_name": "m"} x"#)),
        ("/query", ("text/plain", r#"{"token_ids": [1], "model_name": "m"}"#)),
        ("/query", ("application/json; charset=utf-8", r#"{"token_ids": [1], "model_name": "m"}"#)),
        ("/query_by_hash", (JSON, r#"{"block_hashes": ["1"], "model_name": "m"}"#)),
        (
            "/query_by_hash",
            (JSON, r#"{"block_hashes": [9223372036854775807, -9223372036854775808], "model_name": "m"}"#),
        ),
        ("/query_by_hash", (JSON, r#"{"block_hashes": [9223372036854775808], "model_name": "m"}"#)),
        ("/register", (JSON, &zero)),
        ("/register", (JSON, r#"{"instance_id": 2}"#)),
        ("/unregister", (JSON, r#"{"instance_id": 2}"#)),
        ("/nothing", (JSON, "{}")),
        ("/health", (JSON, "{}")),
    ] {
        let [(kvtap, sentence), (dynamo, _)] = servers.map(|server| send(server, path, content));
        assert_eq!(kvtap, dynamo, "{path} {content:?} {sentence}");
        let parsed: Json = serde_json::from_str(&sentence).expect("JSON");
        assert!(kvtap == 200 || parsed["error"].is_string(), "{sentence}");
    }
    for path in ["/health", "/query", "/nothing", "/workers"] {
        let [kvtap, dynamo] = servers.map(|server| get(server, path).0);
        assert_eq!(kvtap, dynamo, "{path}");
    }
}

/// The peer takes 8 MiB, kvtap 16: a million ids need up to 12 characters each.
#[test]
fn bodies_have_limits() {
    let kvtap = start_kvtap();
    let servers = [kvtap.address(), start_dynamo()];
    let _source = Source::register(&servers, json!({"instance_id": 1, "model_name": "m", "block_size": 16}));
    for (path, key) in [("/query", "token_ids"), ("/query_by_hash", "block_hashes")] {
        let status = |server: SocketAddr, bytes: usize| {
            let mut body = format!("{{\"model_name\": \"m\", \"{key}\": [1]}}");
            body.push_str(&" ".repeat(bytes - body.len()));
            send(server, path, (JSON, &body)).0
        };
        for (bytes, statuses) in [(8 << 20, [200, 200]), ((8 << 20) + 1, [200, 413])] {
            assert_eq!(servers.map(|server| status(server, bytes)), statuses, "{path} {bytes}");
        }
        for (bytes, expected) in [(16 << 20, 200), ((16 << 20) + 1, 413)] {
            assert_eq!(status(kvtap.address(), bytes), expected, "{path} {bytes}");
        }
    }
}

/// Blocks of four tokens of this chain, one medium each.
fn chain(first: u32, media: &[&str]) -> Vec<Value> {
    let block = |(number, medium): (u32, &&str)| {
        let parent = (number > first).then(|| u64::from(number - 1));
        let tokens: Vec<u32> = (number * 4..number * 4 + 4).collect();
        stored_event(&[number.into()], parent, &tokens, (4, medium))
    };
    (first..).zip(media).map(block).collect()
}

fn prompt(first: u32, blocks: u32) -> Vec<u32> {
    (first * 4..(first + blocks) * 4).collect()
}

/// Every prompt of every group, by tokens and by hashes.
fn ask_everything(servers: [SocketAddr; 2]) -> Vec<(u16, Json)> {
    let mut answers = Vec::new();
    for (model_name, routing_group) in [("m", "default"), ("m", "g"), ("n", "default")] {
        for (first, blocks) in
            [0, 100].into_iter().flat_map(|first| (0..8).map(move |blocks| (first, blocks)))
        {
            let tokens = prompt(first, blocks);
            let mut body =
                json!({"token_ids": tokens, "model_name": model_name, "routing_group": routing_group});
            let answer = agree(servers, "/query", &body);
            let mut hashes: Vec<LocalHash> = Vec::new();
            Prompt::new(&tokens, 4).local_hashes(&mut hashes);
            body["block_hashes"] = hashes.iter().map(|hash| hash.0.cast_signed()).collect();
            assert_eq!(agree(servers, "/query_by_hash", &body), answer);
            answers.push(answer);
        }
    }
    answers
}

#[test]
fn tiers_ranks_and_groups_are_equal() {
    let kvtap = start_kvtap();
    let servers = [kvtap.address(), start_dynamo()];
    let registration = |instance_id: u64, model_name: &str, routing_group: &str, dp_rank: u32| {
        json!({
            "instance_id": instance_id, "model_name": model_name, "block_size": 4, "routing_group": routing_group,
            "dp_rank": dp_rank, "tenant_id": "t", "additional_salt": "s",
        })
    };
    let all = ["GPU", "GPU", "CPU", "CPU_TIER2", "EXTERNAL", "EXTERNAL"];
    let mut sources = [
        (registration(1, "m", "default", 0), chain(0, &all)),
        (registration(1, "m", "default", 3), chain(0, &all[..1])),
        (registration(2, "m", "default", 0), chain(0, &["CPU", "CPU", "DISK"])),
        (registration(3, "m", "default", 7), chain(100, &["GPU", "GPU", "GPU"])),
        (registration(4, "m", "g", 0), chain(0, &all[..4])),
        (registration(5, "n", "default", 0), chain(100, &["STORAGE", "NETWORK"])),
    ]
    .map(|(registration, events)| (Source::register(&servers, registration), events));
    for (source, events) in &mut sources {
        let rank = u32::try_from(source.registration()["dp_rank"].as_u64().expect("a rank")).expect("small");
        source.send(&batch(events.clone(), Some(rank)));
        source.settle([rank]);
    }
    let stored = ask_everything(servers);
    assert!(stored.iter().filter(|(_, answer)| answer["instances"] != json!({})).count() > 25);
    let workers = |query: &str| {
        servers.map(|server| {
            let mut list: Vec<Json> =
                serde_json::from_str(&get(server, &format!("/workers{query}")).1).expect("JSON");
            list.sort_by_key(|worker| worker["instance_id"].as_u64());
            list
        })
    };
    for query in ["", "?model_name=m", "?routing_group=g", "?model_name=n&routing_group=g", "?tenant_id=t"] {
        let [kvtap, dynamo] = workers(query);
        assert_eq!(kvtap, dynamo, "{query}");
    }
    // A block in the middle goes, then all of a rank, then ranks and workers one by one.
    sources[0].0.send(&batch(vec![removed_event(&[1], "GPU")], Some(0)));
    sources[0].0.settle([0]);
    assert_ne!(ask_everything(servers), stored);
    sources[3].0.send(&batch(vec![Value::Array(vec!["AllBlocksCleared".into()])], Some(7)));
    sources[3].0.settle([7]);
    ask_everything(servers);
    for body in [
        json!({"instance_id": 1, "model_name": "m", "routing_group": "default", "dp_rank": 3}),
        json!({"instance_id": 1, "model_name": "m"}),
        json!({"instance_id": 4, "model_name": "m", "routing_group": "g"}),
        json!({"instance_id": 5, "model_name": "n"}),
    ] {
        let [kvtap, dynamo] = servers.map(|server| post(server, "/unregister", &body));
        assert_eq!(kvtap, dynamo, "{body}");
        ask_everything(servers);
        let [kvtap, dynamo] = workers("");
        assert_eq!(kvtap, dynamo, "{body}");
    }
}

/// Salts and adapters of a prompt count alike.
#[test]
fn salts_and_adapters_are_equal() {
    let kvtap = start_kvtap();
    let servers = [kvtap.address(), start_dynamo()];
    let mut source =
        Source::register(&servers, json!({"instance_id": 1, "model_name": "m", "block_size": 4}));
    let events = [(1, None, None), (2, Some("a"), None), (3, None, Some("s")), (4, Some("a"), Some("s"))]
        .map(|(hash, lora_name, cache_salt)| {
            let text = |text: Option<&str>| text.map_or(Value::Nil, Value::from);
            Value::Map(vec![
                ("type".into(), "BlockStored".into()),
                ("block_hashes".into(), Value::Array(vec![hash.into(), (hash + 10).into()])),
                ("parent_block_hash".into(), Value::Nil),
                ("token_ids".into(), Value::Array((0..8).map(|token| (hash / 4 + token).into()).collect())),
                ("block_size".into(), 4.into()),
                ("lora_name".into(), text(lora_name)),
                ("cache_salt".into(), text(cache_salt)),
            ])
        });
    source.send(&batch(events.to_vec(), None));
    source.settle([0]);
    let mut found = 0;
    for lora_name in [None, Some(""), Some("a"), Some("b")] {
        for cache_salt in [None, Some(""), Some("s"), Some("t")] {
            for first in 0..3 {
                let body = json!({
                    "token_ids": (first..first + 8).collect::<Vec<u32>>(), "model_name": "m", "lora_name": lora_name,
                    "cache_salt": cache_salt,
                });
                let (status, answer) = agree(servers, "/query", &body);
                assert_eq!(status, 200, "{answer}");
                found += usize::from(answer["instances"] != json!({}));
            }
        }
    }
    assert_eq!(found, 9);
}
