//! How runs come, grow, shrink and go. Who holds them is in `holders.rs`.

use std::sync::Arc;

use ahash::RandomState;

use super::Common;
use super::arena::Arena;
use super::children::{self, Key};
use super::crowds::Crowds;
use super::locations::Location;
use super::memory::{Line, View};
use super::run::{
    CHILD_COUNTS, CHILDREN, FIRST, HEADER_WORDS, HINT, HOLDER_COUNTS, HOLDERS, OFFSET, PAGE_BLOCKS,
    PAGE_WORDS, PARENT, ROOT, RUN_MAX, Run, SPINE, TABLE_SHIFT, TABLE_USED, high, low, pair,
};
use super::version;
use crate::hash::PageKey;
use crate::ids::LocalHash;
use crate::sync::Ordering;

/// A block's place, or the place after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) run: Line,
    pub(super) offset: u32,
}

impl Position {
    pub(super) const fn next(self) -> Self {
        Self { offset: self.offset + 1, ..self }
    }
}

/// The runs of one shard.
#[derive(Debug)]
pub(super) struct Runs {
    pub(super) arena: Arena,
    pub(super) crowds: Crowds,
    hasher: RandomState,
    page_key: PageKey,
}

/// Pages whose lines and digests lie in the header.
const INLINE_PAGES: usize = 4;
/// Beside the number of children removed since the last offset of one was looked for: it may be less by now.
const IS_OLD: u32 = 1 << 31;
/// Places of the smallest table of children.
const TABLE_MIN: usize = 8;

impl Runs {
    pub(super) fn new(common: &Common) -> Self {
        let mut arena = Arena::new(Arc::clone(&common.pins), common.shard_bytes);
        let root = arena.take(HEADER_WORDS);
        debug_assert_eq!(root, Some(ROOT), "the first line of all, and all 0");
        let crowds = Crowds::new(&common.hasher);
        Self { arena, crowds, hasher: common.hasher.clone(), page_key: common.page_key.clone() }
    }

