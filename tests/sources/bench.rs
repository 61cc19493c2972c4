//! A publisher, a source that follows it, and the model that says what the index must be.

use std::time::Duration;

use kvtap::source::{Listeners, Report, Source, SourceOptions, Status};
use kvtap::{Config, Engine, SourceConfig};

use crate::support::publisher::{Publisher, TCP, ipc};
use crate::support::source::{BLOCK_SIZE, Event, list, pack, store};

/// Enough for a machine that is busy with other things.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// When a replay that never comes is given up.
pub(crate) const REPLAY_TIMEOUT: Duration = Duration::from_millis(300);

/// One source under test.
pub(crate) struct Bench {
    pub(crate) publisher: Publisher,
    pub(crate) source: Source,
    pub(crate) options: SourceOptions,
    // After the source, which it runs.
    pub(crate) listeners: Listeners,
    pub(crate) engine: Engine,
}

/// A batch of the given life of an engine: stores one block of its own, at the given time.
pub(crate) fn batch(life: u64, sequence: u64, timestamp: f64) -> Vec<u8> {
    payload(life, timestamp, [block(life, sequence)])
}

/// The usual time of a batch: later lives are later.
pub(crate) fn life(life: u64, sequence: u64) -> Vec<u8> {
    let timestamp = u32::try_from(life * 1000 + sequence).unwrap();
    batch(life, sequence, f64::from(timestamp))
}

pub(crate) fn first_life(sequences: impl IntoIterator<Item = u64>) -> Vec<(u64, Vec<u8>)> {
    sequences.into_iter().map(|sequence| (sequence, life(0, sequence))).collect()
}

pub(crate) fn block(life: u64, sequence: u64) -> Event {
    let first = u32::try_from(life * 100_000 + sequence * 4).unwrap();
    store(&[life * 1_000_000 + sequence + 1], None, first..=first + 3)
}

pub(crate) fn payload(rank: u64, timestamp: f64, events: impl IntoIterator<Item = Event>) -> Vec<u8> {
    let events = rmpv::Value::Array(events.into_iter().map(Into::into).collect());
    // The rank is not the life's: one worker, rank 0.
    let _ = rank;
    pack(&list![timestamp, events, 0])
}

pub(crate) fn config() -> SourceConfig {
    let mut config = SourceConfig::new(7);
    config.block_size = BLOCK_SIZE;
    config
}

/// Digest of an index that was fed these payloads.
pub(crate) fn model(payloads: impl IntoIterator<Item = Vec<u8>>) -> u64 {
    let engine = Engine::new(Config::default()).unwrap();
    let mut ingest = engine.ingest(config()).unwrap();
    for payload in payloads {
        // A broken one is refused here as there.
        let _ = ingest.apply(&payload);
    }
    ingest.digest()
}

/// Digest of these batches of the first life.
pub(crate) fn model_of(sequences: impl IntoIterator<Item = u64>) -> u64 {
    model(sequences.into_iter().map(|sequence| life(0, sequence)))
}

/// Runs a test over tcp and ipc.
pub(crate) fn over_both(test: impl Fn(&str, &str)) {
    test(TCP, TCP);
    test(&ipc(), &ipc());
}

impl Bench {
    pub(crate) fn new(endpoint: &str, replay: &str) -> Self {
        let publisher = Publisher::bind(endpoint, replay);
        let mut options = SourceOptions::new(publisher.endpoint.clone(), 7);
        options.replay = Some(publisher.replay_endpoint.clone());
        Self::with(publisher, options)
    }

    pub(crate) fn without_replay(endpoint: &str) -> Self {
        let publisher = Publisher::bind(endpoint, &ipc());
        let options = SourceOptions::new(publisher.endpoint.clone(), 7);
        Self::with(publisher, options)
    }

    pub(crate) fn with(publisher: Publisher, mut options: SourceOptions) -> Self {
        options.ingest.block_size = BLOCK_SIZE;
        options.replay_timeout = REPLAY_TIMEOUT;
        let mut settings = Config::default();
        settings.shards = 1;
        let engine = Engine::new(settings).unwrap();
        let listeners = Listeners::start(1).unwrap();
        let source = listeners.add(&engine, options.clone()).unwrap();
        publisher.wait_for_subscriber();
        Self { publisher, source, options, listeners, engine }
    }

    /// Sends batches of the first life.
    pub(crate) fn send(&self, sequences: impl IntoIterator<Item = u64>) {
        self.send_life(0, sequences);
    }

    pub(crate) fn send_life(&self, number: u64, sequences: impl IntoIterator<Item = u64>) {
        for sequence in sequences {
            self.publisher.send(sequence, &life(number, sequence));
        }
    }

    /// Puts another publisher in the place of the one that is dropped.
    pub(crate) fn replace_publisher(&mut self) {
        let (endpoint, replay) = (self.publisher.endpoint.clone(), self.publisher.replay_endpoint.clone());
        // The address must be free before it is bound again.
        self.publisher = Publisher::bind(&ipc(), &ipc());
        self.publisher = Publisher::bind(&endpoint, &replay);
    }

    #[track_caller]
    pub(crate) fn until(&self, is_so: impl Fn(&Status) -> bool) {
        assert!(self.source.wait(PATIENCE, is_so), "{:#?}", self.source.status());
    }

    #[track_caller]
    pub(crate) fn until_cursor(&self, cursor: u64) {
        self.until(|status| status.cursor == Some(cursor) && status.state.label() == "live");
    }

    pub(crate) fn report(&self) -> Report {
        self.source.report().unwrap()
    }

    /// Asserts the counts of gaps, replayed, lost and skipped, and the digest.
    #[track_caller]
    pub(crate) fn expect(&self, counts: [u64; 4], digest: u64) {
        let report = self.report();
        let sequence = report.status.sequence;
        assert_eq!(
            [sequence.gaps, sequence.replayed_batches, sequence.lost_batches, sequence.skipped_sequences],
            counts,
            "{:#?}",
            report.status
        );
        assert_eq!(report.digest, digest, "{:#?}", report.status);
    }
}
