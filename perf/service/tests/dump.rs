//! A router's own indexer that starts beside kvtap takes over its `/dump`, and then answers as kvtap does.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use kvtap_perf_service::corpus::captures;
use kvtap_perf_service::publish::{batch, stored_event};
use kvtap_perf_service::settle::Source;
use kvtap_perf_service::{post, start_dynamo_from, start_kvtap};
use serde_json::{Value, json};

/// The answer of both; the peer's threads may still be at work on what it has taken over.
fn agreed(kvtap: SocketAddr, dynamo: SocketAddr, body: &Value) -> (u16, Value) {
    let end = Instant::now() + Duration::from_secs(60);
    let ours = post(kvtap, "/query", body);
    loop {
        let theirs = post(dynamo, "/query", body);
        if ours == theirs {
            return ours;
        }
        assert!(Instant::now() < end, "{body}: {ours:?}, the peer {theirs:?}");
    }
}

#[test]
fn a_peer_filled_from_the_dump_of_the_captures_answers_alike() {
    let kvtap = start_kvtap();
    let captures = captures();
    let mut sources = Vec::new();
    for (number, capture) in (0..).step_by(2).zip(&captures) {
        let half = capture.payloads.len() / 2;
        for (instance_id, payloads) in
            [(number, &capture.payloads[..]), (number + 1, &capture.payloads[..half])]
        {
            let mut source = Source::register(
                &[kvtap.address()],
                json!({"instance_id": instance_id, "model_name": capture.name, "block_size": capture.block_size}),
            );
            payloads.iter().for_each(|payload| source.send(payload));
            source.settle([0]);
            sources.push(source);
        }
    }
    let dynamo = start_dynamo_from(kvtap.address());
    let (mut asked, mut matched) = (0, 0);
    for capture in &captures {
        for prompt in &capture.prompts {
            let body = json!({"token_ids": prompt, "model_name": capture.name});
            let ours = agreed(kvtap.address(), dynamo, &body);
            asked += 1;
            matched += usize::from(ours.1["instances"] != json!({}));
        }
    }
    println!("{asked} prompts asked, {matched} matched");
    assert!(matched * 2 > asked, "{matched} of {asked}");
}

/// Blocks of four tokens, one medium each.
fn chain(media: &[&str]) -> Vec<rmpv::Value> {
    let block = |(number, medium): (u32, &&str)| {
        let parent = number.checked_sub(1).map(u64::from);
        let tokens: Vec<u32> = (number * 4..number * 4 + 4).collect();
        stored_event(&[number.into()], parent, &tokens, (4, medium))
    };
    (0..).zip(media).map(block).collect()
}

#[test]
fn tiers_ranks_and_groups_survive_the_dump() {
    let kvtap = start_kvtap();
    let mut sources = Vec::new();
    for (worker, group, media) in [
        (1, "a", &["GPU", "GPU", "CPU", "DISK", "EXTERNAL"][..]),
        (2, "a", &["CPU", "CPU"]),
        (3, "b", &["DISK", "DISK", "EXTERNAL"]),
        (4, "b", &["EXTERNAL"]),
    ] {
        let registration =
            json!({"instance_id": worker, "model_name": "m", "block_size": 4, "routing_group": group});
        let mut source = Source::register(&[kvtap.address()], registration);
        source.send(&batch(chain(media), None));
        source.send(&batch(chain(&["GPU"]), Some(3)));
        source.settle([0, 3]);
        sources.push(source);
    }
    let dynamo = start_dynamo_from(kvtap.address());
    for group in ["a", "b"] {
        for blocks in 0..=6 {
            let tokens: Vec<u32> = (0..blocks * 4).collect();
            let body = json!({"token_ids": tokens, "model_name": "m", "routing_group": group});
            let ours = agreed(kvtap.address(), dynamo, &body);
            assert_eq!(ours.1["instances"] == json!({}), blocks == 0, "{ours:?}");
        }
    }
}
