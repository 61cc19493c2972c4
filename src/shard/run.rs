//! A run: consecutive blocks of prompts that begin alike, as readers and the writer see it. Layout only.
//!
//! ```text
//! header, two lines                                   page, two lines
//!  0 version | length      8 holder                    0 run | number in the run
//!  1 spine, and its room   9 holder                    1 local hash
//!  2 holders, and count   10 digest of page 0            …
//!  3 children, and room   11 digest of page 1         15 local hash
//!  4 parent run | offset  12 digest of page 2
//!  5 first local hash     13 digest of page 3         holder: lane | start | end
//!  6 children of the run  14 page 0 | page 1          spine, if longer than 4 pages: digests, then page lines
//!  7 holders of the run   15 page 2 | page 3          holders, if more than 2: an array
//! ```
//!
//! A child continues its parent from an offset inside it or at its end: runs are never split. Whoever holds a stretch of a run
//! is a holder; holders whose word is 0 are free. The run without parent has no blocks: its children begin prompts.

use super::LINE_WORDS;
use super::memory::{Line, View};
use super::version::{self, State};
use crate::hash::PageKey;
use crate::ids::LocalHash;
use crate::placement::{Lane, Slot};
use crate::prefetch::prefetch;
use crate::sync::{AtomicU64, Ordering};

/// Blocks of a page.
pub(crate) const PAGE_BLOCKS: usize = 15;
pub(super) const PAGE_WORDS: usize = 1 + PAGE_BLOCKS;
pub(super) const HEADER_WORDS: usize = 2 * LINE_WORDS;
/// Blocks of a run; a longer prompt goes on in a child. Bounds what a lane with many holes costs its writer and readers.
pub(super) const RUN_MAX: u32 = 4095;
/// An offset in a word of more.
pub(super) const OFFSET: u32 = (1 << 23) - 1;

const STATE: usize = 0;
pub(super) const SPINE: usize = 1;
pub(super) const HOLDERS: usize = 2;
pub(super) const CHILDREN: usize = 3;
pub(super) const PARENT: usize = 4;
pub(super) const FIRST: usize = 5;
pub(super) const CHILD_COUNTS: usize = 6;
pub(super) const HOLDER_COUNTS: usize = 7;
const INLINE_HOLDERS: std::ops::Range<usize> = 8..10;
const INLINE_DIGESTS: std::ops::Range<usize> = 10..14;
const INLINE_PAGES: std::ops::Range<usize> = 14..16;
/// If the spine lies elsewhere: the page of the last branch and the last page, where most walks leave the run. A reader that
/// finds something else there asks for the wrong line, no more.
pub(super) const HINT: usize = 14;

/// Beside a table's line: log2 of its places above, places ever used below.
pub(super) const TABLE_SHIFT: u32 = 27;

pub(super) const TABLE_USED: u32 = (1 << TABLE_SHIFT) - 1;
/// Beside the last offset of a child: some lane of the run has a hole, or does not begin at the run's start.
pub(super) const IS_UNEVEN: u32 = 1 << 31;

/// Lines asked for ahead of a list; the CPU asks for what follows by itself.
const PREFETCH_LINES: usize = 8;

/// The run that all prompts begin at.
pub(crate) const ROOT: Line = Line(0);

/// Two numbers in one word, so that they change together.
pub(super) const fn pair(high: u32, low: u32) -> u64 {
    (high as u64) << 32 | low as u64
}

pub(super) const fn high(word: u64) -> u32 {
    (word >> 32) as u32
}

pub(super) const fn low(word: u64) -> u32 {
    word as u32
}

/// A run's header.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run<'m> {
    pub(super) view: View<'m>,
    pub(crate) line: Line,
    words: &'m [AtomicU64; HEADER_WORDS],
}

/// The pages of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spine<'m> {
    pub(super) digests: &'m [AtomicU64],
    /// Two lines to a word.
    pub(super) pages: &'m [AtomicU64],
}

