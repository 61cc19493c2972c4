//! Dumps of other hands: Dynamo's own form, and whatever a broken or hostile peer may send.

use kvtap::server::PartitionId;
use serde_json::{Value, json};

use crate::bench::{Instance, answering, nobody, query, stub};
use crate::support::publisher::{Publisher, TCP};
use crate::support::source::{payload, remove, store};

/// Local hashes of the blocks of a prompt.
fn locals(tokens: std::ops::RangeInclusive<u32>) -> Vec<u64> {
    let mut hashes = Vec::new();
    kvtap::Prompt::new(&tokens.collect::<Vec<_>>(), 4).local_hashes(&mut hashes);
    hashes.iter().map(|hash| hash.0).collect()
}

/// An event as Dynamo writes it: blocks 1, 2, … of the prompt 1, 2, …
fn event(worker_id: u64, tier: &str, parent: Option<u64>, blocks: &[u64]) -> Value {
    let locals = locals(1..=80);
    let block = |&hash: &u64| {
        let local = usize::try_from(hash).ok().and_then(|hash| locals.get(hash.wrapping_sub(1)));
        json!({"block_hash": hash, "tokens_hash": local.unwrap_or(&hash), "mm_extra_info": null})
    };
    let stored = json!({
        "parent_hash": parent, "start_position": null, "blocks": blocks.iter().map(block).collect::<Vec<_>>(),
    });
    json!({
        "worker_id": worker_id, "storage_tier": tier,
        "event": {"event_id": 0, "data": {"stored": stored}, "dp_rank": 0},
    })
}

fn dump(events: &[Value]) -> String {
    json!({"m:default": {"block_size": 4, "events": events}}).to_string()
}

fn loaded(body: &str) -> Instance {
    let instance = Instance::with(&[answering(body)], |_| ()).listening();
    instance.wait_until_loaded();
    instance
}

/// Blocks 1 to 3 on the device, 4 in host memory.
fn plain() -> String {
    dump(&[event(7, "device", None, &[1, 2, 3]), event(7, "host_pinned", Some(3), &[4])])
}

#[test]
fn dynamos_own_form_counts_and_is_caught_up_with_a_whole_replay() {
    let instance = loaded(&plain());
    instance.expect(&query(16), &json!({"0": 12}));
    let (_, answer) = instance.post("/query", &query(16));
    assert_eq!(answer["instances"]["7"]["cpu"], 16);

    let publisher = Publisher::bind(TCP, TCP);
    instance.register(&publisher.endpoint, 7, Some(&publisher.replay_endpoint));
    publisher.wait_for_subscriber();
    instance.expect(&query(16), &json!({"0": 12}));
    assert!(instance.status().degraded, "nobody knows how old it is");
    // All batches that there ever were: exact again, with its copies.
    let kept: Vec<_> = (0..)
        .zip([
            payload([store(&[1, 2], None, 1..=8), store(&[2], Some(1), 5..=8)], 0),
            payload([remove(&[2])], 0),
        ])
        .collect();
    publisher.send(2, &payload([store(&[5], Some(2), 9..=12)], 0));
    assert_eq!(publisher.answer(&kept), 0);
    instance.wait_for_cursor(2);
    instance.expect(&query(16), &json!({"0": 12}));
    let status = instance.status();
    assert_eq!((status.degraded, status.sequence.lost_batches), (false, 0), "{status:?}");
    assert_eq!(instance.service.stop()[0].entries, 3);
}

#[test]
fn dynamos_own_form_without_a_whole_replay_is_degraded_and_nothing_counts_twice() {
    let instance = loaded(&plain());
    let publisher = Publisher::bind(TCP, TCP);
    instance.register(&publisher.endpoint, 7, Some(&publisher.replay_endpoint));
    publisher.wait_for_subscriber();
    publisher.send(5, &payload([store(&[5], Some(2), 101..=104)], 0));
    // The replay begins too late; its store is among the blocks of the dump.
    let kept = [(4, payload([store(&[3], Some(2), 9..=12)], 0))];
    assert_eq!(publisher.answer(&kept), 0);
    instance.wait_for_cursor(5);
    let status = instance.status();
    assert_eq!((status.degraded, status.sequence.lost_batches), (true, 4), "{status:?}");
    instance.expect(&query(16), &json!({"0": 12}));
    publisher.send(6, &payload([remove(&[3])], 0));
    instance.expect(&query(16), &json!({"0": 8}));
}

