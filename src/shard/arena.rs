//! Blocks of lines out of segments: the writer's side of a shard's memory.
//!
//! Sizes are powers of two lines, each from segments of its own, so that a freed block fits the next of its size. A block
//! that was unlinked rests until no reader can look at it; an empty segment is given back, but for one of each size.

use std::sync::Arc;

use super::LINE_WORDS;
use super::memory::{Line, Memory, SEGMENT_LINES, View};
use crate::epoch::Pins;
use crate::sync::Ordering;

/// Sizes that share segments: 1 to `SEGMENT_LINES` lines.
const SIZES: usize = SEGMENT_LINES.ilog2() as usize + 1;
/// Lines of most segments: 256 KiB.
const SHORT_LINES: usize = 4096;
/// log2 of the lines of headers and pages, which are the bulk of an index, and the segments of theirs after which they get
/// huge pages: a small index shall not take 2 MiB.
const BULK_SIZE: usize = 1;
const BULK_SHORT: usize = 16;
const LINE_BYTES: usize = LINE_WORDS * size_of::<u64>();
/// Blocks that rest before it is worth asking the readers.
const REST_MAX: usize = 64;

/// The memory of one shard, and what of it is free.
#[derive(Debug)]
pub(super) struct Arena {
    memory: Arc<Memory>,
    pins: Arc<Pins>,
    segments: Vec<Segment>,
    /// Segment numbers that are not in use, below `segments.len()`.
    unused: Vec<u32>,
    /// By size: segments with a free block. One that has become full or was given back is dropped when it is met.
    open: [Vec<u32>; SIZES],
    /// By size: segments without a block in use.
    empty: [usize; SIZES],
    /// Unlinked since the epoch was last raised.
    unlinked: Vec<(Line, u8)>,
    /// Unlinked before the epoch of each.
    resting: std::collections::VecDeque<(u64, Line, u8)>,
    bytes: usize,
    /// What `bytes` may grow to.
    bytes_max: usize,
}

/// One segment's blocks, all of one size.
#[derive(Clone, Copy, Debug, Default)]
struct Segment {
    /// log2 of lines per block.
    size: u8,
    lines: u32,
    /// In `open` of its size.
    is_open: bool,
    used: u32,
    /// Blocks never used yet begin here.
    fresh: u32,
    /// First of the list of freed blocks, each of which holds the next in its first word, plus one; 0 ends it.
    freed: u32,
}

/// log2 of the lines that hold so many words.
fn size_of_words(words: usize) -> usize {
    words.div_ceil(LINE_WORDS).next_power_of_two().ilog2() as usize
}

impl Arena {
    pub(super) fn new(pins: Arc<Pins>, bytes_max: usize) -> Self {
        Self {
            memory: Arc::new(Memory::new()),
            pins,
            segments: Vec::new(),
            unused: Vec::new(),
            open: Default::default(),
            empty: [0; SIZES],
            unlinked: Vec::new(),
            resting: std::collections::VecDeque::new(),
            bytes: 0,
            bytes_max,
        }
    }

