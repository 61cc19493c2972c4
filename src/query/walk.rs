//! The walk along one prompt: from run to run, without locks and without waiting for the writer.
//!
//! # What an answer may rely on
//!
//! The walk notes the version of each run before it looks into it, and compares all of them at its end. The writer raises a
//! run's version before and after anything is taken away there, or added for a slot with blocks at several tiers. So:
//!
//! * Versions unchanged: between the first look at a run and the end of the walk nothing of that kind happened to it that the
//!   walk saw or that anything it saw follows from. What it saw of a worker in the runs before the last was still so when it
//!   looked at the last: one moment at which all of it was true. (What was only added meanwhile may be seen or not; the
//!   answer is then that of an earlier moment: one depth, since the slot has blocks at one tier only.)
//! * A version changed: the walk begins again. After three times the reader takes priority, and the writer waits before it
//!   changes anything more; so a walk is repeated at most a few times, however busy the writer.
//!
//! Everything a walk can reach stays in place while its reader is pinned.

use std::sync::atomic::fence;

use ahash::RandomState;

use super::{Match, Wanted};
use crate::hash::PageKey;
use crate::ids::LocalHash;
use crate::placement::Slot;
use crate::shard::memory::{Line, View};
use crate::shard::{Holder, Key, ROOT, Run, Shared};
use crate::slots::Slots;
use crate::sync::{AtomicU64, Ordering};

/// Walks that may be overtaken before the reader takes priority.
const PATIENCE: usize = 3;

/// A slot in the upper 16 bits, and a depth: as its holder said in the first run, or, marked, of all runs. 0 is nobody.
#[derive(Clone, Copy, Debug)]
struct Found(u64);

impl Found {
    /// On words that are not plain, and so on none that a holder gave.
    const MARK: u64 = 1 << 47;

    const fn slot(self) -> Slot {
        Slot::from_bits((self.0 >> 48) as u16)
    }

    /// The depth, if so many blocks of the first run match.
    #[inline]
    fn depth(self, first: u32) -> u32 {
        let depth = self.0 as u32;
        if self.0 & Self::MARK == 0 { depth.min(first) } else { depth }
    }

    const fn set_depth(&mut self, depth: u32) {
        self.0 = self.0 >> 48 << 48 | Self::MARK | depth as u64;
    }
}

/// The buffers of one reader.
#[derive(Debug)]
pub(super) struct Walk {
    /// Slots that hold the first block, and how far. While all that was met is plain, one depth is all four.
    found: Vec<Found>,
    /// The four depths of each, once something was met that is not plain; until then empty.
    depths: Vec<[u32; 4]>,
    /// Blocks of the first run that match.
    first: u32,
    /// By slot: its number in `found`, plus one.
    places: Box<[u32; Slot::COUNT]>,
    /// Empty between runs.
    stretches: Vec<Holder>,
    /// Whether `places` has been filled in.
    is_numbered: bool,
    /// Runs seen, and their versions before.
    path: Vec<(Line, u32)>,
}

impl Walk {
    pub(super) fn new() -> Self {
        Self {
            found: Vec::new(),
            depths: Vec::new(),
            first: 0,
            places: Box::new([0; Slot::COUNT]),
            stretches: Vec::new(),
            is_numbered: false,
            path: Vec::new(),
        }
    }

    /// Finds every slot that holds the first of some blocks, and how far.
    #[inline]
    pub(super) fn run(&mut self, shard: &Shared, at: Question<'_>) {
        for _ in 0..PATIENCE {
            if self.attempt(at) {
                return;
            }
        }
        let _priority = shard.take_priority();
        while !self.attempt(at) {}
    }

    /// What was found, as far as slots are not hidden by now.
    #[inline]
    pub(super) fn found(&self, slots: &Slots, mut each: impl FnMut(Match)) {
        let mut show = |found: Found, depths| {
            let (worker, is_visible) = slots.look(found.slot());
            if is_visible {
                each(Match { worker, depths });
            }
        };
        if self.depths.is_empty() {
            for &found in self.found.iter().filter(|found| found.0 > 0) {
                show(found, [found.depth(self.first); 4]);
            }
        } else {
            let found = self.found.iter().zip(&self.depths).filter(|(found, _)| found.0 > 0);
            found.for_each(|(&found, &depths)| show(found, depths));
        }
    }

