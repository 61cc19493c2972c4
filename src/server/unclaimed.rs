//! Sources that a peer tells of and that nobody has registered here: their blocks count in answers, until the source registers
//! and goes on from them, or the time for that is over.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use super::partition::{Partition, PartitionId};
use super::problem::ServiceError;
use crate::source::SourceState;
use crate::{Ingest, Position, SourceConfig};

/// One such source.
#[derive(Debug)]
pub(super) struct Unclaimed {
    pub(super) partition: Arc<Partition>,
    /// Worker, and the rank it is registered with.
    pub(super) source: (u64, u32),
    ingest: Ingest,
    position: Option<Position>,
    degraded: bool,
    until: Instant,
}

impl Unclaimed {
    /// Puts its blocks into the index.
    pub(super) fn new(
        partition: Arc<Partition>,
        source: (u64, u32),
        state: &SourceState,
        until: Instant,
    ) -> Result<Self, ServiceError> {
        let mut config = SourceConfig::new(source.0);
        (config.dp_rank, config.block_size) = (source.1, partition.block_size);
        let mut ingest = partition.engine.ingest(config)?;
        ingest.load(&state.ranks).map_err(ServiceError::bad_request)?;
        let (position, degraded) = (state.position, state.degraded);
        Ok(Self { partition, source, ingest, position, degraded, until })
    }

    /// What its source has to know to go on from there.
    pub(super) fn state(&self) -> SourceState {
        SourceState { ranks: self.ingest.held(), position: self.position, degraded: self.degraded }
    }

    pub(super) fn entries(&self) -> usize {
        self.ingest.entries()
    }

    pub(super) fn bytes(&self) -> usize {
        self.ingest.bytes()
    }
}

/// All of them. Those looked at by a report may live a little longer.
#[derive(Debug, Default)]
pub(super) struct Pool(BTreeMap<(PartitionId, u64, u32), Arc<Unclaimed>>);

impl Pool {
    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<Unclaimed>> {
        self.0.values()
    }

    pub(super) fn next_expiry(&self) -> Option<Instant> {
        self.0.values().map(|unclaimed| unclaimed.until).min()
    }

    /// Takes the place of what was told of the same source before.
    pub(super) fn insert(&mut self, unclaimed: Unclaimed) {
        let (worker_id, dp_rank) = unclaimed.source;
        self.0.insert((unclaimed.partition.id.clone(), worker_id, dp_rank), Arc::new(unclaimed));
    }

    pub(super) fn has(&self, id: &PartitionId, worker_id: u64, dp_rank: u32) -> bool {
        self.0.contains_key(&(id.clone(), worker_id, dp_rank))
    }

    /// Gives what is there for a source that has registered. The worker is in no other partition then.
    pub(super) fn claim(&mut self, id: &PartitionId, worker_id: u64, dp_rank: u32) -> Option<Arc<Unclaimed>> {
        self.0.retain(|(there, worker, _), _| *worker != worker_id || there == id);
        self.0.remove(&(id.clone(), worker_id, dp_rank))
    }

    /// Takes those out of which this holds. Says whether there were any.
    pub(super) fn take_out(&mut self, is_so: impl Fn(&Unclaimed) -> bool) -> bool {
        let before = self.0.len();
        self.0.retain(|_, unclaimed| !is_so(unclaimed));
        self.0.len() < before
    }

    /// Takes those out whose time is over; gives how many.
    pub(super) fn expire(&mut self, now: Instant) -> usize {
        let before = self.0.len();
        self.0.retain(|_, unclaimed| unclaimed.until > now);
        before - self.0.len()
    }
}
