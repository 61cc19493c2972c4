//! The indexes behind the calls the measurement needs. Events are made before the clock starts; freeing them is inside it.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};

use dynamo_kv_router::indexer::concurrent_radix_tree_compressed::ConcurrentRadixTreeCompressed;
use dynamo_kv_router::indexer::positional::PositionalIndexer;
use dynamo_kv_router::indexer::{RadixTree, SyncIndexer, ThreadPoolIndexer};
use dynamo_kv_router::protocols::{
    ExternalSequenceBlockHash, KvCacheEvent, KvCacheEventData, KvCacheRemoveData, KvCacheStoreData,
    KvCacheStoredBlockData, LocalBlockHash, OverlapScores, RouterEvent,
};
use kv_index::{ChainBlockMap, ChainIndex, ContentHash, SequenceHash, StoredBlock};
use kvtap::{Config, Engine, EngineHash, Ingest, LocalHash, Reader, SourceConfig, Wanted, Worker};

use super::workload::{Event, Kind, Trace};

/// Worker and depth, by worker.
pub(crate) type Answer = Vec<(u32, u32)>;

/// What a system is asked with: made before the clock starts.
pub(crate) struct Question {
    pub(crate) locals: Vec<LocalHash>,
    pub(crate) dynamo: RefCell<Vec<LocalBlockHash>>,
    pub(crate) raw: Vec<u64>,
    pub(crate) content: Vec<ContentHash>,
}

impl Question {
    pub(crate) fn new(locals: &[u64]) -> Self {
        Self {
            locals: locals.iter().map(|&local| LocalHash(local)).collect(),
            dynamo: RefCell::new(locals.iter().map(|&local| LocalBlockHash(local)).collect()),
            raw: locals.to_vec(),
            content: locals.iter().map(|&local| ContentHash(local)).collect(),
        }
    }
}

impl Question {
    /// Brings the hashes into the cache, as if they had just been computed, and makes the copy that a system may take.
    pub(crate) fn warm(&self) {
        *self.dynamo.borrow_mut() = self.raw.iter().map(|&local| LocalBlockHash(local)).collect();
        std::hint::black_box(self.locals.iter().fold(0, |sum, local| sum ^ local.0));
        std::hint::black_box(self.content.iter().fold(0, |sum, local| sum ^ local.0));
    }
}

/// An index.
pub(crate) trait System {
    /// Events in its own form.
    type Events: Send;
    /// The side that asks.
    type Asker<'a>: Ask
    where
        Self: 'a;
    fn events(&self, trace: &Trace, events: &[Event]) -> Self::Events;
    /// Applies them, and waits until they can be seen.
    fn apply(&self, events: Self::Events);
    /// Applies them on another thread, and asks meanwhile, if the system allows that.
    fn apply_beside(&self, events: Self::Events, ask: &mut dyn FnMut());
    fn asker(&self) -> Self::Asker<'_>;
}

fn beside<S: System + Sync>(system: &S, events: S::Events, ask: &mut dyn FnMut()) {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let done = &done;
        scope.spawn(move || {
            system.apply(events);
            done.store(true, Ordering::Release);
        });
        while !done.load(Ordering::Acquire) {
            ask();
        }
    });
}

/// Answers questions.
pub(crate) trait Ask {
    fn ask(&mut self, question: &Question);
    /// The last answer.
    fn answer(&mut self) -> Answer;
}

fn dynamo_events(trace: &Trace, events: &[Event]) -> Vec<RouterEvent> {
    let convert = |(number, event): (u64, &Event)| {
        let blocks = trace.blocks_of(event);
        let data = match event.kind {
            Kind::Store { parent } => KvCacheEventData::Stored(KvCacheStoreData {
                parent_hash: parent.map(ExternalSequenceBlockHash::from),
                start_position: None,
                blocks: blocks
                    .iter()
                    .map(|&(hash, local)| KvCacheStoredBlockData {
                        block_hash: ExternalSequenceBlockHash::from(hash),
                        tokens_hash: LocalBlockHash(local),
                        mm_extra_info: None,
                    })
                    .collect(),
            }),
            Kind::Remove => KvCacheEventData::Removed(KvCacheRemoveData {
                block_hashes: blocks.iter().map(|&(hash, _)| ExternalSequenceBlockHash::from(hash)).collect(),
            }),
        };
        RouterEvent::new(u64::from(event.worker), KvCacheEvent { event_id: number, data, dp_rank: 0 })
    };
    (0..).zip(events).map(convert).collect()
}

fn sorted(scores: &OverlapScores) -> Answer {
    let depths = scores.scores.iter().map(|(worker, &depth)| (worker.worker_id as u32, depth));
    let mut answer: Answer = depths.filter(|&(_, depth)| depth > 0).collect();
    answer.sort_unstable();
    answer
}

