//! Loading what peers hold, on a thread of its own: sources that may gain by it wait meanwhile, with their messages in their
//! sockets, so that nothing is missed between the dump and what comes after it.

#[expect(clippy::disallowed_types, reason = "control plane: held for a message")]
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, Weak};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};

use super::peers::{PeerUrl, fetch};
use super::problem::{ServiceError, one_line};
use super::restore::{Restored, RestoredPartition};
use super::service::{Registry, Service, begin};
use super::unclaimed::Unclaimed;
use crate::source::{Source, SourceState, State};

/// How long sources may take to connect before the dump is asked for: what comes until then is in the dump, what comes after
/// in their sockets.
const CONNECT_PATIENCE: Duration = Duration::from_secs(2);

/// Loads that may wait for their turn.
const LOADS_MAX: usize = 128;

/// The way to the thread; it starts with the first load.
#[derive(Debug, Default)]
pub(super) struct Loader(
    #[expect(clippy::disallowed_types, reason = "control plane: held for a message")]
    Mutex<Option<Sender<Vec<PeerUrl>>>>,
);

/// Asks the peers in turn until one tells what it holds; after what was asked for before.
pub(super) fn start(service: &Arc<Service>, peers: Vec<PeerUrl>) -> Result<(), ServiceError> {
    let mut loader = service.loader.0.lock().unwrap_or_else(PoisonError::into_inner);
    let loads = match &*loader {
        Some(loads) => loads,
        None => {
            let (loads, inbox) = bounded(LOADS_MAX);
            let load = Load { service: Arc::downgrade(service), inbox };
            let thread = std::thread::Builder::new().name("kvtap-load".to_owned());
            thread.spawn(move || load.run()).map_err(ServiceError::internal)?;
            loader.insert(loads)
        }
    };
    let too_many = |_| ServiceError::not_ready("other peers are still being asked what they hold");
    loads.try_send(peers).map_err(too_many)
}

/// The inside of the thread. It keeps nobody alive while it waits.
struct Load {
    service: Weak<Service>,
    /// Disconnected when the service is gone.
    inbox: Receiver<Vec<PeerUrl>>,
}

impl Load {
    fn run(self) {
        loop {
            let Some(expiry) = self.service.upgrade().map(|service| service.next_expiry()) else { return };
            let peers = match expiry {
                Some(expiry) => self.inbox.recv_deadline(expiry),
                None => self.inbox.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match peers {
                Ok(peers) => self.load(&peers),
                Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => {
                    if let Some(service) = self.service.upgrade() {
                        service.drop_unclaimed(Instant::now());
                    }
                }
            }
        }
    }

    fn load(&self, peers: &[PeerUrl]) {
        let Some(held) = self.service.upgrade().map(|service| service.begin_load()) else { return };
        wait_for_connections(&held);
        drop(held);
        let restored = ask(peers);
        if let Some(service) = self.service.upgrade() {
            service.end_load(restored);
        }
    }
}

fn ask(peers: &[PeerUrl]) -> Option<Restored> {
    for peer in peers {
        match fetch(peer) {
            Ok(restored) => {
                log::info!("peer {peer} has told what it holds");
                if restored.left_out > 0 {
                    let left_out = restored.left_out;
                    log::warn!("{left_out} blocks are left out: the dump does not have what they follow");
                }
                return Some(restored);
            }
            Err(sentence) => log::warn!("peer {peer} is of no use: {}", one_line(&sentence)),
        }
    }
    log::warn!("no peer has told what it holds; what is not heard from the engines is not known");
    None
}

impl Service {
    /// Lets all sources wait that may gain by what a peer tells; gives them.
    fn begin_load(&self) -> Vec<Arc<Source>> {
        let sources: Vec<_> = {
            let mut registry = self.registry();
            registry.is_loading = true;
            registry.sources().map(|registered| Arc::clone(&registered.source)).collect()
        };
        sources.into_iter().filter(|source| source.hold()).collect()
    }

    /// Hands out what a peer has told, and lets all sources go on.
    fn end_load(&self, restored: Option<Restored>) {
        let mut begins = Vec::new();
        {
            let mut registry = self.registry();
            registry.is_loading = false;
            let partitions = restored.map_or_else(Vec::new, |restored| restored.partitions);
            for partition in partitions.into_iter().filter(|_| !self.is_stopping()) {
                self.load_partition(&mut registry, partition, &mut begins);
            }
            begins.extend(registry.sources().map(|registered| (Arc::clone(&registered.source), None)));
            self.drop_from(&mut registry, |_| false);
        }
        // One that has begun with what was told is not held any more when it is told to begin again.
        for (source, state) in begins {
            begin(&source, state);
        }
        self.has_loaded.store(true, Ordering::Relaxed);
    }

    /// What is told of sources that are registered goes to these; the rest counts until they register.
    fn load_partition(
        &self,
        registry: &mut Registry,
        restored: RestoredPartition,
        begins: &mut Vec<(Arc<Source>, Option<SourceState>)>,
    ) {
        let RestoredPartition { id, block_size, sources } = restored;
        let found = id.check().and_then(|()| self.find_or_make(&id, ("the peer's", block_size)));
        let partition = match found {
            Ok(partition) => partition,
            Err(error) => {
                log::warn!("what a peer has told of a partition is of no use: {error}");
                return;
            }
        };
        self.keep(&partition);
        let until = Instant::now() + self.options.unclaimed_time;
        for ((worker_id, dp_rank), state) in sources {
            if let Some(registered) = registry.find(&id, worker_id, dp_rank) {
                begins.push((Arc::clone(&registered.source), Some(state)));
                continue;
            }
            // Of a worker that is registered for something else, nothing counts here.
            if state.ranks.is_empty() || registry.is_elsewhere(&id, worker_id) {
                continue;
            }
            match Unclaimed::new(Arc::clone(&partition), (worker_id, dp_rank), &state, until) {
                Ok(unclaimed) => registry.unclaimed.insert(unclaimed),
                Err(error) => log::warn!("what a peer has told of worker {worker_id} is of no use: {error}"),
            }
        }
    }

    fn next_expiry(&self) -> Option<Instant> {
        self.registry().unclaimed.next_expiry()
    }

    fn drop_unclaimed(&self, now: Instant) {
        let mut registry = self.registry();
        let expired = registry.unclaimed.expire(now);
        if expired > 0 {
            log::info!("{expired} sources that a peer told of have not registered; their blocks are dropped");
        }
        self.drop_from(&mut registry, |_| false);
    }
}

fn wait_for_connections(held: &[Arc<Source>]) {
    let end = Instant::now() + CONNECT_PATIENCE;
    for source in held {
        source
            .wait(end.saturating_duration_since(Instant::now()), |status| status.state != State::Connecting);
    }
}
