//! The write side of one source: payload → wire → policy → placement → channels. Data plane, but for new ranks.

use std::sync::Arc;

use ahash::RandomState;

use crate::channel::{BATCH_RECORDS, Dead, Outlet, RecordBatch};
use crate::config::{Copies, SourceConfig};
use crate::counters::Counters;
use crate::hash::digest_term;
use crate::held::{Arrangement, HeldRank, LoadError, check};
use crate::ids::{Tier, Worker};
use crate::judge::Judge;
#[cfg(feature = "bench")]
use crate::judge::Place as _;
use crate::observe::{Applied, Observer, Placement};
use crate::placement::{Chain, Op, Ordinal, Placer, Record, Scratch, Sink, Slot};
use crate::policy::Policy;
use crate::seen::Seen;
use crate::slots::Slots;
use crate::wire::{Decoder, Shape, WireError};

/// The write side of one source. Dropping it takes its blocks out of the index.
///
/// One thread handles a source's payloads in order. Records travel to the shards in batches; those of a payload are on
/// their way when `apply` returns, and visible at the latest when `flush` does.
#[derive(Debug)]
pub struct Ingest {
    config: SourceConfig,
    decoder: Decoder,
    ranks: Ranks,
    scratch: Scratch,
    counters: Counters,
    seen: Seen,
    /// Blocks of all ranks at the end of the last batch.
    blocks: usize,
    outbox: Outbox,
}

/// The ranks of a source, each with its state.
#[derive(Debug)]
pub(crate) struct Ranks {
    known: Vec<Rank>,
    /// Where the last batch's rank was found.
    last: usize,
    slots: Arc<Slots>,
    hasher: RandomState,
}

#[derive(Debug)]
struct Rank {
    worker: Worker,
    policy: Policy,
    chain: Chain,
    slot: Slot,
}

/// Records waiting to fill a batch, by shard.
#[derive(Debug)]
struct Outbox {
    outlets: Vec<Outlet>,
    batches: Vec<Filling>,
    slots: Arc<Slots>,
    back_pressure: u64,
    undelivered: u64,
}

/// A batch that is being filled, and the block that the shard will be at after it.
#[derive(Debug)]
struct Filling {
    records: RecordBatch,
    at: Option<(Slot, Ordinal)>,
}

impl Ingest {
    pub(crate) fn new(config: SourceConfig, decoder: Decoder, outlets: Vec<Outlet>, ranks: Ranks) -> Self {
        let filling = |outlet: &Outlet| Filling { records: outlet.empty_batch(), at: None };
        let batches = outlets.iter().map(filling).collect();
        let outbox =
            Outbox { outlets, batches, slots: Arc::clone(&ranks.slots), back_pressure: 0, undelivered: 0 };
        Self {
            decoder,
            ranks,
            config,
            scratch: Scratch::default(),
            counters: Counters::default(),
            seen: Seen::default(),
            blocks: 0,
            outbox,
        }
    }

    /// Applies one payload: all of its sound events, or, if the payload itself is broken, nothing.
    ///
    /// # Errors
    /// If the payload is broken: where and why. It is counted; the next payload is not affected.
    pub fn apply(&mut self, payload: &[u8]) -> Result<Applied, WireError> {
        self.apply_observed(payload, &mut ())
    }

    /// As `apply`, and lets the observer watch.
    ///
    /// # Errors
    /// As `apply`.
    pub fn apply_observed(
        &mut self,
        payload: &[u8],
        observer: &mut impl Observer,
    ) -> Result<Applied, WireError> {
        let mut batch = self.counters.batch(payload, self.decoder.read(payload))?;
        self.seen.batch(&batch);
        let dp_rank = batch.dp_rank().unwrap_or(self.config.dp_rank);
        let worker = Worker { worker_id: self.config.worker_id, dp_rank };
        let applied = Applied { worker, timestamp: batch.timestamp() };
        observer.batch(applied);
        let shards = self.outbox.outlets.len();
        while self.ranks.must_wait_for(worker, &self.config) && self.outbox.wait_for_sweeps().is_ok() {}
        let Some(rank) = self.ranks.rank(worker, &self.config, shards) else {
            self.counters.refuse(&mut batch, worker, observer);
            return Ok(applied);
        };
        let others = self.blocks.saturating_sub(rank.chain.blocks());
        rank.chain.set_blocks_max((self.config.blocks_max as usize).saturating_sub(others));
        let mut outward = Outward { outbox: &mut self.outbox, worker, observer };
        let mut judge = Judge {
            policy: &mut rank.policy,
            seen: &mut self.seen,
            place: Placer {
                chain: &mut rank.chain,
                slot: &mut rank.slot,
                scratch: &mut self.scratch,
                counters: &mut self.counters,
                sink: &mut outward,
            },
        };
        batch.for_each(|event| {
            let verdict = judge.event(event);
            judge.place.sink.observer.event(worker, event, verdict);
        });
        judge.finish();
        self.blocks = others + rank.chain.blocks();
        self.seen.unlisted(batch.unlisted_drift());
        self.outbox.send_all();
        self.counters.back_pressure = self.outbox.back_pressure;
        self.counters.undelivered_records = self.outbox.undelivered;
        Ok(applied)
    }

