//! More than the shards can take: the listener is held up, the sockets fill, the publisher drops, and a replay heals it.

use kvtap::source::SourceOptions;

use crate::bench::{Bench, PATIENCE, payload};
use crate::support::publisher::{Publisher, TCP, ipc};
use crate::support::source::{BLOCK_SIZE, Event, hash_list, token_list};

/// Of which the index makes more work than the sockets.
const BLOCKS: u64 = 4000;
const BATCHES: u64 = 600;

/// Stores blocks of one token, all roots: each its own record.
fn heavy(sequence: u64, blocks: u64) -> Vec<u8> {
    let first = sequence * BLOCKS;
    let tokens = (first..first + blocks).map(|token| u32::try_from(token).unwrap());
    let store = Event::new("BlockStored")
        .set("block_hashes", hash_list(&(first + 1..=first + blocks).collect::<Vec<_>>()))
        .set("parent_block_hash", rmpv::Value::Nil)
        .set("token_ids", token_list(tokens))
        .set("block_size", 1);
    payload(0, 1.0, [store])
}

/// With short queues, and the patience to wait for every replay.
fn bench(endpoint: &str, block_size: u32) -> Bench {
    let publisher = Publisher::bind_with_queue(endpoint, &ipc(), 4);
    let mut options = SourceOptions::new(publisher.endpoint.clone(), 7);
    options.replay = Some(publisher.replay_endpoint.clone());
    options.receive_queue = 4;
    let mut bench = Bench::with(publisher, options);
    bench.options.ingest.block_size = block_size;
    bench.options.replay_timeout = PATIENCE;
    bench.source = bench.listeners.add(&bench.engine, bench.options.clone()).unwrap();
    bench.publisher.wait_for_subscriber();
    bench
}

#[test]
fn what_a_full_queue_drops_is_replayed() {
    for endpoint in [TCP.to_owned(), ipc()] {
        let bench = bench(&endpoint, 1);
        let kept: Vec<(u64, Vec<u8>)> =
            (0..BATCHES).map(|sequence| (sequence, heavy(sequence, BLOCKS))).collect();
        for (sequence, payload) in &kept {
            bench.publisher.send(*sequence, payload);
        }
        // The last may have been dropped: another one shows it.
        let mut next = BATCHES;
        let mut all = kept;
        loop {
            all.push((next, heavy(next, 1)));
            bench.publisher.send(next, &all.last().unwrap().1);
            next += 1;
            if bench.publisher.answer_if_asked(&all) {
                continue;
            }
            if bench.source.status().cursor == Some(next - 1) {
                break;
            }
        }
        let report = bench.report();
        let status = &report.status;
        assert_eq!(status.sequence.lost_batches, 0, "{status:#?}");
        assert!(status.sequence.gaps > 0 && status.sequence.replayed_batches > 0, "{status:#?}");
        assert!(status.counters.back_pressure > 0, "{status:#?}");
        assert_eq!(report.entries as u64, BATCHES * BLOCKS + next - BATCHES);
        assert_eq!(report.digest, model(&all));
        assert!(!status.degraded);
    }
}

/// An engine sends all it has kept at once; its ROUTER drops what does not fit, and the end with it.
#[test]
fn a_replay_that_overflows_its_own_socket_is_asked_until_it_is_whole() {
    let bench = bench(TCP, BLOCK_SIZE);
    let filler = "x".repeat(10_000);
    let last = 5000;
    let kept: Vec<(u64, Vec<u8>)> = (0..=last)
        .map(|sequence| {
            (sequence, payload(0, 1.0, [crate::bench::block(0, sequence).set("filler", filler.as_str())]))
        })
        .collect();
    bench.publisher.send(last, &kept.last().unwrap().1);
    let mut asked = 0;
    while bench.source.status().cursor != Some(last) {
        asked += u64::from(bench.publisher.answer_if_asked(&kept));
    }
    let report = bench.report();
    assert_eq!((report.status.sequence.lost_batches, report.status.sequence.skipped_sequences), (0, 0));
    assert_eq!((report.status.sequence.replayed_batches, report.entries as u64), (last, last + 1));
    // Not a condition of the test: on a machine that is fast enough once will do.
    println!("asked {asked} times");
}

fn model(all: &[(u64, Vec<u8>)]) -> u64 {
    let engine = kvtap::Engine::new(kvtap::Config::default()).unwrap();
    let mut config = crate::bench::config();
    config.block_size = 1;
    let mut ingest = engine.ingest(config).unwrap();
    for (_, payload) in all {
        ingest.apply(payload).unwrap();
    }
    ingest.digest()
}
