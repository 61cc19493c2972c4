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

use super::load::Loader;
use super::metrics::Latencies;
use super::partition::{Partition, PartitionId};
use super::peers::{PeerUrl, Peers};
use super::problem::ServiceError;
use super::unclaimed::{Pool, Unclaimed};
use crate::Config;
use crate::source::{Listeners, Report, Source, SourceLimits, SourceOptions, SourceState, State, Status};

/// A source that has not connected by then no longer keeps the others from being used.
const READY_PATIENCE: Duration = Duration::from_secs(30);

/// What a service is made of.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServiceOptions {
    /// Shards of each partition's index: 1 to 64.
    pub shards: usize,
    /// Listener threads: 1 to 64; each takes 250 sources.
    pub listeners: usize,
    /// Other instances, asked in this order at the start until one tells what it holds.
    pub peers: Vec<PeerUrl>,
    /// How long blocks of sources that a peer tells of count in answers, unless these register.
    pub unclaimed_time: Duration,
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
            peers: Vec::new(),
            unclaimed_time: Duration::from_secs(600),
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
    pub(super) options: ServiceOptions,
    #[expect(clippy::disallowed_types, reason = "see the import")]
    partitions: RwLock<BTreeMap<PartitionId, Arc<Partition>>>,
    /// Locked before `partitions` wherever both are.
    #[expect(clippy::disallowed_types, reason = "see the import")]
    registry: Mutex<Registry>,
    listeners: Listeners,
    pub(super) peers: Peers,
    pub(super) loader: Loader,
    pub(super) latencies: Latencies,
    start: Instant,
    was_ready: AtomicBool,
    is_stopping: AtomicBool,
    /// What peers hold has been loaded, or given up.
    pub(super) has_loaded: AtomicBool,
}

/// Who is followed, and who a peer has told of.
#[derive(Debug, Default)]
pub(super) struct Registry {
    workers: BTreeMap<u64, Worker>,
    pub(super) unclaimed: Pool,
    /// Sources that register wait for what a peer tells.
    pub(super) is_loading: bool,
}

#[derive(Debug)]
struct Worker {
    partition: Arc<Partition>,
    /// By rank.
    sources: BTreeMap<u32, Registered>,
}

impl Registry {
    pub(super) fn sources(&self) -> impl Iterator<Item = &Registered> {
        self.workers.values().flat_map(|worker| worker.sources.values())
    }

    pub(super) fn find(&self, id: &PartitionId, worker_id: u64, dp_rank: u32) -> Option<&Registered> {
        let worker = self.workers.get(&worker_id).filter(|worker| worker.partition.id == *id)?;
        worker.sources.get(&dp_rank)
    }

    /// Whether the worker is registered, but for another partition.
    pub(super) fn is_elsewhere(&self, id: &PartitionId, worker_id: u64) -> bool {
        self.workers.get(&worker_id).is_some_and(|worker| worker.partition.id != *id)
    }

    /// Whether the partition is of use to anyone who has registered.
    fn has(&self, id: &PartitionId) -> bool {
        self.workers.values().any(|worker| worker.partition.id == *id)
    }
}

/// A source as reports look at it.
#[derive(Clone, Debug)]
pub(super) struct Registered {
    pub(super) source: Arc<Source>,
    pub(super) partition: Arc<Partition>,
    pub(super) replay_endpoint: Option<String>,
}

impl ServiceOptions {
    /// What each partition's index is made of.
    pub(super) fn engine(&self) -> Config {
        Config { shards: self.shards, shard_bytes: self.shard_bytes, ..Config::default() }
    }

