//! Who is registered where: partitions, and the workers whose sources fill them. Control plane; queries only look a
//! partition up.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
#[expect(
    clippy::disallowed_types,
    reason = "control plane: held while sources come and go, never across a query"
)]
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use super::metrics::Latencies;
use super::partition::{Partition, PartitionId};
use super::problem::ServiceError;
use crate::Config;
use crate::source::{Listeners, Report, Source, SourceLimits, SourceOptions, State, Status};

/// A source that has not connected by then no longer keeps the others from being used.
const READY_PATIENCE: Duration = Duration::from_secs(30);
/// Bytes of the names of models and routing groups, which every line of a source's metrics repeats.
const NAME_BYTES_MAX: usize = 256;

/// What a service is made of.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServiceOptions {
    /// Shards of each partition's index: 1 to 64.
    pub shards: usize,
    /// Listener threads: 1 to 64; each takes 250 sources.
    pub listeners: usize,
    /// Bytes of memory that each shard may take, as [`Config::shard_bytes`].
    pub shard_bytes: u64,
    /// What each source may cost, however it was registered.
    pub source_limits: SourceLimits,
    /// Connections over HTTP at a time: 1 to 100,000. More wait until one ends.
    pub connections: usize,
    /// Bytes of the body of a query: 64 KiB to 1 GiB. Longer ones are refused with status 413.
    pub query_body_bytes: usize,
}

impl Default for ServiceOptions {
    /// 2 shards, 4 listeners, the defaults of [`Config`] and [`SourceLimits`], 1,024 connections, 16 MiB: a million token ids of
    /// ten digits, with a comma and a space each.
    fn default() -> Self {
        Self {
            shards: 2,
            listeners: 4,
            shard_bytes: Config::default().shard_bytes,
            source_limits: SourceLimits::default(),
            connections: 1024,
            query_body_bytes: 16 << 20,
        }
    }
}

/// A source, and the partition it belongs to.
#[derive(Clone, Debug)]
#[expect(clippy::exhaustive_structs, reason = "made by callers")]
pub struct Registration {
    /// Where its blocks count.
    pub partition: PartitionId,
    /// Worker, rank, endpoints and block size; what it may cost is said by [`ServiceOptions::source_limits`].
    pub options: SourceOptions,
}

/// Which sources are to go.
#[derive(Clone, Debug)]
#[expect(clippy::exhaustive_structs, reason = "made by callers")]
pub struct Unregistration {
    /// The worker.
    pub worker_id: u64,
    /// The model it was registered for.
    pub model_name: String,
    /// Its routing group; `None` for whichever it is in.
    pub routing_group: Option<String>,
    /// Only this rank; `None` for all.
    pub dp_rank: Option<u32>,
}

/// The indexes and sources behind an HTTP server. Shared between its threads.
#[derive(Debug)]
pub struct Service {
    options: ServiceOptions,
    #[expect(clippy::disallowed_types, reason = "see the import")]
    partitions: RwLock<BTreeMap<PartitionId, Arc<Partition>>>,
    /// Locked before `partitions` wherever both are.
    #[expect(clippy::disallowed_types, reason = "see the import")]
    workers: Mutex<BTreeMap<u64, Worker>>,
    listeners: Listeners,
    pub(super) latencies: Latencies,
    start: Instant,
    was_ready: AtomicBool,
    is_stopping: AtomicBool,
}

#[derive(Debug)]
struct Worker {
    partition: Arc<Partition>,
    /// By rank.
    sources: BTreeMap<u32, Registered>,
}

/// A source as reports look at it.
#[derive(Clone, Debug)]
pub(super) struct Registered {
    pub(super) source: Arc<Source>,
    pub(super) partition: Arc<Partition>,
    pub(super) replay_endpoint: Option<String>,
}

