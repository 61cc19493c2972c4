//! Step 2: whether the block is on this worker (vLLM ≥ 0.26.0 says so).

use super::Reason;

#[inline(always)]
pub(super) fn admit(locality: Option<&str>) -> Result<(), Reason> {
    match locality {
        None | Some("LOCAL") => Ok(()),
        Some(_) => Err(Reason::NonLocalLocality),
    }
}