    /// One walk; false if the writer took something away meanwhile.
    fn attempt(&mut self, at: Question<'_>) -> bool {
        if self.is_numbered {
            for found in &self.found {
                self.places[found.slot().index() % Slot::COUNT] = 0;
            }
            self.is_numbered = false;
        }
        self.found.clear();
        self.depths.clear();
        self.path.clear();
        let (Some(root), Some(&first)) = (Run::at(at.view, ROOT), at.blocks.first()) else { return true };
        let mut next = Key::new(at.hasher, 0, first).find(root, root.children());
        let mut position = 0;
        while let Some(run) = next {
            let (state, spine, children) = (run.state(), run.spine(), run.children());
            self.path.push((run.line, state.version));
            let rest = &at.blocks[position..];
            // In three steps, each of which asks for what the next will read.
            run.prefetch(spine, rest.len().min(state.length as usize));
            let ends = [run.last_branch(), state.length];
            at.likely_children(ends, rest).for_each(|key| key.prefetch(children));
            let pages = run.matched_pages(spine, state.length, rest, at.page_key);
            at.likely_children(ends, rest).for_each(|key| key.prefetch_child(run, children));
            let matched = run.matched_rest(spine, state.length, rest, pages);
            // What was compared was there before the holders are looked at.
            fence(Ordering::Acquire);
            let depth = Depth { position: position as u32, matched: matched as u32 };
            let reached = self.extend(run.holders(), depth, at);
            position += matched;
            next = match at.blocks.get(position) {
                Some(&after) if matched > 0 && reached > usize::from(at.wanted.leader_is_enough) => {
                    Key::new(at.hasher, matched as u32, after).find(run, children)
                }
                _ => None,
            };
        }
        // Everything above is read before the versions are looked at again.
        fence(Ordering::Acquire);
        let is_same = |&(line, version): &(Line, u32)| {
            Run::at(at.view, line).is_some_and(|run| run.state().version == version)
        };
        self.path.iter().all(is_same)
    }

    /// Counts the blocks of a run for the slots that hold them; says how many hold all of them and all before.
    #[inline]
    fn extend(&mut self, holders: &[AtomicU64], depth: Depth, at: Question<'_>) -> usize {
        let reached = if !self.depths.is_empty() {
            None
        } else if depth.position == 0 {
            self.begin(holders, depth.matched, at)
        } else {
            self.go_on(holders, depth)
        };
        reached.unwrap_or_else(|| self.extend_slowly(holders, depth, at))
    }

    /// The first run; `None` if a stretch begins inside it or lies below the device.
    #[inline]
    fn begin(&mut self, holders: &[AtomicU64], matched: u32, at: Question<'_>) -> Option<usize> {
        let mut all = 0;
        // Of known length and without a way out of the loop: a good part of a query's time goes into its answer.
        self.found.extend(holders.iter().map(|word| {
            let word = word.load(Ordering::Acquire);
            all |= word;
            Found(word)
        }));
        if !Holder::is_plain(all) {
            self.found.clear();
            return None;
        }
        if at.wanted.candidates.is_some() {
            self.found.iter_mut().filter(|found| !at.wants(found.slot())).for_each(|found| found.0 = 0);
        }
        self.first = matched;
        Some(self.found.iter().map(|found| usize::from(found.0 as u32 >= matched)).sum())
    }

    /// Notes where each slot's depth is.
    fn number(&mut self) {
        if !self.is_numbered {
            for (number, found) in (1_u32..).zip(&self.found).filter(|(_, found)| found.0 > 0) {
                self.places[found.slot().index() % Slot::COUNT] = number;
            }
            self.is_numbered = true;
        }
    }