impl ServiceOptions {
    /// Checks what neither a listener nor an engine does before the first source comes.
    fn check(&self) -> Result<(), ServiceError> {
        if !(1..=100_000).contains(&self.connections) {
            let sentence = format_args!("connections must be 1 to 100000, not {}", self.connections);
            return Err(ServiceError::bad_request(sentence));
        }
        if !(64 << 10..=1 << 30).contains(&self.query_body_bytes) {
            return Err(ServiceError::bad_request(format_args!(
                "the bytes of a query's body must be 65536 to 1073741824, not {}",
                self.query_body_bytes
            )));
        }
        Ok(())
    }
}

impl Service {
    /// Starts the listener threads.
    ///
    /// # Errors
    /// If a number is out of its range, or a thread cannot be started.
    pub fn new(options: ServiceOptions) -> Result<Self, ServiceError> {
        if !(1..=64).contains(&options.shards) {
            return Err(ServiceError::bad_request(format_args!(
                "shards must be 1 to 64, not {}",
                options.shards
            )));
        }
        options.check()?;
        let listeners = Listeners::start(options.listeners)?;
        #[expect(clippy::disallowed_types, reason = "see the import")]
        let (partitions, workers) = (RwLock::default(), Mutex::default());
        Ok(Self {
            options,
            partitions,
            workers,
            listeners,
            latencies: Latencies::new(),
            start: Instant::now(),
            was_ready: AtomicBool::new(false),
            is_stopping: AtomicBool::new(false),
        })
    }

    /// Follows a source from now on; the first of a partition makes it, with its block size.
    ///
    /// # Errors
    /// If the options cannot work, or the worker, its rank or the partition's block size are taken otherwise.
    pub fn register(&self, registration: Registration) -> Result<(), ServiceError> {
        let Registration { partition: id, mut options } = registration;
        options.limit(&self.options.source_limits);
        options.check()?;
        for (what, name) in [("model_name", &id.model_name), ("routing_group", &id.routing_group)] {
            if name.len() > NAME_BYTES_MAX {
                return Err(ServiceError::bad_request(format_args!(
                    "{what} may have {NAME_BYTES_MAX} bytes, not {}",
                    name.len()
                )));
            }
        }
        let ingest = &options.ingest;
        let (worker_id, dp_rank, block_size) = (ingest.worker_id, ingest.dp_rank, ingest.block_size);
        let mut workers = self.workers();
        if let Some(worker) = workers.get(&worker_id) {
            if worker.partition.id != id {
                let known = &worker.partition.id;
                return Err(ServiceError::conflict(format_args!(
                    "instance {worker_id} is already registered for {known}"
                )));
            }
            if worker.sources.contains_key(&dp_rank) {
                return Err(ServiceError::conflict(format_args!(
                    "instance {worker_id} dp_rank {dp_rank} already registered"
                )));
            }
        }
        let known = self.find(&id);
        let partition = match &known {
            Some(known) if known.block_size != block_size => {
                return Err(ServiceError::conflict(format_args!(
                    "block_size mismatch for {id}: existing={}, requested={block_size}",
                    known.block_size
                )));
            }
            Some(known) => Arc::clone(known),
            None => Arc::new(Partition::new(id.clone(), block_size, &self.options)?),
        };
        let replay_endpoint = options.replay.clone();
        let source = Arc::new(self.listeners.add(&partition.engine, options)?);
        if known.is_none() {
            self.write(|partitions| partitions.insert(id, Arc::clone(&partition)));
        }
        let registered = Registered { source, partition: Arc::clone(&partition), replay_endpoint };
        let worker =
            workers.entry(worker_id).or_insert_with(|| Worker { partition, sources: BTreeMap::new() });
        worker.sources.insert(dp_rank, registered);
        Ok(())
    }

    /// Stops following sources; their blocks have left the index when this returns. A partition goes with its last source.
    ///
    /// # Errors
    /// If there is no such worker or rank.
    pub fn unregister(&self, which: &Unregistration) -> Result<(), ServiceError> {
        let stopped = self.take_out(which)?;
        for registered in &stopped {
            // What it brought has been told by its status.
            drop(registered.source.stop());
        }
        Ok(())
    }

