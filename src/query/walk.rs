//! The walk along one prompt: from run to run, without locks and without waiting for the writer.
//!
//! # What an answer may rely on
//!
//! The walk notes the version of each run before it looks into it, and compares all of them at its end. The writer raises a
//! run's version before and after anything is taken away there. So:
//!
//! * Versions unchanged: between the first look at a run and the end of the walk nothing was taken away from it that the walk
//!   saw or that anything it saw follows from. What it saw of a worker in the runs before the last was still so when it
//!   looked at the last: one moment at which all of it was true. (What was only added meanwhile may be seen or not; the
//!   answer is then that of an earlier moment.)
//! * A version changed: the walk begins again. After three times the reader takes priority, and the writer waits before it
//!   takes anything more away; so a walk is repeated at most a few times, however busy the writer.
//!
//! Everything a walk can reach stays in place while its reader is pinned.

use std::sync::atomic::fence;

use ahash::RandomState;

use super::{Match, Wanted};
use crate::ids::{LocalHash, Worker};
use crate::placement::Slot;
use crate::shard::memory::{Line, View};
use crate::shard::{Holder, Key, ROOT, Run, Shared};
use crate::slots::Slots;
use crate::sync::{AtomicU64, Ordering};

/// Walks that may be overtaken before the reader takes priority.
const PATIENCE: usize = 3;

/// The buffers of one reader.
#[derive(Debug)]
pub(super) struct Walk {
    /// The slot of each match.
    slots: Vec<Slot>,
    /// By slot: its match's number, plus one.
    places: Box<[u16; Slot::COUNT]>,
    /// Whether `places` has been filled in.
    is_numbered: bool,
    /// Runs seen, and their versions before.
    path: Vec<(Line, u32)>,
}

impl Walk {
    pub(super) fn new() -> Self {
        Self {
            slots: Vec::new(),
            places: Box::new([0; Slot::COUNT]),
            is_numbered: false,
            path: Vec::new(),
        }
    }

    /// Finds every worker that holds the first of some blocks, and how far.
    #[inline]
    pub(super) fn run(&mut self, shard: &Shared, at: Question<'_>, matches: &mut Vec<Match>) {
        let hidden = at.slots.hidden();
        for _ in 0..PATIENCE {
            if self.attempt(at, matches) {
                return self.hide(hidden, at, matches);
            }
        }
        let _priority = shard.take_priority();
        while !self.attempt(at, matches) {}
        self.hide(hidden, at, matches);
    }

    /// Takes out whose slots were hidden since a walk began.
    #[inline]
    fn hide(&self, hidden: u64, at: Question<'_>, matches: &mut Vec<Match>) {
        if at.slots.hidden() != hidden {
            let mut slots = self.slots.iter();
            matches.retain(|_| slots.next().is_some_and(|&slot| at.slots.worker(slot).is_some()));
        }
    }