/// A lane and the stretch of a run that it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Holder {
    pub(crate) lane: Lane,
    pub(crate) start: u32,
    /// After the last block.
    pub(crate) end: u32,
}

impl Holder {
    /// `None` for a free place.
    #[inline]
    pub(crate) const fn from_word(word: u64) -> Option<Self> {
        if word == 0 {
            return None;
        }
        let lane = Lane::from_bits((word >> 46) as u32);
        Some(Self { lane, start: (word >> 23) as u32 & OFFSET, end: word as u32 & OFFSET })
    }

    /// As the writer sees it.
    #[inline]
    pub(super) fn own(word: &AtomicU64) -> Option<Self> {
        // Relaxed: only the writer's thread stores, and it alone calls this.
        Self::from_word(word.load(Ordering::Relaxed))
    }

    /// Whether stretches begin at the run's start and lie on the device, as most do: of one word, or of many or'ed together.
    #[inline]
    pub(crate) const fn is_plain(words: u64) -> bool {
        const OTHER: u64 = 3 << 46 | (OFFSET as u64) << 23;
        words & OTHER == 0
    }

    /// The slot and the end of a stretch that is plain.
    #[inline]
    pub(crate) const fn plain(word: u64) -> (Slot, u32) {
        (Slot::from_bits((word >> 48) as u16), word as u32 & OFFSET)
    }

    #[inline]
    pub(super) const fn word(self) -> u64 {
        (self.lane.bits() as u64) << 46 | (self.start as u64) << 23 | self.end as u64
    }

    pub(super) const fn covers(self, offset: u32) -> bool {
        self.start <= offset && offset < self.end
    }
}

const _: () = assert!(Lane::BITS + 2 * OFFSET.count_ones() == u64::BITS);
const _: () = assert!(RUN_MAX <= OFFSET && OFFSET < IS_UNEVEN);

impl<'m> Run<'m> {
    /// The run whose header begins there; `None` if nothing does.
    #[inline]
    pub(crate) fn at(view: View<'m>, line: Line) -> Option<Self> {
        let words = view.words(line, HEADER_WORDS).try_into().ok()?;
        Some(Self { view, line, words })
    }

    #[inline]
    pub(super) fn load(self, word: usize) -> u64 {
        // Acquire: what a link leads to was written before the link.
        self.words[word].load(Ordering::Acquire)
    }

    #[inline]
    pub(super) fn store(self, word: usize, value: u64) {
        self.words[word].store(value, Ordering::Release);
    }

