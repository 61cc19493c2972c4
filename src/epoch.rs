//! When what readers may still look at can be used again: a pin per reader, and an epoch that writers raise.
//!
//! A reader pins itself before it loads anything and unpins itself after its answer. A writer unlinks a thing, then raises the
//! epoch; the thing is free once no reader is pinned at the epoch before or earlier. The race, in cases:
//!
//! 1. The reader's pin precedes the writer's look at the pins (both are sequentially consistent): the writer sees it and
//!    keeps the thing.
//! 2. It comes after: then the unlinking precedes the reader's loads, and the reader cannot reach the thing.
//! 3. The reader read the epoch and was held up before it stored its pin: its pin is an older epoch than need be. More is
//!    kept, never less.

use std::sync::Arc;
#[expect(clippy::disallowed_types, reason = "control plane: readers come and go")]
use std::sync::Mutex;

use crate::sync::{AtomicU64, Ordering, fence};

/// 0 while its reader is not looking, else the epoch at which it began. Alone in its cache lines.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Pin(AtomicU64);

/// The readers of one engine, and the epoch.
#[derive(Debug)]
pub(crate) struct Pins {
    epoch: AtomicU64,
    #[expect(clippy::disallowed_types, reason = "see the import")]
    readers: Mutex<Vec<Arc<Pin>>>,
}

impl Pins {
    pub(crate) fn new() -> Self {
        #[expect(clippy::disallowed_types, reason = "see the import")]
        let readers = Mutex::new(Vec::new());
        Self { epoch: AtomicU64::new(1), readers }
    }

    /// A pin for a new reader.
    pub(crate) fn enter(&self) -> Arc<Pin> {
        let pin = Arc::new(Pin(AtomicU64::new(0)));
        self.readers.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(Arc::clone(&pin));
        pin
    }

    /// Until the guard is dropped, nothing that is loaded after this is used again.
    #[inline]
    pub(crate) fn pin<'p>(&self, pin: &'p Pin) -> Guard<'p> {
        // Acquire: pairs with `advance`, so that a reader at the new epoch sees what was linked before it.
        let epoch = self.epoch.load(Ordering::Acquire);
        pin.0.store(epoch, Ordering::SeqCst);
        // Pairs with the fence in `advance`: case 1 or case 2 of the race, nothing between.
        fence(Ordering::SeqCst);
        Guard(pin)
    }

    /// Raises the epoch after something was unlinked. What was unlinked is free once `oldest` is above the result.
    pub(crate) fn advance(&self) -> u64 {
        fence(Ordering::SeqCst);
        self.epoch.fetch_add(1, Ordering::SeqCst)
    }

    /// The earliest epoch at which a reader is still looking.
    pub(crate) fn oldest(&self) -> u64 {
        let mut readers = self.readers.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        readers.retain(|pin| Arc::strong_count(pin) > 1);
        // Acquire, by way of SeqCst: pairs with the Release of an unpin, so that its reads are over.
        let pinned = readers.iter().map(|pin| pin.0.load(Ordering::SeqCst)).filter(|&epoch| epoch > 0);
        pinned.min().unwrap_or(u64::MAX)
    }
}

/// A reader that is looking.
#[derive(Debug)]
pub(crate) struct Guard<'p>(&'p Pin);

impl Drop for Guard<'_> {
    #[inline]
    fn drop(&mut self) {
        // Release: pairs with the load in `oldest`.
        self.0.0.store(0, Ordering::Release);
    }
}