    fn take_out(&self, which: &Unregistration) -> Result<Vec<Registered>, ServiceError> {
        let worker_id = which.worker_id;
        let mut workers = self.workers();
        let missing = || ServiceError::not_found(format_args!("instance {worker_id} not found"));
        let worker = workers.get_mut(&worker_id).ok_or_else(missing)?;
        let id = worker.partition.id.clone();
        let is_there = id.model_name == which.model_name
            && which.routing_group.as_ref().is_none_or(|group| *group == id.routing_group);
        if !is_there {
            return Err(ServiceError::not_found(format_args!("instance {worker_id} is registered for {id}")));
        }
        let stopped = match which.dp_rank {
            Some(dp_rank) => {
                let missing = || {
                    ServiceError::not_found(format_args!("instance {worker_id} dp_rank {dp_rank} not found"))
                };
                vec![worker.sources.remove(&dp_rank).ok_or_else(missing)?]
            }
            None => std::mem::take(&mut worker.sources).into_values().collect(),
        };
        workers.retain(|_, worker| !worker.sources.is_empty());
        if workers.values().all(|worker| worker.partition.id != id) {
            self.write(|partitions| partitions.remove(&id));
        }
        Ok(stopped)
    }

    /// Whether everything that was registered is followed, or has been waited for long enough. Once it was, it stays so until
    /// the service stops.
    ///
    /// # Errors
    /// If not: what is missing.
    pub fn ready(&self) -> Result<(), ServiceError> {
        if self.is_stopping.load(Ordering::Relaxed) {
            return Err(ServiceError::not_ready("the service is stopping"));
        }
        if self.was_ready.load(Ordering::Relaxed) {
            return Ok(());
        }
        let statuses = self.statuses();
        let behind = |status: &&Status| matches!(status.state, State::Connecting | State::Replaying);
        let waiting = statuses.iter().filter(behind).count();
        if waiting > 0 && self.start.elapsed() < READY_PATIENCE {
            let all = statuses.len();
            return Err(ServiceError::not_ready(format_args!(
                "{waiting} of {all} sources are still connecting or replaying"
            )));
        }
        self.was_ready.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Every source as its listener saw it last, by worker and rank.
    #[must_use]
    pub fn statuses(&self) -> Vec<Status> {
        self.registered().iter().map(|registered| registered.source.status()).collect()
    }

    /// Bytes of all indexes, without the sources' maps.
    #[must_use]
    pub fn index_bytes(&self) -> usize {
        self.partitions().iter().map(|partition| partition.engine.index_bytes()).sum()
    }

    /// From now on it is not ready: so that balancers look elsewhere while requests end.
    pub fn begin_stop(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
    }

    /// Stops following every source, and sums each up.
    #[must_use]
    pub fn stop(&self) -> Vec<Report> {
        self.begin_stop();
        let workers = std::mem::take(&mut *self.workers());
        self.write(std::mem::take);
        let sources = workers.into_values().flat_map(|worker| worker.sources.into_values());
        sources.filter_map(|registered| registered.source.stop()).collect()
    }

    pub(super) const fn options(&self) -> &ServiceOptions {
        &self.options
    }

    pub(super) fn find(&self, id: &PartitionId) -> Option<Arc<Partition>> {
        self.partitions.read().unwrap_or_else(PoisonError::into_inner).get(id).cloned()
    }

    pub(super) fn partitions(&self) -> Vec<Arc<Partition>> {
        self.partitions.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// All sources, by worker and rank. Nothing stays locked while they are looked at.
    pub(super) fn registered(&self) -> Vec<Registered> {
        self.workers().values().flat_map(|worker| worker.sources.values().cloned()).collect()
    }

    fn write<T>(&self, change: impl FnOnce(&mut BTreeMap<PartitionId, Arc<Partition>>) -> T) -> T {
        change(&mut self.partitions.write().unwrap_or_else(PoisonError::into_inner))
    }

    fn workers(&self) -> MutexGuard<'_, BTreeMap<u64, Worker>> {
        self.workers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