    #[inline]
    fn place(&self, slot: Slot) -> usize {
        (self.places[slot.index() % Slot::COUNT] as usize).wrapping_sub(1)
    }

    /// A later run; `None` as in `begin`.
    #[inline]
    fn go_on(&mut self, holders: &[AtomicU64], depth: Depth) -> Option<usize> {
        self.number();
        let mut reached = 0;
        for word in holders {
            let word = word.load(Ordering::Acquire);
            if !Holder::is_plain(word) {
                return None;
            }
            let (slot, end) = Holder::plain(word);
            let (place, first) = (self.place(slot), self.first);
            if let Some(found) = self.found.get_mut(place).filter(|_| word > 0) {
                if found.depth(first) == depth.position {
                    found.set_depth(depth.position + end.min(depth.matched));
                }
                reached += usize::from(found.depth(first) == depth.end());
            }
        }
        Some(reached)
    }

    /// Any run.
    #[cold]
    fn extend_slowly(&mut self, holders: &[AtomicU64], depth: Depth, at: Question<'_>) -> usize {
        self.number();
        if self.depths.is_empty() {
            self.depths.extend(self.found.iter().map(|found| [found.depth(self.first); 4]));
        }
        let all = || holders.iter().filter_map(|word| Holder::from_word(word.load(Ordering::Acquire)));
        if depth.position == 0 {
            for slot in all().filter(|holder| holder.start == 0).map(|holder| holder.lane.slot()) {
                if self.place(slot) >= self.found.len() && at.wants(slot) {
                    self.found.push(Found(u64::from(slot.bits()) << 48 | Found::MARK));
                    self.depths.push([0; 4]);
                    self.places[slot.index() % Slot::COUNT] = self.found.len() as u32;
                }
            }
        }
        // In order of their starts, each is either reached by what came before, or by nothing.
        let mut stretches = std::mem::take(&mut self.stretches);
        stretches.extend(all().filter(|holder| holder.start < depth.matched));
        stretches.sort_unstable_by_key(|holder| holder.start);
        for holder in stretches.drain(..) {
            let place = self.place(holder.lane.slot());
            if let Some(depths) = self.depths.get_mut(place) {
                count(depths, holder, depth);
            }
        }
        self.stretches = stretches;
        self.depths.iter().filter(|depths| depths[3] == depth.end()).count()
    }
}

/// Blocks before a run, and how many of its own match.
#[derive(Clone, Copy)]
struct Depth {
    position: u32,
    matched: u32,
}

impl Depth {
    const fn end(self) -> u32 {
        self.position + self.matched
    }
}

/// What is asked of a shard.
#[derive(Clone, Copy)]
pub(super) struct Question<'q> {
    pub(super) view: View<'q>,
    pub(super) hasher: &'q RandomState,
    pub(super) page_key: &'q PageKey,
    pub(super) slots: &'q Slots,
    pub(super) blocks: &'q [LocalHash],
    pub(super) wanted: Wanted<'q>,
}

impl Question<'_> {
    #[inline]
    fn wants(&self, slot: Slot) -> bool {
        self.wanted.candidates.is_none_or(|candidates| {
            self.slots.worker(slot).is_some_and(|worker| candidates.binary_search(&worker).is_ok())
        })
    }

    /// What the children are looked for by in which the blocks may go on after a run: most begin at its last branch, or at its
    /// end.
    #[inline]
    fn likely_children(&self, ends: [u32; 2], rest: &[LocalHash]) -> impl Iterator<Item = Key> {
        ends.into_iter().filter_map(|end| Some(Key::new(self.hasher, end, *rest.get(end as usize)?)))
    }
}

/// Counts a stretch for the tiers at which it continues what the worker holds.
#[inline]
fn count(depths: &mut [u32; 4], holder: Holder, depth: Depth) {
    let end = depth.position + holder.end.min(depth.matched);
    for tier in &mut depths[holder.lane.tier_index()..] {
        if *tier >= depth.position + holder.start && *tier < end {
            *tier = end;
        }
    }
}