    /// Forgets what the engine held and announced: its blocks on every rank, its groups' kinds, its block size. For an
    /// engine that has restarted; what was counted stays.
    pub fn restart(&mut self) {
        for rank in &mut self.ranks.known {
            rank.policy = Policy::new(self.config.block_size);
            rank.chain.clear();
            rank.slot = self.outbox.replace(rank.slot, rank.worker);
        }
        self.blocks = 0;
        self.outbox.send_all();
    }

    /// Returns when everything applied before is visible to every reader.
    pub fn flush(&mut self) {
        // `apply` leaves nothing unsent. A shard that has died has applied all it ever will.
        let (Ok(()) | Err(Dead)) = self.outbox.wait();
    }

    /// What the source has brought, and what became of it.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The shapes of its events, with counts; the first 32 shapes.
    pub fn shapes(&self) -> impl Iterator<Item = (Shape, u64)> {
        self.seen.shapes()
    }

    /// What no known producer version sends, with counts: `unknown_tag:NAME`, `unknown_key:NAME`, `extra_slot:INDEX`,
    /// `unknown_envelope_field`, `negative_rank`; past the first 64, `more`.
    pub fn drift(&self) -> impl Iterator<Item = (&str, u64)> {
        self.seen.drifts()
    }

    /// Ranks whose producer uses another block size than configured: the most frequent such size, and how many events
    /// had it.
    pub fn mismatched_block_sizes(&self) -> impl Iterator<Item = (Worker, u32, u64)> {
        self.ranks.known.iter().filter_map(|rank| {
            let (block_size, events) = rank.policy.mismatched_block_size()?;
            Some((rank.worker, block_size, events))
        })
    }

    /// The ranks that have sent sound batches.
    pub fn workers(&self) -> impl ExactSizeIterator<Item = Worker> {
        self.ranks.known.iter().map(|rank| rank.worker)
    }

    /// What its ranks hold, and what was learned of them. Takes a walk over all blocks. Blocks that found no room in the index
    /// are left out.
    #[must_use]
    pub fn held(&self) -> Vec<HeldRank> {
        self.ranks.known.iter().map(|rank| self.held_by(rank)).collect()
    }

    fn held_by(&self, rank: &Rank) -> HeldRank {
        let names = rank.chain.live().map(|(_, engine_hash)| engine_hash).collect();
        let mut arrangement = Arrangement::new(names);
        for (shard, outlet) in self.outbox.outlets.iter().enumerate() {
            let named: Vec<_> = rank.chain.named(shard).collect();
            arrangement.add(&named, &outlet.blocks(rank.slot));
        }
        let (groups, has_full_block) = rank.policy.learned();
        let (groups, blocks) = (groups.to_vec(), arrangement.blocks);
        HeldRank { worker: rank.worker, groups, has_full_block, blocks }
    }