    /// One walk; false if the writer took something away meanwhile.
    fn attempt(&mut self, at: Question<'_>, matches: &mut Vec<Match>) -> bool {
        if self.is_numbered {
            for slot in &self.slots {
                self.places[slot.index() % Slot::COUNT] = 0;
            }
            self.is_numbered = false;
        }
        self.slots.clear();
        matches.clear();
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
            let pages = run.matched_pages(spine, state.length, rest);
            at.likely_children(ends, rest).for_each(|key| key.prefetch_child(run, children));
            let matched = run.matched_rest(spine, state.length, rest, pages);
            // What was compared was there before the holders are looked at.
            fence(Ordering::Acquire);
            let depth = Depth { position: position as u32, matched: matched as u32 };
            let reached = self.extend(run.holders(), depth, at, matches);
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
    fn extend(
        &mut self,
        holders: &[AtomicU64],
        depth: Depth,
        at: Question<'_>,
        matches: &mut Vec<Match>,
    ) -> usize {
        let reached = if depth.position == 0 {
            self.begin(holders, depth.matched, at, matches)
        } else {
            self.go_on(holders, depth, matches)
        };
        reached.unwrap_or_else(|| self.extend_slowly(holders, depth, at, matches))
    }

    /// The first run; `None` if a stretch begins inside it or lies below the device.
    #[inline]
    fn begin(
        &mut self,
        holders: &[AtomicU64],
        matched: u32,
        at: Question<'_>,
        matches: &mut Vec<Match>,
    ) -> Option<usize> {
        let (mut all, mut has_gaps) = (0, false);
        // Of known length and without a way out of the loop: a good part of a query's time goes into its answer.
        self.slots.extend(holders.iter().map(|word| Holder::plain(word.load(Ordering::Acquire)).0));
        matches.extend(holders.iter().map(|word| {
            let word = word.load(Ordering::Acquire);
            let (slot, end) = Holder::plain(word);
            let (worker, is_visible) = at.slots.look(slot);
            all |= word;
            has_gaps |= word == 0 || !is_visible;
            Match { worker, depths: [if is_visible { end.min(matched) } else { 0 }; 4] }
        }));
        if !Holder::is_plain(all) {
            self.slots.clear();
            matches.clear();
            return None;
        }
        if has_gaps || at.wanted.candidates.is_some() {
            let is_wanted = |found: &Match| found.depths[3] > 0 && at.wants(found.worker);
            let mut found = matches.iter();
            self.slots.retain(|_| found.next().is_some_and(is_wanted));
            matches.retain(is_wanted);
        }
        Some(matches.iter().map(|found| usize::from(found.depths[3] == matched)).sum())
    }

    /// Notes where each slot's match is.
    fn number(&mut self) {
        if !self.is_numbered {
            for (number, slot) in (1..).zip(&self.slots) {
                self.places[slot.index() % Slot::COUNT] = number;
            }
            self.is_numbered = true;
        }
    }

    /// The match of a slot.
    #[inline]
    fn find<'m>(&self, slot: Slot, matches: &'m mut [Match]) -> Option<&'m mut Match> {
        matches.get_mut(usize::from(self.places[slot.index() % Slot::COUNT]).wrapping_sub(1))
    }

    /// A later run; `None` as in `begin`.
    #[inline]
    fn go_on(&mut self, holders: &[AtomicU64], depth: Depth, matches: &mut [Match]) -> Option<usize> {
        self.number();
        let mut reached = 0;
        for word in holders {
            let word = word.load(Ordering::Acquire);
            if !Holder::is_plain(word) {
                return None;
            }
            let (slot, end) = Holder::plain(word);
            if let Some(found) = self.find(slot, matches).filter(|_| word > 0) {
                for tier in found.depths.iter_mut().filter(|tier| **tier == depth.position) {
                    *tier = depth.position + end.min(depth.matched);
                }
                reached += usize::from(found.depths[3] == depth.end());
            }
        }
        Some(reached)
    }

    /// Any run.
    #[cold]
    fn extend_slowly(
        &mut self,
        holders: &[AtomicU64],
        depth: Depth,
        at: Question<'_>,
        matches: &mut Vec<Match>,
    ) -> usize {
        self.number();
        let all = || holders.iter().filter_map(|word| Holder::from_word(word.load(Ordering::Acquire)));
        if depth.position == 0 {
            for slot in all().filter(|holder| holder.start == 0).map(|holder| holder.lane.slot()) {
                let Some(worker) = at.slots.worker(slot).filter(|&worker| at.wants(worker)) else { continue };
                if self.find(slot, matches).is_none() {
                    matches.push(Match { worker, depths: [0; 4] });
                    self.slots.push(slot);
                    self.places[slot.index() % Slot::COUNT] = matches.len() as u16;
                }
            }
        }
        // Where a stretch begins inside the run, it may continue one that comes after it.
        let mut has_changed = true;
        while has_changed {
            has_changed = false;
            for holder in all() {
                if let Some(found) = self.find(holder.lane.slot(), matches) {
                    has_changed |= count(found, holder, depth);
                }
            }
        }
        matches.iter().filter(|found| found.depths[3] == depth.end()).count()
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
    pub(super) slots: &'q Slots,
    pub(super) blocks: &'q [LocalHash],
    pub(super) wanted: Wanted<'q>,
}

impl Question<'_> {
    #[inline]
    fn wants(&self, worker: Worker) -> bool {
        self.wanted.candidates.is_none_or(|candidates| candidates.binary_search(&worker).is_ok())
    }

    /// What the children are looked for by in which the blocks may go on after a run: most begin at its last branch, or at its
    /// end.
    #[inline]
    fn likely_children(&self, ends: [u32; 2], rest: &[LocalHash]) -> impl Iterator<Item = Key> {
        ends.into_iter().filter_map(|end| Some(Key::new(self.hasher, end, *rest.get(end as usize)?)))
    }
}

/// Counts a stretch for the tiers at which it continues what the worker holds; says whether that made any deeper.
#[inline]
fn count(found: &mut Match, holder: Holder, depth: Depth) -> bool {
    let mut has_changed = false;
    let end = depth.position + holder.end.min(depth.matched);
    for tier in &mut found.depths[holder.lane.tier_index()..] {
        if *tier >= depth.position + holder.start && *tier < end {
            *tier = end;
            has_changed = true;
        }
    }
    has_changed
}
