//! Step 1: who manages the block.

use super::Reason;

/// Absent means the framework itself; `kvcr` is a layer whose blocks are not the worker's cache.
#[inline(always)]
pub(super) fn admit(ownership: Option<&str>) -> Result<(), Reason> {
    match ownership {
        None => Ok(()),
        Some("kvcr") => Err(Reason::UnsupportedOwnership),
        Some(_) => Err(Reason::UnknownOwnership),
    }
}