    /// Takes over what another source of the same worker held, in place of what this one does: later payloads apply as if all
    /// had been applied here. Nothing of it is counted. Until it returns, readers may see some of the blocks, or some that only
    /// lead to others.
    ///
    /// # Errors
    /// If it contradicts itself, then nothing is changed; or if a rank finds no room, then nothing is held.
    pub fn load(&mut self, ranks: &[HeldRank]) -> Result<(), LoadError> {
        check(ranks, self.config.worker_id)?;
        let blocks: usize = ranks.iter().map(|rank| rank.blocks.len()).sum();
        if blocks > self.config.blocks_max as usize {
            return Err(LoadError::blocks(blocks));
        }
        self.restart();
        let loaded = ranks.iter().try_for_each(|held| self.load_rank(held));
        if loaded.is_err() {
            self.restart();
        }
        self.blocks = self.ranks.known.iter().map(|rank| rank.chain.blocks()).sum();
        self.outbox.send_all();
        loaded
    }

    fn load_rank(&mut self, held: &HeldRank) -> Result<(), LoadError> {
        let (worker, shards) = (held.worker, self.outbox.outlets.len());
        while self.ranks.must_wait_for(worker, &self.config) && self.outbox.wait_for_sweeps().is_ok() {}
        let rank = self.ranks.rank(worker, &self.config, shards).ok_or(LoadError::ranks(worker))?;
        if !rank.policy.load(&held.groups, held.has_full_block) {
            return Err(LoadError::groups(worker));
        }
        let mut placer = Placer {
            chain: &mut rank.chain,
            slot: &mut rank.slot,
            scratch: &mut self.scratch,
            counters: &mut self.counters,
            sink: &mut Outward { outbox: &mut self.outbox, worker, observer: &mut () },
        };
        for block in &held.blocks {
            let is_loaded = placer.load(&block.known(), block.parent, block.local_hash);
            debug_assert!(is_loaded, "{block:?}");
        }
        for block in held.blocks.iter().filter(|block| !block.is_held()) {
            placer.unload(block.engine_hash, Tier::Device);
        }
        Ok(())
    }

    /// How stores count.
    #[must_use]
    pub const fn copies(&self) -> Copies {
        self.config.copies
    }

    /// How stores count from now on, as [`SourceConfig::copies`]. Copies counted before stay counted.
    pub fn set_copies(&mut self, copies: Copies) {
        self.config.copies = copies;
        self.ranks.known.iter_mut().for_each(|rank| rank.chain.set_as_set(copies == Copies::Set));
    }

    /// Live (worker, tier, engine hash) triples.
    #[must_use]
    pub fn entries(&self) -> usize {
        self.ranks.known.iter().map(|rank| rank.chain.entries()).sum()
    }

    /// Order-free digest of the live triples: the wrapping sum of a hash of each. Digests of several sources add up.
    /// Costs a hash per entry.
    #[must_use]
    pub fn digest(&self) -> u64 {
        let live = self.ranks.known.iter().flat_map(|rank| {
            rank.chain.live().map(|(tier, engine_hash)| digest_term(rank.worker, tier, engine_hash))
        });
        live.fold(0, u64::wrapping_add)
    }

    /// Bytes of its engine-hash maps.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.ranks.known.iter().map(|rank| rank.chain.bytes()).sum()
    }
}

/// For measuring: see `feed`.
#[cfg(feature = "bench")]
impl Ingest {
    /// Sends what was fed.
    #[doc(hidden)]
    pub fn feed_sent(&mut self) {
        self.feed_finished();
        self.outbox.send_all();
    }

    /// Applies removals that wait.
    fn feed_finished(&mut self) {
        if let Some(worker) = self.ranks.known.get(self.ranks.last).map(|rank| rank.worker) {
            self.feed_rank(worker, |placer| placer.finish());
        }
    }

    pub(crate) fn feed<T>(
        &mut self,
        worker: Worker,
        feed: impl FnOnce(&mut Placer<'_, Outward<'_, ()>>) -> T,
    ) -> Option<T> {
        if self.ranks.known.get(self.ranks.last).is_some_and(|rank| rank.worker != worker) {
            self.feed_finished();
        }
        self.feed_rank(worker, feed)
    }

    fn feed_rank<T>(
        &mut self,
        worker: Worker,
        feed: impl FnOnce(&mut Placer<'_, Outward<'_, ()>>) -> T,
    ) -> Option<T> {
        let shards = self.outbox.outlets.len();
        let rank = self.ranks.rank(worker, &self.config, shards)?;
        Some(feed(&mut Placer {
            chain: &mut rank.chain,
            slot: &mut rank.slot,
            scratch: &mut self.scratch,
            counters: &mut self.counters,
            sink: &mut Outward { outbox: &mut self.outbox, worker, observer: &mut () },
        }))
    }
}

