//! A global allocator that counts, per thread: allocations, and the most bytes held at once.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// Counts and passes on to the system's allocator.
pub(crate) struct Counting;

/// What one thread has asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// Calls of `alloc` and `realloc`.
    pub(crate) allocations: u64,
    /// Bytes asked for and not given back by this thread.
    pub(crate) held_bytes: i64,
    /// The most `held_bytes` since the last `measure` started.
    pub(crate) held_bytes_max: i64,
}

thread_local! {
    static USAGE: Cell<Usage> = const {
        Cell::new(Usage { allocations: 0, held_bytes: 0, held_bytes_max: 0 })
    };
}

/// Runs a piece of work; gives what this thread allocated for it, bytes relative to the start.
pub(crate) fn measure<T>(work: impl FnOnce() -> T) -> (T, Usage) {
    let before = USAGE.get();
    USAGE.set(Usage { held_bytes_max: before.held_bytes, ..before });
    let result = work();
    let after = USAGE.get();
    let usage = Usage {
        allocations: after.allocations - before.allocations,
        held_bytes: after.held_bytes - before.held_bytes,
        held_bytes_max: after.held_bytes_max - before.held_bytes,
    };
    (result, usage)
}

fn note(allocations: u64, bytes: i64) {
    // A thread that is ending has no counter any more, and nobody who asks.
    let _ = USAGE.try_with(|usage| {
        let mut now = usage.get();
        now.allocations += allocations;
        now.held_bytes += bytes;
        now.held_bytes_max = now.held_bytes_max.max(now.held_bytes);
        usage.set(now);
    });
}

fn signed(bytes: usize) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

#[expect(unsafe_code, reason = "the allocator's own trait; every call is passed on unchanged")]
// SAFETY: the system's allocator does the work; counting touches no memory it hands out.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(1, signed(layout.size()));
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        note(0, -signed(layout.size()));
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // Both are held while it moves.
        note(1, signed(bytes));
        note(0, -signed(layout.size()));
        // SAFETY: the caller's promises are passed on.
        unsafe { System.realloc(block, layout, bytes) }
    }
}