    /// Checks what no listener does; the engine's part before the first source comes.
    fn check(&self) -> Result<(), ServiceError> {
        self.engine().check()?;
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
        options.check()?;
        let listeners = Listeners::start(options.listeners)?;
        let is_loading = !options.peers.is_empty();
        #[expect(clippy::disallowed_types, reason = "see the import")]
        let (partitions, registry) =
            (RwLock::default(), Mutex::new(Registry { is_loading, ..Registry::default() }));
        Ok(Self {
            partitions,
            registry,
            listeners,
            peers: Peers::new(options.peers.clone()),
            loader: Loader::default(),
            options,
            latencies: Latencies::new(),
            start: Instant::now(),
            was_ready: AtomicBool::new(false),
            is_stopping: AtomicBool::new(false),
            has_loaded: AtomicBool::new(!is_loading),
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
        id.check()?;
        let ingest = &options.ingest;
        let (worker_id, dp_rank, block_size) = (ingest.worker_id, ingest.dp_rank, ingest.block_size);
        let mut registry = self.registry();
        if let Some(worker) = registry.workers.get(&worker_id) {
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
        if !registry.has(&id) && self.find(&id).is_some_and(|known| known.block_size != block_size) {
            log::warn!("what a peer has told of {id} is dropped: its blocks are not of {block_size} tokens");
            self.drop_from(&mut registry, |unclaimed| unclaimed.partition.id == id);
        }
        let partition = self.find_or_make(&id, ("requested", block_size))?;
        let replay_endpoint = options.replay.clone();
        let is_told_of = registry.unclaimed.has(&id, worker_id, dp_rank);
        let source = if is_told_of || registry.is_loading {
            self.listeners.add_held(&partition.engine, options)?
        } else {
            self.listeners.add(&partition.engine, options)?
        };
        let source = Arc::new(source);
        self.keep(&partition);
        if let Some(unclaimed) = registry.unclaimed.claim(&id, worker_id, dp_rank) {
            begin(&source, Some(unclaimed.state()));
        }
        let registered = Registered { source, partition: Arc::clone(&partition), replay_endpoint };
        let worker = registry.workers.entry(worker_id);
        let worker = worker.or_insert_with(|| Worker { partition, sources: BTreeMap::new() });
        worker.sources.insert(dp_rank, registered);
        // Its claim may have left other partitions without anybody.
        self.drop_from(&mut registry, |_| false);
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
        let mut registry = self.registry();
        let is_told_of = self.drop_from(&mut registry, |unclaimed| which.is(unclaimed));
        let missing = || ServiceError::not_found(format_args!("instance {worker_id} not found"));
        let worker = match registry.workers.get_mut(&worker_id) {
            None if is_told_of => return Ok(Vec::new()),
            worker => worker.ok_or_else(missing)?,
        };
        let id = worker.partition.id.clone();
        if !which.is_of(&id) {
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
        registry.workers.retain(|_, worker| !worker.sources.is_empty());
        self.drop_from(&mut registry, |_| false);
        Ok(stopped)
    }

    /// Takes out what a peer has told of, where this holds, and partitions that are of no more use. Says whether it was
    /// anything a peer had told of.
    pub(super) fn drop_from(&self, registry: &mut Registry, is_so: impl Fn(&Unclaimed) -> bool) -> bool {
        let any = registry.unclaimed.take_out(is_so);
        let is_used = |id: &PartitionId| {
            registry.has(id) || registry.unclaimed.all().any(|unclaimed| unclaimed.partition.id == *id)
        };
        self.write(|partitions| partitions.retain(|id, _| is_used(id)));
        any
    }

    /// The partition; made if it is new, and then to be kept.
    ///
    /// # Errors
    /// If its index cannot be, or its blocks are of another size than somebody's, who is named first.
    pub(super) fn find_or_make(
        &self,
        id: &PartitionId,
        (whose, block_size): (&str, u32),
    ) -> Result<Arc<Partition>, ServiceError> {
        match self.find(id) {
            Some(known) if known.block_size == block_size => Ok(known),
            Some(known) => Err(ServiceError::conflict(format_args!(
                "block_size mismatch for {id}: existing={}, {whose}={block_size}",
                known.block_size
            ))),
            None => Ok(Arc::new(Partition::new(id.clone(), block_size, &self.options)?)),
        }
    }

    /// From now on it is found. Called with the registry locked, so that nobody keeps another of its name.
    pub(super) fn keep(&self, partition: &Arc<Partition>) {
        self.write(|partitions| partitions.insert(partition.id.clone(), Arc::clone(partition)));
    }

    /// Whether everything that was registered is followed, or has been waited for long enough. Once it was, it stays so until
    /// the service stops.
    ///
    /// # Errors
    /// If not: what is missing.
    pub fn ready(&self) -> Result<(), ServiceError> {
        if self.is_stopping() {
            return Err(ServiceError::not_ready("the service is stopping"));
        }
        if self.was_ready.load(Ordering::Relaxed) {
            return Ok(());
        }
        if !self.has_loaded.load(Ordering::Relaxed) {
            return Err(ServiceError::not_ready("what a peer holds is still being loaded"));
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
        let registry = std::mem::take(&mut *self.registry());
        self.write(std::mem::take);
        let sources = registry.workers.into_values().flat_map(|worker| worker.sources.into_values());
        sources.filter_map(|registered| registered.source.stop()).collect()
    }

    pub(super) fn find(&self, id: &PartitionId) -> Option<Arc<Partition>> {
        self.partitions.read().unwrap_or_else(PoisonError::into_inner).get(id).cloned()
    }

    pub(super) fn partitions(&self) -> Vec<Arc<Partition>> {
        self.partitions.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// All sources, by worker and rank. Nothing stays locked while they are looked at.
    pub(super) fn registered(&self) -> Vec<Registered> {
        self.registry().sources().cloned().collect()
    }

    /// All that peers have told of and nobody has registered.
    pub(super) fn unclaimed(&self) -> Vec<Arc<Unclaimed>> {
        self.registry().unclaimed.all().cloned().collect()
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Relaxed)
    }

    fn write<T>(&self, change: impl FnOnce(&mut BTreeMap<PartitionId, Arc<Partition>>) -> T) -> T {
        change(&mut self.partitions.write().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn registry(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Unregistration {
    fn is_of(&self, id: &PartitionId) -> bool {
        id.is_of(Some(&self.model_name), self.routing_group.as_deref())
    }

    fn is(&self, unclaimed: &Unclaimed) -> bool {
        let (worker_id, dp_rank) = unclaimed.source;
        worker_id == self.worker_id
            && self.is_of(&unclaimed.partition.id)
            && self.dp_rank.is_none_or(|rank| rank == dp_rank)
    }
}

/// Lets a source read its messages, from where a peer stood if that helps.
pub(super) fn begin(source: &Source, state: Option<SourceState>) {
    if let Err(error) = source.begin(state) {
        let worker = source.status().worker;
        log::warn!("what a peer has told of worker {worker} is of no use: {error}");
    }
}
