//! Records → runs: the one writer of a shard.
//!
//! What readers may rely on (the rest is in `query/walk.rs`): something is written before the link to it; whatever takes
//! something away (a part of a holder's stretch, a run's last blocks) raises the run's version before and after, and nothing
//! that follows from it is written before the second; lines are used again only when no reader can have a link to them.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use ahash::RandomState;

use super::locations::{Location, Locations};
use super::memory::Line;
use super::run::{HOLDER_COUNTS, Holder, IS_UNEVEN, ROOT, Run, low};
use super::runs::{Position, Runs};
use super::version;
use super::{Common, Shared};
use crate::epoch::Pins;
use crate::ids::{LocalHash, Tier};
use crate::placement::{Lane, Op, Ordinal, Placed, Record, Slot};
use crate::rare::Rare;
use crate::slots::Slots;
use crate::sync::{AtomicU64, Ordering};

/// Blocks swept between two batches.
const SWEEP_BLOCKS: usize = 1024;

/// The writer of one shard.
#[derive(Debug)]
pub(super) struct Writer {
    runs: Runs,
    shared: Arc<Shared>,
    /// By slot.
    locations: Vec<Locations>,
    /// Blocks that a lane holds under several engine hashes, and how many more than one.
    twins: Rare<(Location, Lane), u32>,
    /// The same of a slot, at whichever tiers: its ordinals of one block. The last one's is the block's.
    namesakes: Rare<(Location, Slot), u32>,
    /// Where the next stored block goes.
    cursor: Option<Position>,
    hand: Hand,
    sweeps: VecDeque<Slot>,
    /// Swept before the epoch of each; readers may still know what they stood for.
    swept: Vec<(u64, Slot)>,
    pins: Arc<Pins>,
    slots: Arc<Slots>,
}

/// The holder that was last changed: mostly the next to be.
#[derive(Clone, Copy, Debug)]
struct Hand {
    run: Line,
    lane: Lane,
    index: usize,
}

impl Writer {
    pub(super) fn new(common: Common) -> Self {
        let runs = Runs::new(&common);
        let Common { pins, slots, hasher, .. } = common;
        Self {
            shared: Arc::new(Shared::new(Arc::clone(runs.arena.memory()))),
            runs,
            locations: Vec::new(),
            twins: Rare::new(&hasher),
            namesakes: Rare::new(&hasher),
            cursor: None,
            hand: Hand { run: ROOT, lane: Lane::from_bits(0), index: 0 },
            sweeps: VecDeque::new(),
            swept: Vec::new(),
            pins,
            slots,
        }
    }

    pub(super) const fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Applies records of one source, in order. What the first stored block follows is among them.
    pub(super) fn apply(&mut self, batch: &[Record]) {
        self.cursor = None;
        for &record in batch {
            self.apply_one(record);
        }
    }

    #[inline]
    fn apply_one(&mut self, record: Record) {
        let (lane, ordinal) = (record.lane(), record.ordinal);
        match record.op() {
            Op::After if record.value > 0 => self.cursor = Some(Position { run: ROOT, offset: 0 }),
            Op::After => self.cursor = self.locate(lane.slot(), ordinal).map(|(_, at)| at.next()),
            Op::Store => self.store(lane, ordinal, LocalHash(record.value)),
            Op::Hold => {
                let located = self.locate(lane.slot(), ordinal);
                self.cursor = located.map(|(_, at)| at.next());
                if let Some((location, at)) = located {
                    self.cover(lane, location, at);
                }
            }
            Op::Drop => {
                if let Some((location, at)) = self.locate(lane.slot(), ordinal) {
                    self.uncover(lane, location, at);
                }
            }
            Op::Forget => {
                if let Some((location, at)) = self.locate(lane.slot(), ordinal) {
                    self.uncover(lane, location, at);
                    self.locations[lane.slot().index()].remove(ordinal);
                    self.forget_namesake(lane.slot(), location);
                }
            }
            Op::Sweep => self.sweeps.push_back(lane.slot()),
        }
    }

    fn locate(&self, slot: Slot, ordinal: Ordinal) -> Option<(Location, Position)> {
        let location = self.locations.get(slot.index())?.get(ordinal)?;
        Some((location, self.runs.position(location)?))
    }

