//! Publishers that try how much they may cost.

use std::time::Duration;

use kvtap::source::{Listeners, SourceOptions};
use kvtap::{Config, Engine, Reason};

use crate::bench::{Bench, PATIENCE, block, config, life, model_of, payload};
use crate::support::publisher::{Publisher, TCP, ipc};
use crate::support::zmtp::Endpoint;

#[test]
fn a_message_of_a_million_frames_costs_itself_and_others_have_their_turn() {
    const FRAMES: usize = 1_000_000;
    let engine = Engine::new(Config::default()).unwrap();
    let listeners = Listeners::start(1).unwrap();
    let endpoint = Endpoint::bind();
    let mut options = SourceOptions::new(endpoint.name(), 7);
    options.ingest = config();
    let hostile = listeners.add(&engine, options).unwrap();
    let mut publisher = endpoint.accept();
    let mut frames = [1, 0].repeat(FRAMES - 1);
    frames.extend([0, 0]);
    publisher.raw(&frames).unwrap();
    publisher.send(0, &life(0, 0)).unwrap();
    assert!(hostile.wait(PATIENCE, |status| status.cursor == Some(0)));
    let status = hostile.status();
    assert_eq!((status.bad_messages, status.connects, status.disconnects), (1, 1, 0));
    assert_eq!(status.last_error.unwrap(), format!("message dropped: a message of {FRAMES} frames"));
}

#[test]
fn a_topic_that_is_too_long_is_never_taken_for_the_sources_own() {
    let publisher = Publisher::bind(TCP, &ipc());
    let options = SourceOptions::new(publisher.endpoint.clone(), 7);
    let bench = Bench::with(publisher, options);
    let topic = vec![b'x'; 1025];
    bench.publisher.send_frames(&[&topic, &0_u64.to_be_bytes(), &life(0, 0)]);
    bench.send(0..3);
    bench.until_cursor(2);
    bench.expect([0; 4], model_of(0..3));
    assert_eq!(bench.source.status().foreign_messages, 1);
}

#[test]
fn what_a_source_may_cost_is_checked_when_it_is_added() {
    let engine = Engine::new(Config::default()).unwrap();
    let listeners = Listeners::start(1).unwrap();
    let refused = |set: fn(&mut SourceOptions), part: &str| {
        let mut options = SourceOptions::new(ipc(), 7);
        set(&mut options);
        let error = listeners.add(&engine, options).expect_err("out of range");
        assert!(error.is_bad_option() && error.to_string().contains(part), "{error}");
    };
    refused(|options| options.topic = vec![0; 1025], "1024 bytes, not 1025");
    refused(|options| options.ingest.payload_max = 1023, "1024 to 1073741824, not 1023");
    refused(|options| options.receive_queue = 0, "1 to 1000000, not 0");
    refused(|options| options.replay_time_max = Duration::from_millis(999), "1 to 3600 seconds, not 0.999");
    refused(|options| options.ingest.blocks_max = 0, "1 block or more");
    refused(|options| options.ingest.ranks_max = 1025, "1 to 1024");
    refused(|options| options.endpoint = format!("ipc:///{}", "x".repeat(1024)), "no endpoint");
}

#[test]
fn a_source_that_holds_as_many_blocks_as_it_may_says_so() {
    let publisher = Publisher::bind(TCP, &ipc());
    let mut options = SourceOptions::new(publisher.endpoint.clone(), 7);
    options.ingest.blocks_max = 2;
    let bench = Bench::with(publisher, options);
    bench.publisher.send(0, &payload(0, 1.0, (0..5).map(|number| block(0, number))));
    bench.until_cursor(0);
    let counters = bench.source.status().counters;
    assert_eq!((counters.placed_blocks, counters.filtered(Reason::TooManyBlocks)), (2, 3));
    assert_eq!(bench.report().entries, 2);
}

/// A replay that brings something again and again, but never the end of the gap.
#[test]
fn a_replay_that_never_ends_is_given_up_in_time() {
    let publisher = Publisher::bind(TCP, &ipc());
    let mut options = SourceOptions::new(publisher.endpoint.clone(), 7);
    options.replay = Some(publisher.replay_endpoint.clone());
    options.replay_time_max = Duration::from_secs(1);
    let bench = Bench::with(publisher, options);
    bench.publisher.send(1_000_000, &life(0, 1_000_000));
    let (who, start) = bench.publisher.request();
    assert_eq!(start, 0);
    let mut sent = 0;
    // One batch further each time: always something new.
    while bench.source.status().cursor != Some(1_000_000) {
        bench.publisher.reply(&who, sent, &life(0, sent));
        sent += 1;
        std::thread::yield_now();
        assert!(sent < 1_000_000, "it would go on for ever");
    }
    let status = bench.source.status();
    assert_eq!(status.sequence.lost_batches + status.sequence.replayed_batches, 1_000_000);
    assert!(status.degraded && status.sequence.replayed_batches > 0);
}
