//! Which holder is which: by a look at all of them where they are few, by an index of the writer's own where they are many, so
//! that no change costs more the more ranks hold a prompt, or the more holes they have in it.

use std::collections::BTreeMap;

use ahash::RandomState;

use super::memory::Line;
use super::run::{HOLDER_COUNTS, Holder, IS_UNEVEN, OFFSET, Run, high, low};
use crate::ids::Tier;
use crate::placement::{Lane, Slot};
use crate::rare::Rare;
use crate::sync::{AtomicU64, Ordering};

/// Places of a run up to which all are looked at: that takes about as long as to ask an index. With debug assertions fewer, so that
/// tests and fuzzing reach both.
const FEW: usize = if cfg!(debug_assertions) { 4 } else { 64 };

/// The runs of a shard that have many holders.
#[derive(Debug)]
pub(super) struct Crowds(Rare<Line, Crowd>);

#[derive(Debug, Default)]
struct Crowd {
    /// Places by lane and start; what a lane holds does not overlap.
    places: BTreeMap<(u32, u32), u32>,
    free: Vec<u32>,
    /// Places that may be looked at before that costs more than what was done since the last look.
    credit: usize,
    /// The run may be longer than need be.
    is_long: bool,
}

/// A holder and its place.
pub(super) type Found = (usize, Holder);

/// What a lane holds of a run around an offset.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Around {
    /// Covers it.
    pub(super) at: Option<Found>,
    /// Ends there.
    pub(super) before: Option<Found>,
    /// Begins after it.
    pub(super) after: Option<Found>,
    /// There is some holder of this lane.
    pub(super) is_known: bool,
}

impl Crowds {
    pub(super) fn new(hasher: &RandomState) -> Self {
        Self(Rare::new(hasher))
    }

    /// What a lane holds around an offset.
    #[inline]
    pub(super) fn around(&self, run: Run<'_>, lane: Lane, offset: u32) -> Around {
        let holders = run.holders();
        if holders.len() > FEW {
            let crowd = self.0.get(&run.line);
            return crowd.map_or_else(Around::default, |crowd| crowd.around(holders, lane, offset));
        }
        let mut around = Around::default();
        let is_even = low(run.load(HOLDER_COUNTS)) & IS_UNEVEN == 0;
        for (place, word) in holders.iter().enumerate() {
            let Some(holder) = Holder::own(word).filter(|holder| holder.lane == lane) else { continue };
            around.add((place, holder), offset);
            // In an even run a lane has one.
            if is_even || around.at.is_some() {
                break;
            }
        }
        around
    }

    /// The holder by which a lane holds a block.
    #[inline]
    pub(super) fn covering(&self, run: Run<'_>, lane: Lane, offset: u32) -> Option<Found> {
        let holders = run.holders();
        if holders.len() > FEW {
            let crowd = self.0.get(&run.line)?;
            return crowd.at_or_before(holders, lane, offset).filter(|(_, holder)| holder.covers(offset));
        }
        let covers = |holder: &Holder| holder.lane == lane && holder.covers(offset);
        holders.iter().enumerate().find_map(|(place, word)| Some((place, Holder::own(word).filter(covers)?)))
    }

    /// The tiers at which a slot holds a block, by number.
    pub(super) fn tiers(&self, run: Run<'_>, slot: Slot, offset: u32) -> [bool; 4] {
        let holders = run.holders();
        if holders.len() > FEW {
            return Tier::ALL.map(|tier| self.covering(run, slot.lane(tier), offset).is_some());
        }
        let mut tiers = [false; 4];
        for holder in holders.iter().filter_map(Holder::own) {
            if holder.lane.slot() == slot && holder.covers(offset) {
                tiers[holder.lane.tier_index()] = true;
            }
        }
        tiers
    }

    /// A place without a holder.
    #[inline]
    pub(super) fn free_place(&mut self, run: Run<'_>) -> Option<usize> {
        let holders = run.holders();
        if holders.len() > FEW {
            return Some(self.0.get_mut(&run.line)?.free.pop()? as usize);
        }
        holders.iter().position(|word| word.load(Ordering::Relaxed) == 0)
    }

    /// A holder has been added.
    #[inline]
    pub(super) fn add(&mut self, run: Run<'_>, place: usize, holder: Holder) {
        if run.holders().len() > FEW {
            match self.0.get_mut(&run.line) {
                Some(crowd) => crowd.add(place, holder),
                None => self.build(run),
            }
        }
    }