/// Dynamo's tree behind one owner: no reader beside the writer.
pub(crate) struct Radix(RefCell<RadixTree>);

impl Radix {
    pub(crate) fn new() -> Self {
        Self(RefCell::new(RadixTree::new()))
    }
}

impl System for Radix {
    type Events = Vec<RouterEvent>;
    type Asker<'a> = RadixAsker<'a>;
    fn events(&self, trace: &Trace, events: &[Event]) -> Self::Events {
        dynamo_events(trace, events)
    }
    fn apply(&self, events: Self::Events) {
        let mut tree = self.0.borrow_mut();
        for event in events {
            tree.apply_event(event).expect("accepted");
        }
    }
    fn apply_beside(&self, events: Self::Events, _: &mut dyn FnMut()) {
        self.apply(events);
    }
    fn asker(&self) -> RadixAsker<'_> {
        RadixAsker(&self.0, None)
    }
}

pub(crate) struct RadixAsker<'a>(&'a RefCell<RadixTree>, Option<OverlapScores>);

impl Ask for RadixAsker<'_> {
    fn ask(&mut self, question: &Question) {
        // It takes the hashes; they were copied before the clock started.
        let locals = question.dynamo.take();
        self.1 = Some(self.0.borrow().find_matches(locals, false));
    }
    fn answer(&mut self) -> Answer {
        sorted(self.1.as_ref().expect("asked"))
    }
}

/// Dynamo's concurrent indexes, with one event thread.
pub(crate) struct Pool<T: SyncIndexer>(ThreadPoolIndexer<T>);

pub(crate) fn crtc() -> Pool<ConcurrentRadixTreeCompressed> {
    Pool(ThreadPoolIndexer::new(ConcurrentRadixTreeCompressed::new(), 1, 16))
}

pub(crate) fn positional() -> Pool<PositionalIndexer> {
    Pool(ThreadPoolIndexer::new(PositionalIndexer::new(32), 1, 16))
}

impl<T: SyncIndexer> System for Pool<T> {
    type Events = Vec<RouterEvent>;
    type Asker<'a>
        = PoolAsker<'a, T>
    where
        T: 'a;
    fn events(&self, trace: &Trace, events: &[Event]) -> Self::Events {
        dynamo_events(trace, events)
    }
    fn apply(&self, events: Self::Events) {
        for event in events {
            self.0.enqueue_event(event).expect("accepted");
        }
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(self.0.flush_and_wait()).expect("flushed");
    }
    fn apply_beside(&self, events: Self::Events, ask: &mut dyn FnMut()) {
        beside(self, events, ask);
    }
    fn asker(&self) -> PoolAsker<'_, T> {
        PoolAsker(self, None)
    }
}

pub(crate) struct PoolAsker<'a, T: SyncIndexer>(&'a Pool<T>, Option<OverlapScores>);

impl<T: SyncIndexer> Ask for PoolAsker<'_, T> {
    fn ask(&mut self, question: &Question) {
        self.1 = Some(self.0.0.backend().find_matches(&question.dynamo.borrow(), false));
    }
    fn answer(&mut self) -> Answer {
        sorted(self.1.as_ref().expect("asked"))
    }
}

/// The crate `kv-index`; its maps belong to the thread that applies.
pub(crate) struct Chains {
    index: ChainIndex,
    workers: Vec<u32>,
    maps: std::sync::Mutex<Vec<ChainBlockMap>>,
}

impl Chains {
    pub(crate) fn new(workers: usize) -> Self {
        let index = ChainIndex::with_max_workers(workers.next_multiple_of(64));
        let workers: Vec<_> =
            (0..workers).map(|worker| index.intern_worker(&worker.to_string()).ok().expect("room")).collect();
        let maps = std::sync::Mutex::new(workers.iter().map(|_| ChainBlockMap::new()).collect());
        Self { index, workers, maps }
    }
}

pub(crate) enum ChainEvent {
    Store(u32, Option<SequenceHash>, Vec<StoredBlock>),
    Remove(u32, Vec<SequenceHash>),
}

