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

use super::Wanted;
use crate::ids::LocalHash;
use crate::placement::Slot;
use crate::shard::memory::{Line, View};
use crate::shard::{Holder, Key, ROOT, Run, Shared};
use crate::slots::Slots;
use crate::sync::{AtomicU64, Ordering};

/// Walks that may be overtaken before the reader takes priority.
const PATIENCE: usize = 3;

/// A slot that holds the first block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    /// Cumulative by tier.
    pub(super) depths: [u32; 4],
    pub(super) slot: Slot,
}

/// The buffers of one reader.
#[derive(Debug)]
pub(super) struct Walk {
    pub(super) candidates: Vec<Candidate>,
    /// By slot: its candidate's number, plus one.
    places: Box<[u16; Slot::COUNT]>,
    /// Whether `places` has been filled in.
    is_numbered: bool,
    /// Runs seen, and their versions before.
    path: Vec<(Line, u32)>,
}

impl Walk {
    pub(super) fn new() -> Self {
        Self {
            candidates: Vec::new(),
            places: Box::new([0; Slot::COUNT]),
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

    /// One walk; false if the writer took something away meanwhile.
    fn attempt(&mut self, at: Question<'_>) -> bool {
        if self.is_numbered {
            for candidate in &self.candidates {
                self.places[candidate.slot.index() % Slot::COUNT] = 0;
            }
            self.is_numbered = false;
        }
        self.candidates.clear();
        self.path.clear();
        let (Some(root), Some(&first)) = (Run::at(at.view, ROOT), at.blocks.first()) else { return true };
        let mut next = Key::new(at.hasher, 0, first).find(root, root.children());
        let mut position = 0;
        while let Some(run) = next {
            let (state, spine, children) = (run.state(), run.spine(), run.children());
            self.path.push((run.line, state.version));
            let rest = &at.blocks[position..];
            run.prefetch(spine, rest.len().min(state.length as usize));
            if let Some(&after) = rest.get(state.length as usize) {
                Key::new(at.hasher, state.length, after).prefetch(children);
            }
            let matched = run.matched(spine, state.length, rest);
            // What was compared was there before the holders are looked at.
            fence(Ordering::Acquire);
            let reached = self.extend(run, position as u32, matched as u32, at);
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

    /// Counts `matched` blocks of a run, which begin at `position`, for the slots that hold them; says how many hold all of
    /// them and all before.
    #[inline]
    fn extend(&mut self, run: Run<'_>, position: u32, matched: u32, at: Question<'_>) -> usize {
        let holders = run.holders();
        let reached = if position == 0 {
            self.begin(holders, matched, at)
        } else {
            self.go_on(holders, position, matched)
        };
        reached.unwrap_or_else(|| self.extend_slowly(holders, position, matched, at))
    }

    /// The first run; `None` if a stretch begins inside it or lies below the device.
    #[inline]
    fn begin(&mut self, holders: &[AtomicU64], matched: u32, at: Question<'_>) -> Option<usize> {
        let (mut all, mut has_free) = (0, false);
        // Without a way out of the loop, and of known length: half of a query's time goes into its answer.
        self.candidates.extend(holders.iter().map(|word| {
            let word = word.load(Ordering::Acquire);
            all |= word;
            has_free |= word == 0;
            let (slot, end) = Holder::plain(word);
            Candidate { depths: [end.min(matched); 4], slot }
        }));
        if !Holder::is_plain(all) {
            self.candidates.clear();
            return None;
        }
        if has_free {
            self.candidates.retain(|candidate| candidate.depths[3] > 0);
        }
        if at.wanted.candidates.is_some() {
            self.candidates.retain(|candidate| at.wants(candidate.slot));
        }
        Some(self.candidates.iter().map(|candidate| usize::from(candidate.depths[3] == matched)).sum())
    }

    /// Notes where each slot's candidate is.
    fn number(&mut self) {
        for (number, candidate) in (1..).zip(&self.candidates) {
            self.places[candidate.slot.index() % Slot::COUNT] = number;
        }
        self.is_numbered = true;
    }

    /// A later run; `None` as in `begin`.
    #[inline]
    fn go_on(&mut self, holders: &[AtomicU64], position: u32, matched: u32) -> Option<usize> {
        if !self.is_numbered {
            self.number();
        }
        let mut reached = 0;
        for word in holders {
            let word = word.load(Ordering::Acquire);
            if !Holder::is_plain(word) {
                return None;
            }
            let (slot, end) = Holder::plain(word);
            if let Some(candidate) = candidate(&self.places, &mut self.candidates, slot) {
                for depth in candidate.depths.iter_mut().filter(|depth| **depth == position) {
                    *depth = position + end.min(matched);
                }
                reached += usize::from(candidate.depths[3] == position + matched);
            }
        }
        Some(reached)
    }

    /// Any run.
    #[cold]
    fn extend_slowly(&mut self, holders: &[AtomicU64], position: u32, matched: u32, at: Question<'_>) -> usize {
        if !self.is_numbered {
            self.number();
        }
        let all = || holders.iter().filter_map(|word| Holder::from_word(word.load(Ordering::Acquire)));
        if position == 0 {
            for slot in all().filter(|holder| holder.start == 0).map(|holder| holder.lane.slot()) {
                if self.places[slot.index() % Slot::COUNT] == 0 && at.wants(slot) {
                    self.candidates.push(Candidate { depths: [0; 4], slot });
                    self.places[slot.index() % Slot::COUNT] = self.candidates.len() as u16;
                }
            }
        }
        // Where a stretch begins inside the run, it may continue one that comes after it.
        let mut has_changed = true;
        while has_changed {
            has_changed = false;
            for holder in all() {
                if let Some(candidate) = candidate(&self.places, &mut self.candidates, holder.lane.slot()) {
                    has_changed |= count(candidate, holder, position, matched);
                }
            }
        }
        self.candidates.iter().filter(|candidate| candidate.depths[3] == position + matched).count()
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
    fn wants(&self, slot: Slot) -> bool {
        self.wanted.candidates.is_none_or(|candidates| {
            self.slots.worker(slot).is_some_and(|worker| candidates.binary_search(&worker).is_ok())
        })
    }
}

#[inline]
fn candidate<'c>(places: &[u16; Slot::COUNT], candidates: &'c mut [Candidate], slot: Slot) -> Option<&'c mut Candidate> {
    candidates.get_mut(usize::from(places[slot.index() % Slot::COUNT]).wrapping_sub(1))
}

/// Counts a stretch for the tiers at which it continues what the slot holds; says whether that made any deeper.
#[inline]
fn count(candidate: &mut Candidate, holder: Holder, position: u32, matched: u32) -> bool {
    let mut has_changed = false;
    let end = position + holder.end.min(matched);
    for depth in &mut candidate.depths[holder.lane.tier_index()..] {
        if *depth >= position + holder.start && *depth < end {
            *depth = end;
            has_changed = true;
        }
    }
    has_changed
}
