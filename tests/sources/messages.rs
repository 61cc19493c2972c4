//! Messages that are not what they should be, and messages for somebody else.

use kvtap::source::SourceOptions;

use crate::bench::{Bench, block, life, model, model_of, over_both, payload};
use crate::support::publisher::{Publisher, TCP, ipc};

#[test]
fn bad_frames_cost_themselves_and_the_connection_is_kept() {
    over_both(|endpoint, replay| {
        let bench = Bench::new(endpoint, replay);
        let sound = life(0, 0);
        let number = 0_u64.to_be_bytes();
        let bad: [&[&[u8]]; 8] = [
            &[b"kv-events"],
            &[b"kv-events", &number],
            &[b"kv-events", b"1234567", &sound],
            &[b"kv-events", b"", &sound],
            &[b"kv-events", b"123456789", &sound],
            &[b"kv-events", &number, &sound, b""],
            &[b"kv-events", &number, b"", b"", b"", b"", b"", &sound],
            &[b"kv-events", &[0xff; 8], &sound],
        ];
        for frames in bad {
            bench.publisher.send_frames(frames);
        }
        bench.send(0..3);
        bench.until_cursor(2);
        bench.expect([0; 4], model_of(0..3));
        let status = bench.source.status();
        assert_eq!((status.bad_messages, status.connects, status.disconnects), (8, 1, 0));
    });
}

#[test]
fn broken_payloads_advance_the_cursor() {
    let bench = Bench::without_replay(TCP);
    bench.send([0]);
    bench.publisher.send(1, b"\xc1");
    bench.publisher.send(2, b"");
    bench.send([3]);
    bench.until_cursor(3);
    bench.expect([0; 4], model_of([0, 3]));
    assert_eq!(bench.source.status().counters.malformed_batches, 2);
    let error = bench.source.status().last_error.unwrap();
    assert!(error.starts_with("batch 2 refused"), "{error}");
}

#[test]
fn a_message_longer_than_allowed_does_not_reach_memory() {
    let publisher = Publisher::bind(TCP, &ipc());
    let mut options = SourceOptions::new(publisher.endpoint.clone(), 7);
    options.replay = None;
    let mut bench = Bench::with(publisher, options);
    // As `Bench` sets it up, but with a limit.
    let mut options = bench.options.clone();
    options.ingest.payload_max = 2000;
    bench.source = bench.listeners.add(&bench.engine, options).unwrap();
    bench.publisher.wait_for_subscriber();
    bench.send([0]);
    bench.until_cursor(0);
    bench.publisher.send(1, &[0xc0; 4000]);
    // libzmq drops the connection, and makes it again.
    bench.until(|status| status.disconnects == 1 && status.connects == 2);
    bench.publisher.wait_for_subscriber();
    bench.send([2]);
    bench.until_cursor(2);
    assert_eq!(bench.source.status().sequence.lost_batches, 1);
}

#[test]
fn whoever_does_not_speak_the_protocol_is_tried_again() {
    let stranger = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("tcp://{}", stranger.local_addr().unwrap());
    let engine = kvtap::Engine::new(kvtap::Config::default()).unwrap();
    let listeners = kvtap::source::Listeners::start(1).unwrap();
    let source = listeners.add(&engine, SourceOptions::new(endpoint.clone(), 7)).unwrap();
    let (mut connection, _) = stranger.accept().unwrap();
    std::io::Write::write_all(&mut connection, b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n")
        .unwrap();
    drop((stranger, connection));
    assert!(source.wait(crate::bench::PATIENCE, |status| status.last_error.is_some()));
    assert_eq!(source.status().state.label(), "connecting");
    let publisher = Publisher::bind(&endpoint, &ipc());
    publisher.wait_for_subscriber();
    assert!(source.wait(crate::bench::PATIENCE, |status| status.connects == 1));
}

#[test]
fn publishers_may_connect_to_us() {
    let engine = kvtap::Engine::new(kvtap::Config::default()).unwrap();
    let listeners = kvtap::source::Listeners::start(1).unwrap();
    let (port, source) = loop {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut options = SourceOptions::new(format!("tcp://*:{port}"), 7);
        options.ingest = crate::bench::config();
        match listeners.add(&engine, options) {
            Ok(source) => break (port, source),
            // Another test took the port.
            Err(error) => assert!(error.to_string().contains("in use"), "{error}"),
        }
    };
    let publisher = Publisher::connect(&format!("tcp://127.0.0.1:{port}"));
    publisher.wait_for_subscriber();
    publisher.send(0, &life(0, 0));
    assert!(source.wait(crate::bench::PATIENCE, |status| status.cursor == Some(0)));
}

#[test]
fn other_topics_are_counted_and_never_mixed_in() {
    // B65: exactly the topic asked for.
    let mut publisher = Publisher::bind(TCP, &ipc());
    publisher.topic = "kv-events";
    let mut options = SourceOptions::new(publisher.endpoint.clone(), 7);
    options.topic = b"kv-events".to_vec();
    let mut bench = Bench::with(publisher, options);
    for topic in ["kv-events-2", "kv", "kv-events"] {
        bench.publisher.topic = topic;
        bench.send(0..3);
    }
    bench.until_cursor(2);
    bench.expect([0; 4], model_of(0..3));
    let status = bench.source.status();
    // "kv" is not even sent to us.
    assert_eq!((status.foreign_messages, status.sequence.duplicates), (3, 0));
}

#[test]
fn without_a_topic_the_first_is_followed_and_load_is_not_ours() {
    let mut bench = Bench::without_replay(&ipc());
    for (topic, sequences) in [("load", 0..4), ("a", 0..2), ("load", 4..5), ("b", 0..9), ("a", 2..4)] {
        bench.publisher.topic = topic;
        bench.send(sequences);
    }
    bench.until_cursor(3);
    bench.expect([0; 4], model_of(0..4));
    assert_eq!(bench.source.status().foreign_messages, 14);
}

#[test]
fn the_rank_of_a_batch_overrides_the_configured_one() {
    let bench = Bench::without_replay(TCP);
    let of_rank = |rank: u64, sequence: u64| {
        let events = rmpv::Value::Array(vec![block(0, sequence).into()]);
        crate::support::source::pack(&crate::support::source::list![1.0, events, rank])
    };
    let payloads = [of_rank(0, 0), of_rank(3, 1), payload(0, 1.0, [block(0, 2)])];
    for (sequence, payload) in (0..).zip(&payloads) {
        bench.publisher.send(sequence, payload);
    }
    bench.until_cursor(2);
    bench.expect([0; 4], model(payloads));
    let ranks: Vec<_> = bench.report().workers.iter().map(|worker| worker.dp_rank).collect();
    assert_eq!(ranks, [0, 3]);
}

#[test]
fn another_block_size_is_told() {
    let bench = Bench::without_replay(TCP);
    bench.publisher.send(0, &payload(0, 1.0, [block(0, 0).set("block_size", 2)]));
    bench.until(|status| status.mismatched_block_sizes.len() == 1);
    let (worker, block_size, events) = bench.source.status().mismatched_block_sizes[0];
    assert_eq!((worker.worker_id, block_size, events), (7, 2, 1));
}
