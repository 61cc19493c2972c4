//! One part of the index: runs of blocks, with one writer that receives record batches and readers that take no locks.

#[expect(unsafe_code, reason = "segments of atomics that are given back while readers look at others")]
pub(crate) mod memory;
mod arena;
mod version;
mod run;
mod children;
mod locations;
mod crowds;
mod runs;
mod holders;
mod writer;

use std::sync::Arc;
use std::time::{Duration, Instant};

use ahash::RandomState;

use crate::channel::{Inlet, Message};
use crate::epoch::{Guard, Pins};
use crate::hash::PageKey;
use crate::slots::Slots;
use crate::sync::{AtomicU32, AtomicU64, Ordering};
pub(crate) use children::Key;
use memory::{Memory, View};
pub(crate) use run::{Holder, ROOT, Run};
use writer::Writer;

/// How often a shard that nobody waits for gives memory back and tells how much it takes.
const TELL: Duration = Duration::from_secs(1);
/// Words of a cache line.
const LINE_WORDS: usize = 8;

/// What a shard's writer and its readers share.
#[derive(Debug)]
pub(crate) struct Shared {
    memory: Arc<Memory>,
    /// Readers that the writer has overtaken too often; it waits for them before it changes anything they may have seen.
    overtaken: AtomicU32,
    /// Blocks that found no room.
    refused: AtomicU64,
    bytes: AtomicU64,
}

/// While it lives, nothing that readers may have seen changes, but for one change that may have begun.
#[derive(Debug)]
pub(crate) struct Priority<'s>(&'s Shared);

impl Shared {
    fn new(memory: Arc<Memory>) -> Self {
        Self { memory, overtaken: AtomicU32::new(0), refused: AtomicU64::new(0), bytes: AtomicU64::new(0) }
    }

    /// A reader's look at the shard; the guard must be of the engine's pins.
    #[inline]
    pub(crate) fn view<'g>(&'g self, guard: &'g Guard<'_>) -> View<'g> {
        self.memory.view(guard)
    }

    /// Makes the writer wait.
    pub(crate) fn take_priority(&self) -> Priority<'_> {
        self.overtaken.fetch_add(1, Ordering::SeqCst);
        Priority(self)
    }

    /// Waits for readers that were overtaken too often.
    #[inline]
    fn give_way(&self) {
        // Relaxed: one change more or less does not matter.
        while self.overtaken.load(Ordering::Relaxed) > 0 {
            std::thread::yield_now();
        }
    }

    fn refuse(&self, blocks: u32) {
        self.refused.fetch_add(blocks.into(), Ordering::Relaxed);
    }

    /// Blocks that found no room.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    fn set_bytes(&self, bytes: usize) {
        self.bytes.store(bytes as u64, Ordering::Relaxed);
    }

    /// Bytes the shard took at its last flush.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed) as usize
    }
}

impl Drop for Priority<'_> {
    fn drop(&mut self) {
        self.0.overtaken.fetch_sub(1, Ordering::Release);
    }
}

/// What the shards of an engine have in common.
#[derive(Clone, Debug)]
pub(crate) struct Common {
    pub(crate) pins: Arc<Pins>,
    pub(crate) slots: Arc<Slots>,
    pub(crate) hasher: RandomState,
    /// Of the digests of pages.
    pub(crate) page_key: PageKey,
    /// What a shard's memory may grow to.
    pub(crate) shard_bytes: usize,
}

/// Starts a shard; its thread ends when every sender is gone.
pub(crate) fn start(inlet: Inlet, common: Common, number: usize) -> std::io::Result<Arc<Shared>> {
    let writer = Writer::new(common);
    writer.tell_bytes();
    let shared = Arc::clone(writer.shared());
    std::thread::Builder::new().name(format!("kvtap-shard-{number}")).spawn(move || run(&inlet, writer))?;
    Ok(shared)
}

fn run(inlet: &Inlet, mut writer: Writer) {
    // When it last gave memory back and told what it takes, and whether that is still so.
    let mut told = Instant::now();
    let mut is_told = true;
    loop {
        let message = match (writer.has_sweeps(), is_told) {
            (true, _) => inlet.try_receive(),
            (false, true) => inlet.receive().map(Some),
            (false, false) => inlet.receive_within(TELL),
        };
        match message {
            Ok(Some(Message::Records(batch))) => {
                writer.apply(&batch);
                inlet.recycle(batch);
                is_told = false;
            }
            Ok(Some(Message::Flush(sign))) => {
                writer.settle();
                drop(sign);
            }
            // Whoever asked may have gone.
            Ok(Some(Message::Blocks(slot, answer))) => drop(answer.send(writer.blocks(slot))),
            Ok(None) => {}
            Err(_) => break,
        }
        writer.sweep();
        if !is_told && told.elapsed() >= TELL {
            writer.rest();
            (told, is_told) = (Instant::now(), !writer.has_sweeps());
        }
    }
}
