//! A counting allocator: the system's, a count of calls per thread, and, while asked for, the live bytes of the process.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicIsize, Ordering};

/// Counts what is asked of the allocator.
pub(crate) struct Counting;

thread_local! {
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

static IS_TRACKED: AtomicBool = AtomicBool::new(false);
static LIVE: AtomicIsize = AtomicIsize::new(0);

/// Switches counting live bytes on or off: it costs a shared atomic per call. Only differences taken while it is on mean
/// anything.
pub(crate) fn track(on: bool) {
    IS_TRACKED.store(on, Ordering::Relaxed);
}

/// Live bytes of the process.
pub(crate) fn live() -> isize {
    LIVE.load(Ordering::Relaxed)
}

/// Allocations and reallocations of this thread so far.
pub(crate) fn calls() -> u64 {
    CALLS.with(Cell::get)
}

fn count(bytes: isize) {
    // A thread that is ending has no count any more.
    let _ = CALLS.try_with(|calls| calls.set(calls.get() + 1));
    grow(bytes);
}

fn grow(bytes: isize) {
    if IS_TRACKED.load(Ordering::Relaxed) {
        LIVE.fetch_add(bytes, Ordering::Relaxed);
    }
}

// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size().cast_signed());
        // SAFETY: the caller's promise, passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size().cast_signed());
        // SAFETY: the caller's promise, passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size.cast_signed() - layout.size().cast_signed());
        // SAFETY: the caller's promise, passed on.
        unsafe { System.realloc(block, layout, size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        grow(-layout.size().cast_signed());
        // SAFETY: the caller's promise, passed on.
        unsafe { System.dealloc(block, layout) }
    }
}
