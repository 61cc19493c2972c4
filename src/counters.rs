//! Plain integers of one source, summed when somebody asks.

use crate::ids::Worker;
use crate::observe::{Observer, Verdict};
use crate::policy::Reason;
use crate::wire::{Batch, Body, Event, EventError, EventErrorKind, WireError, WireErrorKind};

/// What a source has brought, and what became of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Payloads read, refused ones included.
    pub batches: u64,
    /// Payloads refused whole.
    pub malformed_batches: u64,
    /// Bytes of all payloads.
    pub payload_bytes: u64,
    /// Stored events, placed or filtered.
    pub stored_events: u64,
    /// Removed events, applied or filtered.
    pub removed_events: u64,
    /// Cleared events, applied or filtered.
    pub cleared_events: u64,
    /// Events with an unknown tag.
    pub unknown_events: u64,
    /// Events that broke a rule inside a sound payload.
    pub malformed_events: u64,
    /// Blocks placed; every copy counts.
    pub placed_blocks: u64,
    /// Blocks removed; every copy counts; clears and replacements do not.
    pub removed_blocks: u64,
    /// Tokens of the blocks that were placed from tokens.
    pub placed_tokens: u64,
    /// Times a full channel held the source up.
    pub back_pressure: u64,
    /// Changes for a shard whose thread has died: a defect, but none that should be silent.
    pub undelivered_records: u64,
    filtered: [u64; Reason::ALL.len()],
    refused: [u64; WireErrorKind::ALL.len()],
    malformed: [u64; EventErrorKind::ALL.len()],
}

impl Counters {
    /// Events or blocks (see [`Reason::scope`]) not placed for this reason.
    #[must_use]
    pub fn filtered(&self, reason: Reason) -> u64 {
        self.filtered[reason as usize]
    }

    /// Payloads refused whole for this kind of damage.
    #[must_use]
    pub const fn refused(&self, kind: WireErrorKind) -> u64 {
        self.refused[kind as usize]
    }

    /// Events that broke this kind of rule inside a sound payload.
    #[must_use]
    pub const fn malformed(&self, kind: EventErrorKind) -> u64 {
        self.malformed[kind as usize]
    }

    #[cold]
    pub(crate) const fn malform(&mut self, error: EventError) {
        self.malformed_events += 1;
        self.malformed[error.kind() as usize] += 1;
    }

    pub(crate) fn filter(&mut self, reason: Reason, count: u64) {
        self.filtered[reason as usize] += count;
    }

    /// Counts a payload, and whether it was refused.
    pub(crate) fn batch<T>(&mut self, payload: &[u8], read: Result<T, WireError>) -> Result<T, WireError> {
        self.batches += 1;
        self.payload_bytes += payload.len() as u64;
        if let Err(error) = &read {
            self.malformed_batches += 1;
            self.refused[error.kind() as usize] += 1;
        }
        read
    }

    /// Counts a store that has tokens for so many leading blocks, of which so many were placed.
    pub(crate) fn place(&mut self, complete: usize, placed: usize, body: &Body<'_>) {
        self.placed_blocks += placed as u64;
        self.placed_tokens += placed as u64 * u64::from(body.block_size);
        self.filter(Reason::TooManyBlocks, (complete - placed) as u64);
        self.filter(Reason::ShortTokens, (body.block_hashes.len() - complete) as u64);
    }

    /// Counts the events of a batch whose rank has no place.
    #[cold]
    pub(crate) fn refuse(&mut self, batch: &mut Batch<'_>, worker: Worker, observer: &mut impl Observer) {
        let reason = Reason::TooManyRanks;
        while let Some(mut event) = batch.next_event() {
            let verdict = match &event {
                Event::Stored(_) => {
                    self.stored_events += 1;
                    Verdict::Filter(reason)
                }
                Event::Removed(_) => {
                    self.removed_events += 1;
                    Verdict::Filter(reason)
                }
                Event::Cleared(_) => {
                    self.cleared_events += 1;
                    Verdict::Filter(reason)
                }
                Event::Unknown(_) => {
                    self.unknown_events += 1;
                    Verdict::Unknown
                }
                Event::Malformed(error) => {
                    self.malform(*error);
                    Verdict::Malformed(*error)
                }
            };
            self.filter(reason, u64::from(verdict == Verdict::Filter(reason)));
            observer.event(worker, &mut event, verdict);
        }
    }

    /// Adds another source's counts.
    pub fn add(&mut self, other: &Self) {
        for (mine, theirs) in self.plain_mut().into_iter().zip(other.clone().plain_mut()) {
            *mine += *theirs;
        }
        let mine = self.filtered.iter_mut().chain(&mut self.refused).chain(&mut self.malformed);
        let theirs = other.filtered.iter().chain(&other.refused).chain(&other.malformed);
        for (mine, theirs) in mine.zip(theirs) {
            *mine += theirs;
        }
    }

    fn plain_mut(&mut self) -> [&mut u64; 13] {
        [
            &mut self.batches,
            &mut self.malformed_batches,
            &mut self.payload_bytes,
            &mut self.stored_events,
            &mut self.removed_events,
            &mut self.cleared_events,
            &mut self.unknown_events,
            &mut self.malformed_events,
            &mut self.placed_blocks,
            &mut self.removed_blocks,
            &mut self.placed_tokens,
            &mut self.back_pressure,
            &mut self.undelivered_records,
        ]
    }
}
