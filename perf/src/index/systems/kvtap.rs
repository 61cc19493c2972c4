//! kvtap, one shard: its write side without payloads, since the others' events are made before the clock starts too.

use std::sync::Mutex;

use kvtap::{Config, Engine, EngineHash, Ingest, LocalHash, Match, Reader, SourceConfig, Wanted, Worker};

use super::{Answer, Ask, System, beside, read, sorted};
use crate::index::workload::{Event, Kind, Trace};

/// Blocks fed before records are sent: about what an engine's step reports.
const SENT: usize = 128;

pub(crate) struct Kvtap {
    engine: Engine,
    ingest: Mutex<Ingest>,
}

impl Kvtap {
    pub(crate) fn new() -> Self {
        let mut config = Config::default();
        config.shards = 1;
        let engine = Engine::new(config).expect("an engine");
        let ingest = Mutex::new(engine.ingest(SourceConfig::new(0)).expect("a source"));
        Self { engine, ingest }
    }

    /// Bytes of the shard and of the engine-hash maps, by its own count.
    pub(crate) fn bytes(&self) -> [usize; 2] {
        [self.engine.index_bytes(), self.ingest.lock().expect("not poisoned").bytes()]
    }
}

pub(crate) struct KvtapEvents {
    /// The last number is where its blocks end.
    events: Vec<(Worker, Kind, usize)>,
    engine_hashes: Vec<EngineHash>,
    local_hashes: Vec<LocalHash>,
}

impl System for Kvtap {
    type Events = KvtapEvents;
    type Asker<'a> = KvtapAsker;

    fn events(&self, trace: &Trace, events: &[Event]) -> Self::Events {
        let mut made =
            KvtapEvents { events: Vec::new(), engine_hashes: Vec::new(), local_hashes: Vec::new() };
        for event in events {
            for block in trace.blocks_of(event) {
                made.engine_hashes.push(EngineHash(block.engine_hash));
                made.local_hashes.push(LocalHash(block.local_hash));
            }
            let worker = Worker { worker_id: 0, dp_rank: event.worker };
            made.events.push((worker, event.kind, made.engine_hashes.len()));
        }
        made
    }

    fn apply(&self, events: Self::Events) {
        let mut ingest = self.ingest.lock().expect("not poisoned");
        let (mut start, mut sent) = (0, 0);
        for (worker, kind, end) in events.events {
            let engine_hashes = &events.engine_hashes[start..end];
            match kind {
                Kind::Store { parent } => {
                    let local_hashes = &events.local_hashes[start..end];
                    let parent = parent.map(EngineHash);
                    assert!(ingest.feed_stored(worker, parent, engine_hashes, local_hashes));
                }
                Kind::Remove => ingest.feed_removed(worker, engine_hashes),
                Kind::Clear => ingest.feed_cleared(worker),
            }
            start = end;
            if end - sent >= SENT {
                sent = end;
                ingest.feed_sent();
            }
        }
        ingest.feed_sent();
        ingest.flush();
    }

    fn apply_beside(&self, events: Self::Events, ask: &mut dyn FnMut()) {
        beside(self, events, ask);
    }

    fn read(&self, prompts: &[Vec<u64>], threads: usize) -> Option<f64> {
        Some(read(self, prompts, threads))
    }

    fn asker(&self) -> KvtapAsker {
        KvtapAsker { reader: self.engine.reader(), prompt: Vec::new(), found: Vec::with_capacity(1024) }
    }
}

/// Asks through the callback, as `kv-index` is asked.
pub(crate) struct KvtapAsker {
    reader: Reader,
    prompt: Vec<LocalHash>,
    found: Answer,
}

fn prepare(prompt: &[u64], local_hashes: &mut Vec<LocalHash>) {
    local_hashes.clear();
    local_hashes.extend(prompt.iter().map(|&local_hash| LocalHash(local_hash)));
}

impl Ask for KvtapAsker {
    fn prepare(&mut self, prompt: &[u64]) {
        prepare(prompt, &mut self.prompt);
    }

    fn ask(&mut self) {
        let found = &mut self.found;
        found.clear();
        self.reader.for_each_match(&self.prompt, Wanted::default(), |one| {
            found.push((one.worker.dp_rank, one.depths[0]));
        });
    }

    fn answer(&self) -> Answer {
        sorted(self.found.iter().copied())
    }
}

/// The same index, asked for a vector of whole matches.
pub(crate) struct KvtapVec<'k>(pub(crate) &'k Kvtap);

impl System for KvtapVec<'_> {
    type Events = ();
    type Asker<'a>
        = VecAsker
    where
        Self: 'a;

    fn events(&self, _: &Trace, _: &[Event]) {}

    fn apply(&self, (): ()) {}

    fn apply_beside(&self, (): (), _: &mut dyn FnMut()) {}

    fn read(&self, prompts: &[Vec<u64>], threads: usize) -> Option<f64> {
        Some(read(self, prompts, threads))
    }

    fn asker(&self) -> VecAsker {
        VecAsker { reader: self.0.engine.reader(), prompt: Vec::new(), matches: Vec::with_capacity(1024) }
    }

    fn is_fed(&self) -> bool {
        false
    }
}

pub(crate) struct VecAsker {
    reader: Reader,
    prompt: Vec<LocalHash>,
    matches: Vec<Match>,
}

impl Ask for VecAsker {
    fn prepare(&mut self, prompt: &[u64]) {
        prepare(prompt, &mut self.prompt);
    }

    fn ask(&mut self) {
        self.reader.find_local_matches(&self.prompt, &mut self.matches);
    }

    fn answer(&self) -> Answer {
        sorted(self.matches.iter().map(|found| (found.worker.dp_rank, found.depths[0])))
    }
}
