//! Many sources at once, and sources that come and go.

use kvtap::source::{Listeners, Source, SourceOptions};
use kvtap::{Config, Engine, Match, Prompt};

use crate::bench::{Bench, PATIENCE, config, life, model, model_of};
use crate::support::publisher::{Publisher, TCP, ipc};
use crate::support::source::BLOCK_SIZE;

const PUBLISHERS: u64 = 20;
const SOURCES_EACH: u64 = 10;
const BATCHES: u64 = 20;

#[test]
fn two_hundred_sources_are_followed_at_once() {
    let engine = Engine::new(Config::default()).unwrap();
    let listeners = Listeners::start(2).unwrap();
    let publishers: Vec<_> = (0..PUBLISHERS)
        .map(
            |number| {
                if number % 2 == 0 { Publisher::bind(TCP, &ipc()) } else { Publisher::bind(&ipc(), &ipc()) }
            },
        )
        .collect();
    let sources: Vec<Source> = (0..PUBLISHERS * SOURCES_EACH)
        .map(|worker_id| {
            let publisher = &publishers[usize::try_from(worker_id % PUBLISHERS).unwrap()];
            let mut options = SourceOptions::new(publisher.endpoint.clone(), worker_id);
            options.ingest.block_size = BLOCK_SIZE;
            listeners.add(&engine, options).unwrap()
        })
        .collect();
    for publisher in &publishers {
        (0..SOURCES_EACH).for_each(|_| publisher.wait_for_subscriber());
    }
    for sequence in 0..BATCHES {
        publishers.iter().for_each(|publisher| publisher.send(sequence, &life(0, sequence)));
    }
    for source in &sources {
        assert!(source.wait(PATIENCE, |status| status.cursor == Some(BATCHES - 1)), "{:?}", source.status());
        let report = source.report().unwrap();
        assert_eq!((report.status.sequence.gaps, report.entries as u64), (0, BATCHES));
    }
    assert_eq!(matches(&engine, BATCHES - 1).len() as u64, PUBLISHERS * SOURCES_EACH);
    // They leave one by one, each with its blocks.
    for (left, source) in (0..sources.len()).rev().zip(sources) {
        drop(source);
        if left % 40 == 0 {
            assert_eq!(matches(&engine, BATCHES - 1).len(), left);
        }
    }
}

/// Who holds the block of this batch of the first life.
fn matches(engine: &Engine, sequence: u64) -> Vec<Match> {
    let first = u32::try_from(sequence * 4).unwrap();
    let tokens: Vec<u32> = (first..first + 4).collect();
    let mut matches = Vec::new();
    engine.reader().find_matches(&Prompt::new(&tokens, BLOCK_SIZE), &mut matches);
    matches
}

/// Whoever watches a connection must not go before it: libzmq's thread would wait for it, and nobody would hear anything more.
#[test]
fn sources_that_nobody_answers_go_without_a_trace() {
    let bench = Bench::new(TCP, TCP);
    let nowhere = ipc();
    // With what watches them, more sockets than one thread may have.
    for worker_id in 100..600 {
        let options = SourceOptions::new(nowhere.clone(), worker_id);
        let source = bench.listeners.add(&bench.engine, options).unwrap();
        assert!(source.stop().is_some());
    }
    bench.send(0..3);
    bench.until_cursor(2);
    assert_eq!(bench.report().digest, model_of(0..3));
}

#[test]
fn a_stopped_source_takes_its_blocks_with_it() {
    let bench = Bench::new(TCP, TCP);
    bench.send(0..3);
    bench.until_cursor(2);
    assert_eq!(bench.report().digest, model_of(0..3));
    assert_eq!(matches(&bench.engine, 1).len(), 1);
    let report = bench.source.stop().unwrap();
    assert_eq!((report.entries, report.digest), (3, model_of(0..3)));
    assert_eq!(matches(&bench.engine, 1), []);
}

#[test]
fn sources_outlive_their_listeners_as_stopped_ones() {
    let bench = Bench::new(TCP, TCP);
    bench.send([0]);
    bench.until_cursor(0);
    drop(bench.listeners);
    assert_eq!(bench.source.status().state.label(), "stopped");
    assert!(bench.source.report().is_none());
    assert!(bench.source.stop().is_none());
    assert_eq!(matches(&bench.engine, 0), []);
}

#[test]
fn ranks_of_one_worker_are_sources_of_their_own() {
    let engine = Engine::new(Config::default()).unwrap();
    let listeners = Listeners::start(1).unwrap();
    let publishers = [Publisher::bind(TCP, TCP), Publisher::bind(&ipc(), &ipc())];
    let sources = [0_u32, 1].map(|rank| {
        let mut options = SourceOptions::new(publishers[rank as usize].endpoint.clone(), 7);
        options.ingest = config();
        options.ingest.dp_rank = rank;
        let source = listeners.add(&engine, options).unwrap();
        publishers[rank as usize].wait_for_subscriber();
        source
    });
    // Without a rank of their own, batches are of the rank that was configured.
    let mut batch = life(0, 0);
    *batch.last_mut().unwrap() = 0xc0;
    for (publisher, source) in publishers.iter().zip(&sources) {
        publisher.send(0, &batch);
        assert!(source.wait(PATIENCE, |status| status.cursor == Some(0)));
        drop(source.report());
    }
    let holders: Vec<_> = matches(&engine, 0).iter().map(|found| found.worker.dp_rank).collect();
    assert_eq!(holders, [0, 1]);
    assert_ne!(sources[1].report().unwrap().digest, model([batch]));
}

#[test]
fn options_that_cannot_work_are_refused_in_a_sentence() {
    let engine = Engine::new(Config::default()).unwrap();
    let listeners = Listeners::start(1).unwrap();
    let mut bad_size = SourceOptions::new("tcp://127.0.0.1:1", 0);
    bad_size.ingest.block_size = 0;
    let mut bad_replay = SourceOptions::new("tcp://127.0.0.1:1", 0);
    bad_replay.replay = Some("nowhere".to_owned());
    for options in [bad_size, bad_replay, SourceOptions::new("http://127.0.0.1:1", 0)] {
        let error = listeners.add(&engine, options).unwrap_err();
        assert!(error.is_bad_option() && !error.to_string().contains('\n'), "{error}");
    }
    assert!(Listeners::start(0).unwrap_err().is_bad_option());
}
