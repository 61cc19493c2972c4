//! The memory of one shard as its readers see it: atomic words in segments, addressed by line numbers.
//!
//! Everything a shard holds lies in blocks of whole cache lines. A reader follows line numbers, never pointers; a number that
//! leads nowhere gives an empty slice. What a block means is not known here.

use std::alloc::{Layout, alloc, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;

use super::LINE_WORDS;
use crate::epoch::Guard;
use crate::prefetch::prefetch_at;
use crate::sync::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// A cache line of the shard. 0 is the root's and stands for "none" in every link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Line(pub(crate) u32);

/// Line numbers of a segment: 2 MiB, a huge page. Many are shorter, and a block may need a longer one.
pub(super) const SEGMENT_LINES: usize = 1 << 15;
/// Segments of one shard: up to 8 GiB.
const SEGMENTS: usize = 1 << 12;
const HUGE_PAGE: usize = 2 << 20;

/// Where a segment lies.
struct Segment {
    words: AtomicPtr<AtomicU64>,
    /// In words; 0 if there is none.
    length: AtomicU32,
}

/// The segments of one shard.
pub(crate) struct Memory {
    segments: Box<[Segment]>,
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").finish_non_exhaustive()
    }
}

/// A look at a shard's memory, during which nothing of it is given back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View<'m>(&'m Memory);

fn layout(words: usize) -> Layout {
    let bytes = words * size_of::<AtomicU64>();
    // Else a block of two lines may share its pair of lines, which CPUs fetch together, with another.
    let align = if bytes < HUGE_PAGE { 128 } else { HUGE_PAGE };
    Layout::from_size_align(bytes, align).unwrap_or(Layout::new::<AtomicU64>())
}

/// Zeroed memory. Walks jump from line to line: on small pages, to find where a line lies takes longer than to fetch it.
fn allocate(layout: Layout) -> *mut u8 {
    if layout.align() < HUGE_PAGE {
        // SAFETY: the layout is not empty: `add` refuses segments without words.
        return unsafe { alloc_zeroed(layout) };
    }
    // SAFETY: as above.
    let start = unsafe { alloc(layout) };
    if !start.is_null() {
        #[cfg(all(target_os = "linux", not(miri)))]
        // Before the memory is touched. A system without huge pages says no, and nothing is lost.
        // SAFETY: the range is ours, and whole pages; the advice changes no contents.
        let _ = unsafe { libc::madvise(start.cast(), layout.size(), libc::MADV_HUGEPAGE) };
        // SAFETY: so many bytes were allocated.
        unsafe { start.write_bytes(0, layout.size()) };
    }
    start
}

impl Memory {
    pub(super) fn new() -> Self {
        let none = |_| Segment { words: AtomicPtr::new(std::ptr::null_mut()), length: AtomicU32::new(0) };
        Self { segments: (0..SEGMENTS).map(none).collect() }
    }

    /// A reader's look; the guard must be of the pins that the shard's writer asks.
    #[inline]
    pub(crate) const fn view<'g>(&'g self, _guard: &'g Guard<'_>) -> View<'g> {
        View(self)
    }

    /// The writer's look. It alone gives memory back, so it must not while it holds one: see [`super::arena::Arena`], which
    /// lends itself out for as long.
    #[inline]
    pub(super) const fn own(&self) -> View<'_> {
        View(self)
    }

    /// Makes segment `number` of so many words, all 0. False if it is out of range, there already, or too long.
    pub(super) fn add(&self, number: usize, words: usize) -> bool {
        let (Some(segment), Ok(length)) = (self.segments.get(number), u32::try_from(words)) else {
            return false;
        };
        if length == 0 || segment.length.load(Ordering::Relaxed) != 0 {
            return false;
        }
        let layout = layout(words);
        let start = allocate(layout);
        if start.is_null() {
            handle_alloc_error(layout);
        }
        segment.words.store(start.cast(), Ordering::Release);
        // Release: who sees the length sees the start.
        segment.length.store(length, Ordering::Release);
        true
    }

    /// Gives a segment back. Only the writer calls it, and only when no reader has a link to anything in it: all of it was
    /// unlinked, and every reader pinned before that is gone.
    pub(super) fn remove(&self, number: usize) {
        let Some(segment) = self.segments.get(number) else { return };
        let length = segment.length.swap(0, Ordering::AcqRel) as usize;
        let start = segment.words.swap(std::ptr::null_mut(), Ordering::AcqRel);
        if !start.is_null() {
            // SAFETY: from `allocate` with this layout in `add`, and taken out just now; the caller says that nobody looks.
            unsafe { dealloc(start.cast(), layout(length)) };
        }
    }

    /// Bytes of the directory.
    pub(super) fn bytes(&self) -> usize {
        self.segments.len() * size_of::<Segment>()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        (0..self.segments.len()).for_each(|number| self.remove(number));
    }
}

impl<'m> View<'m> {
    /// So many words from a line on; none if that is not inside a segment.
    #[inline]
    pub(crate) fn words(self, line: Line, count: usize) -> &'m [AtomicU64] {
        let number = line.0 as usize / SEGMENT_LINES;
        let first = line.0 as usize % SEGMENT_LINES * LINE_WORDS;
        let Some(segment) = self.0.segments.get(number) else { return &[] };
        // Acquire: pairs with `add`.
        let length = segment.length.load(Ordering::Acquire) as usize;
        if first + count > length {
            return &[];
        }
        let start = segment.words.load(Ordering::Acquire);
        if start.is_null() {
            return &[];
        }
        // SAFETY: inside the segment's allocation, which `add` made of that length.
        let start = unsafe { start.add(first) };
        // SAFETY: so many atomics lie there; they are not given back during `'m` (`view` and `own`).
        unsafe { std::slice::from_raw_parts(start, count) }
    }

    /// Asks for a line and its neighbour to be fetched. The number may be one that nothing links to any more.
    #[inline]
    pub(crate) fn prefetch(self, line: Line) {
        let first = line.0 as usize % SEGMENT_LINES * LINE_WORDS;
        if let Some(segment) = self.0.segments.get(line.0 as usize / SEGMENT_LINES) {
            prefetch_at(segment.words.load(Ordering::Relaxed).wrapping_add(first));
        }
    }
}