impl Drop for Ingest {
    fn drop(&mut self) {
        for rank in &self.ranks.known {
            self.outbox.slots.hide(rank.slot);
            self.outbox.sweep(rank.slot);
        }
        self.outbox.send_all();
    }
}

impl Ranks {
    pub(crate) const fn new(slots: Arc<Slots>, hasher: RandomState) -> Self {
        Self { known: Vec::new(), last: 0, slots, hasher }
    }

    /// Whether a new rank has to wait until slots are swept: there is room for it, but not yet.
    fn must_wait_for(&mut self, worker: Worker, config: &SourceConfig) -> bool {
        !self.find(worker) && self.known.len() < config.ranks_max as usize && self.slots.must_wait()
    }

    /// Looks for a rank, the last batch's first; says whether it is known, and notes where.
    fn find(&mut self, worker: Worker) -> bool {
        if self.known.get(self.last).is_some_and(|rank| rank.worker == worker) {
            return true;
        }
        let found = self.known.iter().position(|rank| rank.worker == worker);
        self.last = found.unwrap_or(self.last);
        found.is_some()
    }

    fn rank(&mut self, worker: Worker, config: &SourceConfig, shards: usize) -> Option<&mut Rank> {
        if !self.find(worker) {
            self.last = self.add(worker, config, shards)?;
        }
        self.known.get_mut(self.last)
    }

    fn add(&mut self, worker: Worker, config: &SourceConfig, shards: usize) -> Option<usize> {
        if self.known.len() >= config.ranks_max as usize {
            return None;
        }
        let slot = self.slots.take(worker)?;
        let policy = Policy::new(config.block_size);
        let chain = Chain::new(config.copies == Copies::Set, shards, &self.hasher);
        self.known.push(Rank { worker, policy, chain, slot });
        Some(self.known.len() - 1)
    }
}

/// Where placement's output goes: records to the shards, placements to the observer.
pub(crate) struct Outward<'a, O> {
    outbox: &'a mut Outbox,
    worker: Worker,
    observer: &'a mut O,
}

impl<O: Observer> Sink for Outward<'_, O> {
    #[inline]
    fn record(&mut self, shard: usize, record: Record) {
        self.outbox.push(shard, record);
    }

    #[inline]
    fn store(&mut self, shard: usize, after: Option<Ordinal>, record: Record) {
        self.outbox.push_store(shard, after, record);
    }

    #[inline]
    fn is_watched(&self) -> bool {
        self.observer.is_watching()
    }

    fn clear(&mut self, slot: Slot) -> Slot {
        self.outbox.replace(slot, self.worker)
    }

    #[inline]
    fn placement(&mut self, placement: Placement) {
        self.observer.placement(self.worker, placement);
    }
}

impl Outbox {
    #[inline]
    fn push(&mut self, shard: usize, record: Record) {
        let filling = &mut self.batches[shard];
        if record.op() == Op::Hold {
            filling.at = Some((record.lane().slot(), record.ordinal));
        }
        filling.records.push(record);
        if filling.records.len() >= BATCH_RECORDS {
            self.send(shard);
        }
    }

    /// A stored block; first says what it follows, unless the shard will be there.
    #[inline]
    fn push_store(&mut self, shard: usize, after: Option<Ordinal>, record: Record) {
        let (lane, filling) = (record.lane(), &mut self.batches[shard]);
        if after.is_none() || filling.at != after.map(|after| (lane.slot(), after)) {
            let is_first = u64::from(after.is_none());
            filling.records.push(Record::new(Op::After, lane, after.unwrap_or(Ordinal::NONE), is_first));
        }
        filling.at = Some((lane.slot(), record.ordinal));
        self.push(shard, record);
    }

    /// Tells every shard that a slot is gone.
    fn sweep(&mut self, slot: Slot) {
        let record = Record::new(Op::Sweep, slot.lane(Tier::Device), Ordinal::NONE, 0);
        (0..self.batches.len()).for_each(|shard| self.push(shard, record));
    }