    fn store(&mut self, lane: Lane, ordinal: Ordinal, block: LocalHash) {
        let after = self.cursor.filter(|_| ordinal != Ordinal::NONE);
        let Some((location, at)) = after.and_then(|after| self.runs.place(after, block)) else {
            // Nothing can follow it either.
            self.cursor = None;
            self.shared.refuse(1);
            return;
        };
        let slot = lane.slot().index();
        if self.locations.len() <= slot {
            self.locations.resize_with(slot + 1, Locations::default);
        }
        self.locations[slot].set(ordinal, location);
        let is_tiered = self.locations[slot].is_tiered || lane.tier_index() > 0;
        let has_namesake = is_tiered && self.tiers(lane.slot(), at).contains(&true);
        if self.cover(lane, location, at) || has_namesake {
            *self.namesakes.get_or_insert((location, lane.slot()), 0) += 1;
        }
        self.cursor = Some(at.next());
    }

    /// The tiers at which a slot holds a block, by number.
    fn tiers(&self, slot: Slot, at: Position) -> [bool; 4] {
        self.runs.run(at.run).map_or([false; 4], |run| self.runs.crowds.tiers(run, slot, at.offset))
    }

    /// One ordinal fewer of a block; says whether there are others.
    fn forget_namesake(&mut self, slot: Slot, location: Location) -> bool {
        if self.namesakes.is_empty() {
            return false;
        }
        let Some(more) = self.namesakes.get_mut(&(location, slot)) else { return false };
        *more -= 1;
        if *more == 0 {
            self.namesakes.remove(&(location, slot));
        }
        true
    }

    /// A lane holds a block under one more name; says whether it did already.
    fn cover(&mut self, lane: Lane, location: Location, at: Position) -> bool {
        let Some(locations) = self.locations.get_mut(lane.slot().index()) else { return false };
        locations.is_tiered |= lane.tier_index() > 0;
        if !locations.is_tiered {
            return self.add_name(lane, location, at);
        }
        // The four depths of an answer are of one moment: a reader that saw less at one tier must not see this beside it, nor one
        // that does not see this what follows.
        self.shared.give_way();
        self.raise_version(at.run);
        let was_covered = self.add_name(lane, location, at);
        self.raise_version(at.run);
        was_covered
    }

    fn raise_version(&self, run: Line) {
        if let Some(run) = self.runs.run(run) {
            version::raise(run.state_word());
        }
    }

    fn add_name(&mut self, lane: Lane, location: Location, at: Position) -> bool {
        let Some(run) = self.runs.run(at.run) else { return false };
        let holders = run.holders();
        let is_even = low(run.load(HOLDER_COUNTS)) & IS_UNEVEN == 0;
        if is_even
            && (self.hand.run, self.hand.lane) == (at.run, lane)
            && let Some(word) = holders.get(self.hand.index)
            && let Some(holder) = Holder::own(word)
            && (holder.lane, holder.end) == (lane, at.offset)
        {
            set(word, Holder { end: at.offset + 1, ..holder });
            return false;
        }
        let around = self.runs.crowds.around(run, lane, at.offset);
        if around.at.is_some() {
            *self.twins.get_or_insert((location, lane), 0) += 1;
            return true;
        }
        match (around.before, around.after) {
            (Some((index, holder)), None) => {
                set(&holders[index], Holder { end: at.offset + 1, ..holder });
                self.hand = Hand { run: at.run, lane, index };
            }
            (None, Some((index, holder))) => {
                set(&holders[index], Holder { start: at.offset, ..holder });
                self.runs.move_start(at.run, index, holder, at.offset);
            }
            (Some((index, holder)), Some((other, rest))) => {
                set(&holders[index], Holder { end: rest.end, ..holder });
                self.shared.give_way();
                version::change(run.state_word(), || holders[other].store(0, Ordering::Release));
                let is_long = self.runs.crowds.is_long(run);
                self.runs.free_holder(at.run, other, rest);
                if is_long {
                    self.runs.shrink(at.run);
                }
            }
            (None, None) => {
                if around.is_known || at.offset > 0 {
                    set_uneven(run);
                }
                let holder = Holder { lane, start: at.offset, end: at.offset + 1 };
                match self.runs.add_holder(at.run, holder) {
                    Some(index) => self.hand = Hand { run: at.run, lane, index },
                    None => self.shared.refuse(1),
                }
            }
        }
        false
    }