#[test]
fn a_peer_of_no_use_is_passed_over() {
    let garbage: Vec<u8> = (0..=255).cycle().take(10_000).collect();
    let conflicting = dump(&[event(7, "device", None, &[1, 2]), {
        let mut again = event(7, "device", None, &[2]);
        again["event"]["data"]["stored"]["blocks"][0]["tokens_hash"] = 5.into();
        again
    }]);
    let source = json!({
        "instance_id": 7, "dp_rank": 0, "next": 1, "timestamp": null, "watermark": null, "degraded": false, "ranks": [],
    });
    let twice =
        json!({"m:default": {"block_size": 4, "events": [], "sources": [source, source]}}).to_string();
    let many = |count: u64| {
        let events: Vec<_> = (0..count).map(|worker| event(worker, "device", None, &[1])).collect();
        dump(&events)
    };
    let partitions: serde_json::Map<String, Value> =
        (0..65).map(|number| (format!("m{number}:g"), json!({"block_size": 4, "events": []}))).collect();
    let deep = format!("{{\"m:default\":{}1{}}}", "[".repeat(100_000), "]".repeat(100_000));
    let useless = [
        nobody(),
        stub(garbage),
        stub(b"HTTP/1.1 500 Broken\r\ncontent-length: 2\r\n\r\n{}".to_vec()),
        stub(b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n".to_vec()),
        // An end that never comes, and a length that is none.
        stub(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n{\"m:default\":".to_vec()),
        stub(b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999999999999999\r\n\r\n{}".to_vec()),
        answering(""),
        answering("[]"),
        answering("{} {}"),
        answering(&deep),
        answering("{\"m:default\": {\"error\": \"gone\"}}"),
        answering("{\"nothing\": {\"block_size\": 4, \"events\": []}}"),
        answering("{\"m:default\": {\"block_size\": -4, \"events\": []}}"),
        answering("{\"m:default\": {\"block_size\": 4, \"events\": [{\"worker_id\": 1e300}]}}"),
        answering(&dump(&[event(7, "tape", None, &[1])])),
        answering(&conflicting),
        answering(&twice),
        answering(&many(4097)),
        answering(&Value::Object(partitions).to_string()),
    ];
    for url in &useless {
        let instance = Instance::with(&[url.clone(), answering(&plain())], |_| ()).listening();
        instance.wait_until_loaded();
        instance.expect(&query(16), &json!({"0": 12}));
        assert_eq!(instance.get("/ready").0, 200);
    }
    // None is of use: it starts empty.
    let instance = Instance::with(&useless[..3], |_| ()).listening();
    instance.wait_until_loaded();
    assert_eq!(instance.get("/ready").0, 200);
    assert_eq!(instance.post("/query", &query(16)).0, 404);
}

#[test]
fn what_cannot_be_reached_is_left_out_and_repeats_count_once() {
    let body = dump(&[
        event(7, "device", None, &[1, 2]),
        event(7, "device", None, &[1, 2]),
        event(7, "host_pinned", None, &[1]),
        // Its parent is missing, itself, or comes later.
        event(7, "device", Some(99), &[3]),
        event(7, "device", Some(50), &[50]),
        event(7, "device", Some(61), &[60]),
        event(7, "device", Some(60), &[61]),
        event(8, "external", None, &[1]),
    ]);
    let instance = loaded(&body);
    instance.expect(&query(16), &json!({"0": 8}));
    let (_, told) = instance.get("/dump");
    let blocks: usize = told["m:default"]["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| event["event"]["data"]["stored"]["blocks"].as_array().unwrap().len())
        .sum();
    assert_eq!(blocks, 4, "{told}");
    let metrics = instance.get("/metrics").1;
    let labels = r#"{model_name="m",routing_group="default"}"#;
    for line in [format!("kvtap_index_entries{labels} 4.0"), format!("kvtap_unclaimed_entries{labels} 4.0")] {
        assert!(metrics.as_str().unwrap().lines().any(|found| found == line), "{line} in {metrics}");
    }
}

#[test]
fn a_dump_that_tells_of_a_partition_or_a_rank_twice_is_of_no_use() {
    let partition = |group: Option<&str>| {
        let mut partition = json!({"block_size": 4, "events": [event(7, "device", None, &[1])]});
        if let Some(group) = group {
            partition["model_name"] = "m".into();
            partition["routing_group"] = group.into();
        }
        partition
    };
    let rank = json!({"dp_rank": 1, "has_full_block": false, "groups": []});
    let source = json!({
        "instance_id": 7, "dp_rank": 0, "next": 1, "timestamp": null, "watermark": null, "degraded": false,
        "ranks": [rank, rank],
    });
    let mut rank_twice = partition(None);
    rank_twice["sources"] = json!([source]);
    for body in [
        json!({"m:default": partition(None), "other": partition(Some("default"))}),
        json!({"m:default": rank_twice}),
    ] {
        let instance = loaded(&body.to_string());
        assert_eq!(instance.get("/dump").1, json!({}), "{body}");
    }
    // Another group under another key is another partition.
    let instance = loaded(&json!({"m:default": partition(None), "other": partition(Some("g"))}).to_string());
    assert_eq!(instance.get("/dump").1.as_object().unwrap().len(), 2);
}

#[test]
fn partitions_whose_names_read_alike_with_a_colon_stay_apart() {
    let partition = |(model_name, group): (&str, &str), worker_id| {
        let events = [event(worker_id, "device", None, &[1])];
        json!({"block_size": 4, "events": events, "model_name": model_name, "routing_group": group})
    };
    let (one, other) = (("a:b", "c"), ("a", "b:c"));
    let body = json!({"one": partition(one, 7), "other": partition(other, 9)});
    let first = loaded(&body.to_string());
    let second = loaded(&first.get("/dump").1.to_string());
    for instance in [first, second] {
        for ((model_name, group), worker) in [(one, "7"), (other, "9")] {
            let mut query = query(16);
            (query["model_name"], query["routing_group"]) = (model_name.into(), group.into());
            let (status, answer) = instance.post("/query", &query);
            assert_eq!(
                (status, &answer["scores"]),
                (200, &json!({worker: {"0": 4}})),
                "{model_name} {group}"
            );
        }
    }
}

#[test]
fn partitions_of_names_that_nobody_may_register_stay_out() {
    let partition = json!({"block_size": 4, "events": [event(7, "device", None, &[1])]});
    let body = |bytes: usize| json!({format!("{}:g", "m".repeat(bytes)): partition}).to_string();
    assert_eq!(loaded(&body(257)).get("/dump").1, json!({}));
    assert_eq!(loaded(&body(256)).get("/dump").1.as_object().unwrap().len(), 1);
}

#[test]
fn blocks_of_another_size_stay_out() {
    let other = json!({
        "m:default": {"block_size": 8, "events": [event(7, "device", None, &[1])]},
        "m:other": {"block_size": 4, "events": [event(9, "device", None, &[1])]},
        "m:none": {"block_size": 0, "events": [event(10, "device", None, &[1])]},
    });
    let publisher = Publisher::bind(TCP, TCP);
    let instance = Instance::with(&[answering(&other.to_string())], |_| ());
    instance.register(&publisher.endpoint, 7, None);
    let instance = instance.listening();
    instance.wait_until_loaded();
    let with = |group: &str| {
        let mut query = query(16);
        query["routing_group"] = group.into();
        instance.post("/query", &query)
    };
    assert_eq!(with("default").1["scores"], json!({}));
    assert_eq!(with("other").1["scores"], json!({"9": {"0": 4}}));
    assert_eq!(with("none").0, 404);
    // Who registers knows better than a peer.
    let mut options = kvtap::source::SourceOptions::new(publisher.endpoint.clone(), 11);
    options.ingest.block_size = 16;
    let partition = PartitionId { model_name: "m".to_owned(), routing_group: "other".to_owned() };
    instance.service.register(kvtap::server::Registration { partition, options }).unwrap();
    assert_eq!(with("other").1["scores"], json!({}));
}

#[test]
fn our_own_form_is_one_dynamo_reads() {
    let publisher = Publisher::bind(TCP, TCP);
    let instance = Instance::new();
    instance.register(&publisher.endpoint, 7, None);
    publisher.wait_for_subscriber();
    let to = |tier: &str, event: crate::support::source::Event| event.set("medium", tier);
    publisher.send(
        0,
        &payload(
            [
                store(&[1, 2, 3, 4], None, 1..=16),
                to("CPU", store(&[2, 3], Some(1), 5..=12)),
                // 2 is in host memory alone then, so 3 and 4 follow nothing on the device; 6 follows nothing at all.
                remove(&[2]),
                store(&[5, 6], None, 101..=108),
                remove(&[5]),
            ],
            0,
        ),
    );
    instance.wait_for_cursor(0);
    let (_, dump) = instance.get("/dump");
    let partition = &dump["m:default"];
    // Each event has the keys of Dynamo's, and follows what is there at its tier or a nearer one.
    let order = ["device", "host_pinned", "disk", "external"];
    let mut seen: Vec<(u64, usize)> = Vec::new();
    let mut listed = Vec::new();
    for event in partition["events"].as_array().unwrap() {
        let tier = order.iter().position(|tier| event["storage_tier"] == *tier).unwrap();
        assert!(event["worker_id"].is_u64() && event["event"]["event_id"].is_u64());
        assert!(event["event"]["dp_rank"].is_u64());
        let stored = &event["event"]["data"]["stored"];
        assert!(stored["start_position"].is_null());
        let mut parent = stored["parent_hash"].as_u64();
        for block in stored["blocks"].as_array().unwrap() {
            assert!(
                block["tokens_hash"].is_u64() && block.as_object().unwrap().contains_key("mm_extra_info")
            );
            assert!(parent.is_none_or(|parent| seen.iter().any(|&(hash, at)| hash == parent && at <= tier)));
            let hash = block["block_hash"].as_u64().unwrap();
            seen.push((hash, tier));
            listed.push((order[tier], hash));
            parent = Some(hash);
        }
    }
    listed.sort_unstable();
    assert_eq!(listed, [("device", 1), ("host_pinned", 2), ("host_pinned", 3)]);
    let severed = partition["severed"].as_array().unwrap();
    let blocks =
        severed.iter().flat_map(|event| event["event"]["data"]["stored"]["blocks"].as_array().unwrap());
    let mut blocks: Vec<_> = blocks.map(|block| (block["block_hash"].as_u64(), &block["copies"])).collect();
    blocks.sort_by_key(|(hash, _)| *hash);
    let zero = json!(0);
    assert_eq!(
        blocks,
        [(Some(3), &Value::Null), (Some(4), &Value::Null), (Some(6), &Value::Null), (Some(u64::MAX), &zero)]
    );
}