    /// Drops every block of a slot. Gives the one in which the worker goes on.
    fn replace(&mut self, slot: Slot, worker: Worker) -> Slot {
        loop {
            if let Some(other) = self.slots.exchange(slot, worker) {
                self.sweep(slot);
                return other;
            }
            if self.wait_for_sweeps().is_err() {
                // None will be free again; rather unseen than with blocks that are gone.
                self.slots.hide(slot);
                return slot;
            }
        }
    }

    /// Clears come faster than shards sweep: as full a channel as any. An error if one of them sweeps no more.
    fn wait_for_sweeps(&mut self) -> Result<(), Dead> {
        self.back_pressure += 1;
        self.send_all();
        self.wait()
    }

    fn send(&mut self, shard: usize) {
        let (outlet, filling) = (&self.outlets[shard], &mut self.batches[shard]);
        // A shard takes up no batch where another left off.
        filling.at = None;
        let full = std::mem::replace(&mut filling.records, outlet.empty_batch());
        let records = full.len() as u64;
        match outlet.send(full) {
            Ok(has_waited) => self.back_pressure += u64::from(has_waited),
            Err(Dead) => self.undelivered += records,
        }
    }

    fn send_all(&mut self) {
        for shard in 0..self.batches.len() {
            if !self.batches[shard].records.is_empty() {
                self.send(shard);
            }
        }
    }

    /// Waits until all that was sent has been applied. An error if a shard has died.
    fn wait(&self) -> Result<(), Dead> {
        let (sign, signs) = crossbeam_channel::bounded(0);
        let mut asked = Ok(());
        for outlet in &self.outlets {
            asked = asked.and(outlet.flush(sign.clone()));
        }
        drop(sign);
        // Shards answer by dropping their sign; the channel is disconnected when all have.
        let disconnected = signs.recv();
        debug_assert!(disconnected.is_err());
        asked
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::channel;
    use crate::wire::DigestHalf;

    /// Its thread ends only by a defect; then every change that it misses is counted, and nobody waits for it.
    #[test]
    fn changes_for_a_shard_that_has_died_are_counted() {
        let (outlet, inlet) = channel();
        drop(inlet);
        let ranks = Ranks::new(Arc::new(Slots::new(1)), RandomState::with_seeds(1, 2, 3, 4));
        let config = SourceConfig { block_size: 1, ..SourceConfig::new(1) };
        let mut ingest = Ingest::new(config, Decoder::new(DigestHalf::Low), vec![outlet], ranks);
        // One store of two blocks, a token each.
        let payload = b"\x92\x01\x91\x95\xabBlockStored\x92\x01\x02\xc0\x92\x05\x06\x01";
        ingest.apply(payload).expect("sound");
        ingest.flush();
        let (placed, undelivered) = (ingest.counters.placed_blocks, ingest.counters.undelivered_records);
        assert_eq!((placed, undelivered), (2, 3), "two blocks, and where they begin");
        assert!(ingest.held().iter().all(|rank| rank.blocks.is_empty()));
        ingest.apply(b"\x92\x01\x91\x91\xb0AllBlocksCleared").expect("sound");
        assert_eq!(ingest.counters.undelivered_records, 4, "a sweep more");
    }

    /// It never gives a slot back; whoever is cleared again and again has none in the end, and is not waited for.
    #[test]
    fn a_worker_that_a_dead_shard_cannot_forget_is_hidden() {
        let (outlet, inlet) = channel();
        drop(inlet);
        let slots = Arc::new(Slots::new(1));
        let ranks = Ranks::new(Arc::clone(&slots), RandomState::with_seeds(1, 2, 3, 4));
        let config = SourceConfig { block_size: 1, ..SourceConfig::new(1) };
        let mut ingest = Ingest::new(config, Decoder::new(DigestHalf::Low), vec![outlet], ranks);
        for _ in 0..Slot::COUNT + 2 {
            // There must be something to clear.
            ingest.apply(b"\x92\x01\x91\x95\xabBlockStored\x91\x01\xc0\x91\x05\x01").expect("sound");
            ingest.apply(b"\x92\x01\x91\x91\xb0AllBlocksCleared").expect("sound");
        }
        assert!(slots.must_wait());
        assert_eq!(slots.worker(ingest.ranks.known[0].slot), None);
        // Nor is it for others.
        ingest.apply(b"\x93\x01\x90\x07").expect("sound");
        assert_eq!(ingest.workers().len(), 1);
    }
}