    /// The word of length and version.
    #[inline]
    pub(super) const fn state_word(self) -> &'m AtomicU64 {
        &self.words[STATE]
    }

    #[inline]
    pub(crate) fn state(self) -> State {
        version::look(self.state_word())
    }

    /// Where it continues its parent.
    #[inline]
    pub(crate) fn parent(self) -> (Line, u32) {
        let word = self.load(PARENT);
        (Line(high(word)), low(word))
    }

    #[inline]
    pub(crate) fn first(self) -> LocalHash {
        LocalHash(self.load(FIRST))
    }

    /// The last offset at which a child begins.
    #[inline]
    pub(crate) fn last_branch(self) -> u32 {
        low(self.load(HOLDER_COUNTS)) & OFFSET
    }

    #[inline]
    pub(crate) fn spine(self) -> Spine<'m> {
        self.spine_of(self.load(SPINE))
    }

    #[inline]
    pub(super) fn spine_of(self, link: u64) -> Spine<'m> {
        if high(link) == 0 {
            return Spine { digests: &self.words[INLINE_DIGESTS], pages: &self.words[INLINE_PAGES] };
        }
        let room = low(link) as usize;
        let words = self.view.words(Line(high(link)), room + room / 2);
        let (digests, pages) = words.split_at_checked(room).unwrap_or_default();
        Spine { digests, pages }
    }

    /// Holders and free places.
    #[inline]
    pub(crate) fn holders(self) -> &'m [AtomicU64] {
        self.holders_of(self.load(HOLDERS))
    }

    #[inline]
    pub(super) fn holders_of(self, link: u64) -> &'m [AtomicU64] {
        if high(link) == 0 {
            return &self.words[INLINE_HOLDERS];
        }
        self.view.words(Line(high(link)), low(link) as usize)
    }

    /// The table of children; empty if there are none.
    #[inline]
    pub(crate) fn children(self) -> &'m [AtomicU64] {
        let word = self.load(CHILDREN);
        if high(word) == 0 {
            return &[];
        }
        self.view.words(Line(high(word)), 1 << (low(word) >> TABLE_SHIFT))
    }

    /// Asks for what a match of so many blocks will need.
    #[inline]
    pub(crate) fn prefetch(self, spine: Spine<'_>, blocks: usize) {
        let pages = blocks / PAGE_BLOCKS;
        for word in self.holders().iter().step_by(LINE_WORDS).take(PREFETCH_LINES) {
            prefetch(word);
        }
        for word in
            spine.digests[..spine.digests.len().min(pages)].iter().step_by(LINE_WORDS).take(PREFETCH_LINES)
        {
            prefetch(word);
        }
        if spine.digests.len() == INLINE_DIGESTS.len() {
            if let Some(page) = spine.page(pages.min(INLINE_DIGESTS.len() - 1)) {
                self.view.prefetch(page);
            }
        } else {
            let hint = self.load(HINT);
            self.view.prefetch(Line(high(hint)));
            self.view.prefetch(Line(low(hint)));
        }
    }

    /// How many whole pages of the run's first `length` blocks equal what is asked for.
    #[inline]
    pub(crate) fn matched_pages(
        self,
        spine: Spine<'_>,
        length: u32,
        blocks: &[LocalHash],
        page_key: &PageKey,
    ) -> usize {
        let blocks = &blocks[..blocks.len().min(length as usize)];
        let pages = blocks.chunks_exact(PAGE_BLOCKS).zip(spine.digests);
        // Relaxed: the fence of the query orders it.
        let is_equal = |(page, digest): &(&[LocalHash], &AtomicU64)| {
            page_key.digest(page) == digest.load(Ordering::Relaxed)
        };
        pages.take_while(is_equal).count()
    }

    /// How many blocks of the run's first `length` equal what is asked for, of which so many pages do.
    #[inline]
    pub(crate) fn matched_rest(
        self,
        spine: Spine<'_>,
        length: u32,
        blocks: &[LocalHash],
        pages: usize,
    ) -> usize {
        let matched = pages * PAGE_BLOCKS;
        let rest = &blocks[matched..blocks.len().min(length as usize)];
        let Some(page) = spine.page(pages).filter(|_| !rest.is_empty()) else { return matched };
        let held = self.view.words(page, PAGE_WORDS).get(1..).unwrap_or_default();
        let equal = |(block, held): &(&LocalHash, &AtomicU64)| block.0 == held.load(Ordering::Relaxed);
        matched + rest.iter().zip(held).take_while(equal).count()
    }
}

impl Spine<'_> {
    #[inline]
    pub(super) fn page(self, number: usize) -> Option<Line> {
        let word = self.pages.get(number / 2)?.load(Ordering::Relaxed);
        Some(Line(if number.is_multiple_of(2) { high(word) } else { low(word) }))
    }

    /// Only the writer calls it.
    pub(super) fn set_page(self, number: usize, line: Line) {
        let Some(word) = self.pages.get(number / 2) else { return };
        let both = word.load(Ordering::Relaxed);
        let both = if number.is_multiple_of(2) { pair(line.0, low(both)) } else { pair(high(both), line.0) };
        word.store(both, Ordering::Release);
    }
}
