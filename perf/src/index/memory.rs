//! Whether kvtap gives memory back: filled, then emptied in random order, one block after the other.

use super::systems::System as _;
use super::systems::kvtap::Kvtap;
use super::workload::{Random, Size, generate};
use crate::alloc;

/// A little more than five million entries together.
const SIZE: Size = Size { workers: 64, capacity: 80_000, steady_blocks: 0, queries: 0 };
/// Of what filling added, so much may stay.
const STAYS_MAX: f64 = 0.05;

/// One paragraph.
///
/// # Panics
/// If more stays than may.
pub(super) fn check() -> String {
    let trace = generate(SIZE);
    let mut evictions = trace.evict.clone();
    let mut random = Random(1);
    for last in (1..evictions.len()).rev() {
        evictions.swap(last, random.below(last + 1));
    }
    let kvtap = Kvtap::new();
    alloc::track(true);
    let start = alloc::live();
    kvtap.apply(kvtap.events(&trace, &trace.fill));
    let full = alloc::live() - start;
    kvtap.apply(kvtap.events(&trace, &evictions));
    let empty = alloc::live() - start;
    alloc::track(false);
    let stays = empty as f64 / full as f64;
    assert!(stays <= STAYS_MAX, "{empty} of {full} bytes stay");
    format!(
        "\n### Memory given back\n{} entries took {:.1} MB; {:.2} MB ({:.1} %) are left after evicting them one by one in random order.\n",
        trace.entries,
        full as f64 / 1e6,
        empty as f64 / 1e6,
        stays * 100.0
    )
}
