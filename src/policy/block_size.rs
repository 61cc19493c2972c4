//! Step 6: the producer's block size against the configured one.

use super::Reason;

/// What one rank has shown of its block size.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockSize {
    configured: u32,
    /// It has published a full block, so smaller ones are partial tails, not a wrong configuration.
    proven: bool,
    /// The last size that was neither, and how many events had one.
    mismatch: Option<(u32, u64)>,
}

impl BlockSize {
    pub(super) const fn new(configured: u32) -> Self {
        Self { configured, proven: false, mismatch: None }
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
        let events = self.mismatch.map_or(0, |(_, events)| events);
        self.mismatch = Some((block_size, events + 1));
        Err(Reason::BlockSizeMismatch)
    }

    pub(super) const fn forget(&mut self) {
        self.proven = false;
    }

    pub(super) const fn mismatch(&self) -> Option<(u32, u64)> {
        self.mismatch
    }
}
