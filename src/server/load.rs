//! Loading what peers hold, on a thread of its own: sources that may gain by it wait meanwhile, with their messages in their
//! sockets, so that nothing is missed between the dump and what comes after it.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use crossbeam_channel::Receiver;

use super::peers::{PeerUrl, fetch};
use super::problem::ServiceError;
use super::restore::{Restored, RestoredPartition};
use super::service::{Registry, Service, Turn, begin};
use super::unclaimed::Unclaimed;
use crate::source::{Source, SourceState, State};

/// How long sources may take to connect before the dump is asked for: what comes until then is in the dump, what comes after
/// in their sockets.
const CONNECT_PATIENCE: Duration = Duration::from_secs(2);

/// Asks the peers in turn until one tells what it holds.
pub(super) fn start(service: &Arc<Service>, peers: Vec<PeerUrl>) -> Result<(), ServiceError> {
    let load = Load {
        service: Arc::downgrade(service),
        peers,
        turn: Arc::clone(&service.turn),
        alive: service.alive.clone(),
        unclaimed_time: service.options.unclaimed_time,
    };
    let thread = std::thread::Builder::new().name("kvtap-load".to_owned()).spawn(move || load.run());
    thread.map(drop).map_err(ServiceError::internal)
}

/// The inside of the thread. It keeps nobody alive while it waits.
struct Load {
    service: Weak<Service>,
    peers: Vec<PeerUrl>,
    turn: Turn,
    /// Disconnected when the service is gone.
    alive: Receiver<()>,
    unclaimed_time: Duration,
}

impl Load {
    fn run(self) {
        {
            let _turn = self.turn.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            let Some(held) = self.service.upgrade().map(|service| service.begin_load()) else { return };
            wait_for_connections(&held);
            drop(held);
            let restored = self.ask();
            if let Some(service) = self.service.upgrade() {
                service.end_load(restored);
            }
        }
        if self.service.upgrade().is_some_and(|service| service.has_unclaimed())
            && self.alive.recv_timeout(self.unclaimed_time).is_err_and(|error| error.is_timeout())
            && let Some(service) = self.service.upgrade()
        {
            service.drop_unclaimed(Instant::now());
        }
    }

    fn ask(&self) -> Option<Restored> {
        for peer in &self.peers {
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
        let partition = match self.find_or_make(&id, block_size) {
            Ok(partition) => partition,
            Err(error) => {
                log::warn!("what a peer has told of {id} is of no use: {error}");
                return;
            }
        };
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

    fn has_unclaimed(&self) -> bool {
        !self.registry().unclaimed.is_empty()
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

fn one_line(sentence: &str) -> String {
    sentence.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn wait_for_connections(held: &[Arc<Source>]) {
    let end = Instant::now() + CONNECT_PATIENCE;
    for source in held {
        source
            .wait(end.saturating_duration_since(Instant::now()), |status| status.state != State::Connecting);
    }
}