    pub(super) const fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    #[inline]
    pub(super) fn view(&self) -> View<'_> {
        self.memory.own()
    }

    /// Words that a block for so many really has.
    pub(super) fn room(words: usize) -> usize {
        LINE_WORDS << size_of_words(words)
    }

    /// A block of at least so many words; its contents are anything. `None` if the shard is full.
    pub(super) fn take(&mut self, words: usize) -> Option<Line> {
        let size = size_of_words(words);
        if size >= SIZES {
            let number = self.add_segment(size)?;
            self.segments[number as usize].used = 1;
            return Some(Line(number * SEGMENT_LINES as u32));
        }
        loop {
            let Some(&number) = self.open[size].last() else {
                let number = self.add_segment(size)?;
                self.segments[number as usize].is_open = true;
                self.open[size].push(number);
                self.empty[size] += 1;
                continue;
            };
            if let Some(line) = self.take_from(number) {
                return Some(line);
            }
            self.open[size].pop();
        }
    }

    /// A free block of a segment; `None`, and no longer open, if it has none.
    fn take_from(&mut self, number: u32) -> Option<Line> {
        let memory = &self.memory;
        let segment = self.segments.get_mut(number as usize)?;
        let lines = 1 << segment.size;
        let first = number * SEGMENT_LINES as u32;
        let line = if segment.freed > 0 {
            let line = Line(segment.freed - 1);
            segment.freed = memory.own().words(line, 1).first()?.load(Ordering::Relaxed) as u32;
            line
        } else if segment.fresh + lines <= segment.lines {
            segment.fresh += lines;
            Line(first + segment.fresh - lines)
        } else {
            segment.is_open = false;
            return None;
        };
        if segment.used == 0 {
            self.empty[segment.size as usize] -= 1;
        }
        segment.used += 1;
        Some(line)
    }

    fn add_segment(&mut self, size: usize) -> Option<u32> {
        let is_bulk = size == BULK_SIZE && self.segments.len() - self.unused.len() > BULK_SHORT;
        let lines = if is_bulk { SEGMENT_LINES } else { SHORT_LINES.max(1 << size) };
        if self.bytes + lines * LINE_BYTES > self.bytes_max {
            return None;
        }
        let number = self.unused.pop().unwrap_or(self.segments.len() as u32);
        if !self.memory.add(number as usize, lines * LINE_WORDS) {
            self.unused.push(number);
            return None;
        }
        if number as usize == self.segments.len() {
            self.segments.push(Segment::default());
        }
        self.segments[number as usize] =
            Segment { size: size as u8, lines: lines as u32, ..Segment::default() };
        self.bytes += lines * LINE_BYTES;
        Some(number)
    }

    /// Gives a block of so many words back that nothing links to any more. Readers may look at it for a while yet.
    pub(super) fn unlink(&mut self, line: Line, words: usize) {
        self.unlinked.push((line, size_of_words(words) as u8));
        if self.unlinked.len() >= REST_MAX {
            self.settle();
        }
    }

    /// Gives back every segment that is empty.
    pub(super) fn give_back(&mut self) {
        self.settle();
        for size in 0..SIZES {
            let segments = &self.segments;
            let is_empty = |&number: &u32| segments[number as usize].used == 0;
            let Some(number) = self.open[size].iter().copied().find(is_empty) else { continue };
            self.open[size].retain(|&open| open != number);
            self.empty[size] = 0;
            self.remove_segment(number);
        }
    }

    /// Frees what no reader can look at any more.
    fn settle(&mut self) {
        if !self.unlinked.is_empty() {
            let epoch = self.pins.advance();
            self.resting.extend(self.unlinked.drain(..).map(|(line, size)| (epoch, line, size)));
        }
        if self.resting.is_empty() {
            return;
        }
        let oldest = self.pins.oldest();
        while let Some(&(epoch, line, size)) = self.resting.front()
            && epoch < oldest
        {
            self.resting.pop_front();
            self.free(line, size as usize);
        }
        if self.resting.is_empty() {
            self.resting.shrink_to(REST_MAX * 16);
        }
    }

    fn free(&mut self, line: Line, size: usize) {
        let number = line.0 / SEGMENT_LINES as u32;
        if size >= SIZES {
            self.remove_segment(number);
            return;
        }
        let [next] = self.memory.own().words(line, 1) else { return };
        let segment = &mut self.segments[number as usize];
        next.store(u64::from(segment.freed), Ordering::Relaxed);
        segment.freed = line.0 + 1;
        segment.used -= 1;
        if !segment.is_open {
            segment.is_open = true;
            self.open[size].push(number);
        }
        if segment.used > 0 {
            return;
        }
        if self.empty[size] == 0 {
            self.empty[size] = 1;
        } else {
            self.open[size].retain(|&open| open != number);
            self.remove_segment(number);
        }
    }

    fn remove_segment(&mut self, number: u32) {
        self.memory.remove(number as usize);
        self.bytes -= self.segments[number as usize].lines as usize * LINE_BYTES;
        self.segments[number as usize] = Segment::default();
        self.unused.push(number);
    }

    /// Bytes of all segments and of what is kept about them.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
            + self.memory.bytes()
            + self.segments.capacity() * size_of::<Segment>()
            + self.resting.capacity() * size_of::<(u64, Line, u8)>()
    }
}