    /// A lane holds a block under one name fewer.
    fn uncover(&mut self, lane: Lane, location: Location, at: Position) {
        if !self.twins.is_empty()
            && let Some(more) = self.twins.get_mut(&(location, lane))
        {
            *more -= 1;
            if *more == 0 {
                self.twins.remove(&(location, lane));
            }
            return;
        }
        let Some(run) = self.runs.run(at.run) else { return };
        let holders = run.holders();
        let covers = |word: &AtomicU64| {
            Holder::own(word).filter(|holder| holder.lane == lane && holder.covers(at.offset))
        };
        let in_hand = holders.get(self.hand.index).and_then(covers).map(|holder| (self.hand.index, holder));
        let search = || self.runs.crowds.covering(run, lane, at.offset);
        let Some((index, holder)) = in_hand.or_else(search) else { return };
        let (is_first, is_last) = (holder.start == at.offset, holder.end == at.offset + 1);
        if !is_last {
            set_uneven(run);
        }
        if !is_first && !is_last {
            let rest = Holder { start: at.offset + 1, ..holder };
            if self.runs.add_holder(at.run, rest).is_none() {
                self.shared.refuse(rest.end - rest.start);
            }
        }
        let left = match (is_first, is_last) {
            (true, true) => 0,
            (true, false) => Holder { start: at.offset + 1, ..holder }.word(),
            (false, _) => Holder { end: at.offset, ..holder }.word(),
        };
        self.shared.give_way();
        // The holders may have moved, each to the same place.
        let Some(run) = self.runs.run(at.run) else { return };
        let Some(word) = run.holders().get(index) else { return };
        version::change(run.state_word(), || word.store(left, Ordering::Release));
        self.hand = Hand { run: at.run, lane, index };
        let is_shorter = at.offset + 1 == run.state().length || self.runs.crowds.is_long(run);
        match (is_first, is_last) {
            (true, true) => self.runs.free_holder(at.run, index, holder),
            (true, false) => self.runs.move_start(at.run, index, holder, at.offset + 1),
            (false, _) => {}
        }
        if is_shorter {
            self.runs.shrink(at.run);
        }
    }

    /// Whether there are slots to sweep.
    pub(super) fn has_sweeps(&self) -> bool {
        !self.sweeps.is_empty()
    }

    /// Takes some blocks of a slot that is gone out of the index; nobody sees them any more.
    pub(super) fn sweep(&mut self) {
        let Some(&slot) = self.sweeps.front() else { return };
        for _ in 0..SWEEP_BLOCKS {
            let Some(location) = self.locations.get_mut(slot.index()).and_then(Locations::pop) else {
                if let Some(locations) = self.locations.get_mut(slot.index()) {
                    *locations = Locations::default();
                }
                self.sweeps.pop_front();
                self.swept.push((self.pins.advance(), slot));
                break;
            };
            // The block must stay where it is until its last ordinal is taken out.
            if !self.forget_namesake(slot, location) {
                self.sweep_block(slot, location);
            }
        }
        self.free_slots();
    }

    fn sweep_block(&mut self, slot: Slot, location: Location) {
        let Some(at) = self.runs.position(location) else { return };
        let held = self.tiers(slot, at);
        // The block stays until the last of these.
        for tier in Tier::ALL.into_iter().filter(|tier| held[tier.index()]) {
            let lane = slot.lane(tier);
            if !self.twins.is_empty() {
                self.twins.remove(&(location, lane));
            }
            self.uncover(lane, location, at);
        }
    }

    /// Frees slots that no reader can know any more.
    fn free_slots(&mut self) {
        if self.swept.is_empty() {
            return;
        }
        let oldest = self.pins.oldest();
        for (_, slot) in self.swept.extract_if(.., |&mut (epoch, _)| epoch < oldest) {
            self.slots.swept(slot);
        }
    }

    /// Finishes everything that waits, as far as readers allow.
    pub(super) fn settle(&mut self) {
        while self.has_sweeps() {
            self.sweep();
        }
        self.rest();
    }