impl System for Chains {
    type Events = Vec<ChainEvent>;
    type Asker<'a> = ChainsAsker<'a>;
    fn events(&self, trace: &Trace, events: &[Event]) -> Self::Events {
        let convert = |event: &Event| {
            let worker = self.workers[event.worker as usize];
            let blocks = trace.blocks_of(event).iter();
            match event.kind {
                Kind::Store { parent } => {
                    let stored = |&(hash, local)| StoredBlock {
                        seq_hash: SequenceHash(hash),
                        content_hash: ContentHash(local),
                    };
                    ChainEvent::Store(worker, parent.map(SequenceHash), blocks.map(stored).collect())
                }
                Kind::Remove => {
                    ChainEvent::Remove(worker, blocks.map(|&(hash, _)| SequenceHash(hash)).collect())
                }
            }
        };
        events.iter().map(convert).collect()
    }
    fn apply(&self, events: Self::Events) {
        let mut maps = self.maps.lock().expect("not poisoned");
        for event in events {
            match event {
                ChainEvent::Store(worker, parent, blocks) => {
                    self.index
                        .apply_stored(worker, &blocks, parent, &mut maps[worker as usize])
                        .ok()
                        .expect("accepted");
                }
                ChainEvent::Remove(worker, hashes) => {
                    self.index.apply_removed(worker, &hashes, &mut maps[worker as usize]);
                }
            }
        }
    }
    fn apply_beside(&self, events: Self::Events, ask: &mut dyn FnMut()) {
        beside(self, events, ask);
    }
    fn asker(&self) -> ChainsAsker<'_> {
        ChainsAsker(self, Vec::with_capacity(1024))
    }
}

pub(crate) struct ChainsAsker<'a>(&'a Chains, Answer);

impl Ask for ChainsAsker<'_> {
    fn ask(&mut self, question: &Question) {
        self.1.clear();
        let answer = &mut self.1;
        self.0.index.score_into(
            &question.raw,
            |&local| local,
            false,
            |worker, depth| answer.push((worker, depth as u32)),
        );
    }
    fn answer(&mut self) -> Answer {
        let places = self.1.iter().map(|&(worker, depth)| {
            (self.0.workers.iter().position(|&known| known == worker).expect("known") as u32, depth)
        });
        let mut answer: Answer = places.filter(|&(_, depth)| depth > 0).collect();
        answer.sort_unstable();
        answer
    }
}

/// kvtap, one shard: its write side without payloads, since the others' events are made before the clock starts too.
pub(crate) struct Kvtap {
    pub(crate) engine: Engine,
    ingest: std::sync::Mutex<Ingest>,
}

/// Blocks fed before records are sent: about what an engine's step reports.
const SENT: usize = 128;

impl Kvtap {
    pub(crate) fn new() -> Self {
        let mut config = Config::default();
        config.shards = 1;
        let engine = Engine::new(config).expect("an engine");
        let ingest = std::sync::Mutex::new(engine.ingest(SourceConfig::new(0)).expect("a source"));
        Self { engine, ingest }
    }

    pub(crate) fn bytes(&self) -> [usize; 2] {
        [self.engine.index_bytes(), self.ingest.lock().expect("not poisoned").bytes()]
    }
}

pub(crate) struct KvtapEvents {
    events: Vec<(Worker, Kind, usize, usize)>,
    hashes: Vec<EngineHash>,
    locals: Vec<LocalHash>,
}

impl System for Kvtap {
    type Events = KvtapEvents;
    type Asker<'a> = KvtapAsker;
    fn events(&self, trace: &Trace, events: &[Event]) -> Self::Events {
        let mut made = KvtapEvents { events: Vec::new(), hashes: Vec::new(), locals: Vec::new() };
        for event in events {
            let start = made.hashes.len();
            for &(hash, local) in trace.blocks_of(event) {
                made.hashes.push(EngineHash(hash));
                made.locals.push(LocalHash(local));
            }
            let worker = Worker { worker_id: 0, dp_rank: event.worker };
            made.events.push((worker, event.kind, start, made.hashes.len()));
        }
        made
    }
    fn apply(&self, events: Self::Events) {
        let mut ingest = self.ingest.lock().expect("not poisoned");
        let mut fed = 0;
        for (worker, kind, start, end) in events.events {
            let hashes = &events.hashes[start..end];
            match kind {
                Kind::Store { parent } => {
                    let parent = parent.map(EngineHash);
                    assert!(ingest.feed_stored(worker, parent, hashes, &events.locals[start..end]));
                }
                Kind::Remove => ingest.feed_removed(worker, hashes),
            }
            fed += end - start;
            if fed >= SENT {
                fed = 0;
                ingest.feed_sent();
            }
        }
        ingest.feed_sent();
        ingest.flush();
    }
    fn apply_beside(&self, events: Self::Events, ask: &mut dyn FnMut()) {
        beside(self, events, ask);
    }
    fn asker(&self) -> KvtapAsker {
        KvtapAsker(self.engine.reader(), Vec::with_capacity(1024))
    }
}

pub(crate) struct KvtapAsker(Reader, Answer);

impl Ask for KvtapAsker {
    fn ask(&mut self, question: &Question) {
        self.1.clear();
        let answer = &mut self.1;
        self.0.for_each_match(&question.locals, Wanted::default(), |found| {
            answer.push((found.worker.dp_rank, found.depths[0]));
        });
    }
    fn answer(&mut self) -> Answer {
        let mut answer = self.1.clone();
        answer.sort_unstable();
        answer
    }
}
