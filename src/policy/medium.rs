//! Step 3: the wire's medium → tier.

use super::Reason;
use crate::ids::Tier;

/// Names in upper case; the wire's case does not matter (Mooncake's connector sends `cpu`).
const MEDIA: [(&str, Tier); 14] = [
    ("GPU", Tier::Device),
    ("", Tier::Device),
    ("DEVICE", Tier::Device),
    ("CPU", Tier::HostPinned),
    ("CPU_PINNED", Tier::HostPinned),
    ("CPU_TIER1", Tier::HostPinned),
    ("CPU_TIER2", Tier::Disk),
    ("DISK", Tier::Disk),
    ("NVME", Tier::Disk),
    ("STORAGE", Tier::Disk),
    ("EXTERNAL", Tier::External),
    ("NETWORK", Tier::External),
    ("REMOTE", Tier::External),
    ("SHARED", Tier::External),
];

#[inline(always)]
pub(super) fn tier(medium: Option<&str>) -> Result<Tier, Reason> {
    let Some(medium) = medium else { return Ok(Tier::Device) };
    // By far the most common, and an exact comparison.
    if medium == "GPU" {
        return Ok(Tier::Device);
    }
    by_name(medium)
}

#[inline(never)]
fn by_name(medium: &str) -> Result<Tier, Reason> {
    let known = MEDIA.iter().find(|(name, _)| medium.eq_ignore_ascii_case(name));
    known.map(|&(_, tier)| tier).ok_or(Reason::UnknownMedium)
}