    /// Gives back memory as far as readers allow, and tells how much is left.
    pub(super) fn rest(&mut self) {
        self.free_slots();
        self.runs.arena.give_back();
        self.tell_bytes();
    }

    /// Every block of a slot, and those it does not hold that lead to one: these have no ordinal.
    pub(super) fn blocks(&self, slot: Slot) -> Vec<Placed> {
        let look = |ordinal, location: Location| {
            let (local_hash, before) = self.runs.look(location)?;
            Some((
                Placed { ordinal, at: location.bits(), before: before.map(Location::bits), local_hash },
                before,
            ))
        };
        let locations = self.locations.get(slot.index()).into_iter().flat_map(Locations::iter);
        let (mut placed, mut befores): (Vec<_>, Vec<_>) =
            locations.filter_map(|(ordinal, location)| look(ordinal, location)).unzip();
        let mut known: HashSet<u32, _> = HashSet::with_hasher(RandomState::new());
        known.extend(placed.iter().map(|placed| placed.at));
        while let Some(before) = befores.pop() {
            if let Some(before) = before
                && known.insert(before.bits())
                && let Some((found, more)) = look(Ordinal::NONE, before)
            {
                placed.push(found);
                befores.push(more);
            }
        }
        placed
    }

    /// Tells others how much memory the shard takes.
    pub(super) fn tell_bytes(&self) {
        let locations: usize = self.locations.iter().map(Locations::bytes).sum();
        let lists = self.locations.capacity() * size_of::<Locations>();
        let runs = self.runs.arena.bytes() + self.runs.crowds.bytes();
        self.shared.set_bytes(runs + self.twins.bytes() + self.namesakes.bytes() + locations + lists);
    }
}

#[inline]
fn set(word: &AtomicU64, holder: Holder) {
    word.store(holder.word(), Ordering::Release);
}

fn set_uneven(run: Run<'_>) {
    run.store(HOLDER_COUNTS, run.load(HOLDER_COUNTS) | u64::from(IS_UNEVEN));
}

#[cfg(test)]
mod tests {
    use super::super::run::{CHILD_COUNTS, high};
    use super::*;
    use crate::hash::PageKey;

    /// Few enough that a run's length is not looked at with each removal.
    const SLOTS: usize = 20;

    fn writer() -> Writer {
        Writer::new(Common {
            pins: Arc::new(Pins::new()),
            slots: Arc::new(Slots::new(1)),
            hasher: RandomState::new(),
            page_key: PageKey::new(1),
            shard_bytes: 1 << 30,
        })
    }

    fn record(op: Op, slot: usize, block: u32) -> Record {
        let lane = Slot::new(slot).expect("few").lane(Tier::Device);
        Record::new(op, lane, Ordinal(block), u64::from(block) + 1)
    }

    #[test]
    fn a_run_that_many_hold_is_shortened_as_they_leave_it() {
        let mut writer = writer();
        for slot in 0..SLOTS {
            let stores = (0..if slot == 0 { 10 } else { 100 }).map(|block| record(Op::Store, slot, block));
            writer.apply(&std::iter::once(record(Op::After, slot, 0)).chain(stores).collect::<Vec<_>>());
        }
        let (_, first) = writer.locate(Slot::new(0).expect("few"), Ordinal(0)).expect("held");
        let length = |writer: &Writer| writer.runs.run(first.run).expect("a run").state().length;
        assert_eq!(length(&writer), 100);
        for block in (10..100).rev() {
            (1..SLOTS).for_each(|slot| writer.apply(&[record(Op::Forget, slot, block)]));
            // One of them may have been the last to pay for a look.
            assert!((block..=block + 1).contains(&length(&writer)), "{} at {block}", length(&writer));
        }
        let rest = |slot| (0..10).map(move |block| record(Op::Forget, slot, block));
        writer.apply(&(1..SLOTS).flat_map(rest).collect::<Vec<_>>());
        assert_eq!(length(&writer), 10);
        writer.apply(&rest(0).collect::<Vec<_>>());
        assert!(writer.locate(Slot::new(0).expect("few"), Ordinal(0)).is_none());
        assert_eq!(high(writer.runs.run(ROOT).expect("a run").load(CHILD_COUNTS)), 0);
    }
}
