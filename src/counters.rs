//! Plain integers of one source, summed when somebody asks.

use crate::policy::Reason;

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
    /// Batches with a negative rank.
    pub negative_ranks: u64,
    /// Times a full channel held the source up.
    pub back_pressure: u64,
    filtered: [u64; Reason::ALL.len()],
}

impl Counters {
    /// Events or blocks (see [`Reason::scope`]) not placed for this reason.
    #[must_use]
    pub fn filtered(&self, reason: Reason) -> u64 {
        self.filtered[reason as usize]
    }

    pub(crate) fn filter(&mut self, reason: Reason, count: u64) {
        self.filtered[reason as usize] += count;
    }

    /// Adds another source's counts.
    pub fn add(&mut self, other: &Self) {
        for (mine, theirs) in self.plain_mut().into_iter().zip(other.clone().plain_mut()) {
            *mine += *theirs;
        }
        for (mine, theirs) in self.filtered.iter_mut().zip(other.filtered) {
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
            &mut self.negative_ranks,
            &mut self.back_pressure,
        ]
    }
}
