//! What a source's listener tells other threads: a snapshot after every burst of messages. Control plane.

#[expect(clippy::disallowed_types, reason = "held for a copy of integers, once per burst of messages")]
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::examples::Example;
use crate::wire::Shape;
use crate::{Counters, SequenceCounts, Worker};

/// Where a source stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum State {
    /// Never connected yet.
    Connecting,
    /// Connected, or heard of; its stream is followed.
    Live,
    /// A gap is being filled; live messages wait.
    Replaying,
    /// The connection is lost; the transport tries again.
    Disconnected,
    /// No longer followed.
    Stopped,
}

impl State {
    /// Stable snake_case label.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Connecting => "connecting",
            Self::Live => "live",
            Self::Replaying => "replaying",
            Self::Disconnected => "disconnected",
            Self::Stopped => "stopped",
        }
    }
}

/// A source at one moment.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Status {
    /// Where it publishes.
    pub endpoint: String,
    /// The worker it was added for, with the rank of batches that name none.
    pub worker: Worker,
    /// Where it stands.
    pub state: State,
    /// The last sequence number dealt with.
    pub cursor: Option<u64>,
    /// Timestamp of the last batch applied, in Unix seconds.
    pub watermark: Option<f64>,
    /// Gaps, replayed and lost batches, skipped numbers, restarts, duplicates.
    pub sequence: SequenceCounts,
    /// Batches were lost since its blocks were last cleared: it may hold less, or more, than the index says.
    pub degraded: bool,
    /// Blocks taken over from another listener.
    pub taken_blocks: u64,
    /// Messages and replies with frames of no known shape.
    pub bad_messages: u64,
    /// Messages on other topics.
    pub foreign_messages: u64,
    /// Times a connection was made.
    pub connects: u64,
    /// Times a connection was lost.
    pub disconnects: u64,
    /// What went wrong last, in one sentence.
    pub last_error: Option<String>,
    /// What its payloads brought, and what became of it.
    pub counters: Counters,
    /// Ranks whose producer uses another block size than configured, with that size and the events that had it.
    pub mismatched_block_sizes: Vec<(Worker, u32, u64)>,
}

impl Status {
    pub(super) fn new(endpoint: String, worker: Worker) -> Self {
        Self {
            endpoint,
            worker,
            state: State::Connecting,
            cursor: None,
            watermark: None,
            sequence: SequenceCounts::default(),
            degraded: false,
            taken_blocks: 0,
            bad_messages: 0,
            foreign_messages: 0,
            connects: 0,
            disconnects: 0,
            last_error: None,
            counters: Counters::default(),
            mismatched_block_sizes: Vec::new(),
        }
    }
}

/// What only its listener can say of a source, and at once: without waiting for shards or walking over blocks.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Glance {
    /// Ranks that have sent sound batches.
    pub workers: Vec<Worker>,
    /// Live (worker, tier, engine hash) triples.
    pub entries: usize,
    /// Bytes of its engine-hash maps.
    pub bytes: usize,
    /// Shapes of its events, with counts.
    pub shapes: Vec<(Shape, u64)>,
    /// Schema drift, with counts.
    pub drift: Vec<(String, u64)>,
    /// The last event that was not placed, for each reason there was.
    pub examples: Vec<Example>,
}

/// What can be said of a source only by its listener: takes a walk over its blocks.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Report {
    /// The source at the same moment.
    pub status: Status,
    /// Ranks that have sent sound batches.
    pub workers: Vec<Worker>,
    /// Live (worker, tier, engine hash) triples.
    pub entries: usize,
    /// Digest of these (see [`Ingest::digest`](crate::Ingest::digest)).
    pub digest: u64,
    /// Bytes of its engine-hash maps.
    pub bytes: usize,
    /// Shapes of its events, with counts.
    pub shapes: Vec<(Shape, u64)>,
    /// Schema drift, with counts.
    pub drift: Vec<(String, u64)>,
}

/// The place where a listener leaves the snapshot.
#[derive(Debug)]
pub(super) struct Board {
    #[expect(clippy::disallowed_types, reason = "see the import")]
    posted: Mutex<Posted>,
    changed: Condvar,
}

#[derive(Debug)]
struct Posted {
    status: Status,
    /// Waking nobody costs a system call, too.
    waiting: usize,
}

impl Board {
    pub(super) fn new(status: Status) -> Self {
        #[expect(clippy::disallowed_types, reason = "see the import")]
        let posted = Mutex::new(Posted { status, waiting: 0 });
        Self { posted, changed: Condvar::new() }
    }

    pub(super) fn read(&self) -> Status {
        self.lock().status.clone()
    }

    pub(super) fn post(&self, write: impl FnOnce(&mut Status)) {
        let mut posted = self.lock();
        write(&mut posted.status);
        if posted.waiting > 0 {
            self.changed.notify_all();
        }
    }

    pub(super) fn wait(&self, timeout: Duration, is_so: impl Fn(&Status) -> bool) -> bool {
        let end = Instant::now() + timeout;
        let mut posted = self.lock();
        posted.waiting += 1;
        let met = loop {
            if is_so(&posted.status) {
                break true;
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break false;
            }
            posted = self.changed.wait_timeout(posted, left).unwrap_or_else(PoisonError::into_inner).0;
        };
        posted.waiting -= 1;
        met
    }

    fn lock(&self) -> MutexGuard<'_, Posted> {
        self.posted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