    /// A holder begins elsewhere than before.
    #[inline]
    pub(super) fn move_start(&mut self, run: Run<'_>, place: usize, old: Holder, start: u32) {
        if run.holders().len() > FEW
            && let Some(crowd) = self.0.get_mut(&run.line)
        {
            crowd.places.remove(&key(old));
            crowd.add(place, Holder { start, ..old });
        }
    }

    /// A place has become free.
    #[inline]
    pub(super) fn free(&mut self, run: Run<'_>, place: usize, old: Holder) {
        if run.holders().len() > FEW
            && let Some(crowd) = self.0.get_mut(&run.line)
        {
            crowd.places.remove(&key(old));
            crowd.free.push(place as u32);
        }
    }

    /// Makes the index of a run anew, or none if it has few places.
    pub(super) fn build(&mut self, run: Run<'_>) {
        let holders = run.holders();
        if holders.len() <= FEW {
            self.0.remove(&run.line);
            return;
        }
        let crowd = self.0.get_or_insert(run.line, Crowd::default());
        // With room for no more than there are.
        (crowd.places, crowd.free) = <_>::default();
        for (place, word) in holders.iter().enumerate() {
            match Holder::own(word) {
                Some(holder) => crowd.add(place, holder),
                None => crowd.free.push(place as u32),
            }
        }
    }

    /// A run goes.
    #[inline]
    pub(super) fn remove(&mut self, run: Run<'_>) {
        if run.holders().len() > FEW {
            self.0.remove(&run.line);
        }
    }

    /// Where the last stretch of a run ends. Where holders are many this is known only after so many calls that they paid for the
    /// look; until then the run is remembered as long, and `None` told.
    pub(super) fn last_end(&mut self, run: Run<'_>) -> Option<u32> {
        let holders = run.holders();
        if high(run.load(HOLDER_COUNTS)) == 0 {
            return Some(0);
        }
        if holders.len() > FEW
            && let Some(crowd) = self.0.get_mut(&run.line)
        {
            crowd.credit += FEW;
            crowd.is_long = crowd.credit < holders.len();
            if crowd.is_long {
                return None;
            }
            crowd.credit = 0;
        }
        holders.iter().filter_map(Holder::own).map(|holder| holder.end).max()
    }

    /// Whether a run may be longer than need be.
    #[inline]
    pub(super) fn is_long(&self, run: Run<'_>) -> bool {
        run.holders().len() > FEW && self.0.get(&run.line).is_some_and(|crowd| crowd.is_long)
    }

    /// Bytes taken, about: nodes of a `BTreeMap` are two thirds full.
    pub(super) fn bytes(&self) -> usize {
        let entry = size_of::<((u32, u32), u32)>() * 2;
        let of = |crowd: &Crowd| crowd.places.len() * entry + crowd.free.capacity() * size_of::<u32>();
        self.0.bytes() + self.0.values().map(of).sum::<usize>()
    }
}

impl Crowd {
    fn add(&mut self, place: usize, holder: Holder) {
        self.places.insert(key(holder), place as u32);
    }

    fn around(&self, holders: &[AtomicU64], lane: Lane, offset: u32) -> Around {
        let mut around = Around::default();
        let next = self.places.range((lane.bits(), offset + 1)..=(lane.bits(), OFFSET)).next();
        let next = next.and_then(|(_, &place)| found(holders, place));
        for found in self.at_or_before(holders, lane, offset).into_iter().chain(next) {
            around.add(found, offset);
        }
        around
    }

    /// The last holder of a lane that begins at an offset or before it.
    fn at_or_before(&self, holders: &[AtomicU64], lane: Lane, offset: u32) -> Option<Found> {
        let (_, &place) = self.places.range((lane.bits(), 0)..=(lane.bits(), offset)).next_back()?;
        found(holders, place)
    }
}

impl Around {
    /// Takes in one more holder of the lane.
    #[inline]
    fn add(&mut self, found: Found, offset: u32) {
        let (_, holder) = found;
        self.is_known = true;
        if holder.covers(offset) {
            self.at = Some(found);
        } else if holder.end == offset {
            self.before = Some(found);
        } else if holder.start == offset + 1 {
            self.after = Some(found);
        }
    }
}

fn key(holder: Holder) -> (u32, u32) {
    (holder.lane.bits(), holder.start)
}

fn found(holders: &[AtomicU64], place: u32) -> Option<Found> {
    let place = place as usize;
    Some((place, Holder::own(holders.get(place)?)?))
}
