//! Step 6: the producer's block size against the configured one.

use super::Reason;

/// Distinct wrong sizes counted.
const SIZES_MAX: usize = 4;

/// What one rank has shown of its block size.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockSize {
    configured: u32,
    /// It has published a full block, so smaller ones are partial tails, not a wrong configuration.
    proven: bool,
    /// Sizes that were neither, with their events; the first few.
    mismatches: [(u32, u64); SIZES_MAX],
}

impl BlockSize {
    pub(super) const fn new(configured: u32) -> Self {
        Self { configured, proven: false, mismatches: [(0, 0); SIZES_MAX] }
    }

    #[inline]
    pub(super) fn admit(&mut self, block_size: u32) -> Result<(), Reason> {
        if block_size == self.configured {
            self.proven = true;
            return Ok(());
        }
        if self.proven && block_size < self.configured {
            return Err(Reason::PartialBlock);
        }
        let seen = self.mismatches.iter_mut().find(|(size, events)| *size == block_size || *events == 0);
        if let Some((size, events)) = seen {
            *size = block_size;
            *events += 1;
        }
        Err(Reason::BlockSizeMismatch)
    }

    /// Whether a full block was published, here or as another has seen it.
    pub(super) const fn is_proven(&self) -> bool {
        self.proven
    }

    pub(super) const fn prove(&mut self) {
        self.proven = true;
    }

    pub(super) const fn forget(&mut self) {
        self.proven = false;
    }

    /// The most frequent of the sizes that were neither.
    pub(super) fn mismatch(&self) -> Option<(u32, u64)> {
        self.mismatches.into_iter().filter(|&(_, events)| events > 0).max_by_key(|&(_, events)| events)
    }
}