    #[inline]
    pub(super) fn view(&self) -> View<'_> {
        self.arena.view()
    }

    #[inline]
    pub(super) fn run(&self, line: Line) -> Option<Run<'_>> {
        Run::at(self.view(), line)
    }

    /// Where a block lies.
    #[inline]
    pub(super) fn position(&self, location: Location) -> Option<Position> {
        let (page, within) = location.page();
        let link = self.view().words(page, 1).first()?.load(Ordering::Relaxed);
        Some(Position { run: Line(high(link)), offset: low(link) * PAGE_BLOCKS as u32 + within })
    }

    /// A block's local hash, and where the block before it lies.
    pub(super) fn look(&self, location: Location) -> Option<(LocalHash, Option<Location>)> {
        let Position { run, offset } = self.position(location)?;
        let run = self.run(run)?;
        let (_, local_hash) = block_at(run, offset)?;
        let (line, end) = if offset > 0 { (run.line, offset) } else { run.parent() };
        if line == ROOT {
            return Some((local_hash, None));
        }
        let (before, _) = block_at(self.run(line)?, end.checked_sub(1)?)?;
        Some((local_hash, Some(before)))
    }

    /// Where the block with this hash lies that follows what is before `after`; it is made if it is new. `None` if there is
    /// no room.
    pub(super) fn place(&mut self, after: Position, block: LocalHash) -> Option<(Location, Position)> {
        let run = self.run(after.run)?;
        let length = run.state().length;
        if after.offset < length
            && let Some((location, there)) = block_at(run, after.offset)
            && there == block
        {
            return Some((location, after));
        }
        let key = Key::new(&self.hasher, after.offset, block);
        if let Some(child) = key.find(run, run.children()) {
            let (location, _) = block_at(child, 0)?;
            return Some((location, Position { run: child.line, offset: 0 }));
        }
        if after.offset == length && after.run != ROOT && length < RUN_MAX {
            return Some((self.append(after.run, block)?, after));
        }
        let child = self.make_child(after, block)?;
        let location = self.append(child, block).filter(|_| self.link_child(after, key, child));
        match location {
            Some(location) => Some((location, Position { run: child, offset: 0 })),
            None => {
                let length = self.run(child)?.state().length;
                self.free_pages(child, 0, length);
                self.arena.unlink(child, HEADER_WORDS);
                None
            }
        }
    }

    /// Adds a block to the end of a run.
    fn append(&mut self, line: Line, block: LocalHash) -> Option<Location> {
        let length = self.run(line)?.state().length;
        let (number, within) = (length as usize / PAGE_BLOCKS, length as usize % PAGE_BLOCKS);
        if within == 0 {
            self.add_page(line, number)?;
        }
        let run = self.run(line)?;
        let spine = run.spine();
        let page = spine.page(number)?;
        let words = self.view().words(page, PAGE_WORDS);
        // Release, as everything that may take the place of something readers know: who sees it sees the version.
        words.get(1 + within)?.store(block.0, Ordering::Release);
        if within == PAGE_BLOCKS - 1 {
            let mut blocks = [LocalHash(0); PAGE_BLOCKS];
            for (block, word) in blocks.iter_mut().zip(&words[1..]) {
                *block = LocalHash(word.load(Ordering::Relaxed));
            }
            spine.digests.get(number)?.store(self.page_key.digest(&blocks), Ordering::Release);
        }
        version::set_length(run.state_word(), length + 1);
        Some(Location::new(page, within as u32))
    }

    fn add_page(&mut self, line: Line, number: usize) -> Option<()> {
        if number >= self.run(line)?.spine().digests.len() {
            self.move_spine(line, number + 1)?;
        }
        let page = self.arena.take(PAGE_WORDS)?;
        self.view().words(page, 1).first()?.store(pair(line.0, number as u32), Ordering::Relaxed);
        self.run(line)?.spine().set_page(number, page);
        self.hint(line);
        Some(())
    }

    /// Gives a run's spine room for so many pages, more or fewer than before.
    fn move_spine(&mut self, line: Line, pages: usize) -> Option<()> {
        // Two page lines to a word.
        let words = pages.div_ceil(2) * 3;
        let (link, room) = if pages <= INLINE_PAGES {
            (0, 0)
        } else {
            let room = (Arena::room(words) * 2 / 3) & !1;
            (self.arena.take(room + room / 2)?.0, room)
        };
        let run = self.run(line)?;
        let (old, old_link) = (run.spine(), run.load(SPINE));
        let new = run.spine_of(pair(link, room as u32));
        for (to, from) in new.digests.iter().zip(old.digests).chain(new.pages.iter().zip(old.pages)) {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        run.store(SPINE, pair(link, room as u32));
        self.hint(line);
        if high(old_link) > 0 {
            let room = low(old_link) as usize;
            self.arena.unlink(Line(high(old_link)), room + room / 2);
        }
        Some(())
    }

    /// Says in the header where most walks will leave the run.
    fn hint(&self, line: Line) {
        let Some(run) = self.run(line).filter(|run| high(run.load(SPINE)) > 0) else { return };
        let spine = run.spine();
        let page = |offset: u32| spine.page(offset as usize / PAGE_BLOCKS).map_or(0, |page| page.0);
        run.store(HINT, pair(page(run.last_branch()), page(run.state().length)));
    }

    fn make_child(&mut self, after: Position, block: LocalHash) -> Option<Line> {
        let line = self.arena.take(HEADER_WORDS)?;
        let run = self.run(line)?;
        (0..HEADER_WORDS).for_each(|word| run.store(word, 0));
        run.store(PARENT, pair(after.run.0, after.offset));
        run.store(FIRST, block.0);
        Some(line)
    }

    /// Lets readers find a child. False if its parent's table has no room.
    fn link_child(&mut self, after: Position, key: Key, child: Line) -> bool {
        let Some(parent) = self.run(after.run) else { return false };
        let (places, used) = (parent.children().len(), low(parent.load(CHILDREN)) & TABLE_USED);
        if (used as usize + 1) * 4 > places * 3 {
            let children = high(parent.load(CHILD_COUNTS)) as usize + 1;
            if self.move_children(after.run, children).is_none() {
                return false;
            }
        }
        let Some(parent) = self.run(after.run) else { return false };
        if key.insert(parent.children(), child) {
            parent.store(CHILDREN, parent.load(CHILDREN) + 1);
        }
        let counts = parent.load(CHILD_COUNTS);
        let holders = parent.load(HOLDER_COUNTS);
        let last = low(holders) & OFFSET;
        parent.store(CHILD_COUNTS, pair(high(counts) + 1, low(counts)));
        parent.store(HOLDER_COUNTS, holders & !u64::from(OFFSET) | u64::from(last.max(after.offset)));
        self.hint(after.run);
        true
    }

    /// Makes a table for so many children, with room for half as many more.
    fn move_children(&mut self, line: Line, children: usize) -> Option<()> {
        let places = (children * 3 / 2 + 1).next_power_of_two().max(TABLE_MIN);
        let table = self.arena.take(places)?;
        let words = self.view().words(table, places);
        words.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        let run = self.run(line)?;
        let used = children::copy(run.children(), words);
        let old = run.load(CHILDREN);
        run.store(CHILDREN, pair(table.0, places.ilog2() << TABLE_SHIFT | used));
        self.free_table(old);
        Some(())
    }

    fn free_table(&mut self, link: u64) {
        if high(link) > 0 {
            self.arena.unlink(Line(high(link)), 1 << (low(link) >> TABLE_SHIFT));
        }
    }

    /// Gives back the blocks at a run's end that nobody holds and nothing follows; the run itself if none is left, and so on
    /// with what it continued.
    pub(super) fn shrink(&mut self, mut line: Line) {
        while let Some(needed) = self.needed(line)
            && let Some(run) = self.run(line)
        {
            let (state, children) = (run.state(), high(run.load(CHILD_COUNTS)));
            if needed >= state.length {
                return;
            }
            version::set_length(run.state_word(), needed);
            self.free_pages(line, needed, state.length);
            if needed > 0 || children > 0 {
                self.shrink_spine(line, needed);
                return;
            }
            let Some(parent) = self.remove_run(line) else { return };
            line = parent;
        }
    }

    /// How long a run must be for those who hold it and for its children; `None` if a look is not due.
    fn needed(&mut self, line: Line) -> Option<u32> {
        let run = Run::at(self.arena.view(), line)?;
        let held = self.crowds.last_end(run)?;
        let followed = if high(run.load(CHILD_COUNTS)) > 0 { run.last_branch() } else { 0 };
        Some(held.max(followed))
    }

    /// Gives back the pages of a run that lie past a length.
    fn free_pages(&mut self, line: Line, length: u32, old: u32) {
        for number in (length as usize).div_ceil(PAGE_BLOCKS)..(old as usize).div_ceil(PAGE_BLOCKS) {
            let page = self.run(line).and_then(|run| run.spine().page(number));
            if let Some(page) = page {
                self.arena.unlink(page, PAGE_WORDS);
            }
        }
    }

    fn shrink_spine(&mut self, line: Line, length: u32) {
        let Some(run) = self.run(line) else { return };
        let (room, pages) = (run.spine().digests.len(), (length as usize).div_ceil(PAGE_BLOCKS));
        if room > 4 * INLINE_PAGES && pages < room / 4 {
            // Not into the header: readers may be looking at what lies there from before.
            let _ = self.move_spine(line, pages.max(INLINE_PAGES + 1));
        }
    }

    /// Takes an empty run out; gives the one it continued, if that may be longer than needed now.
    fn remove_run(&mut self, line: Line) -> Option<Line> {
        let run = Run::at(self.arena.view(), line)?;
        let (parent, offset) = run.parent();
        let key = Key::new(&self.hasher, offset, run.first());
        let (spine, holders, table) = (run.load(SPINE), run.load(HOLDERS), run.load(CHILDREN));
        self.crowds.remove(run);
        self.unlink_child(parent, offset, key, line);
        if high(spine) > 0 {
            let room = low(spine) as usize;
            self.arena.unlink(Line(high(spine)), room + room / 2);
        }
        if high(holders) > 0 {
            self.arena.unlink(Line(high(holders)), low(holders) as usize);
        }
        self.free_table(table);
        self.arena.unlink(line, HEADER_WORDS);
        (parent != ROOT).then_some(parent)
    }

    fn unlink_child(&mut self, line: Line, offset: u32, key: Key, child: Line) {
        let Some(parent) = self.run(line) else { return };
        key.remove(parent.children(), child);
        let (counts, holders) = (parent.load(CHILD_COUNTS), parent.load(HOLDER_COUNTS));
        let (children, last) = (high(counts) - 1, low(holders) & OFFSET);
        // Whether a removed child was the last is found out when as many are gone as are left: a look at all of them costs no
        // more than their removal did. Until then the run may be longer than need be.
        let (is_old, removed) =
            (low(counts) & IS_OLD | if offset == last { IS_OLD } else { 0 }, low(counts) & !IS_OLD);
        if is_old > 0 && removed + 1 >= children {
            parent.store(CHILD_COUNTS, pair(children, 0));
            parent.store(HOLDER_COUNTS, holders & !u64::from(OFFSET) | u64::from(last_offset(parent)));
        } else {
            parent.store(CHILD_COUNTS, pair(children, is_old | (removed + 1).min(!IS_OLD)));
        }
        let places = parent.children().len();
        if children == 0 {
            let table = parent.load(CHILDREN);
            parent.store(CHILDREN, 0);
            self.free_table(table);
        } else if places > TABLE_MIN && (children as usize) < places / 8 {
            let _ = self.move_children(line, children as usize);
        }
    }
}

/// A block of a run and where it lies.
fn block_at(run: Run<'_>, offset: u32) -> Option<(Location, LocalHash)> {
    let (number, within) = (offset as usize / PAGE_BLOCKS, offset as usize % PAGE_BLOCKS);
    let page = run.spine().page(number)?;
    let word = run.view.words(page, PAGE_WORDS).get(1 + within)?;
    Some((Location::new(page, within as u32), LocalHash(word.load(Ordering::Relaxed))))
}

/// The last offset at which a child begins.
fn last_offset(run: Run<'_>) -> u32 {
    let lines =
        run.children().iter().map(|place| low(place.load(Ordering::Relaxed))).filter(|&line| line > 0);
    let offsets = lines.filter_map(|line| Run::at(run.view, Line(line))).map(|child| child.parent().1);
    offsets.max().unwrap_or(0)
}
