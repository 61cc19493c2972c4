//! The children of a run: an open table from where a child begins, and with which block, to its header.
//!
//! An entry is a tag and a line in one word. The tag may lie; the child's own header says what it continues. Removed entries
//! keep their place until the table is made anew: a reader never misses a child that stays.

use ahash::RandomState;

use super::memory::Line;
use super::run::{Run, high, low, pair};
use crate::ids::LocalHash;
use crate::prefetch::prefetch;
use crate::sync::{AtomicU64, Ordering};

/// A removed entry: no child lies at line 0.
const REMOVED: u64 = pair(1, 0);

/// What a child is looked for by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key {
    /// Where a search begins, and the tag.
    hash: u32,
    offset: u32,
    first: LocalHash,
}

impl Key {
    #[inline]
    pub(crate) fn new(hasher: &RandomState, offset: u32, first: LocalHash) -> Self {
        // Local hashes are uniform unless somebody aims, and he does not know the hasher's key.
        let hash = hasher.hash_one(first.0 ^ u64::from(offset).rotate_right(24));
        Self { hash: high(hash), offset, first }
    }

    /// Asks for the place in a table to be fetched.
    #[inline]
    pub(crate) fn prefetch(self, table: &[AtomicU64]) {
        if let Some(place) = table.get(self.hash as usize & table.len().wrapping_sub(1)) {
            prefetch(place);
        }
    }

    /// Asks for the header of the child that is probably the one.
    #[inline]
    pub(crate) fn prefetch_child(self, run: Run<'_>, table: &[AtomicU64]) {
        if let Some(place) = table.get(self.hash as usize & table.len().wrapping_sub(1)) {
            run.view.prefetch(Line(low(place.load(Ordering::Relaxed))));
        }
    }

    /// The child of a run that begins so.
    #[inline]
    pub(crate) fn find<'m>(self, run: Run<'m>, table: &'m [AtomicU64]) -> Option<Run<'m>> {
        self.find_place(run, table).map(|(_, child)| child)
    }

    #[inline]
    fn find_place<'m>(self, run: Run<'m>, table: &'m [AtomicU64]) -> Option<(&'m AtomicU64, Run<'m>)> {
        for place in places(self.hash, table) {
            // Acquire: the child was written before the entry.
            let entry = place.load(Ordering::Acquire);
            if entry == 0 {
                return None;
            }
            if high(entry) == self.hash && low(entry) != 0 {
                let child = Run::at(run.view, Line(low(entry)))?;
                if child.parent() == (run.line, self.offset) && child.first() == self.first {
                    return Some((place, child));
                }
            }
        }
        None
    }

    /// Enters a child; there must be a free place. Says whether it took one never used.
    pub(super) fn insert(self, table: &[AtomicU64], line: Line) -> bool {
        insert(pair(self.hash, line.0), table)
    }

    /// Removes a child.
    pub(super) fn remove(self, table: &[AtomicU64], line: Line) {
        let is_it = |place: &&AtomicU64| low(place.load(Ordering::Relaxed)) == line.0;
        if let Some(place) = places(self.hash, table).find(is_it) {
            place.store(REMOVED, Ordering::Release);
        }
    }
}

/// The places of a table in the order in which they are tried. Tables have a power of two.
#[inline]
fn places(hash: u32, table: &[AtomicU64]) -> impl Iterator<Item = &AtomicU64> {
    let mask = table.len().wrapping_sub(1);
    (0..table.len()).map(move |step| &table[(hash as usize + step) & mask])
}

fn insert(entry: u64, table: &[AtomicU64]) -> bool {
    for place in places(high(entry), table) {
        let there = place.load(Ordering::Relaxed);
        if low(there) == 0 {
            place.store(entry, Ordering::Release);
            return there == 0;
        }
    }
    false
}

/// Fills an empty table, which nobody sees yet, with the children of another; gives their number.
pub(super) fn copy(from: &[AtomicU64], to: &[AtomicU64]) -> u32 {
    let mut children = 0;
    for entry in from.iter().map(|place| place.load(Ordering::Relaxed)).filter(|&entry| low(entry) != 0) {
        children += u32::from(insert(entry, to));
    }
    children
}
