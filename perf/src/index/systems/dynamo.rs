//! dynamo-kv-router: its tree behind one owner, and its concurrent indexes with one event thread each.

use std::cell::RefCell;

use dynamo_kv_router::indexer::concurrent_radix_tree_compressed::ConcurrentRadixTreeCompressed;
use dynamo_kv_router::indexer::positional::PositionalIndexer;
use dynamo_kv_router::indexer::{RadixTree, SyncIndexer, ThreadPoolIndexer};
use dynamo_kv_router::protocols::{
    ExternalSequenceBlockHash, KvCacheEvent, KvCacheEventData, KvCacheRemoveData, KvCacheStoreData,
    KvCacheStoredBlockData, LocalBlockHash, OverlapScores, RouterEvent,
};

use super::{Answer, Ask, System, beside, read, sorted};
use crate::index::workload::{Block, Event, Kind, Trace};

fn router_events(trace: &Trace, events: &[Event]) -> Vec<RouterEvent> {
    let convert = |(number, event): (u64, &Event)| {
        let data = event_data(event.kind, trace.blocks_of(event));
        RouterEvent::new(u64::from(event.worker), KvCacheEvent { event_id: number, data, dp_rank: 0 })
    };
    (0..).zip(events).map(convert).collect()
}

fn event_data(kind: Kind, blocks: &[Block]) -> KvCacheEventData {
    let stored = |block: &Block| KvCacheStoredBlockData {
        block_hash: ExternalSequenceBlockHash::from(block.engine_hash),
        tokens_hash: LocalBlockHash(block.local_hash),
        mm_extra_info: None,
    };
    match kind {
        Kind::Store { parent } => KvCacheEventData::Stored(KvCacheStoreData {
            parent_hash: parent.map(ExternalSequenceBlockHash::from),
            start_position: None,
            blocks: blocks.iter().map(stored).collect(),
        }),
        Kind::Remove => KvCacheEventData::Removed(KvCacheRemoveData {
            block_hashes: blocks
                .iter()
                .map(|block| ExternalSequenceBlockHash::from(block.engine_hash))
                .collect(),
        }),
        Kind::Clear => KvCacheEventData::Cleared,
    }
}

fn answer(scores: Option<&OverlapScores>) -> Answer {
    let scores = &scores.expect("asked").scores;
    sorted(scores.iter().map(|(worker, &depth)| (worker.worker_id as u32, depth)))
}

fn local_hashes(prompt: &[u64]) -> impl Iterator<Item = LocalBlockHash> {
    prompt.iter().map(|&local_hash| LocalBlockHash(local_hash))
}

/// No reader beside the writer.
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
        router_events(trace, events)
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

    fn read(&self, _: &[Vec<u64>], _: usize) -> Option<f64> {
        None
    }

    fn asker(&self) -> RadixAsker<'_> {
        RadixAsker { tree: &self.0, prompt: Vec::new(), scores: None }
    }
}

pub(crate) struct RadixAsker<'a> {
    tree: &'a RefCell<RadixTree>,
    prompt: Vec<LocalBlockHash>,
    scores: Option<OverlapScores>,
}

impl Ask for RadixAsker<'_> {
    fn prepare(&mut self, prompt: &[u64]) {
        self.prompt = local_hashes(prompt).collect();
    }

    fn ask(&mut self) {
        let prompt = std::mem::take(&mut self.prompt);
        self.scores = Some(self.tree.borrow().find_matches(prompt, false));
    }

    fn answer(&self) -> Answer {
        answer(self.scores.as_ref())
    }
}

/// An index that can be read beside its event thread.
pub(crate) struct Pool<T: SyncIndexer>(ThreadPoolIndexer<T>);

/// Its default.
pub(crate) type Crtc = Pool<ConcurrentRadixTreeCompressed>;

impl Crtc {
    pub(crate) fn crtc() -> Self {
        Self(ThreadPoolIndexer::new(ConcurrentRadixTreeCompressed::new(), 1, 16))
    }
}

impl Pool<PositionalIndexer> {
    pub(crate) fn positional() -> Self {
        Self(ThreadPoolIndexer::new(PositionalIndexer::new(32), 1, 16))
    }
}

impl<T: SyncIndexer> Pool<T> {
    /// Applies events as they come, and waits until they can be seen.
    pub(crate) fn apply_all(&self, events: impl IntoIterator<Item = RouterEvent>) {
        for event in events {
            self.0.enqueue_event(event).expect("accepted");
        }
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(self.0.flush_and_wait()).expect("flushed");
    }
}

impl<T: SyncIndexer> System for Pool<T> {
    type Events = Vec<RouterEvent>;
    type Asker<'a>
        = PoolAsker<'a, T>
    where
        T: 'a;

    fn events(&self, trace: &Trace, events: &[Event]) -> Self::Events {
        router_events(trace, events)
    }

    fn apply(&self, events: Self::Events) {
        self.apply_all(events);
    }

    fn apply_beside(&self, events: Self::Events, ask: &mut dyn FnMut()) {
        beside(self, events, ask);
    }

    fn read(&self, prompts: &[Vec<u64>], threads: usize) -> Option<f64> {
        Some(read(self, prompts, threads))
    }

    fn asker(&self) -> PoolAsker<'_, T> {
        PoolAsker { index: self.0.backend(), prompt: Vec::new(), scores: None }
    }
}

pub(crate) struct PoolAsker<'a, T> {
    index: &'a T,
    prompt: Vec<LocalBlockHash>,
    scores: Option<OverlapScores>,
}

impl<T: SyncIndexer> Ask for PoolAsker<'_, T> {
    fn prepare(&mut self, prompt: &[u64]) {
        self.prompt.clear();
        self.prompt.extend(local_hashes(prompt));
    }

    fn ask(&mut self) {
        self.scores = Some(self.index.find_matches(&self.prompt, false));
    }

    fn answer(&self) -> Answer {
        answer(self.scores.as_ref())
    }
}
