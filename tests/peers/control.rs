//! Peers at run time, and workers that a peer tells of until they register, are taken out, or their time is over.

use std::time::Duration;

use serde_json::{Value, json};

use crate::bench::{Instance, nobody, query, wait};
use crate::support::publisher::{Publisher, TCP};
use crate::support::source::{payload, store};

/// An instance that holds a block of worker 7.
fn holding(publisher: &Publisher) -> Instance {
    let instance = Instance::new();
    instance.register(&publisher.endpoint, 7, None);
    publisher.wait_for_subscriber();
    publisher.send(0, &payload([store(&[1], None, 1..=4)], 0));
    instance.wait_for_cursor(0);
    instance
}

#[test]
fn peers_come_and_go_as_with_dynamo() {
    let instance = Instance::new();
    assert_eq!(instance.get("/peers"), (200, json!([])));
    assert_eq!(instance.get("/ready").0, 200);
    let (one, other) = (nobody(), nobody());
    for url in [&one, &other, &one] {
        assert_eq!(instance.post("/register_peer", &json!({"url": url})), (201, json!({"status": "ok"})));
    }
    assert_eq!(instance.get("/peers"), (200, json!([one, other])));
    assert_eq!(instance.get("/ready").0, 200, "once ready, it stays so");
    assert_eq!(instance.post("/deregister_peer", &json!({"url": one})), (200, json!({"status": "ok"})));
    let gone = instance.post("/deregister_peer", &json!({"url": one}));
    assert_eq!(gone, (404, json!({"error": "peer not found"})));
    assert_eq!(instance.get("/peers"), (200, json!([other])));
    for bad in [
        "",
        "host:1",
        "http://h:65536",
        "https://h:1",
        "http://",
        "http://u@h:1",
        "http://h:1/?x",
        "file:///etc/passwd",
    ] {
        let (status, answer) = instance.post("/register_peer", &json!({"url": bad}));
        assert!(
            status == 400 && answer["error"].as_str().unwrap().contains("http://HOST:PORT"),
            "{bad}: {answer}"
        );
    }
    for number in 0..64 {
        let _ = instance.post("/register_peer", &json!({"url": format!("http://127.0.0.1:1/{number}")}));
    }
    let (status, answer) = instance.post("/register_peer", &json!({"url": "http://127.0.0.1:2"}));
    assert_eq!((status, answer), (409, json!({"error": "there are 64 peers already"})));
}

#[test]
fn a_peer_named_at_run_time_helps_those_who_know_less() {
    let publisher = Publisher::bind(TCP, TCP);
    let first = holding(&publisher);
    let second = Instance::new();
    second.register(&publisher.endpoint, 7, None);
    publisher.wait_for_subscriber();
    // It comes late, and nobody replays what it has missed.
    publisher.send(1, &payload([store(&[2], Some(1), 5..=8)], 0));
    for instance in [&first, &second] {
        instance.wait_for_cursor(1);
    }
    assert!(second.status().degraded);
    second.expect(&query(8), &Value::Null);
    assert_eq!(second.post("/register_peer", &json!({"url": first.url()})).0, 201);
    second.expect(&query(8), &json!({"0": 8}));
    let status = wait("recovery", || Some(second.status()).filter(|status| !status.degraded));
    assert_eq!((status.taken_blocks, status.cursor), (2, Some(1)));
    // Both go on; and who knows as much keeps what it has, even from itself.
    assert_eq!(first.post("/register_peer", &json!({"url": second.url()})).0, 201);
    assert_eq!(first.post("/register_peer", &json!({"url": first.url()})).0, 201);
    publisher.send(2, &payload([store(&[3], Some(2), 9..=12)], 0));
    for instance in [&first, &second] {
        instance.expect(&query(12), &json!({"0": 12}));
    }
    assert_eq!((first.status().taken_blocks, first.status().degraded), (0, false));
}

#[test]
fn who_never_registers_is_forgotten() {
    let publisher = Publisher::bind(TCP, TCP);
    let first = holding(&publisher);
    let second = Instance::with(&[first.url()], |options| options.unclaimed_time = Duration::from_millis(1))
        .listening();
    second.wait_until_loaded();
    wait("its end", || (second.post("/query", &query(4)).0 == 404).then_some(()));
    assert_eq!(second.get("/dump").1, json!({}));
}

#[test]
fn who_is_told_of_can_be_taken_out_or_registered_elsewhere() {
    let publisher = Publisher::bind(TCP, TCP);
    let first = holding(&publisher);
    let second = Instance::with(&[first.url()], |_| ()).listening();
    second.wait_until_loaded();
    second.expect(&query(4), &json!({"0": 4}));
    for missing in [
        json!({"instance_id": 7, "model_name": "x"}),
        json!({"instance_id": 7, "model_name": "m", "routing_group": "x"}),
        json!({"instance_id": 7, "model_name": "m", "dp_rank": 1}),
    ] {
        assert_eq!(second.post("/unregister", &missing).0, 404, "{missing}");
    }
    second.expect(&query(4), &json!({"0": 4}));
    assert_eq!(second.post("/unregister", &json!({"instance_id": 7, "model_name": "m"})).0, 200);
    assert_eq!(second.post("/query", &query(4)).0, 404);

    let third = Instance::with(&[first.url()], |_| ()).listening();
    third.wait_until_loaded();
    let elsewhere = json!({
        "instance_id": 7, "endpoint": publisher.endpoint, "model_name": "other", "block_size": 4,
    });
    assert_eq!(third.post("/register", &elsewhere).0, 201);
    assert_eq!(third.post("/query", &query(4)).0, 404, "a worker is of one model");
}
